//! Artemis' management operations as values: calls to send, answers to read. Pure.
//!
//! What the broker really does, by experiment with 2.40.0, is told in `docs/artemis.md`; the points that shaped this
//! file:
//! - `createQueue` with `ignoreIfExists` echoes the request for whatever exists, also under another address: it is
//!   never set, and "already exists" is a refusal to look into.
//! - `addAddressSettings` replaces all keys of the match and ignores unknown ones: its echo is compared.
//! - Numbers that do not fit are cut silently (`3000000000` attempts become `-1294967296`): the echo shows that too.
//! - In an address whose settings switch auto-creation off, `createQueue` makes the address only when told so.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::link::Call;
use crate::messaging::broker::{ObservedQueue, Queue, Routing, Settings, ground, is_ground};
use crate::messaging::ids::Slot;
use settings::{AUTOMATIC, KEYS, same, settings_json};
pub use settings::{check_echo, differing, parse_settings, same_in_force};

/// The broker's own page size when none is given; `maxSizeBytes` below the page size is refused.
pub const DEFAULT_PAGE_BYTES: i64 = 10 * 1024 * 1024;

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A queue or an address of that name exists already.
    AlreadyExists,
    /// There is no such queue or address.
    NotFound,
    /// The queue has consumers, the address has queues.
    InUse,
    /// Something went while the broker was looking at it: asked again, it answers.
    Passing,
    /// Everything else.
    Other,
}

/// How often a question is put again that met [`Refusal::Passing`].
pub const TRIES: u32 = 5;

/// Classifies the words of a refusal by their AMQ code.
pub fn classify(words: &str) -> Refusal {
    match words.split(':').next().unwrap_or_default() {
        "AMQ229019" | "AMQ229204" => Refusal::AlreadyExists,
        "AMQ229017" | "AMQ229203" | "AMQ229067" => Refusal::NotFound,
        "AMQ229025" | "AMQ229205" => Refusal::InUse,
        // The words of the Java machine for an object that is not there any more.
        _ if words.starts_with("Cannot invoke ") => Refusal::Passing,
        _ => Refusal::Other,
    }
}

/// The `user` of queues that belong to `owner`.
pub fn user(owner: &str) -> String {
    format!("waystation:{owner}")
}

/// Makes a queue. With `make_address` its address is made, or is given the routing type, where missing; without, that
/// is a refusal.
pub fn create_queue(queue: &Queue, address: &str, routing: Routing, owner: &str, make_address: bool) -> Call {
    let configuration = json!({
        "name": &*queue.name,
        "address": address,
        "routing-type": routing.as_str(),
        "durable": queue.durable,
        "max-consumers": queue.max_consumers,
        "auto-create-address": make_address,
        "user": user(owner),
    });
    broker("createQueue", json!([configuration.to_string(), false]))
}

/// What the names of marks begin with; no Address's does.
pub const MARKS: &str = "_waystation/";

/// The name of the queue that says whose a slot is which has no queue of its own.
pub fn mark(slot: &str) -> String {
    // The settings of a space have wildcards in their name, which mean something to a broker.
    let ground = is_ground(slot).then(|| slot.trim_end_matches("*.#"));
    format!("{MARKS}{}", ground.unwrap_or(slot))
}

/// The slot that a queue of this name marks, if it is one that does.
pub fn marked(queue: &str) -> Option<Slot> {
    let slot = queue.strip_prefix(MARKS).filter(|slot| !slot.is_empty())?;
    Some(if slot.ends_with('/') { ground(slot) } else { slot.into() })
}

/// Marks a slot. The queue is on an address of marks beside the slot's own, so that nothing changes for who sends or
/// receives there; it takes no messages and no consumers.
pub fn create_mark(slot: &str, owner: &str) -> Call {
    let space = slot.split_once('/').map_or("", |(space, _)| space);
    let configuration = json!({
        "name": mark(slot),
        "address": format!("{MARKS}{space}"),
        "routing-type": Routing::Multicast.as_str(),
        "durable": true,
        "max-consumers": 0,
        "enabled": false,
        "auto-create-address": true,
        "auto-delete": false,
        "user": user(owner),
    });
    broker("createQueue", json!([configuration.to_string(), false]))
}

/// Takes a mark away; the address of marks goes with the last one.
pub fn destroy_mark(slot: &str) -> Call {
    broker("destroyQueue", json!([mark(slot), true, true]))
}

/// Asks for the `user` of a queue, whoever's.
pub fn queue_user(queue: &str) -> Call {
    Call { resource: format!("queue.{queue}"), operation: "getUser", params: json!([]) }
}

/// Changes how many consumers a queue takes; consumers that are there stay.
pub fn update_queue(name: &str, max_consumers: i32) -> Call {
    broker("updateQueue", json!([json!({ "name": name, "max-consumers": max_consumers }).to_string()]))
}

