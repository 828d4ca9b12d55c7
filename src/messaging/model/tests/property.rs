//! Incremental equals full: after any sequence of events the model that lived through it and one built afresh from the
//! same objects and brokers want and say the same.

use proptest::prelude::*;

use super::peer::Broker;
use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::{AddressType, Input, Link};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Two of them are one address.
const PLACES: [&str; 5] = ["x.y", "x/y", "z", "t", "dead"];

#[derive(Clone, Debug)]
enum Step {
    Create { name: usize, place: usize, kind: usize, topic: usize, dead: Option<usize>, when_empty: bool },
    Change { name: usize, dead: Option<usize>, ttl: i64 },
    Delete(usize),
    Strip(usize),
    Force(usize),
    Messages { name: usize, count: u64 },
    Down { empty: bool },
    Up,
    Lose(usize),
    Refuse(usize),
    Slow(bool),
    Config { prune: bool, dead: bool, two: bool },
    Space(bool),
    Restart,
    Lead,
    Wait(u64),
    Undecodable(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let place = 0..PLACES.len();
    prop_oneof![
        6 => (name.clone(), place.clone(), 0..6usize, place.clone(), proptest::option::of(place.clone()), any::<bool>())
            .prop_map(|(name, place, kind, topic, dead, when_empty)| Step::Create { name, place, kind, topic, dead, when_empty }),
        3 => (name.clone(), proptest::option::of(place.clone()), 1..4i64).prop_map(|(name, dead, ttl)| Step::Change { name, dead, ttl }),
        4 => name.clone().prop_map(Step::Delete),
        1 => name.clone().prop_map(Step::Strip),
        1 => name.clone().prop_map(Step::Force),
        2 => (place.clone(), 0..3u64).prop_map(|(name, count)| Step::Messages { name, count }),
        1 => any::<bool>().prop_map(|empty| Step::Down { empty }),
        2 => Just(Step::Up),
        1 => place.clone().prop_map(Step::Lose),
        1 => place.prop_map(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Slow),
        1 => any::<(bool, bool, bool)>().prop_map(|(prune, dead, two)| Step::Config { prune, dead, two }),
        1 => any::<bool>().prop_map(Step::Space),
        1 => Just(Step::Restart),
        1 => Just(Step::Lead),
        3 => prop_oneof![Just(100u64), Just(1_500), Just(6_000), Just(40_000)].prop_map(Step::Wait),
        1 => name.prop_map(Step::Undecodable),
    ]
}

fn kind(index: usize) -> AddressType {
    use AddressType::*;
    [Anycast, Multicast, Queue, Topic, Subscription, DeadLetter][index]
}

fn play(w: &mut World, step: &Step) {
    match step {
        Step::Create { name, place, kind: k, topic, dead, when_empty } => {
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
            });
        }
        Step::Change { name, dead, ttl } => w.change(NAMES[*name], |a| {
            if matches!(a.kind, AddressType::Queue | AddressType::Topic) {
                a.dead_letter = dead.map(|d| PLACES[d].into());
                a.ttl.maximum_ms = Some(*ttl);
            }
        }),
        Step::Delete(name) => w.delete(NAMES[*name]),
        Step::Strip(name) => {
            if w.addresses.contains_key(&key(NAMES[*name])) {
                w.vanish(NAMES[*name]);
            }
        }
        Step::Force(name) => w.change(NAMES[*name], |a| a.meta.force_delete = true),
        Step::Messages { name, count } => w.put_messages(PLACES[*name], *count),
        Step::Down { empty } => w.broker_down("b", *empty),
        Step::Up => {
            if !w.broker("b").up {
                w.broker("b").refuses.clear();
                w.broker_up("b");
            }
        }
        Step::Lose(place) => {
            let (id, slot) = (w.id("b"), w.slot(PLACES[*place]));
            if w.live.contains(&id) {
                let b = w.broker("b");
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
    }
    w.run();
}

/// Lets everything come to an end: brokers up and quick, refusals over, patience run out.
fn rest(w: &mut World) {
    w.broker("b").slow = false;
    w.broker("b").refuses.clear();
    if !w.broker("b").up {
        w.broker_up("b");
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
    for (key, a) in &w.addresses {
        let ready = a.status.ready.as_ref().map(|c| (c.status, c.reason, c.generation));
        let accepted = a.status.accepted.as_ref().map(|c| (c.status, c.reason));
        writeln!(text, "{key} {:?} {ready:?} {accepted:?} {:?} {:?}", a.kind, a.status.ttl, a.status.brokers).unwrap();
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
    for slot in wanted {
        let held = w.broker("b").addresses.contains_key(&slot) || w.broker("b").queues.contains_key(&slot);
        prop_assert!(held, "{slot}: Ready and not there");
    }
    let holders: Vec<_> = w.addresses.values().map(|a| w.slot(&a.address)).collect();
    let orphans = w.configs[&key("rc")].status.orphans;
    let mut stray = 0;
    for (slot, queue) in &w.broker("b").queues {
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
    fn incremental_equals_full(policy in any::<bool>(), steps in proptest::collection::vec(step(), 1..30)) {
        let mut w = World::new();
        w.policy = policy;
        for step in &steps {
            play(&mut w, step);
        }
        rest(&mut w);
        holds(&mut w)?;
        let lived = outcome(&w);
        let writes = w.status_writes.clone();
        w.restart();
        w.advance(1_300_000);
        holds(&mut w)?;
        prop_assert_eq!(&lived, &outcome(&w), "a model built afresh ends elsewhere");
        prop_assert_eq!(writes, w.status_writes, "a restart wrote something");
    }
}
