//! Queues that move: to more or fewer brokers, since their plan has changed, or away from one that is to be drained.
//!
//! Whatever holds messages is left last. A new broker has the queue before routers lead to it; the way into the old one
//! is closed when the new one is in use; and the old queue goes when its broker says that it is empty. Until then it
//! is held like any other, and so is a move that was begun and found in a status.

use std::sync::Arc;

use super::Model;
use super::address::Plan;
use super::placing::rank;
use super::quota::left_at;
use super::routers::Routed;
use super::routes::RouteSay;
use super::state::{AddressState, ConfigState, Progress, Route, Want};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::AddressType;
use crate::messaging::status::Leaving;

impl Model {
    /// How many brokers hold a queue; none while nobody can say.
    pub(super) fn partitions(address: &AddressState, config: &ConfigState) -> Option<usize> {
        if address.obj.kind != AddressType::Queue {
            return Some(1);
        }
        match &address.admitted.as_ref()?.plan {
            None => Some(1),
            Some(plan) => config.address_plan(plan).map(|plan| plan.partitions),
        }
    }

    /// Chooses which brokers a queue shall be on from now on, and which it leaves; whether that is news.
    pub(super) fn rearrange(&mut self, key: &Key) -> bool {
        let Some(address) = self.addresses.get(key) else { return false };
        if address.obj.kind != AddressType::Queue || address.placed.is_empty() || address.obj.meta.deleting {
            return false;
        }
        let space = Self::space_key(address);
        let Some(name) = self.spaces.get(&space).filter(|s| s.obj.standard).map(|s| s.obj.config.clone()) else {
            return false;
        };
        let Some(config) = self.configs.get(&name) else { return false };
        let Some(wanted) = Self::partitions(address, config) else { return false };
        let takes = |broker: &Arc<str>| config.targets.get(broker).is_some_and(|target| !target.broker.drain);
        let mut placed: Vec<Arc<str>> = address.placed.iter().filter(|broker| takes(broker)).cloned().collect();
        if placed.len() == wanted && address.placed.len() == wanted {
            if config.short.contains(key)
                && let Some(config) = self.configs.get_mut(&name)
            {
                config.short.remove(key);
            }
            return false;
        }
        if !config.all_known() {
            // One that was not read may hold what was begun before.
            return false;
        }
        let by_rank = |broker: &Arc<str>| config.targets.get(broker).map(|target| rank((broker, target)));
        placed.sort_by_key(by_rank);
        placed.truncate(wanted);
        let slot = Self::slot_in(config, address);
        let has = |broker: &Arc<str>| {
            let left = config.targets.get(broker).is_some_and(|target| left_at(target, &slot, address.obj.kind));
            left || address.leaving.iter().any(|(leaving, _)| leaving == broker)
        };
        let others = config.targets.iter().filter(|(_, target)| target.line.connected()).map(|(broker, _)| broker);
        let mut others: Vec<&Arc<str>> = others.filter(|broker| takes(broker) && !placed.contains(broker)).collect();
        // Where something of it is already, it need not be moved away from.
        others.sort_by_key(|broker| (!has(broker), by_rank(broker)));
        placed.extend(others.into_iter().take(wanted.saturating_sub(placed.len())).cloned());
        if placed.is_empty() {
            // Nobody else takes it.
            placed.clone_from(&address.placed);
        }
        placed.sort_unstable();
        let short = placed.len() < wanted || placed.iter().any(|broker| !takes(broker));
        let mut leaving = address.leaving.clone();
        leaving.extend(address.placed.iter().map(|broker| (broker.clone(), Leaving::Migrating)));
        leaving.retain(|(broker, _)| !placed.contains(broker));
        leaving.sort_unstable();
        let never = |broker: &Arc<str>| {
            let state = config.targets.get(broker).and_then(|target| target.slots.get(&slot));
            state.is_some_and(|state| !state.had && state.holder.as_ref() == Some(key))
        };
        // Where it never came to be there is nothing to leave.
        let spared = leaving.iter().map(|(broker, _)| broker).filter(|broker| never(broker));
        let spared: Vec<TargetId> = spared.map(|broker| TargetId::broker(name.clone(), broker.clone())).collect();
        let before = address.placed.clone();
        let Some(config) = self.configs.get_mut(&name) else { return false };
        match short {
            true => config.short.insert(key.clone()),
            false => config.short.remove(key),
        };
        if placed == before {
            return false;
        }
        for broker in &before {
            if let Some(target) = config.targets.get_mut(broker) {
                target.placed.remove(key);
            }
        }
        for broker in &placed {
            if let Some(target) = config.targets.get_mut(broker) {
                target.placed.insert(key.clone());
            }
        }
        if let Some(address) = self.addresses.get_mut(key) {
            (address.placed, address.leaving) = (placed, leaving);
        }
        for id in spared {
            self.take_back(key, &id, &slot);
        }
        true
    }

