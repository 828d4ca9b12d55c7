//! From a schedule that fails to a short one that still does.

use crate::lies::Lie;
use crate::plan::Plan;
use crate::run::run;

/// Leaves out what is not needed to fail: halves first, then single steps; then quickens what is left.
pub fn shrink(plan: &Plan, lie: Option<Lie>) -> Plan {
    // Another fault that comes up on the way is another story.
    let kind =
        |plan: &Plan| run(plan, lie, false).violations.first().map(|first| first.split(' ').next().map(str::to_owned));
    let whole = kind(plan);
    let fails = |plan: &Plan| whole.is_some() && kind(plan) == whole;
    let mut best = plan.clone();
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut shorter = best.clone();
            let end = (at + size).min(shorter.steps.len());
            shorter.steps.drain(at..end);
            if fails(&shorter) {
                best = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let simpler: [fn(&mut Plan); 15] = [
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
    for simplify in simpler {
        let mut simple = best.clone();
        simplify(&mut simple);
        if simple != best && fails(&simple) {
            best = simple;
        }
    }
    best
}
