//! Reasons of conditions: stable names, one enum per kind, each explained in `docs/api.md`.
//!
//! A reason may be added; one that was released keeps its name and meaning.

/// Declares an enum of reasons whose names are what the API shows.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As it stands in a condition.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// The reason of that name, if it is one of this kind.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

reasons! {
    /// Reasons of an Address.
    AddressReason {
        /// Accepted: nothing is wrong with the spec.
        Accepted,
        /// Ready: every broker that holds the address has acknowledged the current generation.
        Configured,
        /// Not ready: commands are on their way, or what it names is not configured yet.
        Configuring,
        /// Not ready: the space has no broker yet.
        WaitingForBroker,
        /// Not ready: it has never been Ready, and its broker does not answer.
        BrokerUnreachable,
        /// Not ready: the broker refused a command; the message has its words.
        BrokerRefused,
        /// Not ready: it has never been Ready, and no router serves.
        NoRouterServing,
        /// Not ready: a router refused a command; the message has its words.
        RouterRefused,
        /// Not ready: the routers are of a kind that cannot do this.
        NotSupportedByRouter,
        /// Not ready: a link between a router and a broker does not become active; the message has the router's words.
        LinkFailed,
        /// Not accepted: another Address of the space has this address.
        DuplicateAddress,
        /// Not accepted: no AddressSpace of that name in the namespace.
        SpaceNotFound,
        /// Not accepted: the AddressSpace is not accepted itself.
        SpaceNotAccepted,
        /// Not ready: the RouterConfig of its space is not there: nobody looks after what it has on brokers and routers.
        RouterConfigNotFound,
        /// Not accepted: no topic of that address in the space.
        TopicNotFound,
        /// Not accepted: no address of that name in the space to take dead letters or expired messages.
        DeadLetterNotFound,
        /// Not accepted: what is named to take dead letters or expired messages is not of type deadLetter.
        DeadLetterWrongType,
        /// Not accepted: the RouterConfig has no such address plan, or has some and the Address names none.
        PlanNotFound,
        /// Not accepted: the plan is for other types of addresses, or the plan of the space does not allow it.
        PlanNotAllowed,
        /// Not accepted: a limit of the space's plan has no room for it.
        QuotaExceeded,
        /// Being deleted; the message says what the deletion waits for.
        Terminating,
    }
}

reasons! {
    /// Reasons of an AddressSpace.
    AddressSpaceReason {
        /// Accepted: its RouterConfig takes it.
        Accepted,
        /// Ready: its broker serves (brokered), or one of its routers does (standard).
        Serving,
        /// Not ready: its broker is being connected.
        Connecting,
        /// Not ready: its broker is connected and being brought to what it must hold.
        Filling,
        /// Not ready: its broker does not answer.
        BrokerUnreachable,
        /// Not ready: no broker could be chosen for it yet.
        WaitingForBroker,
        /// Not ready: no router serves.
        NoRouterServing,
        /// Not accepted: it is of type standard, and the RouterConfig has no routers.
        NoRouters,
        /// Not accepted: the RouterConfig has no such space plan, or has some and the space names none.
        PlanNotFound,
        /// Not accepted: no RouterConfig of that name.
        RouterConfigNotFound,
        /// Not accepted: the RouterConfig is being deleted.
        RouterConfigTerminating,
        /// Not accepted: the RouterConfig does not allow this namespace.
        NamespaceNotAllowed,
        /// Not accepted: the RouterConfig has `tenancy: Single` and serves another space.
        TenancySingle,
        /// Being deleted; the message says what the deletion waits for.
        Terminating,
    }
}

