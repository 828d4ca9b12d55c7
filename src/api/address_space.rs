//! The kind AddressSpace: a tenant's addresses, served by one data plane.

// Two `printcolumn(type_ = "string")` are no duplicate, but look like one to the lint.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connector::{Connector, ConnectorStatus};
use super::plans::PlanName;

/// What is asked for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "waystation.dev",
    version = "v1alpha1",
    kind = "AddressSpace",
    plural = "addressspaces",
    namespaced,
    status = "AddressSpaceStatus",
    shortname = "aspace",
    category = "waystation",
    doc = "An AddressSpace holds the Addresses of one tenant or application and names the RouterConfig, the data \
           plane, that serves them.",
    derive = "PartialEq",
    validation = (
        "!has(self.spec.endpoints) || self.spec.endpoints.all(e, size(self.metadata.name) + size(e.name) < 63)",
        "the Service of an endpoint is named <space>-<endpoint>, which has at most 63 characters: give the endpoint a \
         shorter name"
    ),
    validation = (
        "!self.metadata.name.contains('.')",
        "the name of an AddressSpace has no dot, since it stands in the prefix <namespace>.<name>/: use '-' instead"
    ),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".spec.plan", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".status.summary",
        description = "How many Addresses are Ready, of how many there are"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "self.routerConfigRef == oldSelf.routerConfigRef",
        "spec.routerConfigRef is immutable: delete this AddressSpace and create another"
    ),
    validation = ("self.type == oldSelf.type", "spec.type is immutable: delete this AddressSpace and create another"),
    validation = (
        "!has(self.endpoints) || self.type == 'standard'",
        "spec.endpoints lead to routers, which only spaces of type standard have: see status.endpoints for where clients \
         of a brokered one connect"
    ),
    validation = (
        "!has(self.connectors) || self.type == 'standard'",
        "spec.connectors are made by routers, which only spaces of type standard have: remove them"
    )
)]
pub struct AddressSpaceSpec {
    /// The RouterConfig that serves this space. Immutable: another data plane does not have the stored messages, so
    /// a move is a deletion and a creation, and looks like it.
    pub router_config_ref: RouterConfigRef,
    /// How clients reach the addresses. Immutable.
    /// brokered: they connect to the broker that holds the space. standard: they connect to the routers, which lead to
    /// the brokers behind them.
    #[serde(rename = "type")]
    pub type_: AddressSpaceType,
    /// The name of one of the RouterConfig's messaging.spacePlans, such as team: how much the Addresses of this space
    /// may take together, and which plans they may have. Required where the RouterConfig has such plans, and only
    /// there. It can be changed: what was accepted stays, and a larger plan lets in what waits for room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// How clients reach the routers, in spaces of type standard: for each a Service in the namespace of the space,
    /// named <space>-<endpoint>, which goes with the space. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub endpoints: Vec<EndpointSpec>,
    /// Remote AMQP hosts that the routers connect to, in spaces of type standard, where the RouterConfig lets spaces have
    /// some (messaging.routers.connectors): up to 16. Clients reach their addresses through the routers, and forwarders of
    /// Addresses bring messages there and back. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub connectors: Vec<Connector>,
}

/// A way for clients to reach the routers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSpec {
    /// Unique in the space: 1 to 30 lower case letters, digits and '-'.
    #[schemars(length(min = 1, max = 30), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// What clients speak. amqp: plain TCP, on port 5672 of the Service. amqps: TLS, on port 5671; the routers' own
    /// listener does it. Which listeners they have is said by messaging.routers.listeners of the RouterConfig.
    pub service: EndpointService,
    /// Where from. cluster: a Service of type ClusterIP. loadBalancer: one of type LoadBalancer.
    #[serde(default)]
    pub expose: Expose,
    /// The name by which clients call it, where you have given it one; it is only told, in status.endpoints. Default: the
    /// Service's own, or what the load balancer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: Option<String>,
}

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EndpointService {
    /// AMQP on plain TCP.
    Amqp,
    /// AMQP in TLS.
    Amqps,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Where an endpoint is reached from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Expose {
    /// From inside the cluster.
    #[default]
    Cluster,
    /// From outside, by a load balancer.
    LoadBalancer,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Names a RouterConfig.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterConfigRef {
    /// Name of the RouterConfig.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Namespace of the RouterConfig, which must allow this one (spec.allowedNamespaces there). Default: the
    /// namespace of the AddressSpace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// How clients reach the addresses of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AddressSpaceType {
    /// They connect to the broker that holds the space.
    Brokered,
    /// They connect to the routers.
    Standard,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What the operator tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpaceStatus {
    /// Accepted: the RouterConfig takes the space. Ready: its broker serves (brokered), or one
    /// of its routers does (standard).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many Addresses the space has; written 1 s after it began to move, at most every 2 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressCount>,
    /// The count of Addresses as ready/total, such as 9998/10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What stands before every address of the space on the data plane, such as team-a.shop/; clients send it too.
    /// Empty where the RouterConfig has tenancy Single.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_prefix: Option<String>,
    /// Name of the broker that serves a brokered space, as the RouterConfig has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// Where clients connect: of a brokered space the broker that holds it; of a standard one the endpoints that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub endpoints: Vec<Endpoint>,
    /// How the connectors are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub connectors: Vec<ConnectorStatus>,
}

/// A count of Addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCount {
    /// All of them.
    #[serde(default)]
    pub total: u32,
    /// Those that are Ready.
    #[serde(default)]
    pub ready: u32,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Name of the broker behind it, or of the endpoint in the spec.
    pub name: String,
    /// Host name or IP address, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// AMQP port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What verifies the certificate of the other side (PEM), where the RouterConfig says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_certificate: Option<String>,
    /// What keeps clients from connecting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
