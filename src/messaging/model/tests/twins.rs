//! One broker under two names: in one RouterConfig, and in two of the same owner.

use super::world::{NS, World, key};
use crate::messaging::ids::{Slot, TargetId};
use crate::messaging::input::AddressType::*;
use crate::messaging::reason;
use crate::messaging::status::TargetState;

fn at(config: &str, broker: &str) -> TargetId {
    TargetId::broker(key(config), broker.into())
}

impl World {
    /// What two names lead to is one broker: the second holds what the first does.
    fn same_broker(&mut self, first: &TargetId, second: &TargetId) {
        let held = self.brokers[first].clone();
        let other = self.brokers.get_mut(second).unwrap();
        other.queues.extend(held.queues);
        other.addresses.extend(held.addresses);
        other.settings.extend(held.settings);
        let all = other.clone();
        let first = self.brokers.get_mut(first).unwrap();
        (first.queues, first.addresses, first.settings) = (all.queues, all.addresses, all.settings);
        first.node = Some("one".into());
        self.brokers.get_mut(second).unwrap().node = Some("one".into());
    }

    fn told(&self, config: &str) -> (Option<(bool, &'static str)>, String) {
        let ready = self.configs[&key(config)].status.ready.as_ref();
        (ready.map(|c| (c.status, c.reason)), ready.map(|c| c.message.to_string()).unwrap_or_default())
    }

    fn states(&self, config: &str) -> Vec<TargetState> {
        self.configs[&key(config)].status.brokers.iter().map(|row| row.state).collect()
    }

    fn nothing_was_destroyed(&self) {
        for (id, broker) in &self.brokers {
            let gone = broker.log.iter().filter(|(_, word)| word.starts_with("gone"));
            assert_eq!(gone.count(), 0, "{id:?}: {:?}", broker.log);
        }
        assert!(self.configs.values().all(|config| config.status.orphans == 0), "counted as orphans");
        assert!(!self.events.iter().any(|event| event.reason == "OrphanedQueue"), "{:?}", self.events);
    }
}

/// Two RouterConfigs of one owner with a space and a queue each, on two brokers.
fn two(single: bool) -> World {
    let mut w = World::bare();
    w.config("rc", &["b"]);
    w.config("rc2", &["b"]);
    for name in ["rc", "rc2"] {
        let mut config = w.configs[&key(name)].clone();
        config.single = single;
        w.configs.insert(key(name), config.clone());
        w.input(crate::messaging::input::Input::RouterConfig(Box::new(config)));
    }
    w.space("s");
    w.space("s2");
    w.change_space("s2", |s| s.config = key("rc2"));
    w.run();
    for name in ["empty", "full"] {
        w.address_with(&format!("{name}-1"), Queue, |a| a.address = name.into());
        w.address_with(&format!("{name}-2"), Queue, |a| (a.address, a.space) = (name.into(), "s2".into()));
    }
    w.advance(5_000);
    assert!(["empty-1", "empty-2", "full-1", "full-2"].iter().all(|name| w.ready(name).is_some_and(|(is, _)| is)));
    for broker in w.brokers.values_mut() {
        for (slot, queue) in &mut broker.queues {
            queue.messages = if slot.ends_with("full") { 3 } else { 0 };
        }
        broker.log.clear();
    }
    w
}

#[test]
fn of_two_names_for_one_broker_the_first_is_driven_and_nothing_is_taken_for_left_over() {
    let mut w = World::bare();
    w.config("rc", &["z", "b"]);
    w.space("s");
    w.run();
    for name in ["empty", "full"] {
        w.address(name, Queue);
    }
    w.advance(5_000);
    let home = w.spaces[&key("s")].status.broker.clone().unwrap();
    let (z, b) = (at("rc", "z"), at("rc", "b"));
    w.same_broker(&at("rc", &home), if *home == *"z" { &b } else { &z });
    for broker in w.brokers.values_mut() {
        let slot: Slot = format!("{NS}.s/full").into();
        broker.queues.get_mut(&slot).unwrap().messages = 3;
        broker.log.clear();
    }
    // The one that is asked first does not know that there is another.
    for first in ["z", "b"] {
        let second = if first == "z" { "b" } else { "z" };
        w.broker_down(second, false);
        w.restart();
        w.advance(1_300_000);
        w.nothing_was_destroyed();
        w.broker_up(second);
        w.advance(1_300_000);
        w.nothing_was_destroyed();
        let (ready, message) = w.told("rc");
        assert_eq!(ready, Some((false, reason::SAME_BROKER)), "{message}");
        assert!(message.contains("broker b: it is the same broker as z") && message.contains("spec.messaging.brokers"));
        assert_eq!(w.states("rc"), [TargetState::Unreachable, TargetState::Serving], "b, then z: as the spec has them");
    }
    w.change_config(|c| c.brokers.retain(|broker| *broker.name == *"z"));
    w.advance(5_000);
    assert_eq!(w.told("rc").0, Some((true, reason::SERVING)));
}

#[test]
fn of_two_router_configs_of_one_owner_on_one_broker_the_older_is_driven() {
    let mut w = two(false);
    w.same_broker(&at("rc", "b"), &at("rc2", "b"));
    w.restart();
    w.advance(1_300_000);
    w.nothing_was_destroyed();
    assert_eq!(w.told("rc").0, Some((true, reason::SERVING)));
    let (ready, message) = w.told("rc2");
    assert_eq!(ready, Some((false, reason::SAME_BROKER)));
    assert!(message.contains("RouterConfig tenant/rc,") && message.contains("messaging.owner"), "{message}");
    // What was Ready has what it had.
    assert!(["empty-1", "empty-2", "full-1", "full-2"].iter().all(|name| w.ready(name).is_some_and(|(is, _)| is)));
    // It is somewhere else from now on.
    w.brokers.get_mut(&at("rc", "b")).unwrap().node = Some("another".into());
    w.broker_down("b", false);
    w.broker_up("b");
    w.advance(5_000);
    assert_eq!((w.told("rc").0, w.told("rc2").0), (Some((true, reason::SERVING)), Some((true, reason::SERVING))));
}

#[test]
fn two_owners_share_a_broker() {
    let mut w = two(false);
    w.configs.get_mut(&key("rc2")).unwrap().owner = "other".into();
    for id in [at("rc", "b"), at("rc2", "b")] {
        w.brokers.get_mut(&id).unwrap().node = Some("one".into());
    }
    w.restart();
    w.advance(60_000);
    assert_eq!((w.told("rc").0, w.told("rc2").0), (Some((true, reason::SERVING)), Some((true, reason::SERVING))));
}

#[test]
fn a_deletion_takes_nothing_that_another_router_config_of_the_owner_may_have_there() {
    let mut w = two(true);
    w.same_broker(&at("rc", "b"), &at("rc2", "b"));
    // The second is asked first, and has a deletion to carry out.
    w.broker_down("b", false);
    w.delete("full-2");
    w.restart();
    w.advance(5_000);
    w.nothing_was_destroyed();
    assert!(!w.addresses.contains_key(&key("full-2")), "it is let go of");
    w.broker_up("b");
    w.advance(5_000);
    w.nothing_was_destroyed();
    assert_eq!(w.brokers[&at("rc", "b")].queues["full"].messages, 3);
}

#[test]
fn a_deletion_goes_on_where_the_brokers_are_known_to_be_two() {
    let mut w = two(true);
    w.delete("full-2");
    w.advance(5_000);
    assert!(!w.brokers[&at("rc2", "b")].queues.contains_key("full"));
    assert_eq!(w.brokers[&at("rc", "b")].queues["full"].messages, 3);
}
