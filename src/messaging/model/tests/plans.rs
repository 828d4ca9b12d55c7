//! Plans: who has room in a space, who waits for it, and where queues go.

use std::sync::Arc;

use super::world::{World, key};
use crate::messaging::ids::TargetId;
use crate::messaging::input::{AddressType, Redelivery, Ttl};
use crate::messaging::plans::{AddressPlan, Limits, SpacePlan};
use crate::messaging::status::AddressStatus;

use AddressType::{Anycast, DeadLetter, Queue, Subscription, Topic};

fn plan(name: &str, router: i64, broker: i64) -> AddressPlan {
    AddressPlan {
        name: name.into(),
        types: vec![Anycast, Queue, Topic, Subscription, DeadLetter],
        router,
        broker,
        partitions: 1,
        ttl: Ttl::default(),
        redelivery: Redelivery::default(),
    }
}

fn space_plan(name: &str, limits: Limits) -> SpacePlan {
    SpacePlan { name: name.into(), limits, allowed: vec![] }
}

const TWO: Limits = Limits { addresses: Some(2), router: None, broker: None, aggregate: None };

/// A standard space on brokers b and c with plans small (0.2 broker credit) and large (1), and the plan `team`.
fn world(limits: Limits) -> World {
    let mut w = World::routed(&["b", "c"], &["r1"]);
    w.change_space("s", |s| s.plan = Some("team".into()));
    w.change_config(|c| {
        c.address_plans = vec![plan("small", 10, 200), plan("large", 50, 1_000)];
        c.space_plans = vec![space_plan("team", limits)];
    });
    w.run();
    w
}

impl World {
    pub(super) fn queue_of(&mut self, name: &str, plan: &str) {
        self.address_with(name, Queue, |a| a.plan = Some(plan.into()));
    }

    fn told_plan(&self, name: &str) -> Option<Arc<str>> {
        self.addresses[&key(name)].status.plan.clone()
    }

    fn brokers_of(&self, name: &str) -> Vec<Arc<str>> {
        self.addresses[&key(name)].status.brokers.clone()
    }
}

#[test]
fn who_finds_no_room_is_told_which_limit_and_follows_by_itself() {
    let mut w = world(TWO);
    for name in ["one", "two", "three", "four"] {
        w.queue_of(name, "small");
    }
    w.run();
    assert_eq!(w.ready("two"), Some((true, "Configured")));
    for name in ["three", "four"] {
        assert_eq!(w.ready(name), Some((false, "QuotaExceeded")), "{name}");
        assert_eq!(
            w.message(name),
            "plan team of AddressSpace s has room for 2 Addresses, and this asks for 1 Address more: 2 Addresses were in \
             use; delete Addresses of the space, or give it a larger plan, and it follows by itself"
        );
    }
    w.delete("one");
    w.advance(10_000);
    assert_eq!(w.ready("three"), Some((true, "Configured")), "the older one");
    assert_eq!(w.ready("four"), Some((false, "QuotaExceeded")));
    assert_eq!((w.writes("three"), w.writes("four")), (2, 1), "nobody else was written");
}

#[test]
fn the_oldest_comes_first_however_they_are_told() {
    let mut w = world(TWO);
    for (name, created) in [("young", 3), ("old", 1), ("middle", 2)] {
        w.address_with(name, Queue, |a| {
            a.plan = Some("small".into());
            a.meta.created_s = created;
        });
    }
    w.run();
    assert_eq!(w.ready("old"), Some((true, "Configured")));
    assert_eq!(w.ready("middle"), Some((true, "Configured")));
    assert_eq!(w.ready("young"), Some((false, "QuotaExceeded")));
    w.restart();
    w.advance(10_000);
    assert_eq!(w.ready("young"), Some((false, "QuotaExceeded")));
}

#[test]
fn a_smaller_one_comes_in_where_a_larger_one_does_not_fit() {
    let mut w = world(Limits { broker: Some(1_100), ..Limits::default() });
    w.queue_of("a", "small");
    w.queue_of("b", "large");
    w.queue_of("c", "small");
    w.run();
    assert_eq!((w.ready("a"), w.ready("c")), (Some((true, "Configured")), Some((true, "Configured"))));
    let message = w.message("b");
    assert!(
        message.contains("has room for 1.1 broker credit, and this asks for 1 broker credit more: 0.4"),
        "{message}"
    );
    w.change_config(|c| c.space_plans = vec![space_plan("team", Limits { broker: Some(1_400), ..Limits::default() })]);
    w.run();
    assert_eq!(w.ready("b"), Some((true, "Configured")), "the plan of the space was raised");
}

