//! What a slot shall hold is made, or changed to fit.

use super::mark::{Claim, anothers};
use super::{Carrier, Halt, owner_of};
use crate::drive::broker::ops::{self, AddressInfo, Refusal};
use crate::messaging::broker::{Entry, ObservedQueue, Queue, Routing, is_ground};
use crate::messaging::ids::Slot;

impl Carrier<'_> {
    pub(super) async fn hold(&self, slot: &Slot, entry: &Entry, replace: bool) -> Result<(), Halt> {
        match &entry.queue {
            Some(queue) => self.hold_queue(entry, queue, replace).await,
            None => self.hold_address(slot, entry, replace).await,
        }
    }

    async fn hold_queue(&self, entry: &Entry, queue: &Queue, replace: bool) -> Result<(), Halt> {
        let owns_address = entry.settings.is_some();
        let (differs, address) = futures::future::join(self.settings_differ(entry), async {
            if owns_address { self.address(&entry.address).await } else { Ok(None) }
        })
        .await;
        let (differs, address) = (differs?, address?);
        // A question less for what is new and needs no settings of its own: no queue is on an address that is not there,
        // and of one that has the name elsewhere the broker tells when this one is to be made, the first thing written.
        let there = match owns_address && address.is_none() && differs.is_none() {
            true => self.forget(&queue.name),
            false => self.ours(&queue.name).await?,
        };
        // Nothing is written before it is known that nobody else has the name.
        match (&there, &address) {
            (Some(there), _) if !fits(entry, queue, there) && !replace => return Err(self.misfit(there).await?),
            (None, Some(address)) => self.unclaimed(entry, address, replace).await?,
            _ => {}
        }
        // The broker would make an address serve both routing types: that is for whoever made it to say.
        let other = address.as_ref().filter(|address| address.types != [entry.routing]);
        let make_address = owns_address && (address.is_none() || other.is_some());
        let new = there.is_none();
        let making = async {
            if differs.is_some() {
                self.put_settings(entry).await?;
            }
            if let Some(there) = there
                && self.settle_difference(entry, queue, &there, replace).await?
            {
                return Ok(());
            }
            if let Some(other) = other {
                self.make_room(entry, other, replace).await?;
            }
            self.make_queue(entry, queue, make_address, replace).await
        };
        self.or_take_back(entry, differs.as_ref().filter(|_| new), making.await).await?;
        if replace && matches!(self.claim(&queue.name).await?, Claim::Ours) {
            // Of what was there before; its queue says whose it is now.
            self.unmark(&queue.name).await?;
        }
        Ok(())
    }

    async fn make_queue(&self, entry: &Entry, queue: &Queue, make_address: bool, replace: bool) -> Result<(), Halt> {
        // The address is made by its owner only: a subscription without its topic is refused.
        let create = ops::create_queue(queue, &entry.address, entry.routing, self.owner, make_address);
        match self.call(create.clone()).await {
            Ok(_) => {}
            // Somebody was quicker, an answer got lost, or it is on another address: what is there decides.
            Err(halt) if halt.is(Refusal::AlreadyExists) => match self.find_ours(&queue.name).await? {
                Some(there) if self.settle_difference(entry, queue, &there, replace).await? => return Ok(()),
                Some(_) => self.call(create).await.map(|_| ())?,
                None => return Err(halt),
            },
            Err(halt) => return Err(halt),
        }
        self.remember(entry, queue);
        Ok(())
    }

    /// Refuses a name under which an address is there and no queue of ours, where somebody else has it.
    async fn unclaimed(&self, entry: &Entry, there: &AddressInfo, replace: bool) -> Result<(), Halt> {
        if !replace && !there.by_itself && there.types != [entry.routing] {
            return Err(another_routing(entry, &there.types));
        }
        // On an address of ours that hands each message to one queue, another's queue would take a part of them.
        let alone = entry.queue.is_some() && there.types == [entry.routing];
        match self.anothers_on(&entry.address, alone).await? {
            None => Ok(()),
            Some(row) => Err(Halt::Refused(format!(
                "address {} is there already, with queue {} of {}: remove that, or use another address",
                entry.address,
                row.queue.name,
                owner_of(&row),
            ))),
        }
    }

    /// Refuses to make another queue of one of ours without being told so.
    async fn misfit(&self, there: &ObservedQueue) -> Result<Halt, Halt> {
        let messages = self.count(&there.name).await?.unwrap_or(there.messages);
        let durable = if there.durable { "durable" } else { "non-durable" };
        Ok(Halt::Refused(format!(
            "queue {} is there already as a {durable} {} queue of address {} and holds {messages} messages: delete \
             what stands for it, or use another address",
            there.name,
            there.routing.as_str(),
            there.address,
        )))
    }

    /// Brings a queue of ours that is there already to what is wanted; false: it was destroyed to make room.
    async fn settle_difference(
        &self,
        entry: &Entry,
        queue: &Queue,
        there: &ObservedQueue,
        replace: bool,
    ) -> Result<bool, Halt> {
        if fits(entry, queue, there) {
            if there.max_consumers != queue.max_consumers {
                self.call(ops::update_queue(&queue.name, queue.max_consumers)).await?;
            }
            self.remember(entry, queue);
            return Ok(true);
        }
        if !replace {
            return Err(self.misfit(there).await?);
        }
        self.destroy(&there.name).await?;
        if there.address == there.name && there.address != entry.address {
            // It owned its address; the new one is bound elsewhere.
            self.delete_address(&there.address).await?;
            self.call(ops::remove_settings(&there.address)).await?;
        }
        Ok(false)
    }

    async fn hold_address(&self, slot: &Slot, entry: &Entry, replace: bool) -> Result<(), Halt> {
        if is_ground(slot) {
            return self.hold_ground(slot, entry).await;
        }
        let (claim, differs, there) =
            futures::future::join3(self.claim(slot), self.settings_differ(entry), self.address(&entry.address)).await;
        let (claim, differs, mut there) = (claim?, differs?, there?);
        // Nothing is written before it is known that nobody else has the name.
        let new = match claim {
            Claim::Anothers(user) => return Err(anothers(slot, &user)),
            Claim::Ours => false,
            Claim::Nobodys => true,
        };
        if let Some(there) = &there {
            self.unclaimed(entry, there, replace).await?;
        }
        if replace {
            if let Some(there) = self.ours(slot).await? {
                self.destroy(&there.name).await?;
            }
            if there.as_ref().is_some_and(|there| there.types != [entry.routing]) {
                self.delete_address(&entry.address).await?;
                there = None;
            }
        }
        let making = async {
            if new {
                self.mark(slot).await?;
            }
            if differs.is_some() {
                self.put_settings(entry).await?;
            }
            if let Some(there) = there.as_ref().filter(|there| !there.types.contains(&entry.routing)) {
                self.make_room(entry, there, false).await?;
            } else if there.is_some() {
                return Ok(());
            }
            match self.call(ops::create_address(&entry.address, entry.routing)).await {
                Err(halt) if halt.is(Refusal::AlreadyExists) => match self.address(&entry.address).await? {
                    // An answer got lost.
                    Some(there) if there.types.contains(&entry.routing) => Ok(()),
                    there => Err(another_routing(entry, &there.map(|there| there.types).unwrap_or_default())),
                },
                made => made.map(|_| ()),
            }
        };
        let made = self.or_take_back(entry, differs.as_ref(), making.await).await;
        if new && matches!(made, Err(Halt::Refused(_))) && self.memory().marks.contains_key(slot) {
            self.unmark(slot).await?;
        }
        made?;
        self.memory().addresses.insert(slot.clone(), ());
        Ok(())
    }

    /// The settings that a space shares. Of two owners that use one prefix they are the same: the first has the mark, and
    /// both have them.
    async fn hold_ground(&self, slot: &Slot, entry: &Entry) -> Result<(), Halt> {
        let (claim, differs) = futures::future::join(self.claim(slot), self.settings_differ(entry)).await;
        if matches!(claim?, Claim::Nobodys) {
            self.mark(slot).await?;
        }
        match differs? {
            Some(_) => self.put_settings(entry).await,
            None => Ok(()),
        }
    }

    /// Takes an address away that routes in another way: with `replace`, or where the broker made it by itself for
    /// somebody who came there, with nothing but what goes with those who did.
    async fn make_room(&self, entry: &Entry, there: &AddressInfo, replace: bool) -> Result<(), Halt> {
        match self.delete_address_of(&entry.address, !replace).await {
            Err(Halt::Refused(_)) if !replace => Err(another_routing(entry, &there.types)),
            deleted => deleted,
        }
    }

    /// It is not there: whatever was known of it.
    fn forget(&self, queue: &Slot) -> Option<ObservedQueue> {
        self.memory().queues.remove(queue);
        None
    }

    fn remember(&self, entry: &Entry, queue: &Queue) {
        let observed = ObservedQueue {
            name: queue.name.clone(),
            address: entry.address.clone(),
            routing: entry.routing,
            durable: queue.durable,
            max_consumers: queue.max_consumers,
            messages: 0,
        };
        self.memory().queues.insert(queue.name.clone(), observed);
    }
}

/// Whether a queue of ours is one that can be changed to what is wanted.
fn fits(entry: &Entry, queue: &Queue, there: &ObservedQueue) -> bool {
    there.address == entry.address && there.routing == entry.routing && there.durable == queue.durable
}

fn another_routing(entry: &Entry, there: &[Routing]) -> Halt {
    let there: Vec<&str> = there.iter().map(|routing| routing.as_str()).collect();
    let (address, wanted) = (&entry.address, entry.routing.as_str());
    Halt::Refused(format!(
        "address {address} is there already as {} and not as {wanted}: remove it, or use another address",
        there.join(", ")
    ))
}
