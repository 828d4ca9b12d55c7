//! Taking events in: each updates what is known and the indexes, and marks what depends on it.

use std::collections::BTreeSet;

use super::state::{AddressState, ConfigState, Quota, SpaceState};
use super::told::{Told, admitted, in_force, kept, was_accepted};
use super::{Model, Timer};
use crate::messaging::entry::Effective;
use crate::messaging::ids::{Key, Kind, Now};
use crate::messaging::input::{Address, AddressSpace, Input, RouterConfig};
use crate::messaging::names;

impl Model {
    /// Takes one event in.
    pub fn apply(&mut self, input: Input, now: Now) {
        self.now = now;
        match input {
            Input::RouterConfig(object) => self.apply_config(object),
            Input::AddressSpace(object) => self.apply_space(object),
            Input::Address(object) => self.apply_address(object),
            Input::ForeignConfig(key) => {
                self.vanish_config(&key);
                self.foreign_configs.insert(key.clone());
                self.mark_spaces_of(&key);
            }
            Input::Vanished(kind, key) => {
                self.decodable(kind, &key);
                match kind {
                    Kind::RouterConfig => {
                        self.foreign_configs.remove(&key);
                        self.vanish_config(&key);
                        self.mark_spaces_of(&key);
                    }
                    Kind::AddressSpace => self.vanish_space(&key),
                    Kind::Address => self.vanish_address(&key),
                }
            }
            Input::Undecodable(kind, key) => {
                if self.undecodable.insert((kind, key.clone())) {
                    *self.undecodable_in.entry(key.namespace).or_default() += 1;
                }
            }
            Input::Namespace(name, labels) => {
                self.going.remove(&name);
                match labels {
                    Some(labels) => self.labels.insert(name.clone(), labels),
                    None => self.labels.remove(&name),
                };
                if let Some(spaces) = self.spaces_of_namespace.get(&name) {
                    self.dirty_spaces.extend(spaces.iter().cloned());
                }
            }
            Input::NamespaceGoing(name) => {
                if self.going.insert(name.clone()) {
                    let within = self.configs.keys().filter(|key| key.namespace == name);
                    self.dirty_configs.extend(within.cloned());
                    self.mark_lost_in(&name);
                }
            }
            Input::Secret(key, revision) => {
                let known = self.secrets.entry(key.clone()).or_default();
                known.now = revision;
                known.last = revision.or(known.last);
                known.missing_ms = self.now.mono_ms;
                if let Some(configs) = self.configs_of_secret.get(&key) {
                    self.dirty_configs.extend(configs.iter().cloned());
                }
                if let Some(spaces) = self.spaces_of_secret.get(&key) {
                    self.dirty_spaces.extend(spaces.iter().cloned());
                }
            }
            Input::Endpoints(service, endpoints) => self.apply_endpoints(service, endpoints),
            Input::Exposed(space, uid, reports) => self.apply_exposed(space, &uid, reports),
            Input::Synced(source) => {
                self.synced.insert(source);
            }
            Input::Leading(leading) => self.lead(leading),
            Input::Target(target, incarnation, link) => self.apply_link(&target, incarnation, link),
            Input::Router(target, incarnation, link) => self.apply_router(&target, incarnation, link),
            Input::Written(done) => self.apply_written(&done),
        }
    }

