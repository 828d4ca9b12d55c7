//! Addresses: which Address has an address, whether it is accepted, and what its slot shall hold.

use std::sync::Arc;

use super::Model;
use super::routes::{RouteClaim, RouteSay};
use super::slots::Claim;
use super::state::{AddressState, Progress, Refusal, Route};
use crate::messaging::broker::{Class, ground};
use crate::messaging::entry::{self, Effective, References};
use crate::messaging::ids::{Key, Kind, Slot, TargetId};
use crate::messaging::input::{AddressType, Defaults};
use crate::messaging::names;
use crate::messaging::reason;
use crate::messaging::status::Leaving;

/// What is to be done with an Address that is not being deleted.
#[derive(Debug)]
pub(super) enum Decision {
    /// It belongs to another installation.
    Foreign,
    /// It cannot be carried out.
    Refuse(Refusal),
    /// Something that it needs is on its way: nothing to say yet.
    Wait(Refusal),
    /// Whether there is room for it is not known yet; or there is none, and what it names may yet be refused, which
    /// would be the better word.
    Pend(Option<Refusal>),
    /// Hold it there.
    Hold(Box<Plan>),
}

/// What stands for an Address on data planes.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The brokers that hold its slot, by name.
    pub on: Vec<TargetId>,
    /// Those that hold it until it has moved away from them.
    pub leaving: Vec<(TargetId, Leaving)>,
    /// Its name on brokers.
    pub slot: Slot,
    /// What it refers to there.
    pub refs: References,
    /// What the routers hold, in a standard space.
    pub route: Option<Route>,
    /// Why its plan is not the one asked for: it was accepted before, and what was in force stays.
    pub turned: Option<Refusal>,
}

impl Model {
    pub(super) fn space_key(address: &AddressState) -> Key {
        Key { namespace: address.obj.meta.key.namespace.clone(), name: address.obj.space.clone() }
    }

    /// Decides an address and carries the decision to its slot.
    pub(super) fn evaluate_address(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        if self.spaces.get(&Self::space_key(address)).is_some_and(|space| space.foreign) {
            // Another installation's, its deletion included: what it holds is not for us to let go.
            return;
        }
        if address.obj.meta.deleting {
            let held = (address.held(), address.refused);
            self.leave_line(key);
            self.recharge(key);
            self.evaluate_deletion(key);
            if self.addresses.get(key).is_some_and(|a| (a.held(), a.refused) != held) {
                self.mark_referrers(key);
                self.dirty_addresses.remove(key);
            }
            self.verdict_address(key, None);
            return;
        }
        let decision = self.decide(address);
        let mut decision = self.admit(key, decision);
        if let Decision::Hold(plan) = &mut decision {
            self.locate(key, plan);
        }
        let Some(address) = self.addresses.get(key) else { return };
        let refused = matches!(decision, Decision::Refuse(_));
        let unled = matches!(decision, Decision::Wait((reason::ROUTER_CONFIG_NOT_FOUND, _)));
        let (was_refused, was_unled, now_ms) = (address.refused, address.unled, self.now.mono_ms);
        if unled != was_unled
            && let Some(address) = self.addresses.get_mut(key)
        {
            (address.unled, address.since_ms) = (unled, now_ms);
        }
        if refused != was_refused
            && let Some(address) = self.addresses.get_mut(key)
        {
            address.refused = refused;
            if was_refused {
                // What it lacked has come: patience starts anew.
                address.since_ms = now_ms;
            }
        }
        if refused {
            self.withdraw(key);
            self.disinherit(key);
        }
        if matches!(&decision, Decision::Wait((reason::WAITING_FOR_BROKER, _))) {
            self.await_placement(key);
        }
        let Some(address) = self.addresses.get(key) else { return };
        let held = (address.accepted, address.holds.clone(), was_refused);
        // Nothing is put into a space that may go at any moment without having been let go of: once it is gone, nobody
        // knows any more whose brokers hold what.
        let guarded =
            address.accepted || self.spaces.get(&Self::space_key(address)).is_some_and(|space| space.told.finalizer);
        if let Decision::Hold(plan) = &decision
            && address.told.finalizer
            && guarded
        {
            self.hold_plan(key, plan, true);
            if plan.turned.is_none() {
                self.settle_in_force(key, plan);
            }
            self.take_leave(key, plan);
        }
        if matches!(decision, Decision::Refuse(_) | Decision::Wait(_) | Decision::Pend(_)) {
            self.keep_route(key);
        }
        self.hold_forwards(key, true);
        if self.addresses.get(key).is_some_and(|a| (a.accepted, a.holds.clone(), a.refused) != held) {
            self.mark_referrers(key);
            // Marking marks itself as well: once is enough, nothing else has changed for it.
            self.dirty_addresses.remove(key);
        }
        self.verdict_address(key, Some(decision));
    }

