//! How one job is carried out on a session: which operations, in which order, and what their refusals mean.
//!
//! Every wish is a state, so each operation may find its work done already: a process that died between any two of
//! them is made good by the next job of the slot. Nothing is changed or destroyed that does not carry our owner.

mod ask;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use ask::Standing;

use super::link::{BrokerSession, Call};
use super::ops::{self, AddressInfo, ListedQueue, Refusal};
use crate::drive::meter::Meter;
use crate::drive::pace::Pace;
use crate::engine::permit::Permit;
use crate::messaging::broker::{Contents, Done, Entry, Job, ObservedQueue, Queue, Routing, Settings, Wish, is_ground};
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
    }

    /// A removal was told: whether something of ours went by another's hand.
    pub fn removed(&self, name: &str, queue: bool) -> bool {
        let mut memory = self.memory();
        if let Some((count, since)) = memory.leaving.get_mut(name) {
            let fresh = since.elapsed() < ECHO;
            *count -= 1;
            if *count == 0 || !fresh {
                memory.leaving.remove(name);
            }
            if fresh {
                return false;
            }
        }
        if queue { memory.queues.remove(name).is_some() } else { memory.addresses.remove(name).is_some() }
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

    // === Hold ===

    async fn hold(&self, slot: &Slot, entry: &Entry, replace: bool) -> Result<(), Halt> {
        match &entry.queue {
            Some(queue) => self.hold_queue(entry, queue, replace).await,
            None => self.hold_address(slot, entry, replace).await,
        }
    }

    async fn hold_queue(&self, entry: &Entry, queue: &Queue, replace: bool) -> Result<(), Halt> {
        let owns_address = entry.settings.is_some();
        let (there, differs, address) =
            futures::future::join3(self.ours(&queue.name), self.settings_differ(entry), async {
                if owns_address { self.address(&entry.address).await } else { Ok(None) }
            })
            .await;
        let (there, differs, address) = (there?, differs?, address?);
        // The broker would make an address serve both routing types: that is for whoever made it to say.
        let other = address.as_ref().filter(|address| address.types != [entry.routing]);
        if let Some(other) = other.filter(|other| there.is_none() && !replace && !other.by_itself) {
            return Err(another_routing(entry, &other.types));
        }
        if differs {
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
        let make_address = owns_address && (address.is_none() || other.is_some());
        // The address is made by its owner only: a subscription without its topic is refused.
        let made = self.call(ops::create_queue(queue, &entry.address, entry.routing, self.owner, make_address)).await;
        match made {
            Ok(_) => {}
            // Somebody was quicker, or an answer got lost: what is there decides.
            Err(halt) if halt.is(Refusal::AlreadyExists) => match self.find_ours(&queue.name).await? {
                Some(there) if self.settle_difference(entry, queue, &there, replace).await? => return Ok(()),
                _ => return Err(halt),
            },
            Err(halt) => return Err(halt),
        }
        self.remember(entry, queue);
        Ok(())
    }

    /// Brings a queue of ours that is there already to what is wanted; false: it was destroyed to make room.
    async fn settle_difference(
        &self,
        entry: &Entry,
        queue: &Queue,
        there: &ObservedQueue,
        replace: bool,
    ) -> Result<bool, Halt> {
        let fits = there.address == entry.address && there.routing == entry.routing && there.durable == queue.durable;
        if fits {
            if there.max_consumers != queue.max_consumers {
                self.call(ops::update_queue(&queue.name, queue.max_consumers)).await?;
            }
            self.remember(entry, queue);
            return Ok(true);
        }
        if !replace {
            let messages = self.count(&queue.name).await?.unwrap_or(there.messages);
            let durable = if there.durable { "durable" } else { "non-durable" };
            return Err(Halt::Refused(format!(
                "queue {} is there already as a {durable} {} queue of address {} and holds {messages} messages: delete \
                 what stands for it, or use another address",
                there.name,
                there.routing.as_str(),
                there.address,
            )));
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
            return if self.settings_differ(entry).await? { self.put_settings(entry).await } else { Ok(()) };
        }
        if replace {
            if let Some(there) = self.ours(slot).await? {
                self.destroy(&there.name).await?;
            }
            self.clear_address(entry).await?;
        }
        if self.settings_differ(entry).await? {
            self.put_settings(entry).await?;
        }
        if let Err(halt) = self.call(ops::create_address(&entry.address, entry.routing)).await {
            if !halt.is(Refusal::AlreadyExists) {
                return Err(halt);
            }
            match self.address(&entry.address).await? {
                Some(there) if there.types.contains(&entry.routing) => {}
                Some(there) if there.by_itself => {
                    self.make_room(entry, &there, false).await?;
                    self.call(ops::create_address(&entry.address, entry.routing)).await?;
                }
                there => return Err(another_routing(entry, &there.map(|there| there.types).unwrap_or_default())),
            }
        }
        self.memory().addresses.insert(slot.clone(), ());
        Ok(())
    }

    /// Takes an address away that routes in another way: with `replace`, or where the broker made it by itself for
    /// somebody who came there, with nothing but what goes with those who did.
    async fn make_room(&self, entry: &Entry, there: &AddressInfo, replace: bool) -> Result<(), Halt> {
        match self.delete_address_of(&entry.address, !replace).await {
            Err(Halt::Refused(_)) if !replace => Err(another_routing(entry, &there.types)),
            deleted => deleted,
        }
    }

    /// Before something of another type takes its place, an address that routes in another way goes.
    async fn clear_address(&self, entry: &Entry) -> Result<(), Halt> {
        match self.routing_types(&entry.address).await? {
            Some(types) if types != [entry.routing] => self.delete_address(&entry.address).await,
            _ => Ok(()),
        }
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

    // === Settings ===

    /// Whether what is in force for the entry's address is not what it wants. Reading is cheap, writing is not.
    async fn settings_differ(&self, entry: &Entry) -> Result<bool, Halt> {
        let Some(settings) = &entry.settings else { return Ok(false) };
        let base = self.base(&entry.address).await?;
        if is_ground(&entry.address) {
            return Ok(!ops::differing(settings, &base, &base).is_empty());
        }
        let in_force = ops::parse_settings(&self.call(ops::read_settings(&entry.address)).await?);
        Ok(!ops::differing(settings, &in_force, &base).is_empty())
    }

    async fn put_settings(&self, entry: &Entry) -> Result<(), Halt> {
        let Some(settings) = &entry.settings else { return Ok(()) };
        if is_ground(&entry.address) {
            self.memory().base.remove(prefix_of(&entry.address));
        } else if entry.ground.is_some() && *settings == Settings::default() {
            // What the space's settings say is all that it wants.
            return self.call(ops::remove_settings(&entry.address)).await.map(|_| ());
        }
        let echo = self.call(ops::put_settings(&entry.address, settings)).await?;
        ops::check_echo(settings, &echo).map_err(|missed| {
            Halt::Refused(format!("the broker did not take these settings as they were given: {}", missed.join(", ")))
        })
    }

    async fn verify(&self, entry: &Entry) -> Result<Done, Halt> {
        if !self.settings_differ(entry).await? {
            return Ok(Done::Held);
        }
        self.put_settings(entry).await?;
        Ok(Done::Repaired)
    }

    /// What is in force for a name beside the address that has no settings of its own.
    async fn base(&self, address: &str) -> Result<Map<String, Value>, Halt> {
        let prefix = prefix_of(address);
        // One asks, the others wait for what it finds.
        let _asking = self.asking.lock().await;
        let known = self.memory().base.get(prefix).cloned();
        if let Some(base) = known {
            return Ok(base);
        }
        let answer = self.call(ops::read_settings(&format!("{prefix}waystation-has-no-such-address"))).await?;
        let base = ops::parse_settings(&answer);
        self.memory().base.insert(prefix.to_owned(), base.clone());
        Ok(base)
    }

    // === Gone ===

    async fn gone(&self, entry: &Entry, only_if_empty: bool) -> Result<Done, Halt> {
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
        if owns_address
            && !had
            && let Some(types) = self.routing_types(&entry.address).await?
            && !types.contains(&entry.routing)
        {
            // The same for an address.
            return Ok(Done::Gone);
        }
        if entry.settings.is_some() {
            // Settings go last: as long as they are there, nothing is created by itself in this place.
            if owns_address {
                self.delete_address(&entry.address).await?;
            }
            self.remove_settings(entry).await?;
        }
        Ok(Done::Gone)
    }

    /// Takes the address's own settings away, if it has any.
    async fn remove_settings(&self, entry: &Entry) -> Result<(), Halt> {
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

    async fn destroy(&self, queue: &Slot) -> Result<(), Halt> {
        self.expect_removal(queue);
        match self.call(ops::destroy_queue(queue, true)).await {
            Ok(_) => {}
            Err(halt) => {
                self.removal_failed(queue);
                if !halt.is(Refusal::NotFound) {
                    return Err(halt);
                }
            }
        }
        self.memory().queues.remove(queue);
        Ok(())
    }

    /// Deletes an address with nothing but temporary queues, those of consumers that are attached right now.
    async fn delete_address(&self, address: &Slot) -> Result<(), Halt> {
        self.delete_address_of(address, false).await
    }

    /// The same; with `guests`, the connections of those consumers end, so that they come again to what is made instead.
    async fn delete_address_of(&self, address: &Slot, guests: bool) -> Result<(), Halt> {
        // Before it is sent: its removal may be told before its answer comes.
        let known = self.memory().addresses.remove(address).is_some();
        let deleted = self.delete_unless_used(address, guests).await;
        if deleted.is_err() && known {
            self.memory().addresses.insert(address.clone(), ());
        }
        deleted
    }

    async fn delete_unless_used(&self, address: &Slot, guests: bool) -> Result<(), Halt> {
        let refusal = match self.call(ops::delete_address(address, false)).await {
            Ok(_) => return Ok(()),
            Err(halt) if halt.is(Refusal::NotFound) => return Ok(()),
            Err(halt) if halt.is(Refusal::InUse) => halt,
            Err(halt) => return Err(halt),
        };
        let filter = json!({ "field": "address", "operation": "EQUALS", "value": &**address });
        let bound = Call {
            resource: "broker".to_owned(),
            operation: "listQueues",
            params: json!([filter.to_string(), 1, 100]),
        };
        let bound = self.listed(bound).await?;
        let others = |row: &ListedQueue| row.user.starts_with(OURS) && !row.is_of(self.owner);
        if let Some(kept) = bound.iter().find(|row| row.queue.durable || others(row)) {
            return Err(Halt::Refused(format!(
                "address {address} still has queue {} of {}, with {} messages: remove that first",
                kept.queue.name,
                owner_of(kept),
                kept.queue.messages,
            )));
        }
        if bound.is_empty() {
            return Err(refusal);
        }
        if guests {
            self.call(ops::close_consumers(address)).await?;
        }
        match self.call(ops::delete_address(address, true)).await {
            Err(halt) if !halt.is(Refusal::NotFound) => Err(halt),
            _ => Ok(()),
        }
    }

    fn expect_removal(&self, name: &Slot) {
        let mut memory = self.memory();
        let leaving = memory.leaving.entry(name.clone()).or_insert((0, Instant::now()));
        *leaving = (leaving.0 + 1, Instant::now());
    }

    fn removal_failed(&self, name: &Slot) {
        let mut memory = self.memory();
        if let Some((count, _)) = memory.leaving.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                memory.leaving.remove(name);
            }
        }
    }
}

fn another_routing(entry: &Entry, there: &[Routing]) -> Halt {
    let there: Vec<&str> = there.iter().map(|routing| routing.as_str()).collect();
    let (address, wanted) = (&entry.address, entry.routing.as_str());
    Halt::Refused(format!(
        "address {address} is there already as {} and not as {wanted}: remove it, or use another address",
        there.join(", ")
    ))
}

/// What an address shares with the other names of its space.
fn prefix_of(address: &str) -> &str {
    address.split_once('/').map_or("", |(space, _)| &address[..=space.len()])
}

fn owner_of(row: &ListedQueue) -> String {
    if row.user.is_empty() { "nobody in particular".to_owned() } else { row.user.clone() }
}
