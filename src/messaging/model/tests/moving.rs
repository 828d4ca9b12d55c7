//! Queues that move between brokers.

use std::sync::Arc;

use super::world::{World, key};
use crate::messaging::input::{AddressType, Redelivery, Ttl};
use crate::messaging::plans::AddressPlan;
use crate::messaging::router::{AutoLink, Direction, Entry};
use crate::messaging::status::Leaving;

use AddressType::{Queue, Topic};
use Direction::{In, Out};

/// A standard space on brokers b and c, with plans `one` and `two` that put a queue on so many of them.
fn world(brokers: &[&str]) -> World {
    let mut w = World::routed(brokers, &["r1"]);
    let plan = |name: &str, partitions| AddressPlan {
        name: name.into(),
        types: vec![Queue, Topic],
        router: 0,
        broker: 100,
        partitions,
        ttl: Ttl::default(),
        redelivery: Redelivery::default(),
    };
    w.change_config(|c| c.address_plans = vec![plan("one", 1), plan("two", 2)]);
    w.run();
    w
}

impl World {
    /// Where the routers lead to.
    fn links(&self, name: &str) -> Vec<(String, Direction)> {
        let held = self.held("r1");
        let Some(Entry::Address { links, .. }) = held.get(&self.slot(name)).map(|entry| (**entry).clone()) else {
            return Vec::new();
        };
        links.iter().map(|AutoLink { direction, broker, .. }| (broker.to_string(), *direction)).collect()
    }

    fn told_leaving(&self, name: &str) -> Vec<(Arc<str>, Leaving)> {
        self.addresses[&key(name)].status.leaving.clone()
    }

    fn has_queue(&mut self, broker: &str, name: &str) -> bool {
        let slot = self.slot(name);
        self.broker(broker).queues.contains_key(&slot)
    }

    fn messages(&mut self, broker: &str, name: &str, messages: u64) {
        let slot = self.slot(name);
        if let Some(queue) = self.broker(broker).queues.get_mut(&slot) {
            queue.messages = messages;
        }
    }

    fn drain(&mut self, broker: usize, drain: bool) {
        self.change_config(|c| c.brokers[broker].drain = drain);
        self.run();
    }
}

fn both_ways(broker: &str) -> Vec<(String, Direction)> {
    vec![(broker.into(), In), (broker.into(), Out)]
}

#[test]
fn a_queue_of_two_partitions_is_on_two_brokers() {
    let mut w = world(&["b", "c", "d"]);
    w.queue_of("q", "two");
    w.queue_of("single", "one");
    w.run();
    assert_eq!(w.ready("q"), Some((true, "Configured")));
    assert_eq!(w.links("q"), [both_ways("b"), both_ways("c")].concat());
    assert_eq!(w.links("single"), both_ways("d"), "the others have half a queue each");
    assert_eq!((w.writes("q"), w.writes("single")), (1, 1));
}

#[test]
fn a_partition_that_is_given_up_drains_first() {
    let mut w = world(&["b", "c"]);
    w.queue_of("q", "two");
    w.run();
    w.messages("b", "q", 3);
    w.messages("c", "q", 2);
    w.change("q", |a| a.plan = Some("one".into()));
    w.advance(20_000);
    assert_eq!(w.ready("q"), Some((true, "Configured")));
    assert_eq!(w.told_leaving("q"), [("c".into(), Leaving::Draining)]);
    assert_eq!(w.links("q"), [both_ways("b"), vec![("c".into(), In)]].concat(), "nothing comes in any more");
    assert!(w.has_queue("c", "q"), "it holds messages");
    w.restart();
    w.advance(20_000);
    assert!(w.has_queue("c", "q"));
    assert_eq!(w.links("q"), [both_ways("b"), vec![("c".into(), In)]].concat());
    w.messages("c", "q", 0);
    w.advance(20_000);
    assert!(!w.has_queue("c", "q"));
    assert_eq!(w.links("q"), both_ways("b"));
    assert_eq!(w.told_leaving("q"), []);
    assert_eq!(w.broker("c").destroyed, [] as [Arc<str>; 0]);
}

#[test]
fn a_queue_leaves_a_broker_that_is_to_be_drained_when_another_is_in_use() {
    let mut w = world(&["b", "c"]);
    w.queue_of("q", "one");
    w.address_with("news", Topic, |a| a.plan = Some("one".into()));
    w.run();
    let topic = w.links("news");
    w.messages("b", "q", 3);
    // The other one answers late: until it does, the first one is used as before.
    w.broker("c").slow = true;
    w.drain(0, true);
    assert_eq!(w.links("q"), both_ways("b"));
    w.broker("c").slow = false;
    w.router("r1").slow = true;
    w.run();
    assert_eq!(w.links("q"), both_ways("b"));
    w.router("r1").slow = false;
    w.run();
    assert_eq!(w.links("q"), [vec![("b".into(), In)], both_ways("c")].concat());
    let order: Vec<_> = w.router("r1").log.iter().filter(|(slot, _)| slot.ends_with("/q")).collect();
    assert_eq!(order.len(), 3, "both are led to before the first is closed: {order:?}");
    w.queue_of("later", "one");
    w.advance(5_000);
    assert_eq!(w.links("later"), both_ways("c"), "nothing new comes to it");
    assert!(w.has_queue("b", "q"));
    w.messages("b", "q", 0);
    w.advance(10_000);
    assert!(!w.has_queue("b", "q"));
    assert_eq!(w.links("q"), both_ways("c"));
    assert_eq!(w.links("news"), topic, "topics stay");
    // Once it takes queues again, nothing moves back.
    w.drain(0, false);
    w.advance(5_000);
    assert_eq!(w.links("q"), both_ways("c"));
}

