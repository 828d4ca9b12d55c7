//! How far an agent is: shared by those who bring it forward, `/readyz`, and the look at the exporter.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::edge::input::RouterConfig;

/// Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    config: Option<Arc<RouterConfig>>,
    /// Something was wanted of HAProxy.
    begun: bool,
    /// All that was wanted was in force once, but for what needs a reload.
    applied: bool,
    /// What HAProxy's state is, where that is not good.
    trouble: Option<String>,
    /// Batches that are on their way, with the time of their first event; at most [`UNDER_WAY`].
    under_way: VecDeque<(u64, Instant)>,
}

/// Batches that are told apart: while HAProxy is away, or refuses to be reloaded, they go on to come.
const UNDER_WAY: usize = 1024;

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was sent to the drive.
    pub fn sent(&self, generation: u64, config: &Arc<RouterConfig>, since: Instant) {
        let mut state = self.state();
        state.begun = true;
        state.config = Some(Arc::clone(config));
        let full = state.under_way.len() >= UNDER_WAY;
        match state.under_way.back_mut() {
            // Those that came too late count as one with the last, which began before them.
            Some(last) if full => last.0 = generation,
            _ => state.under_way.push_back((generation, since)),
        }
    }

    /// Everything up to there is in force; since when each of it was on its way.
    pub fn in_force(&self, generation: u64) -> Vec<Instant> {
        let mut state = self.state();
        state.applied = true;
        let mut times = Vec::new();
        while let Some((_, since)) = state.under_way.pop_front_if_up_to(generation) {
            times.push(since);
        }
        times
    }

    /// Everything is followed, but for what needs a reload: nothing is gained by waiting for that.
    pub fn followed(&self) {
        self.state().applied = true;
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.state().under_way.is_empty()
    }

    /// How it stands with HAProxy, in words; none: well.
    pub fn trouble(&self, words: Option<String>) {
        self.state().trouble = words;
    }

    /// The RouterConfig that is in force, or on its way.
    pub fn config(&self) -> Option<Arc<RouterConfig>> {
        self.state().config.clone()
    }

    /// What is awaited until the first time that all is in force.
    pub fn awaits(&self, config: &str) -> Vec<String> {
        let state = self.state();
        if state.applied {
            return Vec::new();
        }
        if !state.begun {
            return vec![format!("RouterConfig {config} with spec.edge, and what it refers to")];
        }
        let trouble = state.trouble.as_ref().map(|words| format!(" ({words})")).unwrap_or_default();
        vec![format!("HAProxy to hold everything once{trouble}")]
    }
}

trait UpTo {
    fn pop_front_if_up_to(&mut self, generation: u64) -> Option<(u64, Instant)>;
}

impl UpTo for VecDeque<(u64, Instant)> {
    fn pop_front_if_up_to(&mut self, generation: u64) -> Option<(u64, Instant)> {
        self.front().is_some_and(|(number, _)| *number <= generation).then(|| self.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::model::tests::support::config;

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_bounded_and_none_of_it_is_forgotten() {
        let (progress, config) = (Progress::default(), Arc::new(config()));
        let most = UNDER_WAY as u64;
        for generation in 1..=3 * most {
            progress.sent(generation, &config, Instant::now());
        }
        assert_eq!(progress.state().under_way.len(), UNDER_WAY);
        assert_eq!(progress.in_force(most - 1).len(), UNDER_WAY - 1);
        assert!(progress.in_force(3 * most - 1).is_empty() && !progress.is_idle());
        assert_eq!(progress.in_force(3 * most).len(), 1);
        assert!(progress.is_idle());
    }

    #[test]
    fn readiness_waits_for_what_can_be_followed_and_for_no_reload() {
        let progress = Progress::default();
        assert!(progress.awaits("n/edge")[0].contains("n/edge"));
        progress.sent(1, &Arc::new(config()), Instant::now());
        progress.trouble(Some("it is away".into()));
        assert!(progress.awaits("n/edge")[0].contains("it is away"));
        progress.followed();
        assert!(progress.awaits("n/edge").is_empty() && !progress.is_idle());
    }
}
