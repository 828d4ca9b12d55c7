//! Remote hosts, what people ask for about them, and what becomes of those hosts. What must come of it: [`check`].

pub mod check;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::store::{Id, Plural};
use crate::broker::millis;
use crate::choice::Focus;
use crate::lies::Lie;
use crate::people::{base64, config_id};
use crate::plan::{Action, NAMESPACES, Name, SPACES, Setup, Step};
use crate::random::Random;
use crate::world::{OTHER_SPACE, Shared, World, lock};

/// A remote host: it takes every address, but for those that it is told not to have.
#[derive(Default)]
pub struct Far {
    pub up: bool,
    /// How often all connections were lost.
    pub losses: u64,
    /// Who logs in does so with one of these; who does not is anonymous, and welcome.
    pub passwords: BTreeSet<String>,
    /// Addresses that it does not have.
    pub lacks: BTreeSet<String>,
}

impl Far {
    /// Whether somebody with this password, or without one, may come in.
    pub fn takes(&self, password: Option<&str>) -> bool {
        password.is_none_or(|password| self.passwords.contains(password))
    }

    fn stop(&mut self) {
        self.up = false;
        self.losses += 1;
    }
}

/// What remote hosts and their Secrets are like.
#[derive(Default)]
pub struct Remotes {
    /// There are any in this run.
    pub on: bool,
    /// By name.
    pub hosts: BTreeMap<String, Far>,
    /// Routers enforce policies.
    pub policies: bool,
    /// Connectors that were not ready, and all, before something was looked at by itself.
    pub counted: (usize, usize),
    /// A forwarder's link failed then.
    pub failing: bool,
    /// What the first RouterConfig allows: one of [`rules`].
    pub allowed: usize,
    /// The number of the password in each namespace's Secret.
    passwords: BTreeMap<&'static str, u64>,
    /// When a login changed last: an operator that has begun to lead since does not know what routers log in with.
    pub rotated_us: u64,
    /// Who leads may lose the Lease at any time.
    pub unsteady: bool,
    /// The passwords that went to routers first, by connection: for [`Lie::OldPassword`].
    first: BTreeMap<String, String>,
}

/// All of them; the last is nobody's replacement, so that it may be away for long.
pub const HOSTS: [&str; 3] = ["eu-1.example", "eu-2.example", "us.example"];
const ALONE: &str = HOSTS[2];
/// `z` is also the beginning of an address that people like.
pub const CONNECTORS: [&str; 3] = ["eu", "us", "z"];
const SECRET: &str = "far-login";
/// How many kinds of connectors people think of, of forwarders, and of rules.
const SHAPES: u64 = 8;
const FORWARDS: u64 = 8;
const RULES: u64 = 4;
const REMOTE_ADDRESSES: [&str; 2] = ["sink", "source"];

fn connector(name: &str, shape: usize) -> Value {
    let at = |hosts: &[&str]| -> Value { hosts.iter().map(|host| json!({ "host": host, "port": 5672 })).collect() };
    let patterns = |patterns: &[&str]| -> Value {
        patterns.iter().enumerate().map(|(n, pattern)| json!({ "name": format!("p{n}"), "pattern": pattern })).collect()
    };
    let login = json!({ "secretName": SECRET });
    match shape {
        0 => json!({ "name": name, "endpointHosts": at(&[HOSTS[0]]) }),
        1 => json!({ "name": name, "endpointHosts": at(&[ALONE]), "addresses": patterns(&["#"]) }),
        2 => json!({ "name": name, "endpointHosts": at(&HOSTS[..2]), "addresses": patterns(&["news", "in.*"]) }),
        3 | 4 => json!({
            "name": name, "endpointHosts": at(&[HOSTS[0]]), "credentials": login, "addresses": patterns(&["#"]),
        }),
        5 => json!({ "name": name, "endpointHosts": at(&[ALONE]), "credentials": login }),
        6 => json!({ "name": name, "endpointHosts": at(&["127.0.0.1"]) }),
        _ => json!({ "name": name, "endpointHosts": at(&[HOSTS[1]]), "tls": { "sslProfile": "public" } }),
    }
}

