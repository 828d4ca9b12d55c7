//! What must still happen before this process is ready: CRDs that are not there, kinds that are not read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::messaging::input::Source;

/// Shared by those who fulfil it and `/readyz`. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Debug)]
struct State {
    /// None until the API server has been asked once.
    missing_crds: Option<Vec<&'static str>>,
    /// By what is listed.
    unsynced: BTreeSet<&'static str>,
}

const SOURCES: [Source; 4] = [Source::RouterConfigs, Source::AddressSpaces, Source::Addresses, Source::Namespaces];

fn name(source: Source) -> &'static str {
    match source {
        Source::RouterConfigs => "RouterConfigs",
        Source::AddressSpaces => "AddressSpaces",
        Source::Addresses => "Addresses",
        Source::Namespaces => "Namespaces",
    }
}

impl Default for Readiness {
    /// What the operator waits for.
    fn default() -> Self {
        Self::awaiting(SOURCES.map(name))
    }
}

impl Readiness {
    /// Waits for the first lists of these.
    pub fn awaiting(lists: impl IntoIterator<Item = &'static str>) -> Self {
        let state = State { missing_crds: None, unsynced: lists.into_iter().collect() };
        Self(Arc::new(Shared { state: Mutex::new(state), moved: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API server was asked, and lacks these kinds.
    pub fn crds(&self, missing: Vec<&'static str>) {
        self.state().missing_crds = Some(missing);
    }

    /// The first list of a source is complete.
    pub fn synced(&self, source: Source) {
        self.read(name(source));
    }

    /// The first list of these is complete.
    pub fn read(&self, list: &'static str) {
        let done = {
            let mut state = self.state();
            state.unsynced.remove(list);
            state.unsynced.is_empty()
        };
        if done {
            self.0.moved.notify_waiters();
        }
    }

    /// Waits until every source is read.
    pub async fn all_synced(&self) {
        loop {
            let moved = self.0.moved.notified();
            if self.state().unsynced.is_empty() {
                return;
            }
            moved.await;
        }
    }

    /// What is still awaited, for people; nothing when ready.
    pub fn awaits(&self) -> Vec<String> {
        let state = self.state();
        match &state.missing_crds {
            None => vec!["the Kubernetes API server to answer".to_owned()],
            Some(missing) if !missing.is_empty() => {
                missing.iter().map(|name| format!("CustomResourceDefinition {name}: install crds/*.yaml")).collect()
            }
            Some(_) => state.unsynced.iter().map(|source| format!("the first list of {source}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_what_it_waits_for_until_nothing_is_left() {
        let readiness = Readiness::default();
        assert_eq!(readiness.awaits(), ["the Kubernetes API server to answer"]);
        readiness.crds(vec!["addresses.waystation.dev"]);
        assert_eq!(readiness.awaits(), ["CustomResourceDefinition addresses.waystation.dev: install crds/*.yaml"]);
        readiness.crds(Vec::new());
        for source in SOURCES {
            assert!(readiness.awaits().iter().any(|text| text.contains(&format!("{source:?}"))), "{source:?}");
            readiness.synced(source);
        }
        readiness.all_synced().await;
        assert!(readiness.awaits().is_empty());
    }
}
