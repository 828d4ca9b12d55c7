//! The core's lists of entities, and addresses.

use std::collections::{BTreeMap, HashMap};

use serde_amqp::Value;

use super::pattern::trimmed;
use super::value::{Attributes, as_integer, as_text, attributes, empty, optional, text};
use super::{Answer, Core, Flavour, Request};

/// Entities of one of the core's types, in the order in which they were made.
#[derive(Debug, Clone)]
pub(super) struct Entities<T> {
    all: BTreeMap<u64, T>,
    names: HashMap<String, u64>,
}

impl<T> Default for Entities<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), names: HashMap::new() }
    }
}

impl<T> Entities<T> {
    pub(super) fn insert(&mut self, identity: u64, name: Option<&str>, entity: T) {
        if let Some(name) = name {
            self.names.insert(name.to_owned(), identity);
        }
        self.all.insert(identity, entity);
    }

    pub(super) fn get(&self, identity: u64) -> Option<&T> {
        self.all.get(&identity)
    }

    pub(super) fn get_mut(&mut self, identity: u64) -> Option<&mut T> {
        self.all.get_mut(&identity)
    }

    pub(super) fn has_name(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.names.contains_key(name))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.all.iter().map(|(identity, entity)| (*identity, entity))
    }

    /// Which entity a request means: an identity goes before a name.
    pub(super) fn find(&self, request: &Request) -> Result<u64, Answer> {
        let found = match (&request.identity, &request.name) {
            (Some(identity), _) => identity.parse().ok().filter(|identity| self.all.contains_key(identity)),
            (None, Some(name)) => self.names.get(name).copied(),
            (None, None) => return Err(Answer::new(400, "No name or identity provided", empty())),
        };
        found.ok_or_else(|| Answer::new(404, "Not Found", empty()))
    }

    pub(super) fn remove(&mut self, identity: u64, name: Option<&str>) {
        self.all.remove(&identity);
        if let Some(name) = name {
            self.names.remove(name);
        }
    }

    /// A page of rows. Of attributes that the type does not have, the first one's value comes back.
    pub(super) fn query(
        &self,
        request: &Request,
        columns: &[&'static str],
        column: impl Fn(u64, &T, &str) -> Value,
    ) -> Answer {
        let asked = attributes(&request.body).unwrap_or_default();
        let names: Vec<&str> = match asked.get("attributeNames") {
            Some(Value::List(names)) if !names.is_empty() => names
                .iter()
                .map(|name| as_text(name).and_then(|name| columns.iter().find(|column| **column == name)))
                .map(|name| name.or(columns.first()).copied().unwrap_or_default())
                .collect(),
            _ => columns.to_vec(),
        };
        let offset = request.offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
        let count = request.count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        let rows = self.all.iter().skip(offset).take(count.unwrap_or(usize::MAX));
        let rows = rows
            .map(|(identity, entity)| Value::List(names.iter().map(|name| column(*identity, entity, name)).collect()));
        table(&names, rows.collect())
    }
}

/// The answer of a QUERY.
pub(super) fn table(names: &[&str], rows: Vec<Value>) -> Answer {
    let body =
        [(text("attributeNames"), super::value::texts(names.iter().copied())), (text("results"), Value::List(rows))];
    Answer::new(200, "OK", Value::Map(body.into_iter().collect()))
}

/// A map of all columns.
pub(super) fn whole(columns: &[&'static str], column: impl Fn(&str) -> Value) -> Value {
    Value::Map(columns.iter().map(|name| (text(name), column(name))).collect())
}

pub(super) fn refused(words: &str) -> Answer {
    Answer::new(400, words, Value::Null)
}

/// Which way messages go, seen from the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Into the router.
    In,
    /// Out of it.
    Out,
}

impl Direction {
    /// The router's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }

    pub(super) fn parse(value: &Value) -> Option<Self> {
        match as_text(value) {
            Some("in") => Some(Self::In),
            Some("out") => Some(Self::Out),
            _ => None,
        }
    }
}

