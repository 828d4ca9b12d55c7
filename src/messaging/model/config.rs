//! RouterConfigs: which drives run, with which Secrets, and what the status says.

use std::sync::Arc;

use super::state::{ConfigState, Progress, SlotState, Target, Want};
use super::{Model, Timer};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Kind, Slot, TargetId};
use crate::messaging::output::{Status, TargetChange, Write};
use crate::messaging::reason;
use crate::messaging::status::{BrokerStatus, Condition, RouterConfigStatus, TargetState};

/// A Secret of a RouterConfig, as far as it is known.
enum Secrets {
    /// Revisions that are (or last were) there.
    Known(Option<u64>, Option<u64>),
    /// Not heard of yet.
    Awaited,
    /// Never seen, and missing now.
    Missing(Key),
}

impl Model {
    /// Brings the drives of a RouterConfig into line with its spec, its Secrets and its annotations.
    pub(super) fn evaluate_config(&mut self, key: &Key) {
        self.sync_targets(key);
        self.start_targets(key);
        self.rotate(key);
        self.give_up_waiting(key);
        self.resync(key);
        self.prune(key);
        self.show_targets(key);
        self.stale_configs.insert(key.clone());
    }

    /// Whether the RouterConfig is deleted and nothing of it is needed any more.
    fn config_done(&self, config: &ConfigState) -> bool {
        config.obj.meta.deleting && !self.spaces_of_config.contains_key(&config.obj.meta.key)
    }

    /// The Secret without which nobody can log in any more: it is missing, was never known, and goes with its
    /// namespace, as does the RouterConfig. Waiting for its brokers would keep the namespace for ever.
    fn locked_out(&self, config: &ConfigState) -> Option<Key> {
        match self.secrets_of(config) {
            Secrets::Missing(secret) if config.obj.meta.deleting => Some(secret),
            _ => None,
        }
        .filter(|secret| self.going.contains(&secret.namespace))
    }

