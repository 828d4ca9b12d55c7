//! Incremental equals full: after any sequence of events the model that lived through it and one built afresh from the
//! same objects and brokers want and say the same.

use proptest::prelude::*;

use super::peer::Broker;
use super::samples::{address_plans, plan, shuffle, space_plan, space_plans};
use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::{AddressType, Input, Link};
use crate::messaging::router::Entry;
use crate::messaging::status::{AddressStatus, Leaving};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Two of them are one address.
const PLACES: [&str; 5] = ["x.y", "x/y", "z", "t", "dead"];

#[derive(Clone, Debug)]
enum Step {
    Create { name: usize, place: usize, kind: usize, topic: usize, dead: Option<usize>, when_empty: bool, plan: usize },
    Plan { name: usize, plan: usize },
    SpacePlan(usize),
    Plans { address: usize, space: usize },
    Forget(usize),
    Empty { broker: usize, drain: bool },
    Change { name: usize, dead: Option<usize>, ttl: i64 },
    Delete(usize),
    Strip(usize),
    Force(usize),
    Messages { name: usize, count: u64 },
    Down { broker: usize, empty: bool },
    Up(usize),
    Lose { broker: usize, place: usize },
    Refuse(usize),
    Slow(bool),
    Config { prune: bool, dead: bool, two: bool },
    Space(bool),
    Restart,
    Lead,
    Wait(u64),
    Undecodable(usize),
    RouterDown { router: usize, empty: bool },
    RouterUp(usize),
    RouterSlow { router: usize, slow: bool },
    RouterRefuse { router: usize, place: usize },
    RouterLoses { router: usize, place: usize },
    RouterLink { router: usize, place: usize, fails: bool },
    Routers(usize),
    Resync,
}

/// The second is in no RouterConfig but that of the standard space.
const BROKERS: [&str; 2] = ["b", "c"];
const ROUTERS: [&str; 3] = ["r1", "r2", "r3"];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let place = 0..PLACES.len();
    prop_oneof![
        6 => (name.clone(), place.clone(), 0..6usize, place.clone(), proptest::option::of(place.clone()), any::<bool>(), 0..8usize)
            .prop_map(|(name, place, kind, topic, dead, when_empty, plan)| Step::Create { name, place, kind, topic, dead, when_empty, plan }),
        3 => (name.clone(), 0..8usize).prop_map(|(name, plan)| Step::Plan { name, plan }),
        1 => (0..4usize).prop_map(Step::SpacePlan),
        1 => (0..4usize, 0..4usize).prop_map(|(address, space)| Step::Plans { address, space }),
        1 => name.clone().prop_map(Step::Forget),
        1 => (0..2usize, any::<bool>()).prop_map(|(broker, drain)| Step::Empty { broker, drain }),
        3 => (name.clone(), proptest::option::of(place.clone()), 1..4i64).prop_map(|(name, dead, ttl)| Step::Change { name, dead, ttl }),
        4 => name.clone().prop_map(Step::Delete),
        1 => name.clone().prop_map(Step::Strip),
        1 => name.clone().prop_map(Step::Force),
        2 => (place.clone(), 0..3u64).prop_map(|(name, count)| Step::Messages { name, count }),
        1 => (0..2usize, any::<bool>()).prop_map(|(broker, empty)| Step::Down { broker, empty }),
        2 => (0..2usize).prop_map(Step::Up),
        1 => (0..2usize, place.clone()).prop_map(|(broker, place)| Step::Lose { broker, place }),
        1 => place.prop_map(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Slow),
        1 => any::<(bool, bool, bool)>().prop_map(|(prune, dead, two)| Step::Config { prune, dead, two }),
        1 => any::<bool>().prop_map(Step::Space),
        1 => Just(Step::Restart),
        1 => Just(Step::Lead),
        3 => prop_oneof![Just(100u64), Just(1_500), Just(6_000), Just(40_000)].prop_map(Step::Wait),
        1 => name.prop_map(Step::Undecodable),
        2 => (0..2usize, any::<bool>()).prop_map(|(router, empty)| Step::RouterDown { router, empty }),
        3 => (0..2usize).prop_map(Step::RouterUp),
        1 => (0..2usize, any::<bool>()).prop_map(|(router, slow)| Step::RouterSlow { router, slow }),
        1 => (0..2usize, 0..PLACES.len()).prop_map(|(router, place)| Step::RouterRefuse { router, place }),
        1 => (0..2usize, 0..PLACES.len()).prop_map(|(router, place)| Step::RouterLoses { router, place }),
        1 => (0..2usize, 0..PLACES.len(), any::<bool>())
            .prop_map(|(router, place, fails)| Step::RouterLink { router, place, fails }),
        1 => (1..=3usize).prop_map(Step::Routers),
        1 => Just(Step::Resync),
    ]
}

