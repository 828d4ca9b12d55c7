//! A router's management agent in memory: entities with the router's semantics and words, as `docs/routers.md` tells
//! them. Pure and synchronous, the same for the simulation and for the stand-in.
//!
//! Two agents share the work, as in the router: the core has addresses, auto-links and link routes and validates next
//! to nothing; the other has listeners, connectors, profiles and vhosts and takes the schema at its word. Nothing
//! outlives [`Core::restart`]. It moves no messages: what becomes of connections and links is told to it by whoever
//! uses it, and what is made and removed can be taken from it ([`Core::take_events`]).
//!
//! Invariant: names are unique within a type, patterns within addresses, and identities within the core's types.

mod agent;
mod auto_links;
mod entities;
mod link_routes;
mod pattern;
mod query;
mod schema;
#[cfg(test)]
mod tests;
mod value;

use std::collections::VecDeque;

use serde_amqp::Value;

use agent::Agent;
use entities::Entities;
use pattern::PatternTree;
use value::{as_integer, as_text};

pub use auto_links::{AutoLink, Bound, OperStatus};
pub use entities::{Direction, Treatment};
pub use link_routes::LinkRoute;
pub use query::Row;

/// Which router it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// qdrouterd 1.19: link routes, waypoints, multi-tenant listeners.
    #[default]
    Qdrouterd,
    /// skrouterd 3: without these; what it does not know it drops.
    Skrouterd,
}

impl Flavour {
    /// In front of every type's name.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Qdrouterd => "org.apache.qpid.dispatch",
            Self::Skrouterd => "io.skupper.router",
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// `operation`.
    pub operation: String,
    /// `type`.
    pub entity_type: Option<String>,
    /// `entityType`.
    pub queried_type: Option<String>,
    /// `name`.
    pub name: Option<String>,
    /// `identity`.
    pub identity: Option<String>,
    /// `offset`.
    pub offset: Option<i64>,
    /// `count`.
    pub count: Option<i64>,
    /// The body.
    pub body: Value,
}

impl Request {
    /// Reads the application properties.
    pub fn new<'a>(properties: impl IntoIterator<Item = (&'a str, Value)>, body: Value) -> Self {
        let mut request = Self { body, ..Self::default() };
        for (key, value) in properties {
            let text = || as_text(&value).map(str::to_owned);
            match key {
                "operation" => request.operation = text().unwrap_or_default(),
                "type" => request.entity_type = text(),
                "entityType" => request.queried_type = text(),
                "name" => request.name = text(),
                "identity" => request.identity = text(),
                "offset" => request.offset = as_integer(&value),
                "count" => request.count = as_integer(&value),
                _ => {}
            }
        }
        request
    }

    /// A CREATE.
    #[must_use]
    pub fn create(entity_type: &str, name: Option<&str>, attributes: &[(&str, Value)]) -> Self {
        let body = attributes.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect();
        Self { body: Value::Map(body), name: name.map(str::to_owned), ..Self::on("CREATE", entity_type) }
    }

    /// A DELETE by name.
    #[must_use]
    pub fn delete(entity_type: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::on("DELETE", entity_type) }
    }

    /// A READ by name.
    #[must_use]
    pub fn read(entity_type: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::on("READ", entity_type) }
    }

    /// A QUERY for some attributes, all when none are given.
    #[must_use]
    pub fn query(entity_type: &str, attributes: &[&str]) -> Self {
        let names = Value::List(attributes.iter().map(|name| Value::from(*name)).collect());
        let body = [(Value::from("attributeNames"), names)].into_iter().collect();
        Self {
            operation: "QUERY".to_owned(),
            queried_type: Some(entity_type.to_owned()),
            body: Value::Map(body),
            ..Self::default()
        }
    }

    fn on(operation: &str, entity_type: &str) -> Self {
        Self { operation: operation.to_owned(), entity_type: Some(entity_type.to_owned()), ..Self::default() }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// `statusCode`.
    pub status: i32,
    /// `statusDescription`.
    pub description: String,
    /// The body.
    pub body: Value,
    /// Whether a correlation id that is neither text nor binary comes back; the core's answers have it, the other
    /// agent's come without any.
    pub echoes_any_id: bool,
}

impl Answer {
    fn new(status: i32, description: impl Into<String>, body: Value) -> Self {
        Self { status, description: description.into(), body, echoes_any_id: true }
    }

