//! What routers must hold, worked out from the API's JSON alone, and what they hold.

use std::collections::{BTreeMap, BTreeSet};

use serde_amqp::Value as Amqp;
use serde_json::Value;
use waystation::drive::router::link::{Operation, Request, Type};
use waystation_kit::router_core::{AutoLink, Bound, Direction, OperStatus, Request as Ask};

use super::remote::{TAP, bound_to, is_remote};
use super::{Router, kind, rows, words};
use crate::api::store::{Id, Plural, condition, deleting, generation, uid};
use crate::check::{Object, Scene, is_true, spoilt};
use crate::people::{CONFIGS, config_id, readiness_port};
use crate::run::{host_of, text};
use crate::slices;
use crate::terms::is_moving;
use crate::world::{OTHER_SPACE, World};

/// An entity of an operator, as far as it matters. Brokers are told by where they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    Address {
        pattern: String,
        distribution: String,
        waypoint: bool,
    },
    Link {
        address: String,
        out: bool,
        broker: String,
    },
    Route {
        pattern: String,
        out: bool,
        broker: String,
    },
    Connector {
        broker: String,
    },
    Listener {
        port: String,
    },
    /// A connection to a remote host, by what its space calls it.
    Remote {
        connection: String,
        to: String,
        password: Option<String>,
    },
    /// A link route to a remote host, which sees `shown`.
    Via {
        pattern: String,
        shown: String,
        out: bool,
        connection: String,
    },
    Forward {
        address: String,
        out: bool,
        connection: String,
        remote: String,
    },
    /// A subscription's way to a remote host, with all its parts.
    Tap {
        broker: String,
        from: String,
        connection: String,
        to: String,
    },
    /// A part of such a way, or too much of it.
    Scrap {
        address: String,
    },
    /// The policy that keeps remote hosts off.
    Fence,
}

impl Thing {
    /// What clients or brokers know it by.
    pub fn slot(&self) -> Option<&str> {
        match self {
            Self::Address { pattern: slot, .. }
            | Self::Link { address: slot, .. }
            | Self::Route { pattern: slot, .. } => Some(slot),
            _ => None,
        }
    }
}

/// Within this time an operator has heard that a router has its readiness listener.
const ANSWERED_US: u64 = 100_000;

/// An Address that was Ready when everything had come to rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    generation: i64,
    config: (usize, String),
    space: String,
    brokers: Value,
    things: Vec<Thing>,
}

/// Which RouterConfig's operator made what has this name.
pub fn owner_of(name: &str) -> Option<usize> {
    CONFIGS.iter().position(|config| name.contains(&format!(".waystation-{}.", config.2)))
}

/// The broker whose connector has this name.
fn broker_of(connector: &str) -> String {
    connector.rsplit_once(".connector/").map(|(_, broker)| host_of(broker)).unwrap_or_default()
}

