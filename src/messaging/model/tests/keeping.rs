//! Standard spaces over restarts: what routers keep of Addresses that are refused now, and what goes with those that go.

use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::AddressType::*;
use crate::messaging::input::{Allowed, Input};
use crate::messaging::router::*;

fn routed() -> World {
    World::routed(&["b"], &["r1", "r2"])
}

/// Operator and routers stop, and start again.
fn restart_all(w: &mut World) {
    w.router_down("r1");
    w.router_down("r2");
    w.restart();
    w.router_up("r1");
    w.router_up("r2");
    w.advance(3_000);
}

fn links(w: &World, slot: &str) -> Vec<String> {
    match w.held("r1").get(slot).map(|entry| (**entry).clone()) {
        Some(Entry::Address { links, .. }) => links.iter().map(|link| link.broker.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_refused_now_is_made_again_on_a_router_that_comes_back_empty() {
    let mut w = routed();
    w.address("dead", DeadLetter);
    w.address_with("q", Queue, |a| a.dead_letter = Some("dead".into()));
    w.run();
    w.change("q", |a| a.dead_letter = Some("missing".into()));
    w.advance(3_000);
    let (slot, before) = (w.slot("q"), w.held("r1"));
    assert!(w.message("q").contains("what was in force before still is"), "{}", w.message("q"));
    restart_all(&mut w);
    assert_eq!(w.held("r1").get(&slot), before.get(&slot));
}

#[test]
fn a_space_that_is_not_allowed_any_more_keeps_what_it_had_over_restarts() {
    let mut w = routed();
    w.address("a", Anycast);
    w.run();
    w.change_config(|c| c.allowed = Allowed::Selector(vec![]));
    w.advance(3_000);
    let before = w.held("r1");
    restart_all(&mut w);
    restart_all(&mut w);
    assert_eq!(w.held("r1"), before);
}

#[test]
fn what_routers_have_from_before_a_restart_goes_with_its_address() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.broker("b").slow = true;
    w.delete("q");
    w.restart();
    // The routers are read and compared while the Address is still there.
    w.advance(1_000);
    w.broker("b").slow = false;
    w.advance(3_000);
    assert!(!w.addresses.contains_key(&key("q")));
    for router in ["r1", "r2"] {
        assert!(!w.router(router).held.contains_key(&slot), "{router}");
    }
}

#[test]
fn a_router_that_comes_back_before_the_broker_answers_is_cleared_as_well() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.router_cut("r2");
    w.broker("b").slow = true;
    w.delete("q");
    w.advance(1_000);
    w.router_up("r2");
    w.advance(1_000);
    assert!(!w.router("r2").held.contains_key(&slot));
    w.broker("b").slow = false;
    w.advance(1_000);
    assert!(!w.addresses.contains_key(&key("q")));
}

#[test]
fn a_dead_letter_comes_to_a_broker_that_joins_and_routers_follow() {
    let mut w = routed();
    w.address("dead", DeadLetter);
    w.run();
    let slot = w.slot("dead");
    w.add_broker("c");
    w.broker("c").slow = true;
    w.advance(500);
    assert_eq!(links(&w, &slot), ["b"], "there is nothing on the new one yet");
    w.broker("c").slow = false;
    w.advance(3_000);
    assert_eq!(links(&w, &slot), ["b", "c"]);
    let brokers: Vec<&str> = w.addresses[&key("dead")].status.brokers.iter().map(|name| &**name).collect();
    assert_eq!(brokers, ["b", "c"]);
}

#[test]
fn without_prefixes_an_address_of_a_space_that_is_not_taken_takes_nothing_with_it() {
    let mut w = World::bare();
    w.standard = true;
    w.config("rc", &["b"]);
    w.change_config(|c| c.single = true);
    w.set_routers(&["r1", "r2"]);
    w.space("s");
    w.run();
    w.space("twin");
    for name in ["q", "dead"] {
        let kind = if name == "q" { Queue } else { DeadLetter };
        w.address(name, kind);
        w.address_with(&format!("{name}-twin"), kind, |a| (a.space, a.address) = ("twin".into(), name.into()));
    }
    w.advance(3_000);
    let (before, queues) = (w.held("r1"), w.broker("b").queues.clone());
    w.router("r1").log.clear();
    w.delete("q-twin");
    w.delete("dead-twin");
    w.advance(3_000);
    for twin in ["q-twin", "dead-twin"] {
        assert!(!w.addresses.contains_key(&key(twin)), "{twin}");
    }
    assert_eq!(w.router("r1").log, []);
    assert_eq!(w.held("r1"), before);
    assert_eq!((&w.broker("b").queues, queues.len()), (&queues, 2));
}

#[test]
fn what_was_left_alone_for_a_secret_goes_with_its_connector_and_its_space() {
    for whole in [false, true] {
        let mut w = super::remotes::world();
        w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
        w.input(Input::Secret(key("login"), Some(1)));
        w.advance(60_000);
        w.restart();
        w.advance(60_000);
        assert_eq!(super::remotes::remote_slots(&w, "r1").len(), 3, "nobody has told of the Secret");
        match whole {
            false => w.change_space("s", |s| s.connectors.clear()),
            true => {
                w.spaces.remove(&key("s"));
                w.input(Input::Vanished(Kind::AddressSpace, key("s")));
            }
        }
        w.advance(60_000);
        for router in ["r1", "r2"] {
            let left = super::remotes::remote_slots(&w, router);
            assert!(left.iter().all(|slot| !slot.contains(">eu")), "{left:?}");
        }
    }
}
