//! What our entities are called on a router, and whose an entity is.
//!
//! A name is `<8 hex digits>.waystation-<owner>.<what>.<slot>`. The digits stand first since routers find an entity
//! by comparing its name with each in a list, octet by octet: with a common beginning, 100,000 names cost several
//! times as much. They also tell apart what differs in nothing else that is shown.
//!
//! A name of more than 512 bytes stops a qdrouterd for good, so that a long slot is cut; what is left still has all of
//! its space in it, and a number for the rest: nobody's names are like those of another space.

use std::sync::Arc;

use crate::messaging::router::{Direction, Entity, digest};

const DIGITS: usize = 8;
/// The longest name.
const MOST_BYTES: usize = 480;
/// `~` and the digits of a number, in place of what is cut.
const CUT_BYTES: usize = 17;

/// Names for one owner. Owners have letters, digits and `-` only, so that the mark of one is never another's beginning.
#[derive(Clone, Debug)]
pub struct Names {
    /// What follows the digits.
    mark: String,
}

impl Names {
    /// For what belongs to `owner`.
    pub fn new(owner: &str) -> Self {
        Self { mark: format!(".waystation-{owner}.") }
    }

    /// Whether the owner made what is called so.
    pub fn is_ours(&self, name: &str) -> bool {
        let parts = name.split_at_checked(DIGITS);
        parts.is_some_and(|(digits, rest)| digits.is_ascii() && rest.starts_with(&self.mark))
    }

    /// The name of an entity of a slot. One of another distribution, broker (of a link route) or port keeps the name
    /// of the one that it takes the place of.
    pub fn name(&self, slot: &str, entity: &Entity) -> String {
        match entity {
            Entity::Address { .. } => self.compose("address", slot, ""),
            Entity::AutoLink(link) => {
                let what = match link.direction {
                    Direction::In => "link-in.",
                    Direction::Out => "link-out.",
                };
                let external = link.external.as_deref().unwrap_or_default();
                self.compose(&format!("{what}{}", link.broker), slot, external)
            }
            Entity::LinkRoute { direction: Direction::In, .. } => self.compose("route-in", slot, ""),
            Entity::LinkRoute { direction: Direction::Out, .. } => self.compose("route-out", slot, ""),
            Entity::Via { direction, connection, pattern, strip } => {
                self.compose(&format!("via-{}.{connection}", direction.as_str()), pattern, strip)
            }
            Entity::Connector(connector) => self.connector(&connector.broker),
            Entity::Fence => self.fence(),
            Entity::Readiness { .. } => self.readiness(),
        }
    }

    /// Whether a name has all of its slot in it.
    pub fn is_whole(name: &str) -> bool {
        name.len() < MOST_BYTES - 4
    }

    /// The name of the readiness listener.
    pub fn readiness(&self) -> String {
        self.compose("ready", "", "")
    }

    /// The name of the policy that keeps remote hosts off the router, and of the vhost that it is for.
    pub fn fence(&self) -> String {
        self.compose("fence", "", "")
    }

    /// The name of the connector to a broker or a remote host, which links are bound to.
    pub fn connector(&self, broker: &str) -> String {
        self.compose("connector", broker, "")
    }

    /// The broker or remote host that a connector of ours leads to.
    pub fn broker(&self, connector: &str) -> Option<Arc<str>> {
        if !self.is_ours(connector) {
            return None;
        }
        let broker = connector.get(DIGITS + self.mark.len()..)?.strip_prefix("connector/")?;
        (self.connector(broker) == connector).then(|| broker.into())
    }

    fn compose(&self, what: &str, slot: &str, external: &str) -> String {
        // Brokers and connections to remote hosts have no `/` in their names, so that `what` ends at the first.
        let mut shown = format!("{}{what}/{slot}", self.mark);
        let number = digest(&(&shown, external));
        if shown.len() > MOST_BYTES - DIGITS {
            let rest = digest(&shown);
            let mut end = MOST_BYTES - DIGITS - CUT_BYTES;
            while !shown.is_char_boundary(end) {
                end -= 1;
            }
            shown.truncate(end);
            shown = format!("{shown}~{rest:016x}");
        }
        format!("{:08x}{shown}", (number ^ (number >> 32)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::messaging::router::{AutoLink, Distribution};

    fn link(direction: Direction, broker: &str, external: Option<&str>) -> Entity {
        Entity::AutoLink(AutoLink { direction, broker: broker.into(), external: external.map(Into::into) })
    }

    #[test]
    fn a_name_is_the_same_always_and_begins_with_digits_of_its_own() {
        let names = Names::new("shop");
        let address = Entity::Address { distribution: Distribution::Balanced, waypoint: true };
        let name = names.name("tenant.space/orders", &address);
        assert_eq!(name, "fd465685.waystation-shop.address/tenant.space/orders");
        let other = Entity::Address { distribution: Distribution::Multicast, waypoint: false };
        assert_eq!(names.name("tenant.space/orders", &other), name);
        let digits: BTreeSet<String> =
            (0..1_000).map(|at| names.name(&format!("tenant.space/{at}"), &address)[..8].to_owned()).collect();
        assert!(digits.len() > 990, "{}", digits.len());
    }

    #[test]
    fn all_that_is_different_has_a_name_of_its_own() {
        let names = Names::new("o");
        let route = |direction| Entity::LinkRoute { direction, broker: "b".into() };
        let mut all = BTreeSet::new();
        for slot in ["s/a", "s/b", "b/s/a", ""] {
            for entity in [
                Entity::Address { distribution: Distribution::Balanced, waypoint: true },
                link(Direction::In, "b", None),
                link(Direction::Out, "b", None),
                link(Direction::In, "b.c", None),
                link(Direction::In, "b", Some("x")),
                link(Direction::In, "b", Some("y")),
                route(Direction::In),
                route(Direction::Out),
            ] {
                assert!(all.insert(names.name(slot, &entity)), "{slot} {entity:?}");
            }
        }
    }

    #[test]
    fn a_long_slot_is_cut_behind_its_space_and_keeps_a_name_of_its_own() {
        let (owner, broker) = ("o".repeat(32), "b".repeat(63));
        let names = Names::new(&owner);
        let space = format!("{}.{}/", "n".repeat(63), "s".repeat(253));
        let mut all = BTreeSet::new();
        for unit in ["a", "ü", "\u{1f407}"] {
            for length in 1..=255 {
                let name = names.name(&format!("{space}{}", unit.repeat(length)), &link(Direction::Out, &broker, None));
                assert!(name.len() <= MOST_BYTES && name.contains(&space) && names.is_ours(&name), "{name}");
                assert!(all.insert(name));
            }
        }
    }

    #[test]
    fn the_owner_is_seen_and_never_taken_for_another() {
        let (ours, longer) = (Names::new("a"), Names::new("a-b"));
        let slot = "ü".repeat(200);
        let name = ours.name(&slot, &link(Direction::In, "b", None));
        assert!(ours.is_ours(&name) && name.ends_with(&slot));
        assert!(!longer.is_ours(&name));
        assert!(!ours.is_ours(&longer.name(&slot, &link(Direction::In, "b", None))));
        for foreign in ["", "ready", "waystation-a.x", "ääää.waystation-a.", "a.waystation-a.x"] {
            assert!(!ours.is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_connector_tells_its_broker() {
        let names = Names::new("o");
        assert_eq!(names.broker(&names.connector("broker-0.svc")).as_deref(), Some("broker-0.svc"));
        assert_eq!(Names::new("p").broker(&names.connector("b")), None);
        assert_eq!(names.broker("00000000.waystation-o.connector/b"), None);
    }
}
