//! From a schedule that fails to a short one that still does.

use crate::seeds::Schedule;

/// Leaves out what is not needed to fail: halves first, then single steps; then simplifies what is left.
pub fn shrink<S: Schedule>(plan: &S, lie: Option<S::Lie>) -> S {
    // Another fault that comes up on the way is another story.
    let kind =
        |plan: &S| plan.run(lie, false).violations.first().map(|first| first.split(' ').next().map(str::to_owned));
    let whole = kind(plan);
    let fails = |plan: &S| whole.is_some() && kind(plan) == whole;
    let mut best = plan.clone();
    let mut size = best.steps().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.steps() {
            let mut shorter = best.clone();
            shorter.cut(at..(at + size).min(best.steps()));
            if fails(&shorter) {
                best = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    for simplify in S::SIMPLER {
        let mut simple = best.clone();
        simplify(&mut simple);
        if simple != best && fails(&simple) {
            best = simple;
        }
    }
    best
}
