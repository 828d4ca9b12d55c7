//! Who may import whom: the table below is the architecture, and this test fails on any other edge.
//!
//! Test code (`#[cfg(test)]` modules and files that such a module stands in) is free.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

mod paths;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use paths::{Crates, Reference, references};

/// What one module may import.
struct Layer {
    /// The module below `src/`.
    module: &'static str,
    /// Modules of this crate besides itself; a longer path allows that part only.
    internal: &'static [&'static str],
    /// Crates besides `std`.
    external: External,
    /// Paths that are refused although the crate is allowed.
    forbidden: &'static [&'static str],
}

enum External {
    Any,
    Only(&'static [&'static str]),
    /// All but these.
    Except(&'static [&'static str]),
}

/// What makes code depend on when, where or how often it runs.
const WORLD: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::process",
    "std::thread",
    "RandomState::new",
];

/// What speaks Kubernetes.
const KUBERNETES: &[&str] = &["kube", "k8s_openapi", "schemars"];

const LAYERS: &[Layer] = &[
    Layer {
        module: "api",
        internal: &[],
        external: External::Only(&[
            "jiff",
            "k8s_openapi",
            "kube",
            "schemars",
            "serde",
            "serde_json",
            "serde_saphyr",
            "thiserror",
        ]),
        forbidden: &["kube::Api", "kube::Client", "kube::client", "kube::runtime"],
    },
    // What the two models share.
    Layer { module: "key", internal: &[], external: External::Only(&[]), forbidden: WORLD },
    Layer { module: "maps", internal: &[], external: External::Only(&["ahash"]), forbidden: WORLD },
    Layer { module: "off_limits", internal: &[], external: External::Only(&[]), forbidden: WORLD },
    Layer {
        module: "messaging",
        internal: &["key", "maps", "off_limits"],
        external: External::Only(&["ahash", "indexmap", "thiserror"]),
        forbidden: WORLD,
    },
    Layer {
        module: "edge",
        internal: &["key", "maps", "off_limits"],
        external: External::Only(&["ahash", "base64", "indexmap", "thiserror"]),
        forbidden: WORLD,
    },
    Layer {
        module: "engine",
        internal: &["messaging"],
        external: External::Except(&["kube", "k8s_openapi", "schemars", "fe2o3_amqp", "serde_amqp", "axum", "anyhow"]),
        forbidden: &[],
    },
    Layer {
        // Besides its mailbox a drive holds the leader's permit, without which no command goes, and spreads its retries.
        module: "drive",
        // What tells files from processes that are older needs the time that people read.
        internal: &[
            "messaging",
            "edge",
            "maps",
            "engine::mailbox",
            "engine::permit",
            "engine::guarded",
            "engine::jitter",
            "engine::clock",
            "engine::loops",
        ],
        external: External::Except(&["kube", "k8s_openapi", "schemars", "axum", "anyhow", "clap"]),
        forbidden: &[],
    },
    Layer {
        module: "cluster",
        internal: &["api", "messaging", "edge", "engine"],
        external: External::Except(&["fe2o3_amqp", "serde_amqp", "axum", "anyhow", "clap"]),
        forbidden: &[],
    },
    Layer { module: "serve", internal: &[], external: External::Except(KUBERNETES), forbidden: &[] },
    Layer { module: "metrics", internal: &[], external: External::Except(KUBERNETES), forbidden: &[] },
    Layer { module: "cli", internal: &["api"], external: External::Only(&["clap"]), forbidden: &[] },
    Layer {
        module: "operator",
        internal: &["api", "cli", "cluster", "drive", "engine", "messaging", "metrics", "process", "serve"],
        external: External::Any,
        forbidden: &[],
    },
    Layer {
        module: "agent",
        internal: &["cli", "cluster", "drive", "edge", "engine", "metrics", "process", "serve", "supervise"],
        external: External::Any,
        forbidden: &[],
    },
    // What both of them need of the machine.
    Layer {
        module: "process",
        internal: &["cli", "cluster::meter", "cluster::watch", "drive::meter", "engine", "messaging::ids", "metrics"],
        external: External::Any,
        forbidden: &[],
    },
    Layer {
        // It knows how files are called, and nothing of what is in them but users.
        module: "supervise",
        internal: &["edge::render", "engine::jitter", "engine::loops"],
        external: External::Except(KUBERNETES),
        forbidden: &[],
    },
    // The binary: one subcommand, one call.
    Layer {
        module: "main",
        internal: &["agent", "api::crds", "cli", "operator", "supervise"],
        external: External::Any,
        forbidden: &["kube::Client"],
    },
    // `lib.rs` declares the modules and nothing else.
    Layer { module: "", internal: &[], external: External::Only(&[]), forbidden: &[] },
];

