//! Deletions: what waits, what is told, and that nothing is destroyed that was not seen to go.

use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::AddressType::*;
use crate::messaging::input::Input;
use crate::messaging::reason;

#[test]
fn a_deleted_address_is_gone_from_broker_and_api_with_one_write() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.put_messages("q", 9);
    w.delete("q");
    w.run();
    assert_eq!(w.queue("q"), None);
    assert!(!w.addresses.contains_key(&key("q")));
    assert_eq!((w.writes("q"), w.finalizer_writes), (1, 1));
}

#[test]
fn a_broker_that_is_away_holds_the_deletion_until_it_is_back_or_forced() {
    for force in [false, true] {
        let mut w = World::new();
        w.address("q", Queue);
        w.run();
        w.broker_down("b", false);
        w.advance(2_000);
        w.delete("q");
        w.advance(5_000);
        assert_eq!(w.ready("q"), Some((false, reason::TERMINATING)));
        assert!(w.message("q").contains("broker b does not answer"), "{}", w.message("q"));
        if force {
            w.change("q", |a| a.meta.force_delete = true);
            w.run();
            assert!(!w.addresses.contains_key(&key("q")));
        }
        w.broker_up("b");
        w.run();
        assert!(!w.addresses.contains_key(&key("q")));
        assert_eq!(w.queue("q"), None);
    }
}

#[test]
fn the_deletion_is_taken_up_again_after_a_restart() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.broker_down("b", false);
    w.delete("q");
    w.run();
    w.restart();
    w.advance(10_000);
    assert!(w.addresses.contains_key(&key("q")));
    w.broker_up("b");
    w.run();
    assert!(!w.addresses.contains_key(&key("q")));
    assert_eq!(w.queue("q"), None);
}

#[test]
fn when_empty_waits_for_the_last_message_through_restarts_of_both_sides() {
    let mut w = World::new();
    w.address_with("q", Queue, |a| a.when_empty = true);
    w.run();
    w.put_messages("q", 2);
    w.delete("q");
    w.advance(20_000);
    assert_eq!(w.ready("q"), Some((false, reason::TERMINATING)));
    assert!(w.message("q").contains("last message"));
    w.restart();
    w.advance(5_000);
    w.broker_down("b", false);
    w.advance(5_000);
    w.broker_up("b");
    w.advance(5_000);
    assert_eq!(w.queue("q").map(|q| q.messages), Some(2));
    w.put_messages("q", 0);
    w.advance(10_000);
    assert_eq!(w.queue("q"), None);
    assert!(!w.addresses.contains_key(&key("q")));
    assert!(w.writes("q") <= 3, "{}", w.writes("q"));
}

#[test]
fn a_topic_waits_for_its_subscriptions_and_is_refilled_meanwhile() {
    let mut w = World::new();
    w.address("t", Topic);
    w.address_with("sub", Subscription, |a| a.topic = Some("t".into()));
    w.run();
    w.delete("t");
    w.advance(3_000);
    assert_eq!(w.ready("t"), Some((false, reason::TERMINATING)));
    assert!(w.message("t").contains("sub"));
    w.broker_down("b", true);
    w.advance(100);
    w.broker_up("b");
    w.run();
    assert!(w.queue("sub").is_some());
    w.restart();
    w.advance(3_000);
    assert!(w.addresses.contains_key(&key("t")));
    w.delete("sub");
    w.run();
    assert!(w.addresses.is_empty());
    assert!(w.broker("b").queues.is_empty() && w.broker("b").addresses.is_empty());
}

#[test]
fn a_dead_letter_waits_for_what_names_it() {
    let mut w = World::new();
    w.address("dead", DeadLetter);
    w.address_with("q", Queue, |a| a.expiry = Some("dead".into()));
    w.run();
    w.delete("dead");
    w.advance(3_000);
    assert!(w.queue("dead").is_some());
    w.change("q", |a| a.expiry = None);
    w.run();
    assert!(w.queue("dead").is_none());
    assert!(w.queue("q").is_some());
}

