//! Brokers that come, go, lose everything, refuse, and hold what is not ours.

use super::world::{World, key};
use crate::messaging::broker::{ObservedQueue, Routing};
use crate::messaging::ids::Kind;
use crate::messaging::input::AddressType::*;
use crate::messaging::input::{Input, Link};
use crate::messaging::reason;
use crate::messaging::status::TargetState;

fn stray(w: &mut World, name: &str, messages: u64) {
    let slot = w.slot(name);
    let queue = ObservedQueue {
        name: slot.clone(),
        address: slot.clone(),
        routing: Routing::Anycast,
        durable: true,
        max_consumers: -1,
        messages,
    };
    w.broker("b").queues.insert(slot.clone(), queue);
    w.broker("b").addresses.insert(slot, vec![Routing::Anycast]);
}

#[test]
fn an_operator_restart_writes_nothing() {
    let mut w = World::new();
    for i in 0..20 {
        w.address(&format!("q{i}"), Queue);
    }
    w.address("t", Topic);
    w.advance(5_000);
    let before = w.status_writes.clone();
    w.restart();
    w.advance(30_000);
    assert_eq!(w.status_writes, before);
    assert!(w.broker("b").log.iter().filter(|(_, word)| *word == "verify").count() >= 21);
}

#[test]
fn a_broker_that_lost_everything_is_refilled_without_an_address_write() {
    let mut w = World::new();
    w.address("dead", DeadLetter);
    for i in 0..20 {
        w.address_with(&format!("q{i}"), Queue, |a| a.dead_letter = Some("dead".into()));
    }
    w.advance(3_000);
    let before = w.status_writes.clone();
    w.broker_down("b", true);
    w.advance(3_000);
    assert_eq!(w.configs[&key("rc")].status.brokers[0].state, TargetState::Unreachable);
    w.address("late", Queue);
    w.advance(500);
    w.broker_up("b");
    w.run();
    assert_eq!(w.broker("b").queues.len(), 22);
    assert_eq!(w.ready("late"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.writes("late"), 1);
    for (name, writes) in before.iter().filter(|(name, _)| name.starts_with('q')) {
        assert_eq!(w.writes(name), *writes, "{name}");
    }
    assert_eq!(w.configs[&key("rc")].status.brokers[0].state, TargetState::Serving);
    assert!(w.events.iter().any(|e| e.kind == Kind::RouterConfig && e.reason == "Repaired"));
    let log = w.broker("b").log.clone();
    let dead = log.iter().rposition(|(slot, _)| slot.ends_with("/dead")).unwrap();
    let queue = log.iter().rposition(|(slot, _)| slot.ends_with("/q0")).unwrap();
    assert!(dead < queue, "dead letters come first");
}

#[test]
fn during_an_outage_at_start_an_address_says_so_once() {
    let mut w = World::new();
    w.broker_down("b", false);
    w.advance(2_000);
    w.address("q", Queue);
    w.advance(4_000);
    assert_eq!(w.ready("q"), None);
    w.advance(60_000);
    assert_eq!(w.ready("q"), Some((false, reason::BROKER_UNREACHABLE)));
    assert_eq!(w.writes("q"), 1);
    w.broker_up("b");
    w.run();
    assert_eq!((w.ready("q"), w.writes("q")), (Some((true, reason::CONFIGURED)), 2));
}

#[test]
fn a_queue_taken_away_by_hand_comes_back_at_once_and_is_told() {
    let mut w = World::new();
    w.address("q", Queue);
    w.run();
    let (id, slot) = (w.id("b"), w.slot("q"));
    let b = w.broker("b");
    b.queues.remove(&slot);
    let incarnation = b.incarnation;
    w.input(Input::Target(id, incarnation, Link::Lost(slot)));
    w.run();
    assert!(w.queue("q").is_some());
    assert_eq!(w.writes("q"), 1);
    assert!(w.events.iter().any(|e| e.reason == "Repaired"));
}

#[test]
fn what_nobody_stands_for_is_counted_while_it_holds_messages() {
    let mut w = World::new();
    stray(&mut w, "full", 5);
    stray(&mut w, "empty", 0);
    w.restart();
    w.advance(5_000);
    assert!(w.queue("full").is_some());
    assert!(w.queue("empty").is_none());
    assert_eq!(w.configs[&key("rc")].status.orphans, 1);
    assert!(w.events.iter().any(|e| e.reason == "OrphanedQueue" && e.message.contains("full")));
    w.change_config(|c| c.prune_orphans = Some("1".into()));
    w.advance(100);
    assert!(w.queue("full").is_none());
    assert_eq!(w.configs[&key("rc")].status.orphans, 0);
    assert_eq!(w.configs[&key("rc")].status.orphans_pruned.as_deref(), Some("1"));
    stray(&mut w, "later", 5);
    w.restart();
    w.advance(5_000);
    assert!(w.queue("later").is_some(), "the annotation is carried out once");
}

#[test]
fn an_orphan_is_adopted_by_an_address_of_its_name() {
    let mut w = World::new();
    stray(&mut w, "back", 5);
    w.restart();
    w.advance(5_000);
    w.address("back", Queue);
    w.advance(100);
    assert_eq!(w.ready("back"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.queue("back").map(|q| q.messages), Some(5));
    assert_eq!(w.configs[&key("rc")].status.orphans, 0);
}

#[test]
fn nothing_is_pruned_in_the_namespace_of_an_undecodable_address() {
    let mut w = World::new();
    stray(&mut w, "q", 0);
    w.restart();
    w.input(Input::Undecodable(Kind::Address, key("q")));
    w.advance(5_000);
    assert!(w.queue("q").is_some());
}

#[test]
fn a_new_address_that_is_there_already_by_its_name_is_compared_not_trusted() {
    let mut w = World::new();
    stray(&mut w, "q", 5);
    let slot = w.slot("q");
    w.restart();
    w.address_with("q", Queue, |a| a.ttl.maximum_ms = Some(9));
    w.advance(100);
    assert_eq!(w.broker("b").settings[&slot].max_expiry_delay_ms, Some(9));
}

#[test]
fn a_resync_finds_what_was_changed_by_hand() {
    let mut w = World::new();
    w.address("q", Queue);
    w.address("r", Queue);
    w.run();
    let slot = w.slot("q");
    w.broker("b").queues.remove(&slot);
    w.change_config(|c| c.resync = Some("now".into()));
    w.run();
    assert!(w.queue("q").is_some());
    let slot = w.slot("r");
    w.broker("b").queues.remove(&slot);
    w.advance(700_000);
    assert!(w.queue("r").is_some(), "within the interval");
    assert_eq!((w.writes("q"), w.writes("r")), (1, 1));
}

#[test]
fn a_space_is_where_its_queues_are_found_else_where_it_is_emptiest() {
    let mut w = World::bare();
    w.config("rc", &["a", "b"]);
    stray(&mut w, "q", 4);
    w.space("s");
    w.space("t");
    w.address("q", Queue);
    w.advance(3_000);
    assert_eq!(w.spaces[&key("s")].status.broker.as_deref(), Some("b"));
    assert_eq!(w.spaces[&key("t")].status.broker.as_deref(), Some("a"));
    assert_eq!(w.queue("q").map(|q| q.messages), Some(4));
}

#[test]
fn what_a_broker_still_holds_of_a_space_that_moved_away_stands_for_nobody() {
    for messages in [0, 3] {
        let mut w = World::bare();
        w.config("rc", &["a", "b"]);
        w.space("s");
        w.address("q", Queue);
        w.advance(2_000);
        let (slot, both) = (w.slot("q"), w.configs[&key("rc")].brokers.clone());
        w.broker("a").queues.get_mut(&slot).unwrap().messages = messages;
        w.change_config(|c| c.brokers.retain(|b| &*b.name != "a"));
        w.advance(2_000);
        w.change_config(|c| c.brokers = both);
        w.advance(2_000);
        assert_eq!(w.spaces[&key("s")].status.broker.as_deref(), Some("b"));
        assert!(w.broker("b").queues.contains_key(&slot));
        assert_eq!(w.broker("a").queues.contains_key(&slot), messages > 0);
        assert_eq!(w.configs[&key("rc")].status.orphans, i64::from(messages > 0));
    }
}

#[test]
fn with_tenancy_single_names_stand_for_the_space_that_has_the_seat() {
    let mut w = World::bare();
    w.config("rc", &["b"]);
    w.change_config(|c| c.single = true);
    w.space("s");
    w.address("q", Queue);
    w.advance(2_000);
    w.space("a");
    w.change("q", |a| a.dead_letter = Some("missing".into()));
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((false, reason::DEAD_LETTER_NOT_FOUND)));
    w.restart();
    w.advance(5_000);
    assert!(w.broker("b").queues.contains_key("q"), "what was in force before still is");
}

#[test]
fn a_dead_broker_does_not_keep_a_new_space_from_a_living_one() {
    let mut w = World::bare();
    w.config("rc", &["a", "b"]);
    w.broker("a").up = false;
    w.space("s");
    w.address("q", Queue);
    w.advance(10_000);
    assert_eq!(w.spaces[&key("s")].status.broker.as_deref(), Some("b"));
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
}

#[test]
fn spaces_and_addresses_of_another_installation_are_not_touched() {
    let mut w = World::bare();
    w.input(Input::ForeignConfig(key("rc")));
    w.space("s");
    w.address("q", Queue);
    w.advance(10_000);
    w.delete("q");
    w.advance(10_000);
    assert!(w.status_writes.is_empty(), "{:?}", w.status_writes);
    assert_eq!(w.finalizer_writes, 0);
    assert!(w.addresses.contains_key(&key("q")), "its finalizer is the other installation's to take off");
}

#[test]
fn what_waits_for_a_broker_that_stops_answering_says_so() {
    let mut w = World::new();
    w.address("old", Queue);
    w.run();
    w.broker("b").slow = true;
    w.address("new", Queue);
    w.delete("old");
    w.advance(2_000);
    assert_eq!(w.ready("new"), Some((false, reason::CONFIGURING)));
    assert_eq!(w.ready("old"), Some((true, reason::CONFIGURED)), "nothing is known to hold it up yet");
    w.broker_down("b", false);
    w.advance(10_000);
    assert_eq!(w.ready("new"), Some((false, reason::BROKER_UNREACHABLE)));
    assert_eq!(w.ready("old"), Some((false, reason::TERMINATING)));
    assert!(w.message("old").contains("broker b does not answer"), "{}", w.message("old"));
    let writes = w.writes("new");
    for _ in 0..3 {
        w.broker_up("b");
        w.advance(3_000);
        w.broker_down("b", false);
        w.advance(10_000);
    }
    assert_eq!(w.writes("new"), writes, "it is not said again and again");
}

#[test]
fn a_restart_with_an_orphan_writes_nothing() {
    let mut w = World::new();
    w.address("x", Anycast);
    w.run();
    w.put_messages("x", 1);
    w.vanish("x");
    w.advance(1_300_000);
    let before = (w.status_writes.clone(), w.configs[&key("rc")].status.clone());
    w.restart();
    w.advance(1_300_000);
    assert_eq!(before, (w.status_writes.clone(), w.configs[&key("rc")].status.clone()));
}

#[test]
fn what_is_lost_and_waits_for_something_refused_is_not_ready_any_more() {
    let mut w = World::new();
    w.address("t", Topic);
    w.address_with("sub", Subscription, |a| a.topic = Some("t".into()));
    w.run();
    let slot = w.slot("t");
    w.broker_down("b", true);
    w.broker("b").refuses.insert(slot, "AMQ: no".into());
    w.broker_up("b");
    w.advance(2_000);
    assert_eq!(w.ready("t"), Some((false, reason::BROKER_REFUSED)));
    assert_eq!(w.ready("sub"), Some((false, reason::BROKER_REFUSED)));
    assert_eq!(w.configs[&key("rc")].status.brokers[0].state, TargetState::Serving, "one refusal is its object's");
    w.broker("b").refuses.clear();
    w.advance(60_000);
    assert_eq!(w.ready("sub"), Some((true, reason::CONFIGURED)));
}

#[test]
fn what_was_stripped_of_its_finalizer_leaves_no_topic_and_no_settings_of_a_space_behind() {
    let mut w = World::new();
    w.space("s2");
    w.address("news", Topic);
    w.address_with("alerts", Multicast, |a| a.space = "s2".into());
    w.address_with("mail", Subscription, |a| a.topic = Some("news".into()));
    w.advance(5_000);
    w.put_messages("mail", 2);
    // While no operator runs: everything goes but one space.
    for name in ["news", "alerts", "mail"] {
        w.addresses.remove(&key(name));
    }
    w.spaces.remove(&key("s2"));
    w.restart();
    w.advance(5_000);
    let news = w.slot("news");
    assert!(w.broker("b").addresses.contains_key(&news), "what its subscription holds is an orphan");
    assert_eq!(w.configs[&key("rc")].status.orphans, 1);
    assert!(!w.broker("b").addresses.contains_key("tenant.s2/alerts"));
    w.advance(1_300_000);
    assert!(!w.broker("b").settings.contains_key("tenant.s2/*.#"), "{:?}", w.broker("b").settings);
    assert!(w.broker("b").settings.contains_key("tenant.s/*.#"), "the space is there");
    w.change_config(|c| c.prune_orphans = Some("1".into()));
    w.advance(1_300_000);
    assert!(!w.broker("b").addresses.contains_key(&news));
    assert_eq!(w.broker("b").marks.iter().map(|slot| &**slot).collect::<Vec<_>>(), ["tenant.s/*.#"]);
}

#[test]
fn a_topic_that_nobody_stands_for_stays_while_somebody_receives_there_or_its_object_cannot_be_read() {
    let mut w = World::new();
    w.address("news", Topic);
    w.address("hidden", Topic);
    w.advance(5_000);
    let (news, hidden) = (w.slot("news"), w.slot("hidden"));
    w.broker("b").used.insert(news.clone());
    w.addresses.remove(&key("news"));
    w.addresses.remove(&key("hidden"));
    w.restart();
    w.input(Input::Undecodable(Kind::Address, key("hidden")));
    w.advance(1_300_000);
    assert!(w.broker("b").addresses.contains_key(&hidden) && w.broker("b").addresses.contains_key(&news));
    w.input(Input::Vanished(Kind::Address, key("hidden")));
    w.advance(1_300_000);
    assert!(!w.broker("b").addresses.contains_key(&hidden));
    assert!(w.broker("b").addresses.contains_key(&news), "somebody receives there");
    assert_eq!(w.configs[&key("rc")].status.orphans, 0);
    w.broker("b").used.clear();
    w.advance(1_300_000);
    assert!(!w.broker("b").addresses.contains_key(&news));
}
