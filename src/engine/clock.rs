//! Time as the loops see it: monotonic time is tokio's, so that tests can pause it; unix time is injected.

use tokio::time::Instant;

/// Unix time, for timestamps that people read. Waiting never uses it.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970.
    fn unix_micros(&self) -> i64;

    /// Seconds since 1970.
    fn unix_s(&self) -> i64 {
        self.unix_micros().div_euclid(1_000_000)
    }
}

/// A moment handed to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Monotonic milliseconds since `Stopwatch` began.
    pub mono_ms: u64,
    /// Seconds since 1970.
    pub unix_s: i64,
}

/// Turns tokio's instants into the milliseconds that a model counts in, and back.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
}

impl Stopwatch {
    /// Counts from now.
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// Milliseconds since the start.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant of a number of milliseconds since the start.
    pub fn instant(&self, mono_ms: u64) -> Instant {
        self.began + std::time::Duration::from_millis(mono_ms)
    }
}