#[test]
fn a_stripped_finalizer_never_costs_a_message() {
    let mut w = World::new();
    w.address("full", Queue);
    w.address("empty", Queue);
    w.address("t", Topic);
    w.run();
    w.put_messages("full", 3);
    for name in ["full", "empty", "t"] {
        w.vanish(name);
    }
    w.advance(1_000);
    assert_eq!(w.queue("full").map(|q| q.messages), Some(3));
    assert_eq!(w.queue("empty"), None);
    assert_eq!(w.configs[&key("rc")].status.orphans, 1);
    w.address("full", Queue);
    w.advance(1_000);
    assert_eq!(w.ready("full"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.configs[&key("rc")].status.orphans, 0);
}

#[test]
fn a_namesake_of_another_type_does_not_destroy_an_orphan() {
    let mut w = World::new();
    w.address("x", Queue);
    w.run();
    w.put_messages("x", 3);
    w.vanish("x");
    w.address_with("x", Subscription, |a| a.topic = Some("t".into()));
    w.address("t", Topic);
    w.advance(1_000);
    assert_eq!(w.queue("x").map(|q| q.messages), Some(3));
    assert_eq!(w.ready("x"), Some((false, reason::BROKER_REFUSED)));
}

#[test]
fn a_space_waits_for_its_addresses_and_a_router_config_for_its_spaces() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.delete_config("rc");
    w.delete_space("s");
    w.advance(5_000);
    assert!(w.spaces.contains_key(&key("s")) && w.configs.contains_key(&key("rc")));
    let space = w.spaces[&key("s")].status.ready.clone().unwrap();
    assert_eq!((space.status, space.reason), (false, reason::TERMINATING));
    assert!(space.message.starts_with("waits for 1 Address; "), "{}", space.message);
    let config = w.configs[&key("rc")].status.ready.clone().unwrap();
    assert_eq!(config.reason, reason::TERMINATING);
    assert!(config.message.starts_with("waits for 1 AddressSpace that uses it, "), "{}", config.message);
    w.delete("q");
    w.advance(5_000);
    assert!(w.spaces.is_empty() && w.configs.is_empty() && w.addresses.is_empty());
    assert!(w.broker("b").queues.is_empty());
}

#[test]
fn a_broker_taken_out_of_the_router_config_lets_go_of_all_that_it_held() {
    // The one that takes its place never held anything of it, and so need not even answer.
    for next_is_up in [true, false] {
        let mut w = World::bare();
        w.config("rc", &["a", "b"]);
        w.space("s");
        w.address("q", Queue);
        w.advance(2_000);
        assert_eq!(w.spaces[&key("s")].status.broker.as_deref(), Some("a"));
        w.broker_down("a", false);
        if !next_is_up {
            w.broker_down("b", false);
        }
        w.advance(2_000);
        w.delete("q");
        w.advance(3_000);
        assert!(w.addresses.contains_key(&key("q")));
        w.change_config(|c| c.brokers.retain(|b| &*b.name != "a"));
        w.advance(3_000);
        assert!(!w.addresses.contains_key(&key("q")));
        assert_eq!(w.spaces[&key("s")].status.broker.as_deref(), Some("b"));
    }
}

#[test]
fn an_address_that_never_had_anything_goes_at_once() {
    let mut w = World::new();
    w.broker_down("b", false);
    w.address_with("lost", Queue, |a| a.space = "nowhere".into());
    w.advance(2_000);
    w.delete("lost");
    w.run();
    assert!(!w.addresses.contains_key(&key("lost")));
}

#[test]
fn the_losing_twin_goes_without_touching_the_queue() {
    let mut w = World::new();
    w.address_with("a", Queue, |a| a.address = "x".into());
    w.run();
    w.address_with("b", Queue, |a| a.address = "x".into());
    w.run();
    w.put_messages("x", 2);
    w.delete("b");
    w.run();
    assert!(!w.addresses.contains_key(&key("b")));
    assert_eq!(w.queue("x").map(|q| q.messages), Some(2));
    assert_eq!(w.ready("a"), Some((true, reason::CONFIGURED)));
}

#[test]
fn a_space_waits_for_an_address_that_cannot_be_read_also_after_a_restart() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    let unreadable = Input::Undecodable(Kind::Address, key("q"));
    let address = w.addresses.remove(&key("q")).unwrap();
    w.restart();
    w.input(unreadable);
    w.delete_space("s");
    w.advance(3_000);
    assert!(
        w.spaces[&key("s")]
            .status
            .ready
            .as_ref()
            .is_some_and(|c| c.message.contains("Address q, which cannot be read"))
    );
    // It is read again, and deleted.
    w.addresses.insert(key("q"), address.clone());
    w.input(Input::Address(Box::new(address)));
    w.delete("q");
    w.advance(3_000);
    assert!(!w.spaces.contains_key(&key("s")));
    assert_eq!(w.queue("q"), None);
}

