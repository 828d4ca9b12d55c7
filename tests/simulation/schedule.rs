//! The operator's schedules, as seeds are run.

use crate::lies::Lie;
use crate::plan::Plan;
use crate::run::run;
use crate::seeds::{Outcome, Schedule};

impl Schedule for Plan {
    type Lie = Lie;
    const FLAG: &'static str = "";
    const KNOWN: &'static str = include_str!("seeds.txt");
    const SIMPLER: &'static [fn(&mut Self)] = &[
        |plan| plan.setup.remote = false,
        |plan| plan.setup.exposed = false,
        |plan| plan.setup.followed = false,
        |plan| plan.setup.planned = false,
        |plan| plan.setup.second = false,
        |plan| plan.setup.single = false,
        |plan| plan.setup.faults.api = 0,
        |plan| plan.setup.faults.broker = 0,
        |plan| plan.setup.faults.router = 0,
        |plan| plan.setup.routers = plan.setup.routers.min(1),
        |plan| plan.setup.mixed = false,
        |plan| plan.setup.replicas = 1,
        |plan| plan.setup.brokers = 1,
        |plan| plan.setup.secret = false,
        |plan| plan.setup.stream = false,
    ];

    fn of(seed: u64) -> Self {
        Plan::decide(seed)
    }

    fn with(lie: Lie, seed: u64) -> Self {
        Plan::against(lie, seed)
    }

    fn lie(name: &str) -> Lie {
        Lie::parse(name)
    }

    fn run(&self, lie: Option<Lie>, keep_trace: bool) -> Outcome {
        run(self, lie, keep_trace)
    }
}
