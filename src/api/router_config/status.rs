//! Of a RouterConfig: what the operator tells.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterConfigStatus {
    /// Accepted: the spec is taken. Ready: every broker, router or HAProxy serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the data plane is for: Messaging or Edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The owner in force: spec.messaging.owner, or the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many brokers serve, of how many there are, such as 1/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers_summary: Option<String>,
    /// The brokers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub brokers: Vec<TargetStatus>,
    /// How many routers serve, of how many there are, such as 2/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routers_summary: Option<String>,
    /// The routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub routers: Vec<TargetStatus>,
    /// How many HAProxies serve, of how many there are, such as 2/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges_summary: Option<String>,
    /// The HAProxies, by the name of the `waystation edge` beside each. One that is gone is in here for up to a minute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub edges: Vec<TargetStatus>,
    /// How many queues of ours hold messages though no Address asks for them. They are never destroyed by
    /// themselves; the annotation waystation.dev/prune-orphans does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphans: Option<u32>,
    /// The value of the annotation waystation.dev/prune-orphans that was handled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphans_pruned: Option<String>,
    /// The value of the annotation waystation.dev/resync that was handled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resynced: Option<String>,
}

/// A broker or router as the operator sees it, or a HAProxy as the agent beside it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Its name, or host:port where it has none.
    pub name: String,
    /// Where it stands.
    pub state: TargetState,
    /// More about the state, such as the last error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when it has been in that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Where a broker, router or HAProxy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TargetState {
    /// Being connected for the first time, or again after a short interruption.
    Connecting,
    /// Connected; it is read, compared and brought to what it must hold.
    Filling,
    /// It holds what it must hold, and follows changes.
    Serving,
    /// It cannot be reached, or refuses the login.
    Unreachable,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}
