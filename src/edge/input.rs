//! What happens to the model, one value an event. The watch side fills these from Kubernetes objects; nothing else of
//! an object is needed, and nothing else should be kept.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::ids::{Key, Kind};
use super::wanted::Slot;

/// What the model needs of an object's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`: another uid under the same key is another object.
    pub uid: Arc<str>,
    /// `metadata.creationTimestamp`, seconds since 1970: of two that want the same, the older has it.
    pub created_s: i64,
}

/// Annotations of an object in any of the prefixes that [`options`](super::options) knows, sorted by key; others need
/// not be handed in.
pub type Annotations = Arc<[(Arc<str>, Arc<str>)]>;

/// An Ingress, of whatever class: the model decides whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Metadata.
    pub meta: Meta,
    /// `spec.ingressClassName`.
    pub class: Option<Arc<str>>,
    /// The annotation `kubernetes.io/ingress.class`, which counts where `class` is absent.
    pub class_annotation: Option<Arc<str>>,
    /// `spec.defaultBackend`.
    pub default_backend: Option<BackendRef>,
    /// `spec.rules`, in order.
    pub rules: Vec<Rule>,
    /// `spec.tls`, in order.
    pub tls: Vec<Tls>,
    /// Options.
    pub annotations: Annotations,
}

/// One of `spec.rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As written; empty: every host.
    pub host: Arc<str>,
    /// `http.paths`; without any, the default backend takes all of the host.
    pub paths: Vec<PathRule>,
}

/// One of `http.paths`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// As written; empty: `/`.
    pub path: Arc<str>,
    /// How it matches.
    pub kind: PathType,
    /// Where it leads.
    pub backend: BackendRef,
}

/// `pathType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathType {
    /// The whole path.
    Exact,
    /// By path element.
    Prefix,
    /// As `Prefix`, unless the option `path-type` says otherwise.
    ImplementationSpecific,
}

/// `backend` of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendRef {
    /// A Service of the same namespace.
    Service(Arc<str>, Port),
    /// A `resource`, which is not supported: its kind and name.
    Resource(Arc<str>),
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// By number.
    Number(u16),
    /// By name.
    Name(Arc<str>),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// One of `spec.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Hosts that are to be served by TLS.
    pub hosts: Vec<Arc<str>>,
    /// Name of a Secret of the same namespace; none: the default certificate.
    pub secret: Option<Arc<str>>,
}

/// An IngressClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    /// Its name.
    pub name: Arc<str>,
    /// `spec.controller`.
    pub controller: Arc<str>,
    /// `spec.parameters`, where it names a RouterConfig of ours.
    pub parameters: Option<Key>,
    /// `ingressclass.kubernetes.io/is-default-class`.
    pub default: bool,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// `spec.ports`, in order.
    pub ports: Vec<ServicePort>,
    /// `spec.clusterIPs[0]`; none for headless ones.
    pub cluster_ip: Option<IpAddr>,
    /// `spec.externalName`, of type ExternalName.
    pub external_name: Option<Arc<str>>,
    /// Whether the first of `spec.ipFamilies` is IPv6: which of two address types counts.
    pub ipv6_first: bool,
    /// Options.
    pub annotations: Annotations,
}

/// One of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where there is only one and it has none.
    pub name: Arc<str>,
    /// Its number.
    pub port: u16,
    /// Whether it is TCP: others lead nowhere here.
    pub tcp: bool,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub key: Key,
    /// Label `kubernetes.io/service-name`.
    pub service: Arc<str>,
    /// `addressType` is `FQDN`: refused.
    pub fqdn: bool,
    /// `ports`: name (empty where it has none) and number.
    pub ports: Vec<(Arc<str>, u16)>,
    /// `endpoints`.
    pub endpoints: Vec<Endpoint>,
}

/// One endpoint with one address (an endpoint with several becomes several).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is; `None` where it is not an address.
    pub address: Option<IpAddr>,
    /// `conditions.ready`; nil is true.
    pub ready: bool,
    /// `conditions.serving`; nil is what `ready` is.
    pub serving: bool,
    /// `conditions.terminating`; nil is false.
    pub terminating: bool,
}

/// A Secret's contents.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Metadata.
    pub meta: Meta,
    /// `data`, decoded.
    pub data: BTreeMap<Arc<str>, Arc<[u8]>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, {} keys)", self.meta.key, self.data.len())
    }
}

