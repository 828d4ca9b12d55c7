//! Links: attaching, credit, and coming apart.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use fe2o3_amqp::types::definitions::{AmqpError, Error, Handle, ReceiverSettleMode, Role, SenderSettleMode};
use fe2o3_amqp::types::messaging::{DeliveryState, Modified, Released, Source, Target, TargetArchetype};
use fe2o3_amqp::types::performatives::{Attach, Detach, Flow, Performative, Transfer};
use serde_amqp::Value;

use super::session::{LinkFlow, Origin};
use super::{LinkId, Place, Plane, SessionId};
use crate::router_core::{Direction, Row};

/// Messages that a sender may have with us.
const CAPACITY: u32 = 250;
/// Requests are answered at once, so that there may be more of them.
const REQUEST_CAPACITY: u32 = 2_000;
/// Where management requests are sent.
pub(super) const MANAGEMENT: &str = "$management";

/// What a link is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Management requests.
    Management,
    /// Each message says where it goes.
    Anonymous,
    /// An address.
    At(Place),
    /// An auto-link, which is at its place once it is answered.
    Auto(u64),
    /// Passed through to this link.
    Routed(LinkId),
    /// Nothing: it is being refused, or its other half is gone.
    Nothing,
}

/// A message that waits for credit.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) payload: Bytes,
    pub(super) transfer: Option<Box<Transfer>>,
    pub(super) settled: bool,
    pub(super) origin: Option<Origin>,
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) session: SessionId,
    name: String,
    /// Our number for it.
    pub(super) handle: u32,
    /// Theirs, once they have attached.
    remote: Option<u32>,
    /// We send on it.
    pub(super) gives: bool,
    pub(super) kind: Kind,
    /// Where it is bound.
    pub(super) place: Option<Place>,
    /// Messages that may still be sent on it.
    pub(super) credit: u32,
    /// Credit to be given when there is somebody to receive.
    pub(super) owed: u32,
    capacity: u32,
    pub(super) delivery_count: u32,
    /// What waits for credit.
    pub(super) onward: VecDeque<Pending>,
    /// What was sent and has no outcome.
    pub(super) unsettled: usize,
    /// Everything on it is sent settled.
    pub(super) settles: bool,
    drain: bool,
    /// What came so far of a message in several frames.
    pub(super) partial: Option<(Transfer, BytesMut)>,
    detach_sent: bool,
    detach_received: bool,
    /// Attach of a routed link's client, to be answered when the other side answers.
    asked: Option<Box<Attach>>,
}

impl Plane {
    /// An attach: of a client, or the answer to one of ours.
    pub(super) fn attached(&mut self, session: SessionId, attach: Attach) {
        if let Some(id) = self.asked.remove(&(session, attach.name.clone())) {
            self.answered(id, &attach);
            return;
        }
        let gives = attach.role == Role::Receiver;
        let id = self.add_link(session, &attach.name, gives);
        self.bind_remote(id, attach.handle.0);
        let settles = gives && attach.snd_settle_mode == SenderSettleMode::Settled;
        if let Some(link) = self.links.get_mut(&id) {
            link.settles = settles;
        }
        if self.connections.get(&session.0).is_some_and(|connection| connection.peer.is_fenced()) {
            self.take_place(id, Kind::Nothing);
            self.refuse(id, &attach, super::error(AmqpError::UnauthorizedAccess, "link disallowed by local policy"));
            return;
        }
        let dynamic = gives && attach.source.as_ref().is_some_and(|source| source.dynamic);
        if dynamic {
            let address = format!("amqp:/_topo/0/{}/temp.{id}", self.core.id());
            let source =
                Source { address: Some(address.clone()), ..attach.source.as_deref().cloned().unwrap_or_default() };
            self.take_place(id, Kind::At((0, local(&address, self.core.id()))));
            self.answer(id, &Attach { source: Some(Box::new(source)), ..attach });
            return;
        }
        let address = if gives { source_address(&attach) } else { target_address(&attach) };
        let tenant = self.connections.get(&session.0).map(|connection| connection.tenant.clone()).unwrap_or_default();
        let Some(address) = address.map(|address| tenant + &local(&address, self.core.id())) else {
            let kind = if gives { Kind::Nothing } else { Kind::Anonymous };
            self.take_place(id, kind);
            self.answer(id, &attach);
            self.grant(id);
            return;
        };
        let direction = if gives { Direction::Out } else { Direction::In };
        let routes = self.core.routes_for(&address, direction);
        if !routes.is_empty() {
            let bounds = routes.iter().map(|route| route.bound.clone()).collect();
            // That of the first counts for all of one pattern.
            let address = routes.first().map_or_else(|| address.clone(), |route| route.external(&address));
            self.route(id, attach, &address, bounds);
            return;
        }
        let treatment = self.core.treatment(&address);
        let kind = match address.as_str() {
            MANAGEMENT if !gives => Kind::Management,
            _ if gives => Kind::At((treatment.out_phase, address)),
            _ => Kind::At((treatment.in_phase, address)),
        };
        self.answer(id, &attach);
        self.take_place(id, kind);
        self.grant(id);
    }

