//! Deletions: what waits for what, and when the finalizer may go.

use std::sync::Arc;

use super::Model;
use super::address::{Decision, Plan};
use super::placing::placeable;
use super::routers::Routed;
use super::state::{AddressState, ConfigState, Progress, Route, Target, Want};
use crate::messaging::broker::Class;
use crate::messaging::entry::{self, References};
use crate::messaging::ids::{Key, Kind, Slot, TargetId};
use crate::messaging::input::AddressType;
use crate::messaging::names;
use crate::messaging::reason;
use crate::messaging::status::TargetState;

/// What stands for an Address that goes.
struct Parting {
    on: Vec<TargetId>,
    slot: Slot,
    route: Option<Route>,
}

impl Model {
    /// Takes an Address that is being deleted one step further: what leads to brokers goes before what they store,
    /// and with `WhenEmpty` only the way in goes first.
    pub(super) fn evaluate_deletion(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| !a.released) else { return };
        if Self::was_released(address) {
            self.release(key);
            return;
        }
        let space = Self::space_key(address);
        let ours = self.winner(&space, &address.canonical).is_some_and(|w| w.obj.meta.key == *key);
        if ours && self.whereabouts_unknown(address, &space) {
            self.await_placement(key);
            return;
        }
        if let Some(text) = self.out_of_reach(address, &space) {
            if self.may_leave(address, &space) {
                self.tell_left(key, &text);
                self.release(key);
            } else if let Some(address) = self.addresses.get_mut(key) {
                let name = &address.obj.meta.key;
                let text = format!(
                    "{text}, which must be removed first: create that RouterConfig again; or let go of it: kubectl \
                     annotate addr -n {} {} waystation.dev/force-delete=true",
                    name.namespace, name.name
                );
                address.waits = Some(text.into());
            }
            return;
        }
        let Some(parting) = self.parting(address, &space).filter(|_| ours) else {
            // It never had anything, or what had it is no part of the RouterConfig any more.
            self.release(key);
            return;
        };
        if let Some(heir) = self.heir(address, &space) {
            // Queue and messages are handed over without a command.
            self.hand_over(&parting);
            self.release(key);
            self.dirty_addresses.insert(heir);
            return;
        }
        let force = self.forced(address, &space);
        let waits = if force || !address.stands() { None } else { self.awaited(address, &space) };
        if let Some(text) = waits {
            // Stays wanted, and is changed and refilled like any other, until the wait ends.
            let decision = self.decide(address);
            let refused = matches!(decision, Decision::Refuse(_));
            if let Some(address) = self.addresses.get_mut(key) {
                (address.refused, address.waits) = (refused, Some(text));
            }
            match decision {
                Decision::Hold(plan) => self.hold_plan(key, &plan, true),
                _ => self.keep_route(key),
            }
            return;
        }
        let Parting { on, slot, route } = parting;
        let drains = address.obj.when_empty && entry::stores(address.obj.kind) && !on.is_empty();
        if drains {
            let text = match &route {
                Some(_) => "waits for its last message (deletionPolicy WhenEmpty); senders are kept out",
                None => {
                    "waits for its last message (deletionPolicy WhenEmpty); senders are not kept out meanwhile, since \
                     a brokered space has no way in of its own to close"
                }
            };
            if let Some(address) = self.addresses.get_mut(key) {
                address.waits = Some(text.into());
            }
            self.hold_forwards(key, false);
            if let Some(route) = &route
                && !self.close_the_way_in(key, route, &on, &slot)
            {
                return;
            }
        } else {
            if let Some(address) = self.addresses.get_mut(key) {
                address.waits = None;
            }
            if !self.clear_forwards(key) && !force {
                return;
            }
            if let Some(route) = &route
                && !self.unroute(key, route)
                && !force
            {
                return;
            }
        }
        for id in &on {
            self.part(key, id, &slot, drains, force);
        }
        if self.addresses.get(key).is_none_or(|a| !a.holds.is_empty()) {
            return;
        }
        // No broker holds anything of it any more, or any that could be reached.
        if !self.clear_forwards(key) && !force {
            return;
        }
        if let Some(route) = &route
            && !self.unroute(key, route)
            && !force
        {
            return;
        }
        self.release(key);
    }

    /// Whether another process has let go of it, by what the API server has: only others hold it, and its status says
    /// that nothing is left on brokers.
    fn was_released(address: &AddressState) -> bool {
        let told = &address.told.status;
        let said = told.ready.as_ref().is_some_and(|c| c.reason == reason::TERMINATING);
        said && told.brokers.is_empty() && address.obj.meta.others.is_some() && !address.told.latest_finalizer()
    }

    /// What brokers store of an Address whose RouterConfig is not there, in words: nobody knows how they are reached.
    fn out_of_reach(&self, address: &AddressState, space: &Key) -> Option<String> {
        let brokers = &address.told.status.brokers;
        if brokers.is_empty() || address.taken {
            return None;
        }
        let words = self.unled(space)?;
        Some(format!(
            "{words}, and nothing else says how to reach broker {}, which may store messages of it",
            brokers.join(", ")
        ))
    }

    /// Whether somebody said to let go of it; or the RouterConfig cannot come again, since its namespace goes, which
    /// would wait for ever.
    fn may_leave(&self, address: &AddressState, space: &Key) -> bool {
        let config = self.spaces.get(space).map(|space| &space.obj.config);
        self.forced(address, space) || config.is_some_and(|config| self.going.contains(&config.namespace))
    }

    fn tell_left(&mut self, key: &Key, words: &str) {
        let Some(uid) = self.addresses.get(key).map(|address| address.obj.meta.uid.clone()) else { return };
        let text = format!("let go of: {words}: what is there stays there");
        self.event(Kind::Address, key, &uid, true, reason::event::BROKER_LET_GO, text);
    }

    /// Has routers let go of an Address that goes, also of what they have of it from before this process; whether there
    /// is none left that could be reached and has it.
    fn unroute(&mut self, key: &Key, route: &Route) -> bool {
        let Some(address) = self.addresses.get_mut(key) else { return true };
        let first = !std::mem::replace(&mut address.unrouted, true);
        if first && address.route.is_none() && address.accepted {
            let (tenant, generation) = (Self::space_key(address), address.obj.meta.generation);
            self.adopt_route(key, route, tenant, generation);
        }
        self.clear_route(route, Class::Change)
    }

    /// Whether a broker may hold the Address that was not read yet: nothing tells where it was placed.
    fn whereabouts_unknown(&self, address: &AddressState, space: &Key) -> bool {
        let Some(space) = self.spaces.get(space).filter(|s| s.obj.standard) else { return false };
        let Some(config) = self.configs.get(&space.obj.config) else { return false };
        placeable(address)
            && address.placed.is_empty()
            && address.holds.is_empty()
            && !address.taken
            && address.told.status.brokers.is_empty()
            && config.targets.values().any(|t| !t.line.known)
    }

    /// What stands for an Address that goes; none when nothing does.
    fn parting(&self, address: &AddressState, space: &Key) -> Option<Parting> {
        let state = self.spaces.get(space);
        let config = state.map(|s| &s.obj.config);
        let standard = state.is_some_and(|s| s.obj.standard);
        let seat = config.filter(|config| self.configs.get(*config).is_some_and(|c| c.obj.single));
        if address.holds.is_empty()
            && address.route.is_none()
            && seat.is_some_and(|config| self.single_winner(config).is_none_or(|winner| winner != *space))
        {
            // Without prefixes, what has its name is another space's.
            return None;
        }
        let mut on: Vec<TargetId> = address.holds.iter().filter(|id| self.target(id).is_some()).cloned().collect();
        if on.is_empty() && !address.taken && (!standard || entry::stored(address.obj.kind)) {
            on = self.last_known(address, space);
        }
        let first = on.first().map(|id| id.config.clone()).or_else(|| config.cloned())?;
        let single = self.configs.get(&first).is_some_and(|c| c.obj.single);
        let prefix = names::prefix(space, single);
        let slot = names::slot(&prefix, &address.obj.address);
        let route = address.route.clone().or_else(|| {
            let config = config.filter(|_| standard)?.clone();
            let refs = self.references_for_removal(address, space, &prefix);
            Some(Route { config, slot: entry::route_slot(address.obj.kind, &slot, &refs) })
        });
        (!on.is_empty() || route.is_some()).then_some(Parting { on, slot, route })
    }

    /// The brokers that an Address was on before this process, by its status, or belongs on.
    fn last_known(&self, address: &AddressState, space: &Key) -> Vec<TargetId> {
        let Some(state) = self.spaces.get(space) else { return Vec::new() };
        if !state.obj.standard {
            return self.target_of_space(space).into_iter().collect();
        }
        let told =
            address.told.status.brokers.iter().map(|name| TargetId::broker(state.obj.config.clone(), name.clone()));
        let told: Vec<TargetId> = told.filter(|id| self.target(id).is_some()).collect();
        match told.is_empty() {
            true => self.brokers_for(address, space).unwrap_or_default(),
            false => told,
        }
    }

    fn hand_over(&mut self, parting: &Parting) {
        for id in &parting.on {
            if let Some(state) = self.target_mut(id).and_then(|t| t.slots.get_mut(&parting.slot)) {
                (state.holder, state.seen) = (None, true);
            }
        }
        if let Some(route) = &parting.route {
            self.disown_route(route);
        }
    }

    /// Leaves only the way out of a queue on the routers; whether every router that can be reached has it so.
    fn close_the_way_in(&mut self, key: &Key, route: &Route, on: &[TargetId], slot: &Slot) -> bool {
        let plan = Plan {
            on: on.to_vec(),
            leaving: Vec::new(),
            slot: slot.clone(),
            refs: References::default(),
            route: Some(route.clone()),
            turned: None,
        };
        if self.addresses.get(key).is_some_and(|a| !a.taken) {
            self.hold_route_of(key, &plan, false);
        }
        let Some(config) = self.configs.get(&route.config) else { return true };
        let Some(state) = config.routers.slots.get(&route.slot) else { return true };
        let mut reached = config.routers.targets.values().filter(|r| r.line.connected());
        reached.all(|r| {
            matches!(state.at.get(r.place), Some(Routed::Acked(_) | Routed::Refused(_) | Routed::Unsupported(_)))
        })
    }

    /// Has one broker take its part of an Address away.
    pub(super) fn part(&mut self, key: &Key, id: &TargetId, slot: &Slot, drains: bool, force: bool) {
        let Some(address) = self.addresses.get(key) else { return };
        let space = Self::space_key(address);
        let single = self.configs.get(&id.config).is_some_and(|c| c.obj.single);
        let refs = self.references_for_removal(address, &space, &names::prefix(&space, single));
        let claim = self.claim(address, slot, &refs, space);
        if self.stands_in_another_config(id, slot) {
            // The broker may be the same, and then it is another's by now.
            self.forget(id, slot);
            self.let_go(key, id);
            return;
        }
        let refused = self
            .target(id)
            .and_then(|t| t.slots.get(slot))
            .is_some_and(|s| s.want != Want::Hold && matches!(s.progress, Progress::Refused(_)));
        if force && (refused || self.target(id).is_none_or(|t| self.given_up(t))) {
            // Let go of; should the broker come back while we remember, it is taken away there after all.
            self.take_away(id, slot, Want::Gone { only_if_empty: false }, Class::Change, claim);
            if let Some(state) = self.target_mut(id).and_then(|t| t.slots.get_mut(slot)) {
                state.holder = None;
            }
            self.let_go(key, id);
            return;
        }
        let want = if drains { Want::Drain } else { Want::Gone { only_if_empty: false } };
        self.take_away(id, slot, want, Class::Change, claim);
    }

    /// Lets the finalizer go.
    fn release(&mut self, key: &Key) {
        self.drop_forwards(key);
        self.let_go_of_all(key);
        self.unplace(key);
        self.give_back(key);
        if let Some(route) = self.addresses.get(key).and_then(|a| a.route.clone()) {
            self.disown_route(&route);
        }
        if let Some(address) = self.addresses.get_mut(key) {
            (address.released, address.route, address.waits, address.accepted) = (true, None, None, false);
        }
    }

    /// The name of an Address on the brokers of its RouterConfig.
    pub(super) fn slot_in(config: &ConfigState, address: &AddressState) -> Slot {
        names::slot(&names::prefix(&Self::space_key(address), config.obj.single), &address.obj.address)
    }

    /// The name of an address on a broker.
    pub(super) fn slot_on(&self, id: &TargetId, space: &Key, address: &str) -> Slot {
        let single = self.configs.get(&id.config).is_some_and(|c| c.obj.single);
        names::slot(&names::prefix(space, single), address)
    }

    /// Whether a target cannot be reached: one that was only just begun with is waited for.
    fn given_up(&self, target: &Target) -> bool {
        match target.line.state {
            TargetState::Unreachable => true,
            TargetState::Connecting => target.line.down_ms + self.timing.outage_ms <= self.now.mono_ms,
            TargetState::Filling | TargetState::Serving => false,
        }
    }

    /// Whom a deleted Address hands its queue to: the next claimant, if it is of the same type.
    fn heir(&self, address: &AddressState, space: &Key) -> Option<Key> {
        let next = self.next_in_line(space, &address.canonical, &address.obj.meta.key)?;
        let same = next.obj.kind == address.obj.kind
            && next.obj.topic == address.obj.topic
            && next.obj.address == address.obj.address;
        same.then(|| next.obj.meta.key.clone())
    }

    /// Whether somebody said to let go of what cannot be reached: on the Address, its space or its RouterConfig.
    fn forced(&self, address: &AddressState, space: &Key) -> bool {
        let space = self.spaces.get(space);
        let config = space.and_then(|s| self.configs.get(&s.obj.config));
        address.obj.meta.force_delete
            || space.is_some_and(|s| s.obj.meta.force_delete)
            || config.is_some_and(|c| c.obj.meta.force_delete)
    }

    /// What else must go first.
    fn awaited(&self, address: &AddressState, space: &Key) -> Option<Arc<str>> {
        let members = self.members.get(space)?;
        let (users, what) = match address.obj.kind {
            AddressType::Topic => (members.subscriptions.get(&address.canonical)?, "subscriptions of it"),
            AddressType::DeadLetter => (members.dead_letter_users.get(&address.canonical)?, "Addresses that name it"),
            _ => return None,
        };
        let mut users = users.iter().filter(|key| self.addresses.get(*key).is_some_and(AddressState::stands));
        let first = users.next()?;
        let more = users.count();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let remedy = match address.obj.kind {
            AddressType::Topic => "delete them",
            _ => "delete them, or have them name another",
        };
        Some(format!("waits for {what}: {}{rest}; {remedy}", first.name).into())
    }

    /// Decides what becomes of what an Address held that is gone from the API server.
    pub(super) fn release_vanished(&mut self, key: &Key) {
        self.drop_forwards(key);
        let Some(address) = self.addresses.get(key) else { return };
        let route = address.route.clone();
        if address.holds.is_empty() {
            self.disinherit(key);
        } else {
            let space = Self::space_key(address);
            let heir = self.heir(address, &space).is_some();
            let seen = address.obj.meta.deleting;
            let drains = address.obj.when_empty;
            let name = address.obj.address.clone();
            for id in address.holds.clone() {
                let slot = self.slot_on(&id, &space, &name);
                self.vanish_slot(key, &id, &slot, (heir, seen, drains));
            }
        }
        if let Some(route) = route {
            let heir = self.addresses.get(key).and_then(|a| self.heir(a, &Self::space_key(a))).is_some();
            let state = self.routers_mut(&route.config).and_then(|r| r.slots.get_mut(&route.slot));
            if let Some(state) = state.filter(|s| s.holder.as_ref() == Some(key)) {
                state.holder = None;
                if !heir {
                    self.clear_route(&route, Class::Change);
                }
            }
        }
        self.let_go_of_all(key);
        self.unplace(key);
    }

    fn vanish_slot(&mut self, key: &Key, id: &TargetId, slot: &Slot, (heir, seen, drains): (bool, bool, bool)) {
        let elsewhere = self.stands_in_another_config(id, slot);
        let Some(target) = self.target_mut(id) else { return };
        let Some(state) = target.slots.get_mut(slot).filter(|s| s.holder.as_ref() == Some(key)) else { return };
        (state.holder, state.seen) = (None, seen);
        if heir {
            return;
        }
        if elsewhere {
            self.forget(id, slot);
            return;
        }
        let want = match state.entry.queue {
            _ if seen && !drains => Want::Gone { only_if_empty: false },
            // As the next comparison would: nothing that is in use.
            _ => Want::Gone { only_if_empty: true },
        };
        let under_way = state.want == want && matches!(state.progress, Progress::Sent(_));
        state.want = want;
        if !under_way {
            self.send(id, slot, Class::Change);
        }
    }

    /// What was handed over to an Address which cannot take it: as with any leftover, nothing with messages is
    /// destroyed.
    pub(super) fn disinherit(&mut self, heir: &Key) {
        let Some(address) = self.addresses.get(heir).filter(|a| a.holds.is_empty() && !a.released) else { return };
        let space = Self::space_key(address);
        let Some(state) = self.spaces.get(&space) else { return };
        let standard = state.obj.standard;
        let ids: Vec<TargetId> = match (standard, self.configs.get(&state.obj.config)) {
            (false, _) => self.target_of_space(&space).into_iter().collect(),
            (true, None) => Vec::new(),
            (true, Some(config)) => {
                config.targets.keys().map(|name| TargetId::broker(state.obj.config.clone(), name.clone())).collect()
            }
        };
        let (config, name, kind) = (state.obj.config.clone(), address.obj.address.clone(), address.obj.kind);
        if standard && address.route.is_none() {
            let prefix = state.prefix.clone();
            let refs = self.references_for_removal(address, &space, &prefix);
            let slot = entry::route_slot(kind, &names::slot(&prefix, &name), &refs);
            let route = Route { config, slot };
            if self.route_state(&route).is_some_and(|s| s.holder.is_none() && s.wanted) {
                self.clear_route(&route, Class::Change);
            }
        }
        for id in ids {
            let slot = self.slot_on(&id, &space, &name);
            let Some(state) = self.target_mut(&id).and_then(|t| t.slots.get_mut(&slot)) else { continue };
            if state.holder.is_some() || matches!(state.want, Want::Gone { .. }) {
                continue;
            }
            state.want = Want::Gone { only_if_empty: state.entry.queue.is_some() || !state.seen };
            self.send(&id, &slot, Class::Change);
        }
    }
}
