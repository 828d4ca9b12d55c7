//! What is to be removed and still in use: tried again by timer, so that nothing waits for it.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::order::Limits;
use crate::edge::order::{self, Place};
use crate::edge::runtime::carry::Step;
use crate::edge::wanted::{Change, Slot};
use crate::engine::jitter::doubling;

/// What leaves.
#[derive(Default)]
pub(super) struct Leaving {
    slots: BTreeMap<Slot, Entry>,
    /// Servers that have not been told yet, by where they are: requests that are on their way come there.
    lingering: BTreeMap<Place, BTreeSet<Slot>>,
}

struct Entry {
    step: Step,
    tries: u32,
    at: Instant,
    place: Option<Place>,
}

impl Leaving {
    /// It is still in use, again.
    pub fn busy(&mut self, step: Step, now: Instant, limits: &Limits) {
        let Some(slot) = step.slots.first().cloned() else { return };
        let tries = self.slots.get(&slot).map_or(0, |entry| entry.tries + 1);
        let at = now + doubling(limits.leave_first, limits.leave_longest, tries);
        self.remove(&slot);
        self.slots.insert(slot, Entry { step, tries, at, place: None });
    }

    /// It is to be removed when requests that are on their way to it have come there; `place`: where it takes them.
    pub fn later(&mut self, step: Step, place: Option<Place>, now: Instant, limits: &Limits) {
        let Some(slot) = step.slots.first().cloned() else { return };
        if let Some(place) = place {
            self.lingering.entry(place).or_default().insert(slot.clone());
        }
        self.slots.insert(slot, Entry { step, tries: 0, at: now + limits.linger, place });
    }

    /// Steps for servers whose address these changes bring to another Service: a request that is still on its way would
    /// come to whom it was not meant for, so they go before it comes.
    pub fn displaced(&self, changes: &[Change]) -> Vec<Step> {
        let mut out = BTreeMap::new();
        for change in changes {
            let Some(place) = order::takes(change.after.as_ref()) else { continue };
            let foreign = |slot: &&Slot| order::service(slot) != order::service(&change.slot);
            for slot in self.lingering.get(&place).into_iter().flatten().filter(foreign) {
                out.extend(self.slots.get(slot).map(|entry| (slot, entry.step.clone())));
            }
        }
        out.into_values().collect()
    }

    /// It is gone, or wanted again.
    pub fn remove(&mut self, slot: &Slot) {
        let place = self.slots.remove(slot).and_then(|entry| entry.place);
        if let Some(place) = place
            && let Some(there) = self.lingering.get_mut(&place)
        {
            there.remove(slot);
            if there.is_empty() {
                self.lingering.remove(&place);
            }
        }
    }

    /// What leaves, by where it is.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.keys()
    }

    /// The process is another one.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.lingering.clear();
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