    /// Taking over starts from what is watched now; giving up stops every drive and forgets what was handed out.
    fn lead(&mut self, leading: bool) {
        if leading == self.leading {
            return;
        }
        if !leading {
            let keys: Vec<Key> = self.configs.keys().cloned().collect();
            for key in &keys {
                self.stop_targets(key);
            }
            self.timers.clear();
        }
        self.leading = leading;
        let ms = self.now.mono_ms;
        for config in self.configs.values_mut() {
            (config.told.out, config.timer_ms, config.since_ms) = (None, None, ms);
        }
        for space in self.spaces.values_mut() {
            (space.told.out, space.timer_ms, space.since_ms, space.written_ms) = (None, None, ms, None);
            space.moved_ms = None;
            (space.exposure, space.exposed, space.unled_ms) = (None, None, None);
            (space.rows_ms, space.remotes) = (None, Default::default());
            space.ever_accepted |= was_accepted(&space.told.status);
        }
        for address in self.addresses.values_mut() {
            (address.told.out, address.timer_ms, address.since_ms) = (None, None, ms);
            (address.waits, address.released, address.taken) = (None, false, false);
            // What is known of the past is what the status says: another leader may have acted since.
            address.in_force = in_force(&address.told.status);
            address.accepted = kept(&address.told.status);
            address.admitted = admitted(&address.told.status);
            (address.in_line, address.weighs) = (None, None);
            address.leaving.clear();
            address.forwards.clear();
            address.effective = Effective { ttl: address.told.status.ttl, redelivery: address.told.status.redelivery };
        }
        for members in self.members.values_mut() {
            members.quota = Quota::default();
            for claimants in members.claims.values_mut() {
                claimants.stand_anew(&self.addresses);
            }
        }
        self.dirty_configs.extend(self.configs.keys().cloned());
        self.stale_configs.extend(self.configs.keys().cloned());
        self.dirty_spaces.extend(self.spaces.keys().cloned());
        self.stale_spaces.extend(self.spaces.keys().cloned());
        self.dirty_addresses.extend(self.addresses.keys().cloned());
    }

    /// The object can be read again, or is gone: whoever waited for that goes on.
    fn decodable(&mut self, kind: Kind, key: &Key) {
        if !self.undecodable.remove(&(kind, key.clone())) {
            return;
        }
        if let Some(count) = self.undecodable_in.get_mut(&key.namespace) {
            *count -= 1;
            if *count == 0 {
                self.undecodable_in.remove(&key.namespace);
            }
        }
        if kind == Kind::Address
            && let Some(spaces) = self.spaces_of_namespace.get(&key.namespace)
        {
            self.dirty_spaces.extend(spaces.iter().cloned());
        }
    }