    /// Whether it says that the request was carried out.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.status / 100 == 2
    }
}

/// What was made or removed, for whoever moves messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A listener shall listen.
    ListenerMade {
        /// Its name.
        name: String,
        /// What it binds.
        host: String,
        /// What it binds: a number or a service's name.
        port: String,
        /// Clients' addresses get what they give as host name and `/` in front.
        multi_tenant: bool,
    },
    /// A listener shall listen no more.
    ListenerGone(String),
    /// A connector shall connect.
    ConnectorMade(Box<Connector>),
    /// A connector shall be connected no more.
    ConnectorGone(String),
    /// An auto-link was made.
    AutoLinkMade(u64),
    /// An auto-link is no more.
    AutoLinkGone(u64),
    /// A link route was made.
    LinkRouteMade(u64),
    /// A link route is no more.
    LinkRouteGone(u64),
}

/// What a connector shall do.
#[derive(Clone, PartialEq, Eq)]
pub struct Connector {
    /// Its name; auto-links and link routes refer to it by `connection`.
    pub name: String,
    /// Where to.
    pub host: String,
    /// Where to: a number or a service's name.
    pub port: String,
    /// Only links of connectors with role `route-container` are found.
    pub route_container: bool,
    /// SASL PLAIN, when there is a user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The vhost whose group `$connector` says what the other side may do.
    pub policy: Option<String>,
}

/// What the other side of a connector may do on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// What a client may.
    Everything,
    /// Answer our links, and attach none.
    Nothing,
    /// Be connected to not at all.
    Denied,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("name", &self.name).field("host", &self.host).finish_non_exhaustive()
    }
}

/// How often something was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// CREATE requests.
    pub creates: u64,
    /// DELETE requests.
    pub deletes: u64,
    /// READ requests.
    pub reads: u64,
    /// UPDATE requests.
    pub updates: u64,
    /// QUERY requests: one a page.
    pub queries: u64,
    /// Requests of other operations.
    pub others: u64,
    /// Entities made and removed.
    pub changes: u64,
}

/// A router's management.
#[derive(Debug, Clone)]
pub struct Core {
    id: String,
    flavour: Flavour,
    next_identity: u64,
    addresses: Entities<entities::Address>,
    patterns: PatternTree,
    auto_links: Entities<AutoLink>,
    bound: auto_links::Bindings,
    link_routes: Entities<LinkRoute>,
    routed: link_routes::Routes,
    agent: Agent,
    live: query::Live,
    refused: Vec<(String, String)>,
    counters: Counters,
    events: Option<VecDeque<Event>>,
}

impl Core {
    /// A fresh router with an id and nothing configured.
    #[must_use]
    pub fn new(id: &str, flavour: Flavour) -> Self {
        Self {
            id: id.to_owned(),
            flavour,
            next_identity: 1,
            addresses: Entities::default(),
            patterns: PatternTree::default(),
            auto_links: Entities::default(),
            bound: auto_links::Bindings::default(),
            link_routes: Entities::default(),
            routed: link_routes::Routes::default(),
            agent: Agent::default(),
            live: query::Live::default(),
            refused: Vec::new(),
            counters: Counters::default(),
            events: None,
        }
    }