/// `connection` or `containerId` of a link, which exclude each other.
pub(super) fn binding(attributes: &Attributes) -> Result<(Option<String>, Option<String>), Answer> {
    let told = |key: &str| attributes.get(key).map(|value| as_text(value).unwrap_or_default().to_owned());
    match (told("connection"), told("containerId")) {
        (Some(_), Some(_)) => Err(refused("Both connection and containerId cannot be specified. Specify only one")),
        either => Ok(either),
    }
}

/// A pattern or a prefix, one of which must be given: the pattern that is kept, and whether it was a prefix.
pub(super) fn pattern_or_prefix(attributes: &Attributes) -> Result<(String, bool), Answer> {
    let (value, is_prefix) = match (attributes.get("pattern"), attributes.get("prefix")) {
        (Some(pattern), None) => (pattern, false),
        (None, Some(prefix)) => (prefix, true),
        (None, None) => return Err(refused("Either a 'prefix' or 'pattern' attribute must be provided")),
        (Some(_), Some(_)) => return Err(refused("Cannot specify both a 'prefix' and a 'pattern' attribute")),
    };
    let word = if is_prefix { "Prefix" } else { "Pattern" };
    let Value::String(pattern) = value else {
        return Err(refused(&format!("{word} must be a non-empty string type")));
    };
    if pattern.is_empty() {
        return Err(refused(&format!("{word} must be a non-empty string type")));
    }
    match trimmed(pattern) {
        Some(pattern) if is_prefix => Ok((format!("{pattern}/#"), true)),
        Some(pattern) => Ok((pattern.to_owned(), false)),
        None => Err(refused(&format!("{word} invalid - no tokens"))),
    }
}

/// `pattern` and `prefix` as they are shown.
pub(super) fn shown_pattern(pattern: &str, is_prefix: bool, column: &str) -> Value {
    match (column, is_prefix) {
        ("prefix", true) => text(pattern.strip_suffix("/#").unwrap_or(pattern)),
        ("pattern", false) => text(pattern),
        _ => Value::Null,
    }
}

/// `router.config.address`.
#[derive(Debug, Clone)]
pub(super) struct Address {
    name: Option<String>,
    pattern: String,
    is_prefix: bool,
    /// `None` is unavailable.
    distribution: Option<&'static str>,
    in_phase: u8,
    out_phase: u8,
    priority: i32,
    fallback: bool,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_deref().unwrap_or("-");
        let waypoint = if self.out_phase == 1 { " waypoint" } else { "" };
        write!(f, "{name} {} {}{waypoint}", self.pattern, self.distribution.unwrap_or("unavailable"))
    }
}

const COLUMNS: &[&str] = &[
    "name",
    "identity",
    "type",
    "prefix",
    "distribution",
    "waypoint",
    "ingressPhase",
    "egressPhase",
    "pattern",
    "priority",
    "fallback",
];
const FEWER_COLUMNS: &[&str] = &["name", "identity", "type", "prefix", "distribution", "pattern", "priority"];