#[test]
fn what_was_accepted_stays_when_the_plan_of_its_space_shrinks() {
    let mut w = world(TWO);
    w.queue_of("one", "small");
    w.queue_of("two", "small");
    w.advance(5_000);
    let writes = (w.writes("one"), w.writes("two"));
    let one = Limits { addresses: Some(1), ..Limits::default() };
    w.change_config(|c| c.space_plans = vec![space_plan("team", one)]);
    w.advance(5_000);
    w.restart();
    w.advance(5_000);
    let said = |w: &World| w.spaces[&key("s")].status.accepted.as_ref().map(|c| c.message.to_string());
    let overdrawn = "plan team has room for 1 Address, and more is in use: it stays, and nothing is added to it";
    assert_eq!(said(&w).as_deref(), Some(overdrawn));
    assert_eq!((w.writes("one"), w.writes("two")), writes);
    w.queue_of("three", "small");
    w.delete("one");
    w.advance(5_000);
    assert_eq!(w.ready("three"), Some((false, "QuotaExceeded")), "there is room for one, and it is in use");
    assert_eq!(said(&w).as_deref(), Some(""));
}

#[test]
fn a_plan_for_which_there_is_no_room_leaves_the_old_one_in_force() {
    let mut w = world(Limits { broker: Some(1_200), ..Limits::default() });
    w.queue_of("grows", "small");
    w.queue_of("big", "large");
    w.run();
    w.change("grows", |a| a.plan = Some("large".into()));
    w.advance(5_000);
    assert_eq!(w.ready("grows"), Some((false, "QuotaExceeded")));
    assert!(w.message("grows").contains("asks for 0.8 broker credit more"), "{}", w.message("grows"));
    assert!(w.message("grows").ends_with("what was in force before still is"), "{}", w.message("grows"));
    assert_eq!(w.told_plan("grows").as_deref(), Some("small"));
    let slot = w.slot("grows");
    assert!(w.held("r1").contains_key(&slot), "it keeps working");
    // Also for a process that knows only what is told, with a router that was empty.
    w.router_down("r1");
    w.restart();
    w.router_up("r1");
    w.advance(5_000);
    assert!(w.held("r1").contains_key(&slot));
    assert_eq!(w.told_plan("grows").as_deref(), Some("small"));

    w.change("big", |a| a.plan = Some("small".into()));
    w.advance(5_000);
    assert_eq!(w.ready("grows"), Some((true, "Configured")));
    assert_eq!(w.told_plan("grows").as_deref(), Some("large"));
}

#[test]
fn a_queue_that_a_broker_holds_is_charged_before_older_ones() {
    let mut w = world(TWO);
    w.queue_of("first", "small");
    w.queue_of("second", "small");
    w.queue_of("third", "small");
    w.run();
    w.delete("first");
    w.advance(5_000);
    assert_eq!(w.ready("third"), Some((true, "Configured")));
    // All that is told is lost, and somebody older comes before anything could be read.
    for address in w.addresses.values_mut() {
        address.status = AddressStatus::default();
    }
    w.restart();
    w.address_with("older", Queue, |a| {
        a.plan = Some("small".into());
        a.meta.created_s = 0;
    });
    w.advance(10_000);
    assert_eq!(w.ready("second"), Some((true, "Configured")));
    assert_eq!(w.ready("third"), Some((true, "Configured")));
    assert_eq!(w.ready("older"), Some((false, "QuotaExceeded")));
}

#[test]
fn nobody_is_let_in_while_a_broker_may_hold_what_nobody_knows_of() {
    let mut w = world(TWO);
    w.broker_down("c", false);
    w.restart();
    for name in ["one", "two", "three"] {
        w.address_with(name, Anycast, |a| a.plan = Some("small".into()));
    }
    w.advance(2_000);
    assert_eq!(w.ready("one"), None);
    w.advance(4_000);
    assert_eq!(w.ready("one"), Some((true, "Configured")), "a broker that does not answer is given up");
    assert_eq!(w.ready("three"), Some((false, "QuotaExceeded")));
}

