//! What a slot held is taken away.

use tokio::time::Instant;

use super::ask::Standing;
use super::mark::Claim;
use super::settings::prefix_of;
use super::{Carrier, Halt, OURS, owner_of};
use crate::drive::broker::link::Call;
use crate::drive::broker::ops::{self, ListedQueue, Refusal};
use crate::messaging::broker::{Done, Entry, is_ground};
use crate::messaging::ids::Slot;

impl Carrier<'_> {
    pub(super) async fn gone(&self, entry: &Entry, only_if_empty: bool) -> Result<Done, Halt> {
        let mut had = false;
        if let Some(queue) = &entry.queue {
            match self.standing(&queue.name).await? {
                Standing::Ours(there) => {
                    if only_if_empty
                        && let Some(messages) = self.count(&there.name).await?
                        && messages > 0
                    {
                        return Ok(Done::NotEmpty { messages });
                    }
                    self.destroy(&there.name).await?;
                    had = true;
                }
                // Nothing of ours was ever made in its place.
                Standing::Anothers => return Ok(Done::Gone),
                Standing::Nobodys => {}
            }
        }
        let owns_address = entry.settings.is_some() && !is_ground(&entry.address);
        let mut marked = false;
        if entry.settings.is_some() && entry.queue.is_none() {
            match self.claim(&entry.address).await? {
                Claim::Anothers(_) => return Ok(Done::Gone),
                Claim::Ours => marked = true,
                // Of before, or never made.
                Claim::Nobodys => {}
            }
        }
        if owns_address
            && !had
            && !marked
            && let Some(there) = self.address(&entry.address).await?
            && (!there.types.contains(&entry.routing) || self.anothers_on(&entry.address, false).await?.is_some())
        {
            // The same for an address.
            return Ok(Done::Gone);
        }
        if entry.settings.is_some() {
            // Settings go last: as long as they are there, nothing is created by itself in this place.
            if owns_address && entry.queue.is_none() && only_if_empty {
                if !self.delete_if_unused(&entry.address).await? {
                    return Ok(Done::NotEmpty { messages: 0 });
                }
            } else if owns_address {
                self.delete_address(&entry.address).await?;
            }
            self.remove_settings(entry).await?;
        }
        if marked {
            // After all that it stands for.
            self.unmark(&entry.address).await?;
        }
        Ok(Done::Gone)
    }

    /// Takes the address's own settings away, if it has any.
    pub(super) async fn remove_settings(&self, entry: &Entry) -> Result<(), Halt> {
        if is_ground(&entry.address) {
            self.memory().base.remove(prefix_of(&entry.address));
        } else {
            if entry.ground.is_some() {
                let base = self.base(&entry.address).await?;
                let in_force = ops::parse_settings(&self.call(ops::read_settings(&entry.address)).await?);
                if ops::same_in_force(&in_force, &base) {
                    return Ok(());
                }
            }
        }
        self.call(ops::remove_settings(&entry.address)).await.map(|_| ())
    }

    pub(super) async fn destroy(&self, queue: &Slot) -> Result<(), Halt> {
        self.destroyed(queue, ops::destroy_queue(queue, true)).await?;
        self.memory().queues.remove(queue);
        Ok(())
    }

    /// Sends what destroys a queue of this name, which will be told of and is no loss then. One that is not there is gone.
    pub(super) async fn destroyed(&self, name: &Slot, call: Call) -> Result<(), Halt> {
        self.expect_removal(name);
        let Err(halt) = self.call(call).await else { return Ok(()) };
        self.removal_failed(name);
        if halt.is(Refusal::NotFound) { Ok(()) } else { Err(halt) }
    }

    /// Deletes an address with nothing but temporary queues, those of consumers that are attached right now.
    pub(super) async fn delete_address(&self, address: &Slot) -> Result<(), Halt> {
        self.delete_address_of(address, false).await
    }

    /// The same; with `guests`, the connections of those consumers end, so that they come again to what is made instead.
    pub(super) async fn delete_address_of(&self, address: &Slot, guests: bool) -> Result<(), Halt> {
        // Before it is sent: its removal may be told before its answer comes.
        let known = self.memory().addresses.remove(address).is_some();
        let deleted = self.delete_unless_used(address, guests).await;
        if deleted.is_err() && known {
            self.memory().addresses.insert(address.clone(), ());
        }
        deleted
    }

    pub(super) async fn delete_unless_used(&self, address: &Slot, guests: bool) -> Result<(), Halt> {
        let mut tries = 0;
        let bound = loop {
            let Some(refusal) = self.delete_plainly(address).await? else { return Ok(()) };
            let bound = self.listed(ops::list_bound(address)).await?;
            if !bound.is_empty() {
                break bound;
            }
            // Who was there has just gone: with a router's connection go its consumers on all addresses.
            tries += 1;
            if tries == ops::TRIES {
                return Err(refusal);
            }
        };
        let others = |row: &ListedQueue| row.user.starts_with(OURS) && !row.is_of(self.owner);
        if let Some(kept) = bound.iter().find(|row| row.queue.durable || others(row)) {
            return Err(Halt::Refused(format!(
                "address {address} still has queue {} of {}, with {} messages: remove that first",
                kept.queue.name,
                owner_of(kept),
                kept.queue.messages,
            )));
        }
        if guests {
            self.call(ops::close_consumers(address)).await?;
        }
        match self.call(ops::delete_address(address, true)).await {
            Err(halt) if !halt.is(Refusal::NotFound) => Err(halt),
            _ => Ok(()),
        }
    }

    /// Deletes an address on which nothing is, not even a consumer's queue; whether it is gone.
    async fn delete_if_unused(&self, address: &Slot) -> Result<bool, Halt> {
        let gone = self.delete_plainly(address).await?.is_none();
        if gone {
            self.memory().addresses.remove(address);
        }
        Ok(gone)
    }

    /// Deletes an address unless something is on it: then gives the broker's words.
    async fn delete_plainly(&self, address: &Slot) -> Result<Option<Halt>, Halt> {
        match self.call(ops::delete_address(address, false)).await {
            Err(halt) if halt.is(Refusal::InUse) => Ok(Some(halt)),
            Err(halt) if !halt.is(Refusal::NotFound) => Err(halt),
            _ => Ok(None),
        }
    }

    pub(super) fn expect_removal(&self, name: &Slot) {
        let mut memory = self.memory();
        let leaving = memory.leaving.entry(name.clone()).or_insert((0, Instant::now()));
        *leaving = (leaving.0 + 1, Instant::now());
    }

    pub(super) fn removal_failed(&self, name: &Slot) {
        let mut memory = self.memory();
        if let Some((count, _)) = memory.leaving.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                memory.leaving.remove(name);
            }
        }
    }
}
