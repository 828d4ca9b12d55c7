//! Artemis' management operations in memory: queues, addresses and address settings with the broker's semantics and
//! words, as `docs/artemis.md` tells them. Pure and synchronous, the same for the simulation and for the stand-in.
//!
//! Invariant: every queue is bound to an address that exists. What it answers is held to the real broker by
//! `tests/broker_link.rs`, which runs against both. It carries no messages: their counts are set by whoever uses it.

mod queues;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use settings::AddressSettings;

/// How an address hands on its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routing {
    /// Each message to one consumer.
    Anycast,
    /// Each message to every queue.
    Multicast,
}

impl Routing {
    /// The broker's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anycast => "ANYCAST",
            Self::Multicast => "MULTICAST",
        }
    }

    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "ANYCAST" => Ok(Self::Anycast),
            "MULTICAST" => Ok(Self::Multicast),
            _ => Err(format!("No enum constant org.apache.activemq.artemis.api.core.RoutingType.{word}")),
        }
    }
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The address it is bound to.
    pub address: String,
    /// Its routing type.
    pub routing: Routing,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Consumers at a time; -1: any number.
    pub max_consumers: i32,
    /// Whose it is.
    pub user: String,
    /// Messages in it: set by [`Core::set_messages`].
    pub messages: u64,
    /// Consumers on it: set by [`Core::set_consumers`].
    pub consumers: u64,
    /// Made for somebody who came there: [`Core::come`].
    pub auto_created: bool,
    id: u64,
}

/// A queue that was removed: what the broker notifies of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The queue.
    pub queue: String,
    /// The address it was bound to.
    pub address: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    id: u64,
    routing: BTreeSet<Routing>,
    queues: BTreeSet<String>,
    /// Made by `createQueue` and not by `createAddress`.
    auto_created: bool,
}

/// A broker's management.
#[derive(Debug, Clone)]
pub struct Core {
    addresses: BTreeMap<String, Address>,
    queues: BTreeMap<String, Queue>,
    settings: AddressSettings,
    removals: VecDeque<Removal>,
    refused: BTreeMap<String, String>,
    next_id: u64,
    changes: u64,
    persistence: bool,
    node: String,
}

/// Queues that a fresh broker has.
const OWN_QUEUES: [&str; 2] = ["DLQ", "ExpiryQueue"];
const NOTIFICATIONS: &str = "activemq.notifications";

impl Default for Core {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Core {
    /// A fresh broker, as `artemis create` configures it.
    #[must_use]
    pub fn new(persistence: bool) -> Self {
        let mut core = Self {
            addresses: BTreeMap::new(),
            queues: BTreeMap::new(),
            settings: AddressSettings::default(),
            removals: VecDeque::new(),
            refused: BTreeMap::new(),
            next_id: 1,
            changes: 0,
            persistence,
            node: "00000000-0000-0000-0000-000000000000".to_owned(),
        };
        core.make_own_queues();
        core
    }

    /// A broker that is told from others by this id, until it loses everything.
    #[must_use]
    pub fn with_node(self, node: &str) -> Self {
        Self { node: node.to_owned(), ..self }
    }

    fn make_own_queues(&mut self) {
        self.address_with(NOTIFICATIONS, Routing::Multicast);
        for name in OWN_QUEUES {
            if !self.queues.contains_key(name) {
                self.bind(name, name, Routing::Anycast, (true, -1, String::new()));
            }
        }
    }

    /// One management operation: the first element of the broker's answer (null when it has none), or its refusal.
    ///
    /// # Errors
    /// The words of the refusal.
    pub fn call(&mut self, resource: &str, operation: &str, params: &Value) -> Result<Value, String> {
        let params = params.as_array().map(Vec::as_slice).unwrap_or_default();
        match resource {
            "broker" => self.broker(operation, params),
            _ if resource.starts_with("address.") => {
                match resource.strip_prefix("address.").and_then(|name| self.addresses.get(name)) {
                    Some(address) if operation == "getQueueNames" => Ok(json!(address.queues)),
                    Some(_) => Err(no_operation(operation, params)),
                    None => Err(format!("AMQ229067: Cannot find resource with name {resource}")),
                }
            }
            _ => match resource.strip_prefix("queue.").and_then(|name| self.queues.get(name)) {
                Some(queue) if operation == "getMessageCount" => Ok(Value::from(queue.messages)),
                Some(queue) if operation == "getUser" && queue.user.is_empty() => Ok(Value::Null),
                Some(queue) if operation == "getUser" => Ok(Value::from(queue.user.as_str())),
                Some(_) => Err(no_operation(operation, params)),
                None => Err(format!("AMQ229067: Cannot find resource with name {resource}")),
            },
        }
    }

