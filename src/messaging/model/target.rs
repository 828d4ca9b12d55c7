//! Brokers: connections as they come and go, and answers to jobs.

use std::sync::Arc;

use super::state::{AddressState, Progress, Target, Want};
use super::{Model, Timer};
use crate::messaging::broker::{Class, Done, Outcome, is_ground};
use crate::messaging::ids::{Kind, Plane, Slot, TargetId};
use crate::messaging::input::Link;
use crate::messaging::names;
use crate::messaging::reason;
use crate::messaging::status::TargetState;

impl Model {
    pub(super) fn target(&self, id: &TargetId) -> Option<&Target> {
        self.configs.get(&id.config)?.targets.get(&id.name)
    }

    pub(super) fn target_mut(&mut self, id: &TargetId) -> Option<&mut Target> {
        self.configs.get_mut(&id.config)?.targets.get_mut(&id.name)
    }

    pub(super) fn apply_link(&mut self, id: &TargetId, incarnation: u64, link: Link) {
        let (now, acks) = (self.now, self.acks);
        let Some(target) = self.target_mut(id).filter(|t| t.line.incarnation == incarnation) else { return };
        match link {
            Link::Outcome(outcome) => {
                self.apply_outcome(id, outcome);
                return;
            }
            Link::Connected(node) => {
                if !self.recognize(id, node) {
                    return;
                }
                let Some(target) = self.target_mut(id) else { return };
                target.line.turn(TargetState::Filling, "reading what the broker holds".into(), now);
                target.line.reading = true;
                target.contents = None;
                (target.line.compared, target.session_mark) = (false, acks);
                self.hold_grounds(id);
            }
            Link::Reading => {
                target.line.begin_read(acks, now.mono_ms);
                target.gone.clear();
            }
            Link::Contents(contents) => {
                let first = !target.line.compared;
                target.line.end_read(now.mono_ms);
                target.contents = Some(contents);
                self.to_compare.insert(id.clone());
                self.mark_unplaced(id);
                if first {
                    self.call_the_short(&id.config);
                }
            }
            Link::Unreadable(words) | Link::Down(words) => {
                (target.line.reading, target.contents, target.line.resync_ms) = (false, None, None);
                (target.line.compared, target.session_mark) = (false, acks);
                target.line.turn(TargetState::Unreachable, words, now);
            }
            Link::Lost(slot) => self.apply_lost(id, &slot),
        }
        self.dirty_configs.insert(id.config.clone());
    }

    /// A queue or address of ours was taken away by somebody else.
    fn apply_lost(&mut self, id: &TargetId, slot: &Slot) {
        let Some(target) = self.target_mut(id) else { return };
        let orphan = target.orphans.remove(slot).is_some();
        let Some(state) = target.slots.get_mut(slot) else { return };
        match state.want {
            Want::Gone { .. } if orphan => self.forget(id, slot),
            Want::Hold if matches!(state.progress, Progress::Acked(_)) => {
                state.progress = Progress::Needed;
                target.line.repaired.push(slot.clone());
                self.send(id, slot, Class::Repair);
                self.tell_repairs(id);
            }
            Want::Drain if state.progress == Progress::NotEmpty => self.send(id, slot, Class::Repair),
            _ => {}
        }
    }

