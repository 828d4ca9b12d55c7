//! `docs/options.md`, written from the table.

use std::fmt::Write as _;

use super::{Prefix, Scope, TABLE};

const HEAD: &str = "# Options of the edge

<!-- Written from the table of options (src/edge/options/table.rs): change that, not this file. -->

Annotations of Ingresses and Services in the prefix `waystation.dev/`; the same names, without a prefix, are defaults in
`edge.options` of the RouterConfig. Keys of other controllers that mean the same are read as well.

- **What counts**: an annotation of the Service, then of the Ingress, then `edge.options`, then the default. On one object
  `waystation.dev/`, then `haproxy-ingress.github.io/`, `haproxy.org/`, `nginx.ingress.kubernetes.io/`; that two differ is told by an event.
- **Scope**. *host*: said by an Ingress about its hosts, and heard only if the host is its namespace's (its oldest Ingress
  is of that namespace); not read from Services. *path*: about the paths of the Ingress, or about all that leads to the
  Service. *service*: about how the Service is reached; where two Ingresses differ, the oldest counts.
- **A value that cannot be read** is dropped and told by an event. Options marked *protects* deny instead: what they
  guard answers 503 until they can be read.
- Secrets are those of the Ingress's or Service's own namespace, also where `edge.options` names them.
- Allow and deny lists of a Service and of an Ingress hold both.
- Limits count in each pod by itself: with three pods three times as much comes through.
- Nothing here reloads HAProxy.

";

/// The whole page.
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for (scope, title) in [(Scope::Host, "Hosts"), (Scope::Path, "Paths"), (Scope::Service, "Services")] {
        let _ = writeln!(out, "## {title}\n");
        let _ = writeln!(out, "| option | values | default | what it does |\n|---|---|---|---|");
        for row in TABLE.iter().filter(|r| r.scope == scope) {
            let protects = if row.protects { " *Protects.*" } else { "" };
            let default = if row.default.is_empty() { "–".to_owned() } else { format!("`{}`", row.default) };
            let values = row.values.replace('|', "\\|");
            let _ = writeln!(out, "| `{}` | {values} | {default} | {}{protects} |", row.name, row.does);
        }
        out.push('\n');
    }
    out.push_str("## Keys of other controllers\n\n");
    for prefix in Prefix::ALL.into_iter().skip(1) {
        let _ = writeln!(out, "### `{}`\n\n| key | option | what differs |\n|---|---|---|", prefix.as_str());
        let mut rows: Vec<(&str, &str, &str)> = Vec::new();
        for row in TABLE {
            let aliases = row.aliases.iter().filter(|a| a.prefix == prefix);
            rows.extend(aliases.map(|a| (a.key, row.name, a.differs)));
        }
        rows.sort_unstable();
        for (key, name, differs) in rows {
            let _ = writeln!(out, "| `{key}` | `{name}` | {} |", if differs.is_empty() { "–" } else { differs });
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
