//! The management schema: entity types, their operations and attributes, and the answers to `GET-SCHEMA` and its like.

use serde_amqp::Value;

use super::Flavour;
use super::value::{map, text, texts};

/// What an attribute's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Path,
    Integer,
    Boolean,
    List,
    Map,
    OneOf(&'static [&'static str]),
}

/// An attribute's default.
#[derive(Debug, Clone, Copy)]
pub(super) enum Default {
    None,
    Text(&'static str),
    Integer(i32),
    Boolean(bool),
}

impl Default {
    pub(super) fn value(self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Text(value) => Some(text(value)),
            Self::Integer(value) => Some(Value::Int(value)),
            Self::Boolean(value) => Some(Value::Bool(value)),
        }
    }
}

/// Who may set an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Never,
    AtCreation,
    Always,
}

/// An attribute of an entity type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: Default,
    pub(super) required: bool,
    pub(super) set: Set,
    /// Only qdrouterd has it.
    only_qdrouterd: bool,
}

impl Attribute {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, default: Default::None, required: false, set: Set::AtCreation, only_qdrouterd: false }
    }

    const fn or(mut self, default: Default) -> Self {
        self.default = default;
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn updatable(mut self) -> Self {
        self.set = Set::Always;
        self
    }

    const fn told(mut self) -> Self {
        self.set = Set::Never;
        self
    }

    const fn old(mut self) -> Self {
        self.only_qdrouterd = true;
        self
    }
}

/// An entity type.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntityType {
    /// Without the prefix, as the types of requests are written.
    pub(super) name: &'static str,
    /// The key in the schema.
    pub(super) short: &'static str,
    configuration: bool,
    operations: &'static [&'static str],
    attributes: &'static [Attribute],
    only_qdrouterd: bool,
}

use Attribute as A;
use Kind::{Boolean, Integer, List, Map, OneOf, Path, Text};

const ROLES: Kind = OneOf(&["normal", "inter-router", "route-container", "edge"]);
const STRIP: Kind = OneOf(&["in", "out", "both", "no"]);
const FAMILY: Kind = OneOf(&["IPv4", "IPv6"]);
const DIRECTION: Kind = OneOf(&["in", "out"]);
const DISTRIBUTION: Kind = OneOf(&["multicast", "closest", "balanced", "unavailable"]);
const MAKE: &[&str] = &["CREATE", "DELETE", "READ"];
const READ: &[&str] = &["READ"];

/// Every type has these, last.
const COMMON: &[Attribute] = &[A::new("name", Text), A::new("identity", Text).told(), A::new("type", Text)];

const MANAGEMENT: &[&str] = &[
    "GET-SCHEMA",
    "GET-JSON-SCHEMA",
    "GET-LOG",
    "PROFILE",
    "QUERY",
    "GET-TYPES",
    "GET-ANNOTATIONS",
    "GET-OPERATIONS",
    "GET-ATTRIBUTES",
    "GET-MGMT-NODES",
    "READ",
];

const LISTENER: &[Attribute] = &[
    A::new("host", Text),
    A::new("port", Text).or(Default::Text("amqp")),
    A::new("socketAddressFamily", FAMILY),
    A::new("role", ROLES).or(Default::Text("normal")),
    A::new("cost", Integer).or(Default::Integer(1)),
    A::new("sslProfile", Text),
    A::new("saslMechanisms", Text),
    A::new("authenticatePeer", Boolean).or(Default::Boolean(false)),
    A::new("saslPlugin", Text).old(),
    A::new("requireEncryption", Boolean).or(Default::Boolean(false)),
    A::new("requireSsl", Boolean).or(Default::Boolean(false)),
    A::new("trustedCertsFile", Path).old(),
    A::new("maxFrameSize", Integer).or(Default::Integer(16384)),
    A::new("maxSessions", Integer).or(Default::Integer(32768)),
    A::new("maxSessionFrames", Integer),
    A::new("idleTimeoutSeconds", Integer).or(Default::Integer(16)),
    A::new("initialHandshakeTimeoutSeconds", Integer).or(Default::Integer(0)),
    A::new("stripAnnotations", STRIP).or(Default::Text("both")),
    A::new("linkCapacity", Integer),
    A::new("multiTenant", Boolean).or(Default::Boolean(false)).old(),
    A::new("failoverUrls", Text),
    A::new("healthz", Boolean).or(Default::Boolean(true)),
    A::new("metrics", Boolean).or(Default::Boolean(true)),
    A::new("websockets", Boolean).or(Default::Boolean(true)),
    A::new("http", Boolean).or(Default::Boolean(false)),
    A::new("httpRootDir", Path),
    A::new("messageLoggingComponents", Text).or(Default::Text("none")),
    A::new("policyVhost", Text),
    A::new("openProperties", Map),
];

