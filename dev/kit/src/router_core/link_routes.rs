//! Link routes: links whose address they fit are passed through to another container.

use std::collections::BTreeMap;

use serde_amqp::Value;

use super::auto_links::{Bindings, Bound};
use super::entities::{Direction, binding, pattern_or_prefix, refused, shown_pattern, whole};
use super::pattern::PatternTree;
use super::value::{as_text, attributes, empty, optional, text};
use super::{Answer, Core, Event, Request};

/// A link route.
#[derive(Debug, Clone)]
pub struct LinkRoute {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The pattern; a prefix `x` is `x/#`.
    pub pattern: String,
    is_prefix: bool,
    /// In: for links on which clients send. Out: for those on which they receive.
    pub direction: Direction,
    /// To whom.
    pub bound: Bound,
    /// Whether the connection is there.
    pub active: bool,
    add_prefix: Option<String>,
    remove_prefix: Option<String>,
}

impl LinkRoute {
    /// What the other side sees of a client's address.
    #[must_use]
    pub fn external(&self, address: &str) -> String {
        let rest = self.remove_prefix.as_deref().and_then(|prefix| address.strip_prefix(prefix));
        let rest = rest.filter(|rest| !rest.is_empty()).unwrap_or(address);
        format!("{}{rest}", self.add_prefix.as_deref().unwrap_or_default())
    }
}

/// Routes by direction and pattern. Several of one pattern share its place in the tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes {
    trees: BTreeMap<Direction, PatternTree>,
    sharing: BTreeMap<(Direction, String), Vec<u64>>,
    bound: Bindings,
}

impl Routes {
    fn add(&mut self, identity: u64, route: &LinkRoute) {
        let sharing = self.sharing.entry((route.direction, route.pattern.clone())).or_default();
        if sharing.is_empty() {
            // A pattern of the same meaning, spelled otherwise, keeps its place: this one is never found.
            self.trees.entry(route.direction).or_default().add(&route.pattern, identity);
        }
        sharing.push(identity);
        self.bound.add(&route.bound, identity);
    }

    fn remove(&mut self, identity: u64, route: &LinkRoute) {
        self.bound.remove(&route.bound, identity);
        let key = (route.direction, route.pattern.clone());
        let Some(sharing) = self.sharing.get_mut(&key) else { return };
        sharing.retain(|other| *other != identity);
        let next = sharing.first().copied();
        if next.is_none() {
            self.sharing.remove(&key);
        }
        let tree = self.trees.entry(route.direction).or_default();
        tree.remove(&route.pattern, identity);
        if let Some(next) = next {
            tree.add(&route.pattern, next);
        }
    }
}

const COLUMNS: &[&str] = &[
    "name",
    "identity",
    "type",
    "prefix",
    "distribution",
    "connection",
    "containerId",
    "direction",
    "dir",
    "operStatus",
    "pattern",
    "addExternalPrefix",
    "delExternalPrefix",
];

impl Core {
    pub(super) fn call_link_routes(&mut self, request: &Request) -> Answer {
        let prefix = self.flavour.prefix();
        let result = match request.operation.as_str() {
            "CREATE" => self.create_link_route(request),
            "DELETE" => self.link_routes.find(request).map(|identity| self.delete_link_route(identity)),
            "READ" => self.link_routes.find(request).map(|identity| {
                let shown = self.link_routes.get(identity);
                let shown = shown.map(|route| whole(COLUMNS, |name| column(prefix, identity, route, name)));
                Answer::new(200, "OK", shown.unwrap_or_default())
            }),
            _ => Ok(self
                .link_routes
                .query(request, COLUMNS, |identity, route, name| column(prefix, identity, route, name))),
        };
        result.unwrap_or_else(|refused| refused)
    }

    fn create_link_route(&mut self, request: &Request) -> Result<Answer, Answer> {
        if self.link_routes.has_name(request.name.as_deref()) {
            return Err(refused("Name conflicts with an existing entity"));
        }
        let told = attributes(&request.body).ok_or_else(|| refused("Body of request must be a map"))?;
        let bound = Bound::new(binding(&told)?);
        let Some(direction) = told.get("direction").or_else(|| told.get("dir")) else {
            return Err(refused("No 'direction' attribute provided - it is mandatory"));
        };
        let (pattern, is_prefix) = pattern_or_prefix(&told)?;
        let direction = Direction::parse(direction).ok_or_else(|| refused("Invalid value for 'direction'"))?;
        if told.get("distribution").is_some_and(|word| as_text(word) != Some("linkBalanced")) {
            return Err(refused("Invalid value for 'distribution'"));
        }
        let identity = self.identity();
        let external = |key: &str| told.get(key).and_then(as_text).map(str::to_owned);
        let route = LinkRoute {
            name: request.name.clone(),
            pattern,
            is_prefix,
            direction,
            active: self.live.is_up(&bound),
            bound,
            add_prefix: external("addExternalPrefix"),
            remove_prefix: external("delExternalPrefix"),
        };
        self.routed.add(identity, &route);
        let shown = whole(COLUMNS, |name| column(self.flavour.prefix(), identity, &route, name));
        self.link_routes.insert(identity, request.name.as_deref(), route);
        self.changed(Some(Event::LinkRouteMade(identity)));
        Ok(Answer::new(201, "Created", shown))
    }

    fn delete_link_route(&mut self, identity: u64) -> Answer {
        if let Some(route) = self.link_routes.get(identity).cloned() {
            self.routed.remove(identity, &route);
            self.link_routes.remove(identity, route.name.as_deref());
            self.changed(Some(Event::LinkRouteGone(identity)));
        }
        Answer::new(204, "No Content", empty())
    }

    /// All link routes with their identities, oldest first.
    pub fn link_routes(&self) -> impl Iterator<Item = (u64, &LinkRoute)> {
        self.link_routes.iter()
    }

    /// The link routes of a client's address, which go before addresses: those of the best fitting pattern.
    #[must_use]
    pub fn routes_for(&self, address: &str, direction: Direction) -> Vec<&LinkRoute> {
        let first = self.routed.trees.get(&direction).and_then(|tree| tree.find(address));
        let Some(first) = first.and_then(|identity| self.link_routes.get(identity)) else { return Vec::new() };
        let sharing = self.routed.sharing.get(&(direction, first.pattern.clone()));
        sharing.into_iter().flatten().filter_map(|identity| self.link_routes.get(*identity)).collect()
    }

    pub(super) fn set_link_routes(&mut self, bound: &Bound, active: bool) {
        for identity in self.routed.bound.of(bound) {
            if let Some(route) = self.link_routes.get_mut(identity) {
                route.active = active;
            }
        }
    }
}

fn column(prefix: &str, identity: u64, route: &LinkRoute, name: &str) -> Value {
    match name {
        "name" => optional(route.name.as_deref()),
        "identity" => Value::String(identity.to_string()),
        "type" => Value::String(format!("{prefix}.router.config.linkRoute")),
        "distribution" => text("linkBalanced"),
        "direction" | "dir" => text(route.direction.as_str()),
        "operStatus" => text(if route.active { "active" } else { "inactive" }),
        "addExternalPrefix" => optional(route.add_prefix.as_deref()),
        "delExternalPrefix" => optional(route.remove_prefix.as_deref()),
        "connection" | "containerId" => route.bound.column(name),
        _ => shown_pattern(&route.pattern, route.is_prefix, name),
    }
}
