//! How a seed decides.

use super::lies::Lie;
use super::plan::{Action, NAMESPACES, Name, Options, Plan, Setup, Step};
use super::world::Faults;
use crate::random::Random;

const INGRESSES: [&str; 3] = ["i0", "i1", "i2"];
const SERVICES: [&str; 2] = ["web", "api"];
const SLICES: [(&str, &str); 3] = [("web-0", "web"), ("web-1", "web"), ("api-0", "api")];
const SECRETS: [&str; 2] = ["s0", "s1"];
const HOSTS: [&str; 6] = ["h.com", "h.com", "x.h.com", "*.h.com", "p.com", ""];
const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/c"];
const KINDS: [&str; 3] = ["Prefix", "Prefix", "Exact"];
const TARGETS: [&str; 5] = ["web:80", "web:http", "api:80", "api:81", "none:80"];
const OPTIONS: [(&str, &str); 16] = [
    ("allow-list", "10.0.0.0/8"),
    ("deny-list", "1.2.3.4"),
    ("auth-secret", "s0"),
    ("auth-tls-secret", "s1"),
    ("ssl-passthrough", "true"),
    ("ssl-redirect", "false"),
    ("hsts", "true"),
    ("balance", "leastconn"),
    ("affinity", "cookie"),
    ("backend-protocol", "https"),
    ("secure-verify-ca-secret", "s1"),
    ("service-upstream", "true"),
    ("cors-enable", "true"),
    ("rewrite-target", "/z"),
    ("maxconn-server", "7"),
    ("timeout-server", "3s"),
];
const REFUSED: [&str; 9] = [
    "add backend",
    "add server",
    "add map",
    "set map",
    "del map",
    "set ssl cert",
    "add ssl crt-list",
    "del server",
    "commit",
];

fn name(random: &mut Random, names: &[&'static str]) -> Name {
    (random.one_of(&NAMESPACES), random.one_of(names))
}

fn options(random: &mut Random) -> Options {
    (0..random.within(0..4).saturating_sub(1)).map(|_| random.one_of(&OPTIONS)).collect()
}

impl Plan {
    /// What this seed decides where a bug is planted: schedules that give it its chance.
    pub fn against(lie: Lie, seed: u64) -> Self {
        let mut plan = Self::decided(seed);
        let random = &mut Random::new(seed ^ 0x11e5);
        let agents = plan.setup.agents as u64;
        let often = |plan: &mut Self, random: &mut Random, action: &mut dyn FnMut(&mut Random) -> Action| {
            let mut at = plan.steps.len();
            while at > 0 {
                at = at.saturating_sub(random.within(2..5) as usize);
                let action = action(random);
                plan.steps.insert(at, Step { wait_ms: 0, action });
            }
        };
        let one = |random: &mut Random| random.within(0..agents) as usize;
        match lie {
            // What is refused must have been acknowledged, and nothing else bring it back.
            Lie::EarlyAnswer => {
                plan.of_people_alone();
                let refuse = |random: &mut Random| {
                    let what = random.one_of(&["add server", "add map", "set map", "del map"]);
                    Action::RefuseNext { machine: one(random), what }
                };
                often(&mut plan, random, &mut |random| refuse(random));
            }
            // Endpoints must go while requests are with them.
            Lie::PhantomRemoval => {
                plan.of_people_alone();
                often(&mut plan, random, &mut |random| Action::Busy { machine: one(random), ms: 60_000 });
                often(&mut plan, random, &mut |random| endpoints(random));
            }
            Lie::ForgottenPublish => {
                often(&mut plan, random, &mut |random| Action::Crash { agent: one(random), down_ms: 0 });
            }
            // Two must want the Lease within moments of each other.
            Lie::BlindLease => {
                plan.setup.agents = 2;
                plan.setup.faults.latency_ms = 40;
                plan.begin_at_once(random, |agent| Action::Crash { agent, down_ms: 0 });
            }
            _ => {}
        }
        plan
    }

    /// Without faults of any kind, which have everything read anew: what is missing then is found and repaired.
    pub fn of_people_alone(&mut self) {
        self.setup.faults = Faults { watch_ms: 20, latency_ms: 5, ..Faults::default() };
        self.steps.retain(|step| step.action.is_of_people());
    }

    /// What this seed decides.
    pub fn decide(seed: u64) -> Self {
        Self::decided(seed)
    }

    fn decided(seed: u64) -> Self {
        let random = &mut Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0xed6e);
        let flavour = random.within(0..8);
        let rate = |on: bool, random: &mut Random| if on { random.one_of(&[20, 60]) } else { 0 };
        let faults = Faults {
            api: rate(flavour & 1 != 0, random),
            haproxy: rate(flavour & 2 != 0, random),
            disk: rate(flavour & 4 != 0, random),
            watch_ms: random.one_of(&[1, 20, 300]),
            latency_ms: random.one_of(&[1, 5, 40]),
        };
        let setup = Setup {
            agents: if random.chance(300) { 2 } else { 1 },
            stream: random.chance(250),
            page: random.one_of(&[2, 500]),
            faults,
        };
        let mut steps = Vec::new();
        let mut number = 1;
        for _ in 0..random.within(10..50) {
            let action = action(random, setup.agents, &mut number);
            let wait_ms = match random.within(0..10) {
                0..5 => random.within(0..8),
                5..9 => random.within(0..300),
                _ => random.within(0..6_000),
            };
            steps.push(Step { wait_ms, action });
        }
        Self { seed, setup, steps }
    }
}