/// What an Address of this type asks for.
pub fn forwarders(kind: &str, which: usize) -> Value {
    let all: &[(&str, &str, &str)] = match which {
        0 => &[],
        1 | 2 => &[("out", "eu/sink", "out")],
        3 => &[("out", "eu/sink", "out"), ("in", "eu/source", "in")],
        4 => &[("in", "us/source", "in")],
        5 => &[("out", "us/sink", "out"), ("more", "eu/sink", "out")],
        6 => &[("out", "z/sink", "out")],
        _ => &[("out", "nowhere/sink", "out")],
    };
    let fits = all.iter().filter(|(.., direction)| kind == "queue" || (kind == "subscription" && *direction == "out"));
    fits.map(|(name, to, direction)| json!({ "name": name, "remoteAddress": to, "direction": direction })).collect()
}

fn rules(which: usize) -> Value {
    match which {
        0 => Value::Null,
        1 => json!({}),
        2 => json!({ "allowedHosts": [HOSTS[0]] }),
        _ => json!({ "allowedHosts": ["*.example"], "sslProfiles": ["public"] }),
    }
}

// === What a seed decides ===

/// Adds connectors and forwarders to a schedule.
pub fn add_to(setup: &mut Setup, steps: &mut Vec<Step>, focus: &Focus, random: &mut Random) {
    setup.remote = true;
    setup.policies = random.chance(900);
    for step in steps.iter_mut() {
        if let Action::CreateAddress { forwards, .. } = &mut step.action {
            *forwards = if random.chance(500) { random.within(0..FORWARDS) as usize } else { 0 };
        }
    }
    let planned = setup.planned;
    let mut first = vec![Action::ConfigConnectors(random.one_of(&[1, 3, 3]))];
    let late = random.chance(300);
    for namespace in NAMESPACES {
        first.extend((!late).then_some(Action::CreateFarSecret(namespace)));
    }
    for space in SPACES {
        let usual = random.one_of(&[0, 1, 2, 3, 4]);
        first.push(Action::Connect(space, "eu", usual));
        first.extend(random.chance(400).then_some(Action::Connect(space, "us", 5)));
    }
    first.extend(makings(focus, planned, random));
    // Behind the spaces.
    for action in first.into_iter().rev() {
        let at = SPACES.len().min(steps.len());
        steps.insert(at, Step { wait_ms: random.one_of(&[0, 0, 5, 40]), action });
    }
    let begin = (SPACES.len() as u64).min(steps.len() as u64);
    for _ in 0..random.within(6..18) {
        let at = random.within(begin..steps.len() as u64 + 1) as usize;
        let wait_ms = random.one_of(&[0, 5, 40, 700, 3_000, 15_000]);
        let action = action(focus, random);
        steps.insert(at, Step { wait_ms, action });
    }
}

/// Addresses that need nobody else, but for the host that their messages go to.
const FORWARDED: [(&str, &str, &str); 4] = [
    ("orders", "orders", "queue"),
    ("bills", "bills", "queue"),
    ("feed", "feed", "topic"),
    ("copy", "copy", "subscription"),
];

fn makings(focus: &Focus, planned: bool, random: &mut Random) -> Vec<Action> {
    let (space, _) = focus.place(random);
    let all = FORWARDED.iter().filter(|_| random.chance(800)).map(|(name, address, kind)| (*name, *address, *kind));
    let all: Vec<(&str, &str, &str)> = all.collect();
    let make = |(name, address, kind): (&'static str, &'static str, &'static str)| Action::CreateAddress {
        name: (space.0, name),
        space: space.1,
        address,
        kind,
        topic: (kind == "subscription").then_some("feed"),
        dead: None,
        expiry: None,
        when_empty: kind == "queue" && random.chance(400),
        plan: planned.then_some("one"),
        forwards: if kind == "topic" { 0 } else { random.within(1..6) as usize },
    };
    all.into_iter().map(make).collect()
}

/// An Address whose forwarders change, or that goes.
fn forwarded(focus: &Focus, random: &mut Random) -> Name {
    let name = focus.name(random);
    if random.chance(700) { (name.0, random.one_of(&FORWARDED).0) } else { name }
}