impl Core {
    fn address_columns(&self) -> &'static [&'static str] {
        match self.flavour {
            Flavour::Qdrouterd => COLUMNS,
            Flavour::Skrouterd => FEWER_COLUMNS,
        }
    }

    pub(super) fn call_addresses(&mut self, request: &Request) -> Answer {
        let flavour = self.flavour;
        let columns = self.address_columns();
        let result = match request.operation.as_str() {
            "CREATE" => self.create_address(request),
            "DELETE" => self.addresses.find(request).map(|identity| self.delete_address(identity)),
            "READ" => self.addresses.find(request).map(|identity| {
                let shown = self
                    .addresses
                    .get(identity)
                    .map(|address| whole(columns, |name| column(flavour, identity, address, name)));
                Answer::new(200, "OK", shown.unwrap_or_default())
            }),
            _ => Ok(self
                .addresses
                .query(request, columns, |identity, address, name| column(flavour, identity, address, name))),
        };
        result.unwrap_or_else(|refused| refused)
    }

    fn create_address(&mut self, request: &Request) -> Result<Answer, Answer> {
        if self.addresses.has_name(request.name.as_deref()) {
            return Err(refused("Name conflicts with an existing entity"));
        }
        let told = attributes(&request.body).ok_or_else(|| refused("Body of request must be a map"))?;
        let old = self.flavour == Flavour::Qdrouterd;
        // Texts and numbers are no booleans to the core, and count as false.
        let flag = |key: &str| old && told.get(key) == Some(&Value::Bool(true));
        let phase = |key: &str| told.get(key).filter(|_| old).map(|value| as_integer(value).unwrap_or(0));
        let (waypoint, fallback) = (flag("waypoint"), flag("fallback"));
        let (in_phase, out_phase) = (phase("ingressPhase"), phase("egressPhase"));
        if fallback && (waypoint || in_phase.is_some_and(|phase| phase > 0) || out_phase.is_some_and(|phase| phase > 0))
        {
            return Err(refused("Fallback cannot be specified with waypoint or non-zero ingress and egress phases"));
        }
        let (pattern, is_prefix) = pattern_or_prefix(&told)?;
        let phases = match (in_phase, out_phase) {
            (None, None) => (0, i64::from(waypoint)),
            (in_phase, out_phase) => (in_phase.unwrap_or(-1), out_phase.unwrap_or(-1)),
        };
        let small = |phase: i64| u8::try_from(phase).ok().filter(|phase| *phase <= 9);
        let (Some(in_phase), Some(out_phase)) = (small(phases.0), small(phases.1)) else {
            return Err(refused("Phase values must be between 0 and 9"));
        };
        let priority = told.get("priority").and_then(as_integer).unwrap_or(-1);
        if priority > 9 {
            return Err(refused("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"));
        }
        let identity = self.identity();
        if !self.patterns.add(&pattern, identity) {
            return Err(refused("Already exists"));
        }
        let distribution = match told.get("distribution").and_then(as_text) {
            Some("multicast") => Some("multicast"),
            Some("closest") => Some("closest"),
            Some("unavailable") => None,
            _ => Some("balanced"),
        };
        let priority = i32::try_from(priority).unwrap_or(-1);
        let name = request.name.clone();
        let address = Address { name, pattern, is_prefix, distribution, in_phase, out_phase, priority, fallback };
        let shown = whole(self.address_columns(), |name| column(self.flavour, identity, &address, name));
        self.addresses.insert(identity, request.name.as_deref(), address);
        self.changed(None);
        Ok(Answer::new(201, "Created", shown))
    }

    fn delete_address(&mut self, identity: u64) -> Answer {
        if let Some(address) = self.addresses.get(identity).cloned() {
            self.patterns.remove(&address.pattern, identity);
            self.addresses.remove(identity, address.name.as_deref());
            self.changed(None);
        }
        Answer::new(204, "No Content", empty())
    }

    /// What the best fitting address says about a client's address: whether all receivers get each message, and the
    /// phases at which clients send and receive.
    #[must_use]
    pub fn treatment(&self, address: &str) -> Treatment {
        let found = self.patterns.find(address).and_then(|identity| self.addresses.get(identity));
        found.map_or(Treatment::default(), |address| Treatment {
            multicast: address.distribution == Some("multicast"),
            in_phase: address.in_phase,
            out_phase: address.out_phase,
        })
    }
}

/// How messages to an address are treated; by default each goes to one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Treatment {
    /// Every receiver gets every message.
    pub multicast: bool,
    /// Phase at which clients send.
    pub in_phase: u8,
    /// Phase at which clients receive.
    pub out_phase: u8,
}

fn column(flavour: Flavour, identity: u64, address: &Address, name: &str) -> Value {
    match name {
        "name" => optional(address.name.as_deref()),
        "identity" => Value::String(identity.to_string()),
        "type" => Value::String(format!("{}.router.config.address", flavour.prefix())),
        "distribution" => optional(address.distribution),
        "waypoint" => Value::Bool(address.in_phase == 0 && address.out_phase == 1),
        "ingressPhase" => Value::Int(i32::from(address.in_phase)),
        "egressPhase" => Value::Int(i32::from(address.out_phase)),
        "priority" => Value::Int(address.priority),
        "fallback" => Value::Bool(address.fallback),
        _ => shown_pattern(&address.pattern, address.is_prefix, name),
    }
}
