//! What a seed decides on top: plans and moves, routers of a Service, endpoints of spaces; whether there are remote hosts.

use crate::choice::Focus;
use crate::plan::{Action, SPACES, Setup, Step};
use crate::random::Random;

/// What an installation has of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newer {
    pub planned: bool,
    pub followed: bool,
    pub exposed: bool,
    pub remote: bool,
}

impl Newer {
    /// Of five seeds with routers, two have some of it; of seven, two have connectors.
    pub fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x7e3a);
        let some = matches!(seed % 5, 1 | 3);
        Self {
            planned: some && random.chance(700),
            followed: some && random.chance(400),
            exposed: some && random.chance(400),
            remote: matches!(seed % 7, 1 | 2),
        }
    }

    /// Adds it to a schedule.
    pub fn add_to(self, setup: &mut Setup, steps: &mut Vec<Step>, focus: &Focus, random: &mut Random) {
        if self.followed {
            setup.routers = random.one_of(&[1, 2, 3, 5]);
        }
        if self.planned {
            setup.brokers = if random.chance(800) { 2 } else { 1 };
            for step in steps.iter_mut() {
                if let Action::CreateAddress { kind, plan, .. } = &mut step.action {
                    let fits: &[_] = if *kind == "queue" { &["one", "two", "two"] } else { &["one"] };
                    let named = random.one_of(fits);
                    *plan = match random.within(0..20) {
                        0 => None,
                        1 => Some("lost"),
                        2 => Some("two"),
                        _ => Some(named),
                    };
                }
            }
        }
        let mut more: Vec<Action> = Vec::new();
        for _ in 0..random.within(3..12) {
            let action = match random.within(0..3) {
                0 if self.planned => terms(setup, focus, random),
                1 if self.followed => Action::ConfigRouters(random.within(1..setup.routers as u64 + 1) as usize),
                2 if self.exposed => endpoints(focus, random),
                _ => continue,
            };
            more.push(action);
        }
        if self.planned {
            // What moves shall have something to wait for.
            more.extend((0..random.within(0..6)).map(|_| {
                let (space, place) = focus.place(random);
                Action::Send(space, place, 2)
            }));
        }
        if self.exposed {
            more.extend(SPACES.map(|space| Action::Endpoints(space, random.within(0..3) as usize)));
        }
        for action in more {
            // Not before there is anything.
            let at = random.within(SPACES.len() as u64..steps.len() as u64 + 1) as usize;
            let wait_ms = random.one_of(&[0, 5, 40, 700, 3_000]);
            steps.insert(at.min(steps.len()), Step { wait_ms, action });
        }
    }
}

fn terms(setup: &Setup, focus: &Focus, random: &mut Random) -> Action {
    let broker = random.within(0..setup.brokers as u64) as usize;
    match random.within(0..10) {
        0..4 => Action::ChangePlan(focus.name(random), random.one_of(&["one", "two", "two", "lost"])),
        4..8 if setup.brokers > 1 => Action::DrainBroker { broker, drain: random.chance(600) },
        8 => Action::ChangeSpacePlan(focus.place(random).0, random.one_of(&["tight", "wide"])),
        _ => Action::ConfigPlans { partitions: random.within(1..3), room: random.within(1..4) },
    }
}

fn endpoints(focus: &Focus, random: &mut Random) -> Action {
    match random.within(0..10) {
        0..6 => Action::Endpoints(focus.place(random).0, random.within(0..3) as usize),
        _ => Action::ServiceByHand { pick: random.next(), change: random.chance(500) },
    }
}
