//! Auto-links: their configuration and what became of them.

use std::collections::{BTreeSet, HashMap};

use serde_amqp::Value;

use super::entities::{Direction, binding, refused, whole};
use super::value::{as_integer, as_text, attributes, empty, optional, text};
use super::{Answer, Core, Event, Flavour, Request};

/// What an auto-link is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperStatus {
    /// No connection.
    Inactive,
    /// Asked, not answered.
    Attaching,
    /// Refused or ended by the other side; asked again later.
    Failed,
    /// Answered.
    Active,
}

impl OperStatus {
    /// The router's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Attaching => "attaching",
            Self::Failed => "failed",
            Self::Active => "active",
        }
    }
}

/// The connections whose links these are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The connector of that name.
    Connection(String),
    /// Every route-container connection to a container of that id.
    Container(String),
    /// None: it stays inactive for ever.
    Nowhere,
}

impl Bound {
    pub(super) fn new((connection, container): (Option<String>, Option<String>)) -> Self {
        match (connection, container) {
            (Some(connection), _) => Self::Connection(connection),
            (None, Some(container)) => Self::Container(container),
            (None, None) => Self::Nowhere,
        }
    }

    pub(super) fn column(&self, name: &str) -> Value {
        match (self, name) {
            (Self::Connection(connection), "connection") => text(connection),
            (Self::Container(container), "containerId") => text(container),
            _ => Value::Null,
        }
    }
}

/// Links by what they are bound to.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings(HashMap<Bound, BTreeSet<u64>>);

impl Bindings {
    pub(super) fn add(&mut self, bound: &Bound, identity: u64) {
        self.0.entry(bound.clone()).or_default().insert(identity);
    }

    pub(super) fn remove(&mut self, bound: &Bound, identity: u64) {
        if let Some(links) = self.0.get_mut(bound) {
            links.remove(&identity);
            if links.is_empty() {
                self.0.remove(bound);
            }
        }
    }

    pub(super) fn of(&self, bound: &Bound) -> Vec<u64> {
        self.0.get(bound).map(|links| links.iter().copied().collect()).unwrap_or_default()
    }
}

/// An auto-link.
#[derive(Debug, Clone)]
pub struct AutoLink {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The router's address.
    pub address: String,
    /// The address on the other side, where that differs.
    pub external: Option<String>,
    /// In: the router receives. Out: it sends.
    pub direction: Direction,
    /// At which phase of the address it is.
    pub phase: u8,
    /// Whose links these are.
    pub bound: Bound,
    /// What it is doing.
    pub status: OperStatus,
    /// Why it failed last; stays when it is active again, and goes with the connection.
    pub last_error: Option<String>,
    fallback: bool,
}

const COLUMNS: &[&str] = &[
    "name",
    "identity",
    "type",
    "address",
    "addr",
    "direction",
    "dir",
    "phase",
    "connection",
    "containerId",
    "externalAddress",
    "externalAddr",
    "linkRef",
    "operStatus",
    "lastError",
    "fallback",
];
const FEWER_COLUMNS: &[&str] = &[
    "name",
    "identity",
    "type",
    "address",
    "direction",
    "connection",
    "containerId",
    "externalAddress",
    "linkRef",
    "operStatus",
    "lastError",
];

