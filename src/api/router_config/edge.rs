//! Of a RouterConfig: a data plane for HTTP and TLS.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::duration::DurationText;

/// A data plane for HTTP and TLS: HAProxy 3.4 or later, each with a `waystation edge` beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The IngressClass whose Ingresses are served: that of this name, if its spec.controller is waystation.dev/edge and
    /// it has no parameters; and every one whose parameters name this RouterConfig. Ingresses that have only the old
    /// annotation kubernetes.io/ingress.class are served by it as well. Default: waystation.
    #[serde(default = "default_class")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub ingress_class_name: String,
    /// Where clients find what is served: written into the status of every Ingress. Default: nothing is written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
    /// Namespace: certificates and options that a host has once come from the namespace of the host's oldest Ingress.
    /// Any: from every namespace that has Ingresses of the host.
    #[serde(default)]
    pub host_ownership: HostOwnership,
    /// Whether Services of type ExternalName are followed: their names are resolved here. Default: false, since whoever
    /// may write Services could lead the edge to any host that it can reach.
    #[serde(default)]
    pub external_name: bool,
    /// The certificate of hosts that have none of their own. Default: one that is made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_certificate: Option<DefaultCertificate>,
    /// Where requests go that no Ingress takes. Default: 404.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<DefaultBackend>,
    /// Where HAProxy listens. A change reloads it.
    #[serde(default)]
    pub listeners: EdgeListeners,
    /// Limits of the process. A change reloads it.
    #[serde(default)]
    pub tuning: Tuning,
    /// Options for Ingresses and Services that say nothing, by their names without a prefix, such as hsts or
    /// timeout-server; docs/options.md has all. A value that cannot be read is told in the condition Accepted and
    /// has no effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 200))]
    pub options: BTreeMap<String, OptionText>,
}

/// The value of an option, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OptionText(#[schemars(length(max = 16384))] pub String);

fn default_class() -> String {
    "waystation".to_owned()
}

/// Where clients find what is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "has(self.service) != has(self.addresses)",
        "publish says where clients come in one of two ways: give either service or addresses"
    )
)]
pub struct Publish {
    /// A Service in the namespace of the RouterConfig: what its load balancer says, or else its external IPs. They are
    /// followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub service: Option<String>,
    /// 1 to 16 IP addresses or host names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub addresses: Vec<PublishedAddress>,
}

/// An IP address or a host name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PublishedAddress(
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9a-z]([-0-9a-z.:]*[0-9a-z])?$"))] pub String,
);

/// Who speaks for a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HostOwnership {
    /// The namespace of its oldest Ingress.
    #[default]
    Namespace,
    /// Every namespace that has Ingresses of it.
    Any,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultCertificate {
    /// A Secret in the namespace of the RouterConfig with tls.crt and tls.key.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// A backend that is nobody's Ingress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultBackend {
    /// A Service in the namespace of the RouterConfig.
    pub service: BackendService,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendService {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The port of the Service: its number or its name.
    #[schemars(extend("minimum" = 1, "maximum" = 65535, "minLength" = 1, "maxLength" = 63))]
    pub port: IntOrString,
}

/// Where HAProxy listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "self.http != self.https && (!has(self.stats) || (self.stats != self.http && self.stats != self.https))",
        "two listeners have the same port: give http, https and stats ports of their own"
    )
)]
pub struct EdgeListeners {
    /// Port for plain HTTP. Default: 80.
    #[serde(default = "default_http")]
    #[schemars(range(min = 1, max = 65535))]
    pub http: u16,
    /// Port for TLS. Default: 443.
    #[serde(default = "default_https")]
    #[schemars(range(min = 1, max = 65535))]
    pub https: u16,
    /// Port for HAProxy's own Prometheus exporter (/metrics) and health (/healthz), without a login. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub stats: Option<u16>,
    /// IP addresses to listen at, up to 16. Default: all, of both families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub addresses: Vec<ListenAddress>,
    /// Whether clients come with the PROXY protocol, as some load balancers send it; all must. Default: false.
    #[serde(default)]
    pub accept_proxy: bool,
    /// Whether hosts may be passed through by SNI (option ssl-passthrough). While there is such a host, every TLS
    /// connection takes one more hop inside of HAProxy. Default: true.
    #[serde(default = "yes")]
    pub passthrough: bool,
}

/// An IP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ListenAddress(#[schemars(length(min = 2, max = 45), regex(pattern = "^[0-9a-fA-F.:]+$"))] pub String);

fn default_http() -> u16 {
    80
}

fn default_https() -> u16 {
    443
}

fn yes() -> bool {
    true
}

impl Default for EdgeListeners {
    fn default() -> Self {
        Self {
            http: default_http(),
            https: default_https(),
            stats: None,
            addresses: Vec::new(),
            accept_proxy: false,
            passthrough: true,
        }
    }
}

/// Limits of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// Connections at a time. Default: what the process's limit of open files allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<u32>,
    /// Threads. Default: one for each CPU that the process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub threads: Option<u16>,
    /// How long a client may be silent within a request or an answer. Default: 50s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_client: Option<DurationText>,
    /// How long the head of a request may take. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_http_request: Option<DurationText>,
    /// How long a connection is kept for the client's next request. Default: 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_keep_alive: Option<DurationText>,
    /// How long a connection to an endpoint may take, for routes without the option timeout-connect. Default: 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_connect: Option<DurationText>,
    /// How long an endpoint may be silent, for routes without the option timeout-server. Default: 50s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_server: Option<DurationText>,
    /// How long a WebSocket, or what is passed through, may be silent, for routes without the option timeout-tunnel.
    /// Default: 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_tunnel: Option<DurationText>,
    /// How long a request waits for a free endpoint, for routes without the option timeout-queue. Default: 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub timeout_queue: Option<DurationText>,
    /// How long an old process lives after a reload for connections that do not end. Default: 30m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a timeout of zero ends everything at once: use at least 1ms, or leave it out"
    ))]
    pub hard_stop_after: Option<DurationText>,
}
