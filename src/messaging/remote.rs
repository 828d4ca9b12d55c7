//! Remote AMQP hosts: what spaces ask for, which hosts may be named, and how connections to them are called.

use std::net::IpAddr;
use std::sync::Arc;

use super::ids::{Key, Slot};
use super::router::{Direction, connector_of, digest};
use crate::off_limits;

/// Seconds after which a silent remote host counts as gone, where the space says nothing.
pub const IDLE_S: u32 = 16;
/// Bytes of the largest frame, where the space says nothing.
pub const MAX_FRAME: u32 = 16_384;

/// Between a space and a connector in the name of a connection: in no name of a broker, nor in those two.
const MARK: char = '>';
/// What an address begins with to which a subscription's messages are brought on their way to a remote host.
const TAP: &str = "_tap/";
/// What the slot of a forwarder begins with.
const FORWARD: &str = "#forward ";

/// A connector that a space asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSpec {
    /// Unique in the space.
    pub name: Arc<str>,
    /// One another's replacement, never none.
    pub hosts: Vec<Host>,
    /// The sslProfile on the routers.
    pub ssl_profile: Option<Arc<str>>,
    /// The Secret with `username`, `password`.
    pub credentials: Option<Key>,
    /// After so many seconds of silence the host counts as gone.
    pub idle_s: u32,
    /// Bytes.
    pub max_frame: u32,
    /// Remote addresses that clients can use.
    pub patterns: Vec<Arc<str>>,
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// DNS name or IP address.
    pub host: Arc<str>,
    /// AMQP port.
    pub port: u16,
}

impl Host {
    /// As it stands in a status.
    pub fn shown(&self) -> Arc<str> {
        format!("{}:{}", self.host, self.port).into()
    }
}

/// A forwarder that an Address asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwarderSpec {
    /// Unique in the Address.
    pub name: Arc<str>,
    /// The connector of its space.
    pub connector: Arc<str>,
    /// The address on the remote host.
    pub remote: Arc<str>,
    /// Seen from the router: in, from the remote host.
    pub direction: Direction,
}

/// What a RouterConfig allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorRules {
    /// Hosts; none: all that are harmless.
    pub hosts: Vec<Arc<str>>,
    /// sslProfiles.
    pub profiles: Vec<Arc<str>>,
}

/// What is told of a connector or a forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it works.
    pub ready: bool,
    /// In one word.
    pub reason: &'static str,
    /// For people.
    pub message: Arc<str>,
    /// Of a connector with several hosts: the one in use.
    pub host: Option<Arc<str>>,
}

// === Names ===

/// What the connection of a space's connector is called: nobody else's is, and no broker.
pub fn connection(space: &Key, connector: &str) -> Arc<str> {
    format!("{}.{}{MARK}{connector}", space.namespace, space.name).into()
}

/// The space and the connector of a connection; none of one to a broker.
pub fn of_connection(connection: &str) -> Option<(Key, &str)> {
    let (space, connector) = connection.split_once(MARK)?;
    let (namespace, name) = space.split_once('.')?;
    Some((Key::new(namespace, name), connector))
}

/// Whether a connection is to a remote host, and not to a broker.
pub fn is_remote(connection: &str) -> bool {
    connection.contains(MARK)
}

/// A connection in words for people.
pub fn in_words(connection: &str) -> String {
    match of_connection(connection) {
        Some((_, connector)) => format!("connector {connector}"),
        None => format!("broker {connection}"),
    }
}

/// The slot of a forwarder between `address` of a router and a remote one. Neither has whitespace.
pub fn forward_slot(direction: Direction, connection: &str, remote: &str, address: &str) -> Slot {
    format!("{FORWARD}{} {connection} {remote} {address}", direction.as_str()).into()
}

/// The slot of a forwarder of the subscription that routers have under `route`.
pub fn tap_slot(connection: &str, remote: &str, route: &str) -> Slot {
    let space = connection.split(MARK).next().unwrap_or_default();
    format!("#{TAP}{space}/{:016x}", digest(&(connection, remote, route))).into()
}

/// The router's address that a slot is about.
pub fn address_of(slot: &str) -> &str {
    match slot.strip_prefix(FORWARD) {
        Some(rest) => rest.rsplit(' ').next().unwrap_or(rest),
        None => slot.strip_prefix('#').filter(|address| address.starts_with(TAP)).unwrap_or(slot),
    }
}

