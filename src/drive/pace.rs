//! How many jobs are under way at a time: as many as the broker answers quickly.
//!
//! A broker carries management operations out one after another, so that what is in flight beyond what keeps it busy
//! only waits there: a new address behind it, and in the end beyond the deadline of a command.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Answers that take longer say that too much is in flight.
const PROMPT: Duration = Duration::from_millis(100);
/// However slow the broker is.
const LEAST: f64 = 4.0;
/// To begin with.
const FIRST: f64 = 8.0;
/// What is left of the window after a slow answer.
const CUT: f64 = 0.75;

/// The window of one drive, kept from session to session: grows with each prompt answer, and is cut by slow ones.
#[derive(Debug)]
pub struct Pace {
    most: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: f64,
    /// Commands sent before this were sent with the larger window, and their slowness is no news.
    cut_at: Option<Instant>,
}

impl Pace {
    /// A window of at most `most`.
    pub fn new(most: usize) -> Self {
        let most = most.max(1) as f64;
        Self { most, state: Mutex::new(State { window: FIRST.min(most), cut_at: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs that may be under way now.
    pub fn window(&self) -> usize {
        self.state().window as usize
    }

    /// A command sent at `sent` was answered now.
    pub fn answered(&self, sent: Instant) {
        let now = Instant::now();
        let mut state = self.state();
        if now - sent <= PROMPT {
            // Doubling with each round until it was too much once, then slowly.
            let step = if state.cut_at.is_none() { 1.0 } else { 4.0 / state.window };
            state.window = (state.window + step.min(1.0)).min(self.most);
        } else if state.cut_at.is_none_or(|cut_at| sent >= cut_at) {
            state.window = (state.window * CUT).max(LEAST.min(self.most));
            state.cut_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn prompt_answers_widen_and_slow_ones_narrow_once_for_what_was_in_flight() {
        let pace = Pace::new(100);
        for _ in 0..200 {
            pace.answered(Instant::now());
        }
        assert_eq!(pace.window(), 100);
        let sent = Instant::now();
        advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            pace.answered(sent);
        }
        assert_eq!(pace.window(), 75);
        for _ in 0..50 {
            let sent = Instant::now();
            advance(Duration::from_secs(1)).await;
            pace.answered(sent);
        }
        assert_eq!(pace.window(), 4);
        assert_eq!(Pace::new(1).window(), 1);
    }
}
