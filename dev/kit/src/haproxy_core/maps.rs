//! Maps: entries in the order in which they came, and versions that nobody sees before they are committed.

use std::collections::{BTreeMap, BTreeSet};

/// Keys and values.
type Entries = Vec<(String, String)>;

/// A map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// What is looked up in. A key may be there twice.
    pub entries: Entries,
    current: u64,
    next: u64,
    prepared: BTreeMap<u64, Entries>,
}

impl Map {
    /// As a file says.
    pub(super) fn of(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { entries: lines.map(entry).collect(), ..Self::default() }
    }

    pub(super) fn prepare(&mut self) -> String {
        self.next += 1;
        self.prepared.insert(self.next, Entries::new());
        format!("New version created: {}", self.next)
    }

    pub(super) fn commit(&mut self, version: &str) -> String {
        let version = number(version);
        if version <= self.current || version > self.next {
            return "Version number out of range.".to_owned();
        }
        self.entries = self.prepared.remove(&version).unwrap_or_default();
        self.prepared = self.prepared.split_off(&version);
        self.current = version;
        String::new()
    }

    /// Adds entries until one is bad; those before it stay. `regex`: keys are regular expressions.
    pub(super) fn add(
        &mut self,
        version: Option<&str>,
        payload: &str,
        regex: bool,
        refuses: &BTreeSet<String>,
    ) -> String {
        let version = version.map_or(self.current, number);
        if version > self.next {
            return "Version number in the future, please use 'prepare map' before.".to_owned();
        }
        let mut rest = payload.trim_start();
        while !rest.is_empty() {
            // A key ends at a blank, and at no end of a line: one without a value takes the next line in.
            let (key, after) = rest.split_once(' ').unwrap_or((rest.trim_end(), ""));
            let (value, next) = after.split_once('\n').unwrap_or((after, ""));
            let (key, value) = (key.to_owned(), value.trim().to_owned());
            rest = next.trim_start();
            if value.is_empty() {
                return format!("Missing value for key '{key}'.");
            }
            let refused = refuses.iter().any(|word| key.contains(word.as_str()) || value.contains(word.as_str()));
            if refused || regex && !closed(&key) {
                let at = key.len();
                return format!("regex '{key}' is invalid (error=missing closing parenthesis, erroffset={at}).");
            }
            if version == self.current {
                self.entries.push((key, value));
            } else if let Some(entries) = self.prepared.get_mut(&version) {
                entries.push((key, value));
            }
        }
        String::new()
    }

    pub(super) fn set(&mut self, key: &str, value: &str) -> String {
        let mut known = self.entries.iter_mut().filter(|(k, _)| k == key).peekable();
        if known.peek().is_none() {
            return "entry not found.".to_owned();
        }
        known.for_each(|(_, v)| *v = value.to_owned());
        String::new()
    }

    /// Takes one away, of those of that key.
    pub(super) fn del(&mut self, key: &str) -> String {
        match self.entries.iter().position(|(k, _)| k == key) {
            Some(at) => {
                self.entries.remove(at);
                String::new()
            }
            None => "Key not found.".to_owned(),
        }
    }
}

fn entry(line: &str) -> (String, String) {
    let (key, value) = line.split_once(' ').unwrap_or((line, ""));
    (key.to_owned(), value.trim().to_owned())
}

/// Whether every parenthesis of a regular expression is closed, which is as much as is known of them here.
fn closed(pattern: &str) -> bool {
    let (mut open, mut escaped) = (0_i32, false);
    for c in pattern.chars() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
    }
    open == 0
}

fn number(version: &str) -> u64 {
    version.trim_start_matches('@').parse().unwrap_or(u64::MAX)
}