    /// Where a queue is, and which brokers it takes credit of.
    fn locate(&mut self, key: &Key, plan: &mut Plan) {
        self.rearrange(key);
        let Some(address) = self.addresses.get_mut(key) else { return };
        let space = Self::space_key(address);
        if let Some(config) = self.spaces.get(&space).and_then(|s| self.configs.get(&s.obj.config)) {
            // What is no part of the RouterConfig any more has let go.
            address.leaving.retain(|(broker, _)| config.targets.contains_key(broker));
        }
        let Some(address) = self.addresses.get(key) else { return };
        if let Some(on) = self.brokers_for(address, &space) {
            plan.on = on;
        }
        if let Some(space) = self.spaces.get(&space) {
            plan.leaving = Self::leaving(address, &space.obj.config);
        }
        let brokers = plan.on.iter().map(|id| id.name.clone()).collect();
        self.weigh(key, brokers);
    }

    /// Makes brokers and routers hold what an Address wants: routers only what its brokers have. `open`: senders are
    /// let in.
    pub(super) fn hold_plan(&mut self, key: &Key, plan: &Plan, open: bool) {
        let Some(address) = self.addresses.get(key) else { return };
        let space = Self::space_key(address);
        // What drains is only to be there; what becomes of it is another matter.
        let begun = |id: &TargetId| self.target(id).is_some_and(|target| target.slots.contains_key(&plan.slot));
        let left = plan.leaving.iter().filter(|(id, phase)| *phase == Leaving::Migrating || !begun(id));
        let left: Vec<TargetId> = left.map(|(id, _)| id.clone()).filter(|id| self.target(id).is_some()).collect();
        for id in plan.on.iter().chain(&left) {
            let Some(address) = self.addresses.get(key) else { return };
            let mut claim = self.claim(address, &plan.slot, &plan.refs, space.clone());
            // A broker that has joined since never had it.
            claim.in_force &= address.told.status.brokers.contains(&id.name);
            self.hold(id, &plan.slot, claim);
        }
        self.hold_route_of(key, plan, open);
    }

    /// Makes the routers hold what leads to the brokers that have the slot.
    pub(super) fn hold_route_of(&mut self, key: &Key, plan: &Plan, open: bool) {
        let (Some(route), Some(address)) = (&plan.route, self.addresses.get(key)) else { return };
        let before = self.route_state(route).filter(|s| s.wanted).map(|s| s.entry.clone());
        let led = |id: &TargetId| before.as_ref().is_some_and(|entry| entry.leads_to(&id.name));
        // What was configured once is led to also before the broker could be asked again.
        let known =
            |id: &TargetId| address.told.status.configured.is_some() && address.told.status.brokers.contains(&id.name);
        let there = |id: &TargetId| {
            let state = self.target(id).and_then(|t| t.slots.get(&plan.slot));
            state.is_some_and(|s| matches!(s.progress, Progress::Acked(_) | Progress::Restored))
        };
        // Read anew: it may just have begun to drain.
        let leaving = Self::leaving(address, &route.config);
        let on = plan.on.iter().map(|id| (id, open));
        let on = on.chain(leaving.iter().map(|(id, phase)| (id, open && *phase == Leaving::Migrating)));
        let on = on.filter(|(id, _)| led(id) || known(id) || there(id));
        let mut on: Vec<(&Arc<str>, bool)> = on.map(|(id, open)| (&id.name, open)).collect();
        on.sort_unstable();
        on.dedup_by_key(|(name, _)| *name);
        let generation = address.obj.meta.generation;
        let entry = match (address.obj.kind, entry::route_entry(address.obj.kind, &on)) {
            (_, None) => return,
            (AddressType::Anycast, _) => self.plain[0].clone(),
            (AddressType::Multicast, _) => self.plain[1].clone(),
            // Most often nothing has changed.
            (_, Some(entry)) => match before {
                Some(before) if *before == entry => before,
                _ => Arc::new(entry),
            },
        };
        let claim = RouteClaim {
            tenant: Self::space_key(address),
            holder: Some(key.clone()),
            entry,
            generation,
            // What was accepted before is as it was.
            in_force: address.in_force == Some(generation) || address.refused,
        };
        let stale = address.route.clone().filter(|old| old != route);
        if let Some(old) = stale {
            self.disown_route(&old);
            self.clear_route(&old, Class::Change);
        }
        self.hold_route(route, claim);
        if let Some(address) = self.addresses.get_mut(key) {
            (address.route, address.unrouted) = (Some(route.clone()), false);
            self.note_standing(key);
        }
    }

