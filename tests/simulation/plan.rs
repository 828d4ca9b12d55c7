//! What a seed decides: the installation, the faults, and what people and machines do, in order.

use crate::lies::Lie;
use crate::random::Random;
use crate::world::Faults;

/// A namespace and the name of an object in it.
pub type Name = (&'static str, &'static str);

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    CreateAddress {
        name: Name,
        space: &'static str,
        address: &'static str,
        kind: &'static str,
        topic: Option<&'static str>,
        dead: Option<&'static str>,
        expiry: Option<&'static str>,
        when_empty: bool,
    },
    ChangeTtl(Name, u64),
    ChangeDeadLetter(Name, Option<&'static str>),
    ChangeConsumers(Name, u64),
    ChangeDeletionPolicy(Name, bool),
    DeleteAddress(Name),
    StripAddress(Name),
    ForceAddress(Name),
    /// A value in the spec that cannot be read; `false` mends it.
    SpoilAddress(Name, bool),
    CreateSpace(Name),
    DeleteSpace(Name),
    StripSpace(Name),
    ForceSpace(Name),
    CreateNamespace(&'static str),
    DeleteNamespace(&'static str),
    CreateConfig,
    DeleteConfig,
    ConfigTtl(Option<u64>),
    ConfigDeadLetter(bool),
    ConfigBrokers(usize),
    ConfigAllowed(bool),
    Resync,
    Prune,
    RotateSecret,
    DeleteSecret,
    CreateSecret,
    /// Messages arrive at every queue of the address.
    Send(Name, &'static str, u64),
    Drain(Name, &'static str),
    RemoveQueue(Name, &'static str),
    /// The broker refuses everything about this name.
    Refuse(Name, &'static str),
    Relent(Name, &'static str),
    /// Somebody else makes a queue of this name.
    Squat(Name, &'static str),
    Unsquat(Name, &'static str),
    /// A client receives from a multicast address.
    Attach(Name, &'static str),
    Detach(Name, &'static str),
    /// Nobody may read any more what the broker holds.
    Deny(usize),
    BrokerRestart {
        broker: usize,
        down_ms: u64,
        empty: bool,
    },
    BrokerHang {
        broker: usize,
        ms: u64,
    },
    BreakConnections(usize),
    /// It comes back empty, as every router does.
    RouterRestart {
        router: usize,
        down_ms: u64,
    },
    RouterHang {
        router: usize,
        ms: u64,
    },
    /// Every answer takes longer.
    RouterSlow {
        router: usize,
        by_ms: u64,
        ms: u64,
    },
    RouterCut(usize),
    /// Routers refuse everything about this name.
    RefuseRoute(Name, &'static str),
    RelentRoute(Name, &'static str),
    /// Somebody else makes a router address of this pattern.
    SquatRoute(Name, &'static str),
    UnsquatRoute(Name, &'static str),
    /// Somebody takes an entity away from a router, or changes it.
    Drift {
        router: usize,
        pick: u64,
        change: bool,
    },
    ConfigRouters(usize),
    Crash {
        replica: usize,
        down_ms: u64,
    },
    /// Right after so many more changes have been carried out.
    CrashAfter {
        changes: u64,
    },
    Stop {
        replica: usize,
        down_ms: u64,
    },
    ApiOutage(u64),
    CutWatches,
    /// Nobody can go on from where he was.
    Compact,
    StallWatches {
        replica: usize,
        ms: u64,
    },
    Snapshot,
    /// Back to the last snapshot; operators are started anew.
    Restore,
    /// Faults cease, everything comes to rest and is compared.
    Quiet,
    /// The same, then one cause is looked at by itself: no Address may be written for it.
    Measure(Cause),
}

/// What must not cost a single Address write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    OperatorRestart,
    Takeover,
    BrokerRestart {
        empty: bool,
    },
    BrokerOutage,
    Relist,
    /// Every router at once, or the first.
    RouterRestart {
        all: bool,
    },
    RouterOutage {
        all: bool,
    },
    RouterCut,
    /// What somebody does to the entity of this number is mended.
    Drift {
        pick: u64,
        change: bool,
    },
}

/// An action, and how long after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub wait_ms: u64,
    pub action: Action,
}

/// An installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub brokers: usize,
    /// None: spaces are of type brokered.
    pub routers: usize,
    /// One space is of type brokered though there are routers.
    pub mixed: bool,
    pub replicas: usize,
    /// The finalizer comes by admission.
    pub policy: bool,
    /// Lists come by the watch.
    pub stream: bool,
    pub page: u32,
    pub secret: bool,
    /// The first RouterConfig has tenancy Single.
    pub single: bool,
    /// There is a second RouterConfig with an owner of its own on the same brokers.
    pub second: bool,
    pub faults: Faults,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub setup: Setup,
    pub steps: Vec<Step>,
}

pub const NAMESPACES: [&str; 2] = ["red", "blue"];
pub const SPACES: [Name; 4] = [("red", "one"), ("red", "two"), ("blue", "one"), ("blue", "two")];
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// The first two are one address.
const PLACES: [&str; 7] = ["x.y", "x/y", "z", "t", "news", "dead", "late"];

impl Setup {
    /// Whether nothing ever fails by itself: then writes are counted exactly.
    pub fn calm(&self) -> bool {
        self.faults.api == 0 && self.faults.broker == 0
    }
}

impl Plan {
    /// What this seed decides where a bug is planted: schedules that give it its chance.
    pub fn with(lie: Lie, seed: u64) -> Self {
        let mut plan = if lie.needs_routers() { Self::decided(seed, true) } else { Self::of(seed) };
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
                let mut at = plan.steps.len();
                while at > 0 {
                    at = at.saturating_sub(random.within(4..8) as usize);
                    let both = [0, 1].map(|replica| Step { wait_ms: 0, action: Action::Crash { replica, down_ms: 0 } });
                    plan.steps.splice(at..at, both);
                }
            }
            // A router must have been filled, and go.
            Lie::EagerListener => plan.steps.push(measure(Cause::RouterRestart { all: true })),
            // A router must be connected again while something is left to do.
            Lie::ForgottenLinks | Lie::SkippedRemoval => {
                let mut at = plan.steps.len();
                while at > 0 {
                    at = at.saturating_sub(random.within(4..8) as usize);
                    let router = random.within(0..plan.setup.routers as u64) as usize;
                    let action = match lie {
                        Lie::ForgottenLinks => Action::RouterRestart { router, down_ms: 100 },
                        _ => Action::RouterCut(router),
                    };
                    plan.steps.insert(at, Step { wait_ms: 0, action });
                }
            }
            _ => {}
        }
        plan
    }

    /// What this seed decides: of every twelve, six have routers.
    pub fn of(seed: u64) -> Self {
        Self::decided(seed, (seed / 6).is_multiple_of(2))
    }

    fn decided(seed: u64, standard: bool) -> Self {
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
        Self { seed, setup, steps }
    }
}

/// How many names the schedule is about.
struct Focus {
    namespaces: usize,
    names: usize,
    /// What was asked for so far: space and address.
    made: Vec<(Name, &'static str)>,
}

impl Focus {
    fn remember(&mut self, action: Action) -> Action {
        if let Action::CreateAddress { name, space, address, .. } = action {
            self.made.push(((name.0, space), address));
        }
        action
    }

    /// A space, and an address in it: mostly one that was asked for, so that something is there.
    fn place(&self, random: &mut Random) -> (Name, &'static str) {
        if !self.made.is_empty() && random.chance(750) {
            return random.one_of(&self.made);
        }
        (random.one_of(&SPACES[..self.namespaces * 2]), random.one_of(&PLACES))
    }
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
    }
}
