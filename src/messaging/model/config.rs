//! RouterConfigs: which drives run, and with which Secrets.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::line::Line;
use super::routers::Router;
use super::state::{ConfigState, Target, Want};
use super::{Known, Model, Timer};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Kind, Plane, Slot, TargetId};
use crate::messaging::input;
use crate::messaging::output::TargetChange;
use crate::messaging::reason;
use crate::messaging::status::TargetState;

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
        self.hold_fence(key);
        self.start_targets(key);
        self.rotate(key);
        self.give_up_waiting(key);
        self.resync(key);
        self.prune(key);
        self.show_targets(key);
        self.stale_configs.insert(key.clone());
    }

    /// Whether the RouterConfig is deleted and nothing of it is needed any more.
    pub(super) fn config_done(&self, config: &ConfigState) -> bool {
        config.obj.meta.deleting && !self.spaces_of_config.contains_key(&config.obj.meta.key)
    }

    /// The Secret without which nobody can log in any more: it is missing, was never known, and goes with its
    /// namespace, as does the RouterConfig. Waiting for its brokers would keep the namespace for ever.
    fn locked_out(&self, config: &ConfigState) -> Option<Key> {
        match self.secrets_of(config, Plane::Broker) {
            Secrets::Missing(secret) if config.obj.meta.deleting => Some(secret),
            _ => None,
        }
        .filter(|secret| self.going.contains(&secret.namespace))
    }

    fn sync_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let locked_out = self.locked_out(config);
        let none = locked_out.is_some() || self.config_done(config);
        let brokers = if none { Vec::new() } else { config.obj.brokers.clone() };
        let routers = if none { Some(Vec::new()) } else { self.find_routers(key) };
        let Some(config) = self.configs.get(key) else { return };
        let gone: Vec<Arc<str>> =
            config.targets.keys().filter(|name| !brokers.iter().any(|b| b.name == **name)).cloned().collect();
        for name in gone {
            if let Some(secret) = &locked_out {
                let text = format!(
                    "broker {name}: Secret {secret} is gone with its namespace; what the broker holds stays there"
                );
                let uid = self.configs.get(key).map(|c| c.obj.meta.uid.clone()).unwrap_or_default();
                self.event(Kind::RouterConfig, key, &uid, true, reason::event::BROKER_LET_GO, text);
            }
            self.drop_target(&TargetId::broker(key.clone(), name));
        }
        let now = self.now;
        let Some(config) = self.configs.get_mut(key) else { return };
        let (mut placement, mut moves, mut elsewhere) = (false, Vec::new(), Vec::new());
        for broker in brokers {
            let target = config.targets.entry(broker.name.clone()).or_insert_with(|| {
                placement = true;
                Target::new(broker.clone(), now)
            });
            let moved = (&target.broker.host, target.broker.port) != (&broker.host, broker.port);
            if target.broker.drain != broker.drain {
                // What it has moves away, or what had to stay elsewhere may move here.
                moves.push(target.placed.clone());
            }
            target.broker = broker;
            if moved {
                // The same broker elsewhere, or another one. Reading tells.
                elsewhere.push(TargetId::broker(key.clone(), target.broker.name.clone()));
                target.line.revisions = (None, None);
                if target.line.started() {
                    let id = TargetId::broker(key.clone(), target.broker.name.clone());
                    self.out.targets.push(TargetChange::Stop { target: id, incarnation: target.line.incarnation });
                    target.line.incarnation = 0;
                    target.reset();
                }
            }
        }
        for id in elsewhere {
            self.forget_node(&id);
        }
        if placement {
            self.mark_spaces_of(key);
            self.mark_dead_letters_of(key);
        }
        if !moves.is_empty() {
            self.dirty_addresses.extend(moves.into_iter().flatten());
            self.call_the_short(key);
            self.place_the_rest(key);
            self.mark_spaces_of(key);
        }
        match routers {
            Some(routers) => self.sync_routers(key, routers),
            None => self.hold_connectors(key),
        }
    }

    /// Brings the routers into line with the spec: one that moved is another one, since none keeps anything.
    fn sync_routers(&mut self, key: &Key, wanted: Vec<input::Router>) {
        let Some(config) = self.configs.get(key) else { return };
        let gone: Vec<Arc<str>> = config
            .routers
            .targets
            .values()
            .filter(|r| !wanted.contains(&r.spec))
            .map(|r| r.spec.name.clone())
            .collect();
        for name in gone {
            let id = TargetId::router(key.clone(), name);
            if let Some(router) = self.drop_router(&id).filter(|r| r.line.started()) {
                let incarnation = router.line.incarnation;
                self.out.targets.push(TargetChange::Stop { target: id, incarnation });
            }
        }
        let now = self.now;
        for spec in wanted {
            let Some(config) = self.configs.get(key) else { return };
            if config.routers.targets.contains_key(&spec.name) {
                continue;
            }
            let taken: BTreeSet<usize> = config.routers.targets.values().map(|r| r.place).collect();
            let place = (0..).find(|place| !taken.contains(place)).unwrap_or_default();
            self.join_router(key, Router::new(spec, place, now));
            self.mark_spaces_of(key);
        }
        self.hold_connectors(key);
    }

    fn secrets_of(&self, config: &ConfigState, plane: Plane) -> Secrets {
        let mut revisions = [None, None];
        for (revision, secret) in revisions.iter_mut().zip(named(&config.obj, plane)) {
            let Some(secret) = secret else { continue };
            match self.secrets.get(secret) {
                None => return Secrets::Awaited,
                Some(Known { last: None, .. }) => return Secrets::Missing(secret.clone()),
                Some(Known { last, .. }) => *revision = *last,
            }
        }
        Secrets::Known(revisions[0], revisions[1])
    }

    /// The Secrets that are missing now, though their last contents are still in use.
    pub(super) fn secrets_lost<'a>(&'a self, config: &'a ConfigState) -> impl Iterator<Item = &'a Key> {
        config
            .obj
            .secrets()
            .filter(|secret| matches!(self.secrets.get(*secret), Some(Known { now: None, last: Some(_), .. })))
    }

    fn start_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let (brokers, routers) = (self.secrets_of(config, Plane::Broker), self.secrets_of(config, Plane::Router));
        let now = self.now;
        let Some(config) = self.configs.get_mut(key) else { return };
        let mut started = Vec::new();
        for (id, line) in config.lines_mut() {
            if line.started() || line.refused.is_some() {
                continue;
            }
            let secrets = if id.plane == Plane::Broker { &brokers } else { &routers };
            match secrets {
                Secrets::Awaited => {}
                Secrets::Missing(secret) => {
                    let message = format!("Secret {secret} is missing: create it, or change the RouterConfig");
                    line.turn(TargetState::Unreachable, message.into(), now);
                    line.known = true;
                }
                Secrets::Known(tls, credentials) => {
                    self.incarnation += 1;
                    line.incarnation = self.incarnation;
                    line.rotating = false;
                    line.revisions = (*tls, *credentials);
                    line.turn(TargetState::Connecting, "connecting".into(), now);
                    started.push((id, self.incarnation));
                }
            }
        }
        for (id, incarnation) in started {
            self.start(&id, incarnation);
        }
    }

    fn start(&mut self, id: &TargetId, incarnation: u64) {
        let Some(config) = self.configs.get(&id.config) else { return };
        let (target, object) = (id.clone(), &config.obj);
        match id.plane {
            Plane::Broker => {
                let Some(broker) = config.targets.get(&id.name).map(|t| t.broker.clone()) else { return };
                self.out.targets.push(TargetChange::Start {
                    target,
                    incarnation,
                    broker,
                    user: format!("waystation:{}", object.owner).into(),
                    tls_secret: object.tls_secret.clone(),
                    credentials_secret: object.credentials_secret.clone(),
                });
                self.send_needed(id);
            }
            Plane::Router => {
                let Some(router) = config.routers.targets.get(&id.name).map(|r| r.spec.clone()) else { return };
                self.out.targets.push(TargetChange::StartRouter {
                    target,
                    incarnation,
                    router,
                    owner: object.owner.clone(),
                    tls_secret: object.router_tls_secret.clone(),
                    credentials_secret: object.router_credentials_secret.clone(),
                });
            }
        }
    }

    /// Reconnects targets whose Secret changed: those that are not connected at once, the others one at a time, the
    /// next only when the one before serves again. So contents that nobody takes cost one connection and not all.
    fn rotate(&mut self, key: &Key) {
        for plane in [Plane::Broker, Plane::Router] {
            let Some(config) = self.configs.get(key) else { return };
            let Secrets::Known(tls, credentials) = self.secrets_of(config, plane) else { continue };
            let wanted = (tls, credentials);
            let Some(config) = self.configs.get_mut(key) else { return };
            let [tls_secret, credentials_secret] = named(&config.obj, plane).map(Clone::clone);
            let mut busy = config.lines_mut().any(|(id, line)| id.plane == plane && line.rotating);
            for (target, line) in config.lines_mut().filter(|(id, _)| id.plane == plane) {
                if !line.started() || line.revisions == wanted {
                    continue;
                }
                if line.connected() {
                    if busy && !line.rotating {
                        continue;
                    }
                    (busy, line.rotating) = (true, true);
                }
                line.revisions = wanted;
                let (tls_secret, credentials_secret) = (tls_secret.clone(), credentials_secret.clone());
                let incarnation = line.incarnation;
                self.out.targets.push(TargetChange::Reconnect { target, incarnation, tls_secret, credentials_secret });
            }
        }
    }

    /// Has the routers read and compared now.
    pub(super) fn compare_routers(&mut self, key: &Key) {
        let now = self.now.mono_ms;
        let Some(config) = self.configs.get_mut(key) else { return };
        for router in config.routers.targets.values_mut().filter(|router| router.line.resync_ms.is_some()) {
            router.line.resync_ms = Some(now);
        }
        self.dirty_configs.insert(key.clone());
    }

    fn resync(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        let asked = config.obj.resync.is_some() && config.obj.resync != config.resynced;
        if asked {
            config.resynced = config.obj.resync.clone();
        }
        let now = self.now.mono_ms;
        let mut next: Option<u64> = None;
        for (target, line) in config.lines_mut() {
            let due = line.resync_ms.is_some_and(|at| at <= now);
            if (asked || due) && line.connected() && !line.reading {
                line.resync_ms = None;
                self.out.targets.push(TargetChange::Reread { target, incarnation: line.incarnation });
            }
            next = next.into_iter().chain(line.resync_ms).min();
        }
        if let Some(at) = next {
            self.wake_at(at.max(now + 1), Timer::Config(key.clone()));
        }
    }

    /// Carries out `waystation.dev/prune-orphans` once for each new value, on every broker once: what becomes an orphan
    /// later was seen by nobody who asked for it.
    fn prune(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        if config.obj.prune_orphans.is_none() || config.obj.prune_orphans == config.pruned {
            return;
        }
        let mut slots: Vec<(TargetId, Slot)> = Vec::new();
        let mut left = false;
        for (name, target) in &mut config.targets {
            if target.pruned == config.obj.prune_orphans {
                continue;
            }
            if !target.line.read_once || !target.line.connected() {
                left = true;
                continue;
            }
            target.pruned = config.obj.prune_orphans.clone();
            let id = TargetId::broker(key.clone(), name.clone());
            slots.extend(std::mem::take(&mut target.orphans).into_keys().map(|slot| (id.clone(), slot)));
        }
        if !left {
            config.pruned = config.obj.prune_orphans.clone();
        }
        for (id, slot) in slots {
            self.take_away_leftover(&id, &slot, Want::Gone { only_if_empty: false });
        }
    }

    /// Stops a target for good: what it held is let go of.
    fn drop_target(&mut self, id: &TargetId) {
        let Some(config) = self.configs.get_mut(&id.config) else { return };
        let owner = config.obj.owner.clone();
        let Some(target) = config.targets.remove(&id.name) else { return };
        self.unlist_node(id, Some(owner), target.node.clone());
        if target.line.incarnation != 0 {
            self.out.targets.push(TargetChange::Stop { target: id.clone(), incarnation: target.line.incarnation });
        }
        for (holder, want) in target.slots.values().filter_map(|s| Some((s.holder.as_ref()?, s.want))) {
            let taken = self.addresses.get(holder).is_some_and(|a| a.taken);
            self.let_go(holder, id);
            if let Some(address) = self.addresses.get_mut(holder) {
                // What its space gets in place of this one never held it.
                address.taken = taken || (address.taken && want != Want::Hold);
            }
            self.dirty_addresses.insert(holder.clone());
        }
        self.displace(&id.name, target.placed, target.weights);
        self.mark_spaces_of(&id.config);
    }

    /// Stops every target of a RouterConfig, as when it vanishes or leadership is lost.
    pub(super) fn stop_targets(&mut self, key: &Key) {
        let Some(config) = self.configs.get_mut(key) else { return };
        let (targets, routers) = (std::mem::take(&mut config.targets), std::mem::take(&mut config.routers));
        config.unplaced.clear();
        config.short.clear();
        let owner = config.obj.owner.clone();
        for (name, target) in targets {
            let id = TargetId::broker(key.clone(), name);
            self.unlist_node(&id, Some(owner.clone()), target.node.clone());
            if target.line.started() {
                let incarnation = target.line.incarnation;
                self.out.targets.push(TargetChange::Stop { target: id.clone(), incarnation });
            }
            for holder in target.slots.values().filter_map(|s| s.holder.as_ref()) {
                let in_force = self.addresses.get(holder).and_then(|a| a.in_force);
                self.let_go(holder, &id);
                if let Some(address) = self.addresses.get_mut(holder) {
                    (address.in_force, address.taken) = (in_force, false);
                    address.leaving.clear();
                }
            }
            self.displace(&id.name, target.placed, target.weights);
        }
        for (name, router) in routers.targets {
            if router.line.started() {
                let target = TargetId::router(key.clone(), name);
                let incarnation = router.line.incarnation;
                self.out.targets.push(TargetChange::Stop { target, incarnation });
            }
        }
        for holder in routers.slots.values().filter_map(|s| s.holder.as_ref()) {
            if let Some(address) = self.addresses.get_mut(holder) {
                address.route = None;
                address.forwards.clear();
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

impl ConfigState {
    /// Every connection: brokers, then routers, by name.
    pub(super) fn lines_mut(&mut self) -> impl Iterator<Item = (TargetId, &mut Line)> {
        let key = &self.obj.meta.key;
        let brokers =
            self.targets.iter_mut().map(|(name, t)| (TargetId::broker(key.clone(), name.clone()), &mut t.line));
        let routers = self.routers.targets.iter_mut();
        brokers.chain(routers.map(|(name, r)| (TargetId::router(key.clone(), name.clone()), &mut r.line)))
    }
}

/// The Secrets by which brokers or routers are reached: for TLS, and for the login.
fn named(object: &input::RouterConfig, plane: Plane) -> [&Option<Key>; 2] {
    match plane {
        Plane::Broker => [&object.tls_secret, &object.credentials_secret],
        Plane::Router => [&object.router_tls_secret, &object.router_credentials_secret],
    }
}