#[test]
fn a_forced_deletion_waits_for_a_broker_that_was_only_just_begun_with() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.change("q", |a| a.meta.force_delete = true);
    w.broker_down("b", false);
    w.restart();
    w.delete("q");
    w.broker_up("b");
    w.advance(1_000);
    assert_eq!(w.queue("q"), None, "it was taken away before it was let go of");
    assert!(!w.addresses.contains_key(&key("q")));
}

#[test]
fn an_address_tells_where_its_space_is_when_the_space_does_not() {
    let mut w = World::bare();
    w.config("rc", &["b", "c"]);
    w.space("s");
    w.run();
    w.address("t", Topic);
    w.run();
    let on = w.addresses[&key("t")].status.brokers[0].clone();
    // The status of the space was never written, and another broker is the emptier one.
    w.spaces.get_mut(&key("s")).unwrap().status = Default::default();
    w.delete("t");
    w.restart();
    w.run();
    w.advance(6_000);
    assert!(!w.addresses.contains_key(&key("t")));
    let slot = w.slot("t");
    assert!(!w.broker(&on).addresses.contains_key(&slot), "left over on {on}");
}

#[test]
fn force_lets_go_of_what_cannot_be_reached_and_of_nothing_else() {
    let mut w = World::new();
    w.address_with("q", Queue, |a| a.when_empty = true);
    w.run();
    w.put_messages("q", 1);
    w.delete("q");
    w.change("q", |a| a.meta.force_delete = true);
    w.advance(30_000);
    assert_eq!(w.queue("q").map(|q| q.messages), Some(1), "its broker serves: it is waited for");
    w.broker_down("b", false);
    w.advance(30_000);
    assert!(!w.addresses.contains_key(&key("q")));
}

#[test]
fn prune_takes_what_is_an_orphan_when_it_is_asked_for_and_nothing_later() {
    let mut w = World::bare();
    w.config("rc", &["b", "c"]);
    w.space("s");
    w.run();
    let on = w.spaces[&key("s")].status.broker.clone().unwrap();
    let other = if &*on == "b" { "c" } else { "b" };
    w.broker_down(other, false);
    w.advance(10_000);
    w.change_config(|c| c.prune_orphans = Some("1".into()));
    w.run();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.broker(&on).queues.get_mut(&slot).unwrap().messages = 3;
    w.vanish("q");
    w.advance(60_000);
    assert_eq!(w.broker(&on).queues.get(&slot).map(|q| q.messages), Some(3), "nobody has asked for this one");
    w.broker_up(other);
    w.advance(1_000);
    assert_eq!(w.configs[&key("rc")].status.orphans_pruned.as_deref(), Some("1"));
    w.change_config(|c| c.prune_orphans = Some("2".into()));
    w.run();
    assert_eq!(w.broker(&on).queues.get(&slot), None);
}

#[test]
fn what_a_space_shared_is_taken_away_once() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.delete("q");
    w.run();
    w.broker("b").log.clear();
    w.delete_space("s");
    w.run();
    assert!(!w.spaces.contains_key(&key("s")));
    let cleared = w.broker("b").log.iter().filter(|(slot, _)| crate::messaging::broker::is_ground(slot)).count();
    assert_eq!(cleared, 1);
}

/// Nobody told of its end, as when whoever led before has taken it away and the news of that come late.
#[test]
fn an_address_without_queues_that_vanished_unseen_goes_unless_it_is_in_use() {
    for (used, standard) in [(false, false), (true, false), (false, true)] {
        let mut w = if standard { World::routed(&["b"], &["r"]) } else { World::new() };
        w.address("t", Topic);
        w.run();
        let slot = w.slot("t");
        if used {
            w.broker("b").used.insert(slot.clone());
        }
        w.vanish("t");
        w.run();
        assert_eq!(w.broker("b").addresses.contains_key(&slot), used);
        assert_eq!(w.broker("b").marks.contains(&slot), used);
    }
}
