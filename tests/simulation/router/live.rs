//! What a router does by itself: it dials the brokers of its connectors, attaches links, and tries again what failed.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use waystation_kit::router_core::{AutoLink, Bound, Connector, Direction, Event, OperStatus, Rights};

use super::Router;
use super::remote::is_remote;
use crate::broker::{Broker, millis};
use crate::random::Random;
use crate::remotes::Far;

/// Until a connection is tried again that never was open, and one that was.
const REDIAL: Duration = Duration::from_secs(5);
const REDIAL_AFTER_OPEN: Duration = Duration::from_secs(2);
/// Until a link is attached again that failed, the first time in its life and every other time.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(5);

/// The connection of a connector.
pub enum Connection {
    /// Under way until then, or longer if the broker hangs.
    Dials(Instant),
    /// Tries again then.
    Waits(Instant),
    /// Open since the broker had lost its connections so many times.
    Open(u64),
}

/// Whom a connector leads to.
enum Peer<'a> {
    Broker(&'a Broker),
    Far(&'a Far),
}

impl Peer<'_> {
    fn up(&self) -> bool {
        match self {
            Self::Broker(broker) => broker.up,
            Self::Far(far) => far.up,
        }
    }

    fn losses(&self) -> u64 {
        match self {
            Self::Broker(broker) => broker.losses,
            Self::Far(far) => far.losses,
        }
    }

    fn hangs(&self, now: Instant) -> bool {
        matches!(self, Self::Broker(broker) if broker.hangs_until > now)
    }

    fn takes(&self, password: Option<&str>) -> bool {
        match self {
            Self::Broker(broker) => broker.takes(password),
            Self::Far(far) => far.takes(password),
        }
    }
}

/// An auto-link at work.
pub struct Link {
    /// When it is answered, or tried again.
    at: Instant,
    failed_before: bool,
    /// How often its queue had been destroyed when it became active.
    destroyed: u64,
}

impl Link {
    fn new(at: Instant) -> Self {
        Self { at, failed_before: false, destroyed: 0 }
    }
}

fn bound(connector: &str) -> Bound {
    Bound::Connection(connector.to_owned())
}

impl Router {
    /// Takes in what was made and removed.
    pub(super) fn follow(&mut self) {
        let now = Instant::now();
        for event in self.core.take_events() {
            match event {
                Event::ConnectorMade(connector) => {
                    self.connections.insert(connector.name.clone(), Connection::Dials(now + millis(2)));
                }
                Event::ConnectorGone(name) => {
                    self.failures.remove(&name);
                    if let Some(Connection::Open(_)) = self.connections.remove(&name) {
                        self.core.container_down(&bound(&name));
                    }
                }
                Event::AutoLinkMade(identity) => {
                    self.links.insert(identity, Link::new(now + millis(3)));
                }
                Event::AutoLinkGone(identity) => {
                    self.links.remove(&identity);
                }
                _ => {}
            }
        }
    }

    /// Brings everything to what has become of it by now.
    pub fn live(&mut self, brokers: &mut BTreeMap<String, Broker>, far: &BTreeMap<String, Far>, random: &mut Random) {
        if !self.up {
            return;
        }
        for connector in self.core.connectors() {
            let host = &connector.host;
            let peer = match is_remote(&connector.name) {
                true => far.get(host).map(Peer::Far),
                false => brokers.get(host).map(Peer::Broker),
            };
            self.connect(&connector, peer.filter(Peer::up), random);
        }
        let hosts: BTreeMap<String, String> =
            self.core.connectors().into_iter().map(|connector| (connector.name, connector.host)).collect();
        let links: Vec<(u64, AutoLink)> = self.core.auto_links().map(|(id, link)| (id, link.clone())).collect();
        for (identity, link) in links {
            let Bound::Connection(name) = &link.bound else { continue };
            let host = hosts.get(name);
            if is_remote(name) {
                if let Some(far) = host.and_then(|host| far.get(host)) {
                    self.attach_far(identity, &link, far);
                }
            } else if let Some(broker) = host.and_then(|host| brokers.get_mut(host)) {
                self.attach(identity, &link, broker);
            }
        }
    }

