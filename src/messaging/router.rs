//! What a router must hold, as values: the vocabulary that the model and the router drive share.
//!
//! All routers of a RouterConfig hold the same, and keep nothing: a restarted one comes back empty. What is kept
//! together and acknowledged as one is a slot: the pattern that clients use, for example `tenant.space/orders`, or
//! one of ours, which has `#` in front, as no address has.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use super::ids::{Key, Slot};
use super::job;

/// How a router hands on the messages of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distribution {
    /// Each message to one receiver.
    Balanced,
    /// Each message to every receiver.
    Multicast,
}

impl Distribution {
    /// The router's own word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Multicast => "multicast",
        }
    }
}

/// Which way messages go, seen from the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Into the router. Of an auto-link: from a broker. Of a link route: from a client.
    In,
    /// Out of the router. Of an auto-link: to a broker. Of a link route: to a client.
    Out,
}

impl Direction {
    /// The router's own word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// A link that the router itself attaches to a broker, over the connector of that broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AutoLink {
    /// Which way.
    pub direction: Direction,
    /// The broker's name in the RouterConfig, or [`connection`](super::remote::connection).
    pub broker: Arc<str>,
    /// The name on the broker (address, or `address::queue`), where it is another than the slot.
    pub external: Option<Arc<str>>,
}

/// How the routers reach a broker or a remote host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connector {
    /// The broker's name in the RouterConfig, or [`connection`](super::remote::connection).
    pub broker: Arc<str>,
    /// Host, as the routers see it.
    pub host: Arc<str>,
    /// AMQP port, as the routers see it.
    pub port: u16,
    /// Name of an sslProfile that exists on the routers.
    pub ssl_profile: Option<Arc<str>>,
    /// Secret with `username` and `password` for SASL PLAIN, and a number that changes with its contents.
    pub credentials: Option<(Key, u64)>,
    /// Its login has changed since this process looks after it: one that a process before this one made, and whose
    /// password is shown by no router, has the old one, however well it is connected.
    pub relogin: bool,
    /// What is different for a remote host; none of a broker.
    pub remote: Option<Remote>,
}

/// What is different of a connection to a remote host. The host may not use the router by it: see [`Entry::Fence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote {
    /// Seconds of silence after which the host counts as gone.
    pub idle_s: u32,
    /// Bytes of the largest frame.
    pub max_frame: u32,
}

impl Hash for Connector {
    /// Without the credentials: what is read is never compared with a secret.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.broker, &self.host, self.port, &self.ssl_profile, self.remote).hash(state);
    }
}

/// All that one slot is on a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An address whose pattern is the slot, with its auto-links, sorted.
    Address {
        /// How it hands on messages.
        distribution: Distribution,
        /// Whether messages go by way of a broker.
        waypoint: bool,
        /// Links to brokers.
        links: Box<[AutoLink]>,
    },
    /// Links whose address is the slot are passed through to a broker.
    LinkRoute {
        /// The broker's name in the RouterConfig.
        broker: Arc<str>,
        /// Whether clients may send as well as receive.
        both: bool,
    },
    /// A connection to a broker.
    Connector(Connector),
    /// A connection to a remote host, and what clients reach by it.
    Remote {
        /// The connection.
        connector: Connector,
        /// Patterns of addresses whose links are passed through, sorted.
        patterns: Box<[Arc<str>]>,
        /// What is taken off these addresses before the remote host sees them.
        strip: Arc<str>,
    },
    /// A link between a queue and a remote host.
    Forward(AutoLink),
    /// An address between a broker and a remote host: a subscription's messages on their way.
    Tap {
        /// From the broker.
        from: AutoLink,
        /// To the remote host.
        to: AutoLink,
    },
    /// What remote hosts may use of the router: nothing. A vhost policy without sources and targets.
    Fence,
    /// The listener that says, by being there, that the router is filled.
    Readiness {
        /// What it binds.
        host: Arc<str>,
        /// What it binds.
        port: u16,
    },
}

/// What the slots of connectors begin with.
const CONNECTOR: &str = "#connector/";