/// The slot that something about this address of a router is of, unless it is a forwarder's link.
pub fn slot_at(address: &str) -> Slot {
    if address.starts_with(TAP) { format!("#{address}").into() } else { address.into() }
}

/// Whether a name of an entity, which ends with its slot, is that of a forwarder's link.
pub fn names_forwarder(name: &str) -> bool {
    name.contains(FORWARD)
}

/// The slot of the forwarder whose link has this name, which ends with it; none where the name was cut.
pub fn forwarder_named(name: &str, whole: bool) -> Option<Slot> {
    let at = name.find(FORWARD).filter(|_| whole)?;
    name.get(at..).map(Into::into)
}

/// At which phase of its address a link of this slot is, where that is not the usual one. A queue's address has two:
/// what senders bring is at 0 and goes to the broker; what comes from there is at 1.
pub fn phase(slot: &str, direction: Direction) -> Option<u8> {
    match (slot.starts_with(FORWARD), direction) {
        (true, Direction::In) => Some(0),
        (true, Direction::Out) => Some(1),
        // Between broker and remote host is one address without phases.
        (false, Direction::In) if slot.starts_with('#') => Some(0),
        (false, _) => None,
    }
}

/// The space that one of our own slots is about, if it is about one, and the connector, if it tells.
pub fn about(slot: &str) -> Option<(Key, Option<&str>)> {
    let connection = match connector_of(slot) {
        Some(connection) => connection,
        None => match slot.strip_prefix(FORWARD) {
            Some(rest) => rest.split(' ').nth(1)?,
            None => {
                let (space, _) = slot.strip_prefix('#')?.strip_prefix(TAP)?.split_once('/')?;
                let (namespace, name) = space.split_once('.')?;
                return Some((Key::new(namespace, name), None));
            }
        },
    };
    of_connection(connection).map(|(space, connector)| (space, Some(connector)))
}

// === Which hosts ===

/// Names of hosts that mean something else to every machine, or that clouds answer at.
const LOCAL: [&str; 5] = ["localhost", "ip6-localhost", "ip6-loopback", "metadata", "instance-data"];
const LOCAL_DOMAINS: [&str; 4] =
    [".localhost", ".localdomain", ".metadata.google.internal", ".metadata.azure.internal"];

/// Why the routers must not be led to a host; none if they may. `own`: brokers and routers of the RouterConfig.
pub fn refused<'a>(rules: &ConnectorRules, host: &str, own: impl Iterator<Item = &'a str>) -> Option<String> {
    if !rules.hosts.is_empty() {
        return match rules.hosts.iter().any(|rule| fits(rule, host)) {
            true => None,
            false => Some(format!("{host} is not among its allowedHosts")),
        };
    }
    harmful(host).map(|what| format!("{host} is {what}")).or_else(|| {
        let mut own = own;
        own.any(|own| same(own, host)).then(|| format!("{host} is a broker or router of its own"))
    })
}

fn plain(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn same(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one.to_canonical() == other.to_canonical(),
        _ => plain(one) == plain(other),
    }
}

fn harmful(host: &str) -> Option<&'static str> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return off_limits::refused(address);
    }
    let name = plain(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) || text.starts_with("0x");
    if name.is_empty() || name.contains(':') {
        Some("no host name and no address")
    } else if number(last) {
        // Resolvers take 127.1, 0x7f.1 and 2130706433 for addresses.
        Some("an address in an unusual form")
    } else if LOCAL.contains(&&*name) || LOCAL_DOMAINS.iter().any(|d| name.ends_with(d) || name == d[1..]) {
        Some("a name for something else on every machine, or a cloud's metadata service")
    } else {
        None
    }
}

