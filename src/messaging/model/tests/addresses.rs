//! Acceptance, references, duplicates, and what is written when.

use super::world::{World, key};
use crate::messaging::input::AddressType::{self, *};
use crate::messaging::input::Input;
use crate::messaging::reason;

#[test]
fn an_address_of_every_type_is_ready_with_one_status_write() {
    for policy in [true, false] {
        let mut w = World::new();
        w.policy = policy;
        w.address("dead", DeadLetter);
        w.address("events", Topic);
        w.address_with("sub", Subscription, |a| a.topic = Some("events".into()));
        w.address_with("orders", Queue, |a| a.dead_letter = Some("dead".into()));
        w.address("any", Anycast);
        w.address("multi", Multicast);
        w.run();
        for name in ["dead", "events", "sub", "orders", "any", "multi"] {
            assert_eq!(w.ready(name), Some((true, reason::CONFIGURED)), "{name}");
            assert_eq!(w.writes(name), 1, "{name}");
        }
        w.advance(60_000);
        assert_eq!(w.writes("orders"), 1);
        assert_eq!(w.queue("sub").map(|q| q.address), Some(w.slot("events")));
    }
}

#[test]
fn without_the_policy_the_finalizer_comes_before_the_first_command() {
    let mut w = World::new();
    w.policy = false;
    w.address("q", Queue);
    let settled = w.model.settle(w.now);
    assert!(settled.jobs.is_empty(), "{:?}", settled.jobs);
    assert!(settled.writes.iter().any(|write| write.finalizer.is_some()));
}

#[test]
fn nothing_is_made_in_a_space_before_its_finalizer_is_there() {
    let mut w = World::bare();
    w.config("rc", &["b"]);
    w.run();
    w.policy = false;
    w.space("s");
    w.policy = true;
    w.address("q", Queue);
    let settled = w.model.settle(w.now);
    assert!(settled.jobs.is_empty(), "{:?}", settled.jobs);
    // That answer is lost; what is watched tells of the finalizer.
    let space = w.spaces.get_mut(&key("s")).unwrap();
    (space.meta.finalizer, space.meta.version) = (true, space.meta.version + 1_000);
    let space = space.clone();
    w.input(Input::AddressSpace(Box::new(space)));
    w.run();
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
}

#[test]
fn subscriptions_and_queues_wait_for_what_they_name_in_any_order() {
    let mut w = World::new();
    w.address_with("sub", Subscription, |a| a.topic = Some("events".into()));
    w.address_with("q", Queue, |a| a.dead_letter = Some("dead".into()));
    w.run();
    assert_eq!(w.ready("sub"), None, "a second of patience");
    w.advance(1_500);
    assert_eq!(w.ready("sub"), Some((false, reason::TOPIC_NOT_FOUND)));
    assert_eq!(w.ready("q"), Some((false, reason::DEAD_LETTER_NOT_FOUND)));
    w.address("events", Topic);
    w.address("dead", DeadLetter);
    w.run();
    assert_eq!(w.ready("sub"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.writes("sub"), 2);
}

#[test]
fn a_refused_topic_holds_back_its_subscription_and_nobody_else() {
    let mut w = World::new();
    let slot = w.slot("events");
    w.broker("b").refuses.insert(slot.clone(), "AMQ000: no".into());
    w.address("events", Topic);
    w.address_with("sub", Subscription, |a| a.topic = Some("events".into()));
    w.address("q", Queue);
    w.advance(2_000);
    assert_eq!(w.ready("events"), Some((false, reason::BROKER_REFUSED)));
    assert!(w.message("events").contains("AMQ000: no"));
    assert_eq!(w.ready("sub"), Some((false, reason::BROKER_REFUSED)));
    assert!(w.message("sub").contains("tenant.s/events"), "{}", w.message("sub"));
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
    w.broker("b").refuses.clear();
    w.advance(31_000);
    assert_eq!(w.ready("events"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.ready("sub"), Some((true, reason::CONFIGURED)));
}

#[test]
fn of_two_with_one_address_the_accepted_one_wins_and_the_next_takes_over() {
    for (kind, same) in [(Queue, true), (Multicast, false)] {
        let mut w = World::new();
        w.address_with("a", Queue, |a| a.address = "x.y".into());
        w.run();
        w.put_messages("x.y", 7);
        // Older by its timestamp, and still second: the other one has it.
        let twin: &str = if same { "x.y" } else { "x/y" };
        w.address_with("b", kind, |a| (a.address, a.meta.created_s) = (twin.into(), 1));
        w.run();
        assert_eq!(w.ready("b"), Some((false, reason::DUPLICATE_ADDRESS)));
        assert!(w.message("b").contains("Address a (queue)"), "{}", w.message("b"));
        w.broker("b").log.clear();
        w.delete("a");
        w.run();
        assert_eq!(w.ready("b"), Some((true, reason::CONFIGURED)), "{kind:?}");
        assert!(!w.addresses.contains_key(&key("a")));
        if same {
            assert_eq!(w.queue("x.y").map(|q| q.messages), Some(7), "messages are handed over");
            assert!(w.broker("b").log.is_empty(), "without a command");
        } else {
            assert_eq!(w.queue("x.y"), None);
        }
    }
}

#[test]
fn a_queue_and_a_subscription_cannot_share_an_address() {
    let mut w = World::new();
    w.address("t", Topic);
    w.address_with("one", Queue, |a| a.address = "same".into());
    w.address_with("two", Subscription, |a| (a.address, a.topic) = ("same".into(), Some("t".into())));
    w.run();
    assert_eq!(w.ready("two"), Some((false, reason::DUPLICATE_ADDRESS)));
}

#[test]
fn the_winner_is_the_same_in_any_order_and_after_a_restart() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut w = World::new();
        for name in order {
            w.address_with(name, Queue, |a| (a.address, a.meta.created_s) = ("x".into(), 5));
        }
        w.run();
        assert_eq!(w.ready("a"), Some((true, reason::CONFIGURED)));
        w.restart();
        w.advance(2_000);
        assert_eq!(w.ready("b"), Some((false, reason::DUPLICATE_ADDRESS)));
        assert_eq!(w.writes("a"), 1);
        assert_eq!(w.writes("b"), 1);
    }
}

