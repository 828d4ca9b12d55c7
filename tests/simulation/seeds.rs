//! Many seeds at a time, and what is said of one that fails.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;
use crate::shrink::shrink;

/// What came of a run.
pub struct Outcome {
    pub violations: Vec<String>,
    pub hash: u64,
    pub trace: Vec<String>,
    pub lines: u64,
    /// What schedules are to bring about, and how often it was seen.
    pub seen: BTreeMap<String, u64>,
}

/// One thing that happens, so long after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<A> {
    pub wait_ms: u64,
    pub action: A,
}

/// All that a seed decides: the installation, and what happens in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<S, A> {
    pub seed: u64,
    pub setup: S,
    pub steps: Vec<Step<A>>,
}

impl<S, A> Plan<S, A> {
    /// Now and then both of two begin anew, so that both want the Lease within moments of each other.
    pub fn begin_at_once(&mut self, random: &mut Random, anew: impl Fn(usize) -> A) {
        let mut at = self.steps.len();
        while at > 0 {
            at = at.saturating_sub(random.within(4..8) as usize);
            self.steps.splice(at..at, [0, 1].map(|which| Step { wait_ms: 0, action: anew(which) }));
        }
    }
}

/// What a plan is cut down by, and told in.
pub trait Steps {
    fn steps(&self) -> usize;
    fn cut(&mut self, steps: Range<usize>);
    /// The installation, and each step, in words.
    fn words(&self) -> (String, Vec<String>);
}

impl<S: Debug, A: Debug> Steps for Plan<S, A> {
    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn cut(&mut self, steps: Range<usize>) {
        self.steps.drain(steps);
    }

    fn words(&self) -> (String, Vec<String>) {
        let step = |step: &Step<A>| format!("after {:>6} ms  {:?}", step.wait_ms, step.action);
        (format!("{:?}", self.setup), self.steps.iter().map(step).collect())
    }
}

/// What a seed decides, in a world of its kind.
pub trait Schedule: Steps + Clone + PartialEq + Sync + 'static {
    /// Bugs that can be planted there.
    type Lie: Copy + Debug;
    /// What `dev/simulate` must be told to mean this kind.
    const FLAG: &'static str;
    /// Seeds that failed once: one a line.
    const KNOWN: &'static str;
    /// What leaves something out that may not be needed to fail.
    const SIMPLER: &'static [fn(&mut Self)];

    /// Of a seed.
    fn of(seed: u64) -> Self;
    /// Of a seed, where a bug is planted: one that gives it its chance.
    fn with(lie: Self::Lie, seed: u64) -> Self;
    /// A bug by its name in the code.
    fn lie(name: &str) -> Self::Lie;
    /// The first violation ends it.
    fn run(&self, lie: Option<Self::Lie>, keep_trace: bool) -> Outcome;
}

/// Seeds that failed once.
pub fn known<S: Schedule>() -> Vec<u64> {
    let lines = S::KNOWN.lines().filter_map(|line| line.split('#').next());
    lines.map(str::trim).filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect()
}

/// Runs a range of seeds on all cores; panics with the first that fails.
pub fn all<S: Schedule>(seeds: Range<u64>) {
    each::<S>(&seeds.collect::<Vec<_>>());
}

/// Runs these seeds on all cores; panics with the first that fails.
pub fn each<S: Schedule>(seeds: &[u64]) {
    let failed = failing::<S>(seeds);
    if let Some(seed) = failed.first() {
        panic!("{} of {} seeds fail: {failed:?}\n{}", failed.len(), seeds.len(), explain::<S>(*seed));
    }
}

/// A seed repeats to the last line.
pub fn repeat<S: Schedule>(seeds: Range<u64>) {
    for seed in seeds {
        let plan = S::of(seed);
        let (once, again) = (plan.run(None, true), plan.run(None, true));
        assert!(once.lines > 50, "seed {seed}: nothing happens");
        let differs = once.trace.iter().zip(&again.trace).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((once.hash, once.lines), (again.hash, again.lines), "seed {seed}");
    }
}

