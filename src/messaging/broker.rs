//! What a broker must hold, as values: the vocabulary that the model and the broker drive share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ids::Slot;
use super::job;
pub use super::job::Class;

/// How a broker address hands on its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Routing {
    /// Each message to one consumer.
    Anycast,
    /// Each message to every queue bound to the address.
    Multicast,
}

impl Routing {
    /// The broker's own word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anycast => "ANYCAST",
            Self::Multicast => "MULTICAST",
        }
    }
}

/// What happens to a sender when an address is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FullPolicy {
    /// Messages go to disk.
    Page,
    /// Senders get no more credit.
    Block,
    /// Messages are refused.
    Fail,
    /// Messages are dropped without a word.
    Drop,
}

impl FullPolicy {
    /// The broker's own word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Page => "PAGE",
            Self::Block => "BLOCK",
            Self::Fail => "FAIL",
            Self::Drop => "DROP",
        }
    }
}

/// The address settings of one broker address. `None` leaves the broker's default in force. Whatever is set here,
/// the drive also switches auto-creation and auto-deletion off for the address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Bytes that the address may hold before `full_policy` applies.
    pub max_size_bytes: Option<i64>,
    /// What applies then.
    pub full_policy: Option<FullPolicy>,
    /// Deliveries before a message goes to the dead letter; -1: endless.
    pub max_delivery_attempts: Option<i32>,
    /// Milliseconds before the second delivery.
    pub redelivery_delay_ms: Option<i64>,
    /// Factor from one redelivery's delay to the next.
    pub redelivery_multiplier: Option<f64>,
    /// Cap of the delay, milliseconds.
    pub max_redelivery_delay_ms: Option<i64>,
    /// Broker name of the dead letter.
    pub dead_letter_address: Option<Slot>,
    /// Broker name of the address that takes expired messages.
    pub expiry_address: Option<Slot>,
    /// A message without or with a shorter time to live gets this one, milliseconds.
    pub min_expiry_delay_ms: Option<i64>,
    /// A message without or with a longer time to live gets this one, milliseconds.
    pub max_expiry_delay_ms: Option<i64>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its name: the slot's.
    pub name: Slot,
    /// Whether it outlives the broker's process.
    pub durable: bool,
    /// Consumers at a time; -1: any number.
    pub max_consumers: i32,
}

/// All that one slot is on a broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The broker address: the slot's own name, or for a subscription its topic's.
    pub address: Slot,
    /// How the address (and the queue) routes.
    pub routing: Routing,
    /// The queue; none for topics and multicast.
    pub queue: Option<Queue>,
    /// Settings of `address`; none for a subscription, whose topic has them. A slot with settings owns its address:
    /// it makes it and takes it away.
    pub settings: Option<Settings>,
    /// The slot of the space's own settings ([`ground`]), which switch auto-creation off for all names of the space:
    /// an address below it needs settings of its own only where it wants something particular. None where the space
    /// has no prefix to match by.
    pub ground: Option<Slot>,
}

/// The slot of what a whole space shares: settings under a match of all names below its prefix. Changing any settings
/// costs a broker a walk over all its queues (40 ms and more with 10,000), so that one match for a space is made where
/// one for each address would be made otherwise.
pub fn ground(prefix: &str) -> Slot {
    format!("{prefix}{GROUND}").into()
}

/// What such a slot holds.
pub fn ground_entry(slot: &Slot) -> Entry {
    let settings = Some(Settings::default());
    Entry { address: slot.clone(), routing: Routing::Anycast, queue: None, settings, ground: None }
}

/// Whether the slot is a space's settings: no address has `*` in it.
pub fn is_ground(slot: &str) -> bool {
    slot.ends_with(GROUND)
}

/// All names below a prefix, in the broker's way: the next word, whatever it starts with, and any that follow.
const GROUND: &str = "*.#";

/// What a slot shall become.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// Hold exactly this. What is there already and is ours is changed in place where the broker can; a queue of
    /// another owner, or one that would have to be destroyed to fit, is a refusal, unless `replace`.
    Hold {
        /// The wanted state.
        entry: Arc<Entry>,
        /// What is there was an Address's that was seen to go: it may be destroyed to make room.
        replace: bool,
    },
    /// Like `Hold`, for what names and queue attributes say is right already: settings are read and compared, and
    /// only a difference is written ([`Done::Repaired`]).
    Verify {
        /// The wanted state.
        entry: Arc<Entry>,
    },
    /// Destroy queue, settings and (where it owns one) address. Missing is done.
    Gone {
        /// What was held; its routing is not looked at.
        entry: Arc<Entry>,
        /// Destroy nothing while a queue holds messages: [`Done::NotEmpty`] instead.
        only_if_empty: bool,
    },
}

/// Work for a broker's drive.
pub type Job = job::Job<Wish>;
/// The answer to a job: done, or the broker's own words.
pub type Outcome = job::Outcome<Done>;

/// A job that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The slot holds what was wished.
    Held,
    /// The same, and a `Verify` found and mended a difference.
    Repaired,
    /// Nothing of the slot is left.
    Gone,
    /// `only_if_empty`, and there are messages.
    NotEmpty {
        /// How many, when asked.
        messages: u64,
    },
}

/// A queue as read from a broker.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedQueue {
    /// Its name.
    pub name: Slot,
    /// The address it is bound to.
    pub address: Slot,
    /// Its routing type.
    pub routing: Routing,
    /// Whether it outlives the broker's process.
    pub durable: bool,
    /// Consumers at a time; -1: any number.
    pub max_consumers: i32,
    /// Messages in it when read.
    pub messages: u64,
}

/// What a broker holds, read on one connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The queues with our owner, and only those, by name.
    pub queues: BTreeMap<Slot, ObservedQueue>,
    /// The slots without a queue that carry our mark: addresses, and settings of spaces.
    pub marks: BTreeSet<Slot>,
    /// All addresses of the broker that start with a prefix we gave, with their routing types.
    pub addresses: BTreeMap<Slot, Vec<Routing>>,
}