/// Whether a host is what an entry of `allowedHosts` allows.
fn fits(rule: &str, host: &str) -> bool {
    if let Some(domain) = rule.strip_prefix('*') {
        return host.parse::<IpAddr>().is_err() && domain.starts_with('.') && plain(host).ends_with(&plain(domain));
    }
    let Some((network, length)) = rule.split_once('/') else { return same(rule, host) };
    let bits = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let (Ok(network), Ok(host), Ok(length)) = (network.parse(), host.parse(), length.parse::<u32>()) else {
        return false;
    };
    let ((network, width), (host, other)) = (bits(network), bits(host));
    let mask = if length == 0 { 0 } else { u128::MAX << 128_u32.saturating_sub(length) };
    width == other && length <= width && network & mask == host & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(hosts: &[&str]) -> ConnectorRules {
        ConnectorRules { hosts: hosts.iter().map(|host| Arc::from(*host)).collect(), profiles: Vec::new() }
    }

    #[test]
    fn without_a_list_what_means_another_host_to_everybody_is_refused() {
        let bad = "127.0.0.1 ::1 169.254.169.254 0.0.0.0 fe80::1 ::ffff:127.0.0.1 localhost LOCALHOST. a.localhost \
                   127.1 0x7f.1 2130706433 1.2.3.0x4 metadata.google.internal metadata broker.example:5672 10.0.0.7 \
                   Router-0.svc. . 100.100.100.200";
        for host in bad.split_whitespace() {
            let own = ["10.0.0.7", "router-0.svc"];
            assert!(refused(&rules(&[]), host, own.into_iter()).is_some(), "{host}");
        }
        for host in ["broker.example", "10.0.0.8", "fd00::1", "router-1.svc", "0x.example", "a.example."] {
            assert_eq!(refused(&rules(&[]), host, ["10.0.0.7", "router-0.svc"].into_iter()), None, "{host}");
        }
    }

    #[test]
    fn a_list_allows_what_is_in_it_and_nothing_else() {
        let rules = rules(&["*.example.com", "Broker", "10.1.0.0/16", "127.0.0.1", "fd00::/8"]);
        for host in ["a.example.com", "A.B.Example.COM.", "broker", "10.1.255.1", "127.0.0.1", "fd12::1"] {
            assert_eq!(refused(&rules, host, std::iter::once(host)), None, "{host}");
        }
        for host in ["example.com", "aexample.com", "10.2.0.1", "127.0.0.2", "broker.x", "fe80::1", "::1", "10.1"] {
            assert!(refused(&rules, host, std::iter::empty()).is_some(), "{host}");
        }
    }

    #[test]
    fn names_tell_what_they_are_made_of() {
        let space = Key::new("team-a", "shop");
        let id = connection(&space, "eu");
        assert_eq!(of_connection(&id), Some((space.clone(), "eu")));
        assert_eq!(of_connection("broker-0.svc:5672"), None);
        assert_eq!((in_words(&id), in_words("b")), ("connector eu".to_owned(), "broker b".to_owned()));
        let slot = forward_slot(Direction::Out, &id, "far/away", "team-a.shop/ör.ders");
        assert_eq!(address_of(&slot), "team-a.shop/ör.ders");
        assert_eq!(about(&slot), Some((space.clone(), Some("eu"))));
        assert_ne!(slot, forward_slot(Direction::In, &id, "far/away", "team-a.shop/ör.ders"));
        let tap = tap_slot(&id, "far", "team-a.shop/news::team-a.shop/mine");
        assert_eq!(slot_at(address_of(&tap)), tap);
        assert_eq!(about(&tap), Some((space.clone(), None)));
        assert_eq!(about("#connector/team-a.shop>eu"), Some((space, Some("eu"))));
        for other in ["#connector/b.c", "#ready", "#barrier", "team-a.shop/orders"] {
            assert_eq!(about(other), None, "{other}");
            assert_eq!(address_of(other), other);
        }
        assert_eq!(&*slot_at("team-a.shop/orders"), "team-a.shop/orders");
    }

    #[test]
    fn links_of_forwarders_are_where_receivers_and_senders_are() {
        let slot = forward_slot(Direction::Out, "a.b>c", "r", "a.b/q");
        assert_eq!((phase(&slot, Direction::Out), phase(&slot, Direction::In)), (Some(1), Some(0)));
        let tap = tap_slot("a.b>c", "r", "a.b/t::a.b/s");
        assert_eq!((phase(&tap, Direction::Out), phase(&tap, Direction::In)), (None, Some(0)));
        assert_eq!((phase("a.b/q", Direction::Out), phase("a.b/q", Direction::In)), (None, None));
    }
}
