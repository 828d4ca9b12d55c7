//! Plans: what people do to them, and what must hold of what they give. Queues that move.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::store::{Id, Plural, condition, deleting};
use crate::check::{Object, Scene, is_true, spoilt};
use crate::lies::Lie;
use crate::people::config_id;
use crate::plan::{Action, Name};
use crate::run::text;
use crate::world::{OTHER_SPACE, World};

/// What the plans of the first RouterConfig say, as people have written it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Brokers of a queue of plan `two`.
    pub partitions: u64,
    /// Addresses of a space of plan `tight`.
    pub room: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { partitions: 2, room: 2 }
    }
}

/// What people call the plans of Addresses.
const PLANS: [&str; 2] = ["one", "two"];

impl Terms {
    /// Puts the plans into a RouterConfig's `messaging`.
    pub fn put(self, messaging: &mut Value) {
        let all = ["anycast", "multicast", "queue", "topic", "subscription", "deadLetter"];
        messaging["addressPlans"] = json!([
            { "name": PLANS[0], "addressTypes": all, "routerCredit": 0.1, "brokerCredit": 0.1 },
            { "name": PLANS[1], "addressTypes": ["queue"], "partitions": self.partitions, "routerCredit": 0.1, "brokerCredit": 0.1 },
        ]);
        messaging["spacePlans"] = json!([
            { "name": "wide", "limits": {} },
            { "name": "tight", "limits": { "addresses": self.room } },
        ]);
    }
}

impl World {
    /// The plans of a RouterConfig, as the operator shall read them.
    pub fn put_terms(&self, messaging: &mut Value) {
        let Some(mut terms) = self.terms else { return };
        if self.lies(Lie::WideGate) {
            terms.room += 2;
        }
        terms.put(messaging);
    }

    /// The plan that a space begins with.
    pub fn space_plan(&self, name: Name) -> Option<&'static str> {
        self.terms.map(|_| if name == ("red", "two") { "wide" } else { "tight" })
    }

    /// What spaces have may be more than the plans give from now on.
    pub fn note_terms(&mut self, action: &Action) {
        self.terms_moved |= !keeps_terms(action);
    }

    /// The brokers that a sender reaches through the routers; none where it needs no router to get anywhere.
    pub fn ways_into(&self, space: Name, address: &str) -> Option<Vec<String>> {
        let id = Id::new(Plural::AddressSpaces, space.0, space.1);
        let standard = self.api.get(&id).is_some_and(|space| space["spec"]["type"] == "standard");
        (standard && self.terms.is_some()).then(|| {
            let hosts = self.brokers.keys().filter(|host| self.routers.values().any(|r| r.leads_into(address, host)));
            hosts.cloned().collect()
        })
    }
}

/// Whether no space can have more than its plan gives because of it.
pub fn keeps_terms(action: &Action) -> bool {
    matches!(
        action,
        Action::CreateAddress { .. }
            | Action::CreateSpace(_)
            | Action::DeleteAddress(_)
            | Action::ChangeTtl(..)
            | Action::ChangePlan(..)
            | Action::Send(..)
            | Action::Drain(..)
            | Action::DrainBroker { .. }
            | Action::Crash { .. }
            | Action::RouterRestart { .. }
            | Action::RouterCut(_)
            | Action::CutWatches
            | Action::Quiet
            | Action::Resync
            | Action::Measure(_)
    )
}

/// What people do.
pub fn act(world: &mut World, action: &Action) {
    match action {
        Action::ChangePlan(name, plan) => {
            world.settled.clear();
            let id = Id::new(Plural::Addresses, name.0, name.1);
            if world.terms.is_some() && world.api.get(&id).is_some_and(|a| a["spec"]["type"] == "queue") {
                world.change(&id, |address| address["spec"]["plan"] = (*plan).into());
            }
        }
        Action::ChangeSpacePlan(name, plan) if *name != OTHER_SPACE => {
            let id = Id::new(Plural::AddressSpaces, name.0, name.1);
            if world.terms.is_some() {
                world.change(&id, |space| space["spec"]["plan"] = (*plan).into());
            }
        }
        Action::ConfigPlans { partitions, room } if world.terms.is_some() => {
            world.settled.clear();
            world.terms = Some(Terms { partitions: *partitions, room: *room });
            let mut plans = json!({});
            world.put_terms(&mut plans);
            world.change(&config_id(0), |config| {
                for key in ["addressPlans", "spacePlans"] {
                    config["spec"]["messaging"][key] = plans[key].clone();
                }
            });
        }
        Action::DrainBroker { broker, drain } => {
            world.settled.clear();
            world.change(&config_id(0), |config| {
                let host = config["spec"]["messaging"]["brokers"]["external"]["hosts"].get_mut(*broker);
                if let Some(host) = host {
                    host["drain"] = (*drain).into();
                }
            });
        }
        _ => {}
    }
}

