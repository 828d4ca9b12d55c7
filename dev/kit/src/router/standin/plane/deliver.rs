//! Deliveries: taken from senders, handed to receivers, and their outcomes back.

use bytes::{Bytes, BytesMut};
use fe2o3_amqp::types::definitions::{Handle, Role};
use fe2o3_amqp::types::messaging::{Accepted, DeliveryState, Released};
use fe2o3_amqp::types::performatives::{Disposition, Performative, Transfer};

use super::links::{Kind, Pending};
use super::session::{Origin, Sent, Taken};
use super::{LinkId, Place, Plane, SessionId};

impl Plane {
    pub(super) fn transferred(&mut self, session: SessionId, transfer: Transfer, payload: Bytes) {
        self.transfer_came(session);
        let id = self.session(session).and_then(|session| session.handles.get(&transfer.handle.0).copied());
        let Some(link) = id.and_then(|id| self.links.get_mut(&id)) else { return };
        let id = link.id;
        let (more, aborted, settled) = (transfer.more, transfer.aborted, transfer.settled);
        let (mut first, payload) = match link.partial.take() {
            None if !more => (transfer, payload),
            partial => {
                let (first, mut bytes) = partial.unwrap_or_else(|| (transfer, BytesMut::new()));
                bytes.extend_from_slice(&payload);
                (first, bytes.freeze())
            }
        };
        if settled.is_some() {
            first.settled = settled;
        }
        if more && !aborted {
            link.partial = Some((first, payload.into()));
            return;
        }
        link.delivery_count = link.delivery_count.wrapping_add(1);
        link.credit = link.credit.saturating_sub(1);
        if aborted {
            link.owed += 1;
            self.grant(id);
            return;
        }
        let settled = first.settled == Some(true);
        let origin = first.delivery_id.filter(|_| !settled).map(|delivery| Origin { session, delivery });
        if let (Some(origin), Some(session)) = (origin, self.session(session)) {
            session.taken.insert(origin.delivery, Taken { link: id, onward: None });
        }
        self.delivered(id, first, payload, origin);
    }

    fn delivered(&mut self, id: LinkId, transfer: Transfer, payload: Bytes, origin: Option<Origin>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let place = match &link.kind {
            Kind::Routed(other) => {
                let other = *other;
                self.pass(other, transfer, payload, origin);
                return;
            }
            Kind::Management => None,
            Kind::Anonymous => match super::management::to_of(&payload) {
                Some(address) => {
                    let address = super::links::local(&address, self.core.id());
                    let phase = self.core.treatment(&address).in_phase;
                    (address != super::links::MANAGEMENT).then_some((phase, address))
                }
                None => Some((0, String::new())),
            },
            _ => link.place.clone(),
        };
        if origin.is_none() {
            self.replace_credit(id);
        }
        match place {
            None => {
                self.settle(origin, DeliveryState::Accepted(Accepted {}));
                self.request(&payload);
            }
            Some(place) => self.deliver(&place, payload, origin),
        }
    }

