//! The fixed part of the configuration: what needs a reload. It holds no text of a tenant.

use std::fmt::Write as _;

use super::layout::Layout;
use crate::edge::class::{Class, Mode};
use crate::edge::input::{Listeners, RouterConfig, Tuning};
use crate::edge::names;
use crate::edge::wanted::MapName;

const RULES: &str = include_str!("rules.cfg");
const LOOK: &str = include_str!("sni.cfg");
const CLASS: &str = include_str!("class.cfg");

/// The frontend that ends TLS at once.
pub const DIRECT: &str = "_https";

/// The frontend that looks into TLS before it ends. Of the two one takes connections: [`Slot::Front`] says which.
///
/// [`Slot::Front`]: crate::edge::wanted::Slot::Front
pub const SNI: &str = "_sni";

/// The script that rules call.
pub const LUA: &str = include_str!("waystation.lua");

/// What `haproxy.cfg` begins with.
pub const HEADER: &str = "# Written by waystation: changes are lost.\n\n";

/// `haproxy.cfg` without its mark, as if no host was passed through. See [`super::FixedPart`].
pub fn text(config: &RouterConfig, layout: &Layout) -> String {
    let mut out = String::from(HEADER);
    global(&config.tuning, layout, &mut out);
    frontends(config, layout, &mut out);
    answers(config, layout, &mut out);
    for class in Class::all() {
        class_section(class, &config.tuning, layout, &mut out);
    }
    out
}

fn global(tuning: &Tuning, layout: &Layout, out: &mut String) {
    out.push_str("global\n");
    let _ = writeln!(out, "  stats socket {} mode 600 level admin expose-fd listeners", layout.socket());
    // One connection is kept for good; others are for people.
    out.push_str("  stats timeout 20d\n  stats maxconn 20\n");
    out.push_str("  tune.cli.max-payload-size 8388608\n  tune.lua.bool-sample-conversion normal\n");
    out.push_str("  ssl-default-bind-options ssl-min-ver TLSv1.2\n");
    // A class that nothing is made of yet must still be there when something is.
    out.push_str("  no strict-limits\n");
    let _ = writeln!(out, "  hard-stop-after {}ms", tuning.hard_stop_after_ms);
    if let Some(max) = tuning.max_connections {
        let _ = writeln!(out, "  maxconn {max}");
    }
    if let Some(threads) = tuning.threads {
        let _ = writeln!(out, "  nbthread {threads}");
    }
    let _ = writeln!(out, "  lua-load-per-thread {} unix@{}\n", layout.lua(), layout.verifier());
}

fn frontends(config: &RouterConfig, layout: &Layout, out: &mut String) {
    let (listeners, tuning) = (&config.listeners, &config.tuning);
    for (name, mode) in [("_client-http", "http"), ("_client-tcp", "tcp")] {
        let _ = writeln!(out, "defaults {name}\n  mode {mode}");
        let _ = writeln!(out, "  timeout client {}ms", tuning.timeout_client_ms);
        let _ = writeln!(out, "  timeout client-fin 30s");
        if mode == "http" {
            let _ = writeln!(out, "  timeout http-request {}ms", tuning.timeout_http_request_ms);
            let _ = writeln!(out, "  timeout http-keep-alive {}ms", tuning.timeout_keep_alive_ms);
            // Open connections of browsers outlive a reload instead of failing a request.
            out.push_str("  option idle-close-on-response\n");
        }
        out.push('\n');
    }
    let proxy = if listeners.accept_proxy { " accept-proxy" } else { "" };
    let tls = format!("ssl crt-list {} crt-list {} alpn h2,http/1.1", layout.default_list(), layout.crt_list());
    out.push_str("frontend _http from _client-http\n");
    binds(listeners, listeners.http, proxy, out);
    let _ = writeln!(out, "{}", rules("[http] ", "[https] ", layout));
    let https = rules("[https] ", "[http] ", layout);
    // While a host is passed through nothing may end TLS without a look, and it is disabled; otherwise both answer until
    // one is switched off, and the way through the other is only longer.
    let _ = writeln!(out, "frontend {DIRECT} from _client-http");
    binds(listeners, listeners.https, &format!("{proxy} {tls}"), out);
    let _ = writeln!(out, "{https}");
    if listeners.passthrough {
        let _ = writeln!(out, "frontend {SNI} from _client-tcp");
        binds(listeners, listeners.https, proxy, out);
        let _ = writeln!(out, "{}", with_maps(LOOK.to_owned(), layout));
        out.push_str("frontend _inner from _client-http\n");
        let _ = writeln!(out, "  bind unix@{} accept-proxy {tls}", layout.tls_socket());
        let _ = writeln!(out, "{https}");
    }
    if listeners.stats != 0 {
        out.push_str("frontend _stats from _client-http\n");
        binds(listeners, listeners.stats, "", out);
        out.push_str("  http-request use-service prometheus-exporter if { path /metrics }\n");
        out.push_str("  http-request return status 200 if { path /healthz }\n");
        out.push_str("  http-request return status 404\n\n");
    }
}

