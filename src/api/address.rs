//! The kind Address: one name that clients send to and receive from.

// Two `printcolumn(type_ = "string")` are no duplicate, but look like one to the lint.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connector::{Forwarder, ForwarderStatus};
use super::plans::PlanName;
use super::settings::{FullPolicy, MessageTtl, Redelivery};

/// What is asked for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "waystation.dev",
    version = "v1alpha1",
    kind = "Address",
    plural = "addresses",
    namespaced,
    status = "AddressStatus",
    shortname = "addr",
    category = "waystation",
    doc = "An Address is one name in an AddressSpace that clients send to and receive from: a queue, a topic, a \
           subscription, an anycast or multicast address, or a place for dead letters.",
    derive = "PartialEq",
    selectable = ".spec.addressSpace",
    selectable = ".spec.type",
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".status.address",
        description = "The name that clients use, without the prefix of the space"
    ),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".spec.plan", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "self.addressSpace == oldSelf.addressSpace",
        "spec.addressSpace is immutable: delete this Address and create another"
    ),
    validation = (
        "has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address)",
        "spec.address is immutable: delete this Address and create another"
    ),
    validation = ("self.type == oldSelf.type", "spec.type is immutable: delete this Address and create another"),
    validation = (
        "has(self.topic) == has(oldSelf.topic) && (!has(self.topic) || self.topic == oldSelf.topic)",
        "spec.topic is immutable: delete this Address and create another"
    ),
    validation = (
        "self.type != 'subscription' || has(self.topic)",
        "a subscription needs spec.topic: give the address of a topic in the same space"
    ),
    validation = (
        "self.type == 'subscription' || !has(self.topic)",
        "spec.topic is only for type subscription: remove it, or make this a subscription"
    ),
    validation = (
        "self.type == 'subscription' || !has(self.subscription)",
        "spec.subscription is only for type subscription: remove it, or make this a subscription"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.deadLetterAddress)",
        "spec.deadLetterAddress is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.expiryAddress)",
        "spec.expiryAddress is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.messageTtl)",
        "spec.messageTtl is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.redelivery)",
        "spec.redelivery is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.maxSizeBytes)",
        "spec.maxSizeBytes is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'topic'] || !has(self.fullPolicy)",
        "spec.fullPolicy is only for types queue and topic: remove it (a subscription follows its topic)"
    ),
    validation = (
        "self.type in ['queue', 'subscription'] || !has(self.forwarders)",
        "spec.forwarders are only for types queue and subscription: remove them"
    ),
    validation = (
        "self.type != 'subscription' || !has(self.forwarders) || self.forwarders.all(f, f.direction == 'out')",
        "a subscription gets its messages from its topic: a forwarder of it can only have direction out"
    ),
    validation = (
        "!(self.type in ['anycast', 'multicast']) || !has(self.deletionPolicy) || self.deletionPolicy == 'Delete'",
        "types anycast and multicast keep no messages to wait for: remove spec.deletionPolicy, or set it to Delete"
    )
)]
pub struct AddressSpec {
    /// Name of the AddressSpace, in the namespace of this Address. Immutable.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub address_space: String,
    /// The name that clients use, such as orders or eu.orders; it is unique in its space across all types.
    /// Default: the name of this object. It has 1 to 255 characters, no whitespace, no control characters, none of
    /// `*`, `#`, `?` and `::`, does not start with `$`, `_` or `activemq.`, and has no `.` or `/` at its start, at its end or beside
    /// another. Routers take `.` and `/` for the same separator, so that a.b and a/b are one address. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(
        validation = (
            r"!self.matches('[\\s\\p{Z}\\p{Cc}\\p{Cf}\\x{34F}\\x{115F}\\x{1160}\\x{17B4}\\x{17B5}\\x{180B}-\\x{180F}\\x{2065}\\x{3164}\\x{FE00}-\\x{FE0F}\\x{FFA0}\\x{FFF0}-\\x{FFF8}\\x{FFFE}\\x{FFFF}\\x{E0000}-\\x{E0FFF}]')",
            "an address has no whitespace, no control characters and none that cannot be seen: remove them"
        ),
        validation = (
            "!self.contains('*') && !self.contains('#') && !self.contains('?')",
            "an address has no '*' and no '#', which are wildcards of the data planes, and no '?', where brokers cut it \
             off: use other characters"
        ),
        validation = (
            "!self.contains('::')",
            "an address has no '::', which stands between a topic and a subscription: use other characters"
        ),
        validation = (
            "!self.startsWith('$') && !self.startsWith('_') && !self.startsWith('activemq.')",
            "an address does not start with '$', '_' or 'activemq.', which mark internal addresses: use another \
             beginning"
        ),
        validation = (
            "!self.matches('^[./]|[./]$|[./][./]')",
            "an address has no '.' or '/' at its start, at its end or beside another: remove the extra one"
        )
    )]
    pub address: Option<String>,
    /// What the address is. Immutable.
    /// anycast: each message goes to one of the receivers present; nothing is stored.
    /// multicast: each message goes to every receiver present; nothing is stored.
    /// queue: messages are stored, and each goes to one receiver.
    /// topic: each message goes to every subscription.
    /// subscription: stores what its topic gets; clients receive from topic::subscription.
    /// deadLetter: a queue that takes what others could not deliver.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The name of one of the RouterConfig's messaging.addressPlans, such as small: what the address costs, and how it
    /// is where it says nothing itself. Required where the RouterConfig has plans, and only there. It can be changed;
    /// while there is no room for the new one, the one in status.plan stays in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Required for a subscription, and only there: the address (not the object's name) of a topic in the same
    /// space. Immutable, since the messages stored so far belong to that topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^\s\x00-\x1f\x7f-\x9f]+$"))]
    pub topic: Option<String>,
    /// For queues and topics: the address of a deadLetter in the same space, which takes what was rejected or
    /// delivered in vain too often. Default: the one of the RouterConfig, else none, and such messages are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^\s\x00-\x1f\x7f-\x9f]+$"))]
    pub dead_letter_address: Option<String>,
    /// For queues and topics: the address of a deadLetter in the same space, which takes what has expired. Default:
    /// none, and expired messages are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^\s\x00-\x1f\x7f-\x9f]+$"))]
    pub expiry_address: Option<String>,
    /// For queues and topics: the window into which the time to live of every message is brought. Default: that of
    /// the plan, else that of the RouterConfig, else what the sender says. The one in force is in status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<MessageTtl>,
    /// For queues and topics: how often and when a failed message is delivered again. What is left out is taken
    /// from the plan, else from the RouterConfig. What is in force is in status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<Redelivery>,
    /// For queues and topics: how many bytes of messages are held in memory before fullPolicy applies, such as
    /// 10485760. Default: that of the RouterConfig, else the broker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_size_bytes: Option<i64>,
    /// For queues and topics: what happens to a message that arrives when the address is full. Page writes it to
    /// disk, Block gives senders no more credit, Fail refuses it and tells the sender, Drop throws it away. Default:
    /// that of the RouterConfig, else the broker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FullPolicy")] // the description of an Option<enum> would be that of the enum
    pub full_policy: Option<FullPolicy>,
    /// Only for subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<Subscription>,
    /// What becomes of stored messages when this object is deleted. Delete: they go with it. WhenEmpty: the deletion
    /// waits until the last one is consumed; clients can still send meanwhile, so stop them first.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// For queues and subscriptions in spaces of type standard: up to 8 ways to or from remote addresses, over connectors
    /// of the space. How each is, is told in status.forwarders; Ready does not wait for them. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = (
            "self.all(a, self.exists_one(b, b.direction == a.direction && b.remoteAddress == a.remoteAddress))",
            "two forwarders have the same direction and remoteAddress: remove one"
        )
    )]
    pub forwarders: Vec<Forwarder>,
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AddressType {
    /// Each message goes to one of the receivers present; nothing is stored.
    Anycast,
    /// Each message goes to every receiver present; nothing is stored.
    Multicast,
    /// Messages are stored, and each goes to one receiver.
    Queue,
    /// Each message goes to every subscription.
    Topic,
    /// Stores what its topic gets.
    Subscription,
    /// A queue that takes what others could not deliver.
    DeadLetter,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl AddressType {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anycast => "anycast",
            Self::Multicast => "multicast",
            Self::Queue => "queue",
            Self::Topic => "topic",
            Self::Subscription => "subscription",
            Self::DeadLetter => "deadLetter",
            Self::Unknown => "unknown",
        }
    }
}

