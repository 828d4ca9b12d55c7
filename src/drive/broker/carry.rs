//! How one job is carried out on a session: which operations, in which order, and what their refusals mean.
//!
//! Every wish is a state, so each operation may find its work done already: a process that died between any two of
//! them is made good by the next job of the slot. Nothing is changed or destroyed that does not carry our owner.

mod ask;
mod gone;
mod hold;
mod mark;
mod settings;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::link::BrokerSession;
use super::ops::{self, ListedQueue, Refusal};
use crate::drive::meter::Meter;
use crate::drive::pace::Pace;
use crate::engine::permit::Permit;
use crate::messaging::broker::{Contents, Done, Job, ObservedQueue, Wish};
use crate::messaging::ids::Slot;

/// An own removal is expected to be told within this time; what is told later is somebody else's.
const ECHO: Duration = Duration::from_secs(10);

/// What the `user` of a queue begins with that an operator has made, whatever its owner.
const OURS: &str = "waystation:";

/// Why a job was not answered.
#[derive(Debug, PartialEq)]
pub enum Halt {
    /// The broker's words, for the object.
    Refused(String),
    /// The session is of no use any more.
    Dead(String),
}

impl Halt {
    fn is(&self, meaning: Refusal) -> bool {
        matches!(self, Self::Refused(words) if ops::classify(words) == meaning)
    }
}

type Known<V> = HashMap<Slot, V, RandomState>;

/// What is known of a broker during one session.
struct Memory {
    /// Our queues, as read, made or updated on this session.
    queues: Known<ObservedQueue>,
    /// Our addresses without a queue, as made or read on this session.
    addresses: Known<()>,
    /// Slots without a queue that carry our mark.
    marks: Known<()>,
    /// Removals of our own that are not yet told back, with their number and time.
    leaving: Known<(u32, Instant)>,
    /// Settings in force where an address has none of its own, by prefix.
    base: HashMap<String, Map<String, Value>, RandomState>,
}

/// Carries jobs out on one session.
pub struct Carrier<'a> {
    session: &'a dyn BrokerSession,
    owner: &'a str,
    permit: &'a Permit,
    deadline: Duration,
    meter: &'a dyn Meter,
    pace: &'a Pace,
    memory: Mutex<Memory>,
    /// Held while a [`Memory::base`] is asked for.
    asking: AsyncMutex<()>,
}

impl<'a> Carrier<'a> {
    /// For what belongs to `owner`. A command is sent only while `permit` lasts for `deadline`, and an answer that
    /// takes longer ends the session. What comes back sets the `pace`.
    pub fn new(
        session: &'a dyn BrokerSession,
        owner: &'a str,
        permit: &'a Permit,
        deadline: Duration,
        meter: &'a dyn Meter,
        pace: &'a Pace,
    ) -> Self {
        let seeds = || RandomState::with_seeds(2, 4, 6, 8);
        let memory = Memory {
            queues: Known::with_hasher(seeds()),
            addresses: Known::with_hasher(seeds()),
            marks: Known::with_hasher(seeds()),
            leaving: Known::with_hasher(seeds()),
            base: HashMap::with_hasher(seeds()),
        };
        let asking = AsyncMutex::new(());
        Self { session, owner, permit, deadline, meter, pace, memory: Mutex::new(memory), asking }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was read, in place of what was known before. What is known of `newer` slots stays as it is.
    pub fn learn(&self, contents: &Contents, newer: &BTreeSet<Slot>) {
        let mut memory = self.memory();
        memory.queues.retain(|name, _| newer.contains(name));
        memory.addresses.retain(|name, ()| newer.contains(name));
        for (name, queue) in contents.queues.iter().filter(|(name, _)| !newer.contains(*name)) {
            memory.queues.insert(name.clone(), queue.clone());
        }
        let plain = contents.addresses.keys().filter(|name| !contents.queues.contains_key(*name));
        for name in plain.filter(|name| !newer.contains(*name)) {
            memory.addresses.insert(name.clone(), ());
        }
        memory.marks.retain(|name, ()| newer.contains(name));
        for name in contents.marks.iter().filter(|name| !newer.contains(*name)) {
            memory.marks.insert(name.clone(), ());
        }
    }

    /// A removal was told: the slot, unless it was our own doing, and whether anything of ours was known to be there.
    pub fn removed(&self, name: &str, queue: bool) -> Option<(Slot, bool)> {
        let mut memory = self.memory();
        if let Some((count, since)) = memory.leaving.get_mut(name) {
            let fresh = since.elapsed() < ECHO;
            *count -= 1;
            if *count == 0 || !fresh {
                memory.leaving.remove(name);
            }
            if fresh {
                return None;
            }
        }
        if let Some(slot) = ops::marked(name).filter(|_| queue) {
            let ours = memory.marks.remove(&slot).is_some();
            return Some((slot, ours));
        }
        let ours = if queue { memory.queues.remove(name).is_some() } else { memory.addresses.remove(name).is_some() };
        Some((name.into(), ours))
    }

    /// Carries one job out.
    ///
    /// # Errors
    /// With the reason, when the session is of no use any more; whether the job was carried out is unknown then.
    pub async fn carry_out(&self, job: &Job) -> Result<Result<Done, String>, String> {
        let done = match &job.wish {
            Wish::Hold { entry, replace } => self.hold(&job.slot, entry, *replace).await.map(|()| Done::Held),
            Wish::Verify { entry } => self.verify(entry).await,
            Wish::Gone { entry, only_if_empty } => self.gone(entry, *only_if_empty).await,
        };
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(Halt::Refused(words)) => Ok(Err(words)),
            Err(Halt::Dead(reason)) => Err(reason),
        }
    }
}

fn owner_of(row: &ListedQueue) -> String {
    if row.user.is_empty() { "nobody in particular".to_owned() } else { row.user.clone() }
}