#[test]
fn plans_that_do_not_fit_are_named_with_those_that_do() {
    let mut w = world(Limits::default());
    w.change_config(|c| {
        c.address_plans[1].types = vec![Topic];
        c.space_plans[0].allowed = vec!["small".into()];
        c.address_plans.push(plan("other", 1, 1));
    });
    w.address("none", Queue);
    w.queue_of("lost", "tiny");
    w.queue_of("wrong", "large");
    w.queue_of("foreign", "other");
    w.run();
    let expected = [
        (
            "none",
            "PlanNotFound",
            "spec.plan is missing, and RouterConfig tenant/rc has addressPlans: name one of small",
        ),
        ("lost", "PlanNotFound", "spec.plan names tiny, which RouterConfig tenant/rc does not have: name one of small"),
        ("wrong", "PlanNotAllowed", "plan large of RouterConfig tenant/rc is not for type queue: name one of small"),
        (
            "foreign",
            "PlanNotAllowed",
            "plan team of AddressSpace s does not allow address plan other: name one of small",
        ),
    ];
    for (name, reason, message) in expected {
        assert_eq!(w.ready(name), Some((false, reason)), "{name}");
        assert_eq!(w.message(name), message);
    }
    w.change("lost", |a| a.plan = Some("small".into()));
    w.run();
    assert_eq!(w.ready("lost"), Some((true, "Configured")));
}

#[test]
fn a_plan_that_is_taken_away_leaves_its_addresses_working() {
    let mut w = world(Limits::default());
    w.queue_of("q", "large");
    w.address_with("any", Anycast, |a| a.plan = Some("large".into()));
    w.run();
    w.change_config(|c| drop(c.address_plans.remove(1)));
    w.advance(5_000);
    w.router_down("r1");
    w.restart();
    w.router_up("r1");
    w.advance(5_000);
    for name in ["q", "any"] {
        assert_eq!(w.ready(name), Some((false, "PlanNotFound")), "{name}");
        assert!(
            w.message(name).ends_with("name one of small; what was in force before still is"),
            "{}",
            w.message(name)
        );
        assert!(w.held("r1").contains_key(&w.slot(name)), "{name}");
    }
    w.change_config(|c| c.address_plans.push(plan("large", 1, 1)));
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((true, "Configured")));
}

#[test]
fn a_space_names_a_plan_that_there_is() {
    let mut w = world(Limits::default());
    w.queue_of("before", "small");
    w.run();
    w.change_space("s", |s| s.plan = Some("gold".into()));
    w.queue_of("after", "small");
    w.advance(5_000);
    let accepted = w.spaces[&key("s")].status.accepted.clone().unwrap();
    assert_eq!((accepted.status, accepted.reason), (false, "PlanNotFound"));
    assert_eq!(
        &*accepted.message,
        "spec.plan names gold, which RouterConfig tenant/rc does not have: name one of team"
    );
    assert_eq!(w.ready("before"), Some((true, "Configured")));
    assert_eq!(w.ready("after"), Some((false, "SpaceNotAccepted")));
    w.restart();
    w.advance(5_000);
    assert_eq!(w.ready("before"), Some((true, "Configured")));
}

#[test]
fn a_queue_goes_where_the_most_credit_is_free() {
    let mut w = world(Limits::default());
    w.queue_of("large", "large");
    w.run();
    let names: Vec<String> = (0..6).map(|n| format!("small-{n}")).collect();
    for name in &names {
        w.queue_of(name, "small");
        w.run();
    }
    let on = |w: &World, broker: &str| names.iter().filter(|n| w.brokers_of(n) == [broker.into()]).count();
    assert_eq!(w.brokers_of("large"), ["b".into()]);
    assert_eq!((on(&w, "b"), on(&w, "c")), (1, 5), "five of 0.2 weigh as much as one of 1, then the names decide");
    // What has gone is free again.
    w.delete("large");
    w.run();
    w.queue_of("next", "large");
    w.run();
    assert_eq!(w.brokers_of("next"), ["b".into()]);
}