/// What only a subscription has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// How many clients may receive from the subscription at the same time, such as 4. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_consumers: Option<i32>,
}

/// What becomes of stored messages when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They go with it.
    #[default]
    Delete,
    /// The deletion waits until the last one is consumed.
    WhenEmpty,
    /// A value that this version does not know; it is taken for the careful one.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What the operator tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// Accepted: the spec is taken. Ready: every broker that holds the address, and
    /// every router that serves, has acknowledged it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last generation that was in force, where the current one is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured_generation: Option<i64>,
    /// The address in force: spec.address, or the name of the object. Clients put status.addressPrefix of the space
    /// before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The plan in force: what the address is charged for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The brokers that hold the address, by the names that the RouterConfig has for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub brokers: Vec<AddressBroker>,
    /// The time to live in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<MessageTtl>,
    /// The redelivery in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<Redelivery>,
    /// How the forwarders are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub forwarders: Vec<ForwarderStatus>,
}

/// A broker that holds an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressBroker {
    /// Name of the broker.
    pub name: String,
    /// What the address is doing there.
    pub state: AddressBrokerState,
}

/// What an address is doing on a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AddressBrokerState {
    /// It takes and gives messages.
    Active,
    /// It does so until the brokers to which the queue moves do.
    Migrating,
    /// It takes no messages any more, gives those that it has, and goes when the broker says that it is empty.
    Draining,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Address {
    /// The address in force: the one in the spec, or else the name of the object.
    pub fn address_in_force(&self) -> String {
        self.spec.address.clone().unwrap_or_else(|| self.name_any())
    }
}