fn action(focus: &Focus, random: &mut Random) -> Action {
    let namespace = random.one_of(&NAMESPACES);
    let space = focus.place(random).0;
    match random.within(0..100) {
        0..18 => {
            let name = random.one_of(&["eu", "eu", "eu", "us", "us", "z"]);
            Action::Connect(space, name, random.within(0..SHAPES) as usize)
        }
        18..25 => Action::Disconnect(space, random.one_of(&CONNECTORS)),
        25..38 => Action::Forward(forwarded(focus, random), random.within(0..FORWARDS) as usize),
        38..42 => Action::DeleteAddress(forwarded(focus, random)),
        42..45 => Action::Send(space, random.one_of(&FORWARDED).1, 2),
        45..54 => Action::ConfigConnectors(random.within(0..RULES) as usize),
        54..62 => Action::RotateFarSecret { namespace, known: random.chance(800), cut: random.chance(400) },
        62..66 => Action::DeleteFarSecret(namespace),
        66..72 => Action::CreateFarSecret(namespace),
        72..75 => Action::FarLearns,
        75..83 => {
            let host = random.one_of(&HOSTS);
            let ms = random.one_of(&[20, 3_000, 15_000, 40_000]);
            Action::FarDown { host, ms: (host != ALONE || random.chance(800)).then_some(ms) }
        }
        83..85 => Action::FarUp,
        85..92 => {
            let (host, address) = (random.one_of(&HOSTS), random.one_of(&REMOTE_ADDRESSES));
            Action::FarLacks { host, address, lacks: random.chance(600) }
        }
        92..96 => Action::Measure(crate::plan::Cause::FarOutage),
        _ => Action::Measure(crate::plan::Cause::FarRotation),
    }
}

// === What people and hosts do ===

/// Every one of these actions.
pub fn act(shared: &Shared, world: &mut World, action: &Action) {
    if !world.remotes.on {
        return;
    }
    match action {
        Action::Connect(name, called, shape) => {
            change_connectors(world, *name, called, Some(connector(called, *shape)))
        }
        Action::Disconnect(name, called) => change_connectors(world, *name, called, None),
        Action::Forward(name, which) => {
            let id = Id::new(Plural::Addresses, name.0, name.1);
            let Some(address) = world.api.get(&id) else { return };
            let kind = address["spec"]["type"].as_str().unwrap_or_default().to_owned();
            if matches!(&*kind, "queue" | "subscription") {
                world.change(&id, |address| address["spec"]["forwarders"] = forwarders(&kind, *which));
            }
        }
        Action::ConfigConnectors(which) => {
            world.remotes.allowed = *which;
            world.change(&config_id(0), |config| {
                let routers = config["spec"]["messaging"]["routers"].as_object_mut().unwrap();
                routers.remove("connectors");
                if let rules @ Value::Object(_) = rules(*which) {
                    routers.insert("connectors".to_owned(), rules);
                }
            });
        }
        Action::RotateFarSecret { namespace, known, cut } => world.rotate_far(namespace, *known, *cut),
        Action::DeleteFarSecret(namespace) => world.delete(&Id::new(Plural::Secrets, namespace, SECRET)),
        Action::CreateFarSecret(namespace) => {
            let number = world.remotes.passwords.get(namespace).copied().unwrap_or_default();
            world.far_learns(number);
            put_secret(world, namespace, number);
        }
        Action::FarLearns => {
            for number in world.remotes.passwords.values().copied().collect::<Vec<_>>() {
                world.far_learns(number);
            }
        }
        Action::FarDown { host, ms } => {
            world.remotes.hosts.get_mut(*host).unwrap().stop();
            if let Some(ms) = ms {
                let (shared, at) = (Shared::clone(shared), tokio::time::Instant::now() + millis(*ms));
                let host = (*host).to_owned();
                tokio::spawn(async move {
                    tokio::time::sleep_until(at).await;
                    lock(&shared).remotes.hosts.get_mut(&host).unwrap().up = true;
                });
            }
        }
        Action::FarUp => world.all_far_up(),
        Action::FarLacks { host, address, lacks } => {
            let far = world.remotes.hosts.get_mut(*host).unwrap();
            if *lacks {
                far.lacks.insert((*address).to_owned());
            } else {
                far.lacks.remove(*address);
            }
        }
        other => panic!("{other:?} is nobody's"),
    }
}

fn change_connectors(world: &mut World, name: Name, called: &str, to: Option<Value>) {
    let id = Id::new(Plural::AddressSpaces, name.0, name.1);
    if !world.api.get(&id).is_some_and(|space| space["spec"]["type"] == "standard") {
        return;
    }
    world.remotes.rotated_us = world.now_us();
    world.change(&id, |space| {
        let spec = space["spec"].as_object_mut().unwrap();
        let all = spec.entry("connectors").or_insert_with(|| json!([])).as_array_mut().unwrap();
        all.retain(|connector| connector["name"] != called);
        all.extend(to);
    });
}

