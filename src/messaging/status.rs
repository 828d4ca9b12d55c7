//! Statuses as the model decides them. `cluster` turns them into the API's types and back.

use std::sync::Arc;

use super::exposure::EndpointStatus;
use super::input::{Redelivery, Ttl};
use super::remote::Row;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True` or `False`.
    pub status: bool,
    /// One of the kind's reasons.
    pub reason: &'static str,
    /// For people.
    pub message: Arc<str>,
    /// Generation that this is about.
    pub generation: i64,
    /// `lastTransitionTime`, seconds since 1970.
    pub since_s: i64,
}

impl Condition {
    /// Equal but for the time.
    pub fn says_same(&self, other: &Self) -> bool {
        (self.status, self.reason, &self.message, self.generation)
            == (other.status, other.reason, &other.message, other.generation)
    }
}

/// State of a connection to a broker or router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetState {
    /// Not known yet.
    Connecting,
    /// Connected; being read, compared and completed.
    Filling,
    /// Holds all that it must.
    Serving,
    /// No connection.
    Unreachable,
}

impl TargetState {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Filling => "Filling",
            Self::Serving => "Serving",
            Self::Unreachable => "Unreachable",
        }
    }
}

/// One row of `status.brokers` or `status.routers` of a RouterConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub state: TargetState,
    /// Why, when it does not serve; what else is to be known, when it does.
    pub message: Arc<str>,
    /// Since when, seconds since 1970.
    pub since_s: i64,
}

/// Status of a RouterConfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterConfigStatus {
    /// Whether the spec can be carried out.
    pub accepted: Option<Condition>,
    /// Whether all its targets serve.
    pub ready: Option<Condition>,
    /// The owner in force.
    pub owner: Option<Arc<str>>,
    /// By name.
    pub brokers: Vec<TargetStatus>,
    /// By name.
    pub routers: Vec<TargetStatus>,
    /// Queues with messages whose Address was not seen to be deleted.
    pub orphans: i64,
    /// The last value of `waystation.dev/prune-orphans` that was carried out.
    pub orphans_pruned: Option<Arc<str>>,
    /// The last value of `waystation.dev/resync` that was carried out.
    pub resynced: Option<Arc<str>>,
}

/// Status of an AddressSpace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressSpaceStatus {
    /// Whether its RouterConfig takes it.
    pub accepted: Option<Condition>,
    /// Whether its broker serves.
    pub ready: Option<Condition>,
    /// Addresses in it.
    pub total: i64,
    /// Addresses that are Ready.
    pub ready_addresses: i64,
    /// What stands before every address on the broker; empty with `Single`.
    pub address_prefix: Option<Arc<str>>,
    /// The broker that serves it.
    pub broker: Option<Arc<str>>,
    /// Where clients of a brokered space connect: host and port of that broker.
    pub endpoint: Option<(Arc<str>, u16)>,
    /// The endpoints of a standard space, by name.
    pub endpoints: Vec<EndpointStatus>,
    /// The connectors, by name.
    pub connectors: Vec<Row>,
}

/// What a queue that moves does on a broker which it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Leaving {
    /// It is used until the brokers that take its place are.
    Migrating,
    /// Nothing comes in any more; it goes when it is empty.
    Draining,
}

/// Status of an Address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressStatus {
    /// Whether its spec can be carried out.
    pub accepted: Option<Condition>,
    /// Whether it is in force.
    pub ready: Option<Condition>,
    /// The address in force.
    pub address: Option<Arc<str>>,
    /// The plan that it is charged for.
    pub plan: Option<Arc<str>>,
    /// The brokers that hold it, by name.
    pub brokers: Vec<Arc<str>>,
    /// Those of them which it leaves, by name.
    pub leaving: Vec<(Arc<str>, Leaving)>,
    /// The last generation that was in force: there was something to keep from then on.
    pub configured: Option<i64>,
    /// Effective window.
    pub ttl: Ttl,
    /// Effective redelivery.
    pub redelivery: Redelivery,
    /// The forwarders, by name.
    pub forwarders: Vec<Row>,
}
