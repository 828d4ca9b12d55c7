//! What must hold when nothing moves: brokers hold what objects ask for, statuses are true, nothing is left over.
//!
//! What a broker must hold is worked out from the API's JSON alone, by nothing that the operator uses.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waystation::api::{ADDRESS_FINALIZER, ADDRESS_SPACE_FINALIZER, ROUTER_CONFIG_FINALIZER};
use waystation_kit::artemis_core::Core;

use crate::api::store::{Id, Plural, condition, deleting, finalizers, generation, uid};
use crate::people::{CONFIGS, config_id};
use crate::router::Router;
use crate::router::things::Thing;
use crate::run::{broker_name, host, text};
use crate::terms::{all_drain, brokers_by_state, is_moving};
use crate::wanted::Wanted;
use crate::world::{OTHER_SPACE, World};

pub type Object = Arc<Value>;

/// Everything that is looked at.
pub struct Scene<'a> {
    pub world: &'a World,
    configs: [Option<Object>; 2],
    pub addresses: Vec<(Id, Object)>,
}

/// Compares everything; each difference is a violation.
pub fn agreement(world: &mut World) {
    let mut found = Vec::new();
    let World { routers, brokers, remotes, stage, .. } = &mut *world;
    for router in routers.values_mut() {
        router.live(brokers, &remotes.hosts, &mut stage.random);
    }
    let settled = {
        let scene = Scene::of(world);
        for index in 0..CONFIGS.len() {
            scene.check_config(index, &mut found);
            scene.check_leftovers(index, &mut found);
            scene.check_routers(index, &mut found);
        }
        scene.check_spaces(&mut found);
        scene.check_room(&mut found);
        scene.check_services(&mut found);
        scene.check_remotes(&mut found);
        for (id, address) in &scene.addresses {
            if let Err(wrong) = scene.check_address(address) {
                found.push(format!("Address {}/{}: {wrong}", id.namespace, id.name));
            }
        }
        scene.check_writes(&mut found);
        let (seen, settled) = (scene.seen(), scene.settled());
        for what in seen {
            world.saw(&what);
        }
        settled
    };
    world.judge_moves(&settled);
    world.settled = settled;
    for wrong in found {
        world.violated(wrong);
    }
}

pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

pub fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(object, kind).map(|condition| text(&condition["reason"])).unwrap_or_default()
}

/// The form in which addresses are compared.
pub fn canonical(address: &str) -> String {
    address.replace('/', ".")
}

pub fn name_of(address: &Value) -> String {
    address["spec"]["address"].as_str().unwrap_or_else(|| text(&address["metadata"]["name"])).to_owned()
}

fn in_force(core: &mut Core, address: &str) -> Map<String, Value> {
    let answer = core.call("broker", "getAddressSettingsAsJSON", &json!([address])).unwrap();
    serde_json::from_str(answer.as_str().unwrap()).unwrap()
}

/// Whether there is a value in it that cannot be read.
pub fn spoilt(address: &Value) -> bool {
    address["spec"]["maxSizeBytes"].is_string()
}

/// Where the queues are that say whose an address is.
const MARKS: &str = "_waystation/";

/// What a queue says the owner of.
fn marked(queue: &str) -> Option<String> {
    let slot = queue.strip_prefix(MARKS)?;
    Some(if slot.ends_with('/') { format!("{slot}*.#") } else { slot.to_owned() })
}

impl<'a> Scene<'a> {
    /// As everything is now.
    pub fn of(world: &'a World) -> Self {
        let all = |plural| world.api.all(plural).map(|(id, object)| (id.clone(), Arc::clone(object))).collect();
        let configs = [0, 1].map(|index| world.api.get(&config_id(index)).cloned());
        Scene { world, configs, addresses: all(Plural::Addresses) }
    }
}

