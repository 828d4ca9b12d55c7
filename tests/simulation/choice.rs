//! How a seed decides.

use crate::lies::{Lie, Needs};
use crate::newer::Newer;
use crate::plan::{Action, Cause, NAMESPACES, Name, Plan, SPACES, Setup, Step};
use crate::random::Random;
use crate::remotes;
use crate::terms::keeps_terms;
use crate::world::Faults;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// The first two are one address.
const PLACES: [&str; 7] = ["x.y", "x/y", "z", "t", "news", "dead", "late"];

impl Plan {
    /// What this seed decides where a bug is planted: schedules that give it its chance.
    pub fn against(lie: Lie, seed: u64) -> Self {
        let mut plan = match lie.needs() {
            Needs::Nothing => Self::decide(seed),
            Needs::Routers => Self::decided(seed, true, Newer::default()),
            Needs::Plans => Self::decided(seed, true, Newer { planned: true, ..Newer::default() }),
            Needs::Slices => Self::decided(seed, true, Newer { followed: true, ..Newer::default() }),
            Needs::Endpoints => Self::decided(seed, true, Newer { exposed: true, ..Newer::default() }),
            Needs::Remotes => Self::decided(seed, true, Newer { remote: true, ..Newer::default() }),
        };
        let random = &mut Random::new(seed ^ 0x11e5);
        match lie {
            // Only what waits for its last message is counted.
            Lie::EmptyCount => {
                for step in &mut plan.steps {
                    if let Action::CreateAddress { kind, when_empty, .. } = &mut step.action {
                        *when_empty = !matches!(*kind, "anycast" | "multicast");
                    }
                }
            }
            // Two must want the Lease within moments of each other: both start anew, and wait for it to expire.
            Lie::BlindLease => {
                plan.setup.replicas = 2;
                plan.setup.faults.latency_ms = 40;
                plan.begin_at_once(random, |replica| Action::Crash { replica, down_ms: 0 });
            }
            // A router must have been filled, and go.
            Lie::EagerListener => plan.steps.push(measure(Cause::RouterRestart { all: true })),
            // A router must be connected again while something is left to do.
            Lie::ForgottenLinks | Lie::SkippedRemoval | Lie::ForgottenRemotes => {
                let mut at = plan.steps.len();
                while at > 0 {
                    at = at.saturating_sub(random.within(4..8) as usize);
                    let router = random.within(0..plan.setup.routers as u64) as usize;
                    let action = match lie {
                        Lie::ForgottenLinks | Lie::ForgottenRemotes => Action::RouterRestart { router, down_ms: 100 },
                        _ => Action::RouterCut(router),
                    };
                    plan.steps.insert(at, Step { wait_ms: 0, action });
                }
            }
            // More must be asked for than there is room for, and nothing else be to blame.
            Lie::WideGate => {
                plan.steps.retain(|step| keeps_terms(&step.action));
                create_all(&mut plan, random, "anycast");
            }
            // Passwords must change.
            Lie::OldPassword => {
                for namespace in NAMESPACES {
                    steps_behind(&mut plan, Action::RotateFarSecret { namespace, known: true, cut: true });
                }
            }
            // Addresses with forwarders must go.
            Lie::LeftForwards => {
                for name in NAMES {
                    steps_behind(&mut plan, Action::DeleteAddress((NAMESPACES[0], name)));
                }
            }
            // Queues must move, and be wanted where they are.
            Lie::OpenWay => {
                plan.setup.brokers = 2;
                let mut at = plan.steps.len();
                while at > 0 {
                    at = at.saturating_sub(random.within(4..8) as usize);
                    let (broker, drain) = (random.within(0..2) as usize, random.chance(600));
                    plan.steps.insert(at, Step { wait_ms: 0, action: Action::DrainBroker { broker, drain } });
                }
            }
            // What has settled must be read anew, and nothing else give a reason to move.
            Lie::FalseDrain => {
                plan.setup.brokers = 2;
                plan.setup.stream = false;
                plan.setup.faults = Faults { api: 0, broker: 0, router: 0, ..plan.setup.faults };
                plan.steps.retain(|step| keeps_terms(&step.action));
                create_all(&mut plan, random, "queue");
                plan.steps.push(Step { wait_ms: 0, action: Action::Quiet });
                for replica in 0..plan.setup.replicas {
                    plan.steps.push(Step { wait_ms: 0, action: Action::Crash { replica, down_ms: 100 } });
                }
            }
            _ => {}
        }
        plan
    }

