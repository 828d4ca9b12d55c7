//! The kind RouterConfig: a data plane and who may use it.

// Two `printcolumn(type_ = "string")` are no duplicate, but look like one to the lint.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DEFAULT_CONTROLLER;
use super::settings::{FullPolicy, MessageTtl, Redelivery};

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
    doc = "A RouterConfig describes a data plane: the message brokers and routers that hold addresses, how to log in to \
           them, and which namespaces may use them.",
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
        "has(self.messaging)",
        "a RouterConfig needs spec.messaging: describe the brokers and routers there"
    )
)]
pub struct RouterConfigSpec {
    /// Which installation of the operator drives this data plane. Default: waystation. An operator touches only
    /// RouterConfigs of its own name, their AddressSpaces and those spaces' Addresses. Immutable.
    #[serde(default = "default_controller")]
    #[schemars(length(min = 1, max = 63))]
    pub controller_name: String,
    /// Which namespaces' AddressSpaces may use this data plane. Default: only the one of the RouterConfig. A space
    /// that was accepted keeps working when this turns against it, and says so.
    #[serde(default)]
    pub allowed_namespaces: AllowedNamespaces,
    /// A data plane for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<Messaging>,
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
        "messaging needs brokers, routers or both: give messaging.brokers.external.hosts or \
         messaging.routers.external.hosts"
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

/// Where the brokers are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.external)", "brokers is empty: give brokers.external.hosts"))]
pub struct Brokers {
    /// Brokers that someone else runs: Apache Artemis 2.40 or later, managed over AMQP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalBrokers>,
}

/// Brokers that someone else runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalBrokers {
    /// 1 to 64 brokers. A broker taken out of the list lets go of all that it held: Addresses on it no longer wait
    /// for it, and nothing on it is removed.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["host".into(), "port".into()]),
        validation = (
            "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",
            "two brokers have the same name: give each a name of its own, or none"
        )
    )]
    pub hosts: Vec<BrokerHost>,
    /// Connects by TLS. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Logs in with a password (SASL PLAIN). Without it: by the client certificate in the tls Secret (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
}

/// Where the routers are, and how they reach the brokers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.external)", "routers is empty: give routers.external.hosts")
)]
pub struct Routers {
    /// Routers that someone else runs: qdrouterd 1.x for all types of addresses, or skupper-router for anycast and
    /// multicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalRouters>,
    /// The listener that is made last on every router. As long as it is not there, the router is not filled and no
    /// client should be sent to it: let the readiness probe of its Pod connect to it.
    #[serde(default)]
    pub readiness: Readiness,
    /// Name of an sslProfile that exists on the routers: by it they connect to the brokers. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub broker_ssl_profile: Option<String>,
    /// How the routers log in to the brokers (SASL PLAIN). Default: by the certificate of brokerSslProfile (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_credentials: Option<Credentials>,
}

/// Routers that someone else runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalRouters {
    /// 1 to 64 routers. All of them hold the same.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["host".into(), "port".into()]),
        validation = (
            "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",
            "two routers have the same name: give each a name of its own, or none"
        )
    )]
    pub hosts: Vec<RouterHost>,
    /// Connects by TLS. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Logs in with a password (SASL PLAIN). Without it: by the client certificate in the tls Secret (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterHost {
    /// What status and messages call the router, such as router-0: lower case letters, digits, '-' and '.'. Default:
    /// host:port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Host name or IP address of a listener that lets the operator manage the router.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: String,
    /// Its AMQP port, such as 5672 (5671 by TLS).
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Port of its readiness listener, where several routers share an address. Default: routers.readiness.port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub readiness_port: Option<u16>,
}

impl RouterHost {
    /// What status and messages call the router: its name, or else `host:port`.
    pub fn name_in_force(&self) -> String {
        name_in_force(self.name.as_deref(), &self.host, self.port)
    }
}

/// Where a filled router listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// What the listener binds, as the router sees it. Default: 127.0.0.1.
    #[serde(default = "default_readiness_host")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: String,
    /// Its port. Default: 7779.
    #[serde(default = "default_readiness_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

fn default_readiness_host() -> String {
    "127.0.0.1".to_owned()
}

fn default_readiness_port() -> u16 {
    7779
}

impl Default for Readiness {
    fn default() -> Self {
        Self { host: default_readiness_host(), port: default_readiness_port() }
    }
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerHost {
    /// What status and messages call the broker, such as east-1: lower case letters, digits, '-' and '.'. Default:
    /// host:port. The name is the broker's identity: under another one it counts as another broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Host name or IP address, such as broker-0.broker.messaging.svc.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: String,
    /// AMQP port, such as 5672 (5671 by TLS).
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Host name or IP address by which the routers reach the broker. Default: host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub router_host: Option<String>,
    /// AMQP port by which the routers reach the broker. Default: port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub router_port: Option<u16>,
}

impl BrokerHost {
    /// What status and messages call the broker: its name, or else `host:port`.
    pub fn name_in_force(&self) -> String {
        name_in_force(self.name.as_deref(), &self.host, self.port)
    }
}

fn name_in_force(name: Option<&str>, host: &str, port: u16) -> String {
    match name {
        Some(name) => name.to_owned(),
        None if host.contains(':') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    }
}

/// TLS towards brokers or routers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret in the namespace of the RouterConfig. ca.crt (required) verifies the other side; tls.crt and
    /// tls.key, where they are given, are the client certificate. When its content changes, the connections are made
    /// anew one at a time.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// A login by password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// A Secret in the namespace of the RouterConfig with the keys username and password. When its content changes,
    /// the connections are made anew one at a time.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
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

/// What the operator tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterConfigStatus {
    /// Accepted: the spec is taken. Ready: every broker and router serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the data plane is for: Messaging.
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

/// A broker or router as the operator sees it.
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

/// Where a broker or router stands.
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