#[test]
fn a_change_keeps_the_old_ready_until_the_new_one_is_in_force() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.broker("b").slow = true;
    w.change("q", |a| a.ttl.maximum_ms = Some(5));
    w.advance(500);
    assert_eq!(w.writes("q"), 1);
    w.advance(1_000);
    assert_eq!(w.ready("q"), Some((false, reason::CONFIGURING)));
    w.broker("b").slow = false;
    w.run();
    let status = &w.addresses[&key("q")].status;
    assert_eq!((status.ready.as_ref().unwrap().status, status.ready.as_ref().unwrap().generation), (true, 2));
    assert_eq!(status.ttl.maximum_ms, Some(5));
}

#[test]
fn a_dangling_dead_letter_is_told_and_nothing_is_deprovisioned() {
    let mut w = World::new();
    w.address("dead", DeadLetter);
    w.address_with("q", Queue, |a| a.dead_letter = Some("dead".into()));
    w.run();
    w.put_messages("q", 3);
    w.change("q", |a| a.dead_letter = Some("nowhere".into()));
    w.advance(2_000);
    assert_eq!(w.ready("q"), Some((false, reason::DEAD_LETTER_NOT_FOUND)));
    assert_eq!(w.queue("q").map(|q| q.messages), Some(3));
    w.change("q", |a| a.dead_letter = Some("q".into()));
    w.run();
    assert_eq!(w.ready("q"), Some((false, reason::DEAD_LETTER_WRONG_TYPE)));
    w.change("q", |a| a.dead_letter = None);
    w.run();
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
}

#[test]
fn a_space_that_is_no_longer_allowed_keeps_what_it_has_and_takes_nothing_new() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.change_config(|c| {
        c.allowed = crate::messaging::input::Allowed::Selector(vec![crate::messaging::input::Requirement {
            key: "no".into(),
            test: crate::messaging::input::LabelTest::Exists,
        }])
    });
    w.run();
    w.address("new", Queue);
    w.advance(2_000);
    assert!(w.queue("q").is_some());
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.ready("new"), Some((false, reason::SPACE_NOT_ACCEPTED)));
    let space = &w.spaces[&key("s")].status;
    assert_eq!(space.accepted.as_ref().map(|c| (c.status, c.reason)), Some((false, reason::NAMESPACE_NOT_ALLOWED)));

    // Another process knows that from the status.
    w.restart();
    w.advance(2_000);
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
    w.broker_down("b", true);
    w.broker_up("b");
    w.advance(2_000);
    assert!(w.queue("q").is_some(), "what was accepted is refilled");
    w.delete("q");
    w.advance(2_000);
    assert!(w.queue("q").is_none(), "and is removed with its Address");
}

#[test]
fn the_default_dead_letter_applies_where_the_space_has_it() {
    let mut w = World::new();
    w.change_config(|c| c.defaults.dead_letter_address = Some("dlq".into()));
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    assert_eq!(w.broker("b").settings[&slot].dead_letter_address, None);
    w.address("dlq", DeadLetter);
    w.run();
    let dead = w.slot("dlq");
    assert_eq!(w.broker("b").settings[&slot].dead_letter_address, Some(dead));
    w.delete("dlq");
    w.run();
    assert_eq!(w.broker("b").settings[&slot].dead_letter_address, None);
    assert_eq!(w.queue("dlq"), None);
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
}

#[test]
fn counts_of_a_space_are_written_at_most_every_two_seconds() {
    let mut w = World::new();
    let before = w.writes("s");
    for i in 0..100 {
        w.address(&format!("q{i}"), AddressType::Queue);
        w.advance(50);
    }
    w.advance(5_000);
    assert_eq!(w.spaces[&key("s")].status.ready_addresses, 100);
    assert!(w.writes("s") - before <= 5, "{}", w.writes("s") - before);
}

