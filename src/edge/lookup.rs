//! Which route takes a request, by the same lookups that HAProxy makes: for people who ask why.

use std::sync::Arc;

use super::wanted::{MapName, Slot, Value, Wanted};

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// An entry of a map takes it.
    Taken {
        /// Which map.
        map: MapName,
        /// The entry's key.
        key: Arc<str>,
        /// What it leads to: `backend`, or `backend|flags|rid`.
        value: Arc<str>,
    },
    /// The host has regular expressions, which only HAProxy computes, and nothing before them takes it.
    Patterns,
    /// Nothing takes it: 404.
    Nothing,
}

impl Lookup {
    /// The backend; that of what is not there, where nothing takes it.
    pub fn backend(&self) -> &str {
        match self {
            Self::Taken { value, .. } => value.split('|').next().unwrap_or_default(),
            Self::Patterns | Self::Nothing => super::names::NOT_FOUND,
        }
    }
}

/// Looks a host (without a port) and a path (as it is sent) up.
pub fn lookup(wanted: &Wanted, host: &str, path: &str) -> Lookup {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let wild = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    let known = [Some(host), wild, Some("*".to_owned())].into_iter().flatten();
    let found = known.into_iter().find_map(|host| Some((text(wanted, MapName::Hosts, &host)?, host)));
    if let Some((flags, host)) = found {
        if flags.contains('e')
            && let Some(value) = text(wanted, MapName::Exact, &format!("{host}{path}"))
        {
            return Lookup::Taken { map: MapName::Exact, key: format!("{host}{path}").into(), value };
        }
        if let Some(taken) = longest(wanted, &format!("{host}{path}/")) {
            return taken;
        }
        if flags.contains('r') {
            return Lookup::Patterns;
        }
    }
    longest(wanted, "!/").unwrap_or(Lookup::Nothing)
}

fn text(wanted: &Wanted, map: MapName, key: &str) -> Option<Arc<str>> {
    match wanted.get(&Slot::Map(map, key.into())) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// The longest key that the text starts with.
fn longest(wanted: &Wanted, whole: &str) -> Option<Lookup> {
    let ends = whole.char_indices().map(|(at, c)| at + c.len_utf8());
    let found = ends.rev().find_map(|end| Some((&whole[..end], text(wanted, MapName::Prefix, &whole[..end])?)));
    found.map(|(key, value)| Lookup::Taken { map: MapName::Prefix, key: key.into(), value })
}
