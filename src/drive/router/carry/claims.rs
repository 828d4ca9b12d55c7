//! Who is at work on a slot: a job, or a link that is made anew; never both.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::messaging::ids::Slot;

/// The slots that somebody is at work on.
#[derive(Debug, Default)]
pub struct Claims {
    taken: Mutex<BTreeSet<Slot>>,
    freed: Notify,
}

/// The right to work on a slot, until it is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    claims: &'a Claims,
    slot: Slot,
}

impl Claims {
    fn taken(&self) -> MutexGuard<'_, BTreeSet<Slot>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a slot, unless it is claimed.
    pub fn try_claim(&self, slot: &Slot) -> Option<Claim<'_>> {
        self.taken().insert(slot.clone()).then(|| Claim { claims: self, slot: slot.clone() })
    }

    /// Claims a slot as soon as nobody has it.
    pub async fn claim(&self, slot: &Slot) -> Claim<'_> {
        loop {
            // Registered before the look, so that a claim given back in between is not missed.
            let freed = self.freed.notified();
            if let Some(claim) = self.try_claim(slot) {
                return claim;
            }
            freed.await;
        }
    }

    /// Whether somebody is at work on the slot.
    pub fn is_claimed(&self, slot: &Slot) -> bool {
        self.taken().contains(slot)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.taken().remove(&self.slot);
        self.claims.freed.notify_waiters();
    }
}