impl Layer {
    /// Why the reference is not allowed, if so.
    fn refusal(&self, reference: &Reference) -> Option<String> {
        let shown = reference.to_string();
        if let Some(forbidden) = self.forbidden.iter().find(|path| reference.contains(path)) {
            return Some(format!("{shown} ({forbidden} is forbidden here)"));
        }
        let allowed = match reference {
            Reference::Internal(path) => match path.first() {
                None => return Some(format!("{shown} imports the root: name the module")),
                Some(first) if first == self.module => true,
                Some(_) => self.internal.iter().any(|allowed| {
                    let mut parts = allowed.split("::");
                    let mut have = path.iter();
                    parts.all(|part| have.next().is_some_and(|have| have == part))
                }),
            },
            Reference::External(path) => match path.first().map(String::as_str) {
                None | Some("std" | "core" | "alloc") => true,
                Some(name) => match self.external {
                    External::Any => true,
                    External::Only(names) => names.contains(&name),
                    External::Except(names) => !names.contains(&name),
                },
            },
        };
        (!allowed).then_some(shown)
    }
}

/// The references in one file that the table refuses. `file` is relative to `src/`.
fn refused(file: &Path, source: &str, crates: &Crates) -> BTreeSet<String> {
    let module = module_of(file);
    let top = module.first().map_or("", String::as_str);
    let Some(layer) = LAYERS.iter().find(|layer| layer.module == top) else {
        return BTreeSet::from([format!("src/{}: the module has no row in tests/layering", file.display())]);
    };
    // `main.rs` is a crate of its own, whose root is not that of the library.
    let module = if top == "main" { Vec::new() } else { module };
    references(source, &module, crates)
        .unwrap_or_else(|error| panic!("src/{}: {error}", file.display()))
        .iter()
        .filter_map(|reference| layer.refusal(reference))
        .map(|reference| format!("src/{}: {reference}", file.display()))
        .collect()
}

/// `a/b.rs` and `a/b/mod.rs` are both `a::b`; `lib.rs` is the root.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || (last == "lib" && parts.len() == 1)) {
        parts.pop();
    }
    parts
}

/// Every Rust file below the folder, except those of test modules.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        } else if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn crates() -> Crates {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    Crates::from_manifest(&manifest)
}

#[test]
fn the_table_holds() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let crates = crates();
    let mut all = BTreeSet::new();
    let files = sources(&src);
    assert!(files.len() > 10, "too few files in {}", src.display());
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        all.extend(refused(path.strip_prefix(&src).unwrap(), &source, &crates));
    }
    assert!(all.is_empty(), "imports that the table in tests/layering does not allow:\n  {}", list(&all));
}

fn list(lines: &BTreeSet<String>) -> String {
    lines.iter().cloned().collect::<Vec<_>>().join("\n  ")
}

/// Whether the source, in that file, is refused for a reason that contains `what`.
#[track_caller]
fn assert_refused(file: &str, source: &str, what: &str) {
    let refused = refused(Path::new(file), source, &crates());
    assert!(refused.iter().any(|line| line.contains(what)), "{what} went unnoticed in {file}:\n{source}\n{refused:?}");
}

#[track_caller]
fn assert_allowed(file: &str, source: &str) {
    let refused = refused(Path::new(file), source, &crates());
    assert!(refused.is_empty(), "{file}:\n{source}\n{refused:?}");
}

#[test]
fn a_plain_import_is_caught() {
    assert_refused("messaging/model.rs", "use crate::cluster::watch::Event;", "crate::cluster::watch::Event");
    assert_refused("messaging/mod.rs", "use tokio::sync::mpsc;", "tokio");
    assert_refused("drive/broker/mod.rs", "use crate::api::Address;", "crate::api");
    assert_refused("cluster/status.rs", "use crate::drive::broker;", "crate::drive");
    assert_refused("serve.rs", "use kube::Client;", "kube");
    assert_refused("cli.rs", "use crate::operator::run;", "crate::operator");
    assert_refused("lib.rs", "use kube::Client;", "kube");
    assert_refused("main.rs", "use waystation::cluster::watch;", "crate::cluster");
    assert_refused("api/address.rs", "use kube::{CustomResource, Client};", "kube::Client");
    assert_refused("newcomer.rs", "fn f() {}", "no row");
}

