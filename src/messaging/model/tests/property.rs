//! Incremental equals full: after any sequence of events the model that lived through it and one built afresh from the
//! same objects and brokers want and say the same.

use proptest::prelude::*;

use super::peer::Broker;
use super::remotes::turn;
use super::samples::shuffle;
use super::steps::{BROKERS, NAMES, ROUTERS, Step, play, step};
use super::world::{World, key};
use crate::messaging::input::AddressType;
use crate::messaging::remote::{address_of, is_remote};
use crate::messaging::status::{AddressStatus, Leaving};

/// No message goes whose Address was not seen to be deleted, and was not to be waited for.
fn keeps_messages(w: &World) -> Result<(), TestCaseError> {
    if w.configs[&key("rc")].prune_orphans.is_some() {
        return Ok(());
    }
    for slot in w.brokers.values().flat_map(|broker| &broker.destroyed) {
        prop_assert!(w.given_up.contains(slot), "{slot}: destroyed with messages in it");
    }
    Ok(())
}

/// Lets everything come to an end: a router there, brokers up and quick, refusals over, patience run out.
fn rest(w: &mut World) {
    for broker in BROKERS {
        w.broker(broker).slow = false;
        w.broker(broker).refuses.clear();
        if !w.broker(broker).up {
            w.broker_up(broker);
        }
    }
    if w.standard && w.router_names().is_empty() {
        w.set_routers(&ROUTERS[..1]);
    }
    for router in if w.standard { &ROUTERS[..] } else { &[] } {
        w.router(router).slow = false;
        w.router(router).refuses.clear();
        for remote in ["eu", "us", "x"] {
            turn(w, router, remote, true);
        }
        for slot in std::mem::take(&mut w.router(router).failing) {
            w.link(router, &slot, false);
        }
        if !w.router(router).up {
            w.router_up(router);
        }
    }
    w.advance(1_300_000);
}

/// What must be equal: brokers but for their logs, statuses but for times and wording of waits.
fn outcome(w: &World) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for (id, broker) in &w.brokers {
        let Broker { queues, addresses, settings, .. } = broker;
        writeln!(text, "{id:?}: {queues:#?} {addresses:?} {settings:?}").unwrap();
    }
    for name in w.router_names() {
        writeln!(text, "{name}: {:#?}", w.held(&name)).unwrap();
    }
    for (key, a) in &w.addresses {
        let ready = a.status.ready.as_ref().map(|c| (c.status, c.reason, c.generation));
        let accepted = a.status.accepted.as_ref().map(|c| (c.status, c.reason));
        let AddressStatus { ttl, plan, brokers, leaving, forwarders, .. } = &a.status;
        writeln!(text, "{key} {:?} {ready:?} {accepted:?} {ttl:?} {plan:?} {brokers:?} {leaving:?}", a.kind).unwrap();
        writeln!(text, "{forwarders:?}").unwrap();
    }
    for (key, s) in &w.spaces {
        let ready = s.status.ready.as_ref().map(|c| (c.status, c.reason));
        writeln!(text, "{key} {ready:?} {}/{}", s.status.ready_addresses, s.status.total).unwrap();
        writeln!(text, "{:?}", s.status.connectors).unwrap();
    }
    for (key, c) in &w.configs {
        let ready = c.status.ready.as_ref().map(|c| (c.status, c.reason));
        writeln!(text, "{key} {ready:?} orphans {}", c.status.orphans).unwrap();
    }
    text
}

