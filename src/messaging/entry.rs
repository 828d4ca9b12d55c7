//! From an Address to what brokers and routers hold for it.

use std::sync::Arc;

use super::broker::{Entry, FullPolicy, Queue, Routing, Settings};
use super::ids::Slot;
use super::input::{Address, AddressType, Defaults, Redelivery, Ttl};
use super::router::{self, AutoLink, Direction, Distribution};

/// What is in force where the spec is silent, after the RouterConfig's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effective {
    /// Window of times to live.
    pub ttl: Ttl,
    /// Redelivery.
    pub redelivery: Redelivery,
}

/// The values in force for an address: its own, else the RouterConfig's where the type has the feature.
pub fn effective(address: &Address, defaults: &Defaults) -> Effective {
    if !matches!(address.kind, AddressType::Queue | AddressType::Topic) {
        return Effective { ttl: address.ttl, redelivery: address.redelivery };
    }
    let ttl = address.ttl.or(defaults.message_ttl);
    let redelivery = address.redelivery.or(defaults.redelivery);
    Effective { ttl, redelivery }
}

/// Broker-side names of what an address refers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// Of a subscription's topic.
    pub topic: Option<Slot>,
    /// Of the dead letter.
    pub dead_letter: Option<Slot>,
    /// Of the address for expired messages.
    pub expiry: Option<Slot>,
}

/// What a broker holds for the address under the name `slot`.
/// `ground`: the slot of the space's own settings, where it has a prefix.
pub fn entry(address: &Address, slot: &Slot, refs: &References, defaults: &Defaults, ground: Option<Slot>) -> Entry {
    let queue = |durable, max_consumers| Some(Queue { name: slot.clone(), durable, max_consumers });
    let (routing, queue) = match address.kind {
        AddressType::Anycast => (Routing::Anycast, queue(false, -1)),
        AddressType::Multicast | AddressType::Topic => (Routing::Multicast, None),
        AddressType::Queue | AddressType::DeadLetter => (Routing::Anycast, queue(true, -1)),
        AddressType::Subscription => {
            // With forwarders, every router is one more receiver.
            let most = if address.forwarders.is_empty() { address.max_consumers.unwrap_or(1) } else { -1 };
            return Entry {
                address: refs.topic.clone().unwrap_or_else(|| slot.clone()),
                routing: Routing::Multicast,
                queue: queue(true, most),
                settings: None,
                ground,
            };
        }
    };
    Entry { address: slot.clone(), routing, queue, settings: Some(settings(address, refs, defaults)), ground }
}

fn settings(address: &Address, refs: &References, defaults: &Defaults) -> Settings {
    let Effective { ttl, redelivery } = effective(address, defaults);
    let stores = matches!(address.kind, AddressType::Queue | AddressType::Topic);
    let default = |value: Option<i64>| value.filter(|_| stores);
    // A dead letter that refuses or drops would lose what it is there to keep.
    let pages = (address.kind == AddressType::DeadLetter).then_some(FullPolicy::Page);
    Settings {
        max_size_bytes: address.max_size_bytes.or(default(defaults.max_size_bytes)),
        full_policy: address.full_policy.or(defaults.full_policy.filter(|_| stores)).or(pages),
        max_delivery_attempts: redelivery.max_attempts,
        redelivery_delay_ms: redelivery.delay_ms,
        redelivery_multiplier: redelivery.delay_multiplier,
        max_redelivery_delay_ms: redelivery.max_delay_ms,
        dead_letter_address: refs.dead_letter.clone(),
        expiry_address: refs.expiry.clone(),
        min_expiry_delay_ms: ttl.minimum_ms,
        max_expiry_delay_ms: ttl.maximum_ms,
    }
}

/// The slot of the routers that stands for an address.
pub fn route_slot(kind: AddressType, slot: &Slot, refs: &References) -> Slot {
    match (&refs.topic, kind) {
        (Some(topic), AddressType::Subscription) => format!("{topic}::{slot}").into(),
        _ => slot.clone(),
    }
}

/// What the routers hold for an address whose slot the brokers `on` hold, sorted by name, each with whether senders are
/// let in, too; none while there is nothing that they could lead to.
pub fn route_entry(kind: AddressType, on: &[(&Arc<str>, bool)]) -> Option<router::Entry> {
    let address = |distribution| router::Entry::Address { distribution, waypoint: false, links: [].into() };
    let by_way_of = |senders: bool| {
        let links = on.iter().flat_map(|(broker, open)| {
            let out = (senders && *open).then_some(Direction::Out);
            let link = |direction| AutoLink { direction, broker: Arc::clone(broker), external: None };
            [Direction::In].into_iter().chain(out).map(link)
        });
        let links: Box<[AutoLink]> = links.collect();
        let distribution = Distribution::Balanced;
        (!links.is_empty()).then_some(router::Entry::Address { distribution, waypoint: true, links })
    };
    let route = |both| on.first().map(|(broker, _)| router::Entry::LinkRoute { broker: Arc::clone(broker), both });
    match kind {
        AddressType::Anycast => Some(address(Distribution::Balanced)),
        AddressType::Multicast => Some(address(Distribution::Multicast)),
        AddressType::Queue => by_way_of(true),
        AddressType::DeadLetter => by_way_of(false),
        AddressType::Topic => route(true),
        AddressType::Subscription => route(false),
    }
}

/// Whether an address of this type in a standard space has something on brokers.
pub fn stored(kind: AddressType) -> bool {
    !matches!(kind, AddressType::Anycast | AddressType::Multicast)
}

/// Whether an address of this type has a queue, which may hold messages.
pub fn stores(kind: AddressType) -> bool {
    !matches!(kind, AddressType::Multicast | AddressType::Topic)
}

/// The slots that must be held before `entry` of `slot` may be: the space's settings, a subscription's topic, a dead
/// letter.
pub fn gates<'a>(slot: &'a Slot, entry: &'a Entry) -> impl Iterator<Item = &'a Slot> {
    let topic = (entry.settings.is_none() && entry.address != *slot).then_some(&entry.address);
    let dead = entry.settings.as_ref().map(|s| [s.dead_letter_address.as_ref(), s.expiry_address.as_ref()]);
    entry.ground.iter().chain(topic).chain(dead.into_iter().flatten().flatten())
}

/// Whether what a broker holds is, by names and queue attributes, what `entry` wants. Settings are not looked at.
pub fn matches_contents(entry: &Entry, contents: &super::broker::Contents) -> bool {
    let address = contents.addresses.get(&entry.address).is_some_and(|types| types.contains(&entry.routing));
    let queue = entry.queue.as_ref().is_none_or(|want| {
        contents.queues.get(&want.name).is_some_and(|have| {
            have.address == entry.address
                && have.routing == entry.routing
                && have.durable == want.durable
                && have.max_consumers == want.max_consumers
        })
    });
    address && queue
}

/// An entry for taking away an address that carries our mark and that no Address stands for any more.
pub fn marked(slot: &Slot) -> Arc<Entry> {
    let settings = Some(Settings::default());
    Arc::new(Entry { address: slot.clone(), routing: Routing::Multicast, queue: None, settings, ground: None })
}

/// An empty entry under a slot's name, for taking away what no Address stands for any more.
pub fn leftover(slot: &Slot, queue: &super::broker::ObservedQueue) -> Arc<Entry> {
    Arc::new(Entry {
        address: queue.address.clone(),
        routing: queue.routing,
        queue: Some(Queue { name: slot.clone(), durable: queue.durable, max_consumers: queue.max_consumers }),
        settings: (queue.address == *slot).then(Settings::default),
        ground: None,
    })
}
