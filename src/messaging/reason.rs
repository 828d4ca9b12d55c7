//! Reasons of conditions: stable words that people and programs match on.

/// Everything that was asked for is in force (`Accepted` of every kind).
pub const ACCEPTED: &str = "Accepted";
/// The object is being deleted and waits; the message says for what.
pub const TERMINATING: &str = "Terminating";

/// `Ready` of an Address: in force.
pub const CONFIGURED: &str = "Configured";
/// `Ready` of an Address: under way for more than a second.
pub const CONFIGURING: &str = "Configuring";
/// The space has no broker yet.
pub const WAITING_FOR_BROKER: &str = "WaitingForBroker";
/// Another Address has this address.
pub const DUPLICATE_ADDRESS: &str = "DuplicateAddress";
/// No AddressSpace of this name.
pub const SPACE_NOT_FOUND: &str = "SpaceNotFound";
/// The AddressSpace is not accepted.
pub const SPACE_NOT_ACCEPTED: &str = "SpaceNotAccepted";
/// No topic of this address in the space.
pub const TOPIC_NOT_FOUND: &str = "TopicNotFound";
/// No address of this name in the space.
pub const DEAD_LETTER_NOT_FOUND: &str = "DeadLetterNotFound";
/// The address is there but no deadLetter.
pub const DEAD_LETTER_WRONG_TYPE: &str = "DeadLetterWrongType";
/// No such plan, or none named where there are some.
pub const PLAN_NOT_FOUND: &str = "PlanNotFound";
/// The plan does not fit the type, or the space may not use it.
pub const PLAN_NOT_ALLOWED: &str = "PlanNotAllowed";
/// A limit of the space's plan has no room.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// The broker refused; the message has its words.
pub const BROKER_REFUSED: &str = "BrokerRefused";
/// The broker does not answer.
pub const BROKER_UNREACHABLE: &str = "BrokerUnreachable";
/// No router serves.
pub const NO_ROUTER_SERVING: &str = "NoRouterServing";
/// A router does not answer.
pub const ROUTER_UNREACHABLE: &str = "RouterUnreachable";
/// A router refused; the message has its words.
pub const ROUTER_REFUSED: &str = "RouterRefused";
/// The routers are of a kind that cannot do it.
pub const NOT_SUPPORTED_BY_ROUTER: &str = "NotSupportedByRouter";
/// A link between router and broker does not become active; the message has the router's words.
pub const LINK_FAILED: &str = "LinkFailed";
/// A space of type standard needs routers, and the RouterConfig has none.
pub const NO_ROUTERS: &str = "NoRouters";

/// `Ready` of an AddressSpace or RouterConfig.
pub const SERVING: &str = "Serving";
/// Connected, being compared and completed.
pub const FILLING: &str = "Filling";
/// Not connected yet.
pub const CONNECTING: &str = "Connecting";
/// No RouterConfig of this name.
pub const ROUTER_CONFIG_NOT_FOUND: &str = "RouterConfigNotFound";
/// A broker is one that is driven already, under another name.
pub const SAME_BROKER: &str = "SameBroker";
/// The RouterConfig is being deleted.
pub const ROUTER_CONFIG_TERMINATING: &str = "RouterConfigTerminating";
/// The RouterConfig does not take spaces of this namespace.
pub const NAMESPACE_NOT_ALLOWED: &str = "NamespaceNotAllowed";
/// The RouterConfig is for one space, and has it.
pub const TENANCY_SINGLE: &str = "TenancySingle";
/// A Secret that is needed to connect is missing.
pub const SECRET_NOT_FOUND: &str = "SecretNotFound";

/// The Service of the routers has no EndpointSlices, or none with endpoints.
pub const NO_ENDPOINTS: &str = "NoEndpoints";
/// The EndpointSlices of the routers' Service lack the port.
pub const PORT_NOT_FOUND: &str = "PortNotFound";
/// The Service of the routers has more endpoints than are used.
pub const TOO_MANY_ENDPOINTS: &str = "TooManyEndpoints";