fn action(random: &mut Random, agents: usize, number: &mut u64) -> Action {
    let one = random.within(0..agents as u64) as usize;
    match random.within(0..100) {
        0..22 => Action::PutIngress {
            name: name(random, &INGRESSES),
            class: if random.chance(850) { "waystation" } else { "second" },
            host: random.one_of(&HOSTS),
            paths: (0..random.within(1..4))
                .map(|_| (random.one_of(&PATHS), random.one_of(&KINDS), random.one_of(&TARGETS)))
                .collect(),
            secret: random.chance(500).then(|| random.one_of(&SECRETS)),
            options: options(random),
        },
        22..28 => Action::DeleteIngress(name(random, &INGRESSES)),
        28..38 => Action::PutService(name(random, &SERVICES), options(random)),
        38..41 => Action::DeleteService(name(random, &SERVICES)),
        41..57 => endpoints(random),
        57..59 => {
            let (slice, _) = random.one_of(&SLICES);
            Action::DeleteSlice((random.one_of(&NAMESPACES), slice))
        }
        59..64 => {
            *number += 1;
            Action::PutSecret(name(random, &SECRETS), *number)
        }
        64..65 => Action::DeleteSecret(name(random, &SECRETS)),
        65..67 => Action::PutClass(random.chance(700)),
        67 => Action::DeleteClass,
        68 => Action::LabelNamespace(random.one_of(&NAMESPACES), random.chance(600)),
        69 => Action::ConfigAllowed(random.chance(500)),
        70 => match random.within(0..4) {
            0 => Action::ConfigOption("balance", random.chance(500).then_some("leastconn")),
            1 => Action::ConfigPublish(random.within(1..4)),
            2 => Action::ConfigDefaultCertificate(random.chance(600)),
            _ => Action::ConfigOwnership(random.chance(500)),
        },
        71 => Action::ConfigThreads(random.within(1..4)),
        72..75 => fault_of_agent(random, one),
        75..80 => fault_of_process(random, one),
        80..84 => Action::Busy { machine: one, ms: random.within(10..4_000) },
        84..87 => Action::DiskFull { machine: one, ms: random.within(1..3_000) },
        87..90 => Action::DiskSlow { machine: one, ms: random.within(100..3_000) },
        90 => Action::RefuseNext { machine: one, what: random.one_of(&REFUSED) },
        91 => Action::Refuse { machine: one, number: *number + 1 },
        92 => Action::Litter { machine: one, pick: random.next() },
        93 => Action::Drift { machine: one, pick: random.next() },
        94 => Action::ApiOutage(random.within(100..12_000)),
        95 => Action::CutWatches,
        96 => Action::Compact,
        97 => Action::StallWatches { agent: one, ms: random.within(100..8_000) },
        _ => Action::Quiet,
    }
}

fn endpoints(random: &mut Random) -> Action {
    let (slice, service) = random.one_of(&SLICES);
    let endpoints = (1..7).filter(|_| random.chance(350)).collect::<Vec<u8>>();
    let endpoints = endpoints.into_iter().map(|n| (n, random.one_of(&["ready", "ready", "drain", "unready"])));
    let endpoints = endpoints.collect();
    Action::PutSlice { name: (random.one_of(&NAMESPACES), slice), service, endpoints }
}

fn fault_of_agent(random: &mut Random, agent: usize) -> Action {
    match random.within(0..3) {
        0 => Action::Crash { agent, down_ms: random.one_of(&[0, 30, 5_000]) },
        1 => Action::CrashAfter { agent, changes: random.within(1..12) },
        _ => Action::Stop { agent, down_ms: random.one_of(&[0, 1_000]) },
    }
}

fn fault_of_process(random: &mut Random, machine: usize) -> Action {
    match random.within(0..5) {
        0 => Action::Kill { machine, down_ms: random.one_of(&[3, 40, 2_000]) },
        1 | 2 => Action::KillAfter { machine, changes: random.within(1..12) },
        3 => Action::Reload(machine),
        _ => Action::Cut(machine),
    }
}