    fn replace_credit(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.owed += 1;
            self.grant(id);
        }
    }

    /// Hands a message to one receiver of a place, or to all.
    pub(super) fn deliver(&mut self, place: &Place, payload: Bytes, origin: Option<Origin>) {
        let multicast = self.core.treatment(&place.1).multicast;
        let receivers = self.spots.get(place).map(|spot| spot.receivers.clone()).unwrap_or_default();
        if multicast {
            for receiver in &receivers {
                let payload = payload.clone();
                self.hand(*receiver, Pending { payload, transfer: None, settled: true, origin: None });
            }
            let state = match receivers.is_empty() {
                true => DeliveryState::Released(Released {}),
                false => DeliveryState::Accepted(Accepted {}),
            };
            self.settle(origin, state);
            return;
        }
        let Some(receiver) = self.least_loaded(place, &receivers) else {
            self.settle(origin, DeliveryState::Released(Released {}));
            return;
        };
        self.hand(receiver, Pending { payload, transfer: None, settled: origin.is_none(), origin });
    }

    /// Of those with the least to do, each in turn.
    fn least_loaded(&mut self, place: &Place, receivers: &[LinkId]) -> Option<LinkId> {
        let load = |id: &LinkId| self.links.get(id).map_or(usize::MAX, |link| link.onward.len() + link.unsettled);
        let least = receivers.iter().map(load).min()?;
        let turn = self.spots.get(place).map_or(0, |spot| spot.turn) % receivers.len();
        let order = (0..receivers.len()).map(|step| (turn + step) % receivers.len());
        let chosen = order.into_iter().find(|position| load(&receivers[*position]) == least)?;
        if let Some(spot) = self.spots.get_mut(place) {
            spot.turn = chosen + 1;
        }
        Some(receivers[chosen])
    }

    fn hand(&mut self, receiver: LinkId, pending: Pending) {
        if let Some(link) = self.links.get_mut(&receiver) {
            link.onward.push_back(pending);
            self.pump(receiver);
        }
    }

    /// Sends a message for which there is credit.
    pub(super) fn send(&mut self, id: LinkId, pending: Pending) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (session, handle, settled) = (link.session, link.handle, pending.settled || link.settles);
        link.unsettled += usize::from(!settled);
        let delivery = self.next_delivery(session);
        let like = pending.transfer.map(|transfer| *transfer);
        let tag = like.as_ref().and_then(|transfer| transfer.delivery_tag.clone());
        let transfer = Transfer {
            handle: Handle(handle),
            delivery_id: Some(delivery),
            delivery_tag: Some(tag.unwrap_or_else(|| delivery.to_be_bytes().to_vec().into())),
            message_format: like.as_ref().and_then(|transfer| transfer.message_format).or(Some(0)),
            settled: Some(settled),
            more: false,
            rcv_settle_mode: like.as_ref().and_then(|transfer| transfer.rcv_settle_mode.clone()),
            state: like.and_then(|transfer| transfer.state),
            resume: false,
            aborted: false,
            batchable: false,
        };
        if !settled && let Some(session) = self.session(session) {
            session.sent.insert(delivery, Sent { link: id, origin: pending.origin });
        }
        self.send_transfer(session, transfer, pending.payload);
        if settled && pending.origin.is_some() {
            self.settle(pending.origin, DeliveryState::Accepted(Accepted {}));
        }
    }

    /// Passes a message through to the other half of a routed link: the credit there is the credit here.
    fn pass(&mut self, other: LinkId, transfer: Transfer, payload: Bytes, origin: Option<Origin>) {
        let Some(link) = self.links.get_mut(&other) else {
            self.settle(origin, DeliveryState::Released(Released {}));
            return;
        };
        link.delivery_count = link.delivery_count.wrapping_add(1);
        let session = link.session;
        let settled = origin.is_none();
        if let Some(origin) = origin {
            // The number that the delivery is about to get.
            let delivery = self.session(session).map_or(0, |session| session.upcoming_delivery());
            let taken = self.session(origin.session).and_then(|session| session.taken.get_mut(&origin.delivery));
            if let Some(taken) = taken {
                taken.onward = Some((session, delivery));
            }
        }
        self.send(other, Pending { payload, transfer: Some(Box::new(transfer)), settled, origin });
    }

    /// Tells a sender what became of its message.
    pub(super) fn settle(&mut self, origin: Option<Origin>, state: DeliveryState) {
        let Some(origin) = origin else { return };
        let taken = self.session(origin.session).and_then(|session| session.taken.remove(&origin.delivery));
        // The sender may be gone.
        let Some(taken) = taken else { return };
        self.dispose(origin.session, Role::Receiver, origin.delivery, true, Some(state));
        self.replace_credit(taken.link);
    }

    fn dispose(&self, session: SessionId, role: Role, first: u32, settled: bool, state: Option<DeliveryState>) {
        let disposition = Disposition { role, first, last: None, settled, state, batchable: false };
        self.write(session.0, session.1, &Performative::Disposition(disposition), &[]);
    }

    pub(super) fn disposed(&mut self, session: SessionId, disposition: &Disposition) {
        let range = disposition.first..=disposition.last.unwrap_or(disposition.first);
        match disposition.role {
            Role::Receiver => {
                let deliveries: Vec<u32> = self
                    .session(session)
                    .map(|session| session.sent.range(range).map(|(delivery, _)| *delivery).collect())
                    .unwrap_or_default();
                for delivery in deliveries {
                    self.outcome(session, delivery, disposition);
                }
            }
            Role::Sender => {
                let Some(found) = self.session(session) else { return };
                let onward: Vec<_> = found.taken.range(range.clone()).filter_map(|(_, taken)| taken.onward).collect();
                if disposition.settled {
                    found.taken.retain(|delivery, _| !range.contains(delivery));
                }
                for (session, delivery) in onward {
                    self.dispose(session, Role::Sender, delivery, disposition.settled, disposition.state.clone());
                    if disposition.settled
                        && let Some(session) = self.session(session)
                    {
                        session.sent.remove(&delivery);
                    }
                }
            }
        }
    }

    /// What a receiver says about a message that we sent.
    fn outcome(&mut self, session: SessionId, delivery: u32, disposition: &Disposition) {
        let sent = self.session(session).and_then(|session| session.sent.get(&delivery));
        let Some(Sent { link, origin }) = sent else { return };
        let (link, origin) = (*link, *origin);
        let routed = self.links.get(&link).is_some_and(|link| matches!(link.kind, Kind::Routed(_)));
        let last = disposition.settled
            || (!routed
                && disposition.state.as_ref().is_some_and(|state| !matches!(state, DeliveryState::Received(_))));
        if last {
            if let Some(session) = self.session(session) {
                session.sent.remove(&delivery);
            }
            if let Some(link) = self.links.get_mut(&link) {
                link.unsettled = link.unsettled.saturating_sub(1);
            }
        }
        if routed {
            let Some(origin) = origin else { return };
            let state = disposition.state.clone();
            self.dispose(origin.session, Role::Receiver, origin.delivery, disposition.settled, state);
            if disposition.settled
                && let Some(session) = self.session(origin.session)
            {
                session.taken.remove(&origin.delivery);
            }
        } else if last {
            if !disposition.settled {
                self.dispose(session, Role::Sender, delivery, true, disposition.state.clone());
            }
            let state = disposition.state.clone();
            self.settle(origin, state.unwrap_or(DeliveryState::Released(Released {})));
        }
    }
}