fn kind(index: usize) -> AddressType {
    use AddressType::*;
    [Anycast, Multicast, Queue, Topic, Subscription, DeadLetter][index]
}

fn play(w: &mut World, step: &Step) {
    match step {
        Step::Create { name, place, kind: k, topic, dead, when_empty, plan: p } => {
            let (name, kind) = (NAMES[*name], kind(*k));
            if w.addresses.contains_key(&key(name)) {
                return;
            }
            w.address_with(name, kind, |a| {
                a.address = PLACES[*place].into();
                a.topic = (kind == AddressType::Subscription).then(|| PLACES[*topic].into());
                let names_dead = matches!(kind, AddressType::Queue | AddressType::Topic);
                a.dead_letter = dead.filter(|_| names_dead).map(|d| PLACES[d].into());
                a.when_empty = *when_empty;
                a.plan = plan(*p);
            });
        }
        Step::Plan { name, plan: p } => w.change(NAMES[*name], |a| a.plan = plan(*p)),
        Step::SpacePlan(which) => w.change_space("s", |s| s.plan = space_plan(*which)),
        Step::Plans { address, space } => w.change_config(|c| {
            (c.address_plans, c.space_plans) = (address_plans(*address), space_plans(*space));
        }),
        Step::Empty { broker, drain } => w.change_config(|c| {
            if let Some(broker) = c.brokers.get_mut(*broker) {
                broker.drain = *drain;
            }
        }),
        Step::Forget(name) => {
            if let Some(address) = w.addresses.get_mut(&key(NAMES[*name])) {
                address.status = AddressStatus::default();
            }
            w.restart();
        }
        Step::Change { name, dead, ttl } => w.change(NAMES[*name], |a| {
            if matches!(a.kind, AddressType::Queue | AddressType::Topic) {
                a.dead_letter = dead.map(|d| PLACES[d].into());
                a.ttl.maximum_ms = Some(*ttl);
            }
        }),
        Step::Delete(name) => {
            if let Some(address) = w.addresses.get(&key(NAMES[*name])).filter(|a| !a.when_empty) {
                let slot = w.slot(&address.address);
                w.given_up.insert(slot);
            }
            w.delete(NAMES[*name]);
        }
        Step::Strip(name) => {
            if w.addresses.contains_key(&key(NAMES[*name])) {
                w.vanish(NAMES[*name]);
            }
        }
        Step::Force(name) => w.change(NAMES[*name], |a| a.meta.force_delete = true),
        Step::Messages { name, count } => {
            let slot = w.slot(PLACES[*name]);
            for broker in w.brokers.values_mut() {
                if let Some(queue) = broker.queues.get_mut(&slot) {
                    queue.messages = *count;
                }
            }
        }
        Step::Down { broker, empty } => w.broker_down(BROKERS[*broker], *empty),
        Step::Up(broker) => {
            if !w.broker(BROKERS[*broker]).up {
                w.broker(BROKERS[*broker]).refuses.clear();
                w.broker_up(BROKERS[*broker]);
            }
        }
        Step::Lose { broker, place } => {
            let (id, slot) = (w.id(BROKERS[*broker]), w.slot(PLACES[*place]));
            if w.live.contains(&id) {
                let b = w.broker(BROKERS[*broker]);
                let had = b.queues.remove(&slot).is_some();
                let incarnation = b.incarnation;
                if had {
                    w.input(Input::Target(id, incarnation, Link::Lost(slot)));
                }
            }
        }
        Step::Refuse(place) => {
            let slot = w.slot(PLACES[*place]);
            w.broker("b").refuses.insert(slot, "AMQ: no".into());
        }
        Step::Slow(slow) => w.broker("b").slow = *slow,
        Step::Config { prune, dead, two } => {
            let version = w.version.to_string();
            w.change_config(|c| {
                if *prune {
                    c.prune_orphans = Some(version.into());
                }
                c.defaults.dead_letter_address = dead.then(|| "dead".into());
                c.defaults.message_ttl.maximum_ms = two.then_some(7);
            });
        }
        Step::Space(delete) => {
            if *delete {
                w.delete_space("s");
            } else if !w.spaces.contains_key(&key("s")) {
                w.space("s");
            }
        }
        Step::Restart => w.restart(),
        Step::Lead => {
            w.input(Input::Leading(false));
            w.run();
            w.input(Input::Leading(true));
        }
        Step::Wait(ms) => w.advance(*ms),
        Step::Undecodable(name) => {
            let name = NAMES[*name];
            if let Some(address) = w.addresses.get(&key(name)).cloned() {
                w.input(Input::Undecodable(Kind::Address, key(name)));
                w.run();
                w.input(Input::Address(Box::new(address)));
            }
        }
        Step::Resync => {
            let version = w.version.to_string();
            w.change_config(|c| c.resync = Some(version.into()));
        }
        Step::RouterDown { .. }
        | Step::RouterUp(_)
        | Step::RouterSlow { .. }
        | Step::RouterRefuse { .. }
        | Step::RouterLoses { .. }
        | Step::RouterLink { .. }
        | Step::Routers(_) => {
            if w.standard {
                play_router(w, step);
            }
        }
    }
    w.run();
}

