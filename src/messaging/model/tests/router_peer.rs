//! A router of the test world: it holds what it is told until it restarts, and refuses or dawdles when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::world::World;
use crate::messaging::ids::{Slot, TargetId};
use crate::messaging::input::Input;
use crate::messaging::output::TargetChange;
use crate::messaging::router::*;

/// What it holds, and how it behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Router {
    pub up: bool,
    pub held: BTreeMap<Slot, Arc<Entry>>,
    /// Slots that are refused, with the words.
    pub refuses: BTreeMap<Slot, String>,
    /// Slots whose links do not become active.
    pub failing: BTreeSet<Slot>,
    /// Brokers that its connectors do not reach.
    pub cut: BTreeSet<Arc<str>>,
    /// Nobody has looked at its links on this connection.
    pub unseen: bool,
    /// Answers are held back.
    pub slow: bool,
    pub abilities: Abilities,
    pub waiting: Vec<Job>,
    pub incarnation: u64,
    /// Jobs carried out, by slot.
    pub log: Vec<(Slot, &'static str)>,
}

impl Router {
    /// One that is up and can do everything.
    pub fn able() -> Self {
        let abilities = Abilities { waypoints: true, link_routes: true, multi_tenant: true, policies: true };
        Self { up: true, abilities, ..Self::default() }
    }

    fn carry(&mut self, job: &Job) -> Result<Done, String> {
        self.log.push((job.slot.clone(), if matches!(job.wish, Wish::Gone) { "gone" } else { "hold" }));
        if let Some(words) = self.refuses.get(&job.slot) {
            return Err(words.clone());
        }
        match &job.wish {
            Wish::Gone => {
                self.held.remove(&job.slot);
                Ok(Done::Gone)
            }
            Wish::Hold(entry) => {
                assert_eq!(entry.lacks(self.abilities), None, "{}: sent to a router that cannot", job.slot);
                self.held.insert(job.slot.clone(), entry.clone());
                // What is filled in is looked at later.
                let looked = job.class == crate::messaging::broker::Class::Change;
                let trouble = (looked && self.failing.contains(&job.slot)).then(|| "no route".into());
                Ok(Done::Held { trouble })
            }
        }
    }

    pub fn contents(&self) -> Arc<Contents> {
        let slots = self.held.iter().map(|(slot, entry)| (slot.clone(), entry.fingerprint()));
        Arc::new(Contents { slots: slots.collect() })
    }

    pub fn serving(&self) -> bool {
        self.held.contains_key(&readiness_slot())
    }
}

impl World {
    pub fn router_id(&self, name: &str) -> TargetId {
        TargetId::router(super::world::key("rc"), name.into())
    }

    pub fn router(&mut self, name: &str) -> &mut Router {
        let id = self.router_id(name);
        self.routers.entry(id).or_insert_with(Router::able)
    }

    /// What a router holds.
    pub fn held(&self, name: &str) -> BTreeMap<Slot, Arc<Entry>> {
        self.routers.get(&self.router_id(name)).map(|router| router.held.clone()).unwrap_or_default()
    }

    /// The router stops, and keeps nothing.
    pub fn router_down(&mut self, name: &str) {
        self.router(name).held.clear();
        self.router_cut(name);
    }

    /// The connection to the router is lost, and nothing else.
    pub fn router_cut(&mut self, name: &str) {
        let id = self.router_id(name);
        let router = self.router(name);
        router.up = false;
        let incarnation = router.incarnation;
        if self.live.remove(&id) {
            self.input(Input::Router(id, incarnation, RouterLink::Down("connection refused".into())));
        }
    }

    pub fn router_up(&mut self, name: &str) {
        let id = self.router_id(name);
        self.router(name).up = true;
        self.connect_router(&id);
    }