#[test]
fn an_address_that_comes_is_counted_once_and_one_that_goes_again_not_at_all() {
    let mut w = World::new();
    w.advance(10_000);
    let before = w.writes("s");
    w.address("q", Queue);
    w.advance(500);
    assert_eq!((w.writes("q"), w.writes("s") - before), (1, 0));
    w.advance(5_000);
    assert_eq!(w.spaces[&key("s")].status.total, 1);
    assert_eq!(w.spaces[&key("s")].status.ready_addresses, 1);
    assert_eq!(w.writes("s") - before, 1);
    w.address("r", Queue);
    w.advance(300);
    w.delete("r");
    w.advance(10_000);
    assert_eq!(w.writes("s") - before, 1);
}

#[test]
fn a_default_that_changed_while_nobody_looked_is_told_by_the_next_process() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    w.model = crate::messaging::model::Model::new(Default::default());
    w.change_config(|c| c.defaults.message_ttl.maximum_ms = Some(5_000));
    w.restart();
    w.advance(2_000);
    let slot = w.slot("q");
    assert_eq!(w.broker("b").settings[&slot].max_expiry_delay_ms, Some(5_000));
    assert_eq!(w.addresses[&key("q")].status.ttl.maximum_ms, Some(5_000));
    assert_eq!(w.writes("q"), 2);
}

#[test]
fn who_has_no_chance_costs_the_others_nothing() {
    const TWINS: usize = 300;
    let mut w = World::new();
    for number in 0..TWINS {
        w.address_with(&format!("t{number:03}"), Queue, |a| a.address = "same".into());
    }
    w.address_with("sub", Subscription, |a| a.topic = Some("same".into()));
    w.run();
    assert_eq!(w.ready("t000"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.ready("t299"), Some((false, reason::DUPLICATE_ADDRESS)));

    // One more, one fewer: it, who has the address and who is next.
    w.address_with("t999", Queue, |a| a.address = "same".into());
    assert!(w.model.dirty_addresses.len() <= 4, "{:?}", w.model.dirty_addresses);
    w.run();
    w.delete("t150");
    assert!(w.model.dirty_addresses.len() <= 4, "{:?}", w.model.dirty_addresses);
    w.run();
    let writes: usize = (1..TWINS).map(|number| w.writes(&format!("t{number:03}"))).sum();
    assert!(writes <= TWINS, "{writes} writes");

    // Only another that has the address is told to all.
    w.delete("t000");
    w.run();
    assert_eq!(w.ready("t001"), Some((true, reason::CONFIGURED)));
    for name in ["t002", "t299", "t999"] {
        let told = w.message(name);
        assert!(told.starts_with("Address t001 (queue) has same"), "{told}");
    }
}

#[test]
fn who_waits_for_the_name_of_a_connector_costs_it_nothing() {
    let mut w = super::remotes::world();
    let address = |w: &mut World, name: &str| {
        w.address_with(name, Queue, |a| a.address = format!("eu/{name}").into());
    };
    for number in 0..300 {
        address(&mut w, &format!("t{number:03}"));
    }
    w.advance(60_000);
    assert_eq!(w.ready("t299"), Some((false, reason::DUPLICATE_ADDRESS)));
    let looked_at = |w: &World| w.model.spaces[&key("s")].remotes["eu"].standing.len();
    assert_eq!(looked_at(&w), 0);
    address(&mut w, "more");
    assert!(w.model.dirty_addresses.len() <= 2, "{:?}", w.model.dirty_addresses);
    w.run();

    // Without the connector they have what they want; one that comes again is kept out by them, also after a restart.
    let connectors = w.spaces[&key("s")].connectors.clone();
    w.change_space("s", |space| space.connectors.clear());
    w.advance(60_000);
    assert_eq!(w.ready("t299"), Some((true, reason::CONFIGURED)));
    w.change_space("s", |space| space.connectors = connectors);
    w.advance(60_000);
    let told = |w: &World| w.spaces[&key("s")].status.connectors[0].reason;
    assert_eq!((looked_at(&w), told(&w)), (301, reason::NAME_TAKEN));
    w.restart();
    w.advance(60_000);
    assert_eq!((looked_at(&w), told(&w)), (301, reason::NAME_TAKEN));
    for name in (0..300).map(|number| format!("t{number:03}")).chain(["more".to_owned()]) {
        assert_eq!(told(&w), reason::NAME_TAKEN, "{name} still is there");
        w.delete(&name);
        w.run();
    }
    w.advance(60_000);
    assert_eq!((looked_at(&w), told(&w)), (0, reason::CONNECTED));
}

#[test]
fn a_reference_that_no_address_can_have_is_not_to_be_created() {
    let mut w = World::new();
    for (name, dead) in [("q", "a#b"), ("p", "ab")] {
        w.address_with(name, Queue, |a| a.dead_letter = Some(dead.into()));
    }
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((false, reason::DEAD_LETTER_NOT_FOUND)));
    assert!(w.message("q").contains("no Address can have") && !w.message("q").contains("create"), "{}", w.message("q"));
    assert!(w.message("p").contains("create an Address"), "{}", w.message("p"));
}
