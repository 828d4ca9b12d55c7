//! Standard spaces: what routers hold, when an Address is Ready there, and what an outage costs.

use super::world::{World, key};
use crate::messaging::input::AddressType::*;
use crate::messaging::reason;
use crate::messaging::router::*;
use crate::messaging::status::TargetState;

pub(super) fn routed() -> World {
    World::routed(&["b"], &["r1", "r2"])
}

#[test]
fn every_type_becomes_ready_with_one_write() {
    let mut w = routed();
    w.address("any", Anycast);
    w.address("multi", Multicast);
    w.address("q", Queue);
    w.address("t", Topic);
    w.address("dead", DeadLetter);
    w.address_with("sub", Subscription, |a| a.topic = Some("t".into()));
    w.run();
    for name in ["any", "multi", "q", "t", "dead", "sub"] {
        assert_eq!(w.ready(name), Some((true, reason::CONFIGURED)), "{name}: {}", w.message(name));
        assert_eq!(w.writes(name), 1, "{name}");
    }
    let held = w.router("r1").held.clone();
    assert_eq!(held, w.held("r2"));
    assert!(held.contains_key(&connector_slot("b")) && held.contains_key(&readiness_slot()));
    let links = |slot: &str| match &*held[slot] {
        Entry::Address { waypoint, links, .. } => (*waypoint, links.iter().map(|l| l.direction).collect::<Vec<_>>()),
        other => panic!("{other:?}"),
    };
    assert_eq!(links("tenant.s/any"), (false, vec![]));
    assert_eq!(links("tenant.s/q"), (true, vec![Direction::In, Direction::Out]));
    assert_eq!(links("tenant.s/dead"), (true, vec![Direction::In]));
    let route = |both| Entry::LinkRoute { broker: "b".into(), both };
    assert_eq!(*held["tenant.s/t"], route(true));
    assert_eq!(*held["tenant.s/t::tenant.s/sub"], route(false));
}

#[test]
fn a_router_leads_to_a_queue_only_once_it_is_there() {
    let mut w = routed();
    w.broker("b").slow = true;
    w.address("q", Queue);
    w.advance(500);
    let slot = w.slot("q");
    assert!(!w.router("r1").held.contains_key(&slot));
    w.broker("b").slow = false;
    w.run();
    assert!(w.router("r1").held.contains_key(&slot));
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
}

#[test]
fn routers_go_before_brokers_on_removal() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.router("r2").slow = true;
    w.delete("q");
    w.run();
    assert!(!w.router("r1").held.contains_key(&slot));
    assert!(w.queue("q").is_some(), "a router still leads there");
    w.router("r2").slow = false;
    w.run();
    assert_eq!(w.queue("q"), None);
    assert!(!w.addresses.contains_key(&key("q")));
}

#[test]
fn a_router_that_restarts_costs_addresses_no_write() {
    let mut w = routed();
    for i in 0..50 {
        w.address(&format!("q{i}"), if i % 2 == 0 { Queue } else { Anycast });
    }
    w.run();
    w.advance(3_000);
    let before = w.status_writes.clone();
    w.router_down("r1");
    w.advance(10_000);
    w.router("r1").slow = true;
    w.router_up("r1");
    w.advance(1_000);
    let rows = w.configs[&key("rc")].status.routers.clone();
    assert_eq!(rows[0].state, TargetState::Filling, "{rows:?}");
    assert!(!w.router("r1").serving(), "its listener comes last");
    w.router("r1").slow = false;
    w.advance(1_000);
    assert!(w.router("r1").serving());
    let last = w.router("r1").log.last().unwrap().0.clone();
    assert_eq!(last, readiness_slot());
    assert_eq!(w.held("r1"), w.held("r2"));
    for i in 0..50 {
        let name = format!("q{i}");
        assert_eq!(w.writes(&name), before[&name], "{name}");
    }
    assert_eq!(w.writes("s"), before["s"], "the space never left Ready");
    assert_eq!(w.configs[&key("rc")].status.routers[0].state, TargetState::Serving);
}

