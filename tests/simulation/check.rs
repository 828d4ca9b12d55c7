//! What must hold when nothing moves: brokers hold what objects ask for, statuses are true, nothing is left over.
//!
//! What a broker must hold is worked out from the API's JSON alone, by nothing that the operator uses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waystation_kit::artemis_core::Core;

use waystation::api::{ADDRESS_FINALIZER, ADDRESS_SPACE_FINALIZER, ROUTER_CONFIG_FINALIZER};

use crate::api::store::{Id, Plural, condition, deleting, finalizers, generation, uid};
use crate::people::CONFIG;
use crate::run::{broker_name, host, text};
use crate::world::World;

type Object = Arc<Value>;

/// Everything that is looked at.
struct Scene<'a> {
    world: &'a World,
    config: Option<Object>,
    addresses: Vec<(Id, Object)>,
}

/// Compares everything; each difference is a violation.
pub fn agreement(world: &mut World) {
    let mut found = Vec::new();
    {
        let all = |plural| world.api.all(plural).map(|(id, object)| (id.clone(), Arc::clone(object))).collect();
        let config = world.api.get(&Id::new(Plural::RouterConfigs, CONFIG.0, CONFIG.1)).cloned();
        let scene = Scene { world, config, addresses: all(Plural::Addresses) };
        scene.check_config(&mut found);
        scene.check_spaces(&mut found);
        for (id, address) in &scene.addresses {
            if let Err(wrong) = scene.check_address(address) {
                found.push(format!("Address {}/{}: {wrong}", id.namespace, id.name));
            }
        }
        scene.check_leftovers(&mut found);
        scene.check_writes(&mut found);
    }
    for wrong in found {
        world.violated(wrong);
    }
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(object, kind).map(|condition| text(&condition["reason"])).unwrap_or_default()
}

/// The form in which addresses are compared.
fn canonical(address: &str) -> String {
    address.replace('/', ".")
}

fn name_of(address: &Value) -> String {
    address["spec"]["address"].as_str().unwrap_or_else(|| text(&address["metadata"]["name"])).to_owned()
}

fn in_force(core: &mut Core, address: &str) -> Map<String, Value> {
    let answer = core.call("broker", "getAddressSettingsAsJSON", &json!([address])).unwrap();
    serde_json::from_str(answer.as_str().unwrap()).unwrap()
}

fn spoilt(address: &Value) -> bool {
    address["spec"]["maxSizeBytes"].is_string()
}

