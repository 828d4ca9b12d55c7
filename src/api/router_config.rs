//! The kind RouterConfig: a data plane and who may use it.

// Two `printcolumn(type_ = "string")` are no duplicate, but look like one to the lint.
#![allow(clippy::duplicated_attributes)]

mod brokers;
mod edge;
mod login;
mod routers;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DEFAULT_CONTROLLER;
use super::plans::{AddressPlan, SpacePlan};
use super::settings::{FullPolicy, MessageTtl, Redelivery};
pub use brokers::{BrokerHost, Brokers, ExternalBrokers};
pub use edge::{
    BackendService, DefaultBackend, DefaultCertificate, Edge, EdgeListeners, HostOwnership, ListenAddress, OptionText,
    Publish, PublishedAddress, Tuning,
};
pub use login::{Credentials, Tls};
pub use routers::{
    AmqpListener, AmqpsListener, ExternalRouters, Listeners, Readiness, RouterHost, RouterService, Routers,
};
pub use status::{RouterConfigStatus, TargetState, TargetStatus};

/// What is asked for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "waystation.dev",
    version = "v1alpha1",
    kind = "RouterConfig",
    plural = "routerconfigs",
    namespaced,
    status = "RouterConfigStatus",
    shortname = "rcfg",
    category = "waystation",
    doc = "A RouterConfig describes a data plane, and which namespaces may use it: the message brokers and routers that hold \
           addresses and how to log in to them, or HAProxies that serve Ingresses.",
    derive = "PartialEq",
    printcolumn(
        name = "Kind",
        type_ = "string",
        json_path = ".status.kind",
        description = "What the data plane is for"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(
        name = "Routers",
        type_ = "string",
        json_path = ".status.routersSummary",
        description = "How many routers serve, of how many there are"
    ),
    printcolumn(
        name = "Brokers",
        type_ = "string",
        json_path = ".status.brokersSummary",
        description = "How many brokers serve, of how many there are"
    ),
    printcolumn(
        name = "Edges",
        type_ = "string",
        json_path = ".status.edgesSummary",
        description = "How many HAProxies serve, of how many there are"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "self.controllerName == oldSelf.controllerName",
        "spec.controllerName is immutable: delete this RouterConfig and create another"
    ),
    validation = (
        "has(self.messaging) != has(self.edge)",
        "a RouterConfig is one data plane: give either spec.messaging, with brokers and routers, or spec.edge, for HAProxy"
    ),
    validation = (
        "has(self.messaging) == has(oldSelf.messaging)",
        "what a RouterConfig is for is immutable: delete this RouterConfig and create another"
    )
)]
pub struct RouterConfigSpec {
    /// Which installation of the operator drives this data plane. Default: waystation. An operator touches only
    /// RouterConfigs of its own name, their AddressSpaces and those spaces' Addresses. Immutable.
    #[serde(default = "default_controller")]
    #[schemars(length(min = 1, max = 63))]
    pub controller_name: String,
    /// Which namespaces' AddressSpaces or Ingresses may use this data plane. Default: for messaging only the one of the
    /// RouterConfig, for edge every one. A space that was accepted keeps working when this turns against it, and
    /// says so; an Ingress is served no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// A data plane for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<Messaging>,
    /// A data plane for HTTP and TLS. Its Ingresses are served by each `waystation edge` that was started for this
    /// RouterConfig, with a HAProxy beside it; controllerName means nothing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<Edge>,
}

fn default_controller() -> String {
    DEFAULT_CONTROLLER.to_owned()
}

/// Which namespaces may use a data plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "!has(self.from) || self.from != 'Selector' || has(self.selector)",
        "allowedNamespaces.from is Selector: give allowedNamespaces.selector, with the labels of the namespaces"
    ),
    validation = (
        "!has(self.selector) || (has(self.from) && self.from == 'Selector')",
        "allowedNamespaces.selector is only read when allowedNamespaces.from is Selector: set that, or remove it"
    )
)]
pub struct AllowedNamespaces {
    /// Same: the namespace of the RouterConfig. All: every namespace. Selector: those whose labels the selector
    /// matches.
    #[serde(default)]
    pub from: NamespacesFrom,
    /// The labels of the namespaces, where from is Selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? \
         has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || \
         size(e.values) == 0))",
        "a label selector has the operators In and NotIn with values, Exists and DoesNotExist without: correct it"
    ))]
    pub selector: Option<LabelSelector>,
}