    fn apply_config(&mut self, object: Box<RouterConfig>) {
        let key = object.meta.key.clone();
        self.decodable(Kind::RouterConfig, &key);
        self.foreign_configs.remove(&key);
        if self.configs.get(&key).is_some_and(|old| old.obj.meta.uid != object.meta.uid) {
            // Its Secrets are followed by its name: nobody tells of them again.
            let known: Vec<_> = object.secrets().filter_map(|s| Some((s.clone(), *self.secrets.get(s)?))).collect();
            let service = object.router_service.as_ref().map(|r| &r.service);
            let service = service.and_then(|service| Some((service.clone(), self.endpoints.get(service)?.clone())));
            self.vanish_config(&key);
            self.secrets.extend(known);
            self.endpoints.extend(service);
        }
        for secret in object.secrets() {
            self.configs_of_secret.entry(secret.clone()).or_default().insert(key.clone());
        }
        self.configs_of_owner.entry(object.owner.clone()).or_default().insert(key.clone());
        self.name_service(&key, object.router_service.as_ref());
        let Some(config) = self.configs.get_mut(&key) else {
            let told = Told::new(object.status.clone(), object.meta.finalizer);
            let (pruned, resynced) = (object.status.orphans_pruned.clone(), object.status.resynced.clone());
            let state = ConfigState {
                told,
                since_ms: self.now.mono_ms,
                targets: Default::default(),
                routers: Default::default(),
                found: Default::default(),
                found_due: false,
                unplaced: Default::default(),
                short: Default::default(),
                pruned,
                resynced,
                timer_ms: None,
                obj: object,
            };
            self.configs.insert(key.clone(), state);
            self.dirty_configs.insert(key.clone());
            self.stale_configs.insert(key.clone());
            self.mark_spaces_of(&key);
            return;
        };
        let meta = &object.meta;
        config.told.observe(&object.status, meta.finalizer, meta.version, meta.listed);
        let old = std::mem::replace(&mut config.obj, object);
        let new = &config.obj;
        let changed = old.meta.generation != new.meta.generation
            || old.meta.deleting != new.meta.deleting
            || old.meta.force_delete != new.meta.force_delete
            || (&old.allowed, &old.defaults, &old.owner, old.single)
                != (&new.allowed, &new.defaults, &new.owner, new.single)
            || (&old.address_plans, &old.space_plans) != (&new.address_plans, &new.space_plans);
        if changed {
            config.since_ms = self.now.mono_ms;
        }
        let service = |config: &RouterConfig| config.router_service.as_ref().map(|r| r.service.clone());
        let other_service = service(&old) != service(new);
        if old.owner != new.owner {
            remove_from(&mut self.configs_of_owner, &old.owner, &key);
            self.configs_of_owner.entry(new.owner.clone()).or_default().insert(key.clone());
        }
        let defaults = (&old.defaults, &old.address_plans) != (&new.defaults, &new.address_plans);
        let gone: Vec<Key> = old.secrets().filter(|s| !new.secrets().any(|n| n == *s)).cloned().collect();
        for secret in gone {
            if let Some(configs) = self.configs_of_secret.get_mut(&secret) {
                configs.remove(&key);
                if configs.is_empty() {
                    self.configs_of_secret.remove(&secret);
                }
            }
        }
        if other_service {
            self.unname_service(&key, old.router_service.as_ref());
        }
        self.dirty_configs.insert(key.clone());
        self.stale_configs.insert(key.clone());
        if changed {
            self.mark_spaces_of(&key);
            let force = self.configs.get(&key).is_some_and(|c| c.obj.meta.force_delete);
            if defaults || force {
                for space in self.spaces_of_config.get(&key).cloned().unwrap_or_default() {
                    self.mark_addresses_of(&space);
                }
            }
        }
    }

    fn vanish_config(&mut self, key: &Key) {
        self.stop_targets(key);
        let Some(config) = self.configs.remove(key) else { return };
        if let Some(at) = config.timer_ms {
            self.timers.remove(&(at, Timer::Config(key.clone())));
        }
        self.unname_service(key, config.obj.router_service.as_ref());
        remove_from(&mut self.configs_of_owner, &config.obj.owner, key);
        for secret in config.obj.secrets() {
            remove_from(&mut self.configs_of_secret, secret, key);
            self.forget_secret(secret);
        }
        // Everything held there is let go of: its addresses are judged anew.
        for space in self.spaces_of_config.get(key).cloned().unwrap_or_default() {
            self.dirty_spaces.insert(space.clone());
            self.mark_addresses_of(&space);
        }
    }