    fn broker(&mut self, operation: &str, params: &[Value]) -> Result<Value, String> {
        let text = |index: usize| params.get(index).and_then(Value::as_str).unwrap_or_default();
        let flag = |index: usize| params.get(index).and_then(Value::as_bool).unwrap_or(false);
        match operation {
            "createQueue" => self.create_queue(text(0), flag(1)),
            "updateQueue" => self.update_queue(text(0)),
            "destroyQueue" => self.destroy_queue(text(0), flag(1), flag(2)),
            "createAddress" => self.create_address(text(0), text(1)),
            "updateAddress" => self.update_address(text(0), text(1)),
            "deleteAddress" => self.delete_address(text(0), flag(1)),
            "addAddressSettings" => {
                self.check_refused(text(0))?;
                let echo = self.settings.add(text(0), text(1))?;
                self.changes += 1;
                Ok(Value::String(echo))
            }
            "removeAddressSettings" => {
                self.check_refused(text(0))?;
                self.changes += u64::from(self.settings.remove(text(0)));
                Ok(Value::Null)
            }
            "getAddressSettingsAsJSON" => Ok(Value::String(self.settings.merged_json(text(0)))),
            "closeConsumerConnectionsForAddress" => {
                self.dismiss(text(0));
                Ok(Value::Bool(true))
            }
            "listQueues" => self.list_queues(params),
            "listAddresses" => self.list_addresses(params),
            "getQueueNames" => Ok(json!(self.queues.keys().collect::<Vec<_>>())),
            "getAddressNames" => Ok(json!(self.addresses.keys().collect::<Vec<_>>())),
            "getAddressInfo" => match self.addresses.get(text(0)) {
                Some(address) => Ok(Value::String(address_info(text(0), address))),
                None => Err(no_address(text(0))),
            },
            "isPersistenceEnabled" => Ok(Value::Bool(self.persistence)),
            "getVersion" => Ok(Value::from("2.40.0")),
            "getNodeID" => Ok(Value::from(self.node.as_str())),
            _ => Err(no_operation(operation, params)),
        }
    }

    /// Stops and starts the broker. What is left: everything durable with persistence and not `empty`, nothing
    /// otherwise.
    pub fn restart(&mut self, empty: bool) {
        if empty || !self.persistence {
            let (refused, node) = (std::mem::take(&mut self.refused), format!("{}'", self.node));
            *self = Self { next_id: self.next_id, changes: self.changes, refused, node, ..Self::new(self.persistence) };
            return;
        }
        let gone: Vec<String> =
            self.queues.iter().filter(|(_, queue)| !queue.durable).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.unbind(&name);
        }
        for queue in self.queues.values_mut() {
            queue.consumers = 0;
        }
        // Nobody was connected to be told.
        self.removals.clear();
    }

    /// Refuses every change of one queue, address or settings match from now on, in these words.
    pub fn refuse(&mut self, name: &str, words: &str) {
        self.refused.insert(name.to_owned(), words.to_owned());
    }

    /// Ends [`Core::refuse`].
    pub fn relent(&mut self, name: &str) {
        self.refused.remove(name);
    }

    /// The queues removed since the last call, oldest first.
    pub fn take_removals(&mut self) -> Vec<Removal> {
        self.removals.drain(..).collect()
    }

    /// Changes made by management operations since it was made: equal before and after means nothing was done.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The queue of a name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// All queues but those of a fresh broker, by name.
    pub fn queues(&self) -> impl Iterator<Item = (&str, &Queue)> {
        self.queues.iter().map(|(name, queue)| (name.as_str(), queue)).filter(|(name, _)| !OWN_QUEUES.contains(name))
    }

    /// All addresses but those of a fresh broker, by name, with their routing types.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, Vec<Routing>)> {
        self.addresses
            .iter()
            .filter(|(name, _)| *name != NOTIFICATIONS && !OWN_QUEUES.contains(&name.as_str()))
            .map(|(name, address)| (name.as_str(), address.routing.iter().copied().collect()))
    }

    /// All settings matches that were added, with their keys.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.settings.added()
    }

    /// Says how many messages a queue holds; false when there is no such queue.
    pub fn set_messages(&mut self, queue: &str, messages: u64) -> bool {
        self.queues.get_mut(queue).map(|queue| queue.messages = messages).is_some()
    }

    /// Says how many consumers a queue has; false when there is no such queue.
    pub fn set_consumers(&mut self, queue: &str, consumers: u64) -> bool {
        self.queues.get_mut(queue).map(|queue| queue.consumers = consumers).is_some()
    }

    /// Somebody comes to an address to receive from it, as a router does: where there is none, and settings do not say
    /// otherwise, it is made as a multicast one, with a queue for as long as he stays. Whether that was done.
    pub fn come(&mut self, address: &str, queue: &str) -> bool {
        let settings: Map<String, Value> =
            serde_json::from_str(&self.settings.merged_json(address)).unwrap_or_default();
        let off = |key: &str| settings.get(key) == Some(&Value::Bool(false));
        if self.addresses.contains_key(address) || off("autoCreateAddresses") || off("autoCreateQueues") {
            return false;
        }
        self.bind(queue, address, Routing::Multicast, (false, -1, "client".to_owned()));
        if let Some(made) = self.queues.get_mut(queue) {
            (made.auto_created, made.consumers) = (true, 1);
        }
        true
    }

    /// Who came to an address goes, and his queue with him.
    fn dismiss(&mut self, address: &str) {
        let guest = |(name, queue): (&String, &Queue)| {
            (queue.address == address && queue.auto_created && !queue.durable).then(|| name.clone())
        };
        for name in self.queues.iter().filter_map(guest).collect::<Vec<_>>() {
            self.unbind(&name);
        }
    }

    fn check_refused(&self, name: &str) -> Result<(), String> {
        self.refused.get(name).map_or(Ok(()), |words| Err(words.clone()))
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn no_operation(operation: &str, params: &[Value]) -> String {
    format!("AMQ229069: no operation {operation}/{}", params.len())
}

fn no_address(name: &str) -> String {
    format!("AMQ229203: Address Does Not Exist: {name}")
}

fn address_info(name: &str, address: &Address) -> String {
    let types: Vec<&str> = address.routing.iter().rev().map(|routing| routing.as_str()).collect();
    format!("Address [name={name}, routingTypes={{{}}}, autoCreated={}]", types.join(","), address.auto_created)
}