/// How namespaces are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NamespacesFrom {
    /// The namespace of the RouterConfig.
    #[default]
    Same,
    /// Every namespace.
    All,
    /// Those whose labels the selector matches.
    Selector,
    /// A value that this version does not know; it allows none.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// A data plane for messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "self.tenancy == oldSelf.tenancy",
        "messaging.tenancy is immutable: delete this RouterConfig and create another"
    ),
    validation = (
        "has(self.owner) == has(oldSelf.owner) && (!has(self.owner) || self.owner == oldSelf.owner)",
        "messaging.owner is immutable: delete this RouterConfig and create another"
    ),
    validation = (
        "has(self.brokers) || has(self.routers)",
        "messaging needs brokers, routers or both: give messaging.brokers.external or \
         messaging.routers.external"
    ),
    validation = (
        "!has(self.spacePlans) || self.spacePlans.all(s, !has(s.addressPlans) || s.addressPlans.all(n, \
         has(self.addressPlans) && self.addressPlans.exists(a, a.name == n)))",
        "a space plan allows an address plan that messaging.addressPlans does not have: add it there, or remove its name"
    )
)]
pub struct Messaging {
    /// Shared: every AddressSpace gets the prefix <namespace>.<space>/ on brokers and routers (told in its
    /// status.addressPrefix). Single: there is no prefix and only one space; a second one is not accepted. Immutable.
    #[serde(default)]
    pub tenancy: Tenancy,
    /// Marks everything that is made on brokers and routers, so that only that is ever changed or removed: 1 to 32 lower
    /// case letters, digits and '-'. Default: a short hash of the cluster and of this object's namespace and name,
    /// told in status.owner. Give it when a RouterConfig made anew, or in another cluster, shall take over what
    /// this one made. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[a-z0-9-]+$"))]
    pub owner: Option<String>,
    /// The brokers, which hold queues, topics and subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers: Option<Brokers>,
    /// The routers, which clients of spaces of type standard connect to. Default: none, for brokered spaces only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routers: Option<Routers>,
    /// For Addresses that say nothing about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<MessagingDefaults>,
    /// What an Address costs and how it is by default. Where there are any, every Address names one in spec.plan.
    /// Default: none, and Addresses cost nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub address_plans: Vec<AddressPlan>,
    /// What an AddressSpace may have. Where there are any, every AddressSpace names one in spec.plan. Default: none,
    /// and spaces have no limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub space_plans: Vec<SpacePlan>,
}

/// How AddressSpaces share a data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Tenancy {
    /// Each has a prefix.
    #[default]
    Shared,
    /// There is only one, without a prefix.
    Single,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What holds for Addresses that say nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagingDefaults {
    /// Time to live of messages in queues and topics without a messageTtl. Default: what the sender says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<MessageTtl>,
    /// Redelivery for queues and topics, field by field where they leave one out. Default: the broker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<Redelivery>,
    /// How many bytes of messages a queue or topic without maxSizeBytes holds in memory before fullPolicy applies.
    /// Default: the broker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_size_bytes: Option<i64>,
    /// What happens to a message that arrives at a full queue or topic without a fullPolicy. Default: the broker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FullPolicy")] // the description of an Option<enum> would be that of the enum
    pub full_policy: Option<FullPolicy>,
    /// The dead letter address of queues and topics that name none, in spaces that have a deadLetter of that
    /// address; in others it means nothing. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub dead_letter_address: Option<String>,
}
impl RouterConfigSpec {
    /// The brokers that someone else runs, with TLS and credentials.
    pub fn external_brokers(&self) -> Option<&ExternalBrokers> {
        self.messaging.as_ref()?.brokers.as_ref()?.external.as_ref()
    }

    /// The hosts of the brokers, none if the spec has none.
    pub fn broker_hosts(&self) -> &[BrokerHost] {
        self.external_brokers().map_or(&[], |external| &external.hosts)
    }

    /// The routers that someone else runs, with TLS and credentials.
    pub fn external_routers(&self) -> Option<&ExternalRouters> {
        self.messaging.as_ref()?.routers.as_ref()?.external.as_ref()
    }
}

fn name_in_force(name: Option<&str>, host: &str, port: u16) -> String {
    match name {
        Some(name) => name.to_owned(),
        None if host.contains(':') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    }
}
