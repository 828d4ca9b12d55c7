//! What waits to be carried out for one target, or for the status writer.
//!
//! The newest item of a slot wins while it waits; at most one item of a slot is in flight. Changes go before repairs,
//! and inside each of these two lanes tenants are served in turn, so that neither a restart's comparison nor another
//! tenant's bulk stands before a new item. One side puts, one or more workers take; every operation costs a constant
//! (amortized), and nothing but [`Mailbox::take`] waits.
//!
//! Invariant: a waiting slot stands in exactly one line (or is parked behind its own item in flight), and a tenant is
//! in a lane's turn exactly while it has a line there.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use tokio::sync::Notify;

/// Which work goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody changed something and waits.
    Change,
    /// Refilling, comparing, words about waiting.
    Repair,
}

/// Something that can wait in a mailbox.
pub trait Item: Clone {
    /// What it is about: newer items of a slot take the place of older ones.
    type Slot: Clone + Eq + Hash;
    /// Whose turn it takes.
    type Tenant: Clone + Eq + Hash;

    /// What it is about.
    fn slot(&self) -> Self::Slot;
    /// Whose turn it takes.
    fn tenant(&self) -> &Self::Tenant;
    /// Its lane.
    fn class(&self) -> Class;
    /// Tells items of one slot apart.
    fn generation(&self) -> u64;
}

/// A mailbox. Clones are the same one.
pub struct Mailbox<J: Item>(Arc<Shared<J>>);

impl<J: Item> Clone for Mailbox<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J: Item> Default for Mailbox<J> {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new()), arrived: Notify::new() }))
    }
}

struct Shared<J: Item> {
    state: Mutex<State<J>>,
    arrived: Notify,
}

impl<J: Item> Mailbox<J> {
    /// Takes in an item; an older one of its slot that still waits is forgotten, and then the answer is true. Ignored
    /// after [`Self::close`].
    pub fn put(&self, item: J) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        let superseded = state.put(item);
        drop(state);
        self.0.arrived.notify_one();
        superseded
    }

    /// Waits until something may go and takes up to `max` items, of `lowest` class or better. Empty once closed (and
    /// only then). Nothing is lost when the future is dropped.
    pub async fn take(&self, max: usize, lowest: Class) -> Vec<J> {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(taken) = self.try_take(max, lowest) {
                return taken;
            }
            arrived.await;
        }
    }

    /// What may go now; `None` when nothing may, empty once closed.
    fn try_take(&self, max: usize, lowest: Class) -> Option<Vec<J>> {
        let mut state = self.state();
        if state.closed {
            // Another worker may be waiting as well.
            self.0.arrived.notify_one();
            return Some(Vec::new());
        }
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(item) = state.take(lowest)
        {
            taken.push(item);
        }
        let more = state.lanes.iter().any(|lane| !lane.turn.is_empty());
        drop(state);
        if taken.is_empty() {
            return None;
        }
        if more {
            self.0.arrived.notify_one();
        }
        Some(taken)
    }

    /// The item of this slot and generation is no longer in flight: a newer one of the slot may go. Says whether it
    /// was in flight.
    pub fn done(&self, slot: &J::Slot, generation: u64) -> bool {
        let mut state = self.state();
        let known = state.done(slot, generation);
        drop(state);
        self.0.arrived.notify_one();
        known
    }

    /// Answers of items in flight will not come: those that are not superseded go to the front again, in their old
    /// order.
    pub fn lost(&self) {
        self.state().lost();
        self.0.arrived.notify_one();
    }

    /// One item in flight shall be tried again later, unless a newer one of its slot has come: it goes to the end of
    /// its line. Says whether it waits again.
    pub fn again(&self, slot: &J::Slot, generation: u64) -> bool {
        let mut state = self.state();
        let waits = state.again(slot, generation);
        drop(state);
        self.0.arrived.notify_one();
        waits
    }

    /// Whether a newer item of the slot waits behind the one in flight.
    pub fn superseded(&self, slot: &J::Slot) -> bool {
        self.state().waiting.contains_key(slot)
    }

    /// Whether the item of this slot and generation is in flight still: it may have been forgotten since.
    pub fn flies(&self, slot: &J::Slot, generation: u64) -> bool {
        self.state().flying.get(slot).is_some_and(|flying| flying.item.generation() == generation)
    }

    /// Forgets everything, also what is in flight: whoever put it knows better by now. Says how much that was.
    pub fn clear(&self) -> usize {
        let mut state = self.state();
        let forgotten = state.waiting.len() + state.flying.len();
        state.waiting.clear();
        state.flying.clear();
        state.lanes = [Lane::new(), Lane::new()];
        forgotten
    }

    /// Items of a class that wait.
    pub fn depth(&self, class: Class) -> usize {
        self.state().lanes[class as usize].depth
    }

    /// Items that were taken and not answered.
    pub fn in_flight(&self) -> usize {
        self.state().flying.len()
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.flying.is_empty()
    }

    /// Nothing is taken in or handed out any more; those who wait get an empty answer.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.waiting.clear();
        state.lanes = [Lane::new(), Lane::new()];
        drop(state);
        self.0.arrived.notify_waiters();
        self.0.arrived.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        // Nothing panics while the lock is held, and the state is whole between any two statements that could.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Map<K, V> = HashMap<K, V, RandomState>;

fn map<K, V>() -> Map<K, V> {
    // Fixed seeds: two runs with the same inputs do the same.
    Map::with_hasher(RandomState::with_seeds(0x5741, 0x5953, 0x5441, 0x5449))
}