/// The slot of a connector to a broker.
pub fn connector_slot(broker: &str) -> Slot {
    format!("{CONNECTOR}{broker}").into()
}

/// The broker, or the connection to a remote host, that a slot is the connector of, if it is one's.
pub fn connector_of(slot: &str) -> Option<&str> {
    slot.strip_prefix(CONNECTOR)
}

/// The slot of the policy for connections to remote hosts; it sorts before those, which are refused without it.
pub fn fence_slot() -> Slot {
    "#barrier".into()
}

/// The slot of the readiness listener.
pub fn readiness_slot() -> Slot {
    "#ready".into()
}

/// What a router can do, as its schema says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Abilities {
    /// Addresses by way of a broker.
    pub waypoints: bool,
    /// Link routes.
    pub link_routes: bool,
    /// Listeners that put a prefix before every address.
    pub multi_tenant: bool,
    /// It enforces policies, also on connections that it makes itself.
    pub policies: bool,
}

impl Entry {
    /// Whether messages go to, or come from, this broker by it.
    pub fn leads_to(&self, broker: &str) -> bool {
        match self {
            Self::Address { links, .. } => links.iter().any(|link| *link.broker == *broker),
            Self::LinkRoute { broker: its, .. } => **its == *broker,
            Self::Forward(link) => *link.broker == *broker,
            Self::Tap { from, to } => *from.broker == *broker || *to.broker == *broker,
            Self::Connector(_) | Self::Remote { .. } | Self::Fence | Self::Readiness { .. } => false,
        }
    }

    /// The connection that it is, if it is one.
    pub fn connector(&self) -> Option<&Connector> {
        match self {
            Self::Connector(connector) | Self::Remote { connector, .. } => Some(connector),
            _ => None,
        }
    }

    /// What it needs and `abilities` lack, in words.
    pub fn lacks(&self, abilities: Abilities) -> Option<&'static str> {
        match self {
            Self::Address { waypoint: true, .. } if !abilities.waypoints => Some("waypoint addresses"),
            Self::LinkRoute { .. } if !abilities.link_routes => Some("link routes"),
            Self::Remote { patterns, .. } if !patterns.is_empty() && !abilities.link_routes => Some("link routes"),
            Self::Forward(_) | Self::Tap { .. } if !abilities.waypoints => Some("waypoint addresses"),
            Self::Remote { .. } | Self::Fence | Self::Forward(_) | Self::Tap { .. } if !abilities.policies => {
                Some("vhost policy (enableVhostPolicy in its configuration), which keeps remote hosts off the router")
            }
            _ => None,
        }
    }

    /// The entities that it is made of, in the order in which they are made.
    pub fn entities(&self) -> Vec<Entity> {
        match self {
            Self::Address { distribution, waypoint, links } => {
                let address = Entity::Address { distribution: *distribution, waypoint: *waypoint };
                [address].into_iter().chain(links.iter().cloned().map(Entity::AutoLink)).collect()
            }
            Self::LinkRoute { broker, both } => {
                let route = |direction| Entity::LinkRoute { direction, broker: broker.clone() };
                let both = both.then(|| route(Direction::In));
                both.into_iter().chain([route(Direction::Out)]).collect()
            }
            Self::Connector(connector) => vec![Entity::Connector(connector.clone())],
            Self::Remote { connector, patterns, strip } => {
                let via = |direction, pattern: &Arc<str>| Entity::Via {
                    direction,
                    connection: connector.broker.clone(),
                    pattern: pattern.clone(),
                    strip: strip.clone(),
                };
                let ways = patterns.iter().flat_map(|p| [via(Direction::In, p), via(Direction::Out, p)]);
                [Entity::Connector(connector.clone())].into_iter().chain(ways).collect()
            }
            Self::Forward(link) => vec![Entity::AutoLink(link.clone())],
            Self::Tap { from, to } => {
                let address = Entity::Address { distribution: Distribution::Balanced, waypoint: false };
                vec![address, Entity::AutoLink(from.clone()), Entity::AutoLink(to.clone())]
            }
            Self::Fence => vec![Entity::Fence],
            Self::Readiness { host, port } => vec![Entity::Readiness { host: host.clone(), port: *port }],
        }
    }

    /// A number for all of its entities together, in any order: that of what was read from a router is the same
    /// where the router holds exactly this.
    pub fn fingerprint(&self) -> u64 {
        self.entities().iter().fold(0, |sum, entity| sum.wrapping_add(entity.fingerprint()))
    }
}

