//! Who is to be judged anew when something else has changed.

use super::Model;
use crate::messaging::ids::Key;
use crate::messaging::input::AddressType;
use crate::messaging::names;

impl Model {
    /// Marks who claims the address of `key`, and who refers to it.
    pub(super) fn mark_referrers(&mut self, key: &Key) {
        let Some(state) = self.addresses.get(key) else { return };
        let (space, canonical) = (Self::space_key(state), state.canonical.clone());
        self.mark_claimants(&space, &canonical);
        if self.counts(&space, &canonical, key) {
            self.mark_referrers_of(&space, &canonical);
        }
    }

    /// Marks who refers to an address.
    pub(super) fn mark_referrers_of(&mut self, space: &Key, canonical: &str) {
        self.mark_connector_of(space, canonical);
        let Some(members) = self.members.get(space) else { return };
        for refs in [&members.subscriptions, &members.dead_letter_users] {
            if let Some(keys) = refs.get(canonical) {
                self.dirty_addresses.extend(keys.iter().cloned());
            }
        }
        // The RouterConfig's default dead letter applies where the space has it: then it is everybody's.
        if let Some(config) = self.spaces.get(space).and_then(|s| self.configs.get(&s.obj.config))
            && config.obj.defaults.dead_letter_address.as_deref().is_some_and(|d| *names::canonical(d) == *canonical)
        {
            self.mark_addresses_of(space);
        }
    }

    pub(super) fn mark_addresses_of(&mut self, space: &Key) {
        if let Some(members) = self.members.get(space) {
            self.dirty_addresses.extend(members.all.iter().cloned());
        }
    }

    /// A broker has joined: dead letters of standard spaces belong there as well.
    pub(super) fn mark_dead_letters_of(&mut self, config: &Key) {
        let spaces = self.spaces_of_config.get(config).into_iter().flatten();
        let standard = spaces.filter(|key| self.spaces.get(*key).is_some_and(|space| space.obj.standard));
        let members = standard.filter_map(|key| self.members.get(key)).flat_map(|members| &members.all);
        let dead = |key: &&Key| self.addresses.get(*key).is_some_and(|a| a.obj.kind == AddressType::DeadLetter);
        let marked: Vec<Key> = members.filter(dead).cloned().collect();
        self.dirty_addresses.extend(marked);
    }

    /// A namespace goes: what waits for a RouterConfig that is gone from there would wait for ever.
    pub(super) fn mark_lost_in(&mut self, namespace: &str) {
        let lost = |config: &&Key| *config.namespace == *namespace && !self.configs.contains_key(*config);
        let lost = self.spaces_of_config.iter().filter(|(config, _)| lost(config));
        let spaces: Vec<Key> = lost.flat_map(|(_, spaces)| spaces).cloned().collect();
        for space in spaces {
            self.mark_addresses_of(&space);
            self.dirty_spaces.insert(space);
        }
    }

    pub(super) fn mark_spaces_of(&mut self, config: &Key) {
        if let Some(spaces) = self.spaces_of_config.get(config) {
            self.dirty_spaces.extend(spaces.iter().cloned());
            self.stale_spaces.extend(spaces.iter().cloned());
        }
    }
}
