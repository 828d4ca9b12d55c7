//! What a broker holds against what it must hold. The one place that walks all slots of a target, once for each read.

use super::Model;
use super::state::{Progress, SlotState, Want};
use crate::messaging::broker::{Class, is_ground};
use crate::messaging::entry::{Effective, leftover, marked, matches_contents};
use crate::messaging::ids::{Slot, TargetId};
use crate::messaging::names;
use crate::messaging::status::TargetState;

/// After the first comparison, one in so many slots is looked at in detail each time.
const SAMPLES: usize = 16;

impl Model {
    /// Compares a target that was read, sends what is missing or different, and counts what nobody stands for.
    pub(super) fn compare(&mut self, id: &TargetId) {
        if self.placing(&id.config) {
            // What was found may yet decide where a space belongs; it is compared once that is known.
            return;
        }
        let acks = self.acks;
        let (resync, now) = (self.timing.resync_ms, self.now);
        let Some(target) = self.target_mut(id) else { return };
        let Some(contents) = target.contents.take() else { return };
        let first = !std::mem::replace(&mut target.line.read_once, true);
        target.sample = (target.sample + 1) % SAMPLES;
        let (sample, mark, filling) = (target.sample, target.line.read_mark, target.line.state == TargetState::Filling);
        target.fill.clear();
        target.line.compared = true;
        let session = target.session_mark;
        let mut slots: Vec<Slot> = target.slots.keys().cloned().collect();
        slots.sort_unstable();
        let (mut send, mut verify, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (index, slot) in slots.into_iter().enumerate() {
            let Some(state) = target.slots.get_mut(&slot) else { continue };
            match (state.want, &state.progress) {
                (_, Progress::Sent(_) | Progress::Gated) => {}
                (Want::Hold, Progress::Acked(at)) if *at > mark => {}
                // No list shows a space's settings: the job itself looks at them, once for each connection and each
                // comparison.
                (Want::Hold, Progress::Acked(at)) if is_ground(&slot) && filling && *at > session => {}
                (Want::Hold, _) if is_ground(&slot) => {
                    state.progress = Progress::Needed;
                    send.push(slot);
                }
                (Want::Hold, Progress::Acked(_) | Progress::Restored) => {
                    if matches_contents(&state.entry, &contents) {
                        state.progress = Progress::Acked(acks);
                        if first || index % SAMPLES == sample {
                            verify.push(slot);
                        }
                    } else {
                        state.progress = Progress::Needed;
                        target.line.repaired.push(slot.clone());
                        send.push(slot);
                    }
                }
                // Asked when its turn comes.
                (Want::Drain, Progress::NotEmpty) if contents.queues.get(&slot).is_some_and(|q| q.messages > 0) => {}
                (Want::Gone { only_if_empty: true }, Progress::NotEmpty) => {
                    match contents.queues.get(&slot).map(|q| q.messages) {
                        None => lost.push(slot),
                        Some(0) => send.push(slot),
                        Some(messages) => {
                            target.orphans.insert(slot, messages);
                        }
                    }
                }
                _ => send.push(slot),
            }
        }
        if filling {
            target.fill.extend(send.iter().cloned());
        } else {
            target.line.plan_resync(&id.name, resync, now);
        }
        let gone = std::mem::take(&mut target.gone);
        for slot in lost {
            self.forget(id, &slot);
        }
        self.count_leftovers(id, &contents, &gone, &mut send);
        for slot in &send {
            self.send(id, slot, Class::Repair);
        }
        self.open_all_gates(id);
        for slot in verify {
            self.send_verify(id, &slot);
        }
        self.serve_if_filled(id);
        self.tell_repairs(id);
        self.dirty_configs.insert(id.config.clone());
    }

    /// Queues of ours that no Address stands for: empty ones go, those with messages are orphans.
    fn count_leftovers(
        &mut self,
        id: &TargetId,
        contents: &crate::messaging::broker::Contents,
        gone: &crate::maps::Set<Slot>,
        send: &mut Vec<Slot>,
    ) {
        let single = self.configs.get(&id.config).is_some_and(|c| c.obj.single);
        let mut orphans = Vec::new();
        for (slot, queue) in &contents.queues {
            if gone.contains(slot) || self.target(id).is_none_or(|t| t.slots.contains_key(slot)) {
                continue;
            }
            let space = if single { None } else { names::space_of(slot) };
            if self.unreadable(single, slot) {
                // An Address that cannot be read may stand for it.
                continue;
            }
            if self.claimed(id, slot) || self.stands_elsewhere(id, slot) {
                // Its Address is there, and refused or waiting now: what it had before stays as it is. Or it is there for
                // the same broker under another name.
                continue;
            }
            let progress = if queue.messages > 0 { Progress::NotEmpty } else { Progress::Needed };
            let state = SlotState {
                tenant: space.unwrap_or_else(|| id.config.clone()),
                holder: None,
                entry: leftover(slot, queue),
                want: Want::Gone { only_if_empty: true },
                progress,
                for_generation: 0,
                effective: Effective::default(),
                seen: false,
                confirmed: false,
                unverified: false,
                had: true,
                replace: false,
                attempts: 0,
            };
            let Some(target) = self.target_mut(id) else { return };
            target.slots.insert(slot.clone(), state);
            if queue.messages > 0 {
                target.orphans.insert(slot.clone(), queue.messages);
                orphans.push((slot.clone(), queue.messages));
            } else {
                send.push(slot.clone());
            }
        }
        for (slot, messages) in orphans {
            self.tell_orphan(id, &slot, messages);
        }
        self.take_leftover_marks(id, contents, gone, send);
    }

    /// What carries our mark and nobody stands for: addresses on which nothing is, and settings of spaces once nothing of
    /// the space is there any more.
    fn take_leftover_marks(
        &mut self,
        id: &TargetId,
        contents: &crate::messaging::broker::Contents,
        gone: &crate::maps::Set<Slot>,
        send: &mut Vec<Slot>,
    ) {
        let Some(config) = self.configs.get(&id.config) else { return };
        let Some(target) = config.targets.get(&id.name) else { return };
        let single = config.obj.single;
        let left = contents.marks.iter().filter(|slot| !gone.contains(*slot) && !target.slots.contains_key(*slot));
        let left = left.filter(|slot| !self.unreadable(single, slot));
        let left = left.filter(|slot| match is_ground(slot) {
            true => self.is_ground_left(id, slot, contents),
            false => {
                // Its subscriptions, and what they hold, go first.
                let used = contents.queues.values().any(|queue| queue.address == **slot);
                !used && !self.claimed(id, slot) && !self.stands_elsewhere(id, slot)
            }
        });
        let left: Vec<Slot> = left.cloned().collect();
        for slot in left {
            let space = names::space_of(&slot).unwrap_or_else(|| id.config.clone());
            let mut state = SlotState::ground(&slot, &space);
            if is_ground(&slot) {
                state.want = Want::Gone { only_if_empty: false };
            } else {
                (state.entry, state.seen) = (marked(&slot), false);
                state.want = Want::Gone { only_if_empty: true };
            }
            let Some(target) = self.target_mut(id) else { return };
            target.slots.insert(slot.clone(), state);
            send.push(slot);
        }
    }

    /// Whether a space is not known by whose settings are there, and nothing of it is.
    fn is_ground_left(&self, id: &TargetId, slot: &Slot, contents: &crate::messaging::broker::Contents) -> bool {
        let Some(space) = names::space_of(slot) else { return false };
        let owner = |key| self.configs.get(key).map(|config| &config.obj.owner);
        let known = self.spaces.get(&space);
        if known.is_some_and(|space| owner(&space.obj.config).is_none_or(|of| Some(of) == owner(&id.config))) {
            return false;
        }
        let prefix = names::prefix(&space, false);
        let within = |other: &&Slot| other.starts_with(&*prefix);
        let from = Slot::from(&*prefix);
        let others = |other: &Slot| other != slot;
        let Some(target) = self.target(id) else { return false };
        let queues = contents.queues.range(from.clone()..).map(|(queue, _)| queue).take_while(within).any(others);
        let marks = contents.marks.range(from..).take_while(within).any(others);
        !queues && !marks && !target.slots.keys().filter(within).any(others)
    }
}