fn play_router(w: &mut World, step: &Step) {
    match step {
        Step::RouterDown { router, empty: true } => w.router_down(ROUTERS[*router]),
        Step::RouterDown { router, empty: false } => w.router_cut(ROUTERS[*router]),
        Step::RouterUp(router) if w.router(ROUTERS[*router]).up => {}
        Step::RouterUp(router) => w.router_up(ROUTERS[*router]),
        Step::RouterSlow { router, slow } => w.router(ROUTERS[*router]).slow = *slow,
        Step::RouterRefuse { router, place } => {
            let slot = w.slot(PLACES[*place]);
            w.router(ROUTERS[*router]).refuses.insert(slot, "no".into());
        }
        Step::RouterLoses { router, place } => {
            let slot = w.slot(PLACES[*place]);
            w.router(ROUTERS[*router]).held.remove(&slot);
        }
        Step::RouterLink { router, place, fails } => {
            let slot = w.slot(PLACES[*place]);
            let leads = w.held(ROUTERS[*router]).get(&slot).is_some_and(|entry| {
                matches!(entry.as_ref(), Entry::Address { waypoint: true, .. } | Entry::LinkRoute { .. })
            });
            if leads || !*fails {
                w.link(ROUTERS[*router], &slot, *fails);
            }
        }
        // Of a Service with no endpoints left there is none.
        Step::Routers(count) => w.set_routers(&ROUTERS[usize::from(w.endpoints.is_some())..*count]),
        _ => {}
    }
}

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
        let AddressStatus { ttl, plan, brokers, leaving, .. } = &a.status;
        writeln!(text, "{key} {:?} {ready:?} {accepted:?} {ttl:?} {plan:?} {brokers:?} {leaving:?}", a.kind).unwrap();
    }
    for (key, s) in &w.spaces {
        let ready = s.status.ready.as_ref().map(|c| (c.status, c.reason));
        writeln!(text, "{key} {ready:?} {}/{}", s.status.ready_addresses, s.status.total).unwrap();
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

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
        let mut w = if standard { World::routed(&BROKERS, &["r1", "r2"]) } else { World::new() };
        play(&mut w, &Step::SpacePlan(0));
        play(&mut w, &Step::Plans { address: plans.0, space: plans.1 });
        for step in &steps {
            play(&mut w, step);
        }
        rest(&mut w);
        // Nobody but the brokers knows what was accepted of these.
        for (name, _) in NAMES.iter().zip(forgotten).filter(|(_, forgotten)| *forgotten) {
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
    }
}