#[test]
fn a_broker_made_for_more_takes_more() {
    let mut w = world(Limits::default());
    w.change_config(|c| {
        c.brokers[0].credit = 1_000;
        c.brokers[1].credit = 2_500;
    });
    w.run();
    for (name, broker) in [("a", "c"), ("b", "c"), ("c", "b"), ("d", "c"), ("e", "b")] {
        w.queue_of(name, "large");
        w.run();
        assert_eq!(w.brokers_of(name), [broker.into()], "{name}");
    }
}

#[test]
fn subscriptions_weigh_on_the_broker_of_their_topic() {
    let mut w = world(Limits::default());
    w.address_with("news", Topic, |a| a.plan = Some("small".into()));
    w.run();
    for name in ["s1", "s2"] {
        w.address_with(name, Subscription, |a| {
            a.plan = Some("small".into());
            a.topic = Some("news".into());
        });
    }
    for name in ["q1", "q2", "q3"] {
        w.queue_of(name, "small");
    }
    w.run();
    assert_eq!(w.brokers_of("news"), ["b".into()]);
    for name in ["q1", "q2", "q3"] {
        assert_eq!(w.brokers_of(name), ["c".into()], "{name}");
    }
}

#[test]
fn a_plan_says_what_an_address_does_not() {
    let mut w = world(Limits::default());
    w.change_config(|c| {
        c.defaults.message_ttl = Ttl { minimum_ms: Some(5), maximum_ms: Some(100) };
        c.defaults.redelivery.max_attempts = Some(3);
        c.address_plans[0].ttl.maximum_ms = Some(50);
        c.address_plans[0].redelivery.delay_ms = Some(7);
    });
    w.queue_of("q", "small");
    w.queue_of("own", "small");
    w.change("own", |a| a.ttl.maximum_ms = Some(20));
    w.run();
    let slot = w.slot("q");
    let settings = w.broker("b").settings[&slot].clone();
    assert_eq!((settings.min_expiry_delay_ms, settings.max_expiry_delay_ms), (Some(5), Some(50)));
    assert_eq!((settings.max_delivery_attempts, settings.redelivery_delay_ms), (Some(3), Some(7)));
    assert_eq!(w.addresses[&key("own")].status.ttl.maximum_ms, Some(20));
    // Another plan, other settings.
    w.change_config(|c| c.address_plans[0].ttl.maximum_ms = Some(60));
    w.run();
    assert_eq!(w.addresses[&key("q")].status.ttl.maximum_ms, Some(60));
}

#[test]
fn a_brokered_space_has_limits_too() {
    let mut w = World::new();
    w.change_config(|c| {
        c.address_plans = vec![plan("small", 10, 200)];
        c.space_plans = vec![space_plan("team", Limits { broker: Some(400), router: Some(0), ..Limits::default() })];
    });
    w.change_space("s", |s| s.plan = Some("team".into()));
    for name in ["one", "two", "three"] {
        w.address_with(name, Anycast, |a| a.plan = Some("small".into()));
    }
    w.run();
    assert_eq!(w.ready("two"), Some((true, "Configured")), "no router, no router credit");
    assert_eq!(w.ready("three"), Some((false, "QuotaExceeded")));
    let id = TargetId::broker(key("rc"), "b".into());
    assert_eq!(w.model.target(&id).map(|t| t.used), Some(400));
}

#[test]
fn who_names_what_is_refused_keeps_its_plan_whoever_is_looked_at_first() {
    let mut w = world(Limits::default());
    // The one that it names comes after it by name, and before it here.
    w.queue_of("a", "large");
    w.address_with("z", DeadLetter, |a| a.plan = Some("no-such-plan".into()));
    w.advance(5_000);
    assert_eq!((w.ready("a"), w.ready("z")), (Some((true, "Configured")), Some((false, "PlanNotFound"))));
    w.change("a", |a| (a.dead_letter, a.plan) = (Some("z".into()), Some("small".into())));
    w.advance(5_000);
    assert_eq!((w.ready("a"), w.told_plan("a")), (Some((false, "DeadLetterNotFound")), Some("large".into())));
    let writes = w.writes("a");
    w.restart();
    w.advance(5_000);
    assert_eq!((w.told_plan("a"), w.writes("a")), (Some("large".into()), writes));

    w.change("z", |z| z.plan = Some("small".into()));
    w.advance(5_000);
    assert_eq!((w.ready("a"), w.told_plan("a")), (Some((true, "Configured")), Some("small".into())));
}