/// What must be true of any world at rest.
fn holds(w: &mut World) -> Result<(), TestCaseError> {
    let spaces_alive = w.spaces.get(&key("s")).is_some_and(|s| !s.meta.deleting);
    let mut wanted = Vec::new();
    for a in w.addresses.values() {
        let ready = a.status.ready.as_ref();
        let says_ready = ready.is_some_and(|c| c.status && c.generation == a.meta.generation);
        if says_ready {
            wanted.push(w.slot(&a.address));
        }
        prop_assert!(ready.is_some(), "{}: nothing is said", a.meta.key);
        if a.meta.deleting {
            prop_assert!(ready.is_some_and(|c| !c.status), "{}: deleted and Ready", a.meta.key);
        } else if spaces_alive {
            prop_assert!(a.meta.finalizer, "{}: no finalizer", a.meta.key);
        }
    }
    let kept: Vec<_> = w.addresses.values().map(|a| w.slot(&a.address)).collect();
    for name in w.router_names() {
        let held = w.held(&name);
        prop_assert!(held.contains_key(&crate::messaging::router::readiness_slot()), "{name} does not serve");
        for slot in held.keys().filter(|slot| !slot.starts_with('#')) {
            let last: crate::messaging::ids::Slot = slot.rsplit("::").next().unwrap_or(slot).into();
            prop_assert!(kept.contains(&last), "{slot}: left over on {name}");
        }
        for slot in held.keys().filter(|slot| slot.starts_with("#forward ")) {
            let address: crate::messaging::ids::Slot = address_of(slot).into();
            prop_assert!(kept.contains(&address), "{slot}: left over on {name}");
        }
        let connectors = w.spaces.get(&key("s")).map(|s| s.connectors.len()).unwrap_or_default();
        let made = held.keys().filter(|slot| slot.starts_with("#connector/") && is_remote(slot)).count();
        prop_assert!(made <= connectors, "{made} connectors of {connectors} on {name}");
        for a in w.addresses.values() {
            let ready = a.status.ready.as_ref();
            if ready.is_some_and(|c| c.status && c.generation == a.meta.generation)
                && a.kind != AddressType::Subscription
            {
                prop_assert!(held.contains_key(&w.slot(&a.address)), "{}: Ready and not on {name}", a.meta.key);
            }
        }
    }
    if w.standard {
        wanted.clear();
        let stored = |a: &&crate::messaging::input::Address| {
            crate::messaging::entry::stored(a.kind)
                && a.status.ready.as_ref().is_some_and(|c| c.status && c.generation == a.meta.generation)
        };
        wanted.extend(w.addresses.values().filter(stored).map(|a| w.slot(&a.address)));
    }
    for slot in wanted {
        let held = w.brokers.values().any(|b| b.addresses.contains_key(&slot) || b.queues.contains_key(&slot));
        prop_assert!(held, "{slot}: Ready and not there");
    }
    for a in w.addresses.values().filter(|a| a.status.ready.as_ref().is_some_and(|c| c.status)) {
        for (broker, phase) in &a.status.leaving {
            let queue = w.brokers[&w.id(broker)].queues.get(&w.slot(&a.address));
            let waits = *phase == Leaving::Draining && queue.is_some_and(|queue| queue.messages > 0);
            prop_assert!(waits, "{}: stays on {broker} with nothing in it", a.meta.key);
        }
    }
    let holders: Vec<_> = w.addresses.values().map(|a| w.slot(&a.address)).collect();
    let orphans = w.configs[&key("rc")].status.orphans;
    let mut stray = 0;
    for (slot, queue) in w.brokers.values().flat_map(|b| &b.queues) {
        if !holders.contains(slot) {
            prop_assert!(queue.messages > 0, "{slot}: an empty queue that nobody wants");
            stray += 1;
        }
    }
    prop_assert!(orphans >= stray, "{stray} orphans, {orphans} counted");
    Ok(())
}