reasons! {
    /// Reasons of a RouterConfig.
    RouterConfigReason {
        /// Accepted: nothing is wrong with the spec.
        Accepted,
        /// Ready: every broker and router serves.
        Serving,
        /// Not ready: a broker or router is being connected.
        Connecting,
        /// Not ready: a broker or router is connected and being brought to what it must hold.
        Filling,
        /// Not ready: a router does not answer, or refuses the login.
        RouterUnreachable,
        /// Not ready: a broker does not answer, or refuses the login.
        BrokerUnreachable,
        /// Not ready: a Secret that the spec names is missing.
        SecretNotFound,
        /// Not ready: a broker is the same as another of this RouterConfig, or of one with the same owner.
        SameBroker,
        /// Not ready: the Service of the routers has no EndpointSlices, or none with endpoints.
        NoEndpoints,
        /// Not ready: the EndpointSlices of the routers' Service lack the port.
        PortNotFound,
        /// Not ready: the Service of the routers has more endpoints than are used.
        TooManyEndpoints,
        /// Being deleted; the message says what the deletion waits for.
        Terminating,
    }
}

reasons! {
    /// Reasons of a RouterConfig with an edge.
    EdgeReason {
        /// Accepted: nothing is wrong with the spec.
        Accepted,
        /// Not accepted: one of `edge.options` cannot be read, or is none; the others are in force.
        InvalidOption,
        /// Ready: every HAProxy serves.
        Serving,
        /// Not ready: a HAProxy is being connected.
        Connecting,
        /// Not ready: a HAProxy is connected and being brought to what it must hold.
        Filling,
        /// Not ready: a HAProxy holds all but what needs a reload, which is awaited or failed; the message has its words.
        Outdated,
        /// Not ready: a HAProxy does not answer the agent beside it.
        EdgeUnreachable,
    }
}

reasons! {
    /// Reasons of a connector, in `status.connectors` of an AddressSpace.
    ConnectorReason {
        /// Every router that serves is connected to the remote host.
        Connected,
        /// Being made.
        Connecting,
        /// A router is not connected to the remote host; the message has its words.
        NotConnected,
        /// The RouterConfig lets spaces have no connectors.
        ConnectorsNotAllowed,
        /// The RouterConfig does not allow the host.
        HostNotAllowed,
        /// The RouterConfig does not allow the sslProfile.
        SslProfileNotAllowed,
        /// The Secret with the login is missing.
        SecretNotFound,
        /// An accepted Address of the space begins with its name.
        NameTaken,
        /// A router refused a command; the message has its words.
        RouterRefused,
        /// The routers enforce no policy, or have no link routes.
        NotSupportedByRouter,
        /// No router serves.
        NoRouterServing,
    }
}

reasons! {
    /// Reasons of a forwarder, in `status.forwarders` of an Address.
    ForwarderReason {
        /// Its links are active.
        Active,
        /// Being linked.
        Connecting,
        /// The space has no such connector.
        ConnectorNotFound,
        /// The connector is not made, or was not connected yet.
        ConnectorNotReady,
        /// A link is not active; the message has the router's words.
        LinkFailed,
        /// A router refused a command; the message has its words.
        RouterRefused,
        /// The routers are of a kind that cannot do this.
        NotSupportedByRouter,
        /// No router serves.
        NoRouterServing,
        /// The space is brokered.
        NoRouters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_what_the_api_takes_as_a_reason() {
        let all = AddressReason::ALL.iter().map(|r| r.as_str());
        let all = all.chain(AddressSpaceReason::ALL.iter().map(|r| r.as_str()));
        for reason in all.chain(RouterConfigReason::ALL.iter().map(|r| r.as_str())) {
            assert!(reason.starts_with(|c: char| c.is_ascii_uppercase()), "{reason}");
            assert!(reason.len() < 1024 && reason.chars().all(|c| c.is_ascii_alphanumeric()), "{reason}");
        }
    }

    #[test]
    fn a_reason_is_found_by_its_name() {
        assert_eq!(AddressReason::named("BrokerRefused"), Some(AddressReason::BrokerRefused));
        assert_eq!(AddressSpaceReason::named("BrokerRefused"), None);
    }
}
