//! Which brokers hold a queue or topic of a standard space. What is found is the placement, above any computation;
//! once placed it stays.

use std::sync::Arc;

use super::Model;
use super::state::{AddressState, ConfigState};
use crate::messaging::broker::{Contents, Routing};
use crate::messaging::ids::{Key, Slot};
use crate::messaging::input::AddressType;
use crate::messaging::names;

impl Model {
    /// Puts an Address that has no broker in line for one.
    pub(super) fn await_placement(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| a.placed.is_empty() && placeable(a)) else { return };
        let Some(space) = self.spaces.get(&Self::space_key(address)).filter(|s| s.obj.standard) else { return };
        self.to_place.insert((space.obj.config.clone(), address.obj.meta.created_s, key.clone()));
    }

    /// A broker has become known, or can be reached again: whoever no broker could be chosen for is in line once more.
    pub(super) fn place_the_rest(&mut self, config: &Key) {
        let Some(state) = self.configs.get_mut(config) else { return };
        let waiting = std::mem::take(&mut state.unplaced);
        self.to_place.extend(waiting.into_iter().map(|(created, key)| (config.clone(), created, key)));
    }

    /// Places one Address (the oldest come first), as far as that can be decided: by its status, by what brokers hold,
    /// and, once every broker has been asked or given up, on the broker with the fewest.
    pub(super) fn place_address(&mut self, name: &Key, created: i64, key: Key) {
        let Some(address) = self.addresses.get(&key).filter(|a| a.placed.is_empty() && !a.released) else { return };
        let space = self.spaces.get(&Self::space_key(address)).filter(|space| space.obj.config == *name);
        let (Some(_), Some(config)) = (space, self.configs.get(name)) else { return };
        let mut chosen = self.told_brokers(address, config);
        if chosen.is_empty() {
            chosen = self.found_brokers(address, config);
        }
        if chosen.is_empty() && address.obj.meta.deleting {
            if config.targets.values().all(|t| t.line.known) {
                // There is nothing of it anywhere.
                self.dirty_addresses.insert(key);
                return;
            }
        } else if chosen.is_empty() {
            chosen.extend(choose(config));
        }
        if !chosen.is_empty() {
            self.place_on(&key, name, chosen);
        } else if let Some(config) = self.configs.get_mut(name) {
            config.unplaced.insert((created, key));
        }
    }

    /// The brokers that its status names and that are still there.
    fn told_brokers(&self, address: &AddressState, config: &ConfigState) -> Vec<Arc<str>> {
        let told = &address.told.status.brokers;
        told.iter().filter(|name| config.targets.contains_key(*name)).cloned().collect()
    }

    /// The brokers that are known to hold something under its name which no other Address stands for.
    fn found_brokers(&self, address: &AddressState, config: &ConfigState) -> Vec<Arc<str>> {
        let slot = names::slot(&names::prefix(&Self::space_key(address), config.obj.single), &address.obj.address);
        let held = |name: &&Arc<str>| {
            let Some(target) = config.targets.get(*name) else { return false };
            let left = target
                .slots
                .get(&slot)
                .is_some_and(|s| s.holder.is_none() || s.holder.as_ref() == Some(&address.obj.meta.key));
            left || target.contents.as_ref().is_some_and(|contents| holds(contents, &slot, address.obj.kind))
        };
        config.targets.keys().filter(held).cloned().collect()
    }

    fn place_on(&mut self, key: &Key, config: &Key, brokers: Vec<Arc<str>>) {
        let Some(config) = self.configs.get_mut(config) else { return };
        for name in &brokers {
            if let Some(target) = config.targets.get_mut(name) {
                target.placed.insert(key.clone());
            }
        }
        if let Some(address) = self.addresses.get_mut(key) {
            address.placed = brokers;
        }
        self.dirty_addresses.insert(key.clone());
    }

    /// Gives up where an Address was placed: it is gone, or its deletion has ended.
    pub(super) fn unplace(&mut self, key: &Key) {
        let Some(address) = self.addresses.get_mut(key) else { return };
        let brokers = std::mem::take(&mut address.placed);
        let created = address.obj.meta.created_s;
        let Some(space) = self.spaces.get(&Key { namespace: key.namespace.clone(), name: address.obj.space.clone() })
        else {
            return;
        };
        let Some(config) = self.configs.get_mut(&space.obj.config) else { return };
        config.unplaced.remove(&(created, key.clone()));
        for name in &brokers {
            if let Some(target) = config.targets.get_mut(name) {
                target.placed.remove(key);
            }
        }
    }

    /// A broker is no part of the RouterConfig any more: what was placed there is placed anew, or stays where else
    /// it is.
    pub(super) fn displace(&mut self, broker: &Arc<str>, placed: impl IntoIterator<Item = Key>) {
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

fn holds(contents: &Contents, slot: &Slot, kind: AddressType) -> bool {
    match kind {
        AddressType::Topic => contents.addresses.get(slot).is_some_and(|types| types.contains(&Routing::Multicast)),
        _ => contents.queues.contains_key(slot),
    }
}

/// The reachable broker with the fewest, ties by name; none before every broker was asked or given up.
fn choose(config: &ConfigState) -> Option<Arc<str>> {
    if config.targets.values().any(|t| !t.line.known) {
        return None;
    }
    let reachable = config.targets.iter().filter(|(_, t)| t.line.connected());
    reachable.min_by_key(|(name, t)| (t.placed.len(), (*name).clone())).map(|(name, _)| name.clone())
}
