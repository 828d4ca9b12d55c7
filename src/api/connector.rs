//! Of an AddressSpace: remote AMQP hosts that its routers connect to; and of an Address: what is exchanged with them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::DurationText;

/// A remote AMQP host that the routers connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Unique in the space: 1 to 30 lower case letters, digits and '-'. It is the first part of every remote address, such
    /// as eu in eu/orders, so that no Address of the space may begin with it.
    #[schemars(length(min = 1, max = 30), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where it is, 1 to 8 hosts that are one another's replacement: the first is used; when no router reaches it, the
    /// next, and after the last the first again. The one in use is told in status.connectors.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["host".into(), "port".into()]))]
    pub endpoint_hosts: Vec<ConnectorHost>,
    /// Connects by TLS. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConnectorTls>,
    /// Logs in with a password (SASL PLAIN). Default: by the client certificate of tls.sslProfile, if it has one (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<ConnectorCredentials>,
    /// After so long a silence the remote host counts as gone, 1s to 1h, in whole seconds. Default: 16s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) >= duration('1s') && duration(self) <= duration('1h')",
        "idleTimeout is from 1s to 1h"
    ))]
    pub idle_timeout: Option<DurationText>,
    /// The largest frame that the routers take from the remote host, in bytes, 512 to 1048576. Default: 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 512, max = 1_048_576))]
    pub max_frame_size: Option<u32>,
    /// Up to 16 patterns of remote addresses that clients of the space can send to and receive from, through the routers:
    /// under <status.addressPrefix><connector>/<remote address>. Default: none, and the connector serves forwarders only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = (
            "self.all(a, self.exists_one(b, b.pattern.replace('/', '.') == a.pattern.replace('/', '.')))",
            "two addresses of a connector have the same pattern ('.' and '/' are one separator): remove one"
        )
    )]
    pub addresses: Vec<RemotePattern>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorHost {
    /// Host name or IP address, as the routers see it. The RouterConfig says which may be named
    /// (messaging.routers.connectors).
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: String,
    /// Its AMQP port, such as 5672 (5671 by TLS).
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// TLS towards a remote host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorTls {
    /// Name of an sslProfile that exists on the routers, one of messaging.routers.connectors.sslProfiles of the
    /// RouterConfig: it says which certificates are trusted and which is shown. A router takes certificates from files of
    /// its own only, so that none can be given here.
    #[schemars(length(min = 1, max = 253))]
    pub ssl_profile: String,
}

/// A login by password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorCredentials {
    /// A Secret in the namespace of the AddressSpace with the keys username and password, which are sent to the host. When
    /// its content changes, the connection is made anew.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// Remote addresses that clients can use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemotePattern {
    /// Unique in the connector; it is for people.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Which remote addresses: one, such as orders, or a pattern of parts between '.' or '/', in which `*` stands for any
    /// one part and `#` for any number of them, such as eu.* or #.
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(
        validation = (
            r"!self.matches('[\\s\\p{Z}\\p{Cc}\\p{Cf}\\x{34F}\\x{115F}\\x{1160}\\x{17B4}\\x{17B5}\\x{180B}-\\x{180F}\\x{2065}\\x{3164}\\x{FE00}-\\x{FE0F}\\x{FFA0}\\x{FFF0}-\\x{FFF8}\\x{FFFE}\\x{FFFF}\\x{E0000}-\\x{E0FFF}]')",
            "a pattern has no whitespace, no control characters and none that cannot be seen: remove them"
        ),
        validation = (
            r"self.matches('^([*#]|[^*#./]+)([./]([*#]|[^*#./]+))*$')",
            "a pattern has '*' and '#' as whole parts only, and no '.' or '/' at its start, at its end or beside another"
        )
    )]
    pub pattern: String,
}

/// What is told of a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorStatus {
    /// Its name in the spec.
    pub name: String,
    /// Whether every router that serves is connected to the remote host.
    #[serde(default)]
    pub ready: bool,
    /// Why, in one word: Connected, Connecting, NotConnected, HostNotAllowed, ConnectorsNotAllowed, SslProfileNotAllowed,
    /// SecretNotFound, NameTaken, RouterRefused, NotSupportedByRouter, NoRouterServing.
    #[serde(default)]
    pub reason: String,
    /// What is wrong and what to do, or what the router says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The host in use, where there are several: host:port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Messages that are brought from an Address to a remote one, or from there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forwarder {
    /// Unique in the Address: 1 to 30 lower case letters, digits and '-'.
    #[schemars(length(min = 1, max = 30), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The connector of the space, '/', and the address on its host, such as eu/orders.
    #[schemars(length(min = 3, max = 286))]
    #[x_kube(
        validation = (
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/.')",
            "remoteAddress is the name of a connector of the space, '/', and an address on its host, such as eu/orders"
        ),
        validation = (
            r"!self.matches('[\\s\\p{Z}\\p{Cc}\\p{Cf}\\x{34F}\\x{115F}\\x{1160}\\x{17B4}\\x{17B5}\\x{180B}-\\x{180F}\\x{2065}\\x{3164}\\x{FE00}-\\x{FE0F}\\x{FFA0}\\x{FFF0}-\\x{FFF8}\\x{FFFE}\\x{FFFF}\\x{E0000}-\\x{E0FFF}]')",
            "an address has no whitespace, no control characters and none that cannot be seen: remove them"
        )
    )]
    pub remote_address: String,
    /// Which way. out: what arrives in this Address is brought to the remote one, by the routers, which take it as any
    /// receiver does. in: what the remote one has is brought here.
    pub direction: ForwardDirection,
}

/// Which way messages go, seen from the Address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ForwardDirection {
    /// From the remote address.
    In,
    /// To the remote address.
    Out,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What is told of a forwarder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwarderStatus {
    /// Its name in the spec.
    pub name: String,
    /// Whether every router that serves has its link; while the connector is down, what was told before stays.
    #[serde(default)]
    pub ready: bool,
    /// Why, in one word: Active, Connecting, ConnectorNotFound, ConnectorNotReady, LinkFailed, RouterRefused,
    /// NotSupportedByRouter, NoRouterServing, NoRouters.
    #[serde(default)]
    pub reason: String,
    /// What is wrong and what to do, or what the router says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Which remote hosts the connectors of spaces may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorRules {
    /// Up to 64 of them: a host name, `*.` and a domain for all hosts in it, an IP address, or a network such as
    /// 10.1.0.0/16. Default: every host but loopback, link-local, multicast and metadata addresses and the brokers and
    /// routers of this RouterConfig; those only if they are named here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allowed_hosts: Vec<HostRule>,
    /// Up to 32 names of sslProfiles on the routers that connectors may use. A profile with a client certificate lets every
    /// space log in by it: name none that opens the brokers. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ssl_profiles: Vec<ProfileName>,
}

/// A host name, `*.` and a domain, an IP address, or a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct HostRule(
    #[schemars(length(min = 1, max = 253), regex(pattern = "^([*][.])?[0-9A-Za-z._:/-]+$"))] pub String,
);

/// The name of an sslProfile on the routers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ProfileName(#[schemars(length(min = 1, max = 253))] pub String);
