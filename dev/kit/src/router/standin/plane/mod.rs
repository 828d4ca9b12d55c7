//! What moves messages: connections, sessions and links, and between them addresses, auto-links and link routes.
//!
//! Synchronous: frames go in, frames come out on each connection's channel, and time is told. One lock around it.
//! Invariant: a delivery that was taken from a sender and not settled is in the `onward` list of exactly one link, or
//! was handed on and waits for its outcome.

mod auto_links;
mod deliver;
mod links;
mod management;
mod route;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fe2o3_amqp::types::definitions::{Error, ErrorCondition};
use fe2o3_amqp::types::performatives::{Close, Open, Performative};
use serde_amqp::Value;
use tokio::sync::mpsc;

use super::wire::{self, Frame, MAX_FRAME};
use crate::router_core::{Bound, Core, Row};
use links::Link;
use session::Session;

pub(super) type ConnectionId = u64;
type LinkId = u64;
/// A session, by its number on our side.
type SessionId = (ConnectionId, u16);
/// Where messages of an address meet: the phase and the address.
type Place = (u8, String);

/// What is written on a connection.
#[derive(Debug)]
pub(super) enum Out {
    /// Bytes.
    Bytes(Vec<u8>),
    /// From now on, a sign of life this often.
    Beat(Duration),
    /// Nothing more.
    End,
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(super) enum Peer {
    /// Somebody who came to a listener.
    Client {
        /// Whether the host name that the client gives goes before its addresses.
        multi_tenant: bool,
    },
    /// Whom a connector of that name reached; links of route containers are found.
    Container {
        /// The connector.
        connector: String,
        /// Whether its role is `route-container`.
        route: bool,
        /// It may attach no links of its own.
        fenced: bool,
    },
}

impl Peer {
    fn is_fenced(&self) -> bool {
        matches!(self, Self::Container { fenced: true, .. })
    }
}

/// A connection.
#[derive(Debug)]
struct Connection {
    out: mpsc::UnboundedSender<Out>,
    peer: Peer,
    max_frame: usize,
    /// Our sessions by the peer's channel.
    channels: HashMap<u16, u16>,
    sessions: HashMap<u16, Session>,
    container: String,
    /// What goes before every address of a client; mostly nothing.
    tenant: String,
    row: Row,
}

/// Senders and receivers of an address.
#[derive(Debug, Default)]
struct Spot {
    receivers: Vec<LinkId>,
    senders: Vec<LinkId>,
    turn: usize,
}

/// Something that is due at a time.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// Attach an auto-link again.
    AutoLink(u64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) core: Core,
    connections: HashMap<ConnectionId, Connection>,
    links: HashMap<LinkId, Link>,
    spots: HashMap<Place, Spot>,
    auto_links: HashMap<u64, auto_links::Progress>,
    /// Attaches of ours that are not answered, by session and name.
    asked: HashMap<(SessionId, String), LinkId>,
    due: BTreeMap<(Instant, u64), Due>,
    next: u64,
    burst: u64,
    most_in_flight: u64,
}