struct State<J: Item> {
    waiting: Map<J::Slot, Waiting<J>>,
    flying: Map<J::Slot, Flying<J>>,
    lanes: [Lane<J>; 2],
    /// Numbers places in line and departures.
    ticket: u64,
    closed: bool,
}

struct Waiting<J> {
    item: J,
    lane: Class,
    /// Its place in line; a place with another number is stale and skipped.
    ticket: u64,
    /// Its turn came while another item of its slot was in flight: it has no place in line and goes to the front when
    /// that one is done.
    parked: bool,
}

struct Flying<J> {
    item: J,
    lane: Class,
    departure: u64,
}

struct Lane<J: Item> {
    lines: Map<J::Tenant, VecDeque<(J::Slot, u64)>>,
    turn: VecDeque<J::Tenant>,
    depth: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Front,
    Back,
}

impl<J: Item> Lane<J> {
    fn new() -> Self {
        Self { lines: map(), turn: VecDeque::new(), depth: 0 }
    }

    fn stand(&mut self, tenant: &J::Tenant, place: (J::Slot, u64), end: End) {
        let line = match self.lines.get_mut(tenant) {
            Some(line) => line,
            None => {
                self.turn.push_back(tenant.clone());
                self.lines.entry(tenant.clone()).or_default()
            }
        };
        match end {
            End::Front => line.push_front(place),
            End::Back => line.push_back(place),
        }
    }
}

impl<J: Item> State<J> {
    fn new() -> Self {
        Self { waiting: map(), flying: map(), lanes: [Lane::new(), Lane::new()], ticket: 0, closed: false }
    }

    fn next_ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    fn put(&mut self, item: J) -> bool {
        if let Some(waiting) = self.waiting.get_mut(&item.slot()) {
            let same_line = waiting.item.tenant() == item.tenant();
            if same_line && item.class() >= waiting.lane {
                waiting.item = item;
                return true;
            }
            let lane = waiting.lane;
            self.lanes[lane as usize].depth -= 1;
            let lane = lane.min(item.class());
            self.enter(item, lane, End::Back);
            true
        } else {
            let lane = item.class();
            self.enter(item, lane, End::Back);
            false
        }
    }

    fn enter(&mut self, item: J, lane: Class, end: End) {
        let ticket = self.next_ticket();
        self.lanes[lane as usize].depth += 1;
        self.lanes[lane as usize].stand(item.tenant(), (item.slot(), ticket), end);
        self.waiting.insert(item.slot(), Waiting { item, lane, ticket, parked: false });
    }

    fn take(&mut self, lowest: Class) -> Option<J> {
        for class in [Class::Change, Class::Repair] {
            if class <= lowest
                && let Some(item) = self.take_from(class)
            {
                return Some(item);
            }
        }
        None
    }

    fn take_from(&mut self, class: Class) -> Option<J> {
        let Self { waiting, flying, lanes, ticket, .. } = self;
        let lane = &mut lanes[class as usize];
        while let Some(tenant) = lane.turn.pop_front() {
            let Some(line) = lane.lines.get_mut(&tenant) else { continue };
            let mut found = None;
            while let Some((slot, place)) = line.pop_front() {
                let Some(waits) = waiting.get_mut(&slot).filter(|waits| waits.ticket == place) else { continue };
                if flying.contains_key(&slot) {
                    waits.parked = true;
                    continue;
                }
                found = waiting.remove(&slot);
                break;
            }
            if line.is_empty() {
                lane.lines.remove(&tenant);
            } else {
                lane.turn.push_back(tenant);
            }
            if let Some(waits) = found {
                lane.depth -= 1;
                *ticket += 1;
                let departure = *ticket;
                flying.insert(waits.item.slot(), Flying { item: waits.item.clone(), lane: class, departure });
                return Some(waits.item);
            }
        }
        None
    }

    fn land(&mut self, slot: &J::Slot, generation: u64) -> Option<Flying<J>> {
        if self.flying.get(slot)?.item.generation() != generation {
            return None;
        }
        self.flying.remove(slot)
    }

    fn done(&mut self, slot: &J::Slot, generation: u64) -> bool {
        let known = self.land(slot, generation).is_some();
        if known {
            self.unpark(slot);
        }
        known
    }

    fn again(&mut self, slot: &J::Slot, generation: u64) -> bool {
        let Some(landed) = self.land(slot, generation) else { return false };
        if self.waiting.contains_key(slot) {
            self.unpark(slot);
            return false;
        }
        self.enter(landed.item, landed.lane, End::Back);
        true
    }

    fn unpark(&mut self, slot: &J::Slot) {
        let Some(waits) = self.waiting.get_mut(slot).filter(|waits| waits.parked) else { return };
        waits.parked = false;
        let place = (slot.clone(), waits.ticket);
        let (lane, tenant) = (waits.lane as usize, waits.item.tenant().clone());
        self.lanes[lane].stand(&tenant, place, End::Front);
    }

    fn lost(&mut self) {
        let mut lost: Vec<_> = self.flying.drain().map(|(_, flying)| flying).collect();
        lost.sort_unstable_by_key(|flying| std::cmp::Reverse(flying.departure));
        for flying in lost {
            let slot = flying.item.slot();
            if self.waiting.contains_key(&slot) {
                self.unpark(&slot);
            } else {
                self.enter(flying.item, flying.lane, End::Front);
            }
        }
    }
}

#[cfg(test)]
mod tests;