    fn apply_outcome(&mut self, id: &TargetId, outcome: Outcome) {
        self.acks += 1;
        let (mark, retry_at) = (self.acks, self.now.mono_ms);
        let gated = self.gated(id, &outcome.slot);
        let timing = self.timing.clone();
        let Some(target) = self.target_mut(id) else { return };
        let slot = &outcome.slot;
        let Some(state) = target.slots.get_mut(slot) else { return };
        if state.progress != Progress::Sent(outcome.generation) {
            // An answer to a comparison in detail: only a repair is news, and a refusal, which is tried again.
            let held = matches!(state.progress, Progress::Acked(_));
            if held && matches!(outcome.result, Ok(Done::Held | Done::Repaired)) {
                state.confirmed = true;
                // What the RouterConfig says of it may have changed while nobody looked.
                let (effective, generation, holder) = (state.effective, state.for_generation, state.holder.clone());
                let address = holder.as_ref().and_then(|holder| self.addresses.get(holder));
                let news =
                    |a: &&AddressState| a.effective != effective || a.in_force != Some(generation) || !a.settled();
                if let Some(address) = address.filter(news) {
                    self.dirty_addresses.insert(address.obj.meta.key.clone());
                }
            }
            let Some(target) = self.target_mut(id) else { return };
            match outcome.result {
                Ok(Done::Repaired) => {
                    target.line.repaired.push(slot.clone());
                    self.tell_repairs(id);
                }
                Err(_) if held => {
                    let Some(state) = target.slots.get_mut(slot) else { return };
                    state.unverified = true;
                    let after = backoff(timing.retry_ms, timing.retry_cap_ms, state.attempts);
                    state.attempts += 1;
                    self.wake_at(retry_at + after, Timer::Slot(id.clone(), slot.clone()));
                }
                _ => {}
            }
            return;
        }
        let holder = state.holder.clone();
        let mut again: Option<u64> = None;
        match outcome.result {
            Ok(Done::Held | Done::Repaired) => {
                (state.progress, state.attempts, state.replace) = (Progress::Acked(mark), 0, false);
                (state.unverified, state.confirmed, state.had) = (false, true, true);
                self.open_gates(id, slot);
            }
            Ok(Done::Gone) => {
                target.slots.remove(slot);
                target.orphans.remove(slot);
                target.draining.over(slot);
                target.gone.insert(slot.clone());
                self.open_gates(id, slot);
                if is_ground(slot) {
                    self.space_cleared(id, slot);
                }
                if let Some(holder) = &holder {
                    self.let_go(holder, id);
                }
                // Another Address of the same name may have waited for it to go.
                self.mark_slot_claimants(slot, id);
            }
            Ok(Done::NotEmpty { messages }) => match state.want {
                Want::Drain => {
                    state.progress = Progress::NotEmpty;
                    again = Some(target.draining.found(slot, messages, retry_at, &timing) - retry_at);
                }
                // Somebody receives there, or has a queue on it: it is looked at again with the next comparison.
                _ if state.entry.queue.is_none() => drop(target.slots.remove(slot)),
                _ => {
                    state.progress = Progress::NotEmpty;
                    target.orphans.insert(slot.clone(), messages);
                    self.tell_orphan(id, slot, messages);
                }
            },
            // Sent on an earlier connection, before what it needs: it goes again after that.
            Err(_) if gated => self.send(id, slot, Class::Repair),
            Err(words) => {
                state.progress = Progress::Refused(words.into());
                again = Some(backoff(timing.retry_ms, timing.retry_cap_ms, state.attempts));
                state.attempts += 1;
                self.excuse(id, slot);
                if is_ground(slot) {
                    self.space_cleared(id, slot);
                }
            }
        }
        if let Some(after) = again {
            self.wake_at(retry_at + after, Timer::Slot(id.clone(), slot.clone()));
        }
        self.dirty_addresses.extend(holder);
        self.filled(id, slot);
    }

    /// What a space shared is gone from a broker, or cannot be taken away: a space that is deleted waits no longer.
    fn space_cleared(&mut self, id: &TargetId, slot: &Slot) {
        let Some(key) = names::space_of(slot) else { return };
        if let Some(space) = self.spaces.get_mut(&key).filter(|s| s.obj.meta.deleting && s.obj.config == id.config) {
            if space.obj.standard {
                space.cleared_on.insert(id.name.clone());
                self.dirty_spaces.insert(key.clone());
            } else {
                space.cleared = true;
            }
            self.stale_spaces.insert(key);
        }
    }

    /// One of the slots that a target must hold before it serves has been answered.
    fn filled(&mut self, id: &TargetId, slot: &Slot) {
        let Some(target) = self.target_mut(id) else { return };
        if target.fill.remove(slot) {
            self.serve_if_filled(id);
        }
    }

