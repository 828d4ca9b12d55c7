//! What every world is built around: a clock, an API server with what goes wrong on the way to it, and what is remembered
//! for judging. A world is its stage, and more.

use std::collections::BTreeMap;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::lock;
use crate::api::store::Store;
use crate::random::Random;
use crate::seeds::Outcome;
use crate::trace::Trace;

/// See the module. `L` are the bugs that can be planted.
pub struct Stage<L> {
    pub began: Instant,
    pub api: Store,
    pub random: Random,
    pub trace: Trace,
    pub violations: Vec<String>,
    /// What schedules are to bring about, and how often it was seen.
    pub seen: BTreeMap<String, u64>,
    /// Rises when every watch is cut.
    pub cuts: u64,
    pub api_down_until: Instant,
    /// Until then what went wrong may have consequences: somebody waits for an answer, or before he tries again.
    pub trouble_until: Instant,
    /// What watches of a replica show waits until then.
    pub stalls: BTreeMap<usize, Instant>,
    /// When anything was last changed by those who are judged.
    pub last_act: Instant,
    /// Somebody is to be killed now.
    pub crash: Arc<Notify>,
    pub lie: Option<L>,
    lied: bool,
}

impl<L: Copy + PartialEq> Stage<L> {
    /// Of a seed; `policy`: the API server adds finalizers by itself.
    pub fn new(seed: u64, policy: bool, lie: Option<L>, keep_trace: bool) -> Self {
        Self {
            began: Instant::now(),
            api: Store::new(policy),
            random: Random::new(seed ^ 0x5eed),
            trace: Trace::new(keep_trace),
            violations: Vec::new(),
            seen: BTreeMap::new(),
            cuts: 0,
            api_down_until: Instant::now(),
            trouble_until: Instant::now(),
            stalls: BTreeMap::new(),
            last_act: Instant::now(),
            crash: Arc::default(),
            lie,
            lied: false,
        }
    }

    pub fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }

    /// Something that schedules are to bring about was seen.
    pub fn saw(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    pub fn note(&mut self, line: &str) {
        let now = self.now_us();
        self.trace.note(now, line);
    }

    pub fn violated(&mut self, what: String) {
        self.note(&format!("VIOLATION {what}"));
        self.violations.push(what);
    }

    pub fn lies(&self, lie: L) -> bool {
        self.lie == Some(lie)
    }

    /// Whether this is the one time that the lie is told.
    pub fn lies_once(&mut self, lie: L) -> bool {
        let now = self.lies(lie) && !self.lied;
        self.lied |= now;
        now
    }

    pub fn some_ms(&mut self, longest: u64) -> Duration {
        Duration::from_micros(self.random.within(200..longest.max(1) * 1000 + 201))
    }

    pub fn api_is_down(&self) -> bool {
        self.api_down_until > Instant::now()
    }

    /// Something went wrong whose consequences may last so long.
    pub fn trouble(&mut self, seconds: u64) {
        self.trouble_until = self.trouble_until.max(Instant::now() + Duration::from_secs(seconds));
    }

    pub fn stalled_until(&self, replica: usize) -> Instant {
        self.stalls.get(&replica).copied().unwrap_or(self.began)
    }

    fn outcome(&mut self) -> Outcome {
        Outcome {
            violations: std::mem::take(&mut self.violations),
            hash: self.trace.hash(),
            lines: self.trace.count(),
            seen: std::mem::take(&mut self.seen),
            trace: self.trace.take_lines(),
        }
    }
}

/// Tells a story in a world, on a clock of its own.
pub fn play<W, L>(world: impl FnOnce() -> W, story: impl AsyncFnOnce(&Arc<Mutex<W>>)) -> Outcome
where
    W: DerefMut<Target = Stage<L>>,
    L: Copy + PartialEq,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let world = runtime.block_on(async {
        let world = Arc::new(Mutex::new(world()));
        story(&world).await;
        world
    });
    drop(runtime);
    lock(&world).outcome()
}