    /// From now on [`Core::take_events`] tells what is made and removed.
    pub fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// What was made and removed since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(|events| events.drain(..).collect()).unwrap_or_default()
    }

    /// Carries out a request; `None`: the router never answers this one.
    pub fn call(&mut self, request: &Request) -> Option<Answer> {
        self.count(&request.operation);
        // The core looks at `entityType` first, whatever the operation.
        let name = request.queried_type.as_ref().or(request.entity_type.as_ref());
        let kind = name.and_then(|name| name.strip_prefix(self.flavour.prefix())?.strip_prefix('.'));
        let core = kind.filter(|kind| schema::find(self.flavour, kind).is_some());
        match core {
            Some("router.config.address") => self.core(request, Self::call_addresses),
            Some("router.config.autoLink") => self.core(request, Self::call_auto_links),
            Some("router.config.linkRoute") => self.core(request, Self::call_link_routes),
            Some(kind @ ("router" | "router.address" | "router.link" | "connection")) => {
                match request.operation.as_str() {
                    "QUERY" | "READ" | "CREATE" | "DELETE" | "UPDATE" => self.call_live(kind, request),
                    _ => Some(self.call_agent(request)),
                }
            }
            _ => Some(self.call_agent(request)),
        }
    }

    /// The core knows five operations; what it does not know it hands to the other agent.
    fn core(&mut self, request: &Request, call: fn(&mut Self, &Request) -> Answer) -> Option<Answer> {
        match request.operation.as_str() {
            "UPDATE" => None,
            "CREATE" | "DELETE" | "READ" | "QUERY" => {
                let refused = match request.operation.as_str() {
                    "CREATE" | "DELETE" => self.refusal(request),
                    _ => None,
                };
                Some(refused.unwrap_or_else(|| call(self, request)))
            }
            _ => Some(self.call_agent(request)),
        }
    }

    fn count(&mut self, operation: &str) {
        let counter = match operation {
            "CREATE" => &mut self.counters.creates,
            "DELETE" => &mut self.counters.deletes,
            "READ" => &mut self.counters.reads,
            "UPDATE" => &mut self.counters.updates,
            "QUERY" => &mut self.counters.queries,
            _ => &mut self.counters.others,
        };
        *counter += 1;
    }

    /// Refuses, in these words, to make or remove anything whose name, pattern or address contains `part`.
    pub fn refuse(&mut self, part: &str, words: &str) {
        self.relent(part);
        self.refused.push((part.to_owned(), words.to_owned()));
    }

    /// Ends [`Core::refuse`].
    pub fn relent(&mut self, part: &str) {
        self.refused.retain(|(refused, _)| refused != part);
    }

    fn refusal(&self, request: &Request) -> Option<Answer> {
        if self.refused.is_empty() {
            return None;
        }
        let attributes = value::attributes(&request.body).unwrap_or_default();
        let named = |part: &str| {
            let told = ["pattern", "prefix", "address", "host"].iter().filter_map(|key| attributes.get(*key));
            let name = request.name.iter().map(String::as_str);
            name.chain(told.filter_map(as_text)).any(|text| text.contains(part))
        };
        let (_, words) = self.refused.iter().find(|(part, _)| named(part))?;
        Some(Answer::new(400, words.as_str(), Value::Null))
    }

    /// Ends and starts: nothing is left but what the configuration file says ([`Core::file_listener`]); refusals and
    /// counters stay, since they are the test's.
    pub fn restart(&mut self) {
        let fresh = Self::new(&self.id, self.flavour);
        let old = std::mem::replace(self, fresh);
        self.agent.keep_file_entities(old.agent);
        (self.refused, self.counters) = (old.refused, old.counters);
        self.events = old.events.map(|_| VecDeque::new());
    }

    /// A listener of the configuration file.
    pub fn file_listener(&mut self, host: &str, port: u16) {
        let attributes = [("host", Value::from(host)), ("port", Value::String(port.to_string()))];
        self.agent.file(self.flavour, "listener", attributes);
    }

    /// Another profile or vhost of the configuration file.
    pub fn file_entity(&mut self, entity_type: &str, name: &str, attributes: &[(&str, Value)]) {
        let named = attributes.iter().cloned().chain([("name", Value::from(name))]);
        self.agent.file(self.flavour, entity_type, named);
    }

    /// The router's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which router it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// What was asked so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Every entity, one a line: type, name and what there is to say.
    #[must_use]
    pub fn listing(&self) -> String {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let addresses = self.addresses.iter().map(|(_, address)| format!("address {address}"));
        let links = self.auto_links.iter().map(|(_, link)| {
            let (direction, status) = (link.direction.as_str(), link.status.as_str());
            format!("autoLink {} {} {direction} {status}", name(&link.name), link.address)
        });
        let routes = self.link_routes.iter().map(|(_, route)| {
            let active = if route.active { "active" } else { "inactive" };
            format!("linkRoute {} {} {} {active}", name(&route.name), route.pattern, route.direction.as_str())
        });
        let others = self.agent.listing();
        addresses.chain(links).chain(routes).chain(others).map(|line| line + "\n").collect()
    }

    fn identity(&mut self) -> u64 {
        self.next_identity += 1;
        self.next_identity
    }

    fn changed(&mut self, event: Option<Event>) {
        self.counters.changes += 1;
        if let (Some(events), Some(event)) = (&mut self.events, event) {
            events.push_back(event);
        }
    }
}
