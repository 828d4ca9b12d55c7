//! Schedules of edges, as seeds are run.

use super::lies::Lie;
use super::plan::Plan;
use super::run::run;
use crate::seeds::{Outcome, Schedule};

impl Schedule for Plan {
    type Lie = Lie;
    const FLAG: &'static str = "--edge ";
    const KNOWN: &'static str = include_str!("seeds.txt");
    const SIMPLER: &'static [fn(&mut Self)] = &[
        |plan| plan.setup.faults.api = 0,
        |plan| plan.setup.faults.haproxy = 0,
        |plan| plan.setup.faults.disk = 0,
        |plan| plan.setup.agents = 1,
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
