//! What is to be removed and still in use: tried again by timer, so that nothing waits for it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::order::Limits;
use crate::edge::runtime::carry::Step;
use crate::edge::wanted::Slot;
use crate::engine::jitter::doubling;

/// What leaves.
#[derive(Default)]
pub(super) struct Leaving {
    slots: BTreeMap<Slot, Entry>,
}

struct Entry {
    step: Step,
    tries: u32,
    at: Instant,
}

impl Leaving {
    /// It is still in use, again.
    pub fn busy(&mut self, step: Step, now: Instant, limits: &Limits) {
        let Some(slot) = step.slots.first().cloned() else { return };
        let tries = self.slots.get(&slot).map_or(0, |entry| entry.tries + 1);
        let at = now + doubling(limits.leave_first, limits.leave_longest, tries);
        self.slots.insert(slot, Entry { step, tries, at });
    }

    /// It is to be removed when requests that are on their way to it have come there.
    pub fn later(&mut self, step: Step, now: Instant, limits: &Limits) {
        let Some(slot) = step.slots.first().cloned() else { return };
        self.slots.insert(slot, Entry { step, tries: 0, at: now + limits.linger });
    }

    /// It is gone, or wanted again.
    pub fn remove(&mut self, slot: &Slot) {
        self.slots.remove(slot);
    }

    /// What leaves, by where it is.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.keys()
    }

    /// The process is another one.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    pub fn contains(&self, slot: &Slot) -> bool {
        self.slots.contains_key(slot)
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// When something is to be tried.
    pub fn next(&self) -> Option<Instant> {
        self.slots.values().map(|entry| entry.at).min()
    }

    /// What is to be tried now: servers before the backends that wait for them, these before stores.
    pub fn due(&self, now: Instant) -> Vec<Step> {
        let due = self.slots.iter().filter(|(_, entry)| entry.at <= now);
        let mut steps: Vec<(u8, Step)> = due.map(|(slot, entry)| (rank(slot), entry.step.clone())).collect();
        steps.sort_by_key(|(rank, _)| *rank);
        steps.into_iter().map(|(_, step)| step).collect()
    }
}

fn rank(slot: &Slot) -> u8 {
    match slot {
        Slot::Server(..) | Slot::CrtList(_) => 0,
        Slot::Backend(_) => 1,
        _ => 2,
    }
}