    fn apply_space(&mut self, object: Box<AddressSpace>) {
        let key = object.meta.key.clone();
        self.decodable(Kind::AddressSpace, &key);
        let replaced = self.spaces.get(&key).is_some_and(|old| {
            let old = &old.obj;
            old.meta.uid != object.meta.uid || (&old.config, old.standard) != (&object.config, object.standard)
        });
        if replaced {
            // Its Secrets are followed by its name: nobody tells of them again.
            let secrets = object.connectors.iter().filter_map(|connector| connector.credentials.as_ref());
            let known: Vec<_> = secrets.filter_map(|s| Some((s.clone(), *self.secrets.get(s)?))).collect();
            self.vanish_space(&key);
            self.secrets.extend(known);
        }
        let Some(space) = self.spaces.get_mut(&key) else {
            self.name_secrets(&key, &[], &object.connectors);
            self.spaces_of_config.entry(object.config.clone()).or_default().insert(key.clone());
            self.spaces_of_namespace.entry(key.namespace.clone()).or_default().insert(key.clone());
            let state = SpaceState {
                told: Told::new(object.status.clone(), object.meta.finalizer),
                since_ms: self.now.mono_ms,
                accept: None,
                ever_accepted: was_accepted(&object.status),
                foreign: false,
                unled_ms: None,
                prefix: "".into(),
                plan: None,
                broker: None,
                exposure: None,
                exposed: None,
                remotes: Default::default(),
                rows_ms: None,
                cleared: false,
                cleared_on: BTreeSet::new(),
                written_ms: None,
                moved_ms: None,
                timer_ms: None,
                obj: object,
            };
            self.spaces.insert(key.clone(), state);
            self.dirty_spaces.insert(key.clone());
            self.stale_spaces.insert(key.clone());
            self.mark_addresses_of(&key);
            return;
        };
        let meta = &object.meta;
        let guarded = space.told.finalizer;
        space.told.observe(&object.status, meta.finalizer, meta.version, meta.listed);
        let guarded = guarded != space.told.finalizer;
        let old = std::mem::replace(&mut space.obj, object);
        let new = &space.obj.meta;
        let turned = old.meta.deleting != new.deleting || old.meta.force_delete != new.force_delete;
        let connectors = space.obj.connectors.clone();
        if turned || old.meta.generation != new.generation {
            space.since_ms = self.now.mono_ms;
        }
        let other = old.connectors != connectors;
        if other {
            self.name_secrets(&key, &old.connectors, &connectors);
        }
        if turned || guarded || other {
            self.mark_addresses_of(&key);
        }
        self.dirty_spaces.insert(key.clone());
        self.stale_spaces.insert(key);
    }

    fn vanish_space(&mut self, key: &Key) {
        if self.spaces.get(key).is_some_and(|space| !space.cleared) {
            self.clear_space(key);
        }
        self.drop_remotes(key);
        let Some(space) = self.spaces.remove(key) else { return };
        self.expose_nothing(&space);
        self.name_secrets(key, &space.obj.connectors, &[]);
        if let Some(at) = space.timer_ms {
            self.timers.remove(&(at, Timer::Space(key.clone())));
        }
        remove_from(&mut self.spaces_of_config, &space.obj.config, key);
        remove_from(&mut self.spaces_of_namespace, &key.namespace, key);
        // A RouterConfig may wait for it, another space may want the single seat.
        self.dirty_configs.insert(space.obj.config.clone());
        self.stale_configs.insert(space.obj.config.clone());
        if self.configs.get(&space.obj.config).is_some_and(|c| c.obj.single) {
            self.mark_spaces_of(&space.obj.config);
        }
        self.mark_addresses_of(key);
    }

