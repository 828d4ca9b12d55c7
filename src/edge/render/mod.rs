//! The files that a HAProxy is started from, written from the same state that it is driven to.
//!
//! `haproxy -W -S MASTER -f haproxy.cfg -f backends/` serves what [`files`] says. The certificate of hosts without one
//! must be there (made up, where the RouterConfig names none), and every folder.

mod backends;
mod config;
mod fixed;
mod layout;
mod lists;
mod reload;

use super::wanted::{MapName, Slot, Value, Wanted};
pub use backends::{section, server, shard};
pub use config::{DIRECT, SNI};
pub use fixed::{FixedPart, Mark, mark_in};
pub use layout::{Layout, SHARDS, is_written, shard_of};
pub use lists::{crt_line, crt_list, entries, map};
pub use reload::reloads;

/// One file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: String,
    /// What is in it; keys and hashes in some: mode 0600 for all.
    pub contents: String,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.path, self.contents.len())
    }
}

/// The file that a slot is in.
pub fn file_of(slot: &Slot, layout: &Layout) -> String {
    match slot {
        Slot::Authority(name) => layout.authority(name),
        Slot::Certificate(name) => layout.certificate(name),
        Slot::Users(name) => layout.users(name),
        Slot::Backend(name) | Slot::Server(name, _) => layout.shard(shard_of(name)),
        Slot::CrtList(_) => layout.crt_list(),
        Slot::Front => layout.config(),
        Slot::Map(map, _) => layout.map(*map),
    }
}

/// The contents of the file that a slot is in; `None`: there is to be no such file. What is held may as well be what
/// was acknowledged so far: whoever writes files keeps that in a [`Wanted`] of its own.
pub fn contents(slot: &Slot, fixed: &FixedPart, held: &Wanted, layout: &Layout) -> Option<String> {
    match slot {
        Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_) => match held.get(slot)? {
            Value::Sealed(text) => Some(text.to_string()),
            _ => None,
        },
        Slot::Backend(name) | Slot::Server(name, _) => {
            let number = shard_of(name);
            Some(shard(held, number, layout)).filter(|contents| is_written(number, contents))
        }
        Slot::CrtList(_) => Some(crt_list(held, layout)),
        Slot::Front => Some(fixed.config(held.get(slot).is_some())),
        Slot::Map(name, _) => Some(map(held, *name)),
    }
}

/// All files.
pub fn files(fixed: &FixedPart, wanted: &Wanted, layout: &Layout) -> Vec<File> {
    let mut out = vec![
        File { path: layout.config(), contents: fixed.config(wanted.get(&Slot::Front).is_some()) },
        File { path: layout.lua(), contents: fixed.lua().to_owned() },
        File { path: layout.default_list(), contents: fixed.default_list().to_owned() },
        File { path: layout.crt_list(), contents: crt_list(wanted, layout) },
    ];
    out.extend(MapName::ALL.iter().map(|name| File { path: layout.map(*name), contents: map(wanted, *name) }));
    let mut shards = vec![String::new(); usize::try_from(SHARDS).unwrap_or(1)];
    for (slot, value) in wanted.slots() {
        match (slot, value) {
            (Slot::Backend(name), Value::Backend(class)) => {
                let text = &mut shards[usize::try_from(shard_of(name)).unwrap_or(0)];
                backends::section(wanted, name, *class, layout, text);
            }
            (Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_), Value::Sealed(text)) => {
                out.push(File { path: file_of(slot, layout), contents: text.to_string() });
            }
            _ => {}
        }
    }
    let parts = (0..).zip(shards).filter(|(number, contents)| is_written(*number, contents));
    out.extend(parts.map(|(number, contents)| File { path: layout.shard(number), contents }));
    out
}

#[cfg(test)]
mod tests;