#[test]
fn with_one_router_only_the_space_and_the_router_config_tell_of_it() {
    let mut w = World::routed(&["b"], &["r"]);
    w.address("a", Anycast);
    w.run();
    w.advance(3_000);
    let before = w.writes("a");
    w.router_down("r");
    w.advance(10_000);
    let ready = w.spaces[&key("s")].status.ready.clone().unwrap();
    assert_eq!((ready.status, ready.reason), (false, reason::NO_ROUTER_SERVING));
    w.address("late", Anycast);
    w.advance(10_000);
    assert_eq!(w.ready("late"), Some((false, reason::NO_ROUTER_SERVING)));
    assert_eq!(w.writes("late"), 1);
    w.router_up("r");
    w.advance(3_000);
    assert_eq!(w.ready("late"), Some((true, reason::CONFIGURED)));
    assert!(w.spaces[&key("s")].status.ready.clone().unwrap().status);
    assert_eq!(w.writes("a"), before);
}

#[test]
fn a_router_that_does_not_answer_holds_up_nobody_for_long() {
    let mut w = routed();
    w.router("r1").slow = true;
    w.address("a", Anycast);
    w.advance(800);
    assert_eq!(w.ready("a"), None);
    // Its drive's deadline.
    w.router_cut("r1");
    w.run();
    assert_eq!(w.ready("a"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.writes("a"), 1);
}

#[test]
fn one_refused_entity_is_told_to_its_address_alone() {
    let mut w = routed();
    let slot = w.slot("bad");
    w.router("r2").refuses.insert(slot, "Already exists".into());
    for name in ["a", "bad", "c"] {
        w.address(name, Anycast);
    }
    w.advance(2_000);
    assert_eq!(w.ready("bad"), Some((false, reason::ROUTER_REFUSED)));
    assert_eq!(w.message("bad"), "router r2: Already exists");
    assert_eq!((w.ready("a"), w.ready("c")), (Some((true, reason::CONFIGURED)), Some((true, reason::CONFIGURED))));
    w.router("r2").refuses.clear();
    w.advance(60_000);
    assert_eq!(w.ready("bad"), Some((true, reason::CONFIGURED)));
}

#[test]
fn what_a_router_cannot_do_is_said_and_not_sent() {
    let mut w = World::routed(&["b"], &["r"]);
    w.router("r").abilities = Abilities::default();
    w.router_cut("r");
    w.router_up("r");
    w.run();
    w.address("a", Anycast);
    w.address("q", Queue);
    w.address("t", Topic);
    w.advance(2_000);
    assert_eq!(w.ready("a"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.ready("q"), Some((false, reason::NOT_SUPPORTED_BY_ROUTER)));
    assert_eq!(w.ready("t"), Some((false, reason::NOT_SUPPORTED_BY_ROUTER)));
    assert!(w.message("q").contains("waypoint"), "{}", w.message("q"));
}

/// A broker that joined is told of whenever the router has its connection: then, and not with the next other event.
#[test]
fn a_broker_that_joined_is_told_of_once_a_router_reaches_it() {
    let mut w = World::routed(&["b"], &["r"]);
    w.address("dead", DeadLetter);
    w.advance(3_000);
    let on = |w: &World| w.addresses[&key("dead")].status.brokers.iter().map(ToString::to_string).collect::<Vec<_>>();
    w.router("r").cut.insert("c".into());
    w.add_broker("c");
    w.advance(60_000);
    assert_eq!(on(&w), ["b"]);
    let (id, incarnation) = (w.router_id("r"), w.router("r").incarnation);
    w.router("r").cut.clear();
    w.input(crate::messaging::input::Input::Router(id, incarnation, RouterLink::Connector("c".into(), None)));
    w.run();
    assert_eq!(on(&w), ["b", "c"]);
}

/// A broker that left while nobody ran is named no more, though nothing else has changed.
#[test]
fn a_broker_that_left_while_nobody_ran_is_not_told_of_any_more() {
    let mut w = World::routed(&["b", "c"], &["r"]);
    w.address("dead", DeadLetter);
    w.advance(3_000);
    assert_eq!(w.addresses[&key("dead")].status.brokers.len(), 2);
    w.configs.get_mut(&key("rc")).unwrap().brokers.pop();
    w.restart();
    w.advance(60_000);
    assert_eq!(w.addresses[&key("dead")].status.brokers, ["b".into()]);
    assert_eq!(w.ready("dead"), Some((true, reason::CONFIGURED)));
}

/// A job that waited while its router was away is not carried out once its slot is wanted again.
#[test]
fn a_removal_that_nobody_wants_any_more_is_not_carried_out() {
    let mut w = World::routed(&["b", "c"], &["r"]);
    w.advance(3_000);
    let slot = connector_slot("c");
    assert!(w.router("r").held.contains_key(&slot));
    w.router_cut("r");
    let brokers = w.configs[&key("rc")].brokers.clone();
    w.change_config(|c| drop(c.brokers.pop()));
    w.advance(3_000);
    w.change_config(|c| c.brokers = brokers);
    w.advance(3_000);
    w.router_up("r");
    w.advance(3_000);
    assert!(w.router("r").held.contains_key(&slot));
    assert!(!w.router("r").log.contains(&(slot, "gone")));
}

#[test]
fn drift_is_repaired_at_the_next_look() {
    let mut w = routed();
    for name in ["a", "b", "c"] {
        w.address(name, Anycast);
    }
    w.run();
    let (slot, other) = (w.slot("a"), w.slot("b"));
    let wrong = w.held("r1")[&w.slot("c")].clone();
    w.router("r1").held.remove(&slot);
    let entry = Entry::Address { distribution: Distribution::Multicast, waypoint: false, links: [].into() };
    w.router("r1").held.insert(other.clone(), std::sync::Arc::new(entry));
    w.router("r1").held.insert("tenant.s/stranger".into(), wrong.clone());
    let writes = w.status_writes.clone();
    w.change_config(|c| c.resync = Some("now".into()));
    w.run();
    assert_eq!(w.held("r1"), w.held("r2"));
    assert_eq!(*w.router("r1").held[&other], *wrong);
    let events: Vec<_> = w.events.iter().filter(|e| e.reason == "Repaired").collect();
    assert_eq!(events.len(), 1, "{events:?}");
    for name in ["a", "b", "c"] {
        assert_eq!(w.writes(name), writes[name]);
    }
}

#[test]
fn a_restart_of_the_operator_writes_and_sends_nothing() {
    let mut w = routed();
    for (name, kind) in [("a", Anycast), ("q", Queue), ("t", Topic), ("dead", DeadLetter)] {
        w.address(name, kind);
    }
    w.address_with("sub", Subscription, |a| a.topic = Some("t".into()));
    w.run();
    w.advance(3_000);
    let writes = w.status_writes.clone();
    for router in ["r1", "r2"] {
        w.router(router).log.clear();
    }
    w.restart();
    w.advance(5_000);
    assert_eq!(w.status_writes, writes);
    assert!(w.router("r1").log.is_empty(), "{:?}", w.router("r1").log);
    w.address("new", Anycast);
    w.run();
    assert_eq!(w.ready("new"), Some((true, reason::CONFIGURED)));
}

#[test]
fn when_empty_closes_the_way_in_and_waits_for_the_last_message() {
    let mut w = routed();
    w.address_with("q", Queue, |a| a.when_empty = true);
    w.run();
    w.put_messages("q", 3);
    w.delete("q");
    w.advance(2_000);
    let slot = w.slot("q");
    let drain = |w: &mut World, router: &str| match &*w.router(router).held[&slot] {
        Entry::Address { links, .. } => links.iter().map(|l| l.direction).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(drain(&mut w, "r1"), vec![Direction::In]);
    assert!(w.message("q").contains("last message"), "{}", w.message("q"));
    // Router, broker and operator are restarted meanwhile.
    w.router_down("r1");
    w.router_up("r1");
    w.broker_down("b", false);
    w.broker_up("b");
    w.restart();
    w.advance(5_000);
    assert_eq!(drain(&mut w, "r1"), vec![Direction::In]);
    assert!(w.queue("q").is_some());
    w.put_messages("q", 0);
    w.advance(10_000);
    assert_eq!(w.queue("q"), None);
    assert!(!w.router("r1").held.contains_key(&slot) && !w.router("r2").held.contains_key(&slot));
    assert!(!w.addresses.contains_key(&key("q")));
}

#[test]
fn an_unreachable_router_does_not_hold_a_deletion() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.router_cut("r1");
    w.delete("q");
    w.run();
    assert!(!w.addresses.contains_key(&key("q")));
    assert!(w.router("r1").held.contains_key(&slot));
    w.router_up("r1");
    w.run();
    assert!(!w.router("r1").held.contains_key(&slot), "it is compared when it is back");
}

#[test]
fn queues_are_spread_over_brokers_and_found_where_they_are() {
    let mut w = World::routed(&["b1", "b2"], &["r"]);
    for i in 0..10 {
        w.address(&format!("q{i}"), Queue);
    }
    w.run();
    let count = |w: &mut World, broker: &str| w.broker(broker).queues.len();
    assert_eq!((count(&mut w, "b1"), count(&mut w, "b2")), (5, 5));
    // The statuses are lost, as by a restore; what is found is the placement.
    let before = (w.broker("b1").queues.clone(), w.broker("b2").queues.clone());
    for address in w.addresses.values_mut() {
        address.status = Default::default();
    }
    w.restart();
    w.advance(5_000);
    assert_eq!((w.broker("b1").queues.clone(), w.broker("b2").queues.clone()), before);
    for i in 0..10 {
        assert_eq!(w.ready(&format!("q{i}")), Some((true, reason::CONFIGURED)));
    }
}

#[test]
fn routers_join_and_leave() {
    let mut w = World::routed(&["b"], &["r1"]);
    for i in 0..20 {
        w.address(&format!("a{i}"), Anycast);
    }
    w.run();
    w.advance(3_000);
    let writes = w.status_writes.clone();
    w.set_routers(&["r1", "r2", "r3", "r4", "r5"]);
    w.advance(1_000);
    for router in ["r2", "r3", "r4", "r5"] {
        assert_eq!(w.held(router), w.held("r1"), "{router}");
    }
    w.set_routers(&["r3", "r5"]);
    w.address("late", Anycast);
    w.advance(1_000);
    assert_eq!(w.ready("late"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.held("r3"), w.held("r5"));
    assert!(!w.held("r1").contains_key(&w.slot("late")));
    for i in 0..20 {
        let name = format!("a{i}");
        assert_eq!(w.writes(&name), writes[&name]);
    }
}

#[test]
fn the_losing_twin_goes_after_a_restart_while_a_router_refuses_the_winners_removal() {
    let mut w = World::routed(&["b", "c"], &["r1", "r2"]);
    w.policy = false;
    w.address_with("c", Anycast, |a| a.address = "dead".into());
    w.run();
    let slot = w.slot("dead");
    w.router("r1").refuses.insert(slot, "no".into());
    w.delete("c");
    w.run();
    w.address_with("d", Queue, |a| {
        a.address = "dead".into();
        a.dead_letter = Some("x.y".into());
    });
    w.run();
    w.restart();
    w.run();
    w.delete("d");
    w.run();
    w.router("r1").refuses.clear();
    w.advance(1_300_000);
    assert!(!w.addresses.contains_key(&key("d")), "{:?}", w.addresses[&key("d")].status);
}

#[test]
fn what_a_router_has_though_it_refused_it_once_is_there() {
    let mut w = World::routed(&["b"], &["r1", "r2"]);
    w.address("a", Anycast);
    w.run();
    let slot = w.slot("a");
    w.router("r2").refuses.insert(slot, "no".into());
    w.set_routers(&["r1"]);
    w.run();
    w.set_routers(&["r1", "r2"]);
    w.advance(1_500);
    w.change_config(|c| c.resync = Some("1".into()));
    w.run();
    w.router("r2").refuses.clear();
    w.advance(1_300_000);
    assert_eq!(w.ready("a"), Some((true, reason::CONFIGURED)));
}

#[test]
fn a_router_that_is_slow_to_read_is_read_less_often() {
    let mut w = World::routed(&["b"], &["r"]);
    w.advance(3_000);
    let (id, incarnation) = (w.router_id("r"), w.router("r").incarnation);
    let contents = w.router("r").contents();
    let read = |w: &mut World, took: u64| {
        w.input(crate::messaging::input::Input::Router(id.clone(), incarnation, RouterLink::Reading));
        w.advance(took);
        w.input(crate::messaging::input::Input::Router(
            id.clone(),
            incarnation,
            RouterLink::Contents(contents.clone()),
        ));
        w.run();
        let before = w.rereads;
        w.advance(1_000_000);
        w.rereads - before
    };
    assert_eq!(read(&mut w, 100), 1);
    assert_eq!(read(&mut w, 60_000), 0, "an hour and forty minutes would be a hundredth");
}
