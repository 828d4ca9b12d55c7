//! A HAProxy 3.4 in memory, as far as it can be told things at run time: backends, servers, maps, certificates and lists
//! of them, with HAProxy's semantics and words. Pure and synchronous; it moves no requests.
//!
//! A [`Worker`] is started from [`Files`] and refuses what HAProxy would refuse to start from: files that lack what they
//! refer to. What it was told since is gone with it. `tests/haproxy_link/alike.rs`
//! holds it to HAProxy 3.4.7: the same commands, the same answers.
//!
//! Invariant: nothing in it refers to a class, store or list that is not there.

mod config;
mod maps;
mod proxies;
mod show;
mod stores;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use config::Parser;
pub use maps::Map;
pub use proxies::{Admin, Backend, Server};
pub use stores::{CrtLine, CrtList};

/// Contents of files, by path.
pub type Files = BTreeMap<String, Arc<str>>;

/// A process that serves.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Its number.
    pub pid: u32,
    /// When it started, seconds since 1970.
    pub started_s: u64,
    /// It only ends what it has begun.
    pub stopping: bool,
    /// What it was started from says of itself.
    pub description: String,
    /// Named `defaults` sections.
    pub classes: BTreeSet<String>,
    /// Whether each frontend takes connections; none: it was left out when the process started.
    pub frontends: BTreeMap<String, Option<bool>>,
    /// By name.
    pub backends: BTreeMap<String, Backend>,
    /// By path.
    pub maps: BTreeMap<String, Map>,
    /// Certificates with their keys, by path; empty: made and never committed.
    pub certificates: BTreeMap<String, String>,
    /// CAs, by path.
    pub authorities: BTreeMap<String, String>,
    /// Lists of certificates, by path.
    pub lists: BTreeMap<String, CrtList>,
    /// Texts that are refused wherever they are read, as if HAProxy could make nothing of them.
    pub refuses: BTreeSet<String>,
    /// Certificates have one transaction at a time, CAs another.
    certificate_transaction: Option<(String, String)>,
    authority_transaction: Option<(String, String)>,
}

impl Worker {
    /// Carries a command out, with its payload; gives back what is answered, without the empty line that ends it.
    pub fn ask(&mut self, command: &str) -> String {
        let Some(command) = words::Command::of(command) else { return "Can't read the command.\n".to_owned() };
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let payload = command.payload.as_deref();
        let answer = match words[..] {
            ["show", ref what @ ..] => self.show(what),
            ["add", "backend", name, "from", class] => self.add_backend(name, class),
            ["publish", "backend", name] => self.publish(name, true),
            ["unpublish", "backend", name] => self.publish(name, false),
            ["del", "backend", name] => self.del_backend(name),
            ["add", "server", at, address, ref keywords @ ..] => self.add_server(at, address, keywords),
            ["set", "server", at, what, value] => self.set_server(at, what, value),
            ["set", "maxconn", "server", at, value] => self.set_server(at, "maxconn", value),
            ["enable", "health", at] => self.enable_health(at),
            ["del", "server", at] => self.del_server(at),
            ["enable", "frontend", name] => self.switch_frontend(name, true),
            ["disable", "frontend", name] => self.switch_frontend(name, false),
            ["new", "ssl", kind, path] => self.new_store(kind, path),
            ["set", "ssl", kind, path] => self.set_store(kind, path, payload.unwrap_or_default()),
            ["commit", "ssl", kind, path] => self.commit_store(kind, path),
            ["abort", "ssl", kind, path] => self.abort_store(kind, path),
            ["del", "ssl", "crt-list", list, entry] => self.del_crt_list(list, entry),
            ["del", "ssl", kind, path] => self.del_store(kind, path),
            ["add", "ssl", "crt-list", list] => self.add_crt_list(list, payload.unwrap_or_default()),
            ["prepare", "map", path] => self.map(path, Map::prepare),
            ["commit", "map", version, path] => self.map(path, |map| map.commit(version)),
            ["add", "map", version, path] if version.starts_with('@') => self.add_map(path, Some(version), payload),
            ["add", "map", path] => self.add_map(path, None, payload),
            ["set", "map", path, key, value, ..] => self.map(path, |map| map.set(key, value)),
            ["del", "map", path, key] => self.map(path, |map| map.del(key)),
            _ => format!("Unknown command: '{}', please enter one of the following ones", words.join(" ")),
        };
        if answer.is_empty() || answer.ends_with('\n') { answer } else { answer + "\n" }
    }

    fn refuses(&self, text: &str) -> bool {
        self.refuses.iter().any(|word| text.contains(word.as_str()))
    }

    fn map(&mut self, path: &str, act: impl FnOnce(&mut Map) -> String) -> String {
        match self.maps.get_mut(path) {
            Some(map) => act(map),
            None => "Unknown map identifier. Please use #<id> or <file>.".to_owned(),
        }
    }

    fn add_map(&mut self, path: &str, version: Option<&str>, payload: Option<&str>) -> String {
        let refuses = self.refuses.clone();
        let regex = path.ends_with("regex.map");
        self.map(path, |map| map.add(version, payload.unwrap_or_default(), regex, &refuses))
    }

    fn switch_frontend(&mut self, name: &str, on: bool) -> String {
        let (word, done) = if on { ("enable", "enabled") } else { ("disable", "disabled") };
        match self.frontends.get_mut(name) {
            None => "No such frontend.".to_owned(),
            Some(None) => format!("Frontend was previously shut down, cannot {word}."),
            Some(Some(is)) if *is == on => format!("All sockets are already {done}."),
            Some(Some(is)) => {
                *is = on;
                String::new()
            }
        }
    }
}
