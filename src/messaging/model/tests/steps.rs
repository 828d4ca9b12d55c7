//! What may happen to a test world, in any order.

use proptest::prelude::*;

use super::remotes::{connector, forwarder, turn};
use super::samples::{address_plans, plan, space_plan, space_plans};
use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::{AddressType, Input, Link};
use crate::messaging::remote::{ConnectorRules, ConnectorSpec};
use crate::messaging::router::{Direction, Entry};
use crate::messaging::status::AddressStatus;

pub const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Two of them are one address.
pub const PLACES: [&str; 5] = ["x.y", "x/y", "z", "t", "dead"];

#[derive(Clone, Debug)]
pub enum Step {
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
    Connectors(usize),
    Allow(bool),
    Login(Option<u64>),
    Forward { name: usize, connector: usize, out: bool, none: bool },
    RemoteTurns { router: usize, connector: usize, up: bool },
}

/// The second is in no RouterConfig but that of the standard space.
pub const BROKERS: [&str; 2] = ["b", "c"];
pub const ROUTERS: [&str; 3] = ["r1", "r2", "r3"];

pub fn step() -> impl Strategy<Value = Step> {
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
        2 => (0..4usize).prop_map(Step::Connectors),
        1 => any::<bool>().prop_map(Step::Allow),
        1 => proptest::option::of(1..3u64).prop_map(Step::Login),
        3 => (0..NAMES.len(), 0..2usize, any::<bool>(), any::<bool>())
            .prop_map(|(name, connector, out, none)| Step::Forward { name, connector, out, none }),
        2 => (0..2usize, 0..2usize, any::<bool>())
            .prop_map(|(router, connector, up)| Step::RemoteTurns { router, connector, up }),
    ]
}

fn kind(index: usize) -> AddressType {
    use AddressType::*;
    [Anycast, Multicast, Queue, Topic, Subscription, DeadLetter][index]
}

pub fn play(w: &mut World, step: &Step) {
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
        | Step::Connectors(_)
        | Step::Allow(_)
        | Step::Login(_)
        | Step::Forward { .. }
        | Step::RemoteTurns { .. }
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
        step => play_remote(w, step),
    }
}

/// Of the second a login is asked, and it has a second host; the name of the third is that of an address.
fn connectors(which: usize) -> Vec<ConnectorSpec> {
    let mut second = connector("us", &["us.example", "more.example"]);
    second.credentials = Some(key("login"));
    let all = [connector("eu", &["eu.example"]), second, connector("x", &["x.example"])];
    all[..which].to_vec()
}

fn play_remote(w: &mut World, step: &Step) {
    match step {
        Step::Connectors(which) => {
            w.change_space("s", |s| s.connectors = connectors(*which));
            w.tell_login();
        }
        Step::Allow(allow) => w.change_config(|c| c.connectors = allow.then(ConnectorRules::default)),
        Step::Login(revision) => {
            w.login = Some(*revision);
            w.tell_login();
        }
        Step::Forward { name, connector, out, none } => w.change(NAMES[*name], |a| {
            let direction = if *out || a.kind == AddressType::Subscription { Direction::Out } else { Direction::In };
            if matches!(a.kind, AddressType::Queue | AddressType::Subscription) {
                a.forwarders = vec![forwarder("f", ["eu", "us"][*connector], direction)];
                a.forwarders.truncate(usize::from(!none));
            }
        }),
        Step::RemoteTurns { router, connector, up } => turn(w, ROUTERS[*router], ["eu", "us"][*connector], *up),
        _ => {}
    }
}
