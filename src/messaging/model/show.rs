//! What is shown of a RouterConfig: the states of its brokers and routers, and its conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::Line;
use super::services::Said;
use super::space::counted;
use super::state::{ConfigState, Progress, SlotState, SpaceState};
use super::verdict::only_held_by;
use super::{Model, Timer};
use crate::messaging::ids::{Key, Kind, Plane, TargetId};
use crate::messaging::output::{Note, Status, Write};
use crate::messaging::reason;
use crate::messaging::status::{Condition, RouterConfigStatus, TargetState, TargetStatus};

impl Model {
    /// Works out which state each target shows, and tells transitions to the spaces on it.
    pub(super) fn show_targets(&mut self, key: &Key) {
        let now = self.now.mono_ms;
        let (outage, down) = (self.timing.outage_ms, self.timing.down_ms);
        let unix_s = self.now.unix_s;
        let Some(config) = self.configs.get_mut(key) else { return };
        let (mut wake, mut turned, mut notes): (Option<u64>, _, _) = (None, Vec::new(), Vec::new());
        let told = config.told.status.clone();
        let at = places(config);
        for (id, line) in config.lines_mut() {
            let row = rows(&told, id.plane).iter().find(|row| row.name == id.name);
            let before = row.map(|row| row.state);
            let at = at.get(&id).cloned().unwrap_or_else(|| id.to_string());
            let (shown, until) = line.to_show(before, now, outage, down);
            wake = wake.into_iter().chain(until).min();
            match (shown, line.state) {
                (Some(TargetState::Unreachable), TargetState::Unreachable) if line.logs(shown != line.shown) => {
                    notes.push((true, format!("{at}: {}", line.message)));
                }
                (Some(TargetState::Serving), _) if shown != line.shown => {
                    // What another process saw go is as long away as the status says.
                    let away_s = match (line.shown, row) {
                        (None, Some(row)) if row.state == TargetState::Unreachable => unix_s - row.since_s,
                        (None, _) => 0,
                        _ => i64::try_from(now.saturating_sub(line.down_ms) / 1000).unwrap_or_default(),
                    };
                    let again = if away_s > 0 { format!(" again after {away_s}s") } else { String::new() };
                    notes.push((false, format!("{at} serves{again}")));
                    line.logged.clear();
                }
                _ => {}
            }
            if shown != line.shown {
                if let Some(shown) = shown {
                    turned.push((id, shown, line.shown.or(before), line.message.clone(), at));
                }
                line.shown = shown;
            }
        }
        let uid = config.obj.meta.uid.clone();
        if let Some(at) = wake {
            self.wake_at(at, Timer::Config(key.clone()));
        }
        let notes = notes.into_iter().map(|(warning, message)| Note { config: key.clone(), warning, message });
        self.out.notes.extend(notes);
        for (id, shown, before, message, at) in turned {
            if shown == TargetState::Unreachable && id.plane == Plane::Broker {
                self.mark_waiting(&id);
            }
            for space in self.spaces_of_config.get(key).into_iter().flatten() {
                let concerned = |s: &SpaceState| match id.plane {
                    Plane::Router => s.obj.standard,
                    Plane::Broker => {
                        s.broker.as_ref() == Some(&id.name)
                            || self.members.get(space).is_some_and(|m| m.on.contains_key(&id.name))
                    }
                };
                if self.spaces.get(space).is_some_and(concerned) {
                    self.stale_spaces.insert(space.clone());
                }
            }
            let unreachable = match id.plane {
                Plane::Broker => reason::BROKER_UNREACHABLE,
                Plane::Router => reason::ROUTER_UNREACHABLE,
            };
            let serving = match id.plane {
                Plane::Broker => reason::event::BROKER_SERVING,
                Plane::Router => reason::event::ROUTER_SERVING,
            };
            match (before, shown) {
                (Some(TargetState::Unreachable), TargetState::Serving) => {
                    self.event(Kind::RouterConfig, key, &uid, false, serving, format!("{id} serves again"));
                }
                (was, TargetState::Unreachable) if was != Some(TargetState::Unreachable) => {
                    self.event(Kind::RouterConfig, key, &uid, true, unreachable, format!("{at}: {message}"));
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
        let mut wanted = if done { config.told.latest().clone() } else { self.config_status(config) };
        let meta = &config.obj.meta;
        let others = meta.others.as_ref().filter(|_| meta.deleting && (done || !config.told.latest_finalizer()));
        if let Some(others) = others {
            if done {
                // Nobody looks at them any more.
                (wanted.brokers, wanted.routers) = Default::default();
            }
            let since_s = wanted.ready.as_ref().filter(|c| !c.status).map_or(self.now.unix_s, |c| c.since_s);
            let (reason, message, generation) = (reason::TERMINATING, only_held_by(others), meta.generation);
            wanted.ready = Some(Condition { status: false, reason, message, generation, since_s });
        }
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
        let orphans: i64 = config.targets.values().map(|t| t.orphans.len() as i64).sum();
        let all_read = config.targets.values().all(|t| t.line.read_once);
        let mut wanted = RouterConfigStatus {
            owner: Some(config.obj.owner.clone()),
            // A broker that was not read yet may hold what was told before.
            orphans: if all_read { orphans } else { orphans.max(told.orphans) },
            orphans_pruned: config.pruned.clone(),
            resynced: config.resynced.clone(),
            ..told.clone()
        };
        let mut serving = true;
        let mut trouble: Option<(&'static str, String)> = None;
        let mut known = true;
        let lost: Vec<String> = self.secrets_lost(config).map(Key::to_string).collect();
        let mut read = |id: TargetId, line: &Line, note: Option<String>, into: &mut Vec<TargetStatus>| {
            let before = rows(told, id.plane).iter().find(|row| row.name == id.name);
            let Some(state) = line.shown else {
                known = false;
                into.extend(before.cloned());
                return;
            };
            let mut message: Arc<str> = if state == line.state {
                line.message.clone()
            } else {
                before.map(|b| b.message.clone()).unwrap_or_default()
            };
            if let Some(note) = note.filter(|_| line.refused.is_none()) {
                message = note.into();
            }
            if state != TargetState::Serving {
                serving = false;
                let word = match (state, id.plane) {
                    (TargetState::Unreachable, Plane::Broker) => reason::BROKER_UNREACHABLE,
                    (TargetState::Unreachable, Plane::Router) => reason::ROUTER_UNREACHABLE,
                    (TargetState::Filling, _) => reason::FILLING,
                    _ => reason::CONNECTING,
                };
                let secret = message.starts_with("Secret ") && !line.started();
                let word = if secret { reason::SECRET_NOT_FOUND } else { word };
                let word = if line.refused.is_some() { reason::SAME_BROKER } else { word };
                trouble.get_or_insert((word, format!("{id}: {message}")));
            }
            let since_s = match before {
                Some(before) if before.state == state => before.since_s,
                _ => line.since_s,
            };
            into.push(TargetStatus { name: id.name, state, message, since_s });
        };
        let lost =
            (!lost.is_empty()).then(|| format!("Secret {} is missing: its last contents are in use", lost.join(", ")));
        let (mut brokers, mut routers) = (Vec::new(), Vec::new());
        for (name, target) in &config.targets {
            read(TargetId::broker(meta.key.clone(), name.clone()), &target.line, lost.clone(), &mut brokers);
        }
        for (name, router) in &config.routers.targets {
            let mut cut = router.connectors.iter().filter_map(|(broker, why)| Some((broker, why.as_ref()?)));
            let cut = cut.next().filter(|_| router.line.serving());
            let cut = cut.map(|(broker, why)| format!("it has no connection to broker {broker}: {why}"));
            let id = TargetId::router(meta.key.clone(), name.clone());
            read(id, &router.line, lost.clone().or(cut), &mut routers);
        }
        match self.said_of_routers(config) {
            Said::Fine => {}
            Said::Unknown => {
                known = false;
                let lost = told.routers.iter().filter(|row| !config.routers.targets.contains_key(&row.name));
                routers.extend(lost.cloned());
                routers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            }
            Said::Trouble((word, message)) => {
                serving = false;
                trouble.get_or_insert((word, message.to_string()));
            }
        }
        (wanted.brokers, wanted.routers) = (brokers, routers);
        let now = self.now.unix_s;
        let condition = |before: &Option<Condition>, status, reason, message: Arc<str>| {
            let since_s = before.as_ref().filter(|c| c.status == status).map_or(now, |c| c.since_s);
            Some(Condition { status, reason, message, generation: meta.generation, since_s })
        };
        wanted.accepted = condition(&told.accepted, true, reason::ACCEPTED, "".into());
        if meta.deleting {
            let spaces = self.spaces_of_config.get(&meta.key).map_or(0, |s| s.len() as i64);
            let first = self.spaces_of_config.get(&meta.key).and_then(|s| s.first()).map(Key::to_string);
            let message = format!(
                "waits for {}, first {}: delete them with kubectl delete addressspace",
                counted(spaces, "AddressSpace that uses it", "AddressSpaces that use it"),
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
}

/// What people call each broker and router, and where it is: `broker eu1 at 10.0.0.7:5672`.
fn places(config: &ConfigState) -> BTreeMap<TargetId, String> {
    let key = &config.obj.meta.key;
    let at = |id: TargetId, host: &str, port: u16| {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let text = format!("{id} at {host}:{port}");
        (id, text)
    };
    let brokers = config.targets.iter();
    let brokers =
        brokers.map(|(name, t)| at(TargetId::broker(key.clone(), name.clone()), &t.broker.host, t.broker.port));
    let routers = config.routers.targets.iter();
    let routers = routers.map(|(name, r)| at(TargetId::router(key.clone(), name.clone()), &r.spec.host, r.spec.port));
    brokers.chain(routers).collect()
}

fn rows(status: &RouterConfigStatus, plane: Plane) -> &[TargetStatus] {
    match plane {
        Plane::Broker => &status.brokers,
        Plane::Router => &status.routers,
    }
}