/// The edge half of the RouterConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// Metadata.
    pub meta: Meta,
    /// `edge.ingressClassName`.
    pub class_name: Arc<str>,
    /// `allowedNamespaces`.
    pub allowed: Allowed,
    /// `edge.hostOwnership: Any`: options and certificates of a host may come from every namespace.
    pub any_owner: bool,
    /// `edge.defaultCertificate.secretName`, in its own namespace.
    pub default_certificate: Option<Key>,
    /// `edge.defaultBackend`: what no rule takes goes there. Service in its own namespace.
    pub default_backend: Option<(Arc<str>, Port)>,
    /// Whether Services of type ExternalName are followed.
    pub external_name: bool,
    /// `edge.listeners`.
    pub listeners: Listeners,
    /// `edge.tuning`.
    pub tuning: Tuning,
    /// `edge.options`: name (without a prefix) and value.
    pub options: Annotations,
}

/// `allowedNamespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// The RouterConfig's own.
    Same,
    /// Every namespace.
    All,
    /// Those whose labels match all requirements.
    Selector(Vec<Requirement>),
}

/// One requirement of a label selector (`matchLabels` become `In` with one value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: Arc<str>,
    /// What must hold.
    pub test: LabelTest,
}

/// The operators of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Where HAProxy listens. A change reloads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Plain HTTP.
    pub http: u16,
    /// TLS.
    pub https: u16,
    /// HAProxy's own Prometheus exporter and health; 0: none.
    pub stats: u16,
    /// Addresses to bind; empty: all, both families.
    pub addresses: Vec<IpAddr>,
    /// Whether clients come with the PROXY protocol.
    pub accept_proxy: bool,
    /// Whether TLS is looked into for passthrough by SNI before it is terminated: costs a hop inside the process.
    pub passthrough: bool,
}

impl Default for Listeners {
    fn default() -> Self {
        Self { http: 80, https: 443, stats: 0, addresses: Vec::new(), accept_proxy: false, passthrough: true }
    }
}

/// Limits of the process. A change reloads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `maxconn`; none: what HAProxy finds.
    pub max_connections: Option<u32>,
    /// `nbthread`; none: one a CPU.
    pub threads: Option<u16>,
    /// `timeout client`, milliseconds.
    pub timeout_client_ms: u64,
    /// `timeout http-request`, milliseconds.
    pub timeout_http_request_ms: u64,
    /// `timeout http-keep-alive`, milliseconds.
    pub timeout_keep_alive_ms: u64,
    /// Default of the option `timeout-connect`, milliseconds.
    pub timeout_connect_ms: u64,
    /// Default of the option `timeout-server`, milliseconds.
    pub timeout_server_ms: u64,
    /// Default of the option `timeout-tunnel`, milliseconds.
    pub timeout_tunnel_ms: u64,
    /// Default of the option `timeout-queue`, milliseconds.
    pub timeout_queue_ms: u64,
    /// `hard-stop-after`, milliseconds: how long an old process lives after a reload.
    pub hard_stop_after_ms: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            max_connections: None,
            threads: None,
            timeout_client_ms: 50_000,
            timeout_http_request_ms: 10_000,
            timeout_keep_alive_ms: 60_000,
            timeout_connect_ms: 5_000,
            timeout_server_ms: 50_000,
            timeout_tunnel_ms: 3_600_000,
            timeout_queue_ms: 5_000,
            hard_stop_after_ms: 1_800_000,
        }
    }
}

/// One event. An object that cannot be read is not handed in: what it had stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The RouterConfig was made or changed. One of another key is not ours and ignored.
    RouterConfig(Arc<RouterConfig>),
    /// An Ingress was made or changed.
    Ingress(Arc<Ingress>),
    /// An IngressClass was made or changed.
    IngressClass(Arc<IngressClass>),
    /// A Service was made or changed.
    Service(Arc<Service>),
    /// An EndpointSlice was made or changed.
    EndpointSlice(Arc<EndpointSlice>),
    /// A Secret was made or changed.
    Secret(Arc<Secret>),
    /// Labels of a namespace.
    Namespace(Arc<str>, Arc<BTreeMap<String, String>>),
    /// An object is gone. For a Secret that is read by name: it was looked for and is not there.
    Vanished(Kind, Key),
    /// A Secret was looked for and cannot be read; it may well be there. What was known of it stays.
    Unreadable(Key),
    /// The first complete list of a kind has been applied.
    Synced(Kind),
    /// A name (of [`Settled::names`](super::model::Settled::names)) is at these addresses; none: it does not resolve.
    Resolved(Arc<str>, Arc<[IpAddr]>),
    /// HAProxy refused what was wanted there, in its own words; said of the value that was wanted when it was sent.
    Refused(Slot, u64, Arc<str>),
    /// Everything up to this generation is in force.
    InForce(u64),
}