/// Whether no broker of a RouterConfig takes anything new.
pub fn all_drain(config: &Value) -> bool {
    let hosts = config["spec"]["messaging"]["brokers"]["external"]["hosts"].as_array();
    hosts.is_some_and(|hosts| hosts.iter().all(|host| host["drain"] == true))
}

/// The brokers of an Address by their state in its status.
pub fn brokers_by_state(address: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut all = BTreeMap::<&str, Vec<&str>>::new();
    for row in address["status"]["brokers"].as_array().into_iter().flatten() {
        all.entry(text(&row["state"])).or_default().push(text(&row["name"]));
    }
    all
}

/// Whether it has left a broker that still holds messages of it.
pub fn is_moving(address: &Value) -> bool {
    brokers_by_state(address).keys().any(|state| *state != "Active")
}

impl Scene<'_> {
    /// On how many brokers a Ready Address of a standard space is; none where that does not matter.
    pub fn wanted_brokers(&self, address: &Value) -> Option<usize> {
        let messaging = &self.config_of(address)?["spec"]["messaging"];
        let hosts = messaging["brokers"]["external"]["hosts"].as_array()?;
        match text(&address["spec"]["type"]) {
            "anycast" | "multicast" => Some(0),
            "deadLetter" => Some(hosts.len()),
            "queue" => {
                let takers = hosts.iter().filter(|host| host["drain"] != true).count();
                let plans = messaging["addressPlans"].as_array();
                let plan = plans.into_iter().flatten().find(|plan| plan["name"] == address["status"]["plan"]);
                let partitions = plan.and_then(|plan| plan["partitions"].as_u64()).unwrap_or(1);
                // Where nobody takes anything, it stays.
                (takers > 0).then(|| (partitions as usize).min(takers))
            }
            _ => Some(1),
        }
    }

    /// What moves at rest waits for its last message.
    pub fn check_moves(&self, address: &Value) -> Result<(), String> {
        for (state, names) in brokers_by_state(address) {
            for name in names {
                let queue = self.world.brokers.get(&crate::run::host_of(name)).map(|broker| &broker.core);
                let messages = queue.and_then(|core| core.queue(&self.world.slot(address))).map(|queue| queue.messages);
                match (state, messages) {
                    ("Active", _) => {}
                    ("Draining", Some(1..)) => {}
                    _ => return Err(format!("{state} on {name} at rest, with {messages:?} messages")),
                }
            }
        }
        Ok(())
    }

    /// Whether a refusal for the plan's sake holds.
    pub fn plan_refusal_holds(&self, address: &Value, reason: &str) -> bool {
        let plan = address["spec"]["plan"].as_str();
        match reason {
            "PlanNotFound" => plan.is_none_or(|plan| !PLANS.contains(&plan)),
            "PlanNotAllowed" => plan == Some(PLANS[1]) && address["spec"]["type"] != "queue",
            "QuotaExceeded" => {
                let room = self.space_of(address).and_then(|space| self.room_of(space));
                room.is_some_and(|room| self.charged(address).count() as u64 >= room)
            }
            _ => false,
        }
    }

    /// How many Addresses a space may have.
    fn room_of(&self, space: &Value) -> Option<u64> {
        let other = (text(&space["metadata"]["namespace"]), text(&space["metadata"]["name"])) == OTHER_SPACE;
        let terms = if other { Some(Terms::default()) } else { self.world.terms };
        terms.filter(|_| space["spec"]["plan"] == "tight").map(|terms| terms.room)
    }

    /// The Addresses that a space is charged for.
    fn charged<'a>(&'a self, like: &'a Value) -> impl Iterator<Item = &'a Object> {
        let accepted = |address: &Value| {
            let keeps = condition(address, "Ready").is_some_and(|c| text(&c["message"]).contains("still is"));
            let on = address["status"]["brokers"].as_array().is_some_and(|on| !on.is_empty());
            is_true(address, "Accepted") || keeps || on
        };
        let mine = move |address: &&Object| {
            address["metadata"]["namespace"] == like["metadata"]["namespace"]
                && address["spec"]["addressSpace"] == like["spec"]["addressSpace"]
        };
        self.addresses.iter().map(|(_, address)| address).filter(mine).filter(move |address| accepted(address))
    }

    /// No space has more than its plan gives, unless there was a reason for it.
    pub fn check_room(&self, found: &mut Vec<String>) {
        if self.world.terms_moved || self.world.outages || self.addresses.iter().any(|(_, a)| spoilt(a)) {
            return;
        }
        for (id, space) in self.world.api.all(Plural::AddressSpaces).filter(|(_, space)| !deleting(space)) {
            let like = json!({ "metadata": { "namespace": id.namespace }, "spec": { "addressSpace": id.name } });
            let (room, charged) = (self.room_of(space), self.charged(&like).count() as u64);
            if room.is_some_and(|room| charged > room) {
                found.push(format!(
                    "AddressSpace {}/{}: has {charged} Addresses and room for {room:?}",
                    id.namespace, id.name
                ));
            }
        }
    }
}