impl Scene<'_> {
    fn config_serves(&self) -> bool {
        self.config.is_some()
    }

    fn space_of(&self, address: &Value) -> Option<&Object> {
        let namespace = text(&address["metadata"]["namespace"]);
        self.world.api.get(&Id::new(Plural::AddressSpaces, namespace, text(&address["spec"]["addressSpace"])))
    }

    /// Others in the space under the same address.
    fn claimants<'a>(&'a self, like: &'a Value, name: &str) -> impl Iterator<Item = &'a Object> {
        let name = canonical(name);
        self.addresses.iter().map(|(_, address)| address).filter(move |address| {
            address["spec"]["addressSpace"] == like["spec"]["addressSpace"]
                && address["metadata"]["namespace"] == like["metadata"]["namespace"]
                && canonical(&name_of(address)) == name
        })
    }

    fn check_config(&self, found: &mut Vec<String>) {
        let Some(config) = &self.config else { return };
        let spaces = self.world.api.all(Plural::AddressSpaces).count();
        if deleting(config) {
            if spaces == 0 {
                found.push("RouterConfig: is not let go of".to_owned());
            }
        } else if !is_true(config, "Ready") {
            found.push(format!("RouterConfig: not Ready: {}", config["status"]["conditions"]));
        } else if condition(config, "Ready").unwrap()["observedGeneration"] != generation(config) {
            found.push("RouterConfig: Ready is of an older generation".to_owned());
        }
        if !finalizers(config).contains(&ROUTER_CONFIG_FINALIZER) {
            found.push("RouterConfig: has no finalizer".to_owned());
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
            if deleting(space) && total == 0 {
                found.push(format!("{name}: is not let go of"));
            }
            let allowed = self
                .config
                .as_ref()
                .is_some_and(|config| !deleting(config) && config["spec"]["allowedNamespaces"]["from"] == "All");
            if allowed && !deleting(space) && !is_true(space, "Ready") {
                found.push(format!("{name}: not Ready: {}", space["status"]["conditions"]));
            }
            if self.config.is_none() && is_true(space, "Ready") {
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
        let slot = World::slot(address);
        let brokers = self.world.brokers.values();
        let full = brokers.flat_map(|broker| broker.core.queue(&slot)).any(|queue| queue.messages > 0);
        if address["spec"]["deletionPolicy"] == "WhenEmpty" && full {
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
            "DuplicateAddress" => self.claimants(address, &name_of(address)).count() > 1,
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
            "WaitingForBroker" => !self.config_serves(),
            _ => false,
        };
        if holds { Ok(()) } else { Err("not Ready without a reason that holds".to_owned()) }
    }

    /// Whether something with messages is in the way that may not be destroyed.
    fn conflicts(&self, address: &Value) -> bool {
        let slot = World::slot(address);
        self.world
            .brokers
            .values()
            .any(|broker| broker.core.queue(&slot).is_some() || broker.core.addresses().any(|(name, _)| name == slot))
    }

    /// What the Address asks for, on the broker that it names.
    fn check_contents(&self, address: &Value) -> Result<(), String> {
        let Some(on) = address["status"]["brokers"][0]["name"].as_str() else {
            return Err("Ready on no broker".to_owned());
        };
        let index = (0..self.world.brokers.len()).find(|index| broker_name(*index) == on);
        let Some(broker) = index.and_then(|index| self.world.brokers.get(&host(index))) else {
            return Err(format!("is on {on}, which there is not"));
        };
        let slot = World::slot(address);
        let prefix = slot.strip_suffix(name_of(address).as_str()).unwrap_or_default();
        let spec = &address["spec"];
        let wanted = Wanted::of(spec, &slot, prefix, self);
        let routing = broker.core.addresses().find(|(name, _)| *name == wanted.address).map(|(_, types)| types);
        let routes = routing.is_some_and(|types| types.iter().any(|routing| routing.as_str() == wanted.routing));
        if !routes {
            return Err(format!("Ready, and {on} has no {} address {}", wanted.routing, wanted.address));
        }
        if let Some((durable, consumers)) = wanted.queue {
            let Some(queue) = broker.core.queue(&slot) else {
                return Err(format!("Ready, and {on} has no queue {slot}"));
            };
            let has = (queue.address.as_str(), queue.routing.as_str(), queue.durable, queue.max_consumers);
            let wants = (wanted.address.as_str(), wanted.routing, durable, consumers);
            if has != wants || queue.user != "waystation:sim" {
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
            let slot = World::slot(address);
            if generation(address) != 1 || self.world.disturbed.iter().any(|space| slot.starts_with(space.as_str())) {
                continue;
            }
            let of = uid(address);
            let mut writes = self.world.writes.iter().filter(|write| write.uid == of && write.status.is_some());
            let (Some(first), Some((_, born))) = (writes.next(), self.world.births.get(of)) else { continue };
            let conditions = first.status.as_ref().and_then(|status| status["conditions"].as_array());
            let ready = conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
            let more = writes.count();
            if ready && first.at_us - born <= SECOND && more > 0 {
                found.push(format!("Address {}/{}: {more} more status writes after the first", id.namespace, id.name));
            }
        }
    }

    /// Whatever is on a broker must stand for something.
    fn check_leftovers(&self, found: &mut Vec<String>) {
        let hosts = self.config.as_ref().map(|c| c["spec"]["messaging"]["brokers"]["external"]["hosts"].clone());
        let Some(Value::Array(hosts)) = hosts else { return };
        if self.config.as_ref().is_some_and(|config| deleting(config)) {
            return;
        }
        let claimed: BTreeMap<String, &Object> = self.addresses.iter().map(|(_, a)| (World::slot(a), a)).collect();
        let mut orphans = 0;
        for named in hosts {
            let Some(broker) = self.world.brokers.get(text(&named["host"])) else { continue };
            let stands = |name: &str| {
                let unreadable =
                    self.addresses.iter().any(|(id, a)| spoilt(a) && name.starts_with(&format!("{}.", id.namespace)));
                claimed.contains_key(name) || unreadable
            };
            for (name, queue) in broker.core.queues().filter(|(_, queue)| queue.user == "waystation:sim") {
                if stands(name) {
                    continue;
                }
                orphans += 1;
                if queue.messages == 0 {
                    found.push(format!("queue {name} is left over on {}, empty", text(&named["name"])));
                } else if !self.world.excused.contains(name) {
                    found.push(format!(
                        "queue {name} is left over on {} with messages, though its Address was seen to go",
                        text(&named["name"])
                    ));
                }
            }
            let left = broker.core.addresses().map(|(name, _)| ("address", name.to_owned()));
            let left = left.chain(broker.core.settings().map(|(name, _)| ("settings of", name.to_owned())));
            for (what, name) in left {
                let holds = broker.core.queues().any(|(_, queue)| queue.address == name);
                if let Some(space) = name.strip_suffix("/*.#") {
                    let (namespace, space) = space.split_once('.').unwrap_or_default();
                    let there = self.world.api.get(&Id::new(Plural::AddressSpaces, namespace, space)).is_some();
                    if !there && !self.world.excused.contains(&name) && !self.world.outages {
                        found.push(format!("{what} {name} left over on {}", text(&named["name"])));
                    }
                    continue;
                }
                if !stands(&name) && !holds && !self.world.excused.contains(&name) {
                    found.push(format!("{what} {name} left over on {}", text(&named["name"])));
                }
            }
        }
        let told = self.config.as_ref().and_then(|config| config["status"]["orphans"].as_u64());
        if told != Some(orphans) {
            found.push(format!("RouterConfig: tells of {told:?} orphans, there are {orphans}"));
        }
    }
}

/// What an Address asks of a broker.
struct Wanted {
    address: String,
    routing: &'static str,
    /// Durable, and consumers at a time.
    queue: Option<(bool, i32)>,
    settings: Option<Map<String, Value>>,
}

impl Wanted {
    fn of(spec: &Value, slot: &str, prefix: &str, scene: &Scene<'_>) -> Self {
        let kind = text(&spec["type"]);
        let (routing, queue) = match kind {
            "anycast" => ("ANYCAST", Some((false, -1))),
            "queue" | "deadLetter" => ("ANYCAST", Some((true, -1))),
            "subscription" => {
                let consumers = spec["subscription"]["maxConsumers"].as_i64().unwrap_or(1);
                ("MULTICAST", Some((true, i32::try_from(consumers).unwrap())))
            }
            _ => ("MULTICAST", None),
        };
        if kind == "subscription" {
            let address = scene.really(spec, slot, prefix, text(&spec["topic"]));
            return Self { address, routing, queue, settings: None };
        }
        let mut settings = Map::new();
        for key in ["Queues", "Addresses"] {
            settings.insert(format!("autoCreate{key}"), false.into());
            settings.insert(format!("autoDelete{key}"), false.into());
        }
        for key in ["autoCreateDeadLetterResources", "autoCreateExpiryResources"] {
            settings.insert(key.to_owned(), false.into());
        }
        if kind == "deadLetter" {
            settings.insert("addressFullMessagePolicy".to_owned(), "PAGE".into());
        }
        if matches!(kind, "queue" | "topic") {
            let defaults = scene.config.as_ref().map(|config| config["spec"]["messaging"]["defaults"].clone());
            let defaults = defaults.unwrap_or_default();
            let ttl = spec["messageTtl"]["maximum"].as_str().or(defaults["messageTtl"]["maximum"].as_str());
            if let Some(hours) = ttl.and_then(|ttl| ttl.strip_suffix('h')?.parse::<i64>().ok()) {
                settings.insert("maxExpiryDelay".to_owned(), (hours * 3_600_000).into());
            }
            let default =
                defaults["deadLetterAddress"].as_str().filter(|name| scene.has_dead_letter(slot, prefix, name));
            let dead = spec["deadLetterAddress"].as_str().or(default);
            for (key, named) in [("deadLetterAddress", dead), ("expiryAddress", spec["expiryAddress"].as_str())] {
                if let Some(named) = named {
                    settings.insert(key.to_owned(), scene.really(spec, slot, prefix, named).into());
                }
            }
        }
        Self { address: slot.to_owned(), routing, queue, settings: Some(settings) }
    }
}

impl Scene<'_> {
    fn in_space(&self, prefix: &str, name: &str) -> impl Iterator<Item = &Object> {
        let wanted = canonical(name);
        let prefix = prefix.to_owned();
        self.addresses
            .iter()
            .map(|(_, address)| address)
            .filter(move |address| World::slot(address).starts_with(&prefix) && canonical(&name_of(address)) == wanted)
    }

    /// The name on the broker of what a reference means: the target's own spelling.
    fn really(&self, _: &Value, _: &str, prefix: &str, named: &str) -> String {
        let holder = self.in_space(prefix, named).find(|address| is_true(address, "Ready"));
        let name = holder.map_or_else(|| named.to_owned(), |address| name_of(address));
        format!("{prefix}{name}")
    }

    fn has_dead_letter(&self, _: &str, prefix: &str, name: &str) -> bool {
        self.in_space(prefix, name)
            .any(|address| address["spec"]["type"] == "deadLetter" && is_true(address, "Ready") && !deleting(address))
    }
}
