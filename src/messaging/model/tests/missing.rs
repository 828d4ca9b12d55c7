//! What is held by nobody who can be asked: a RouterConfig that is gone, and finalizers of others.

use super::world::{NS, World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::AddressType::*;
use crate::messaging::input::Input;
use crate::messaging::reason;

#[test]
fn an_address_whose_router_config_is_gone_is_not_ready_and_says_so() {
    for (standard, restart) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut w = if standard { World::routed(&["b"], &["r"]) } else { World::new() };
        for (name, kind) in [("q", Queue), ("x", Anycast)] {
            w.address(name, kind);
        }
        w.advance(3_000);
        assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
        let lost = w.lose_config("rc");
        if restart {
            w.restart();
        }
        w.advance(1_000);
        assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)), "it may be made again at once");
        w.advance(60_000);
        for name in ["q", "x"] {
            assert_eq!(w.ready(name), Some((false, reason::ROUTER_CONFIG_NOT_FOUND)), "{standard} {restart} {name}");
            assert!(w.message(name).contains("RouterConfig tenant/rc does not exist"), "{}", w.message(name));
            assert_eq!(w.writes(name), 2);
        }
        let space = w.spaces[&key("s")].status.ready.clone().unwrap();
        assert_eq!((space.status, space.reason), (false, reason::ROUTER_CONFIG_NOT_FOUND));
        // It comes again, while its broker is away.
        w.broker_down("b", false);
        w.make_config_again(lost);
        w.advance(60_000);
        assert_eq!(w.ready("q").map(|(ready, _)| ready), Some(false));
        assert!(!w.message("q").contains("does not exist"), "{}", w.message("q"));
        w.broker_up("b");
        w.advance(60_000);
        assert_eq!([w.ready("q"), w.ready("x")], [Some((true, reason::CONFIGURED)); 2], "{standard} {restart}");
    }
}

#[test]
fn a_router_config_that_is_replaced_at_once_costs_its_addresses_no_write() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    let lost = w.lose_config("rc");
    w.advance(1_000);
    w.make_config_again(lost);
    w.advance(60_000);
    assert_eq!((w.ready("q"), w.writes("q")), (Some((true, reason::CONFIGURED)), 1));
}

#[test]
fn what_a_broker_stores_holds_the_deletion_while_the_router_config_is_gone() {
    for (standard, restart, force) in
        [(false, false, false), (false, true, true), (true, true, false), (true, false, true)]
    {
        let mut w = if standard { World::routed(&["b"], &["r"]) } else { World::new() };
        w.address("q", Queue);
        w.advance(3_000);
        let lost = w.lose_config("rc");
        if restart {
            w.restart();
        }
        w.advance(60_000);
        w.delete("q");
        w.advance(60_000);
        assert_eq!(w.ready("q"), Some((false, reason::TERMINATING)), "{standard} {restart}");
        let message = w.message("q");
        for words in ["RouterConfig tenant/rc", "broker b", "waystation.dev/force-delete=true"] {
            assert!(message.contains(words), "{message}");
        }
        if force {
            w.change("q", |a| a.meta.force_delete = true);
            w.run();
            assert!(!w.addresses.contains_key(&key("q")));
            assert!(w.queue("q").is_some());
            let told: Vec<&str> = w.events.iter().map(|event| event.reason).collect();
            assert!(told.contains(&"BrokerLetGo"), "{told:?}");
        } else {
            w.make_config_again(lost);
            w.advance(60_000);
            assert!(!w.addresses.contains_key(&key("q")));
            assert_eq!(w.queue("q"), None);
        }
    }
}

