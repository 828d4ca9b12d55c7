//! Routed links: a client's link is the other half of one on a connector's connection.

use fe2o3_amqp::types::definitions::{ErrorCondition, Handle, Role};
use fe2o3_amqp::types::messaging::{Source, TargetArchetype};
use fe2o3_amqp::types::performatives::Attach;

use super::links::{Kind, source_address, target_address};
use super::{ConnectionId, LinkId, Peer, Plane};
use crate::router_core::Bound;

/// Our session for auto-links, on every container's connection.
pub(super) const AUTO_LINKS: u16 = 0;
/// Our session for routed links.
const ROUTED: u16 = 1;

impl Plane {
    /// Connections to route containers that a link is bound to, oldest first.
    pub(super) fn connections_of(&self, bound: &Bound) -> Vec<ConnectionId> {
        let bound_to = |peer: &Peer, container: &str| match (peer, bound) {
            (Peer::Container { connector, route: true, .. }, Bound::Connection(name)) => connector == name,
            (Peer::Container { route: true, .. }, Bound::Container(name)) => container == name,
            _ => false,
        };
        let found = self.connections.iter().filter(|(_, connection)| {
            !connection.container.is_empty() && bound_to(&connection.peer, &connection.container)
        });
        let mut found: Vec<_> = found.map(|(id, _)| *id).collect();
        found.sort_unstable();
        found
    }

    /// Passes a client's attach on to whoever the routes are bound to.
    pub(super) fn route(&mut self, client: LinkId, attach: Attach, address: &str, bounds: Vec<Bound>) {
        let Some(connection) = bounds.iter().flat_map(|bound| self.connections_of(bound)).next() else {
            let condition = ErrorCondition::Custom("qd:no-route-to-dest".into());
            self.refuse(client, &attach, super::error(condition, "No route to the destination node"));
            return;
        };
        let Some(gives) = self.links.get(&client).map(|link| link.gives) else { return };
        self.begin((connection, ROUTED));
        // Names of different clients may be the same.
        let name = format!("{}@{client}", attach.name);
        let other = self.add_link((connection, ROUTED), &name, !gives);
        self.take_place(client, Kind::Routed(other));
        self.take_place(other, Kind::Routed(client));
        let mut onward =
            Attach { name, handle: Handle(0), unsettled: None, incomplete_unsettled: false, ..attach.clone() };
        rename(&mut onward, gives, address);
        self.answer_later(client, attach);
        self.ask(other, onward);
    }
}

/// Puts an address where the attach of the side that receives (`source`) or sends (`target`) has it.
fn rename(attach: &mut Attach, source: bool, address: &str) {
    if source {
        if let Some(source) = &mut attach.source {
            source.address = Some(address.to_owned());
        }
    } else if let Some(TargetArchetype::Target(target)) = attach.target.as_deref_mut() {
        target.address = Some(address.to_owned());
    }
}

/// Source and target of the other side's answer, with the address that the client asked for.
pub(super) fn seen_by_client(asked: &Attach, answer: &Attach) -> (Option<Box<Source>>, Option<Box<TargetArchetype>>) {
    let mut seen = answer.clone();
    let source = asked.role == Role::Receiver;
    let address = if source { source_address(asked) } else { target_address(asked) };
    if let Some(address) = address {
        rename(&mut seen, source, &address);
    }
    (seen.source, seen.target)
}
