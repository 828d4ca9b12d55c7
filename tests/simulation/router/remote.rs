//! What a router has to do with remote hosts.

use std::collections::BTreeMap;

use serde_json::Value;
use waystation::drive::router::link::{Operation, Request, Type};
use waystation_kit::router_core::{AutoLink, Bound, Connector, Direction, OperStatus};

use super::Router;
use super::things::{Thing, owner_of};
use crate::api::store::{Plural, deleting};
use crate::check::spoilt;
use crate::lies::Lie;
use crate::world::World;

/// What the addresses begin with by which a subscription's messages are brought to a remote host.
pub const TAP: &str = "_tap/";

/// What operators call the connection of a connector with this name.
fn id(connector: &str) -> Option<&str> {
    connector.split_once(".connector/").map(|(_, id)| id)
}

/// Whether a connector of this name leads to a remote host.
pub fn is_remote(connector: &str) -> bool {
    id(connector).is_some_and(|id| id.contains('>'))
}

/// The connection of a space's connector.
pub fn connection(namespace: &str, space: &str, connector: &str) -> String {
    format!("{namespace}.{space}>{connector}")
}

/// The name of the connection to a remote host that something is bound to.
pub fn bound_to(bound: &Bound) -> Option<&str> {
    match bound {
        Bound::Connection(name) if is_remote(name) => id(name),
        _ => None,
    }
}

/// The parts of one tap: address, from where, to where.
#[derive(Default)]
struct Tap {
    address: bool,
    from: Vec<(String, String)>,
    to: Vec<(String, String)>,
}

impl Router {
    /// The connectors to remote hosts that a RouterConfig's operator has made.
    fn remotes(&self, config: usize) -> impl Iterator<Item = (String, Connector)> {
        let ours = self.core.connectors().into_iter();
        let ours = ours.filter(move |c| is_remote(&c.name) && owner_of(&c.name) == Some(config));
        ours.filter_map(|c| Some((id(&c.name)?.to_owned(), c)))
    }

    /// Connections to remote hosts, and whether each is open.
    pub fn connections(&self, config: usize) -> BTreeMap<String, bool> {
        self.remotes(config).map(|(id, connector)| (id, self.is_open(&connector.name))).collect()
    }

    /// All that is there of connectors and forwarders. `taps`: patterns of their addresses; `broker`: whom a link that
    /// leads to no remote host is bound to.
    pub fn remote_things(&self, config: usize, taps: &[String], broker: impl Fn(&Bound) -> String) -> Vec<Thing> {
        let mut all: Vec<Thing> = Vec::new();
        all.extend(self.remotes(config).map(|(connection, c)| Thing::Remote {
            connection,
            to: format!("{}:{}", c.host, c.port),
            password: c.password,
        }));
        let ours = |name: &Option<String>| name.as_deref().and_then(owner_of) == Some(config);
        let mut through: BTreeMap<String, Tap> = BTreeMap::new();
        for address in taps {
            through.entry(address.clone()).or_default().address = true;
        }
        for (_, link) in self.core.auto_links().filter(|(_, link)| ours(&link.name)) {
            let (far, out) = (bound_to(&link.bound), link.direction == Direction::Out);
            let external = link.external.clone().unwrap_or_default();
            match far {
                _ if link.address.starts_with(TAP) => {
                    let tap = through.entry(link.address.clone()).or_default();
                    let end = (far.map_or_else(|| broker(&link.bound), str::to_owned), external);
                    if out { tap.to.push(end) } else { tap.from.push(end) }
                }
                Some(far) => all.push(Thing::Forward {
                    address: link.address.clone(),
                    out,
                    connection: far.to_owned(),
                    remote: external,
                }),
                None => {}
            }
        }
        for (_, route) in self.core.link_routes().filter(|(_, route)| ours(&route.name)) {
            if let Some(far) = bound_to(&route.bound) {
                let (pattern, out) = (route.pattern.clone(), route.direction == Direction::Out);
                all.push(Thing::Via { shown: route.external(&pattern), pattern, out, connection: far.to_owned() });
            }
        }
        let vhosts = self.core.names("vhost").filter(|name| owner_of(name) == Some(config));
        all.extend(vhosts.map(|_| Thing::Fence));
        all.extend(through.into_iter().map(|(address, mut tap)| match (tap.from.pop(), tap.to.pop()) {
            (Some((broker, from)), Some((connection, to)))
                if tap.address && tap.from.is_empty() && tap.to.is_empty() =>
            {
                Thing::Tap { broker, from, connection, to }
            }
            _ => Thing::Scrap { address },
        }));
        all
    }

    /// How the forwarder's link to this remote address is, over an open connection.
    pub fn forwards(&self, connection: &str, out: bool, address: &str, remote: &str) -> Option<&AutoLink> {
        let mut links = self.core.auto_links().map(|(_, link)| link);
        links.find(|link| {
            bound_to(&link.bound) == Some(connection)
                && (link.direction == Direction::Out) == out
                && (link.address == address || link.address.starts_with(TAP))
                && link.external.as_deref() == Some(remote)
        })
    }
}

/// Whether a link does what it is for.
pub fn works(link: &AutoLink) -> bool {
    link.status == OperStatus::Active
}

// === Planted bugs ===

impl World {
    /// Whether a planted bug about remote hosts keeps this request to itself.
    pub fn swallows_remote(&self, host: &str, request: &Request, again: bool) -> bool {
        match (request.of, &request.operation) {
            (Type::Connector, Operation::Create(name, _)) => {
                again && self.lies(Lie::ForgottenRemotes) && is_remote(name)
            }
            (Type::AutoLink, Operation::Delete(name)) if self.lies(Lie::LeftForwards) => {
                let links = self.routers.get(host).into_iter().flat_map(|router| router.core.auto_links());
                let mut links = links.filter(|(_, link)| link.name.as_ref() == Some(name));
                links.any(|(_, link)| bound_to(&link.bound).is_some())
            }
            _ => false,
        }
    }

    /// What a planted bug makes of a request.
    pub fn falsify(&mut self, request: &mut Request) {
        if let (Type::Connector, Operation::Create(name, attributes)) = (request.of, &mut request.operation)
            && is_remote(name)
            && let Some(password) = attributes.get("saslPassword").and_then(Value::as_str).map(str::to_owned)
        {
            let password = self.far_password(name, &password);
            attributes.insert("saslPassword".to_owned(), password.into());
        }
    }

    /// Brokers come before routers, also where what they hold goes on to somebody else.
    pub fn judge_tap(&self, from: &str, broker: &str) -> Option<String> {
        let queue = from.split_once("::").map_or(from, |(_, queue)| queue);
        let there = self.brokers.get(broker).is_some_and(|broker| broker.core.queue(queue).is_some());
        let excuses = |a: &Value| (deleting(a) && self.slot(a) == queue) || spoilt(a);
        let excused = self.api.all(Plural::Addresses).any(|(_, a)| excuses(a));
        let known = there || self.held.contains(&(broker.to_owned(), queue.to_owned())) || excused;
        (!known).then(|| format!("a link from {queue} was made before {broker} had it"))
    }
}