    /// What this seed decides: of every twelve, six have routers.
    pub fn decide(seed: u64) -> Self {
        let standard = (seed / 6).is_multiple_of(2);
        let newer = if standard { Newer::of(seed) } else { Newer::default() };
        Self::decided(seed, standard, newer)
    }

    fn decided(seed: u64, standard: bool, newer: Newer) -> Self {
        let routed = &mut Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x4077);
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x51a7);
        let random = &mut random;
        let flavour = random.within(0..4);
        let mut setup = Setup {
            routers: 0,
            mixed: false,
            brokers: if random.chance(300) { 2 } else { 1 },
            replicas: if random.chance(400) { 2 } else { 1 },
            policy: random.chance(500),
            stream: random.chance(250),
            page: random.one_of(&[2, 500]),
            secret: random.chance(250),
            single: random.chance(120),
            second: random.chance(400),
            planned: false,
            followed: false,
            exposed: false,
            remote: false,
            policies: false,
            faults: Faults {
                api: if flavour & 1 == 0 { 0 } else { random.one_of(&[20, 100]) },
                broker: if flavour & 2 == 0 { 0 } else { random.one_of(&[20, 100]) },
                router: 0,
                watch_ms: random.one_of(&[1, 20, 300]),
                latency_ms: random.one_of(&[1, 5, 40]),
            },
        };
        if standard {
            setup.routers = routed.one_of(&[1, 2, 2, 3]);
            setup.brokers = if routed.chance(600) { 2 } else { 1 };
            setup.mixed = routed.chance(250);
            setup.faults.router = if routed.chance(500) { 0 } else { routed.one_of(&[20, 100]) };
        }
        // Few names make many meetings.
        let mut focus =
            Focus { namespaces: random.within(1..3) as usize, names: random.within(2..8) as usize, made: Vec::new() };
        let mut steps = Vec::new();
        for space in SPACES {
            if random.chance(850) {
                steps.push(Step { wait_ms: random.within(0..30), action: Action::CreateSpace(space) });
            }
        }
        for _ in 0..random.within(0..12) {
            let namespace = random.one_of(&NAMESPACES[..focus.namespaces]);
            let name = (namespace, random.one_of(&NAMES[..focus.names]));
            let wait_ms = random.within(0..20);
            steps.push(Step { wait_ms, action: focus.remember(create(random, name)) });
        }
        for _ in 0..random.within(10..45) {
            let wait_ms = match random.within(0..10) {
                0..5 => random.within(0..30),
                5..8 => random.within(30..1_500),
                8 => random.within(1_500..6_000),
                _ => random.within(6_000..25_000),
            };
            let action = match standard && routed.chance(170) {
                true => router_action(routed, &setup, &focus),
                false => action(random, &setup, &focus),
            };
            steps.push(Step { wait_ms, action: focus.remember(action) });
        }
        (setup.planned, setup.followed, setup.exposed) = (newer.planned, newer.followed, newer.exposed);
        newer.add_to(&mut setup, &mut steps, &focus, &mut Random::new(seed ^ 0x9a75));
        if newer.remote {
            remotes::add_to(&mut setup, &mut steps, &focus, &mut Random::new(seed ^ 0xfa12));
        }
        Self { seed, setup, steps }
    }
}

/// How many names the schedule is about.
pub struct Focus {
    namespaces: usize,
    names: usize,
    /// What was asked for so far: space and address.
    made: Vec<(Name, &'static str)>,
}

impl Focus {
    /// The name of an Address.
    pub fn name(&self, random: &mut Random) -> Name {
        (random.one_of(&NAMESPACES[..self.namespaces]), random.one_of(&NAMES[..self.names]))
    }
}

impl Focus {
    fn remember(&mut self, action: Action) -> Action {
        if let Action::CreateAddress { name, space, address, .. } = action {
            self.made.push(((name.0, space), address));
        }
        action
    }

