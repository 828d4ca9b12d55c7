//! Many seeds at a time, and what is said of one that fails.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lies::Lie;
use crate::plan::Plan;
use crate::run::run;
use crate::shrink::shrink;

/// Seeds that failed once.
pub fn known() -> Vec<u64> {
    let lines = include_str!("seeds.txt").lines().filter_map(|line| line.split('#').next());
    lines.map(str::trim).filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect()
}

/// Runs a range of seeds on all cores; panics with the first that fails.
pub fn all(seeds: Range<u64>) {
    each(&seeds.collect::<Vec<_>>());
}

/// Runs these seeds on all cores; panics with the first that fails.
pub fn each(seeds: &[u64]) {
    let failed = failing(seeds);
    if let Some(seed) = failed.first() {
        panic!("{} of {} seeds fail: {failed:?}\n{}", failed.len(), seeds.len(), explain(*seed));
    }
}

fn failing(seeds: &[u64]) -> Vec<u64> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let seen = Mutex::new(BTreeMap::<String, u64>::new());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let plan = Plan::of(*seed);
                    let outcome = std::panic::catch_unwind(|| run(&plan, None, false));
                    let violations = match outcome {
                        Ok(outcome) => {
                            let mut seen = seen.lock().unwrap();
                            for (what, count) in outcome.seen {
                                *seen.entry(what).or_default() += count;
                            }
                            outcome.violations
                        }
                        Err(_) => vec!["the simulation panicked".to_owned()],
                    };
                    if let Some(first) = violations.first() {
                        println!("seed {seed}: {first}");
                        failed.lock().unwrap().push(*seed);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort_unstable();
    if std::env::var("SIMULATE_STATS").is_ok() {
        for (what, count) in seen.into_inner().unwrap() {
            println!("{count:>8}  {what}");
        }
    }
    failed
}

/// The first seeds, as many as `enough`, that find a planted bug.
pub fn catching(lie: Lie, seeds: Range<u64>, enough: usize) -> Vec<u64> {
    let finds = |seed: &u64| !run(&Plan::with(lie, *seed), Some(lie), false).violations.is_empty();
    seeds.filter(finds).take(enough).collect()
}

/// The shortest schedule of a seed that still fails, in words.
pub fn explain(seed: u64) -> String {
    let short = shrink(&Plan::of(seed), None);
    let outcome = run(&short, None, false);
    let mut text = format!("seed {seed}: {}\nwith {:?}\n", outcome.violations.join("\n  "), short.setup);
    for step in &short.steps {
        text.push_str(&format!("  after {:>6} ms  {:?}\n", step.wait_ms, step.action));
    }
    text.push_str(&format!("again with: dev/simulate --seed {seed}\n"));
    text
}

/// What `dev/simulate` asks for.
pub fn from_environment() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let lie = std::env::var("SIMULATE_LIE").ok().map(|name| Lie::parse(&name));
    if let Some(seed) = number("SIMULATE_SEED") {
        let plan = lie.map_or_else(|| Plan::of(seed), |lie| Plan::with(lie, seed));
        let short = std::env::var("SIMULATE_SHRINK").is_ok();
        let plan = if short { shrink(&plan, lie) } else { plan };
        println!("{:?}", plan.setup);
        let outcome = run(&plan, lie, true);
        for line in outcome.trace {
            println!("{line}");
        }
        for step in &plan.steps {
            println!("  after {:>6} ms  {:?}", step.wait_ms, step.action);
        }
        assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
        println!("seed {seed} holds");
        return;
    }
    let (from, count) = (number("SIMULATE_FROM").unwrap_or(0), number("SIMULATE_SEEDS").unwrap_or(1_000));
    if let Some(lie) = lie {
        let caught = catching(lie, from..from + count, usize::MAX);
        println!("{lie:?} is found by {} of {count} seeds from {from}: {caught:?}", caught.len());
        return;
    }
    let began = std::time::Instant::now();
    let seeds: Vec<u64> = (from..from + count).collect();
    let failed = failing(&seeds);
    println!(
        "{count} seeds from {from} in {:.1} s, {} failed: {failed:?}",
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    for seed in failed.iter().take(number("SIMULATE_EXPLAIN").unwrap_or(5) as usize) {
        println!("\n{}", explain(*seed));
    }
    assert!(failed.is_empty());
}