fn failing<S: Schedule>(seeds: &[u64]) -> Vec<u64> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let seen = Mutex::new(BTreeMap::<String, u64>::new());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let outcome = std::panic::catch_unwind(|| S::of(*seed).run(None, false));
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

/// Schedules within which every planted bug must be found, and in how many of them at least.
const ENOUGH: (Range<u64>, usize) = (0..200, 3);

/// A planted bug is found.
pub fn found<S: Schedule>(lie: S::Lie) {
    let (within, enough) = ENOUGH;
    let caught = catching::<S>(lie, within.clone(), enough);
    assert!(caught.len() >= enough, "{lie:?} was found by {caught:?} alone of seeds {within:?}");
}

/// A planted bug is found, and first of all by what says this of it.
pub fn found_saying<S: Schedule>(lie: S::Lie, words: &str) {
    let (within, enough) = ENOUGH;
    let says = |seed: &u64| {
        let violations = S::with(lie, *seed).run(Some(lie), false).violations;
        violations.iter().any(|violation| violation.contains(words))
    };
    let caught: Vec<u64> = within.clone().filter(says).take(enough).collect();
    assert!(caught.len() >= enough, "{lie:?} was found to be {words:?} by {caught:?} alone of seeds {within:?}");
}

/// The first seeds, as many as `enough`, that find a planted bug.
fn catching<S: Schedule>(lie: S::Lie, seeds: Range<u64>, enough: usize) -> Vec<u64> {
    let finds = |seed: &u64| !S::with(lie, *seed).run(Some(lie), false).violations.is_empty();
    seeds.filter(finds).take(enough).collect()
}

/// The shortest schedule of a seed that still fails, in words.
fn explain<S: Schedule>(seed: u64) -> String {
    let short = shrink(&S::of(seed), None);
    let outcome = short.run(None, false);
    let (setup, steps) = short.words();
    let mut text = format!("seed {seed}: {}\nwith {setup}\n", outcome.violations.join("\n  "));
    for step in steps {
        text.push_str(&format!("  {step}\n"));
    }
    text.push_str(&format!("again with: dev/simulate {}--seed {seed}\n", S::FLAG));
    text
}

/// What `dev/simulate` asks for.
pub fn from_environment<S: Schedule>() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let lie = std::env::var("SIMULATE_LIE").ok().map(|name| S::lie(&name));
    if let Some(seed) = number("SIMULATE_SEED") {
        let plan = lie.map_or_else(|| S::of(seed), |lie| S::with(lie, seed));
        let short = std::env::var("SIMULATE_SHRINK").is_ok();
        let plan = if short { shrink(&plan, lie) } else { plan };
        let (setup, steps) = plan.words();
        println!("{setup}");
        let outcome = plan.run(lie, true);
        for line in outcome.trace {
            println!("{line}");
        }
        for step in steps {
            println!("  {step}");
        }
        assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
        println!("seed {seed} holds");
        return;
    }
    let (from, count) = (number("SIMULATE_FROM").unwrap_or(0), number("SIMULATE_SEEDS").unwrap_or(1_000));
    if let Some(lie) = lie {
        let caught = catching::<S>(lie, from..from + count, usize::MAX);
        println!("{lie:?} is found by {} of {count} seeds from {from}: {caught:?}", caught.len());
        return;
    }
    let began = std::time::Instant::now();
    let seeds: Vec<u64> = (from..from + count).collect();
    let failed = failing::<S>(&seeds);
    println!(
        "{count} seeds from {from} in {:.1} s, {} failed: {failed:?}",
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    for seed in failed.iter().take(number("SIMULATE_EXPLAIN").unwrap_or(5) as usize) {
        println!("\n{}", explain::<S>(*seed));
    }
    assert!(failed.is_empty());
}
