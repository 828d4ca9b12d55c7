//! Sessions: their windows, and the deliveries in them that are not settled.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fe2o3_amqp::types::definitions::Handle;
use fe2o3_amqp::types::performatives::{Begin, End, Flow, Performative, Transfer};

use super::{ConnectionId, LinkId, Plane, SessionId};
use bytes::Bytes;

/// Transfers that a peer may have under way; large, since everything is taken at once.
const WINDOW: u32 = i32::MAX as u32;

/// A delivery that was taken from a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) session: SessionId,
    pub(super) delivery: u32,
}

/// A delivery that we sent and that is not settled.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) link: LinkId,
    /// Whose outcome it is.
    pub(super) origin: Option<Origin>,
}

/// A delivery that we took and that is not settled.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) link: LinkId,
    /// Where a routed one went.
    pub(super) onward: Option<(SessionId, u32)>,
}

/// A session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The peer has answered our begin.
    pub(super) begun: bool,
    next_outgoing: u32,
    next_incoming: u32,
    /// Transfers that the peer will still take.
    window: u32,
    waiting: VecDeque<(Transfer, Bytes)>,
    pub(super) handles: HashMap<u32, LinkId>,
    pub(super) next_handle: u32,
    next_delivery: u32,
    pub(super) sent: BTreeMap<u32, Sent>,
    pub(super) taken: BTreeMap<u32, Taken>,
}

impl Session {
    /// The number that the next delivery gets.
    pub(super) fn upcoming_delivery(&self) -> u32 {
        self.next_delivery
    }
}

impl Plane {
    /// Our session, whichever side began it.
    pub(super) fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.connections.get_mut(&id.0)?.sessions.get_mut(&id.1)
    }

    /// Begins a session of ours, once.
    pub(super) fn begin(&mut self, id: SessionId) {
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        if connection.sessions.contains_key(&id.1) {
            return;
        }
        connection.sessions.insert(id.1, Session::default());
        self.write(id.0, id.1, &Performative::Begin(begin(None)), &[]);
    }

    pub(super) fn begun(&mut self, id: ConnectionId, channel: u16, begin_of_peer: &Begin) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let ours = begin_of_peer.remote_channel.unwrap_or(channel);
        connection.channels.insert(channel, ours);
        let session = connection.sessions.entry(ours).or_default();
        session.begun = true;
        session.window = begin_of_peer.incoming_window;
        session.next_incoming = begin_of_peer.next_outgoing_id;
        if begin_of_peer.remote_channel.is_none() {
            self.write(id, ours, &Performative::Begin(begin(Some(channel))), &[]);
        }
        self.send_waiting((id, ours));
    }

    pub(super) fn session_ended(&mut self, id: ConnectionId, channel: u16) {
        let ours = self.connections.get_mut(&id).and_then(|connection| connection.channels.remove(&channel));
        let Some(ours) = ours else { return };
        let of_session = |link: &&super::Link| link.session == (id, ours);
        let links: Vec<LinkId> = self.links.values().filter(of_session).map(|link| link.id).collect();
        for link in links {
            self.lost(link);
        }
        self.write(id, ours, &Performative::End(End { error: None }), &[]);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.sessions.remove(&ours);
        }
    }

    /// What a flow says about the session's window.
    pub(super) fn window_flowed(&mut self, id: SessionId, flow: &Flow) {
        let Some(session) = self.session(id) else { return };
        let next = flow.next_incoming_id.unwrap_or(0);
        session.window = next.wrapping_add(flow.incoming_window).wrapping_sub(session.next_outgoing);
        if session.window > WINDOW {
            session.window = 0;
        }
        self.send_waiting(id);
        if flow.echo && flow.handle.is_none() {
            self.send_flow(id, None);
        }
    }

    pub(super) fn transfer_came(&mut self, id: SessionId) {
        if let Some(session) = self.session(id) {
            session.next_incoming = session.next_incoming.wrapping_add(1);
        }
    }

    /// Sends a flow: about a link, or the session alone.
    pub(super) fn send_flow(&mut self, id: SessionId, link: Option<LinkFlow>) {
        let Some(session) = self.session(id) else { return };
        let flow = Flow {
            next_incoming_id: session.begun.then_some(session.next_incoming),
            incoming_window: WINDOW,
            next_outgoing_id: session.next_outgoing,
            outgoing_window: WINDOW,
            handle: link.as_ref().map(|link| Handle(link.handle)),
            delivery_count: link.as_ref().and_then(|link| link.delivery_count),
            link_credit: link.as_ref().and_then(|link| link.credit),
            available: link.as_ref().and_then(|link| link.available),
            drain: link.as_ref().is_some_and(|link| link.drain),
            echo: link.as_ref().is_some_and(|link| link.echo),
            properties: None,
        };
        self.write(id.0, id.1, &Performative::Flow(flow), &[]);
    }

    /// The number of the next delivery that we send; takes it.
    pub(super) fn next_delivery(&mut self, id: SessionId) -> u32 {
        let Some(session) = self.session(id) else { return 0 };
        let number = session.next_delivery;
        session.next_delivery = number.wrapping_add(1);
        number
    }

    /// Sends a message, in as many frames as it needs.
    pub(super) fn send_transfer(&mut self, id: SessionId, mut transfer: Transfer, mut payload: Bytes) {
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        // What the performative and the frame's header take at most.
        let room = connection.max_frame.saturating_sub(256).max(128);
        let Some(session) = connection.sessions.get_mut(&id.1) else { return };
        while payload.len() > room {
            let part = payload.split_to(room);
            session.waiting.push_back((Transfer { more: true, ..transfer.clone() }, part));
            transfer = Transfer { delivery_id: None, delivery_tag: None, message_format: None, ..transfer };
        }
        session.waiting.push_back((transfer, payload));
        self.send_waiting(id);
    }

    fn send_waiting(&mut self, id: SessionId) {
        while let Some(session) = self.session(id).filter(|session| session.window > 0) {
            let Some((transfer, payload)) = session.waiting.pop_front() else { return };
            session.window -= 1;
            session.next_outgoing = session.next_outgoing.wrapping_add(1);
            self.write(id.0, id.1, &Performative::Transfer(transfer), &payload);
        }
    }
}

/// What a flow says about a link.
#[derive(Debug, Default)]
pub(super) struct LinkFlow {
    pub(super) handle: u32,
    pub(super) delivery_count: Option<u32>,
    pub(super) credit: Option<u32>,
    pub(super) available: Option<u32>,
    pub(super) drain: bool,
    pub(super) echo: bool,
}

fn begin(remote_channel: Option<u16>) -> Begin {
    Begin {
        remote_channel,
        next_outgoing_id: 0,
        incoming_window: WINDOW,
        outgoing_window: WINDOW,
        handle_max: Handle(u32::MAX),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}
