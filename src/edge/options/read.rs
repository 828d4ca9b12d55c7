//! Annotations of one object, read by the table.

use std::sync::{Arc, OnceLock};

use super::{Alias, Opt, Prefix, TABLE, Value};
use crate::edge::input::Annotations;
use crate::edge::names;
use crate::maps::Map;

/// What one object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// In the order of the table.
    values: Vec<(Opt, Value)>,
    /// What could not be read.
    pub bad: Vec<Bad>,
    /// Keys in our prefixes that mean nothing here.
    pub unknown: Vec<Arc<str>>,
    /// Options that two prefixes say differently, with the key that does not count.
    pub differing: Vec<(Opt, Arc<str>)>,
}

/// A value that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The option.
    pub opt: Opt,
    /// The key as it was written.
    pub key: Arc<str>,
    /// Key, value and what is wrong, for people.
    pub message: String,
}

/// Where a key stands in the table.
#[derive(Clone, Copy)]
struct Place {
    opt: Opt,
    prefix: Prefix,
    /// Of several keys of one prefix the first in the table counts.
    rank: usize,
    alias: Option<&'static Alias>,
}

fn places() -> &'static Map<String, Vec<Place>> {
    static PLACES: OnceLock<Map<String, Vec<Place>>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let mut places: Map<String, Vec<Place>> = Map::default();
        for row in TABLE {
            let own = Place { opt: row.opt, prefix: Prefix::Waystation, rank: 0, alias: None };
            places.entry(format!("{}{}", own.prefix.as_str(), row.name)).or_default().push(own);
            for (rank, alias) in row.aliases.iter().enumerate() {
                let place = Place { opt: row.opt, prefix: alias.prefix, rank, alias: Some(alias) };
                places.entry(format!("{}{}", alias.prefix.as_str(), alias.key)).or_default().push(place);
            }
        }
        places
    })
}

/// Whether an annotation is for us: what the watch side keeps of an object.
pub fn is_option(key: &str) -> bool {
    Prefix::ALL.iter().any(|prefix| key.starts_with(prefix.as_str()))
}

impl Options {
    /// Reads annotations.
    pub fn read(annotations: &Annotations) -> Self {
        if annotations.is_empty() {
            return Self::default();
        }
        let mut found: Vec<(Place, &Arc<str>, &Arc<str>)> = Vec::new();
        let mut out = Self::default();
        for (key, value) in annotations.iter().filter(|(key, _)| is_option(key)) {
            match places().get(&**key) {
                None => out.unknown.push(key.clone()),
                Some(places) => found.extend(places.iter().map(|place| (*place, key, value))),
            }
        }
        found.sort_by_key(|(place, ..)| (place.opt, place.prefix, place.rank));
        for (place, key, value) in found {
            let trimmed = value.trim();
            let converted = match place.alias {
                Some(alias) => (alias.convert)(trimmed),
                None => Ok(trimmed.to_owned()),
            };
            // A converter that has nothing to say of this value; that of an empty one is to be told, or denies, as with us.
            if converted.as_deref() == Ok("") && place.alias.is_some() && !trimmed.is_empty() {
                continue;
            }
            match converted.and_then(|text| (place.opt.definition().parse)(&text)) {
                Err(why) => {
                    let message = format!("{key}: {:?} {why}", names::shorten(trimmed));
                    out.bad.push(Bad { opt: place.opt, key: key.clone(), message });
                }
                Ok(value) => match out.values.last() {
                    Some((opt, first)) if *opt == place.opt => {
                        if *first != value {
                            out.differing.push((place.opt, key.clone()));
                        }
                    }
                    _ => out.values.push((place.opt, value)),
                },
            }
        }
        out
    }

    /// Reads `edge.options` of a RouterConfig, whose keys have no prefix.
    pub fn read_plain(options: &Annotations) -> Self {
        let prefixed = options.iter().map(|(key, value)| {
            let key: Arc<str> = format!("{}{key}", Prefix::Waystation.as_str()).into();
            (key, value.clone())
        });
        Self::read(&prefixed.collect())
    }

    /// What it says of an option.
    pub fn get(&self, opt: Opt) -> Option<&Value> {
        self.values.binary_search_by_key(&opt, |(o, _)| *o).ok().map(|at| &self.values[at].1)
    }

    /// Every option that it says something of.
    pub fn iter(&self) -> impl Iterator<Item = (Opt, &Value)> {
        self.values.iter().map(|(opt, value)| (*opt, value))
    }

    /// Whether a protection could not be read that is about this scope.
    pub fn fails(&self, scope: super::Scope) -> bool {
        self.bad.iter().any(|bad| bad.opt.definition().protects && bad.opt.definition().scope == scope)
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.bad.is_empty()
    }
}