impl Router {
    /// What the operator of this RouterConfig has made here, and is there.
    pub fn things(&self, config: usize) -> BTreeSet<Thing> {
        let ours = |name: &Option<String>| name.as_deref().and_then(owner_of) == Some(config);
        let connectors: BTreeMap<String, String> =
            self.core.connectors().into_iter().map(|c| (c.name, c.host)).collect();
        let broker = |bound: &Bound| match bound {
            Bound::Connection(name) => connectors.get(name).cloned().unwrap_or_else(|| format!("no {name}")),
            _ => "nowhere".to_owned(),
        };
        let near = |link: &AutoLink| bound_to(&link.bound).is_none() && !link.address.starts_with(TAP);
        let links = self.core.auto_links().filter(|(_, link)| ours(&link.name) && near(link));
        let links = links.map(|(_, link)| Thing::Link {
            address: link.address.clone(),
            out: link.direction == Direction::Out,
            broker: broker(&link.bound),
        });
        let routes = self.core.link_routes();
        let routes = routes.filter(|(_, route)| ours(&route.name) && bound_to(&route.bound).is_none());
        let routes = routes.map(|(_, route)| Thing::Route {
            pattern: route.pattern.clone(),
            out: route.direction == Direction::Out,
            broker: broker(&route.bound),
        });
        let mut core = self.core.clone();
        let mut show = |of: &str, names: &[&str]| rows(core.call(&Ask::query(&kind(of), names)));
        let addresses = show("router.config.address", &["name", "pattern", "distribution", "waypoint"]);
        let addresses = addresses.into_iter().filter(|row| owner_of(words(&row[0])) == Some(config));
        let (taps, addresses): (Vec<_>, Vec<_>) = addresses.partition(|row| words(&row[1]).starts_with(TAP));
        let taps: Vec<String> = taps.iter().map(|row| words(&row[1]).to_owned()).collect();
        let remote = self.remote_things(config, &taps, broker);
        let addresses = addresses.iter().map(|row| Thing::Address {
            pattern: words(&row[1]).to_owned(),
            distribution: words(&row[2]).to_owned(),
            waypoint: row[3] == Amqp::Bool(true),
        });
        let listeners = show("listener", &["name", "port"]);
        let listeners = listeners.into_iter().filter(|row| owner_of(words(&row[0])) == Some(config));
        let listeners = listeners.map(|row| Thing::Listener { port: words(&row[1]).to_owned() });
        let all = links.chain(routes).chain(addresses).chain(listeners);
        let made = connectors.iter().filter(|(name, _)| owner_of(name) == Some(config) && !is_remote(name));
        let all = all.chain(remote);
        all.chain(made.map(|(_, host)| Thing::Connector { broker: host.clone() })).collect()
    }

    /// Whether it does not take, or cannot take, anything of this slot now.
    fn is_barred(&self, slot: &str) -> bool {
        self.refused.iter().any(|part| slot.contains(part.as_str()))
            || self.squatted.iter().any(|name| name.ends_with(slot))
    }

    /// Links of these slots that are not up.
    fn trouble(&self, slots: &BTreeSet<&str>) -> Vec<String> {
        let links = self.core.auto_links();
        // Those to remote hosts are told of by themselves.
        let links = links.filter(|(_, link)| bound_to(&link.bound).is_none());
        let links = links.filter(|(_, link)| slots.contains(&*link.address) && link.status != OperStatus::Active);
        let links = links
            .map(|(_, link)| format!("link {} {} is {}", link.direction.as_str(), link.address, link.status.as_str()));
        let routes = self.core.link_routes().filter(|(_, route)| slots.contains(&*route.pattern) && !route.active);
        links.chain(routes.map(|(_, route)| format!("link route {} is inactive", route.pattern))).collect()
    }
}

