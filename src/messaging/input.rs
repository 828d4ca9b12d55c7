//! What happens to the model, one value an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::broker::{Contents, FullPolicy, Outcome};
use super::endpoints::{Endpoints, ServiceRef};
use super::exposure::{EndpointSpec, Exposed, Listeners};
use super::ids::{Key, Kind, Slot, TargetId};
use super::plans::{AddressPlan, SpacePlan};
use super::remote::{ConnectorRules, ConnectorSpec, ForwarderSpec};
use super::router::RouterLink;
use super::status::{AddressSpaceStatus, AddressStatus, RouterConfigStatus};

/// What the model needs of an object's metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`: another uid under the same key is another object.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.resourceVersion` as a number (0 where it is none): an older one never overrides what was written since.
    pub version: u64,
    /// `metadata.creationTimestamp`, seconds since 1970.
    pub created_s: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether our finalizer is there.
    pub finalizer: bool,
    /// Of an object that is being deleted, the finalizers of others, parted by commas; none: nobody else holds it.
    pub others: Option<Arc<str>>,
    /// Whether `waystation.dev/force-delete: "true"` is there.
    pub force_delete: bool,
    /// Whether this came from a list (which is the truth, even when versions went backwards by a restore) and not from
    /// a watch event (which may be older than what we wrote since).
    pub listed: bool,
}

/// A RouterConfig of our controller name with a messaging half.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// Metadata.
    pub meta: Meta,
    /// `messaging.owner`, or its default: never empty.
    pub owner: Arc<str>,
    /// One space without a prefix instead of many with.
    pub single: bool,
    /// Which namespaces' spaces may use it.
    pub allowed: Allowed,
    /// Brokers in the order of the spec.
    pub brokers: Vec<Broker>,
    /// The Secret with `tls.crt`, `tls.key`, `ca.crt` for all brokers.
    pub tls_secret: Option<Key>,
    /// The Secret with `username`, `password` for all brokers.
    pub credentials_secret: Option<Key>,
    /// Routers in the order of the spec; none, and no Service: brokered spaces only.
    pub routers: Vec<Router>,
    /// The Service whose endpoints are the routers.
    pub router_service: Option<ServiceRef>,
    /// The Secret with `tls.crt`, `tls.key`, `ca.crt` for all routers.
    pub router_tls_secret: Option<Key>,
    /// The Secret with `username`, `password` for all routers.
    pub router_credentials_secret: Option<Key>,
    /// The sslProfile on the routers by which they reach brokers.
    pub broker_ssl_profile: Option<Arc<str>>,
    /// The Secret with `username`, `password` by which routers log in to brokers.
    pub broker_credentials_secret: Option<Key>,
    /// Which connectors spaces may have; none: none.
    pub connectors: Option<ConnectorRules>,
    /// Where a router listens once it is filled.
    pub readiness: Readiness,
    /// Where the routers listen for clients.
    pub listeners: Listeners,
    /// For addresses that say nothing.
    pub defaults: Defaults,
    /// What addresses cost; none: they cost nothing.
    pub address_plans: Vec<AddressPlan>,
    /// What spaces may have; none: any amount.
    pub space_plans: Vec<SpacePlan>,
    /// Value of the annotation `waystation.dev/resync`.
    pub resync: Option<Arc<str>>,
    /// Value of the annotation `waystation.dev/prune-orphans`.
    pub prune_orphans: Option<Arc<str>>,
    /// The status that came with the object.
    pub status: RouterConfigStatus,
}

/// `allowedNamespaces`.
#[derive(Clone, Debug, PartialEq)]
pub enum Allowed {
    /// The RouterConfig's own.
    Same,
    /// Every namespace.
    All,
    /// Those whose labels match all requirements.
    Selector(Vec<Requirement>),
}

/// One requirement of a label selector (`matchLabels` become `In` with one value).
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// The label.
    pub key: Arc<str>,
    /// What must hold.
    pub test: LabelTest,
}