#[test]
fn what_a_space_shared_holds_its_deletion_while_the_router_config_is_gone() {
    for (standard, restart, force) in
        [(false, false, false), (false, true, true), (true, true, false), (true, false, true)]
    {
        let mut w = if standard { World::routed(&["b"], &["r"]) } else { World::new() };
        w.address("q", Queue);
        w.run();
        w.delete("q");
        w.advance(3_000);
        let lost = w.lose_config("rc");
        if restart {
            w.restart();
        }
        w.delete_space("s");
        w.advance(60_000);
        let ready = w.spaces[&key("s")].status.ready.clone().unwrap();
        assert_eq!((ready.status, ready.reason), (false, reason::TERMINATING), "{standard} {restart}");
        for words in ["RouterConfig tenant/rc", "aspace -n tenant s waystation.dev/force-delete=true"] {
            assert!(ready.message.contains(words), "{}", ready.message);
        }
        if force {
            w.change_space("s", |s| s.meta.force_delete = true);
            w.run();
            assert!(!w.spaces.contains_key(&key("s")));
            assert!(w.events.iter().any(|event| event.reason == "BrokerLetGo" && event.kind == Kind::AddressSpace));
            assert!(!w.broker("b").settings.is_empty());
        }
        w.make_config_again(lost);
        // What was let go of is left over, and found by a comparison.
        w.advance(1_300_000);
        assert!(!w.spaces.contains_key(&key("s")));
        assert!(w.broker("b").settings.is_empty(), "{:?}", w.broker("b").settings);
    }
}

#[test]
fn a_space_that_shares_nothing_waits_for_no_router_config() {
    let mut w = World::bare();
    w.space("s");
    w.advance(10_000);
    w.delete_space("s");
    w.advance(10_000);
    assert!(!w.spaces.contains_key(&key("s")), "it was never taken");
}

#[test]
fn a_space_in_a_namespace_that_goes_does_not_wait_for_a_router_config_that_is_gone() {
    let mut w = World::new();
    w.lose_config("rc");
    w.delete_space("s");
    w.advance(10_000);
    assert!(w.spaces.contains_key(&key("s")));
    w.input(Input::NamespaceGoing(NS.into()));
    w.advance(10_000);
    assert!(!w.spaces.contains_key(&key("s")));
}

#[test]
fn a_namespace_that_goes_does_not_wait_for_a_router_config_that_is_gone() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.lose_config("rc");
    w.delete("q");
    w.advance(10_000);
    assert!(w.addresses.contains_key(&key("q")));
    w.input(Input::NamespaceGoing(NS.into()));
    w.advance(10_000);
    assert!(!w.addresses.contains_key(&key("q")));
    assert!(w.events.iter().any(|event| event.reason == "BrokerLetGo" && event.message.contains("broker b")));
}

#[test]
fn an_object_that_only_others_hold_says_who_and_that_it_is_ready_no_more() {
    let others = Some("example.com/backup, example.com/audit".into());
    for restart in [false, true] {
        let mut w = World::new();
        w.address("q", Queue);
        w.run();
        w.change("q", |a| a.meta.others = others.clone());
        w.spaces.get_mut(&key("s")).unwrap().meta.others = others.clone();
        w.configs.get_mut(&key("rc")).unwrap().meta.others = others.clone();
        w.delete("q");
        w.advance(5_000);
        assert!(w.addresses.contains_key(&key("q")), "others hold it");
        assert!(!w.addresses[&key("q")].meta.finalizer);
        assert_eq!((w.ready("q"), w.writes("q")), (Some((false, reason::TERMINATING)), 2), "with our finalizer's end");
        assert!(w.message("q").contains("example.com/backup, example.com/audit"), "{}", w.message("q"));
        if restart {
            w.restart();
        }
        w.broker_down("b", false);
        w.advance(60_000);
        assert!(w.message("q").contains("example.com/backup"), "{}", w.message("q"));
        assert_eq!(w.writes("q"), 2);
        w.vanish("q");
        w.broker_up("b");
        w.advance(5_000);
        w.delete_space("s");
        w.advance(10_000);
        let ready = w.spaces[&key("s")].status.ready.clone().unwrap();
        assert_eq!((ready.status, ready.reason), (false, reason::TERMINATING));
        assert!(ready.message.contains("example.com/audit"), "{}", ready.message);
        w.spaces.remove(&key("s"));
        w.input(Input::Vanished(crate::messaging::ids::Kind::AddressSpace, key("s")));
        w.delete_config("rc");
        w.advance(10_000);
        let ready = w.configs[&key("rc")].status.ready.clone().unwrap();
        assert_eq!((ready.status, ready.reason), (false, reason::TERMINATING));
        assert!(ready.message.contains("example.com/audit"), "{}", ready.message);
        let writes = w.status_writes.clone();
        w.advance(1_300_000);
        assert_eq!(writes, w.status_writes, "said once");
    }
}