impl Scene<'_> {
    /// Whether routers stand before its brokers.
    pub fn is_standard(&self, address: &Value) -> bool {
        self.space_of(address).is_some_and(|space| space["spec"]["type"] == "standard")
    }

    /// What routers hold for an Address, on the brokers that its status names.
    pub fn things_of(&self, address: &Value) -> Vec<Thing> {
        let pattern = self.world.slot(address);
        let rows = address["status"]["brokers"].as_array().into_iter().flatten();
        let rows: Vec<(String, bool)> =
            rows.map(|row| (host_of(text(&row["name"])), row["state"] == "Draining")).collect();
        let brokers: Vec<String> = rows.iter().map(|(broker, _)| broker.clone()).collect();
        let named = |distribution: &str, waypoint| {
            let distribution = distribution.to_owned();
            Thing::Address { pattern: pattern.clone(), distribution, waypoint }
        };
        let link = |broker: &String, out| Thing::Link { address: pattern.clone(), out, broker: broker.clone() };
        let route = |pattern: &str, broker: &String, out| {
            let pattern = pattern.to_owned();
            Thing::Route { pattern, out, broker: broker.clone() }
        };
        // Who waits for the last message lets none in.
        let open = !deleting(address);
        match text(&address["spec"]["type"]) {
            "anycast" => vec![named("balanced", false)],
            "multicast" => vec![named("multicast", false)],
            "queue" => {
                let links = rows.iter().flat_map(|(broker, left)| [(broker, false, *left), (broker, true, *left)]);
                let links = links.filter(|(_, out, left)| (open && !left) || !out);
                let links = links.map(|(broker, out, _)| link(broker, out));
                [named("balanced", true)].into_iter().chain(links).collect()
            }
            "deadLetter" => {
                let links = brokers.iter().map(|broker| link(broker, false));
                [named("balanced", true)].into_iter().chain(links).collect()
            }
            "topic" => brokers.iter().flat_map(|b| [route(&pattern, b, false), route(&pattern, b, true)]).collect(),
            _ => {
                let topic = self.really(address, text(&address["spec"]["topic"]));
                brokers.iter().map(|broker| route(&format!("{topic}::{pattern}"), broker, true)).collect()
            }
        }
    }

    /// Whether an Address that is refused now says that what was accepted before is in force.
    fn keeps(&self, address: &Value, config: &Value) -> bool {
        let Some(ready) = condition(address, "Ready") else { return false };
        let brokers = config["spec"]["messaging"]["brokers"]["external"]["hosts"].as_array();
        let there = |name: &Value| brokers.into_iter().flatten().any(|broker| broker["name"] == *name);
        let mut on = address["status"]["brokers"].as_array().into_iter().flatten();
        // How a refused topic is spelled is not to be seen.
        text(&ready["message"]).contains("what was in force before still is")
            && address["spec"]["type"] != "subscription"
            && on.all(|on| there(&on["name"]))
    }

    /// The routers of a RouterConfig, by name and place.
    pub fn routers_of<'a>(&'a self, config: &'a Value) -> impl Iterator<Item = (&'a str, &'a Router)> {
        slices::routers_of(self.world, config)
            .into_iter()
            .filter_map(|(name, at)| Some((name, self.world.routers.get(at)?)))
    }

    /// What each router of a RouterConfig holds against what it must hold.
    pub fn check_routers(&self, index: usize, found: &mut Vec<String>) {
        let Some(config) = self.config(index).filter(|config| !deleting(config)) else { return };
        if config["spec"]["messaging"]["routers"].is_null() {
            return;
        }
        let mut wanted: BTreeSet<Thing> = [Thing::Listener { port: readiness_port(index).to_string() }].into();
        let brokers = config["spec"]["messaging"]["brokers"]["external"]["hosts"].as_array();
        let brokers = brokers.into_iter().flatten();
        wanted.extend(brokers.map(|broker| Thing::Connector { broker: text(&broker["host"]).to_owned() }));
        wanted.extend(self.remotes_wanted(index));
        // Slots of Addresses that keep what they had, or of which it is not known what they are.
        let mut kept = BTreeSet::new();
        let mut unreadable = BTreeSet::new();
        for (id, address) in &self.addresses {
            if spoilt(address) {
                unreadable.insert(id.namespace.clone());
                continue;
            }
            let mine = self.config_of(address).is_some_and(|other| uid(other) == uid(config));
            if !mine || !self.is_standard(address) {
                continue;
            }
            match (is_true(address, "Ready"), deleting(address)) {
                (true, false) => wanted.extend(self.things_of(address)),
                (false, false) if self.keeps(address, config) => wanted.extend(self.things_of(address)),
                _ => kept.extend(self.things_of(address).iter().filter_map(|thing| thing.slot().map(str::to_owned))),
            }
        }
        for (name, router) in self.routers_of(config) {
            let has = router.things(index);
            for thing in wanted.difference(&has).filter(|thing| !self.is_excused(index, thing)) {
                found.push(format!("router {name} lacks {thing:?}"));
            }
            for thing in has.difference(&wanted) {
                let slot = thing.slot().unwrap_or_default();
                let stands = wanted.iter().any(|other| other.slot() == Some(slot));
                if self.is_excused(index, thing) {
                    continue;
                }
                let spared = self.world.single && !unreadable.is_empty()
                    || unreadable.iter().any(|namespace| slot.starts_with(&format!("{namespace}.")));
                if stands || !(kept.contains(slot) || spared) {
                    found.push(format!("router {name}: {thing:?} is left over"));
                }
            }
            let slots = wanted.iter().filter_map(Thing::slot).collect();
            found.extend(router.trouble(&slots).into_iter().map(|trouble| format!("router {name}: {trouble}")));
        }
    }

    /// The Addresses of standard spaces that are Ready.
    pub fn settled(&self) -> BTreeMap<String, Settled> {
        // Of one that cannot be read a new process knows nothing.
        let counts =
            |a: &Value| is_true(a, "Ready") && !deleting(a) && self.is_standard(a) && !spoilt(a) && !is_moving(a);
        let ready = self.addresses.iter().filter(|(_, a)| counts(a));
        let settled = ready.filter_map(|(id, address)| {
            let index = usize::from((id.namespace.as_str(), text(&address["spec"]["addressSpace"])) == OTHER_SPACE);
            let settled = Settled {
                generation: generation(address),
                config: (index, uid(self.config(index)?).to_owned()),
                space: uid(self.space_of(address)?).to_owned(),
                brokers: address["status"]["brokers"].clone(),
                things: self.things_of(address),
            };
            Some((uid(address).to_owned(), settled))
        });
        settled.collect()
    }

    /// What was settled and nobody has touched since: it must be on every router that says it is filled.
    fn still_settled(&self, index: usize) -> impl Iterator<Item = &Thing> {
        let same = move |(_, address): &&(Id, Object)| {
            let settled = self.world.settled.get(uid(address))?;
            let config = self.config(index).filter(|config| !deleting(config))?;
            let space = self.space_of(address).filter(|space| !deleting(space))?;
            let same = settled.generation == generation(address)
                && settled.config == (index, uid(config).to_owned())
                && settled.space == uid(space)
                && is_true(address, "Ready")
                && !deleting(address);
            same.then_some(settled)
        };
        self.addresses.iter().filter_map(move |found| same(&found)).flat_map(|settled| &settled.things)
    }
}