const CONNECTOR: &[Attribute] = &[
    A::new("host", Text).or(Default::Text("127.0.0.1")),
    A::new("port", Text).or(Default::Text("amqp")),
    A::new("protocolFamily", FAMILY),
    A::new("role", ROLES).or(Default::Text("normal")),
    A::new("cost", Integer).or(Default::Integer(1)),
    A::new("sslProfile", Text),
    A::new("saslMechanisms", Text),
    A::new("allowRedirect", Boolean).or(Default::Boolean(true)),
    A::new("maxFrameSize", Integer).or(Default::Integer(16384)),
    A::new("maxSessions", Integer).or(Default::Integer(32768)),
    A::new("maxSessionFrames", Integer),
    A::new("idleTimeoutSeconds", Integer).or(Default::Integer(16)),
    A::new("stripAnnotations", STRIP).or(Default::Text("both")),
    A::new("linkCapacity", Integer),
    A::new("verifyHostname", Boolean).or(Default::Boolean(true)),
    A::new("saslUsername", Text),
    A::new("saslPassword", Text),
    A::new("messageLoggingComponents", Text).or(Default::Text("none")),
    A::new("failoverUrls", Text).told(),
    A::new("connectionStatus", Text).told(),
    A::new("connectionMsg", Text).told(),
    A::new("policyVhost", Text),
    A::new("openProperties", Map),
];

const SSL_PROFILE: &[Attribute] = &[
    A::new("ciphers", Text),
    A::new("protocols", Text),
    A::new("caCertFile", Path),
    A::new("certFile", Path),
    A::new("privateKeyFile", Path),
    A::new("passwordFile", Path).old(),
    A::new("password", Text),
    A::new("uidFormat", Text),
    A::new("uidNameMappingFile", Text),
];

const VHOST: &[Attribute] = &[
    A::new("hostname", Text).required(),
    A::new("aliases", Text).updatable(),
    A::new("maxConnections", Integer).or(Default::Integer(65535)).updatable(),
    A::new("maxMessageSize", Integer).told(),
    A::new("maxConnectionsPerUser", Integer).or(Default::Integer(65535)).updatable(),
    A::new("maxConnectionsPerHost", Integer).or(Default::Integer(65535)).updatable(),
    A::new("allowUnknownUser", Boolean).or(Default::Boolean(false)).updatable(),
    A::new("groups", Map).updatable(),
];

const POLICY: &[Attribute] = &[
    A::new("maxConnections", Integer).or(Default::Integer(65535)),
    A::new("enableVhostPolicy", Boolean).or(Default::Boolean(false)),
    A::new("enableVhostNamePatterns", Boolean).or(Default::Boolean(false)),
    A::new("policyDir", Path),
    A::new("defaultVhost", Text).or(Default::Text("$default")),
];

const ADDRESS: &[Attribute] = &[
    A::new("prefix", Text),
    A::new("pattern", Text),
    A::new("distribution", DISTRIBUTION).or(Default::Text("balanced")),
    A::new("waypoint", Boolean).or(Default::Boolean(false)).old(),
    A::new("ingressPhase", Integer).old(),
    A::new("egressPhase", Integer).old(),
    A::new("priority", Integer),
    A::new("enableFallback", Boolean).or(Default::Boolean(false)).old(),
];

const LINK_ROUTE: &[Attribute] = &[
    A::new("prefix", Text),
    A::new("pattern", Text),
    A::new("addExternalPrefix", Text),
    A::new("delExternalPrefix", Text),
    A::new("containerId", Text),
    A::new("connection", Text),
    A::new("distribution", OneOf(&["linkBalanced"])).or(Default::Text("linkBalanced")),
    A::new("direction", DIRECTION).required(),
    A::new("operStatus", OneOf(&["inactive", "active"])).told(),
];