    pub fn connect_router(&mut self, id: &TargetId) {
        let Some(router) = self.routers.get(id).cloned().filter(|r| r.incarnation != 0) else { return };
        let incarnation = router.incarnation;
        if router.up {
            self.live.insert(id.clone());
            let (abilities, serving, peer) = (router.abilities, router.serving(), self.peer);
            self.input(Input::Router(id.clone(), incarnation, RouterLink::Connected { abilities, serving, peer }));
            for broker in router.held.keys().filter_map(|slot| slot.strip_prefix("#connector/")) {
                let words = router.cut.contains(broker).then(|| "connection refused".into());
                self.input(Input::Router(id.clone(), incarnation, RouterLink::Connector(broker.into(), words)));
            }
            self.reread_router(id);
            if !router.unseen {
                self.input(Input::Router(id.clone(), incarnation, RouterLink::Looked));
            }
        } else {
            self.input(Input::Router(id.clone(), incarnation, RouterLink::Down("connection refused".into())));
        }
    }

    fn reread_router(&mut self, id: &TargetId) {
        let Some(router) = self.routers.get(id) else { return };
        let (incarnation, contents) = (router.incarnation, router.contents());
        self.input(Input::Router(id.clone(), incarnation, RouterLink::Reading));
        self.input(Input::Router(id.clone(), incarnation, RouterLink::Contents(contents)));
    }

    pub fn router_change(&mut self, change: TargetChange) {
        match change {
            TargetChange::StartRouter { target, incarnation, .. } => {
                let router = self.routers.entry(target.clone()).or_insert_with(Router::able);
                router.incarnation = incarnation;
                router.waiting.clear();
                self.connect_router(&target);
            }
            TargetChange::Reconnect { target, incarnation, .. } => {
                self.input(Input::Router(target.clone(), incarnation, RouterLink::Down("reconnecting".into())));
                self.connect_router(&target);
            }
            TargetChange::Reread { target, .. } => {
                self.rereads += 1;
                self.reread_router(&target);
            }
            TargetChange::Stop { target, .. } => {
                self.live.remove(&target);
                if let Some(router) = self.routers.get_mut(&target) {
                    router.incarnation = 0;
                    router.waiting.clear();
                }
            }
            TargetChange::Start { .. } => unreachable!("a broker"),
        }
    }

    /// Routers carry out what they were told; whether anything happened.
    pub fn work_of_routers(&mut self) -> bool {
        let mut outcomes = Vec::new();
        for (id, router) in &mut self.routers {
            if !self.live.contains(id) || router.slow {
                continue;
            }
            // The newest of a slot wins.
            let jobs = std::mem::take(&mut router.waiting);
            for (i, job) in jobs.iter().enumerate() {
                if jobs[i + 1..].iter().any(|later| later.slot == job.slot) {
                    continue;
                }
                let result = router.carry(job);
                let outcome = Outcome { slot: job.slot.clone(), generation: job.generation, result };
                outcomes.push((id.clone(), router.incarnation, outcome));
            }
        }
        let worked = !outcomes.is_empty();
        for (id, incarnation, outcome) in outcomes {
            let made = outcome.slot.strip_prefix("#connector/").map(Arc::from);
            let held = matches!(outcome.result, Ok(Done::Held { .. }));
            self.input(Input::Router(id.clone(), incarnation, RouterLink::Outcome(outcome)));
            if let Some(broker) = made.filter(|_| held) {
                let down = self.routers.get(&id).is_some_and(|r| r.cut.contains(&broker));
                let words = down.then(|| "connection refused".into());
                self.input(Input::Router(id, incarnation, RouterLink::Connector(broker, words)));
            }
        }
        worked
    }

    /// The drive has looked at all links.
    pub fn looked(&mut self, name: &str) {
        let (id, incarnation) = (self.router_id(name), self.router(name).incarnation);
        self.input(Input::Router(id, incarnation, RouterLink::Looked));
    }

    /// A link of the slot fails, or works again, and the drive has seen it.
    pub fn link(&mut self, name: &str, slot: &Slot, fails: bool) {
        let id = self.router_id(name);
        let router = self.router(name);
        match fails {
            true => router.failing.insert(slot.clone()),
            false => router.failing.remove(slot),
        };
        let incarnation = router.incarnation;
        let words = fails.then(|| "no route".into());
        if self.live.contains(&id) {
            self.input(Input::Router(id, incarnation, RouterLink::Links(vec![(slot.clone(), words)])));
        }
    }
}