/// A connector is up on every router that serves.
pub const CONNECTED: &str = "Connected";
/// A router is not connected to the remote host; the message has its words.
pub const NOT_CONNECTED: &str = "NotConnected";
/// The RouterConfig lets spaces have no connectors.
pub const CONNECTORS_NOT_ALLOWED: &str = "ConnectorsNotAllowed";
/// The RouterConfig does not allow the remote host.
pub const HOST_NOT_ALLOWED: &str = "HostNotAllowed";
/// The RouterConfig does not allow the sslProfile.
pub const SSL_PROFILE_NOT_ALLOWED: &str = "SslProfileNotAllowed";
/// An Address of the space begins with the connector's name.
pub const NAME_TAKEN: &str = "NameTaken";
/// A forwarder's links are active.
pub const ACTIVE: &str = "Active";
/// The space has no such connector.
pub const CONNECTOR_NOT_FOUND: &str = "ConnectorNotFound";
/// The connector is not made, or was never connected.
pub const CONNECTOR_NOT_READY: &str = "ConnectorNotReady";

/// Reasons of Events on RouterConfigs, AddressSpaces and Addresses. `docs/api.md` has them all.
pub mod event {
    /// What a comparison found missing or different was mended.
    pub const REPAIRED: &str = "Repaired";
    /// A queue with messages that no Address stands for.
    pub const ORPHANED_QUEUE: &str = "OrphanedQueue";
    /// What a broker holds stays there, and nobody waits for it.
    pub const BROKER_LET_GO: &str = "BrokerLetGo";
    /// A broker that was unreachable serves.
    pub const BROKER_SERVING: &str = "BrokerServing";
    /// A router that was unreachable serves.
    pub const ROUTER_SERVING: &str = "RouterServing";
    /// A broker does not answer, or refuses the login.
    pub const BROKER_UNREACHABLE: &str = super::BROKER_UNREACHABLE;
    /// A router does not answer, or refuses the login.
    pub const ROUTER_UNREACHABLE: &str = super::ROUTER_UNREACHABLE;

    /// An object cannot be read by this version.
    pub const INVALID: &str = "Invalid";

    /// All of them.
    pub const ALL: &[&str] = &[
        INVALID,
        REPAIRED,
        ORPHANED_QUEUE,
        BROKER_LET_GO,
        BROKER_SERVING,
        ROUTER_SERVING,
        BROKER_UNREACHABLE,
        ROUTER_UNREACHABLE,
    ];
}

/// Every reason, for reading a status back.
pub const ALL: &[&str] = &[
    ACCEPTED,
    TERMINATING,
    CONFIGURED,
    CONFIGURING,
    WAITING_FOR_BROKER,
    DUPLICATE_ADDRESS,
    SPACE_NOT_FOUND,
    SPACE_NOT_ACCEPTED,
    TOPIC_NOT_FOUND,
    DEAD_LETTER_NOT_FOUND,
    DEAD_LETTER_WRONG_TYPE,
    PLAN_NOT_FOUND,
    PLAN_NOT_ALLOWED,
    QUOTA_EXCEEDED,
    BROKER_REFUSED,
    BROKER_UNREACHABLE,
    NO_ROUTER_SERVING,
    ROUTER_UNREACHABLE,
    ROUTER_REFUSED,
    NOT_SUPPORTED_BY_ROUTER,
    LINK_FAILED,
    NO_ROUTERS,
    SERVING,
    FILLING,
    CONNECTING,
    ROUTER_CONFIG_NOT_FOUND,
    ROUTER_CONFIG_TERMINATING,
    NAMESPACE_NOT_ALLOWED,
    TENANCY_SINGLE,
    SECRET_NOT_FOUND,
    SAME_BROKER,
    NO_ENDPOINTS,
    PORT_NOT_FOUND,
    TOO_MANY_ENDPOINTS,
    CONNECTED,
    NOT_CONNECTED,
    CONNECTORS_NOT_ALLOWED,
    HOST_NOT_ALLOWED,
    SSL_PROFILE_NOT_ALLOWED,
    NAME_TAKEN,
    ACTIVE,
    CONNECTOR_NOT_FOUND,
    CONNECTOR_NOT_READY,
];

/// The reason as read from a status; an unknown one (of another version) becomes empty and so differs from all.
pub fn known(reason: &str) -> &'static str {
    ALL.iter().find(|known| **known == reason).copied().unwrap_or("")
}