/// The operators of a label selector.
#[derive(Clone, Debug, PartialEq)]
pub enum LabelTest {
    /// The label is there with one of the values.
    In(Vec<Arc<str>>),
    /// The label is missing or has none of the values.
    NotIn(Vec<Arc<str>>),
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl RouterConfig {
    /// Whether it has routers, be they known or not.
    pub fn has_routers(&self) -> bool {
        !self.routers.is_empty() || self.router_service.is_some()
    }

    /// Every Secret that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &Key> {
        let brokers = self.tls_secret.iter().chain(&self.credentials_secret);
        let routers = self.router_tls_secret.iter().chain(&self.router_credentials_secret);
        brokers.chain(routers).chain(&self.broker_credentials_secret)
    }
}

/// What a router's readiness listener binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Host name or address, as the router sees it.
    pub host: Arc<str>,
    /// Port.
    pub port: u16,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { host: "127.0.0.1".into(), port: 7779 }
    }
}

/// One external router.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Unique among the routers of the RouterConfig.
    pub name: Arc<str>,
    /// DNS name or IP address.
    pub host: Arc<str>,
    /// AMQP port.
    pub port: u16,
    /// Port of its readiness listener, where that is another than the RouterConfig's.
    pub readiness_port: Option<u16>,
}

/// One external broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Broker {
    /// Unique in the RouterConfig.
    pub name: Arc<str>,
    /// DNS name or IP address.
    pub host: Arc<str>,
    /// AMQP port.
    pub port: u16,
    /// How routers reach it, where that differs.
    pub router_host: Option<Arc<str>>,
    /// How routers reach it, where that differs.
    pub router_port: Option<u16>,
    /// Thousandths of broker credit that it is made for.
    pub credit: i64,
    /// It takes no queues, and those that it has move to others.
    pub drain: bool,
}

/// `messaging.defaults`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// For queues and topics without one.
    pub message_ttl: Ttl,
    /// For queues and topics without one.
    pub redelivery: Redelivery,
    /// For addresses without one.
    pub full_policy: Option<FullPolicy>,
    /// For addresses without one.
    pub max_size_bytes: Option<i64>,
    /// `address` of a deadLetter of the space, for queues and topics without one; where the space has none of that
    /// address, the default does not apply.
    pub dead_letter_address: Option<Arc<str>>,
}

/// `messageTtl`, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ttl {
    /// Shorter times to live are raised to this.
    pub minimum_ms: Option<i64>,
    /// Longer ones, and none, are cut to this.
    pub maximum_ms: Option<i64>,
}

impl Ttl {
    /// With what it leaves out taken from `default`, unless the ends would exclude each other: then the nearer word
    /// holds alone.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        let both = Self {
            minimum_ms: self.minimum_ms.or(default.minimum_ms),
            maximum_ms: self.maximum_ms.or(default.maximum_ms),
        };
        match (both.minimum_ms, both.maximum_ms) {
            (Some(minimum), Some(maximum)) if minimum > maximum => self,
            _ => both,
        }
    }
}

/// `redelivery`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Redelivery {
    /// Deliveries before the dead letter; -1: endless.
    pub max_attempts: Option<i32>,
    /// Milliseconds before the second delivery.
    pub delay_ms: Option<i64>,
    /// Factor from one delay to the next.
    pub delay_multiplier: Option<f64>,
    /// Cap of the delay, milliseconds.
    pub max_delay_ms: Option<i64>,
}

impl Redelivery {
    /// With what it leaves out taken from `default`.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        Self {
            max_attempts: self.max_attempts.or(default.max_attempts),
            delay_ms: self.delay_ms.or(default.delay_ms),
            delay_multiplier: self.delay_multiplier.or(default.delay_multiplier),
            max_delay_ms: self.max_delay_ms.or(default.max_delay_ms),
        }
    }
}

/// An AddressSpace.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressSpace {
    /// Metadata.
    pub meta: Meta,
    /// Its RouterConfig.
    pub config: Key,
    /// Served by routers, with brokers behind them, instead of by one broker.
    pub standard: bool,
    /// The name of its plan.
    pub plan: Option<Arc<str>>,
    /// How clients shall reach it.
    pub endpoints: Vec<EndpointSpec>,
    /// Remote hosts that the routers shall connect to.
    pub connectors: Vec<ConnectorSpec>,
    /// The status that came with the object.
    pub status: AddressSpaceStatus,
}