/// The same objects and the same brokers end the same way, in whatever order they are told and come up.
fn in_any_order(
    standard: bool,
    plans: (usize, usize),
    steps: &[Step],
    forgotten: &[bool],
    seed: u64,
) -> Result<(), TestCaseError> {
    let mut w = if standard { World::routed(&BROKERS, &["r1", "r2"]) } else { World::new() };
    play(&mut w, &Step::SpacePlan(0));
    play(&mut w, &Step::Plans { address: plans.0, space: plans.1 });
    for step in steps {
        play(&mut w, step);
    }
    rest(&mut w);
    // Nobody but the brokers knows what was accepted of these.
    for (name, _) in NAMES.iter().zip(forgotten).filter(|(_, forgotten)| **forgotten) {
        if let Some(address) = w.addresses.get_mut(&key(name)) {
            address.status = AddressStatus::default();
        }
    }
    let before = (w.configs.clone(), w.spaces.clone(), w.addresses.clone(), w.brokers.clone(), w.routers.clone());
    let mut outcomes = Vec::new();
    for seed in [seed, seed.wrapping_add(1), !seed] {
        (w.configs, w.spaces, w.addresses, w.brokers, w.routers) = before.clone();
        let mut brokers = BROKERS;
        for broker in brokers {
            w.broker(broker).up = false;
        }
        w.restart_in(|inputs| shuffle(inputs, seed));
        w.run();
        shuffle(&mut brokers, seed);
        for broker in brokers {
            w.broker_up(broker);
            w.run();
        }
        w.advance(1_300_000);
        holds(&mut w)?;
        outcomes.push(outcome(&w));
    }
    prop_assert_eq!(&outcomes[0], &outcomes[1]);
    prop_assert_eq!(&outcomes[0], &outcomes[2]);
    Ok(())
}

/// As many as `PROPTEST_CASES` says; enough for each commit where nobody says anything.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_equals_full(
        policy in any::<bool>(),
        standard in any::<bool>(),
        followed in any::<bool>(),
        planned in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let mut w = match (standard, followed) {
            (true, true) => World::followed(&BROKERS, &["r1", "r2"]),
            (true, false) => World::routed(&BROKERS, &["r1", "r2"]),
            (false, _) => World::new(),
        };
        w.policy = policy;
        if planned {
            play(&mut w, &Step::Plans { address: 1, space: 2 });
            play(&mut w, &Step::SpacePlan(0));
        }
        for step in &steps {
            play(&mut w, step);
            keeps_messages(&w)?;
        }
        rest(&mut w);
        keeps_messages(&w)?;
        holds(&mut w)?;
        let lived = outcome(&w);
        let writes = w.status_writes.clone();
        w.restart();
        w.advance(1_300_000);
        holds(&mut w)?;
        prop_assert_eq!(&lived, &outcome(&w), "a model built afresh ends elsewhere");
        prop_assert_eq!(writes, w.status_writes, "a restart wrote something");
    }

    #[test]
    fn any_order_of_events_gives_the_same(
        standard in any::<bool>(),
        plans in (0..4usize, 0..4usize),
        steps in proptest::collection::vec(step(), 1..30),
        forgotten in proptest::collection::vec(any::<bool>(), NAMES.len()),
        seed in any::<u64>(),
    ) {
        in_any_order(standard, plans, &steps, &forgotten, seed)?;
    }
}

#[test]
fn a_topic_that_is_found_on_two_brokers_is_on_the_same_one_in_any_order() {
    let steps = [
        Step::RouterSlow { router: 0, slow: true },
        Step::Create { name: 0, place: 0, kind: 3, topic: 0, dead: None, when_empty: false, plan: 7 },
        Step::Down { broker: 0, empty: false },
        Step::SpacePlan(3),
        Step::Up(0),
        Step::Restart,
    ];
    for seed in 0..8 {
        in_any_order(true, (0, 0), &steps, &[true], seed).unwrap();
    }
}

#[test]
fn who_was_told_of_a_limit_that_has_room_now_is_told_of_the_one_that_has_not() {
    let mut w = World::routed(&BROKERS, &["r1", "r2"]);
    w.policy = false;
    play(&mut w, &Step::Plans { address: 1, space: 2 });
    play(&mut w, &Step::SpacePlan(0));
    let create =
        |name, place, kind, plan| Step::Create { name, place, kind, topic: 0, dead: None, when_empty: false, plan };
    for step in [create(0, 0, 0, 0), create(1, 2, 5, 3), create(2, 3, 2, 3)] {
        play(&mut w, &step);
    }
    rest(&mut w);
    assert!(w.message("c").contains("has room for 0.6 router credit"), "{}", w.message("c"));
    play(&mut w, &Step::Delete(0));
    rest(&mut w);
    assert!(w.message("c").contains("has room for 1.2 broker credit"), "{}", w.message("c"));
    let writes = w.status_writes.clone();
    w.restart();
    w.advance(1_300_000);
    assert_eq!(writes, w.status_writes, "a restart wrote something");
}