const AUTO_LINK: &[Attribute] = &[
    A::new("address", Text).required(),
    A::new("direction", DIRECTION).required(),
    A::new("phase", Integer).old(),
    A::new("containerId", Text),
    A::new("connection", Text),
    A::new("externalAddress", Text),
    A::new("fallback", Boolean).or(Default::Boolean(false)).old(),
    A::new("linkRef", Text).told(),
    A::new("operStatus", OneOf(&["inactive", "attaching", "failed", "active", "quiescing", "idle"])).told(),
    A::new("lastError", Text).told(),
];

const ROUTER: &[Attribute] = &[
    A::new("id", Text).told(),
    A::new("mode", OneOf(&["standalone", "interior", "edge"])).or(Default::Text("standalone")).told(),
    A::new("area", Text).told(),
    A::new("version", Text).told(),
    A::new("workerThreads", Integer).or(Default::Integer(4)).told(),
    A::new("defaultDistribution", DISTRIBUTION).or(Default::Text("balanced")).told(),
    A::new("addrCount", Integer).told().old(),
    A::new("linkCount", Integer).told().old(),
    A::new("nodeCount", Integer).told().old(),
    A::new("linkRouteCount", Integer).told().old(),
    A::new("autoLinkCount", Integer).told().old(),
    A::new("connectionCount", Integer).told().old(),
    A::new("uptimeSeconds", Integer).told().old(),
    A::new("memoryUsage", Integer).told().old(),
];

const ROUTER_ADDRESS: &[Attribute] = &[
    A::new("distribution", OneOf(&["flood", "multicast", "closest", "balanced", "linkBalanced", "unavailable"])).told(),
    A::new("inProcess", Integer).told(),
    A::new("subscriberCount", Integer).told(),
    A::new("remoteCount", Integer).told(),
    A::new("containerCount", Integer).told(),
    A::new("key", Text).told(),
    A::new("remoteHostRouters", List).told(),
];

const ROUTER_LINK: &[Attribute] = &[
    A::new("adminStatus", OneOf(&["enabled", "disabled"])).or(Default::Text("enabled")),
    A::new("operStatus", OneOf(&["up", "down", "quiescing", "idle"])).told(),
    A::new("linkName", Text).told(),
    A::new("linkType", OneOf(&["endpoint", "router-control", "inter-router"])).told(),
    A::new("linkDir", DIRECTION).told(),
    A::new("owningAddr", Text).told(),
    A::new("capacity", Integer).told(),
    A::new("undeliveredCount", Integer).told(),
    A::new("unsettledCount", Integer).told(),
    A::new("deliveryCount", Integer).told(),
    A::new("connectionId", Text).told(),
];

const CONNECTION: &[Attribute] = &[
    A::new("adminStatus", OneOf(&["enabled", "deleted"])).or(Default::Text("enabled")),
    A::new("operStatus", OneOf(&["up", "closing"])).told(),
    A::new("container", Text).told(),
    A::new("opened", Boolean).told(),
    A::new("host", Text).told(),
    A::new("dir", DIRECTION).told(),
    A::new("role", Text).told(),
    A::new("sasl", Text).told(),
    A::new("user", Text).told(),
];

const NODE: &[Attribute] = &[A::new("id", Text).told(), A::new("address", Text).told(), A::new("nextHop", Text).told()];

const fn entity(
    name: &'static str,
    short: &'static str,
    configuration: bool,
    operations: &'static [&'static str],
    attributes: &'static [Attribute],
) -> EntityType {
    EntityType { name, short, configuration, operations, attributes, only_qdrouterd: false }
}

const TYPES: &[EntityType] = &[
    entity("management", "management", false, MANAGEMENT, &[]),
    entity("router", "router", true, READ, ROUTER),
    EntityType {
        name: "sslProfile",
        short: "sslProfile",
        configuration: true,
        operations: MAKE,
        attributes: SSL_PROFILE,
        only_qdrouterd: false,
    },
    entity("listener", "listener", true, MAKE, LISTENER),
    entity("connector", "connector", true, MAKE, CONNECTOR),
    entity("router.config.address", "address", true, MAKE, ADDRESS),
    EntityType {
        name: "router.config.linkRoute",
        short: "linkRoute",
        configuration: true,
        operations: MAKE,
        attributes: LINK_ROUTE,
        only_qdrouterd: true,
    },
    entity("router.config.autoLink", "autoLink", true, MAKE, AUTO_LINK),
    entity("router.link", "router.link", false, &["UPDATE", "READ"], ROUTER_LINK),
    entity("router.address", "router.address", false, READ, ROUTER_ADDRESS),
    entity("router.node", "router.node", false, READ, NODE),
    entity("connection", "connection", false, READ, CONNECTION),
    entity("vhost", "vhost", true, &["CREATE", "UPDATE", "DELETE", "READ"], VHOST),
    entity("policy", "policy", true, READ, POLICY),
];