impl World {
    /// A router has carried out a change: whether that was its time.
    pub fn judge_routing(&mut self, host: &str, request: &Request) {
        let Operation::Create(name, attributes) = &request.operation else { return };
        let Some(config) = owner_of(name) else { return };
        let get = |key: &str| attributes.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let out = get("direction") == "out";
        let thing = match request.of {
            Type::Address => Thing::Address {
                pattern: get("pattern"),
                distribution: get("distribution"),
                waypoint: attributes.get("waypoint") == Some(&Value::Bool(true)),
            },
            Type::AutoLink if is_remote(&get("connection")) => return,
            Type::AutoLink if get("address").starts_with(TAP) => {
                if let Some(wrong) = self.judge_tap(&get("externalAddress"), &broker_of(&get("connection"))) {
                    self.violated(format!("router {host}: {wrong}"));
                }
                return;
            }
            Type::LinkRoute if is_remote(&get("connection")) => return,
            Type::AutoLink => Thing::Link { address: get("address"), out, broker: broker_of(&get("connection")) },
            Type::LinkRoute => Thing::Route { pattern: get("pattern"), out, broker: broker_of(&get("connection")) },
            Type::Connector if is_remote(name) => return,
            Type::Connector => Thing::Connector { broker: get("host") },
            Type::Listener => Thing::Listener { port: get("port") },
            // What is about remote hosts is nobody's readiness.
            Type::Vhost => return,
        };
        let found = match &thing {
            Thing::Link { address, broker, .. } => self.judge_link(address, broker),
            Thing::Listener { port } => self.judge_readiness(host, config, port),
            _ => None,
        };
        if let Some(wrong) = found {
            self.violated(format!("router {host}: {wrong}"));
        }
        let now = self.now_us();
        if let (Thing::Listener { .. }, Some(router)) = (&thing, self.routers.get_mut(host)) {
            router.filled.insert(config, now);
        }
        self.made.insert(thing);
    }