    /// What routers alone hold for an Address that is refused before it ever was in force goes: nothing in its status
    /// would tell the next process to keep it.
    fn withdraw(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| !a.accepted) else { return };
        if let Some(route) = address.route.clone() {
            self.clear_route(&route, Class::Change);
        }
    }

    /// What was accepted once and is refused now stays on routers as it was, also on those that come empty.
    pub(super) fn keep_route(&mut self, key: &Key) {
        let kept = |a: &&AddressState| a.accepted && a.route.is_none() && !a.unrouted && !a.released;
        let Some(address) = self.addresses.get(key).filter(kept) else { return };
        let space = Self::space_key(address);
        if self.winner(&space, &address.canonical).is_none_or(|winner| winner.obj.meta.key != *key) {
            return;
        }
        let Some(state) = self.spaces.get(&space).filter(|s| s.obj.standard && !s.foreign) else { return };
        let Some(config) = self.configs.get(&state.obj.config) else { return };
        let prefix = names::prefix(&space, config.obj.single);
        let (slot, refs) =
            (names::slot(&prefix, &address.obj.address), self.references_for_removal(address, &space, &prefix));
        let there = address.told.status.brokers.iter().filter(|name| config.targets.contains_key(*name));
        let on = there.map(|name| TargetId::broker(state.obj.config.clone(), name.clone())).collect();
        let route = Route { config: state.obj.config.clone(), slot: entry::route_slot(address.obj.kind, &slot, &refs) };
        self.hold_route_of(key, &Plan { on, leaving: Vec::new(), slot, refs, route: Some(route), turned: None }, true);
    }

    /// Takes in that everything which stands for an Address has been acknowledged.
    fn settle_in_force(&mut self, key: &Key, plan: &Plan) {
        let Some(address) = self.addresses.get(key) else { return };
        let generation = address.obj.meta.generation;
        let mut effective = Effective { ttl: address.obj.ttl, redelivery: address.obj.redelivery };
        for id in &plan.on {
            let Some(state) = self.target(id).and_then(|t| t.slots.get(&plan.slot)) else { return };
            let acked = matches!(state.progress, Progress::Acked(_)) && state.confirmed;
            if !acked || state.for_generation != generation {
                return;
            }
            effective = state.effective;
        }
        if let Some(address) = self.addresses.get_mut(key).filter(|a| a.in_force == Some(generation)) {
            // What a broker keeps to does not wait for routers.
            address.effective = effective;
            return;
        }
        if let Some(route) = &plan.route
            && (self.route_say(route) != RouteSay::Held
                || self.route_state(route).is_none_or(|s| s.for_generation != generation))
        {
            return;
        }
        if let Some(address) = self.addresses.get_mut(key) {
            (address.in_force, address.effective, address.accepted) = (Some(generation), effective, true);
            self.note_standing(key);
        }
    }

    pub(super) fn claim(&self, address: &AddressState, slot: &Slot, refs: &References, space: Key) -> Claim {
        let none = Defaults::default();
        let config = self.spaces.get(&space).and_then(|s| self.configs.get(&s.obj.config));
        let defaults = config.map_or(&none, |c| &c.obj.defaults);
        let plan = config.and_then(|c| c.address_plan(address.admitted.as_ref()?.plan.as_ref()?));
        let laid_over = plan.map(|plan| plan.over(defaults));
        let defaults = laid_over.as_ref().unwrap_or(defaults);
        let generation = address.obj.meta.generation;
        let single = config.is_none_or(|c| c.obj.single);
        let ground = (!single).then(|| ground(&names::prefix(&space, false)));
        Claim {
            tenant: space,
            holder: address.obj.meta.key.clone(),
            entry: Arc::new(entry::entry(&address.obj, slot, refs, defaults, ground)),
            effective: entry::effective(&address.obj, defaults),
            generation,
            in_force: address.in_force == Some(generation),
        }
    }

    pub(super) fn decide(&self, address: &AddressState) -> Decision {
        let space_key = Self::space_key(address);
        let refuse = |reason, message: String| Decision::Refuse((reason, message.into()));
        let Some(space) = self.spaces.get(&space_key) else {
            return refuse(
                reason::SPACE_NOT_FOUND,
                format!(
                    "spec.addressSpace names {}, which does not exist in namespace {}: create that AddressSpace",
                    space_key.name, space_key.namespace
                ),
            );
        };
        if space.foreign {
            return Decision::Foreign;
        }
        let closed = match &space.accept {
            Some(Err((_, message))) => Some(format!("AddressSpace {} is not accepted: {message}", space_key.name)),
            _ if space.obj.meta.deleting => {
                Some(format!("AddressSpace {} is being deleted: use another", space_key.name))
            }
            _ => None,
        };
        let known = address.accepted && space.ever_accepted;
        if let Some(message) = closed.filter(|_| !known) {
            return refuse(reason::SPACE_NOT_ACCEPTED, message);
        }
        if let Some(winner) = self.winner(&space_key, &address.canonical)
            && winner.obj.meta.key != address.obj.meta.key
        {
            let (name, kind) = (&winner.obj.meta.key.name, type_name(winner.obj.kind));
            return refuse(
                reason::DUPLICATE_ADDRESS,
                format!(
                    "Address {name} ({kind}) has {} in this space already: choose another spec.address, or delete it",
                    winner.obj.address
                ),
            );
        }
        if let Some(words) = self.unled(&space_key) {
            let words = format!("{words}; what is in force stays so, and nobody looks after it: create it again");
            return Decision::Wait((reason::ROUTER_CONFIG_NOT_FOUND, words.into()));
        }
        if !address.stands()
            && let Some(refusal) = self.taken_by_connector(space, &address.canonical)
        {
            return Decision::Refuse(refusal);
        }
        if !address.accepted
            && let Err(refusal) = self.wanted_plan(address)
        {
            return Decision::Refuse(refusal);
        }
        let refs = match self.references(address, &space_key, &space.prefix) {
            Ok(refs) => refs,
            Err(other) => return other,
        };
        let slot = names::slot(&space.prefix, &address.obj.address);
        let route = space.obj.standard.then(|| Route {
            config: space.obj.config.clone(),
            slot: entry::route_slot(address.obj.kind, &slot, &refs),
        });
        match self.brokers_for(address, &space_key) {
            Some(on) => Decision::Hold(Box::new(Plan { on, leaving: Vec::new(), slot, refs, route, turned: None })),
            None => Decision::Wait((reason::WAITING_FOR_BROKER, self.why_no_broker(&space_key).into())),
        }
    }

    /// The brokers that an Address belongs on, by name; none while that is not known.
    pub(super) fn brokers_for(&self, address: &AddressState, space_key: &Key) -> Option<Vec<TargetId>> {
        let space = self.spaces.get(space_key)?;
        if !space.obj.standard {
            return self.target_of_space(space_key).map(|id| vec![id]);
        }
        let config = self.configs.get(&space.obj.config)?;
        let ids = |names: &mut dyn Iterator<Item = &Arc<str>>| {
            let there = names.filter(|name| config.targets.contains_key(*name));
            let ids: Vec<TargetId> =
                there.map(|name| TargetId::broker(space.obj.config.clone(), name.clone())).collect();
            (!ids.is_empty()).then_some(ids)
        };
        match address.obj.kind {
            AddressType::Anycast | AddressType::Multicast => Some(Vec::new()),
            AddressType::DeadLetter => ids(&mut config.targets.keys()),
            AddressType::Queue | AddressType::Topic => ids(&mut address.placed.iter()),
            AddressType::Subscription => {
                let topic = self.winner(space_key, &names::canonical(address.obj.topic.as_ref()?))?;
                // A topic that is refused now and was accepted before is where its status says.
                let brokers = topic.holds.iter().map(|id| &id.name).chain(&topic.placed);
                let mut on = ids(&mut brokers.chain(&topic.told.status.brokers))?;
                on.truncate(1);
                Some(on)
            }
        }
    }

    /// That the RouterConfig of a space is not there, in words: nobody knows its brokers and routers.
    pub(super) fn unled(&self, space: &Key) -> Option<String> {
        let config = &self.spaces.get(space).filter(|space| !space.foreign)?.obj.config;
        if self.configs.contains_key(config) {
            return None;
        }
        let unreadable = self.undecodable.contains(&(Kind::RouterConfig, config.clone()));
        Some(format!("RouterConfig {config} {}", if unreadable { "cannot be read" } else { "does not exist" }))
    }

    fn why_no_broker(&self, space: &Key) -> &'static str {
        let config = self.spaces.get(space).and_then(|s| self.configs.get(&s.obj.config));
        match config {
            Some(config) if config.targets.is_empty() => {
                "its RouterConfig has no brokers: add one under spec.messaging.brokers, or use an anycast or multicast \
                 address"
            }
            Some(_) if self.spaces.get(space).is_some_and(|s| s.obj.standard) => {
                "no broker could be chosen yet: see the RouterConfig's brokers"
            }
            _ => "its space has no broker yet: see the AddressSpace",
        }
    }

    pub(super) fn effective_of(&self, address: &AddressState) -> Effective {
        address.effective
    }
}

/// The type as written in the spec.
pub(super) fn type_name(kind: AddressType) -> &'static str {
    match kind {
        AddressType::Anycast => "anycast",
        AddressType::Multicast => "multicast",
        AddressType::Queue => "queue",
        AddressType::Topic => "topic",
        AddressType::Subscription => "subscription",
        AddressType::DeadLetter => "deadLetter",
    }
}
