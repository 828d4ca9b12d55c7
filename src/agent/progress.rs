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
    /// All that was wanted was in force, once.
    applied: bool,
    /// What HAProxy's state is, where that is not good.
    trouble: Option<String>,
    /// Batches that are on their way, with the time of their first event.
    under_way: VecDeque<(u64, Instant)>,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was sent to the drive.
    pub fn sent(&self, generation: u64, config: &Arc<RouterConfig>, since: Instant) {
        let mut state = self.state();
        state.begun = true;
        state.config = Some(Arc::clone(config));
        state.under_way.push_back((generation, since));
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