impl Plane {
    pub(super) fn new(mut core: Core) -> Self {
        core.record_events();
        Self {
            core,
            connections: HashMap::new(),
            links: HashMap::new(),
            spots: HashMap::new(),
            auto_links: HashMap::new(),
            asked: HashMap::new(),
            due: BTreeMap::new(),
            next: 0,
            burst: 0,
            most_in_flight: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A connection that is logged in. Connectors open at once, listeners wait for the client's open.
    pub(super) fn connected(
        &mut self,
        peer: Peer,
        host: &str,
        (mechanism, user): (&str, &str),
        out: mpsc::UnboundedSender<Out>,
    ) -> ConnectionId {
        let id = self.number();
        let (role, direction) = match &peer {
            Peer::Client { .. } | Peer::Container { route: false, .. } => ("normal", "in"),
            Peer::Container { .. } => ("route-container", "out"),
        };
        let row = Row::from([
            ("name", Value::String(format!("connection/{host}"))),
            ("host", Value::from(host)),
            ("role", Value::from(role)),
            ("dir", Value::from(direction)),
            ("protocol", Value::from("amqp")),
            ("sasl", Value::from(mechanism)),
            ("user", Value::from(user)),
            ("isAuthenticated", Value::Bool(!mechanism.is_empty())),
            ("opened", Value::Bool(true)),
            ("active", Value::Bool(true)),
            ("adminStatus", Value::from("enabled")),
            ("operStatus", Value::from("up")),
        ]);
        let dials = matches!(peer, Peer::Container { .. });
        let connection = Connection {
            out,
            peer,
            max_frame: 512,
            channels: HashMap::new(),
            sessions: HashMap::new(),
            container: String::new(),
            tenant: String::new(),
            row,
        };
        self.connections.insert(id, connection);
        if dials {
            self.open(id, Some(host));
        }
        id
    }

    fn open(&mut self, id: ConnectionId, hostname: Option<&str>) {
        let open = Open {
            container_id: self.core.id().to_owned(),
            hostname: hostname.map(str::to_owned),
            max_frame_size: MAX_FRAME.into(),
            channel_max: 32_767.into(),
            idle_time_out: None,
            outgoing_locales: None,
            incoming_locales: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        self.write(id, 0, &Performative::Open(open), &[]);
    }

    /// A frame came.
    pub(super) fn take(&mut self, id: ConnectionId, frame: Frame) {
        let Some(performative) = frame.performative else { return };
        match performative {
            Performative::Open(open) => self.opened(id, &open),
            Performative::Close(_) => {
                self.write(id, 0, &Performative::Close(Close { error: None }), &[]);
                self.end(id);
            }
            Performative::Begin(begin) => self.begun(id, frame.channel, &begin),
            Performative::End(_) => self.session_ended(id, frame.channel),
            other => {
                let channel = self.connections.get(&id).and_then(|connection| connection.channels.get(&frame.channel));
                let Some(session) = channel.map(|channel| (id, *channel)) else { return };
                self.take_in_session(session, other, frame.payload);
            }
        }
    }

    fn take_in_session(&mut self, session: SessionId, performative: Performative, payload: Bytes) {
        match performative {
            Performative::Attach(attach) => self.attached(session, attach),
            Performative::Flow(flow) => self.flowed(session, &flow),
            Performative::Transfer(transfer) => self.transferred(session, transfer, payload),
            Performative::Disposition(disposition) => self.disposed(session, &disposition),
            Performative::Detach(detach) => self.detached(session, &detach),
            _ => {}
        }
    }

    fn opened(&mut self, id: ConnectionId, open: &Open) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.max_frame =
            usize::try_from(open.max_frame_size.0).unwrap_or(usize::MAX).clamp(512, MAX_FRAME as usize);
        connection.container.clone_from(&open.container_id);
        connection.row.insert("container", Value::from(open.container_id.as_str()));
        if let (Peer::Client { multi_tenant: true }, Some(hostname)) = (&connection.peer, &open.hostname) {
            connection.tenant = format!("{hostname}/");
            connection.row.insert("tenant", Value::from(connection.tenant.as_str()));
        }
        if let Some(silence) = open.idle_time_out.filter(|silence| *silence > 0) {
            let _ = connection.out.send(Out::Beat(Duration::from_millis(u64::from(silence) / 2)));
        }
        let (row, peer) = (connection.row.clone(), connection.peer.clone());
        let told = |key: &str| match row.get(key) {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        let (host, mechanism, user) = (told("host"), told("sasl"), told("user"));
        self.core.show_connection(id, Some(row.clone()));
        match peer {
            Peer::Client { .. } => self.open(id, None),
            Peer::Container { connector, route, .. } => {
                let message = format!(
                    "[C{id}] Connection Opened: dir=out host={host} vhost= encrypted=no auth={mechanism} user={user} \
                     container_id={}",
                    open.container_id
                );
                self.core.set_connector(&connector, "SUCCESS", &message);
                if route {
                    self.container_opened(id, &connector, &open.container_id);
                }
            }
        }
    }

    /// A connection ended, for whatever reason.
    pub(super) fn disconnected(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (peer, container) = (connection.peer.clone(), connection.container.clone());
        let links: Vec<LinkId> = self.links.values().filter(|link| link.session.0 == id).map(|link| link.id).collect();
        for link in links {
            self.lost(link);
        }
        self.connections.remove(&id);
        self.core.show_connection(id, None);
        if let Peer::Container { connector, route: true, .. } = peer
            && !container.is_empty()
        {
            for bound in [Bound::Connection(connector), Bound::Container(container)] {
                for link in self.core.container_down(&bound) {
                    self.forget_auto_link(link);
                }
            }
        }
    }

    fn write(&self, id: ConnectionId, channel: u16, performative: &Performative, payload: &[u8]) {
        if let Some(connection) = self.connections.get(&id) {
            // One that has ended needs nothing.
            let _ = connection.out.send(Out::Bytes(wire::amqp(channel, performative, payload)));
        }
    }

    fn end(&self, id: ConnectionId) {
        if let Some(connection) = self.connections.get(&id) {
            let _ = connection.out.send(Out::End);
        }
    }

    /// Ends the connection of a connector.
    pub(super) fn disconnect(&self, connector: &str) {
        for (id, connection) in &self.connections {
            if matches!(&connection.peer, Peer::Container { connector: name, .. } if name == connector) {
                self.write(*id, 0, &Performative::Close(Close { error: None }), &[]);
                self.end(*id);
            }
        }
    }

    /// Ends and starts: no connection, and nothing that was made, is left.
    pub(super) fn restart(&mut self) {
        self.core.restart();
        let (next, most_in_flight) = (self.next, self.most_in_flight);
        let core = self.core.clone();
        *self = Self { next, most_in_flight, ..Self::new(core) };
    }

    /// Nothing more has come for now.
    pub(super) fn burst_ended(&mut self) {
        self.burst = 0;
    }

    /// Most requests that came together: each is answered at once, so that those are all that a client had under way.
    pub(super) fn most_in_flight(&self) -> u64 {
        self.most_in_flight
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Due::AutoLink(identity) => self.attach_auto_link_again(identity),
            }
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        let number = self.number();
        self.due.insert((Instant::now() + after, number), due);
    }
}

fn error(condition: impl Into<ErrorCondition>, description: impl Into<String>) -> Error {
    Error { condition: condition.into(), description: Some(description.into()), info: None }
}
