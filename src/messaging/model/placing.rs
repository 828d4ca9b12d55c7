//! Which brokers hold a queue or topic of a standard space. What is found is the placement, above any computation;
//! once placed it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Model;
use super::state::{AddressState, ConfigState, Target};
use crate::messaging::broker::{Contents, Routing};
use crate::messaging::ids::{Key, Slot};
use crate::messaging::input::AddressType;

impl Model {
    /// Puts an Address that has no broker where its status says; else in line, so that what is known is counted before
    /// anything is found or chosen.
    pub(super) fn await_placement(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| a.placed.is_empty() && placeable(a)) else { return };
        let Some(space) = self.spaces.get(&Self::space_key(address)).filter(|s| s.obj.standard) else { return };
        let (name, created) = (space.obj.config.clone(), address.obj.meta.created_s);
        let Some(config) = self.configs.get(&name) else { return };
        match self.told_brokers(address, config) {
            told if told.is_empty() => drop(self.to_place.insert((name, created, key.clone()))),
            told => self.place_on(key, &name, told),
        }
    }

    /// A broker has become known, or can be reached again: whoever no broker could be chosen for is in line once more.
    pub(super) fn place_the_rest(&mut self, name: &Key) {
        let Some(config) = self.configs.get_mut(name) else { return };
        let unplaced = std::mem::take(&mut config.unplaced).into_iter();
        self.to_place.extend(unplaced.map(|(created, key)| (name.clone(), created, key)));
    }

    /// Places one Address that is nowhere yet (the oldest come first), once every broker has been asked or given up:
    /// where it is found, else where there is room. Before that, what one broker holds is not the whole truth.
    pub(super) fn place_address(&mut self, name: &Key, created: i64, key: Key) {
        let Some(address) = self.addresses.get(&key).filter(|a| a.placed.is_empty() && !a.released) else { return };
        let space = self.spaces.get(&Self::space_key(address)).filter(|space| space.obj.config == *name);
        let (Some(_), Some(config)) = (space, self.configs.get(name)) else { return };
        let deleting = address.obj.meta.deleting;
        if !deleting && address.admitted.is_none() {
            return;
        }
        let known = config.all_known();
        let found = if known { self.found_brokers(address, config) } else { Vec::new() };
        let count = Self::partitions(address, config).unwrap_or(1);
        let chosen = if found.is_empty() && known && !deleting { choose(config, count) } else { found };
        if !chosen.is_empty() {
            self.place_on(&key, name, chosen);
        } else if deleting && known {
            // There is nothing of it anywhere.
            self.dirty_addresses.insert(key);
        } else if let Some(config) = self.configs.get_mut(name) {
            config.unplaced.insert((created, key));
        }
    }

    /// The brokers that its status names and that are still there.
    pub(super) fn told_brokers(&self, address: &AddressState, config: &ConfigState) -> Vec<Arc<str>> {
        let told = &address.told.status.brokers;
        told.iter().filter(|name| config.targets.contains_key(*name)).cloned().collect()
    }

    /// The brokers that are known to hold something under its name which no other Address stands for; of a topic the
    /// one where most is bound to it.
    fn found_brokers(&self, address: &AddressState, config: &ConfigState) -> Vec<Arc<str>> {
        let slot = Self::slot_in(config, address);
        let held = |name: &&Arc<str>| {
            let Some(target) = config.targets.get(*name) else { return false };
            let left = target
                .slots
                .get(&slot)
                .is_some_and(|s| s.holder.is_none() || s.holder.as_ref() == Some(&address.obj.meta.key));
            left || target.contents.as_ref().is_some_and(|contents| holds(contents, &slot, address.obj.kind))
        };
        let found: Vec<Arc<str>> = config.targets.keys().filter(held).cloned().collect();
        if address.obj.kind != AddressType::Topic || found.len() < 2 {
            return found;
        }
        let bound = |name: &Arc<str>| {
            let contents = config.targets.get(name).and_then(|target| target.contents.as_ref());
            let queues = contents.into_iter().flat_map(|contents| contents.queues.values());
            let queues = queues.filter(|queue| queue.address == slot);
            queues.fold((0, 0), |(messages, count), queue| (messages + queue.messages, count + 1))
        };
        let most = found.into_iter().min_by_key(|name| (std::cmp::Reverse(bound(name)), name.clone()));
        most.into_iter().collect()
    }

    fn place_on(&mut self, key: &Key, config: &Key, brokers: Vec<Arc<str>>) {
        let told = self.addresses.get(key).map(|a| a.told.status.leaving.clone()).unwrap_or_default();
        let leaves = |name: &Arc<str>| told.iter().find(|(leaving, _)| leaving == name);
        let mut leaving: Vec<_> = brokers.iter().filter_map(leaves).cloned().collect();
        let mut brokers = brokers;
        if leaving.len() == brokers.len() {
            // What it was to move to is no part of the RouterConfig any more.
            leaving.clear();
        }
        brokers.retain(|name| !leaving.iter().any(|(leaving, _)| leaving == name));
        let Some(config) = self.configs.get_mut(config) else { return };
        for name in &brokers {
            if let Some(target) = config.targets.get_mut(name) {
                target.placed.insert(key.clone());
            }
        }
        if let Some(address) = self.addresses.get_mut(key) {
            (address.placed, address.leaving) = (brokers.clone(), leaving);
        }
        self.weigh(key, brokers);
        self.dirty_addresses.insert(key.clone());
    }

    /// Gives up where an Address was placed: it is gone, or its deletion has ended.
    pub(super) fn unplace(&mut self, key: &Key) {
        let Some(address) = self.addresses.get_mut(key) else { return };
        let brokers = std::mem::take(&mut address.placed);
        address.leaving.clear();
        let (space, created) = (Self::space_key(address), address.obj.meta.created_s);
        let Some(space) = self.spaces.get(&space) else { return };
        let Some(config) = self.configs.get_mut(&space.obj.config) else { return };
        config.unplaced.remove(&(created, key.clone()));
        config.short.remove(key);
        for name in &brokers {
            if let Some(target) = config.targets.get_mut(name) {
                target.placed.remove(key);
            }
        }
    }

    /// A broker is no part of the RouterConfig any more: what was placed there is placed anew, or stays where else
    /// it is.
    pub(super) fn displace(&mut self, broker: &Arc<str>, placed: BTreeSet<Key>, weights: BTreeMap<Key, i64>) {
        for key in weights.into_keys() {
            if let Some(weight) = self.addresses.get_mut(&key).and_then(|a| a.weighs.as_mut()) {
                weight.brokers.retain(|name| name != broker);
            }
        }
        for key in placed {
            if let Some(address) = self.addresses.get_mut(&key) {
                address.placed.retain(|name| name != broker);
            }
            self.dirty_addresses.insert(key);
        }
    }
}