#[test]
fn super_is_followed_to_where_it_leads() {
    assert_refused("messaging/model.rs", "use super::super::cluster::Event;", "crate::cluster::Event");
    assert_refused("messaging/a/b.rs", "fn f() { super::super::super::drive::go() }", "crate::drive::go");
    assert_refused("messaging/mod.rs", "mod inner { use super::super::engine::Pulse; }", "crate::engine::Pulse");
    assert_refused("messaging/mod.rs", "use self::super::engine::Pulse;", "crate::engine::Pulse");
    assert_allowed("messaging/a/b.rs", "use super::super::delta::Delta; use super::c; use self::d::E;");
}

#[test]
fn nested_groups_are_taken_apart() {
    let source = "use {std::fmt, crate::{messaging::{Delta, Key as K}, api::{self, Address}}};";
    assert_refused("drive/mod.rs", source, "crate::api::Address");
    assert_refused("engine/mod.rs", "use crate::{engine::x, messaging, cluster as c};", "crate::cluster");
    assert_allowed("cluster/mod.rs", source);
}

#[test]
fn full_paths_in_code_are_caught() {
    assert_refused("messaging/a.rs", "fn f() { let x: Vec<crate::api::Address> = Vec::new(); }", "crate::api::Address");
    assert_refused("messaging/a.rs", "fn f() { ::tokio::spawn(async {}); }", "tokio::spawn");
    assert_refused("messaging/a.rs", "#[derive(serde::Serialize)] struct S;", "serde::Serialize");
    assert_refused("messaging/a.rs", "fn f() { write(format!(\"{}\", crate::serve::port())) }", "crate::serve::port");
    assert_refused("messaging/a.rs", "impl Into<crate::cluster::X> for Y {}", "crate::cluster::X");
    assert_refused("drive/a.rs", "fn f(x: Option::<kube::Client>) {}", "kube::Client");
}

#[test]
fn other_names_do_not_hide_it() {
    assert_refused("messaging/a.rs", "use crate as root; fn f() { root::cluster::go() }", "crate::cluster::go");
    assert_refused("messaging/a.rs", "use super::super as up; use up::drive::go;", "crate::drive::go");
    assert_refused("messaging/a.rs", "use crate::cluster as safe; fn f() { safe::go() }", "crate::cluster");
    assert_refused("messaging/a.rs", "use crate::*; fn f() { cluster::go() }", "imports the root");
    assert_refused("messaging/a.rs", "extern crate tokio as t;", "tokio");
    assert_refused("messaging/a.rs", "use std::time as t; fn f() { t::Instant::now(); }", "Instant::now");
    assert_refused("messaging/a.rs", "use std::time::Instant as I; fn f() { I::now(); }", "Instant::now");
    assert_refused("messaging/a.rs", "pub use k8s_openapi as k;", "k8s_openapi");
}

#[test]
fn clock_and_io_are_kept_out_of_the_model() {
    assert_refused("messaging/a.rs", "fn f() { std::time::SystemTime::now(); }", "SystemTime::now");
    assert_refused("messaging/a.rs", "use std::time::Instant; fn f() { Instant::now(); }", "Instant::now");
    assert_refused("messaging/a.rs", "use std::fs;", "std::fs");
    assert_refused("messaging/a.rs", "fn f() { tracing::info!(\"x\") }", "tracing::info");
    assert_allowed("messaging/a.rs", "use std::time::Duration; use std::collections::BTreeMap; use ahash::AHashMap;");
}

#[test]
fn a_longer_row_allows_that_part_only() {
    assert_allowed("drive/a.rs", "use crate::engine::mailbox::Mailbox; use crate::messaging::Delta;");
    assert_refused("drive/a.rs", "use crate::engine::owner::Owner;", "crate::engine::owner");
    assert_refused("drive/a.rs", "use crate::engine;", "crate::engine");
}

#[test]
fn test_code_comments_and_texts_are_free() {
    assert_allowed("messaging/a.rs", "#[cfg(test)] mod tests { use tokio::test; use crate::cluster; }");
    assert_allowed("messaging/a.rs", "#[cfg(test)] use proptest::prelude::*;\n#[cfg(test)] fn f() { kube::x() }");
    assert_allowed("messaging/a.rs", "//! crate::cluster::x\n/// See [`crate::cluster::x`].\nfn f() {}");
    assert_allowed("messaging/a.rs", "const S: &str = \"crate::cluster::x\"; // tokio::spawn");
    // What follows test code is not.
    assert_refused("messaging/a.rs", "#[cfg(test)] mod tests { } use crate::cluster;", "crate::cluster");
    assert_refused("messaging/a.rs", "#[cfg(not(test))] use crate::cluster;", "crate::cluster");
}