/// The types that a flavour has.
pub(super) fn types(flavour: Flavour) -> impl Iterator<Item = &'static EntityType> {
    TYPES.iter().filter(move |kind| !kind.only_qdrouterd || flavour == Flavour::Qdrouterd)
}

/// A type by its name, with or without the prefix.
pub(super) fn find(flavour: Flavour, name: &str) -> Option<&'static EntityType> {
    let name = name.strip_prefix(flavour.prefix()).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    types(flavour).find(|kind| kind.name == name)
}

impl EntityType {
    /// With the prefix.
    pub(super) fn full_name(&self, flavour: Flavour) -> String {
        format!("{}.{}", flavour.prefix(), self.name)
    }

    pub(super) fn operations(&self, flavour: Flavour) -> &'static [&'static str] {
        match flavour {
            // The newer one can exchange certificates under the same name.
            Flavour::Skrouterd if self.name == "sslProfile" => &["CREATE", "UPDATE", "DELETE", "READ"],
            _ => self.operations,
        }
    }

    pub(super) fn attributes(&self, flavour: Flavour) -> impl Iterator<Item = &'static Attribute> {
        self.attributes
            .iter()
            .filter(move |attribute| !attribute.only_qdrouterd || flavour == Flavour::Qdrouterd)
            .chain(COMMON)
    }

    pub(super) fn attribute(&self, flavour: Flavour, name: &str) -> Option<&'static Attribute> {
        self.attributes(flavour).find(|attribute| attribute.name == name)
    }

    /// The answer of `GET-TYPES`.
    pub(super) fn bases(&self, flavour: Flavour) -> Value {
        let bases: &[&str] =
            if self.configuration { &["configurationEntity", "entity"] } else { &["operationalEntity", "entity"] };
        Value::List(bases.iter().map(|base| Value::String(format!("{}.{base}", flavour.prefix()))).collect())
    }

    fn dump(&self, flavour: Flavour) -> Value {
        let attributes = self
            .attributes(flavour)
            .filter(|attribute| attribute.name != "type")
            .map(|attribute| (attribute.name.to_owned(), dump(attribute)));
        let mut entries = vec![
            ("attributes".to_owned(), map(attributes)),
            ("operations".to_owned(), texts(self.operations(flavour).iter().copied())),
            ("fullyQualifiedType".to_owned(), Value::String(self.full_name(flavour))),
        ];
        if matches!(self.name, "management" | "router") {
            entries.push(("singleton".to_owned(), Value::Bool(true)));
        }
        map(entries)
    }
}

/// What is false, zero or empty is left out.
fn dump(attribute: &Attribute) -> Value {
    let mut entries = vec![("type".to_owned(), kind(attribute.kind))];
    let default = attribute.default.value().filter(|value| !matches!(value, Value::Bool(false) | Value::Int(0)));
    entries.extend(default.map(|default| ("default".to_owned(), default)));
    if attribute.required {
        entries.push(("required".to_owned(), Value::Bool(true)));
    }
    if matches!(attribute.name, "name" | "identity") {
        entries.push(("unique".to_owned(), Value::Bool(true)));
    }
    map(entries)
}

fn kind(kind: Kind) -> Value {
    match kind {
        Text => text("string"),
        Path => text("path"),
        Integer => text("integer"),
        Boolean => text("boolean"),
        List => text("list"),
        Map => text("map"),
        OneOf(words) => texts(words.iter().copied()),
    }
}

/// The answer of `GET-SCHEMA`.
pub(super) fn dump_all(flavour: Flavour) -> Value {
    let types = types(flavour).map(|kind| (kind.short.to_owned(), kind.dump(flavour)));
    map([("prefix".to_owned(), text(flavour.prefix())), ("entityTypes".to_owned(), map(types))])
}
