//! How clients reach a standard space: Services in its namespace that lead to the routers. The vocabulary that the model
//! and `cluster`, which makes them, share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::ids::Key;

/// An endpoint that a space asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Unique in the space.
    pub name: Arc<str>,
    /// What clients speak.
    pub service: Protocol,
    /// By a load balancer, and not only inside the cluster.
    pub load_balancer: bool,
    /// What clients call it, if not by the Service's own name or address.
    pub host: Option<Arc<str>>,
}

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// AMQP on plain TCP.
    Amqp,
    /// AMQP in TLS.
    Amqps,
}

impl Protocol {
    /// As in the API; also the name of the Service's port.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Amqps => "amqps",
        }
    }

    /// The port of the Service: the usual one.
    pub fn port(self) -> u16 {
        match self {
            Self::Amqp => 5672,
            Self::Amqps => 5671,
        }
    }
}

/// `messaging.routers.listeners`: where the routers listen for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    /// Port of the plain one.
    pub amqp: Option<u16>,
    /// Port of the one with TLS.
    pub amqps: Option<u16>,
    /// What verifies its certificate, as PEM.
    pub ca_certificate: Option<Arc<str>>,
}

/// All Services that a space shall have, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The space.
    pub space: Key,
    /// Its uid: they belong to this one and to no namesake.
    pub uid: Arc<str>,
    /// By the names of their endpoints.
    pub services: BTreeMap<Arc<str>, ServiceWish>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceWish {
    /// What clients speak.
    pub protocol: Protocol,
    /// Its type: LoadBalancer instead of ClusterIP.
    pub load_balancer: bool,
    /// Where it leads: addresses by family (IPv6 after IPv4) and port. None while that is not known: what is there stays.
    pub to: Option<BTreeMap<(bool, u16), Vec<IpAddr>>>,
}

/// How far one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposed {
    /// It is there.
    Made,
    /// It is there, and reached from outside under this name or address.
    At(Arc<str>),
    /// It is there, and has no load balancer yet.
    Pending,
    /// It cannot be made: words for people.
    Refused(Arc<str>),
    /// Nobody asks for it any more, and it is still there.
    Leaving,
}

/// What is told of an endpoint in the status of its space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Where clients connect, once that is known.
    pub at: Option<(Arc<str>, u16)>,
    /// What verifies the routers' certificate, as PEM.
    pub ca_certificate: Option<Arc<str>>,
    /// Why it does not lead anywhere yet.
    pub message: Option<Arc<str>>,
}

/// The name of an endpoint's Service.
pub fn service_name(space: &str, endpoint: &str) -> String {
    format!("{space}-{endpoint}")
}

/// Whether a Service can lead to an address: the API server refuses those that mean something else to each machine.
pub fn leads_to(address: &IpAddr) -> bool {
    let special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !special && !local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_leads_to_what_every_machine_reaches() {
        for (address, leads) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("::ffff:10.0.0.1", false),
        ] {
            assert_eq!(leads_to(&address.parse().unwrap()), leads, "{address}");
        }
    }
}