impl Scene<'_> {
    pub fn config(&self, index: usize) -> Option<&Object> {
        self.configs[index].as_ref()
    }

    /// The RouterConfig of an Address.
    pub fn config_of(&self, address: &Value) -> Option<&Object> {
        let space = (text(&address["metadata"]["namespace"]), text(&address["spec"]["addressSpace"]));
        self.configs[usize::from(space == OTHER_SPACE)].as_ref()
    }

    /// To whom its queue belongs.
    fn user_of(&self, address: &Value) -> String {
        let space = (text(&address["metadata"]["namespace"]), text(&address["spec"]["addressSpace"]));
        format!("waystation:{}", CONFIGS[usize::from(space == OTHER_SPACE)].2)
    }

    /// What it was good for to look.
    fn seen(&self) -> Vec<String> {
        let mut seen = Vec::new();
        for (_, address) in &self.addresses {
            let kind = text(&address["spec"]["type"]);
            let what = match (deleting(address), is_true(address, "Ready")) {
                (true, _) => format!("deletion of a {kind} waits"),
                (false, true) if is_moving(address) => format!("{kind} that moves"),
                (false, true) => format!("{kind} Ready"),
                (false, false) => reason(address, "Ready").to_owned(),
            };
            seen.push(what);
        }
        seen.extend(self.remotes_seen());
        let orphans =
            self.configs.iter().flatten().filter_map(|config| config["status"]["orphans"].as_u64()).sum::<u64>();
        seen.extend((0..orphans).map(|_| "orphan".to_owned()));
        seen
    }

    pub fn space_of(&self, address: &Value) -> Option<&Object> {
        let namespace = text(&address["metadata"]["namespace"]);
        self.world.api.get(&Id::new(Plural::AddressSpaces, namespace, text(&address["spec"]["addressSpace"])))
    }

    fn check_config(&self, index: usize, found: &mut Vec<String>) {
        let Some(config) = &self.configs[index] else { return };
        let name = CONFIGS[index].1;
        let uses = |space: &&Object| space["spec"]["routerConfigRef"]["name"] == name;
        let spaces = self.world.api.all(Plural::AddressSpaces).map(|(_, space)| space).filter(uses).count();
        if deleting(config) {
            if spaces == 0 {
                found.push(format!("RouterConfig {name}: is not let go of"));
            }
        } else if !is_true(config, "Ready") {
            found.push(format!("RouterConfig {name}: not Ready: {}", config["status"]["conditions"]));
        } else if condition(config, "Ready").unwrap()["observedGeneration"] != generation(config) {
            found.push(format!("RouterConfig {name}: Ready is of an older generation"));
        }
        if !finalizers(config).contains(&ROUTER_CONFIG_FINALIZER) {
            found.push(format!("RouterConfig {name}: has no finalizer"));
        }
    }

    fn check_spaces(&self, found: &mut Vec<String>) {
        for (id, space) in self.world.api.all(Plural::AddressSpaces) {
            let name = format!("AddressSpace {}/{}", id.namespace, id.name);
            let of = |address: &&(Id, Object)| {
                address.0.namespace == id.namespace && address.1["spec"]["addressSpace"] == id.name.as_str()
            };
            let total = self.addresses.iter().filter(of).count();
            let ready = self.addresses.iter().filter(of).filter(|(_, address)| is_true(address, "Ready")).count();
            if !finalizers(space).contains(&ADDRESS_SPACE_FINALIZER) {
                found.push(format!("{name}: has no finalizer"));
            }
            // What cannot be read may be in it.
            let unreadable = self.addresses.iter().any(|(other, a)| spoilt(a) && other.namespace == id.namespace);
            if deleting(space) && total == 0 && !unreadable {
                found.push(format!("{name}: is not let go of"));
            }
            let config = self
                .configs
                .iter()
                .flatten()
                .find(|c| c["metadata"]["name"] == space["spec"]["routerConfigRef"]["name"]);
            let allowed =
                config.is_some_and(|config| !deleting(config) && config["spec"]["allowedNamespaces"]["from"] == "All");
            let one_too_many = self.world.single && reason(space, "Ready") == "TenancySingle";
            if allowed && !deleting(space) && !is_true(space, "Ready") && !one_too_many {
                found.push(format!("{name}: not Ready: {}", space["status"]["conditions"]));
            }
            if config.is_none() && is_true(space, "Ready") {
                found.push(format!("{name}: Ready without a RouterConfig"));
            }
            let counts = json!({ "total": total, "ready": ready });
            let unreadable = self.addresses.iter().filter(of).any(|(_, address)| spoilt(address));
            if space["status"]["addresses"] != counts && !unreadable {
                found.push(format!("{name}: counts {} instead of {counts}", space["status"]["addresses"]));
            }
        }
    }

    fn check_address(&self, address: &Value) -> Result<(), String> {
        if spoilt(address) {
            return Ok(());
        }
        if deleting(address) {
            return self.check_deletion(address);
        }
        if !finalizers(address).contains(&ADDRESS_FINALIZER) {
            return Err("has no finalizer".to_owned());
        }
        let Some(ready) = condition(address, "Ready") else { return Err("says nothing".to_owned()) };
        let of = |condition: &Value| condition["observedGeneration"] == generation(address);
        if !of(ready) || !condition(address, "Accepted").is_some_and(of) {
            return Err(format!("speaks of an older generation: {}", address["status"]));
        }
        if ready["status"] == "True" {
            if !is_true(address, "Accepted") {
                return Err("Ready and not accepted".to_owned());
            }
            return self.check_contents(address);
        }
        self.check_refusal(address).map_err(|wrong| format!("{wrong}: {ready}"))
    }

    /// A deletion must have something to wait for.
    fn check_deletion(&self, address: &Value) -> Result<(), String> {
        let slot = self.world.slot(address);
        let brokers = self.world.brokers.values();
        let full = brokers.flat_map(|broker| broker.core.queue(&slot)).any(|queue| queue.messages > 0);
        if address["spec"]["deletionPolicy"] == "WhenEmpty" && full {
            return Ok(());
        }
        let told = address["status"]["brokers"].as_array().is_some_and(|brokers| !brokers.is_empty());
        if told && self.config_of(address).is_none() {
            // Nobody knows how to reach what it has.
            return Ok(());
        }
        let name = canonical(&name_of(address));
        let named = |other: &Value, field: &str| other["spec"][field].as_str().is_some_and(|n| canonical(n) == name);
        let used = self.addresses.iter().any(|(_, other)| {
            let same_space = other["spec"]["addressSpace"] == address["spec"]["addressSpace"]
                && other["metadata"]["namespace"] == address["metadata"]["namespace"];
            let uses = match text(&address["spec"]["type"]) {
                "topic" => named(other, "topic"),
                "deadLetter" => named(other, "deadLetterAddress") || named(other, "expiryAddress"),
                _ => false,
            };
            same_space && uses
        });
        if used { Ok(()) } else { Err(format!("is not let go of: {}", address["status"]["conditions"])) }
    }

    /// Not being Ready must have a reason that holds.
    fn check_refusal(&self, address: &Value) -> Result<(), String> {
        let space = self.space_of(address);
        if self
            .addresses
            .iter()
            .any(|(_, a)| spoilt(a) && a["metadata"]["namespace"] == address["metadata"]["namespace"])
        {
            // What it names may be what cannot be read.
            return Ok(());
        }
        let kind_of = |field: &str| {
            let named = address["spec"][field].as_str()?;
            let kinds: BTreeSet<&str> = self.claimants(address, named).map(|a| text(&a["spec"]["type"])).collect();
            Some((kinds, self.claimants(address, named).all(|a| !is_true(a, "Ready") || deleting(a))))
        };
        let lacks =
            |field: &str, kind: &str| kind_of(field).is_some_and(|(kinds, unready)| !kinds.contains(kind) || unready);
        let wrong =
            |field: &str| kind_of(field).is_some_and(|(kinds, _)| kinds.iter().any(|kind| *kind != "deadLetter"));
        let holds = match reason(address, "Ready") {
            "SpaceNotFound" => space.is_none(),
            "SpaceNotAccepted" => space.is_some_and(|space| !is_true(space, "Accepted") || deleting(space)),
            "DuplicateAddress" => self.claimants(address, &name_of(address)).count() > 1 || self.connector_has(address),
            "TopicNotFound" => lacks("topic", "topic") || kind_of("topic").is_some_and(|(kinds, _)| kinds.len() > 1),
            "DeadLetterNotFound" => lacks("deadLetterAddress", "deadLetter") || lacks("expiryAddress", "deadLetter"),
            "DeadLetterWrongType" => wrong("deadLetterAddress") || wrong("expiryAddress"),
            "BrokerRefused" => self.conflicts(address),
            // What it names is there and cannot come.
            "Configuring" => {
                lacks("topic", "topic")
                    || lacks("deadLetterAddress", "deadLetter")
                    || lacks("expiryAddress", "deadLetter")
            }
            "RouterConfigNotFound" => self.config_of(address).is_none(),
            "WaitingForBroker" => self.config_of(address).is_none_or(|config| all_drain(config)),
            reason => self.world.terms.is_some() && self.plan_refusal_holds(address, reason),
        };
        if holds { Ok(()) } else { Err("not Ready without a reason that holds".to_owned()) }
    }

    /// Whether something with messages is in the way that may not be destroyed.
    fn conflicts(&self, address: &Value) -> bool {
        let slot = self.world.slot(address);
        self.world
            .brokers
            .values()
            .any(|broker| broker.core.queue(&slot).is_some() || broker.core.addresses().any(|(name, _)| name == slot))
    }

    /// What the Address asks for, on the brokers that it names.
    fn check_contents(&self, address: &Value) -> Result<(), String> {
        let by_state = brokers_by_state(address);
        let on = by_state.get("Active").cloned().unwrap_or_default();
        let wanted = if self.is_standard(address) { self.wanted_brokers(address) } else { Some(1) };
        if wanted.is_some_and(|wanted| on.len() != wanted) {
            return Err(format!("Ready on {on:?}, and not on {wanted:?} brokers"));
        }
        self.check_moves(address)?;
        on.into_iter().try_for_each(|on| self.check_contents_on(address, on))
    }

    fn check_contents_on(&self, address: &Value, on: &str) -> Result<(), String> {
        let index = (0..self.world.brokers.len()).find(|index| broker_name(*index) == on);
        let Some(broker) = index.and_then(|index| self.world.brokers.get(&host(index))) else {
            return Err(format!("is on {on}, which there is not"));
        };
        let slot = self.world.slot(address);
        let wanted = Wanted::of(address, &slot, self);
        let routing = broker.core.addresses().find(|(name, _)| *name == wanted.address).map(|(_, types)| types);
        let routes = routing.is_some_and(|types| types.iter().any(|routing| routing.as_str() == wanted.routing));
        if !routes {
            return Err(format!("Ready, and {on} has no {} address {}", wanted.routing, wanted.address));
        }
        let mark = broker.core.queue(&format!("{MARKS}{slot}"));
        if wanted.queue.is_none() && mark.is_none_or(|mark| mark.user != self.user_of(address)) {
            return Err(format!("Ready, and nothing on {on} says whose {slot} is"));
        }
        if let Some((durable, consumers)) = wanted.queue {
            let Some(queue) = broker.core.queue(&slot) else {
                return Err(format!("Ready, and {on} has no queue {slot}"));
            };
            let has = (queue.address.as_str(), queue.routing.as_str(), queue.durable, queue.max_consumers);
            let wants = (wanted.address.as_str(), wanted.routing, durable, consumers);
            if has != wants || queue.user != self.user_of(address) {
                return Err(format!("Ready, and its queue is {queue:?} instead of {wants:?}"));
            }
        }
        if let Some(settings) = wanted.settings {
            let ttl = settings.get("maxExpiryDelay").and_then(Value::as_i64).map(|ms| format!("{}h", ms / 3_600_000));
            let told = address["status"]["messageTtl"]["maximum"].as_str();
            if told != ttl.as_deref() {
                return Err(format!("Ready, and tells of a TTL of {told:?} instead of {ttl:?}"));
            }
            // In force is what was asked for, else what an untouched broker has.
            let mut wants = in_force(&mut Core::new(true), "somewhere/else");
            wants.extend(settings);
            let has = in_force(&mut broker.core.clone(), &slot);
            let differs: Vec<String> = wants
                .keys()
                .chain(has.keys())
                .filter(|key| wants.get(*key) != has.get(*key))
                .map(|key| format!("{key}: {:?} instead of {:?}", has.get(key), wants.get(key)))
                .collect();
            if !differs.is_empty() {
                return Err(format!("Ready, and its settings differ: {}", differs.join(", ")));
            }
        }
        Ok(())
    }

    /// An Address that was Ready within a second of its creation cost one status write.
    fn check_writes(&self, found: &mut Vec<String>) {
        const SECOND: u64 = 1_000_000;
        if !self.world.accountable {
            return;
        }
        for (id, address) in &self.addresses {
            let slot = self.world.slot(address);
            if generation(address) != 1 || self.world.disturbed.iter().any(|space| slot.starts_with(space.as_str())) {
                continue;
            }
            let of = uid(address);
            let mut writes = self.world.writes.iter().filter(|write| write.uid == of && write.status.is_some());
            let (Some(first), Some((_, born))) = (writes.next(), self.world.births.get(of)) else { continue };
            let conditions = first.status.as_ref().and_then(|status| status["conditions"].as_array());
            let forwards = address["spec"]["forwarders"].as_array().map_or(0, Vec::len);
            let ready = conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
            // What becomes of each forwarder is told when it is known.
            let more = writes.count();
            if ready && first.at_us - born <= SECOND && more > forwards {
                found.push(format!("Address {}/{}: {more} more status writes after the first", id.namespace, id.name));
            }
        }
    }

    /// Whether a router that is no part of the RouterConfig any more, and still runs, has a link to an address: once
    /// nothing says otherwise, its broker makes the address for it.
    fn is_come_for(&self, config: &Value, host: &str, address: &str) -> bool {
        let still: Vec<*const Router> = self.routers_of(config).map(|(_, router)| std::ptr::from_ref(router)).collect();
        let left = self.world.routers.values().filter(|router| !still.contains(&std::ptr::from_ref(*router)));
        let things = left.flat_map(|router| (0..CONFIGS.len()).flat_map(|index| router.things(index)));
        let mut links = things.filter_map(|thing| match thing {
            Thing::Link { address, broker, .. } => Some((address, broker)),
            _ => None,
        });
        links.any(|(link, broker)| link == address && broker == host)
    }

    /// Whatever is on a broker must stand for something.
    fn check_leftovers(&self, index: usize, found: &mut Vec<String>) {
        let Some(config) = self.configs[index].as_ref().filter(|config| !deleting(config)) else { return };
        let Value::Array(hosts) = &config["spec"]["messaging"]["brokers"]["external"]["hosts"] else { return };
        let (user, other) = (format!("waystation:{}", CONFIGS[index].2), self.world.prefix(OTHER_SPACE));
        let claimed: BTreeSet<String> = self.addresses.iter().map(|(_, a)| self.world.slot(a)).collect();
        let unreadable = |name: &str| {
            let alike = |id: &Id| self.world.single || name.starts_with(&format!("{}.", id.namespace));
            self.addresses.iter().any(|(id, address)| spoilt(address) && alike(id))
        };
        let stands = |name: &str| claimed.contains(name) || unreadable(name);
        // A queue stands for an Address that was accepted once, and only where the Address's space is.
        let accepted = |a: &Value| a["status"]["brokers"].as_array().is_some_and(|brokers| !brokers.is_empty());
        let here = |name: &str, on: &str| {
            let mut claimants = self.addresses.iter().filter(|(_, a)| self.world.slot(a) == name && accepted(a));
            claimants.any(|(_, a)| self.world.is_on(a, on)) || unreadable(name)
        };
        let mut orphans = 0;
        for named in hosts {
            let (Some(broker), on) = (self.world.brokers.get(text(&named["host"])), text(&named["name"])) else {
                continue;
            };
            let (marks, queues): (Vec<_>, Vec<_>) = broker.core.queues().partition(|(name, _)| marked(name).is_some());
            for (name, queue) in queues.into_iter().filter(|(name, queue)| queue.user == user && !here(name, on)) {
                orphans += 1;
                if queue.messages == 0 {
                    found.push(format!("queue {name} is left over on {on}, empty"));
                } else if !self.world.excused.contains(name) {
                    found.push(format!("queue {name} is left over on {on}, with messages, and was seen to go"));
                }
            }
            let left = broker.core.addresses().map(|(name, _)| ("address", name.to_owned()));
            let left = left.filter(|(_, name)| !name.starts_with(MARKS));
            let marks = marks.into_iter().filter_map(|(name, _)| Some(("mark of", marked(name)?)));
            let left = left.chain(marks);
            let left = left.chain(broker.core.settings().map(|(name, _)| ("settings of", name.to_owned())));
            for (what, name) in left.filter(|(_, name)| name.starts_with(&other) == (index == 1)) {
                let fine = if let Some(space) = name.strip_suffix("/*.#") {
                    let (namespace, space) = space.split_once('.').unwrap_or_default();
                    // What a space shared is let go of with a broker that cannot be reached.
                    self.world.api.get(&Id::new(Plural::AddressSpaces, namespace, space)).is_some()
                        || self.world.outages
                } else {
                    stands(&name)
                        || broker.core.queues().any(|(_, queue)| queue.address == name && queue.user != "client")
                        || what == "address" && self.is_come_for(config, text(&named["host"]), &name)
                };
                let forced = self.world.forced.iter().any(|prefix| name.starts_with(prefix.as_str()));
                if !fine && !forced && !self.world.excused.contains(&name) {
                    found.push(format!("{what} {name} left over on {on}"));
                }
            }
        }
        let told = config["status"]["orphans"].as_u64();
        if told != Some(orphans) {
            found.push(format!("RouterConfig {}: tells of {told:?} orphans, there are {orphans}", CONFIGS[index].1));
        }
    }
}