    fn sync_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let locked_out = self.locked_out(config);
        let none = locked_out.is_some() || self.config_done(config);
        let wanted = if none { Vec::new() } else { config.obj.brokers.clone() };
        let gone: Vec<Arc<str>> =
            config.targets.keys().filter(|name| !wanted.iter().any(|b| b.name == **name)).cloned().collect();
        for name in gone {
            if let Some(secret) = &locked_out {
                let text = format!(
                    "broker {name}: Secret {secret} is gone with its namespace; what the broker holds stays there"
                );
                let uid = self.configs.get(key).map(|c| c.obj.meta.uid.clone()).unwrap_or_default();
                self.event(Kind::RouterConfig, key, &uid, true, "BrokerLetGo", text);
            }
            self.drop_target(&TargetId { config: key.clone(), broker: name });
        }
        let now = self.now;
        let Some(config) = self.configs.get_mut(key) else { return };
        let mut placement = false;
        for broker in wanted {
            let target = config.targets.entry(broker.name.clone()).or_insert_with(|| {
                placement = true;
                Target::new(broker.clone(), now.mono_ms, now.unix_s)
            });
            if target.broker != broker {
                // Moved: the same broker elsewhere, or another one. Reading tells.
                target.broker = broker;
                target.revisions = (None, None);
                if target.incarnation != 0 {
                    let id = TargetId { config: key.clone(), broker: target.broker.name.clone() };
                    self.out.targets.push(TargetChange::Stop { target: id, incarnation: target.incarnation });
                    target.incarnation = 0;
                    target.reset();
                }
            }
        }
        if placement {
            self.mark_spaces_of(key);
        }
    }

    fn secrets_of(&self, config: &ConfigState) -> Secrets {
        let mut revisions = [None, None];
        for (revision, secret) in revisions.iter_mut().zip([&config.obj.tls_secret, &config.obj.credentials_secret]) {
            let Some(secret) = secret else { continue };
            match self.secrets.get(secret) {
                None => return Secrets::Awaited,
                Some((_, None)) => return Secrets::Missing(secret.clone()),
                Some((_, last)) => *revision = *last,
            }
        }
        Secrets::Known(revisions[0], revisions[1])
    }

    /// The Secrets that are missing now, though their last contents are still in use.
    fn secrets_lost<'a>(&'a self, config: &'a ConfigState) -> impl Iterator<Item = &'a Key> {
        let named = config.obj.tls_secret.iter().chain(&config.obj.credentials_secret);
        named.filter(|secret| matches!(self.secrets.get(*secret), Some((None, Some(_)))))
    }

    fn start_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let secrets = self.secrets_of(config);
        let now = self.now;
        let Some(config) = self.configs.get_mut(key) else { return };
        let user: Arc<str> = format!("waystation:{}", config.obj.owner).into();
        let mut started = Vec::new();
        for (name, target) in &mut config.targets {
            if target.incarnation != 0 {
                continue;
            }
            match &secrets {
                Secrets::Awaited => {}
                Secrets::Missing(secret) => {
                    let message = format!("Secret {secret} is missing: create it, or change the RouterConfig");
                    target.turn(TargetState::Unreachable, message.into(), now);
                    target.known = true;
                }
                Secrets::Known(tls, credentials) => {
                    self.incarnation += 1;
                    target.incarnation = self.incarnation;
                    target.rotating = false;
                    target.revisions = (*tls, *credentials);
                    target.turn(TargetState::Connecting, "connecting".into(), now);
                    started.push(TargetId { config: key.clone(), broker: name.clone() });
                    self.out.targets.push(TargetChange::Start {
                        target: TargetId { config: key.clone(), broker: name.clone() },
                        incarnation: self.incarnation,
                        broker: target.broker.clone(),
                        user: user.clone(),
                        tls_secret: config.obj.tls_secret.clone(),
                        credentials_secret: config.obj.credentials_secret.clone(),
                    });
                }
            }
        }
        for id in started {
            self.send_needed(&id);
        }
    }

    /// Reconnects targets whose Secret changed: those that are not connected at once, the others one at a time, the
    /// next only when the one before serves again. So contents that no broker takes cost one connection and not all.
    fn rotate(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let Secrets::Known(tls, credentials) = self.secrets_of(config) else { return };
        let wanted = (tls, credentials);
        let Some(config) = self.configs.get_mut(key) else { return };
        let mut busy = config.targets.values().any(|t| t.rotating);
        for (name, target) in &mut config.targets {
            if !target.started() || target.revisions == wanted {
                continue;
            }
            if target.connected() {
                if busy && !target.rotating {
                    continue;
                }
                (busy, target.rotating) = (true, true);
            }
            target.revisions = wanted;
            self.out.targets.push(TargetChange::Reconnect {
                target: TargetId { config: key.clone(), broker: name.clone() },
                incarnation: target.incarnation,
            });
        }
    }

    fn resync(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        let asked = config.obj.resync.is_some() && config.obj.resync != config.resynced;
        if asked {
            config.resynced = config.obj.resync.clone();
        }
        let now = self.now.mono_ms;
        let mut next: Option<u64> = None;
        for (name, target) in &mut config.targets {
            let due = target.resync_ms.is_some_and(|at| at <= now);
            if (asked || due) && target.connected() && !target.reading {
                target.resync_ms = None;
                self.out.targets.push(TargetChange::Reread {
                    target: TargetId { config: key.clone(), broker: name.clone() },
                    incarnation: target.incarnation,
                });
            }
            next = next.into_iter().chain(target.resync_ms).min();
        }
        if let Some(at) = next {
            self.wake_at(at.max(now + 1), Timer::Config(key.clone()));
        }
    }

    /// Carries out `waystation.dev/prune-orphans` once for each new value, on every broker that was read.
    fn prune(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        if config.obj.prune_orphans.is_none() || config.obj.prune_orphans == config.pruned {
            return;
        }
        if config.targets.values().all(|t| t.read_once && t.connected()) {
            config.pruned = config.obj.prune_orphans.clone();
        }
        let mut slots: Vec<(TargetId, Slot)> = Vec::new();
        for (name, target) in &mut config.targets {
            let id = TargetId { config: key.clone(), broker: name.clone() };
            slots.extend(std::mem::take(&mut target.orphans).into_keys().map(|slot| (id.clone(), slot)));
        }
        for (id, slot) in slots {
            self.take_away_leftover(&id, &slot, Want::Gone { only_if_empty: false });
        }
    }

    /// Works out which state each target shows, and tells transitions to the spaces on it.
    fn show_targets(&mut self, key: &Key) {
        let now = self.now.mono_ms;
        let (outage, down) = (self.timing.outage_ms, self.timing.down_ms);
        let Some(config) = self.configs.get_mut(key) else { return };
        let mut wake: Option<u64> = None;
        let mut turned = Vec::new();
        for (name, target) in &mut config.targets {
            let told = config.told.status.brokers.iter().find(|b| b.name == *name).map(|b| b.state);
            let (shown, until) = target.shown(told, now, outage, down);
            wake = wake.into_iter().chain(until).min();
            if shown != target.shown {
                if let Some(shown) = shown {
                    turned.push((name.clone(), shown, target.shown.or(told), target.message.clone()));
                }
                target.shown = shown;
            }
        }
        let uid = config.obj.meta.uid.clone();
        if let Some(at) = wake {
            self.wake_at(at, Timer::Config(key.clone()));
        }
        for (name, shown, before, message) in turned {
            if shown == TargetState::Unreachable {
                self.mark_waiting(&TargetId { config: key.clone(), broker: name.clone() });
            }
            for space in self.spaces_of_config.get(key).into_iter().flatten() {
                if self.spaces.get(space).is_some_and(|s| s.broker.as_ref() == Some(&name)) {
                    self.stale_spaces.insert(space.clone());
                }
            }
            match (before, shown) {
                (Some(TargetState::Unreachable), TargetState::Serving) => {
                    let text = format!("broker {name} serves again");
                    self.event(Kind::RouterConfig, key, &uid, false, "BrokerServing", text);
                }
                (was, TargetState::Unreachable) if was != Some(TargetState::Unreachable) => {
                    let text = format!("broker {name}: {message}");
                    self.event(Kind::RouterConfig, key, &uid, true, reason::BROKER_UNREACHABLE, text);
                }
                _ => {}
            }
        }
    }

    /// Marks the Addresses that wait for an answer of a target: there will be none, and they may say so.
    fn mark_waiting(&mut self, id: &TargetId) {
        let Some(target) = self.target(id) else { return };
        let waits = |state: &&SlotState| !matches!(state.progress, Progress::Acked(_) | Progress::Restored);
        let holders: Vec<Key> = target.slots.values().filter(waits).filter_map(|s| s.holder.clone()).collect();
        self.dirty_addresses.extend(holders);
    }

    /// Says what the RouterConfig's status must be now, and writes it if that is new.
    pub(super) fn verdict_config(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let done = self.config_done(config);
        let wanted = if done { config.told.latest().clone() } else { self.config_status(config) };
        let (uid, generation) = (config.obj.meta.uid.clone(), config.obj.meta.generation);
        let finalizer = !done && (!config.obj.meta.deleting || config.told.latest_finalizer());
        let Some(config) = self.configs.get_mut(key) else { return };
        if let Some((status, change)) = config.told.plan(wanted, finalizer, &mut self.seq) {
            self.out.writes.push(Write {
                kind: Kind::RouterConfig,
                key: key.clone(),
                uid,
                generation,
                tenant: key.clone(),
                low: false,
                seq: self.seq,
                status: status.map(Status::RouterConfig),
                finalizer: change,
            });
        }
    }

    fn config_status(&self, config: &ConfigState) -> RouterConfigStatus {
        let told = config.told.latest();
        let meta = &config.obj.meta;
        let counted: i64 = config.targets.values().map(|t| t.orphans.len() as i64).sum();
        let all_read = config.targets.values().all(|t| t.read_once);
        let mut wanted = RouterConfigStatus {
            owner: Some(config.obj.owner.clone()),
            // A broker that was not read yet may hold what was told before.
            orphans: if all_read { counted } else { counted.max(told.orphans) },
            orphans_pruned: config.pruned.clone(),
            resynced: config.resynced.clone(),
            ..told.clone()
        };
        let mut serving = true;
        let mut trouble: Option<(&'static str, String)> = None;
        let mut known = true;
        let lost: Vec<String> = self.secrets_lost(config).map(Key::to_string).collect();
        let mut rows = Vec::new();
        for (name, target) in &config.targets {
            let before = told.brokers.iter().find(|b| b.name == *name);
            let Some(state) = target.shown else {
                known = false;
                rows.extend(before.cloned());
                continue;
            };
            let mut message: Arc<str> = if state == target.state {
                target.message.clone()
            } else {
                before.map(|b| b.message.clone()).unwrap_or_default()
            };
            if !lost.is_empty() {
                message = format!("Secret {} is missing: its last contents are in use", lost.join(", ")).into();
            }
            if state != TargetState::Serving {
                serving = false;
                let word = match state {
                    TargetState::Unreachable => reason::BROKER_UNREACHABLE,
                    TargetState::Filling => reason::FILLING,
                    _ => reason::CONNECTING,
                };
                let secret = message.starts_with("Secret ") && target.incarnation == 0;
                let word = if secret { reason::SECRET_NOT_FOUND } else { word };
                trouble.get_or_insert((word, format!("broker {name}: {message}")));
            }
            let since_s = match before {
                Some(before) if before.state == state => before.since_s,
                _ => target.since_s,
            };
            rows.push(BrokerStatus { name: name.clone(), state, message, since_s });
        }
        wanted.brokers = rows;
        let now = self.now.unix_s;
        let condition = |before: &Option<Condition>, status, reason, message: Arc<str>| {
            let since_s = before.as_ref().filter(|c| c.status == status).map_or(now, |c| c.since_s);
            Some(Condition { status, reason, message, generation: meta.generation, since_s })
        };
        wanted.accepted = condition(&told.accepted, true, reason::ACCEPTED, "".into());
        if meta.deleting {
            let spaces = self.spaces_of_config.get(&meta.key).map_or(0, |s| s.len());
            let first = self.spaces_of_config.get(&meta.key).and_then(|s| s.first()).map(Key::to_string);
            let message = format!(
                "waits for {spaces} AddressSpaces that use it, first {}: delete them with kubectl delete addressspace",
                first.unwrap_or_default()
            );
            wanted.ready = condition(&told.ready, false, reason::TERMINATING, message.into());
        } else if !known {
            // Not settled since the process or the object appeared: what was told stays.
        } else if serving {
            wanted.ready = condition(&told.ready, true, reason::SERVING, "".into());
        } else if let Some((word, message)) = trouble {
            wanted.ready = condition(&told.ready, false, word, message.into());
        }
        if !known && told.ready.is_none() && !meta.deleting {
            return told.clone();
        }
        wanted
    }

    /// Stops a target for good: what it held is let go of.
    fn drop_target(&mut self, id: &TargetId) {
        let Some(target) = self.configs.get_mut(&id.config).and_then(|c| c.targets.remove(&id.broker)) else { return };
        if target.incarnation != 0 {
            self.out.targets.push(TargetChange::Stop { target: id.clone(), incarnation: target.incarnation });
        }
        for (holder, want) in target.slots.values().filter_map(|s| Some((s.holder.as_ref()?, s.want))) {
            if let Some(address) = self.addresses.get_mut(holder) {
                (address.holds, address.in_force) = (None, None);
                // What its space gets in place of this one never held it.
                address.released |= address.obj.meta.deleting && want != Want::Hold;
            }
            self.dirty_addresses.insert(holder.clone());
        }
        self.mark_spaces_of(&id.config);
    }

    /// Stops every target of a RouterConfig, as when it vanishes or leadership is lost.
    pub(super) fn stop_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        for (name, target) in std::mem::take(&mut config.targets) {
            if target.incarnation != 0 {
                let id = TargetId { config: key.clone(), broker: name };
                self.out.targets.push(TargetChange::Stop { target: id, incarnation: target.incarnation });
            }
            for holder in target.slots.values().filter_map(|s| s.holder.as_ref()) {
                if let Some(address) = self.addresses.get_mut(holder) {
                    address.holds = None;
                }
            }
        }
    }

    /// Makes and sends a job that takes a slot away which no Address stands for.
    pub(super) fn take_away_leftover(&mut self, id: &TargetId, slot: &Slot, want: Want) {
        let Some(target) = self.target_mut(id) else { return };
        let Some(state) = target.slots.get_mut(slot) else { return };
        state.want = want;
        self.send(id, slot, Class::Repair);
    }
}