/// Families apart: an IPv4 client must not look like an IPv6 one to lists of networks.
fn binds(listeners: &Listeners, port: u16, keywords: &str, out: &mut String) {
    if listeners.addresses.is_empty() {
        let _ = writeln!(out, "  bind 0.0.0.0:{port}{keywords}\n  bind [::]:{port} v6only{keywords}");
    }
    for address in &listeners.addresses {
        let _ = match address {
            std::net::IpAddr::V4(v4) => writeln!(out, "  bind {v4}:{port}{keywords}"),
            std::net::IpAddr::V6(v6) => writeln!(out, "  bind [{v6}]:{port} v6only{keywords}"),
        };
    }
}

/// The rules of one frontend: lines with its mark, without those of the other one.
fn rules(own: &str, other: &str, layout: &Layout) -> String {
    let lines = RULES.lines().filter(|line| !line.trim_start().starts_with(other));
    let rules: String = lines.flat_map(|line| [line, "\n"]).collect();
    with_maps(rules.replace(own, ""), layout)
}

/// `MAP[name]` becomes the path of the map.
fn with_maps(text: String, layout: &Layout) -> String {
    let name = |text: String, map: &MapName| text.replace(&format!("MAP[{map}]"), &layout.map(*map));
    MapName::ALL.iter().fold(text, name)
}

/// Backends that are always there.
fn answers(config: &RouterConfig, layout: &Layout, out: &mut String) {
    let tuning = &config.tuning;
    let _ = writeln!(
        out,
        "defaults _fixed\n  mode http\n  timeout connect {}ms\n  timeout server 1h\n",
        tuning.timeout_connect_ms
    );
    for (name, status) in [(names::NOT_FOUND, 404), (names::UNAVAILABLE, 503)] {
        let _ = writeln!(out, "backend {name} from _fixed\n  http-request return status {status}\n");
    }
    let _ = writeln!(out, "backend {} from _fixed\n  mode tcp\n  tcp-request content reject\n", names::REJECT);
    if config.listeners.passthrough {
        // How long it may be silent is known where TLS ends.
        let _ = writeln!(
            out,
            "backend _tls from _fixed\n  mode tcp\n  timeout tunnel 20d\n  server tls unix@{} send-proxy-v2\n",
            layout.tls_socket()
        );
    }
    for (name, period, more) in [("_second", "1s", ",conn_cur"), ("_minute", "60s", "")] {
        let _ = writeln!(
            out,
            "backend {name} from _fixed\n  stick-table type binary len 20 size 200k expire 90s store http_req_rate({period}){more}\n"
        );
    }
}

fn class_section(class: Class, tuning: &Tuning, layout: &Layout, out: &mut String) {
    let mode = if class.mode == Mode::Http { "http" } else { "tcp" };
    let _ = writeln!(out, "defaults {class}\n  mode {mode}\n  {}", class.balance.directive());
    for (name, ms) in [
        ("connect", tuning.timeout_connect_ms),
        ("server", tuning.timeout_server_ms),
        ("tunnel", tuning.timeout_tunnel_ms),
        ("queue", tuning.timeout_queue_ms),
    ] {
        let _ = writeln!(out, "  timeout {name} {ms}ms");
    }
    out.push_str("  timeout server-fin 30s\n  option redispatch 1\n");
    if class.mode == Mode::Tcp {
        out.push('\n');
        return;
    }
    let wanted = |line: &&str| {
        let line = line.trim_start();
        (class.cookie || !line.starts_with("[cookie]")) && (class.check || !line.starts_with("[check]"))
    };
    let rules: String = CLASS.lines().filter(wanted).flat_map(|line| [line, "\n"]).collect();
    out.push_str(&with_maps(rules.replace("[cookie] ", "").replace("[check] ", ""), layout));
    out.push('\n');
}