impl Core {
    fn auto_link_columns(&self) -> &'static [&'static str] {
        match self.flavour {
            Flavour::Qdrouterd => COLUMNS,
            Flavour::Skrouterd => FEWER_COLUMNS,
        }
    }

    pub(super) fn call_auto_links(&mut self, request: &Request) -> Answer {
        let flavour = self.flavour;
        let columns = self.auto_link_columns();
        let result = match request.operation.as_str() {
            "CREATE" => self.create_auto_link(request),
            "DELETE" => self.auto_links.find(request).map(|identity| self.delete_auto_link(identity)),
            "READ" => self.auto_links.find(request).map(|identity| {
                let shown = self.auto_links.get(identity);
                let shown = shown.map(|link| whole(columns, |name| column(flavour, identity, link, name)));
                Answer::new(200, "OK", shown.unwrap_or_default())
            }),
            _ => Ok(self
                .auto_links
                .query(request, columns, |identity, link, name| column(flavour, identity, link, name))),
        };
        result.unwrap_or_else(|refused| refused)
    }

    fn create_auto_link(&mut self, request: &Request) -> Result<Answer, Answer> {
        if self.auto_links.has_name(request.name.as_deref()) {
            return Err(refused("Name conflicts with an existing entity"));
        }
        let told = attributes(&request.body).ok_or_else(|| refused("Body of request must be a map"))?;
        let old = self.flavour == Flavour::Qdrouterd;
        let either = |name: &str, deprecated: &str| told.get(name).or_else(|| told.get(deprecated).filter(|_| old));
        let bound = Bound::new(binding(&told)?);
        let (Some(address), Some(direction)) = (either("address", "addr"), either("direction", "dir")) else {
            return Err(refused("address and direction fields are mandatory"));
        };
        let direction = Direction::parse(direction).ok_or_else(|| refused("Invalid value for 'direction'"))?;
        let fallback = old && told.get("fallback") == Some(&Value::Bool(true));
        let by_default = i64::from(direction == Direction::In && !told.contains_key("fallback"));
        let phase = match told.get("phase").filter(|_| old) {
            Some(phase) => as_integer(phase).unwrap_or(0),
            None if old => by_default,
            None => 0,
        };
        let Some(phase) = u8::try_from(phase).ok().filter(|phase| *phase <= 9) else {
            return Err(refused("autoLink phase must be between 0 and 9"));
        };
        let identity = self.identity();
        let link = AutoLink {
            name: request.name.clone(),
            address: as_text(address).unwrap_or_default().trim_start_matches('/').to_owned(),
            external: either("externalAddress", "externalAddr").and_then(as_text).map(str::to_owned),
            direction,
            phase,
            bound,
            status: OperStatus::Inactive,
            last_error: None,
            fallback,
        };
        self.bound.add(&link.bound, identity);
        let up = self.live.is_up(&link.bound);
        self.auto_links.insert(identity, request.name.as_deref(), link);
        if up {
            self.set_auto_link(identity, OperStatus::Attaching, None);
        }
        let shown = self
            .auto_links
            .get(identity)
            .map(|link| whole(self.auto_link_columns(), |name| column(self.flavour, identity, link, name)));
        self.changed(Some(Event::AutoLinkMade(identity)));
        Ok(Answer::new(201, "Created", shown.unwrap_or_default()))
    }

    fn delete_auto_link(&mut self, identity: u64) -> Answer {
        if let Some(link) = self.auto_links.get(identity).cloned() {
            self.bound.remove(&link.bound, identity);
            self.auto_links.remove(identity, link.name.as_deref());
            self.changed(Some(Event::AutoLinkGone(identity)));
        }
        Answer::new(204, "No Content", empty())
    }

    /// An auto-link.
    #[must_use]
    pub fn auto_link(&self, identity: u64) -> Option<&AutoLink> {
        self.auto_links.get(identity)
    }

    /// All auto-links with their identities, oldest first.
    pub fn auto_links(&self) -> impl Iterator<Item = (u64, &AutoLink)> {
        self.auto_links.iter()
    }

    /// The auto-links that are bound to a connection or container.
    #[must_use]
    pub fn auto_links_of(&self, bound: &Bound) -> Vec<u64> {
        self.bound.of(bound)
    }

    /// Says what an auto-link is doing, and when it failed, why.
    pub fn set_auto_link(&mut self, identity: u64, status: OperStatus, error: Option<&str>) {
        if let Some(link) = self.auto_links.get_mut(identity) {
            link.status = status;
            match status {
                OperStatus::Failed | OperStatus::Inactive => link.last_error = error.map(str::to_owned),
                OperStatus::Attaching | OperStatus::Active => {}
            }
        }
    }
}

fn column(flavour: Flavour, identity: u64, link: &AutoLink, name: &str) -> Value {
    match name {
        "name" => optional(link.name.as_deref()),
        "identity" => Value::String(identity.to_string()),
        "type" => Value::String(format!("{}.router.config.autoLink", flavour.prefix())),
        "address" | "addr" => text(&link.address),
        "direction" | "dir" => text(link.direction.as_str()),
        "phase" => Value::Int(i32::from(link.phase)),
        "externalAddress" | "externalAddr" => optional(link.external.as_deref()),
        "linkRef" => match link.status {
            OperStatus::Active | OperStatus::Attaching => Value::String(format!("{identity}1")),
            _ => Value::Null,
        },
        "operStatus" => text(link.status.as_str()),
        "lastError" => optional(link.last_error.as_deref()),
        "fallback" => Value::Bool(link.fallback),
        _ => link.bound.column(name),
    }
}