    /// A target that was read, compared and completed serves.
    pub(super) fn serve_if_filled(&mut self, id: &TargetId) {
        let now = self.now;
        let resync = self.timing.resync_ms;
        let Some(target) = self.target_mut(id) else { return };
        if target.line.state != TargetState::Filling
            || !target.line.read_once
            || target.contents.is_some()
            || target.line.reading
        {
            return;
        }
        if target.fill.is_empty() {
            target.line.turn(TargetState::Serving, "".into(), now);
            target.line.rotating = false;
            if target.line.resync_ms.is_none() {
                target.line.plan_resync(&id.name, resync, now);
            }
            self.tell_repairs(id);
            self.dirty_configs.insert(id.config.clone());
        }
    }

    /// Sends a slot again whose last attempt was refused or found messages.
    pub(super) fn retry_slot(&mut self, id: &TargetId, slot: &Slot) {
        let now = self.now.mono_ms;
        let Some(target) = self.target_mut(id) else { return };
        let Some(state) = target.slots.get(slot) else { return };
        let retry = match (&state.progress, state.want) {
            (Progress::Refused(_), _) => true,
            (Progress::NotEmpty, Want::Drain) => target.draining.is_due(slot, now),
            (Progress::Acked(_), Want::Hold) => state.unverified,
            _ => false,
        };
        if retry {
            self.send(id, slot, Class::Repair);
        }
    }

    /// One event for what a comparison mended, however much it was.
    pub(super) fn tell_repairs(&mut self, id: &TargetId) {
        let Some(config) = self.configs.get_mut(&id.config) else { return };
        let (line, filled) = match id.plane {
            Plane::Broker => match config.targets.get_mut(&id.name) {
                Some(target) => (&mut target.line, target.fill.is_empty()),
                None => return,
            },
            Plane::Router => match config.routers.targets.get_mut(&id.name) {
                Some(router) => (&mut router.line, router.fill.is_empty()),
                None => return,
            },
        };
        if line.state == TargetState::Filling && !filled {
            return;
        }
        let repaired = std::mem::take(&mut line.repaired);
        if repaired.is_empty() {
            return;
        }
        self.out.repairs += repaired.len() as u64;
        let names: Vec<&str> = repaired.iter().take(3).map(|s| &**s).collect();
        let more = if repaired.len() > 3 { format!(" and {} more", repaired.len() - 3) } else { String::new() };
        let text = format!("{id}: was missing or different, and is mended: {}{more}", names.join(", "));
        if let Some(uid) = self.configs.get(&id.config).map(|c| c.obj.meta.uid.clone()) {
            self.event(Kind::RouterConfig, &id.config, &uid, true, reason::event::REPAIRED, text);
        }
    }

    pub(super) fn tell_orphan(&mut self, id: &TargetId, slot: &Slot, messages: u64) {
        let text = format!(
            "broker {}: queue {slot} holds {messages} messages and no Address stands for it; create the Address again, \
             or destroy it with: kubectl annotate rcfg -n {} {} --overwrite waystation.dev/prune-orphans=$(date +%s)",
            id.name, id.config.namespace, id.config.name
        );
        if let Some(uid) = self.configs.get(&id.config).map(|c| c.obj.meta.uid.clone()) {
            self.event(Kind::RouterConfig, &id.config, &uid, true, reason::event::ORPHANED_QUEUE, text);
        }
        self.stale_configs.insert(id.config.clone());
    }

    /// What an outage is called on an object that waits for this target.
    pub(super) fn outage(id: &TargetId) -> (&'static str, Arc<str>) {
        let text =
            format!("{id} does not answer: see kubectl describe rcfg -n {} {}", id.config.namespace, id.config.name);
        (reason::BROKER_UNREACHABLE, text.into())
    }
}

pub(super) fn backoff(first: u64, cap: u64, attempts: u32) -> u64 {
    first.saturating_mul(1 << attempts.min(16)).min(cap)
}

/// A number below `range` that is always the same for a name: spreads periodic work without chance.
pub(super) fn spread(name: &str, range: u64) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    if range == 0 { 0 } else { hash % range }
}