/// The types of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressType {
    /// Each message to one receiver, nothing stored.
    Anycast,
    /// Each message to every receiver, nothing stored.
    Multicast,
    /// Stored until one receiver took it.
    Queue,
    /// Each message to every subscription.
    Topic,
    /// A stored copy of a topic's messages.
    Subscription,
    /// Takes what queues and topics could not deliver, or what expired.
    DeadLetter,
}

/// An Address.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// Metadata.
    pub meta: Meta,
    /// Name of its space, in the same namespace.
    pub space: Arc<str>,
    /// The address in force: `spec.address`, or the name.
    pub address: Arc<str>,
    /// Its type.
    pub kind: AddressType,
    /// The name of its plan.
    pub plan: Option<Arc<str>>,
    /// Subscriptions: the topic's address.
    pub topic: Option<Arc<str>>,
    /// Address of a deadLetter in the space.
    pub dead_letter: Option<Arc<str>>,
    /// Address of a deadLetter in the space, for expired messages.
    pub expiry: Option<Arc<str>>,
    /// As written in the spec.
    pub ttl: Ttl,
    /// As written in the spec.
    pub redelivery: Redelivery,
    /// As written in the spec.
    pub max_size_bytes: Option<i64>,
    /// As written in the spec.
    pub full_policy: Option<FullPolicy>,
    /// Subscriptions: consumers at a time (default 1).
    pub max_consumers: Option<i32>,
    /// On deletion, wait for the last message.
    pub when_empty: bool,
    /// Ways to and from remote hosts.
    pub forwarders: Vec<ForwarderSpec>,
    /// The status that came with the object.
    pub status: AddressStatus,
}

/// What a drive says of its connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A connection is up; changes may go; the read is under way. With the id of the broker, where it tells one: the
    /// same under whatever name it is reached.
    Connected(Option<Arc<str>>),
    /// A read begins: outcomes reported after this are newer than what it will find.
    Reading,
    /// What the broker held when the read began, or later.
    Contents(Arc<Contents>),
    /// A read failed in a way that only a human can mend (no permission, not an Artemis): the broker's words.
    Unreadable(Arc<str>),
    /// No connection, with the reason: never any secret.
    Down(Arc<str>),
    /// Somebody else took away this queue or address.
    Lost(Slot),
    /// An answer to a job.
    Outcome(Outcome),
}

/// The kinds of input that must be complete before anything is driven, pruned or judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// RouterConfigs.
    RouterConfigs,
    /// AddressSpaces.
    AddressSpaces,
    /// Addresses.
    Addresses,
    /// Namespaces (their labels).
    Namespaces,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A RouterConfig was made or changed.
    RouterConfig(Box<RouterConfig>),
    /// An AddressSpace was made or changed.
    AddressSpace(Box<AddressSpace>),
    /// An Address was made or changed.
    Address(Box<Address>),
    /// A RouterConfig of another installation: its spaces and addresses are not touched. `Vanished` ends that.
    ForeignConfig(Key),
    /// An object is gone from the API server, or belongs to another installation now. A queue whose Address was not
    /// seen with a deletion timestamp before stays while it holds messages.
    Vanished(Kind, Key),
    /// An object is there but cannot be read: what it had stays as it is and nothing of its namespace is pruned.
    Undecodable(Kind, Key),
    /// Labels of a namespace; `None`: it is gone.
    Namespace(Arc<str>, Option<Arc<BTreeMap<String, String>>>),
    /// A namespace is being deleted, until its next [`Input::Namespace`]: nothing that is missing there can come back.
    NamespaceGoing(Arc<str>),
    /// A referenced Secret: a number that changes with its contents, or `None` when it is missing.
    Secret(Key, Option<u64>),
    /// What the EndpointSlices of a referenced Service say, each time that changes.
    Endpoints(Key, Endpoints),
    /// The first complete list of a source has been applied.
    Synced(Source),
    /// Whether this process may drive and write.
    Leading(bool),
    /// Something about a broker's connection or work, from the drive started as `incarnation`.
    Target(TargetId, u64, Link),
    /// The same of a router.
    Router(TargetId, u64, RouterLink),
    /// How far the Services of the space of this uid are, by the names of their endpoints, each time that changes.
    Exposed(Key, Arc<str>, BTreeMap<Arc<str>, Exposed>),
    /// A write was carried out.
    Written(super::output::WriteDone),
}