fn put_secret(world: &mut World, namespace: &'static str, number: u64) {
    world.remotes.passwords.insert(namespace, number);
    let id = Id::new(Plural::Secrets, namespace, SECRET);
    let data = json!({ "username": "dQ==", "password": base64(number) });
    if !world.create(&id, &json!({ "data": data.clone() })) {
        world.change(&id, |secret| secret["data"] = data);
    }
}

impl Remotes {
    /// What a namespace's Secret holds.
    pub fn password(&self, namespace: &str) -> String {
        format!("p{}", self.passwords.get(namespace).copied().unwrap_or_default())
    }
}

impl World {
    /// Every remote host there is.
    pub fn begin_remotes(&mut self, setup: &Setup) {
        self.remotes.on = setup.remote;
        self.remotes.policies = setup.policies;
        self.remotes.unsteady = setup.replicas > 1 || setup.faults.api > 0;
        if !setup.remote {
            return;
        }
        let far = || Far { up: true, passwords: ["p0".to_owned()].into(), ..Far::default() };
        self.remotes.hosts = HOSTS.iter().map(|host| ((*host).to_owned(), far())).collect();
        if setup.policies {
            for router in self.routers.values_mut() {
                router.enforce_policies();
            }
        }
    }

    /// What the RouterConfig of this number allows.
    pub fn put_rules(&self, index: usize, routers: &mut Value) {
        if !self.remotes.on {
            return;
        }
        let rules = rules(if index == 0 { self.remotes.allowed } else { 1 });
        if rules.is_object() {
            routers["connectors"] = rules;
        }
    }

    /// Another password is in the Secret of a namespace. Known: remote hosts take it, and if they cut, no older one any
    /// more.
    pub fn rotate_far(&mut self, namespace: &'static str, known: bool, cut: bool) {
        let id = Id::new(Plural::Secrets, namespace, SECRET);
        if self.api.get(&id).is_none() {
            return;
        }
        let number = (self.remotes.passwords.get(namespace).copied().unwrap_or_default() + 1) % 10;
        self.remotes.rotated_us = self.now_us();
        put_secret(self, namespace, number);
        if known {
            self.far_learns(number);
        }
        if known && cut {
            let now: BTreeSet<String> = self.remotes.passwords.values().map(|number| format!("p{number}")).collect();
            for far in self.remotes.hosts.values_mut() {
                far.passwords = now.clone();
                far.losses += 1;
            }
        }
    }

    fn far_learns(&mut self, number: u64) {
        for far in self.remotes.hosts.values_mut() {
            far.passwords.insert(format!("p{number}"));
        }
    }

    pub fn all_far_up(&mut self) {
        for far in self.remotes.hosts.values_mut() {
            far.up = true;
        }
    }

    /// Hosts that replace one another are there again; the one that stands alone may stay away.
    pub fn calm_remotes(&mut self) {
        for (_, far) in self.remotes.hosts.iter_mut().filter(|(host, _)| *host != ALONE) {
            far.up = true;
        }
    }

    /// All remote hosts are away, or back.
    pub fn turn_remotes(&mut self, up: bool) {
        for far in self.remotes.hosts.values_mut().filter(|far| far.up != up) {
            if up {
                far.up = true;
            } else {
                far.stop();
            }
        }
    }

    /// Both namespaces' passwords change, and remote hosts know.
    pub fn rotate_all_far(&mut self) {
        for namespace in NAMESPACES {
            self.rotate_far(namespace, true, false);
        }
    }

    /// Whether a connection may be kept for a while although its Secret is missing.
    pub fn lacks_far_secret(&self) -> bool {
        let there = |namespace: &str| self.api.get(&Id::new(Plural::Secrets, namespace, SECRET)).is_some();
        self.remotes.on && !NAMESPACES.iter().all(|namespace| there(namespace))
    }

    /// The password that goes to a router, which may be a planted bug's.
    pub fn far_password(&mut self, connection: &str, asked: &str) -> String {
        if !self.lies(Lie::OldPassword) {
            return asked.to_owned();
        }
        self.remotes.first.entry(connection.to_owned()).or_insert_with(|| asked.to_owned()).clone()
    }
}

/// What stands for the second RouterConfig's space is not the first one's matter.
pub fn config_of_space(name: (&str, &str)) -> usize {
    usize::from(name == OTHER_SPACE)
}
