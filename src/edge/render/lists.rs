//! Maps and the list of certificates as files.

use std::fmt::Write as _;
use std::sync::Arc;

use super::layout::Layout;
use crate::edge::model::DEFAULT_CERTIFICATE;
use crate::edge::wanted::{CrtLine, MapName, Slot, Value, Wanted};

/// A map's file: a key and a value a line, in the order that counts for this map.
pub fn map(wanted: &Wanted, map: MapName) -> String {
    let mut out = String::new();
    for (key, value) in entries(wanted, map) {
        let _ = writeln!(out, "{key} {value}");
    }
    out
}

/// Entries in the order that counts: of patterns the longest first.
pub fn entries(wanted: &Wanted, map: MapName) -> Vec<(&Arc<str>, &Arc<str>)> {
    let mut entries: Vec<_> = wanted.map(map).collect();
    if map.ordered() {
        entries.sort_by_key(|(key, _)| (std::cmp::Reverse(key.len()), (*key).clone()));
    }
    entries
}

/// The line of a host, in a file and behind `add ssl crt-list`.
pub fn crt_line(host: &str, line: &CrtLine, layout: &Layout) -> String {
    let mut options = String::from("alpn h2,http/1.1");
    if let Some((authority, required)) = &line.client {
        let verify = if *required { "required" } else { "optional" };
        let _ = write!(options, " ca-file {} verify {verify}", layout.authority(authority));
    }
    format!("{} [{options}] {host}", layout.certificate(&line.certificate))
}

/// The list of the certificate that hosts without one have. With `crt` the names in it would be its hosts, and a host's
/// own certificate the second.
pub fn default_list(layout: &Layout) -> String {
    format!("{} [alpn h2,http/1.1] *\n", layout.certificate(DEFAULT_CERTIFICATE))
}

/// The list of certificates.
pub fn crt_list(wanted: &Wanted, layout: &Layout) -> String {
    let mut out = String::new();
    let start = Slot::CrtList("".into());
    for (slot, value) in wanted.slots().range(start..) {
        let (Slot::CrtList(host), Value::CrtLine(line)) = (slot, value) else { break };
        let _ = writeln!(out, "{}", crt_line(host, line, layout));
    }
    out
}