    /// `peer`: whoever is there.
    fn connect(&mut self, connector: &Connector, peer: Option<Peer<'_>>, random: &mut Random) {
        let (now, name) = (Instant::now(), &connector.name);
        if let Some(Connection::Open(losses)) = self.connections.get(name)
            && peer.as_ref().is_none_or(|peer| peer.losses() != *losses)
        {
            self.core.container_down(&bound(name));
            self.core.set_connector(name, "CONNECTING", "[C1] Connection closed: amqp:connection:framing-error");
            self.connections.insert(name.clone(), Connection::Waits(now + REDIAL_AFTER_OPEN));
        }
        if let Some(Connection::Waits(until)) = self.connections.get(name)
            && *until <= now
        {
            self.connections.insert(name.clone(), Connection::Dials(now + millis(random.within(1..20))));
        }
        let Some(Connection::Dials(until)) = self.connections.get(name) else { return };
        self.attempts += 1;
        let number = self.attempts;
        let port = &connector.port;
        match peer {
            // It says so from the moment in which it dials, and of a broker that hangs.
            Some(peer) if *until > now || peer.hangs(now) => {
                let before = match self.failures.get(name).filter(|_| matches!(peer, Peer::Far(_))) {
                    Some(words) => words.clone(),
                    None => format!("[C{number}] Connection to {}:{port} failed: before", connector.host),
                };
                self.core.set_connector(name, "SUCCESS", &before);
            }
            None if *until > now => {}
            None => {
                let message = format!(
                    "[C{number}] Connection to {0}:{port} failed: proton:io Connection refused - disconnected \
                     {0}:{port}",
                    connector.host
                );
                self.core.set_connector(name, "CONNECTING", &message);
                self.failures.insert(name.clone(), message);
                self.connections.insert(name.clone(), Connection::Waits(now + REDIAL));
            }
            // A policy that is missing is told of by no word.
            Some(Peer::Far(_)) if self.core.leave(connector) == Rights::Denied => {
                self.core.set_connector(name, "CONNECTING", "");
                self.connections.insert(name.clone(), Connection::Waits(now + REDIAL));
            }
            Some(peer) if !peer.takes(connector.password.as_deref()) => {
                let message = format!(
                    "[C{number}] Connection to {}:{port} failed: amqp:unauthorized-access Authentication failed \
                     [mech=PLAIN]",
                    connector.host
                );
                self.core.set_connector(name, "FAILED", &message);
                self.failures.insert(name.clone(), message);
                self.connections.insert(name.clone(), Connection::Waits(now + REDIAL));
            }
            Some(peer) => {
                if matches!(peer, Peer::Far(_)) && self.core.leave(connector) == Rights::Everything {
                    self.exposed.insert(connector.host.clone());
                }
                let message = format!("[C{number}] Connection Opened: dir=out host={}:{port}", connector.host);
                self.core.set_connector(name, "SUCCESS", &message);
                self.connections.insert(name.clone(), Connection::Open(peer.losses()));
                for identity in self.core.container_up(&bound(name)) {
                    let at = now + millis(random.within(1..150));
                    self.links.entry(identity).or_insert_with(|| Link::new(at)).at = at;
                }
            }
        }
    }

    fn attach(&mut self, identity: u64, link: &AutoLink, broker: &mut Broker) {
        let now = Instant::now();
        let Some(progress) = self.links.get_mut(&identity) else { return };
        let queue = link.external.as_deref().unwrap_or(&link.address);
        let queue = queue.split_once("::").map_or(queue, |(_, queue)| queue);
        let dues = matches!(link.status, OperStatus::Failed | OperStatus::Attaching) && progress.at <= now;
        // Where nobody has said otherwise, a broker makes what somebody comes for: not what an operator wants there.
        let there = broker.core.queue(queue).is_some()
            || (dues && broker.up && broker.core.come(queue, &format!("client of {queue} {identity}")))
            || broker.core.queue(&format!("client of {queue} {identity}")).is_some();
        let removed = |name: &str| broker.destroyed.get(name).copied().unwrap_or_default();
        let destroyed = removed(queue) + removed(&format!("client of {queue} {identity}"));
        let retry = if progress.failed_before { RETRY } else { FIRST_RETRY };
        let failure = match link.status {
            // Who sends does not notice.
            OperStatus::Active if link.direction == Direction::Out || destroyed == progress.destroyed => return,
            OperStatus::Active => format!("Queue deleted: {queue}"),
            OperStatus::Inactive => return,
            OperStatus::Failed if progress.at <= now => {
                progress.at = now + millis(5);
                self.core.set_auto_link(identity, OperStatus::Attaching, None);
                return;
            }
            OperStatus::Failed | OperStatus::Attaching if progress.at > now => return,
            OperStatus::Failed | OperStatus::Attaching if there => {
                progress.destroyed = destroyed;
                self.core.set_auto_link(identity, OperStatus::Active, None);
                return;
            }
            _ if link.direction == Direction::In => "AMQ119010: source address does not exist".to_owned(),
            _ => format!("AMQ119002: target address {queue} does not exist"),
        };
        (progress.at, progress.failed_before) = (now + retry, true);
        self.core.set_auto_link(identity, OperStatus::Failed, Some(&failure));
    }

    /// A remote host takes every link, but for those to what it does not have.
    fn attach_far(&mut self, identity: u64, link: &AutoLink, far: &Far) {
        let now = Instant::now();
        let Some(progress) = self.links.get_mut(&identity) else { return };
        let address = link.external.as_deref().unwrap_or(&link.address);
        let there = !far.lacks.contains(address);
        match link.status {
            OperStatus::Active if there => return,
            OperStatus::Inactive => return,
            OperStatus::Failed | OperStatus::Attaching if progress.at > now => return,
            OperStatus::Failed => {
                progress.at = now + millis(5);
                return self.core.set_auto_link(identity, OperStatus::Attaching, None);
            }
            _ if there => return self.core.set_auto_link(identity, OperStatus::Active, None),
            _ => {}
        }
        (progress.at, progress.failed_before) = (now + if progress.failed_before { RETRY } else { FIRST_RETRY }, true);
        self.core.set_auto_link(identity, OperStatus::Failed, Some(&format!("Node not found: {address}")));
    }
}