    /// A broker was to hold a queue and never did: what may be on its way there goes again, and no messages with it.
    fn take_back(&mut self, key: &Key, id: &TargetId, slot: &Slot) {
        if let Some(state) = self.target_mut(id).and_then(|target| target.slots.get_mut(slot)) {
            (state.holder, state.want) = (None, Want::Gone { only_if_empty: true });
        }
        self.let_go(key, id);
        self.send(id, slot, Class::Change);
        self.open_gates(id, slot);
    }

    /// Takes a queue that leaves brokers one step further.
    pub(super) fn take_leave(&mut self, key: &Key, plan: &Plan) {
        let Some(address) = self.addresses.get(key).filter(|a| !a.leaving.is_empty()) else { return };
        let Some(route) = &plan.route else { return };
        let there = |id: &TargetId| {
            let target = self.target(id).filter(|target| target.line.connected());
            let state = target.and_then(|target| target.slots.get(&plan.slot));
            state.is_some_and(|state| matches!(state.progress, Progress::Acked(_)))
        };
        let migrating = address.leaving.iter().any(|(_, phase)| *phase == Leaving::Migrating);
        if migrating && plan.on.iter().all(there) && self.route_say(route) == RouteSay::Held {
            if let Some(address) = self.addresses.get_mut(key) {
                address.leaving.iter_mut().for_each(|(_, phase)| *phase = Leaving::Draining);
            }
            self.hold_route_of(key, plan, true);
        }
        if !self.every_router_has(route) {
            return;
        }
        let Some(address) = self.addresses.get(key) else { return };
        let draining = address.leaving.iter().filter(|(_, phase)| *phase == Leaving::Draining);
        let draining: Vec<TargetId> =
            draining.map(|(broker, _)| TargetId::broker(route.config.clone(), broker.clone())).collect();
        for id in &draining {
            self.part(key, id, &plan.slot, true, false);
        }
    }

    /// Whether every router that can be reached holds what is wanted of it, and not something older: one that refuses
    /// may still lead to where nothing shall come in any more.
    fn every_router_has(&self, route: &Route) -> bool {
        let Some(config) = self.configs.get(&route.config) else { return false };
        let Some(state) = config.routers.slots.get(&route.slot) else { return false };
        let mut reached = config.routers.targets.values().filter(|router| router.line.connected());
        reached.all(|router| matches!(state.at.get(router.place), Some(Routed::Acked(_))))
    }

    /// The brokers that a queue leaves.
    pub(super) fn leaving(address: &AddressState, config: &Key) -> Vec<(TargetId, Leaving)> {
        let leaving = address.leaving.iter();
        leaving.map(|(broker, phase)| (TargetId::broker(config.clone(), broker.clone()), *phase)).collect()
    }

    /// A broker can take queues: those that are on fewer than their plan says, or on one that is to be drained, are
    /// judged anew.
    pub(super) fn call_the_short(&mut self, config: &Key) {
        if let Some(config) = self.configs.get(config) {
            self.dirty_addresses.extend(config.short.iter().cloned());
        }
    }
}