/// Makes a queue that is there one of `owner`.
pub fn adopt_queue(name: &str, owner: &str) -> Call {
    broker("updateQueue", json!([json!({ "name": name, "user": user(owner) }).to_string()]))
}

/// Destroys a queue with its messages; its address stays. With `remove_consumers` its consumers are detached,
/// without them it is refused while there are any.
pub fn destroy_queue(name: &str, remove_consumers: bool) -> Call {
    broker("destroyQueue", json!([name, remove_consumers, false]))
}

/// Makes an address without a queue.
pub fn create_address(name: &str, routing: Routing) -> Call {
    broker("createAddress", json!([name, routing.as_str()]))
}

/// Deletes an address; refused while a queue is bound to it, also the temporary one of a multicast consumer, unless
/// `with_queues`.
pub fn delete_address(name: &str, with_queues: bool) -> Call {
    broker("deleteAddress", json!([name, with_queues]))
}

/// Ends the connections of all that receive from an address. Who sent to what was there before is refused otherwise for
/// as long as his link lives: the broker remembers how that routed.
pub fn close_consumers(address: &str) -> Call {
    broker("closeConsumerConnectionsForAddress", json!([address]))
}

/// Sets all settings of the addresses that `matches`: an address, or all below a prefix
/// ([`crate::messaging::broker::ground`]).
pub fn put_settings(matches: &str, settings: &Settings) -> Call {
    broker("addAddressSettings", json!([matches, Value::Object(settings_json(settings)).to_string()]))
}

/// Sets for an address what it had of its own `before`, as far as we ever set anything: what was not in force beside it.
pub fn restore_settings(address: &str, before: &Map<String, Value>, base: &Map<String, Value>) -> Call {
    let own = |key: &str| {
        let value = before.get(key).filter(|value| !same(value, base.get(key).unwrap_or(&Value::Null)))?;
        Some((key.to_owned(), value.clone()))
    };
    let keys: Map<String, Value> = KEYS.iter().chain(&AUTOMATIC).filter_map(|key| own(key)).collect();
    broker("addAddressSettings", json!([address, Value::Object(keys).to_string()]))
}

/// Takes the settings of a match away; missing is done.
pub fn remove_settings(matches: &str) -> Call {
    broker("removeAddressSettings", json!([matches]))
}

/// Reads the settings in force for an address: its own merged over those of every wider match.
pub fn read_settings(address: &str) -> Call {
    broker("getAddressSettingsAsJSON", json!([address]))
}

/// Lists one page, from 1, of the queues of `owner`. A page costs the broker a walk over all queues whatever its
/// size: ask for large ones.
pub fn list_queues(owner: &str, page: u32, page_size: u32) -> Call {
    let filter = json!({ "field": "user", "operation": "EQUALS", "value": user(owner) });
    broker("listQueues", json!([filter.to_string(), page, page_size]))
}

/// Lists the queue of a name, whoever's.
pub fn find_queue(name: &str) -> Call {
    let filter = json!({ "field": "name", "operation": "EQUALS", "value": name });
    broker("listQueues", json!([filter.to_string(), 1, 1]))
}

/// Lists the queues that are bound to an address, whoever's.
pub fn list_bound(address: &str) -> Call {
    let filter = json!({ "field": "address", "operation": "EQUALS", "value": address });
    broker("listQueues", json!([filter.to_string(), 1, 20_000]))
}

/// The names of the queues that are bound to an address: without a walk over all queues.
pub fn queues_on(address: &str) -> Call {
    Call { resource: format!("address.{address}"), operation: "getQueueNames", params: json!([]) }
}

/// The names of all queues: a twentieth of the cost of [`list_queues`].
pub fn queue_names() -> Call {
    broker("getQueueNames", json!([]))
}

/// The names of all addresses. (`listAddresses` costs the broker a walk over all bindings for each row: 32 s for
/// 10,000.)
pub fn address_names() -> Call {
    broker("getAddressNames", json!([]))
}

/// Reads the routing types of one address.
pub fn address_info(name: &str) -> Call {
    broker("getAddressInfo", json!([name]))
}

/// Counts the messages of a queue.
pub fn message_count(queue: &str) -> Call {
    Call { resource: format!("queue.{queue}"), operation: "getMessageCount", params: json!([]) }
}

/// Asks which broker this is: an id that stays its own through restarts, wherever it is reached.
pub fn node_id() -> Call {
    broker("getNodeID", json!([]))
}

fn broker(operation: &'static str, params: Value) -> Call {
    Call { resource: "broker".to_owned(), operation, params }
}

// === Answers ===

/// A queue as listed, with its owner in the broker's words.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedQueue {
    /// What it is.
    pub queue: ObservedQueue,
    /// Its `user`; empty when it has none.
    pub user: String,
    /// Consumers attached when read.
    pub consumers: u64,
    /// It was made for somebody who came there: nobody has asked for it.
    pub by_itself: bool,
}