#[test]
fn an_address_is_said_to_be_ready_on_another_broker_once_routers_lead_there() {
    for restarted in [true, false] {
        let mut w = world(&["b", "c"]);
        w.address_with("news", Topic, |a| a.plan = Some("one".into()));
        w.run();
        let told = |w: &World| w.addresses[&key("news")].status.brokers.clone();
        assert_eq!(told(&w), ["b".into()] as [Arc<str>; 1]);
        w.router("r1").slow = true;
        w.change_config(|c| c.brokers.retain(|broker| *broker.name == *"c"));
        if restarted {
            // What nobody saw.
            w.restart();
        }
        w.advance(5_000);
        let ready = w.ready("news").is_some_and(|(ready, _)| ready);
        assert!(told(&w) == ["b".into()] || !ready, "restarted: {restarted}");
        w.router("r1").slow = false;
        w.advance(1_000);
        assert_eq!(told(&w), ["c".into()] as [Arc<str>; 1], "restarted: {restarted}");
        assert_eq!(w.ready("news"), Some((true, "Configured")));
    }
}

#[test]
fn a_move_that_is_not_wanted_any_more_goes_back_to_where_the_messages_are() {
    let mut w = world(&["b", "c", "d"]);
    w.queue_of("q", "two");
    w.run();
    w.messages("c", "q", 9);
    w.change("q", |a| a.plan = Some("one".into()));
    w.advance(10_000);
    assert_eq!(w.told_leaving("q"), [("c".into(), Leaving::Draining)]);
    w.change("q", |a| a.plan = Some("two".into()));
    w.advance(10_000);
    assert_eq!(w.links("q"), [both_ways("b"), both_ways("c")].concat());
    assert_eq!(w.told_leaving("q"), []);
    assert!(!w.has_queue("d", "q"));
}

#[test]
fn a_broker_that_drains_keeps_what_nobody_else_takes_until_somebody_does() {
    let mut w = world(&["b", "c"]);
    w.queue_of("q", "two");
    w.run();
    w.broker_down("c", false);
    w.advance(10_000);
    w.drain(0, true);
    w.advance(5_000);
    assert_eq!(w.told_leaving("q"), [("b".into(), Leaving::Migrating)], "the other one is not there now");
    w.broker_up("c");
    w.advance(20_000);
    assert!(!w.has_queue("b", "q"));
    assert_eq!(w.links("q"), both_ways("c"));
    w.drain(0, false);
    w.advance(5_000);
    assert_eq!(w.links("q"), [both_ways("b"), both_ways("c")].concat(), "two are asked for");
}

#[test]
fn a_queue_without_a_place_to_go_stays() {
    let mut w = world(&["b"]);
    w.queue_of("q", "two");
    w.run();
    w.drain(0, true);
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((true, "Configured")));
    assert_eq!(w.links("q"), both_ways("b"));
}

#[test]
fn what_no_broker_takes_follows_when_one_does() {
    let mut w = world(&["b", "c"]);
    w.drain(0, true);
    w.drain(1, true);
    w.queue_of("q", "one");
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((false, "WaitingForBroker")));
    w.drain(1, false);
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((true, "Configured")));
    assert_eq!(w.links("q"), both_ways("c"));
}

#[test]
fn a_queue_that_moves_and_is_deleted_goes_from_everywhere() {
    let mut w = world(&["b", "c"]);
    w.queue_of("q", "two");
    w.run();
    w.messages("c", "q", 1);
    w.change("q", |a| a.plan = Some("one".into()));
    w.advance(5_000);
    w.restart();
    w.delete("q");
    w.advance(10_000);
    assert!(!w.addresses.contains_key(&key("q")));
    assert!(!w.has_queue("b", "q") && !w.has_queue("c", "q"));
    assert_eq!(w.links("q"), []);
}

#[test]
fn a_broker_that_never_got_a_queue_is_not_left_but_forgotten() {
    let mut w = world(&["b", "c"]);
    w.broker("b").slow = true;
    w.address_with("q", Queue, |a| a.plan = Some("one".into()));
    w.run();
    assert!(!w.has_queue("b", "q"));
    w.drain(0, true);
    assert_eq!(w.ready("q"), Some((true, crate::messaging::reason::CONFIGURED)));
    assert_eq!(w.addresses[&key("q")].status.brokers, ["c".into()]);
    assert_eq!(w.told_leaving("q"), []);
    assert_eq!(w.links("q"), [("c".to_owned(), In), ("c".to_owned(), Out)]);
    w.broker("b").slow = false;
    w.advance(60_000);
    assert!(!w.has_queue("b", "q") && w.has_queue("c", "q"));
}
