//! Whether the loops still move: each one says when it begins a piece of work and when it waits again. A loop that has
//! been at one piece for longer than a limit is stuck, and `/livez` names it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

type Since = Mutex<Option<Instant>>;
type Named = (&'static str, Arc<Since>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All loops of a process.
#[derive(Clone, Debug, Default)]
pub struct Pulses(Arc<Mutex<Vec<Named>>>);

/// One loop's.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Since>);

/// A piece of work; over when dropped.
#[derive(Debug)]
pub struct Working<'a>(&'a Pulse);

impl Pulses {
    /// A pulse for a loop of this name. It is forgotten when the last clone is gone.
    pub fn of(&self, name: &'static str) -> Pulse {
        let since = Arc::new(Since::default());
        let mut all = lock(&self.0);
        all.retain(|(_, since)| Arc::strong_count(since) > 1);
        all.push((name, Arc::clone(&since)));
        Pulse(since)
    }

    /// The names of loops that have been at one piece of work for longer than `limit`.
    pub fn stuck(&self, limit: Duration) -> Vec<&'static str> {
        lock(&self.0)
            .iter()
            .filter(|(_, since)| lock(since).is_some_and(|since| since.elapsed() > limit))
            .map(|(name, _)| *name)
            .collect()
    }
}

impl Pulse {
    /// Begins a piece of work.
    pub fn working(&self) -> Working<'_> {
        *lock(&self.0) = Some(Instant::now());
        Working(self)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_the_loop_that_is_stuck_and_no_other() {
        let pulses = Pulses::default();
        let (model, writer) = (pulses.of("model"), pulses.of("writer"));
        let stuck = model.working();
        drop(writer.working());
        tokio::time::advance(Duration::from_secs(121)).await;
        assert_eq!(pulses.stuck(Duration::from_secs(120)), ["model"]);
        drop(stuck);
        assert!(pulses.stuck(Duration::from_secs(120)).is_empty());
    }
}