/// One entity of a slot. In the order in which they are made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entity {
    /// `router.config.address`; its pattern is the slot.
    Address {
        /// `distribution`.
        distribution: Distribution,
        /// `waypoint`.
        waypoint: bool,
    },
    /// `router.config.autoLink`; its address is the slot.
    AutoLink(AutoLink),
    /// `router.config.linkRoute`; its pattern is the slot.
    LinkRoute {
        /// `direction`.
        direction: Direction,
        /// Its `connection` is the connector of this broker.
        broker: Arc<str>,
    },
    /// `router.config.linkRoute` to a remote host.
    Via {
        /// `direction`.
        direction: Direction,
        /// Its `connection`.
        connection: Arc<str>,
        /// `pattern`.
        pattern: Arc<str>,
        /// `delExternalPrefix`.
        strip: Arc<str>,
    },
    /// `connector`.
    Connector(Connector),
    /// `vhost`.
    Fence,
    /// `listener`.
    Readiness {
        /// `host`.
        host: Arc<str>,
        /// `port`.
        port: u16,
    },
}

impl Entity {
    /// A number that differs where entities differ (but for credentials); the same in every process.
    pub fn fingerprint(&self) -> u64 {
        digest(self)
    }
}

/// A number for a value, the same in every process; spread, so that such numbers may be added up.
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    value.hash(&mut hasher);
    let mixed = (hasher.0 ^ (hasher.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// FNV-1a: no seed, no state of a process in it.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// What a slot shall become.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// Hold exactly this: what is there and ours and differs is removed and made anew, what is right is left alone.
    Hold(Arc<Entry>),
    /// Hold nothing: whatever is ours in this slot goes. Missing is done.
    Gone,
}

/// Work for a router's drive.
pub type Job = job::Job<Wish>;
/// The answer to a job: done, or the router's own words.
pub type Outcome = job::Outcome<Done>;

/// A job that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The router holds what was wished.
    Held {
        /// Why some link of it is not active, when it is not: the router's words. What becomes of it is told by
        /// [`RouterLink::Links`].
        trouble: Option<Arc<str>>,
    },
    /// Nothing of the slot is left.
    Gone,
}

/// What a router holds of ours, read on one connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Every slot of which the router holds something with our owner, with the [`Entry::fingerprint`] of all that.
    pub slots: crate::maps::Map<Slot, u64>,
}

/// What happens to a router's connection, from the drive.
#[derive(Clone, Debug, PartialEq)]
pub enum RouterLink {
    /// Connected and logged in, the schema read; reading begins.
    Connected {
        /// What the router can do.
        abilities: Abilities,
        /// Our readiness listener is there: it was filled before, and serves.
        serving: bool,
        /// The address at which it was reached.
        peer: Option<IpAddr>,
    },
    /// Reading everything again begins now: what is acknowledged from here on is newer than the contents that follow.
    Reading,
    /// All of ours that it holds.
    Contents(Arc<Contents>),
    /// It is connected and cannot be read; the drive tries again.
    Unreadable(Arc<str>),
    /// No connection, with the reason: never any secret.
    Down(Arc<str>),
    /// An answer to a job.
    Outcome(Outcome),
    /// The links of these slots turned: the router's words where one is not active and stays so after it was made
    /// anew, none where all are active (again).
    Links(Vec<(Slot, Option<Arc<str>>)>),
    /// All links have been looked at once on this connection, and what was found has been told.
    Looked,
    /// The connector to this broker turned: none when it is up, else why not.
    Connector(Arc<str>, Option<Arc<str>>),
}