    /// Brokers come before routers.
    fn judge_link(&self, address: &str, broker: &str) -> Option<String> {
        let there = self.brokers.get(broker).is_some_and(|broker| broker.core.queue(address).is_some());
        // Who takes over does not know that the last message of one that goes is gone already, and its queue with it.
        // Where an Address cannot be read, nothing is cleared away, and what is there is looked after.
        let excuses = |a: &Value| (deleting(a) && self.slot(a) == address) || spoilt(a);
        let excused = self.api.all(Plural::Addresses).any(|(_, a)| excuses(a));
        let known = there || self.held.contains(&(broker.to_owned(), address.to_owned())) || excused;
        (!known).then(|| format!("a link to {address} was made before {broker} had it"))
    }

    /// A router says that it is filled.
    fn judge_readiness(&self, host: &str, config: usize, port: &str) -> Option<String> {
        let router = self.routers.get(host)?;
        let mut core = router.core.clone();
        let ports = rows(core.call(&Ask::query(&kind("listener"), &["port"])));
        if ports.iter().filter(|row| words(&row[0]) == port).count() > 1 {
            return Some(format!("a second listener was made on port {port}"));
        }
        let has = router.things(config);
        let scene = Scene::of(self);
        let lacks = scene.still_settled(config).find(|thing| {
            let barred = thing.slot().is_some_and(|slot| router.is_barred(slot));
            !has.contains(thing) && !barred
        });
        lacks.map(|thing| format!("it says that it is filled and lacks {thing:?}"))
    }

    /// What an operator says of an Address in a standard space: that it is Ready only when routers have it.
    pub fn judge_routes(&self, address: &Value) -> Option<String> {
        let scene = Scene::of(self);
        if !scene.is_standard(address) {
            return None;
        }
        // One that begins to move is Ready by what it had.
        if crate::terms::brokers_by_state(address).contains_key("Migrating") {
            return None;
        }
        let things = scene.things_of(address);
        if let Some(thing) = things.iter().find(|thing| !self.made.contains(thing)) {
            return Some(format!("was said to be Ready before any router had {thing:?}"));
        }
        let config = scene.config_of(address)?;
        let index =
            (0..CONFIGS.len()).find(|index| self.api.get(&config_id(*index)).map(|c| uid(c)) == Some(uid(config)))?;
        if !(self.calm_routers && self.accountable && self.faults.router == 0) {
            return None;
        }
        let (_, born) = self.births.get(uid(address)).copied()?;
        let lacking = |(name, router): (&str, &Router)| {
            // One that is being filled does not count.
            router.filled.get(&index).filter(|at| **at + ANSWERED_US < born)?;
            let has = router.things(index);
            things.iter().find(|thing| !has.contains(thing)).map(|thing| (name.to_owned(), thing))
        };
        let (name, thing) = scene.routers_of(config).find_map(lacking)?;
        Some(format!("was said to be Ready before router {name} had {thing:?}"))
    }

    /// A queue is taken away: routers come before brokers.
    pub fn judge_removal(&mut self, host: &str, queue: &str) {
        let calm = self.calm_routers && self.accountable && self.faults.router == 0 && self.forced.is_empty();
        let leads = |router: &&Router| {
            // Who waits for the last message keeps the way out of the queue.
            let leads = |thing: &Thing| match thing {
                Thing::Link { address, out, broker } => *out && address == queue && broker == host,
                _ => false,
            };
            (0..CONFIGS.len()).any(|config| router.things(config).iter().any(leads))
        };
        if calm && self.routers.values().any(|router| leads(&router)) {
            self.violated(format!("queue {queue} was taken from {host} before the links that lead to it"));
        }
    }

    /// Compares where Addresses are with where they were; nobody has given a reason to move.
    pub fn judge_moves(&mut self, settled: &BTreeMap<String, Settled>) {
        let mut found = Vec::new();
        for (uid, now) in settled {
            let before =
                self.settled.get(uid).filter(|before| before.space == now.space && before.config == now.config);
            if let Some(before) = before.filter(|before| before.brokers != now.brokers) {
                found.push(format!("Address {uid} was on {} and is on {}", before.brokers, now.brokers));
            }
        }
        for wrong in found {
            self.violated(wrong);
        }
    }
}
