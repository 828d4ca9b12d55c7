//! Auto-links: attached whenever their connection is there, and again when the other side refuses or ends them.

use std::time::Duration;

use fe2o3_amqp::types::definitions::{Handle, ReceiverSettleMode, Role, SenderSettleMode};
use fe2o3_amqp::types::messaging::{Source, Target, TargetArchetype};
use fe2o3_amqp::types::performatives::Attach;

use super::links::{Kind, source_address, target_address};
use super::route::AUTO_LINKS;
use super::{ConnectionId, Due, LinkId, Plane};
use crate::router_core::{Bound, Direction, Event, OperStatus};

/// Until a failed auto-link is attached again, the first time in its life…
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// …and ever after.
const RETRY: Duration = Duration::from_secs(5);

/// An auto-link at work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    link: Option<LinkId>,
    /// It has failed before.
    failed: bool,
    /// It is about to be tried again.
    retrying: bool,
}

impl Plane {
    /// A route container's connection is open.
    pub(super) fn container_opened(&mut self, id: ConnectionId, connector: &str, container: &str) {
        self.begin((id, AUTO_LINKS));
        for bound in [Bound::Connection(connector.to_owned()), Bound::Container(container.to_owned())] {
            for identity in self.core.container_up(&bound) {
                self.attach_auto_link(identity, id);
            }
        }
    }

    /// Carries out what management decided; what is not ours to do comes back.
    pub(in super::super) fn apply_events(&mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        for event in self.core.take_events() {
            match event {
                Event::AutoLinkMade(identity) => {
                    let bound = self.core.auto_link(identity).map(|link| link.bound.clone());
                    for connection in bound.map(|bound| self.connections_of(&bound)).unwrap_or_default() {
                        self.attach_auto_link(identity, connection);
                    }
                }
                Event::AutoLinkGone(identity) => {
                    let link = self.auto_links.remove(&identity).and_then(|progress| progress.link);
                    if let Some(link) = link {
                        self.detach(link, true, None);
                        self.let_go(link);
                    }
                }
                Event::LinkRouteMade(_) | Event::LinkRouteGone(_) => {}
                other => rest.push(other),
            }
        }
        rest
    }

    /// The link stays until the other side has detached, and is at no place any more.
    fn let_go(&mut self, link: LinkId) {
        let Some(found) = self.links.get_mut(&link) else { return };
        found.kind = Kind::Nothing;
        let place = found.place.take();
        let waiting: Vec<_> = found.onward.drain(..).collect();
        if let Some(spot) = place.and_then(|place| self.spots.get_mut(&place)) {
            spot.receivers.retain(|other| *other != link);
            spot.senders.retain(|other| *other != link);
        }
        for pending in waiting {
            let released = fe2o3_amqp::types::messaging::Released {};
            self.settle(pending.origin, fe2o3_amqp::types::messaging::DeliveryState::Released(released));
        }
    }

    fn attach_auto_link(&mut self, identity: u64, connection: ConnectionId) {
        let Some(configured) = self.core.auto_link(identity) else { return };
        let address = configured.external.clone().unwrap_or_else(|| configured.address.clone());
        let gives = configured.direction == Direction::Out;
        let id = self.add_link((connection, AUTO_LINKS), &format!("auto-{identity}-{}", self.next), gives);
        if let Some(link) = self.links.get_mut(&id) {
            link.kind = Kind::Auto(identity);
        }
        self.auto_links.entry(identity).or_default().link = Some(id);
        self.core.set_auto_link(identity, OperStatus::Attaching, None);
        let (source, target) = match gives {
            true => (Source::default(), Target { address: Some(address), ..Target::default() }),
            false => (Source { address: Some(address), ..Source::default() }, Target::default()),
        };
        let attach = Attach {
            name: String::new(),
            handle: Handle(0),
            role: Role::Sender,
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: Some(Box::new(source)),
            target: Some(Box::new(TargetArchetype::Target(target))),
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: gives.then_some(0),
            max_message_size: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        self.ask(id, attach);
    }

    /// The broker answered. An answer without what was asked for is a refusal whose reason follows.
    pub(super) fn auto_link_answered(&mut self, id: LinkId, identity: u64, attach: &Attach) {
        let gives = self.links.get(&id).is_some_and(|link| link.gives);
        let there = if gives { target_address(attach) } else { source_address(attach) };
        if there.is_some() {
            self.core.set_auto_link(identity, OperStatus::Active, None);
            self.take_place(id, Kind::Auto(identity));
            self.grant(id);
        }
    }

    /// The broker ended it.
    pub(super) fn auto_link_failed(&mut self, identity: u64, link: LinkId, words: Option<&str>) {
        let Some(progress) = self.auto_links.get_mut(&identity) else { return };
        if progress.link != Some(link) {
            return;
        }
        let after = if progress.failed { RETRY } else { FIRST_RETRY };
        (progress.link, progress.failed, progress.retrying) = (None, true, true);
        self.core.set_auto_link(identity, OperStatus::Failed, words);
        self.later(after, Due::AutoLink(identity));
    }

    pub(super) fn attach_auto_link_again(&mut self, identity: u64) {
        let Some(progress) = self.auto_links.get_mut(&identity).filter(|progress| progress.retrying) else { return };
        progress.retrying = false;
        let Some(bound) = self.core.auto_link(identity).map(|link| link.bound.clone()) else { return };
        for connection in self.connections_of(&bound) {
            self.attach_auto_link(identity, connection);
        }
    }

    /// Its connection is gone.
    pub(super) fn forget_auto_link(&mut self, identity: u64) {
        if let Some(progress) = self.auto_links.get_mut(&identity) {
            (progress.link, progress.retrying) = (None, false);
        }
    }
}