    /// A link of ours or of a client, not attached yet.
    pub(super) fn add_link(&mut self, session: SessionId, name: &str, gives: bool) -> LinkId {
        let id = self.number();
        let handle = self.session(session).map_or(0, |session| {
            let handle = session.next_handle;
            session.next_handle += 1;
            handle
        });
        let link = Link {
            id,
            session,
            name: name.to_owned(),
            handle,
            remote: None,
            gives,
            kind: Kind::Nothing,
            place: None,
            credit: 0,
            owed: 0,
            capacity: CAPACITY,
            delivery_count: 0,
            onward: VecDeque::new(),
            unsettled: 0,
            settles: false,
            drain: false,
            partial: None,
            detach_sent: false,
            detach_received: false,
            asked: None,
        };
        self.links.insert(id, link);
        id
    }

    pub(super) fn bind_remote(&mut self, id: LinkId, handle: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.remote = Some(handle);
        let session = link.session;
        if let Some(session) = self.session(session) {
            session.handles.insert(handle, id);
        }
    }

    /// Says what a link is for and binds it to its address.
    pub(super) fn take_place(&mut self, id: LinkId, kind: Kind) {
        let place = match &kind {
            Kind::At(place) => Some(place.clone()),
            Kind::Auto(identity) => self.core.auto_link(*identity).map(|link| (link.phase, link.address.clone())),
            _ => None,
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        link.capacity = if kind == Kind::Management { REQUEST_CAPACITY } else { CAPACITY };
        link.owed = if link.gives || matches!(kind, Kind::Routed(_) | Kind::Nothing) { 0 } else { link.capacity };
        link.kind = kind;
        link.place.clone_from(&place);
        let (gives, row) = (link.gives, row(link));
        self.core.show_link(id, Some(row));
        let Some(place) = place else { return };
        let spot = self.spots.entry(place).or_default();
        if gives {
            spot.receivers.push(id);
            if spot.receivers.len() == 1 {
                for sender in spot.senders.clone() {
                    self.grant(sender);
                }
            }
        } else {
            spot.senders.push(id);
        }
    }

    /// Answers a client's attach.
    fn answer(&mut self, id: LinkId, attach: &Attach) {
        let Some(link) = self.links.get(&id) else { return };
        let answer = Attach {
            handle: Handle(link.handle),
            role: if link.gives { Role::Sender } else { Role::Receiver },
            rcv_settle_mode: ReceiverSettleMode::First,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: link.gives.then_some(link.delivery_count),
            max_message_size: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
            ..attach.clone()
        };
        self.write(link.session.0, link.session.1, &Performative::Attach(answer), &[]);
    }

    /// Attaches a link of ours, or the other half of a routed one.
    pub(super) fn ask(&mut self, id: LinkId, attach: Attach) {
        let Some(link) = self.links.get(&id) else { return };
        let role = if link.gives { Role::Sender } else { Role::Receiver };
        let attach = Attach { name: link.name.clone(), handle: Handle(link.handle), role, ..attach };
        self.asked.insert((link.session, link.name.clone()), id);
        self.write(link.session.0, link.session.1, &Performative::Attach(attach), &[]);
    }

    /// The other side answered an attach of ours.
    fn answered(&mut self, id: LinkId, attach: &Attach) {
        self.bind_remote(id, attach.handle.0);
        let Some(link) = self.links.get_mut(&id) else { return };
        let initial = attach.initial_delivery_count.unwrap_or(0);
        if !link.gives {
            link.delivery_count = initial;
        }
        match link.kind.clone() {
            Kind::Auto(identity) => self.auto_link_answered(id, identity, attach),
            Kind::Routed(client) => {
                let Some(client_link) = self.links.get_mut(&client) else { return };
                let Some(asked) = client_link.asked.take() else { return };
                client_link.delivery_count = initial;
                let (source, target) = super::route::seen_by_client(&asked, attach);
                self.answer(client, &Attach { source, target, ..*asked });
            }
            _ => {}
        }
    }

    /// Keeps a client's attach until the other side has answered.
    pub(super) fn answer_later(&mut self, id: LinkId, attach: Attach) {
        if let Some(link) = self.links.get_mut(&id) {
            link.asked = Some(Box::new(attach));
        }
    }

    /// Refuses a client's attach: an answer without what was asked for, and at once the end.
    pub(super) fn refuse(&mut self, id: LinkId, attach: &Attach, error: Error) {
        self.answer(id, &Attach { source: None, target: None, ..attach.clone() });
        self.detach(id, true, Some(error));
    }

    pub(super) fn flowed(&mut self, session: SessionId, flow: &Flow) {
        self.window_flowed(session, flow);
        let Some(handle) = &flow.handle else { return };
        let id = self.session(session).and_then(|session| session.handles.get(&handle.0).copied());
        let Some(link) = id.and_then(|id| self.links.get_mut(&id)) else { return };
        let id = link.id;
        if let Kind::Routed(other) = link.kind {
            self.pass_flow(other, flow);
            return;
        }
        if link.gives {
            let counted = flow.delivery_count.unwrap_or(0);
            link.credit = counted.wrapping_add(flow.link_credit.unwrap_or(0)).wrapping_sub(link.delivery_count);
            if link.credit > i32::MAX as u32 {
                link.credit = 0;
            }
            link.drain = flow.drain;
            self.pump(id);
        } else {
            let advanced = flow.delivery_count.map_or(0, |count| count.wrapping_sub(link.delivery_count));
            if advanced <= link.credit {
                link.delivery_count = link.delivery_count.wrapping_add(advanced);
                link.credit -= advanced;
                link.owed += advanced;
            }
        }
        if flow.echo {
            self.tell(id, false);
        }
    }

    fn pass_flow(&mut self, other: LinkId, flow: &Flow) {
        let Some(link) = self.links.get(&other) else { return };
        let (session, handle) = (link.session, link.handle);
        let link = LinkFlow {
            handle,
            delivery_count: flow.delivery_count,
            credit: flow.link_credit,
            available: flow.available,
            drain: flow.drain,
            echo: flow.echo,
        };
        self.send_flow(session, Some(link));
    }

    /// Tells where a link stands.
    fn tell(&mut self, id: LinkId, drain: bool) {
        let Some(link) = self.links.get(&id) else { return };
        let flow = LinkFlow {
            handle: link.handle,
            delivery_count: Some(link.delivery_count),
            credit: Some(link.credit),
            available: link.gives.then(|| u32::try_from(link.onward.len()).unwrap_or(u32::MAX)),
            drain,
            echo: false,
        };
        let session = link.session;
        self.send_flow(session, Some(flow));
    }

    /// Gives a sender the credit that it is owed, if there is somebody to receive and it is worth a frame.
    pub(super) fn grant(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let reachable = link
            .place
            .as_ref()
            .is_none_or(|place| self.spots.get(place).is_some_and(|spot| !spot.receivers.is_empty()));
        if link.gives || link.owed == 0 || !reachable || link.credit > link.capacity / 2 {
            return;
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.credit += link.owed;
            link.owed = 0;
            self.tell(id, false);
        }
    }

    /// Sends what there is credit for.
    pub(super) fn pump(&mut self, id: LinkId) {
        while let Some(link) = self.links.get_mut(&id).filter(|link| link.credit > 0) {
            let Some(pending) = link.onward.pop_front() else { break };
            link.credit -= 1;
            link.delivery_count = link.delivery_count.wrapping_add(1);
            self.send(id, pending);
        }
        let Some(link) = self.links.get_mut(&id).filter(|link| link.drain && link.credit > 0) else { return };
        link.delivery_count = link.delivery_count.wrapping_add(link.credit);
        link.credit = 0;
        self.tell(id, true);
    }

    /// Sends a detach, once.
    pub(super) fn detach(&mut self, id: LinkId, closed: bool, error: Option<Error>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.detach_sent {
            return;
        }
        link.detach_sent = true;
        let (session, detach) = (link.session, Detach { handle: Handle(link.handle), closed, error });
        self.write(session.0, session.1, &Performative::Detach(detach), &[]);
    }

    pub(super) fn detached(&mut self, session: SessionId, detach: &Detach) {
        let id = self.session(session).and_then(|session| session.handles.remove(&detach.handle.0));
        let Some(link) = id.and_then(|id| self.links.get_mut(&id)) else { return };
        link.detach_received = true;
        let (id, kind, finished) = (link.id, link.kind.clone(), link.detach_sent);
        match kind {
            Kind::Routed(other) => {
                // The other half hears of it, and its answer comes back as ours.
                let other_finished = self.links.get(&other).is_none_or(|other| other.detach_sent);
                if finished || other_finished {
                    self.detach(id, detach.closed, None);
                    self.detach(other, detach.closed, detach.error.clone());
                    self.remove(id);
                    let gone = self.links.get(&other).is_some_and(|other| other.detach_received);
                    if gone {
                        self.remove(other);
                    } else if let Some(other) = self.links.get_mut(&other) {
                        other.kind = Kind::Nothing;
                    }
                } else {
                    self.detach(other, detach.closed, detach.error.clone());
                }
            }
            Kind::Auto(identity) => {
                self.detach(id, detach.closed, None);
                self.remove(id);
                let words = detach.error.as_ref().and_then(|error| error.description.as_deref());
                self.auto_link_failed(identity, id, words);
            }
            _ => {
                self.detach(id, detach.closed, None);
                self.remove(id);
            }
        }
    }

    /// The connection or session of a link is gone.
    pub(super) fn lost(&mut self, id: LinkId) {
        let other = self.links.get(&id).and_then(|link| match link.kind {
            Kind::Routed(other) => Some(other),
            _ => None,
        });
        self.remove(id);
        let Some(other) = other.and_then(|other| self.links.get_mut(&other)) else { return };
        let (other, asked) = (other.id, other.asked.take());
        if let Some(link) = self.links.get_mut(&other) {
            link.kind = Kind::Nothing;
        }
        let error = super::error(
            fe2o3_amqp::types::definitions::ErrorCondition::Custom("qd:routed-link-lost".into()),
            "Connectivity to the peer container was lost",
        );
        match asked {
            Some(attach) => self.refuse(other, &attach, error),
            None => self.detach(other, true, Some(error)),
        }
    }

    /// Takes a link out of everything. What waited on it is released, what it had sent without an outcome has failed.
    pub(super) fn remove(&mut self, id: LinkId) {
        let Some(mut link) = self.links.remove(&id) else { return };
        self.core.show_link(id, None);
        self.asked.remove(&(link.session, link.name.clone()));
        if let Some(place) = &link.place
            && let Some(spot) = self.spots.get_mut(place)
        {
            spot.receivers.retain(|other| *other != id);
            spot.senders.retain(|other| *other != id);
            if spot.receivers.is_empty() && spot.senders.is_empty() {
                self.spots.remove(place);
            }
        }
        for pending in link.onward.drain(..) {
            self.settle(pending.origin, DeliveryState::Released(Released {}));
        }
        let mut failed = Vec::new();
        if let Some(session) = self.session(link.session) {
            if let Some(remote) = link.remote {
                session.handles.remove(&remote);
            }
            session.taken.retain(|_, taken| taken.link != id);
            session.sent.retain(|_, sent| {
                if sent.link == id {
                    failed.push(sent.origin);
                }
                sent.link != id
            });
        }
        for origin in failed {
            let modified =
                Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
            self.settle(origin, DeliveryState::Modified(modified));
        }
    }
}

fn row(link: &Link) -> Row {
    let owning = link.place.as_ref().map(|(phase, address)| Value::String(format!("M{phase}{address}")));
    Row::from([
        ("name", Value::from(link.name.as_str())),
        ("linkName", Value::from(link.name.as_str())),
        ("linkType", Value::from("endpoint")),
        ("linkDir", Value::from(if link.gives { "out" } else { "in" })),
        ("owningAddr", owning.unwrap_or_default()),
        ("capacity", Value::Uint(link.capacity)),
        ("connectionId", Value::String(link.session.0.to_string())),
        ("adminStatus", Value::from("enabled")),
        ("operStatus", Value::from("up")),
    ])
}

/// An address as this router sees it.
pub(super) fn local(address: &str, id: &str) -> String {
    let address = address.strip_prefix("amqp:").unwrap_or(address).trim_start_matches('/');
    let topological = address.strip_prefix("_topo/0/").and_then(|rest| rest.strip_prefix(id));
    topological
        .and_then(|rest| rest.strip_prefix('/'))
        .or(address.strip_prefix("_local/"))
        .unwrap_or(address)
        .to_owned()
}

pub(super) fn source_address(attach: &Attach) -> Option<String> {
    attach.source.as_ref().and_then(|source| source.address.clone())
}

pub(super) fn target_address(attach: &Attach) -> Option<String> {
    match attach.target.as_deref() {
        Some(TargetArchetype::Target(Target { address, .. })) => address.clone(),
        _ => None,
    }
}
