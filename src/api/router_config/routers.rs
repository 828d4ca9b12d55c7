//! Of a RouterConfig: where its routers are, and how they reach the brokers.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::login::{Credentials, Tls};
use super::name_in_force;
use crate::api::connector::ConnectorRules;

/// Where the routers are, and how they reach the brokers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.external)", "routers is empty: give routers.external.hosts or routers.external.serviceRef")
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
    /// The listeners that the routers have for clients. Default: the one by which they are managed, for amqp where that
    /// is plain TCP, for amqps where it is TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Listeners>,
    /// Name of an sslProfile that exists on the routers: by it they connect to the brokers. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub broker_ssl_profile: Option<String>,
    /// How the routers log in to the brokers (SASL PLAIN). Default: by the certificate of brokerSslProfile (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_credentials: Option<Credentials>,
    /// Lets AddressSpaces have connectors to remote hosts (spec.connectors there). The routers need a vhost policy for that
    /// (enableVhostPolicy in their own configuration): without one, a remote host could use everything on them, and no
    /// connector is made. Default: spaces have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connectors: Option<ConnectorRules>,
}

/// Routers that someone else runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "has(self.hosts) != has(self.serviceRef)",
        "routers.external names routers in one of two ways: give either hosts or serviceRef"
    )
)]
pub struct ExternalRouters {
    /// 1 to 64 routers. All of them hold the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["host".into(), "port".into()]),
        validation = (
            "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",
            "two routers have the same name: give each a name of its own, or none"
        )
    )]
    pub hosts: Vec<RouterHost>,
    /// The Service whose endpoints are the routers, instead of hosts: they are followed as they come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<RouterService>,
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

/// The listeners that routers have for clients: endpoints of AddressSpaces lead there. They are not made by the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listeners {
    /// The one for AMQP on plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amqp: Option<AmqpListener>,
    /// The one for AMQP in TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amqps: Option<AmqpsListener>,
}

/// A listener for AMQP on plain TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmqpListener {
    /// Its port on every router, such as 5672.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A listener for AMQP in TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmqpsListener {
    /// Its port on every router, such as 5671.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// What verifies the routers' certificate, as PEM: told to clients in status.endpoints of their AddressSpace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub ca_certificate: Option<String>,
}

/// A Service whose endpoints are routers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterService {
    /// A Service in the namespace of the RouterConfig. Its EndpointSlices are followed, whoever makes them; an endpoint
    /// that is not ready is configured too, since it becomes ready by that. A router is called by the name of its Pod,
    /// or by address:port where it is none. At most 64 are used.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The port of a listener that lets the operator manage the router: its name in the Service, such as amqp, or its
    /// number in the Pods, such as 5672.
    #[schemars(extend("minimum" = 1, "maximum" = 65535, "minLength" = 1, "maxLength" = 63))]
    pub port: IntOrString,
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
