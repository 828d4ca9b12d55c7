//! Which broker serves a space.

use std::sync::Arc;

use super::state::{ConfigState, SpaceState, Target};
use super::{Model, Timer};
use crate::messaging::ids::{Key, TargetId};
use crate::messaging::names;

impl Model {
    /// Places a space that is accepted and has no broker, or whose broker left the RouterConfig; whether that changed
    /// anything. Once placed it stays.
    pub(super) fn place(&mut self, key: &Key) -> bool {
        let Some(space) = self.spaces.get(key) else { return false };
        let Some(config) = self.configs.get(&space.obj.config).filter(|_| !space.obj.standard) else { return false };
        let has = |name: &Arc<str>| config.targets.contains_key(name);
        if space.broker.as_ref().is_some_and(has) {
            return false;
        }
        let before = space.broker.clone();
        // The space's own word may never have been written: its Addresses say where they are as well.
        let told = space.told.status.broker.clone().filter(has).or_else(|| self.broker_of_members(key, config));
        let usable = matches!(space.accept, Some(Ok(()))) || space.ever_accepted;
        let chosen = if usable { told.or_else(|| self.choose(key, config)) } else { None };
        let moved = before != chosen;
        let reads: Vec<TargetId> = match moved {
            // Comparisons that waited for this placement.
            true => self.unread(&space.obj.config),
            false => Vec::new(),
        };
        self.to_compare.extend(reads);
        if let Some(space) = self.spaces.get_mut(key) {
            space.broker = chosen;
        }
        moved
    }

    /// The broker that the first Address of the space names which was accepted before.
    fn broker_of_members(&self, key: &Key, config: &ConfigState) -> Option<Arc<str>> {
        let members = self.members.get(key)?.all.iter().filter_map(|key| self.addresses.get(key));
        let mut brokers = members.flat_map(|address| &address.told.status.brokers);
        brokers.find(|broker| config.targets.contains_key(*broker)).cloned()
    }

    /// A queue that is found is the placement, above any computation; otherwise the broker with the fewest spaces,
    /// ties by name. While a broker has not been read, nothing is chosen, unless it has been failing for a while.
    fn choose(&self, key: &Key, config: &ConfigState) -> Option<Arc<str>> {
        if config.targets.len() == 1 {
            return config.targets.keys().next().cloned();
        }
        let found = |target: &Target| -> usize {
            let prefix = names::prefix(key, config.obj.single);
            let queues = target.contents.as_ref().map_or(0, |contents| {
                contents.queues.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&*prefix)).count()
            });
            queues + target.orphans.keys().filter(|slot| slot.starts_with(&*prefix)).count()
        };
        let holding = config.targets.iter().map(|(name, t)| (found(t), name)).filter(|(n, _)| *n > 0);
        if let Some((_, name)) = holding.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(a.1))) {
            return Some(name.clone());
        }
        if config.targets.values().any(|t| !t.line.known) {
            return None;
        }
        let spaces = |name: &Arc<str>| {
            let all = self.spaces_of_config.get(&config.obj.meta.key);
            all.map_or(0, |all| {
                all.iter().filter(|k| self.spaces.get(*k).is_some_and(|s| s.broker.as_ref() == Some(name))).count()
            })
        };
        let reachable = config.targets.iter().filter(|(_, t)| t.line.connected() && !t.broker.drain);
        reachable.min_by_key(|(name, _)| (spaces(name), (*name).clone())).map(|(name, _)| name.clone())
    }

    /// A broker has become known: spaces that waited for it can be placed.
    pub(super) fn mark_unplaced(&mut self, id: &TargetId) {
        self.call_the_lines(&id.config, &id.name);
        self.place_the_rest(&id.config);
        if self.configs.get(&id.config).is_some_and(ConfigState::all_known) {
            // What was held back since it might have decided a placement.
            let reads = self.unread(&id.config);
            self.to_compare.extend(reads);
        }
        if self.configs.get(&id.config).is_none_or(|config| config.targets.len() == 1) {
            return;
        }
        let unplaced = |key: &&Key| self.spaces.get(*key).is_some_and(|s| s.broker.is_none() && !s.obj.standard);
        let spaces = self.spaces_of_config.get(&id.config).into_iter().flatten();
        let marked: Vec<Key> = spaces.filter(unplaced).cloned().collect();
        for key in marked {
            self.dirty_spaces.insert(key);
        }
    }

    /// A broker that has answered nothing for `outage_ms` no longer holds up placements.
    pub(super) fn give_up_waiting(&mut self, key: &Key) {
        let (now, patience) = (self.now.mono_ms, self.timing.outage_ms);
        let Some(config) = self.configs.get_mut(key) else { return };
        let (mut gave_up, mut wake) = (Vec::new(), None);
        for (name, target) in &mut config.targets {
            if target.line.known {
                continue;
            }
            let due = target.line.down_ms + patience;
            if due <= now {
                target.line.known = true;
                gave_up.push(TargetId::broker(key.clone(), name.clone()));
            } else {
                wake = wake.into_iter().chain([due]).min();
            }
        }
        for id in gave_up {
            self.mark_unplaced(&id);
        }
        let reads = self.unread(key);
        self.to_compare.extend(reads);
        if let Some(at) = wake {
            self.wake_at(at, Timer::Config(key.clone()));
        }
    }

    /// Targets that were read and not compared.
    fn unread(&self, config: &Key) -> Vec<TargetId> {
        let targets = self.configs.get(config).into_iter().flat_map(|c| &c.targets);
        let read = targets.filter(|(_, t)| t.contents.is_some());
        read.map(|(name, _)| TargetId::broker(config.clone(), name.clone())).collect()
    }

    /// Whether a space of the RouterConfig, or an Address of a standard space, may yet be placed by what its brokers
    /// hold.
    pub(super) fn placing(&self, config: &Key) -> bool {
        let Some(state) = self.configs.get(config).filter(|state| !state.all_known()) else { return false };
        !state.unplaced.is_empty()
            || self.spaces_of_config.get(config).into_iter().flatten().any(|key| {
                let waits = |s: &SpaceState| s.broker.is_none() && !s.obj.standard && matches!(s.accept, Some(Ok(())));
                self.spaces.get(key).is_some_and(waits)
            })
    }
}