    /// A space, and an address in it: mostly one that was asked for, so that something is there.
    pub fn place(&self, random: &mut Random) -> (Name, &'static str) {
        if !self.made.is_empty() && random.chance(750) {
            return random.one_of(&self.made);
        }
        (random.one_of(&SPACES[..self.namespaces * 2]), random.one_of(&PLACES))
    }
}

/// Addresses of a plan are made, as many as there are names.
fn create_all(plan: &mut Plan, random: &mut Random, kind: &'static str) {
    for (name, address) in NAMES.iter().zip(&PLACES[1..]) {
        let action = Action::CreateAddress {
            name: ("red", name),
            space: "one",
            address,
            kind,
            topic: None,
            dead: None,
            expiry: None,
            when_empty: false,
            plan: Some("one"),
            forwards: 0,
        };
        plan.steps.push(Step { wait_ms: random.within(0..40), action });
    }
}

fn steps_behind(plan: &mut Plan, action: Action) {
    plan.steps.push(Step { wait_ms: 2_000, action });
}

fn measure(cause: Cause) -> Step {
    Step { wait_ms: 0, action: Action::Measure(cause) }
}

fn router_action(random: &mut Random, setup: &Setup, focus: &Focus) -> Action {
    let (space, place) = focus.place(random);
    let router = random.within(0..setup.routers as u64) as usize;
    match random.within(0..100) {
        0..26 => Action::RouterRestart { router, down_ms: random.one_of(&[10, 800, 3_000, 20_000]) },
        26..36 => Action::RouterHang { router, ms: random.one_of(&[300, 4_000, 12_000, 70_000]) },
        36..44 => {
            let (by_ms, ms) = (random.one_of(&[30, 400, 3_000]), random.one_of(&[4_000, 30_000]));
            Action::RouterSlow { router, by_ms, ms }
        }
        44..56 => Action::RouterCut(router),
        56..61 => Action::RefuseRoute(space, place),
        61..65 => Action::RelentRoute(space, place),
        65..69 => Action::SquatRoute(space, place),
        69..73 => Action::UnsquatRoute(space, place),
        73..81 => Action::Drift { router, pick: random.next(), change: random.chance(500) },
        81..88 => Action::ConfigRouters(random.within(1..setup.routers as u64 + 1) as usize),
        _ => Action::Measure(random.one_of(&[
            Cause::RouterRestart { all: false },
            Cause::RouterRestart { all: true },
            Cause::RouterOutage { all: false },
            Cause::RouterOutage { all: true },
            Cause::RouterCut,
            Cause::Drift { pick: 7, change: false },
            Cause::Drift { pick: 11, change: true },
        ])),
    }
}

fn action(random: &mut Random, setup: &Setup, focus: &Focus) -> Action {
    let namespace = random.one_of(&NAMESPACES[..focus.namespaces]);
    let name = (namespace, random.one_of(&NAMES[..focus.names]));
    let (space, place) = focus.place(random);
    let broker = random.within(0..setup.brokers as u64) as usize;
    let replica = random.within(0..setup.replicas as u64) as usize;
    match random.within(0..1000) {
        0..260 => create(random, name),
        260..310 => Action::ChangeTtl(name, random.within(1..4)),
        310..340 => Action::ChangeDeadLetter(name, random.one_of(&[None, Some("dead"), Some("late"), Some("z")])),
        340..355 => Action::ChangeConsumers(name, random.within(1..4)),
        355..370 => Action::ChangeDeletionPolicy(name, random.chance(500)),
        370..500 => Action::DeleteAddress(name),
        500..525 => Action::StripAddress(name),
        525..535 => Action::ForceAddress(name),
        535..545 => Action::SpoilAddress(name, random.chance(500)),
        545..580 => Action::CreateSpace(space),
        580..588 => Action::DeleteSpace(space),
        588..591 => Action::StripSpace(space),
        591..596 => Action::ForceSpace(space),
        596..600 => Action::DeleteNamespace(namespace),
        600..615 => Action::CreateNamespace(namespace),
        615..618 => Action::DeleteConfig,
        618..638 => Action::CreateConfig,
        638..648 => Action::ConfigTtl(random.one_of(&[None, Some(5), Some(9)])),
        648..658 => Action::ConfigDeadLetter(random.chance(500)),
        658..668 => Action::ConfigBrokers(random.within(1..setup.brokers as u64 + 1) as usize),
        668..674 => Action::ConfigAllowed(random.chance(800)),
        674..680 => Action::Resync,
        680..686 => Action::Prune,
        686..694 => Action::RotateSecret,
        694..698 => Action::DeleteSecret,
        698..704 => Action::CreateSecret,
        704..800 => Action::Send(space, place, random.within(1..4)),
        800..830 => Action::Drain(space, place),
        830..834 => Action::Detach(space, place),
        834..840 => Action::Attach(space, place),
        840..850 => Action::RemoveQueue(space, place),
        850..858 => Action::Refuse(space, place),
        858..866 => Action::Relent(space, place),
        866..870 => Action::Squat(space, place),
        870..877 => Action::Unsquat(space, place),
        877..878 => Action::Deny(broker),
        878..890 => Action::BrokerRestart {
            broker,
            down_ms: random.one_of(&[10, 800, 3_000, 20_000]),
            empty: random.chance(400),
        },
        890..896 => Action::BrokerHang { broker, ms: random.one_of(&[300, 4_000, 12_000]) },
        896..902 => Action::BreakConnections(broker),
        902..916 => Action::Crash { replica, down_ms: random.one_of(&[0, 500, 5_000, 20_000]) },
        916..932 => Action::CrashAfter { changes: random.within(0..6) },
        932..938 => Action::Stop { replica, down_ms: random.one_of(&[0, 5_000]) },
        938..944 if !setup.calm() => Action::ApiOutage(random.one_of(&[500, 4_000, 20_000])),
        944..954 => Action::CutWatches,
        954..962 => Action::Compact,
        962..970 => Action::StallWatches { replica, ms: random.one_of(&[500, 5_000, 20_000]) },
        970..974 => Action::Snapshot,
        974..978 => Action::Restore,
        978..990 => Action::Quiet,
        990.. => Action::Measure(random.one_of(&[
            Cause::OperatorRestart,
            Cause::Takeover,
            Cause::BrokerRestart { empty: false },
            Cause::BrokerRestart { empty: true },
            Cause::BrokerOutage,
            Cause::Relist,
        ])),
        _ => Action::Quiet,
    }
}

fn create(random: &mut Random, name: Name) -> Action {
    let address = random.one_of(&PLACES);
    // Mostly what the name suggests, so that references find what they look for.
    let kind = match address {
        "t" | "news" if random.chance(850) => "topic",
        "dead" | "late" if random.chance(850) => "deadLetter",
        _ => {
            random.one_of(&["queue", "queue", "queue", "subscription", "subscription", "anycast", "multicast", "topic"])
        }
    };
    let names_dead = matches!(kind, "queue" | "topic");
    let reference = |random: &mut Random| {
        let choice = random.one_of(&[None, None, Some("dead"), Some("late"), Some("z")]);
        choice.filter(|_| names_dead)
    };
    let spaces: Vec<&str> = SPACES.iter().filter(|space| space.0 == name.0).map(|space| space.1).collect();
    Action::CreateAddress {
        name,
        space: random.one_of(&spaces),
        address,
        kind,
        topic: (kind == "subscription").then(|| random.one_of(&["t", "news", "z"])),
        dead: reference(random),
        expiry: if random.chance(300) { reference(random) } else { None },
        when_empty: !matches!(kind, "anycast" | "multicast") && random.chance(250),
        plan: None,
        forwards: 0,
    }
}