pub(super) fn placeable(address: &AddressState) -> bool {
    matches!(address.obj.kind, AddressType::Queue | AddressType::Topic)
}

pub(super) fn holds(contents: &Contents, slot: &Slot, kind: AddressType) -> bool {
    match kind {
        AddressType::Topic => contents.addresses.get(slot).is_some_and(|types| types.contains(&Routing::Multicast)),
        _ => contents.queues.contains_key(slot),
    }
}

/// The reachable brokers, up to `count`, with the most free credit, then with the fewest, ties by name.
fn choose(config: &ConfigState, count: usize) -> Vec<Arc<str>> {
    let takes = |target: &Target| target.line.connected() && !target.broker.drain;
    let mut reachable: Vec<(&Arc<str>, &Target)> = config.targets.iter().filter(|(_, t)| takes(t)).collect();
    reachable.sort_by_key(|broker| rank(*broker));
    let mut chosen: Vec<Arc<str>> = reachable.into_iter().take(count).map(|(name, _)| name.clone()).collect();
    chosen.sort_unstable();
    chosen
}

/// The order in which brokers are chosen.
pub(super) fn rank((name, target): (&Arc<str>, &Target)) -> (i64, usize, Arc<str>) {
    (target.used - target.broker.credit, target.placed.len(), name.clone())
}