    fn apply_address(&mut self, object: Box<Address>) {
        let key = object.meta.key.clone();
        self.decodable(Kind::Address, &key);
        let replaced = self.addresses.get(&key).is_some_and(|old| {
            let old = &old.obj;
            old.meta.uid != object.meta.uid
                || (&old.space, &old.address, old.kind, &old.topic)
                    != (&object.space, &object.address, object.kind, &object.topic)
        });
        if replaced {
            self.vanish_address(&key);
        }
        let space = Key { namespace: key.namespace.clone(), name: object.space.clone() };
        let Some(state) = self.addresses.get_mut(&key) else {
            let canonical = names::canonical(&object.address);
            let members = self.members.entry(space.clone()).or_default();
            members.all.insert(key.clone());
            if let Some(topic) = &object.topic {
                members.subscriptions.entry(names::canonical(topic)).or_default().insert(key.clone());
            }
            for dead in object.dead_letter.iter().chain(&object.expiry) {
                members.dead_letter_users.entry(names::canonical(dead)).or_default().insert(key.clone());
            }
            for forwarder in &object.forwarders {
                members.forwarders.entry(forwarder.connector.clone()).or_default().insert(key.clone());
            }
            let told = Told::new(object.status.clone(), object.meta.finalizer);
            let state = AddressState {
                in_force: in_force(&object.status),
                accepted: kept(&object.status),
                effective: Effective { ttl: object.status.ttl, redelivery: object.status.redelivery },
                ready: false,
                refused: false,
                unled: false,
                since_ms: self.now.mono_ms,
                admitted: admitted(&object.status),
                in_line: None,
                leaving: Vec::new(),
                weighs: None,
                placed: Vec::new(),
                holds: Vec::new(),
                route: None,
                forwards: Vec::new(),
                unrouted: false,
                waits: None,
                taken: false,
                released: false,
                timer_ms: None,
                told,
                canonical,
                obj: object,
            };
            self.addresses.insert(key.clone(), state);
            self.enter_claim(&space, &key);
            self.dirty_addresses.insert(key.clone());
            self.stale_spaces.insert(space);
            self.mark_referrers(&key);
            return;
        };
        let meta = &object.meta;
        state.told.observe(&object.status, meta.finalizer, meta.version, meta.listed);
        let old = std::mem::replace(&mut state.obj, object);
        let new = &state.obj;
        let deleting = old.meta.deleting != new.meta.deleting;
        if deleting || old.meta.generation != new.meta.generation {
            state.since_ms = self.now.mono_ms;
        }
        let dead = |a: &Address| [a.dead_letter.clone(), a.expiry.clone()];
        let (before, after) = (dead(&old), dead(new));
        if old.forwarders != new.forwarders
            && let Some(members) = self.members.get_mut(&space)
        {
            for forwarder in &old.forwarders {
                remove_from(&mut members.forwarders, &forwarder.connector, &key);
            }
            for forwarder in &new.forwarders {
                members.forwarders.entry(forwarder.connector.clone()).or_default().insert(key.clone());
            }
        }
        self.dirty_addresses.insert(key.clone());
        if before != after {
            if let Some(members) = self.members.get_mut(&space) {
                for name in before.iter().flatten() {
                    remove_from(&mut members.dead_letter_users, &names::canonical(name), &key);
                }
                for name in after.iter().flatten() {
                    members.dead_letter_users.entry(names::canonical(name)).or_default().insert(key.clone());
                }
            }
            for name in before.iter().flatten() {
                self.mark_claimants(&space, &names::canonical(name));
            }
        }
        if deleting {
            self.step_back(&space, &key);
            self.mark_referrers(&key);
        }
    }

    fn vanish_address(&mut self, key: &Key) {
        let Some(state) = self.addresses.get(key) else { return };
        let space = Self::space_key(state);
        self.mark_referrers(key);
        self.release_vanished(key);
        self.give_back(key);
        self.leave_claim(&space, key);
        let Some(state) = self.addresses.remove(key) else { return };
        if let Some(at) = state.timer_ms {
            self.timers.remove(&(at, Timer::Address(key.clone())));
        }
        self.dirty_addresses.remove(key);
        let mut empty = false;
        if let Some(members) = self.members.get_mut(&space) {
            members.all.remove(key);
            members.ready -= i64::from(state.ready);
            if let Some(topic) = &state.obj.topic {
                remove_from(&mut members.subscriptions, &names::canonical(topic), key);
            }
            for dead in state.obj.dead_letter.iter().chain(&state.obj.expiry) {
                remove_from(&mut members.dead_letter_users, &names::canonical(dead), key);
            }
            for forwarder in &state.obj.forwarders {
                remove_from(&mut members.forwarders, &forwarder.connector, key);
            }
            empty = members.all.is_empty();
        }
        // Whoever waited for it to go: the topic of a subscription, the dead letter of a queue, the space.
        for name in state.obj.topic.iter().chain(&state.obj.dead_letter).chain(&state.obj.expiry) {
            self.mark_claimants(&space, &names::canonical(name));
        }
        if empty {
            self.members.remove(&space);
            // Its own settings may go.
            self.dirty_spaces.insert(space.clone());
        }
        self.stale_spaces.insert(space);
    }
}

pub(super) fn remove_from<K: std::hash::Hash + Eq, V: Ord>(
    map: &mut crate::maps::Map<K, BTreeSet<V>>,
    key: &K,
    value: &V,
) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