impl ListedQueue {
    /// Whether it carries this owner.
    pub fn is_of(&self, owner: &str) -> bool {
        self.user == user(owner)
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its rows.
    pub queues: Vec<ListedQueue>,
    /// Rows of all pages.
    pub total: u64,
}

/// An answer that cannot be read: another broker version, or not this broker at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unexpected answer to {operation}")]
pub struct UnexpectedAnswer {
    /// What was asked.
    pub operation: &'static str,
}

/// Reads the answer of [`list_queues`] and [`find_queue`].
///
/// # Errors
/// When a row lacks what we go by. No list is better than half of one.
pub fn parse_queues(answer: &Value) -> Result<Page, UnexpectedAnswer> {
    let unexpected = UnexpectedAnswer { operation: "listQueues" };
    let text = answer.as_str().ok_or_else(|| unexpected.clone())?;
    let list: List<'_> = serde_json::from_str(text).map_err(|_| unexpected.clone())?;
    let queues: Option<Vec<ListedQueue>> = list.data.iter().map(Row::read).collect();
    let queues = queues.ok_or(unexpected)?;
    let total = list.count.unwrap_or(queues.len() as u64);
    Ok(Page { queues, total })
}

/// What we go by in the answer; a row has thirty fields more, which with 10,000 queues would be 40 MB as a tree.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    data: Vec<Row<'a>>,
    count: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    address: Cow<'a, str>,
    #[serde(borrow)]
    routing_type: Cow<'a, str>,
    #[serde(borrow)]
    durable: Cow<'a, str>,
    #[serde(borrow)]
    max_consumers: Cow<'a, str>,
    #[serde(borrow)]
    message_count: Cow<'a, str>,
    #[serde(borrow)]
    consumer_count: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    auto_created: Option<Cow<'a, str>>,
}

impl Row<'_> {
    fn read(&self) -> Option<ListedQueue> {
        let queue = ObservedQueue {
            name: Slot::from(&*self.name),
            address: Slot::from(&*self.address),
            routing: routing(&self.routing_type)?,
            durable: self.durable == "true",
            max_consumers: self.max_consumers.parse().ok()?,
            messages: count(self.message_count.parse().ok()?),
        };
        let consumers = self.consumer_count.as_deref().and_then(|count| count.parse().ok()).unwrap_or_default();
        let user = self.user.as_deref().unwrap_or_default().to_owned();
        let by_itself = self.auto_created.as_deref() == Some("true");
        Some(ListedQueue { queue, user, consumers: count(consumers), by_itself })
    }
}

/// Reads the answer of [`queue_names`] and [`address_names`].
///
/// # Errors
/// When it is no list of names.
pub fn parse_names(answer: &Value) -> Result<Vec<String>, UnexpectedAnswer> {
    let names = answer
        .as_array()
        .and_then(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>());
    names.ok_or(UnexpectedAnswer { operation: "names" })
}

/// An address.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressInfo {
    /// Its routing types.
    pub types: Vec<Routing>,
    /// It was made for somebody who came there, or for a queue.
    pub by_itself: bool,
}

/// Reads the answer of [`address_info`]:
/// `Address [name=a, routingTypes={MULTICAST,ANYCAST}, autoCreated=false]`. A name may look like anything, so the
/// last braces count.
///
/// # Errors
/// When there are none.
pub fn parse_address(answer: &Value) -> Result<AddressInfo, UnexpectedAnswer> {
    let info = answer.as_str().and_then(|text| {
        let (_, rest) = text.rsplit_once("routingTypes={")?;
        let (types, rest) = rest.split_once('}')?;
        let types = types.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(routing);
        Some(AddressInfo { types: types.collect::<Option<_>>()?, by_itself: rest.contains("autoCreated=true") })
    });
    info.ok_or(UnexpectedAnswer { operation: "getAddressInfo" })
}

/// Reads the routing types out of it.
///
/// # Errors
/// When there are none.
pub fn parse_routing(answer: &Value) -> Result<Vec<Routing>, UnexpectedAnswer> {
    parse_address(answer).map(|info| info.types)
}

/// Reads the answer of [`message_count`].
///
/// # Errors
/// When it is no number.
pub fn parse_count(answer: &Value) -> Result<u64, UnexpectedAnswer> {
    answer.as_i64().map(count).ok_or(UnexpectedAnswer { operation: "getMessageCount" })
}

/// Artemis counts below zero for a moment after a dead letter without an address (seen: -1).
fn count(messages: i64) -> u64 {
    u64::try_from(messages).unwrap_or(0)
}

fn routing(word: &str) -> Option<Routing> {
    [Routing::Anycast, Routing::Multicast].into_iter().find(|routing| routing.as_str() == word)
}

/// JSON within a string within JSON.
fn parse_nested(answer: &Value) -> Option<Value> {
    serde_json::from_str(answer.as_str()?).ok()
}

mod settings;
#[cfg(test)]
mod tests;
