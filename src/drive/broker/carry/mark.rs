//! Whose an address is. A broker knows no owner of an address or of settings, only of queues: so what has no queue of its
//! own has one beside it that takes nothing and says by its `user` whose it is.
//!
//! It is made before what it stands for and goes after it: what was begun and never ended is found by it.

use super::{Carrier, Halt};
use crate::drive::broker::ops::{self, Refusal};
use crate::messaging::ids::Slot;

/// Who says that a slot is his.
pub(super) enum Claim {
    Ours,
    Nobodys,
    /// And who.
    Anothers(String),
}

impl Carrier<'_> {
    /// Whose mark a slot has.
    pub(super) async fn claim(&self, slot: &Slot) -> Result<Claim, Halt> {
        if self.memory().marks.contains_key(slot) {
            return Ok(Claim::Ours);
        }
        let user = match self.call(ops::queue_user(&ops::mark(slot))).await {
            Ok(user) => user.as_str().unwrap_or_default().to_owned(),
            Err(halt) if halt.is(Refusal::NotFound) => return Ok(Claim::Nobodys),
            Err(halt) => return Err(halt),
        };
        if user != ops::user(self.owner) {
            return Ok(Claim::Anothers(user));
        }
        self.memory().marks.insert(slot.clone(), ());
        Ok(Claim::Ours)
    }

    /// Marks a slot that nobody has as ours.
    pub(super) async fn mark(&self, slot: &Slot) -> Result<(), Halt> {
        match self.call(ops::create_mark(slot, self.owner)).await {
            Ok(_) => {
                self.memory().marks.insert(slot.clone(), ());
                Ok(())
            }
            // Somebody was quicker, or an answer got lost.
            Err(halt) if halt.is(Refusal::AlreadyExists) => match self.claim(slot).await? {
                Claim::Ours => Ok(()),
                Claim::Anothers(user) => Err(anothers(slot, &user)),
                Claim::Nobodys => Err(halt),
            },
            Err(halt) => Err(halt),
        }
    }

    /// Takes our mark off a slot.
    pub(super) async fn unmark(&self, slot: &Slot) -> Result<(), Halt> {
        // Before it is sent: its removal may be told before its answer comes.
        self.memory().marks.remove(slot);
        let name = Slot::from(ops::mark(slot));
        self.destroyed(&name, ops::destroy_mark(slot)).await
    }
}

pub(super) fn anothers(slot: &Slot, user: &str) -> Halt {
    Halt::Refused(format!("address {slot} is there already, made by {user}: remove it, or use another address"))
}
