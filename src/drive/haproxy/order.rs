//! What the drive is told, and what it tells.

use std::sync::Arc;
use std::time::Duration;

use crate::edge::input::{Input, RouterConfig};
use crate::edge::model::{Model, Settled};
use crate::edge::wanted::{Change, Slot, Wanted};

/// What is wanted from now on.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its number: told when everything up to it is in force.
    pub generation: u64,
    /// Changes since the batch before; of the first, everything.
    pub changes: Vec<Change>,
    /// What the fixed part of the files is written by.
    pub config: Arc<RouterConfig>,
    /// Fields of it that have changed and need a reload. Whether one is needed is for the process to say.
    pub reload: Vec<&'static str>,
}

impl Batch {
    /// What came of settling, where that is anything for the drive; it is taken out of there.
    pub fn of(model: &Model, settled: &mut Settled) -> Option<Self> {
        let anything = settled.first || !settled.changes.is_empty() || !settled.reload.is_empty();
        let config = model.configured().filter(|_| anything).cloned()?;
        if settled.first {
            return Some(Self::first(settled.generation, model.wanted(), config));
        }
        let (changes, reload) = (std::mem::take(&mut settled.changes), std::mem::take(&mut settled.reload));
        Some(Self { generation: settled.generation, changes, config, reload })
    }

    /// The first: everything.
    pub fn first(generation: u64, wanted: &Wanted, config: Arc<RouterConfig>) -> Self {
        let slots = wanted.slots().iter();
        let changes =
            slots.map(|(slot, value)| Change { slot: slot.clone(), before: None, after: Some(value.clone()) });
        Self { generation, changes: changes.collect(), config, reload: Vec::new() }
    }
}

/// What the drive is told.
#[derive(Clone, Debug)]
pub enum Order {
    /// Hold this.
    Batch(Batch),
    /// Read what is held, and repair.
    Compare,
    /// End when files are written.
    Finish,
}

/// How it stands with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no session, in words for people.
    Unreachable(Arc<str>),
    /// It is read, or completed.
    Filling,
    /// It has held all that was wanted at least once, and is followed.
    Serving,
    /// It is followed in all that needs no reload; why it lacks the rest, in words for people.
    Outdated(Arc<str>),
}

/// What the drive tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// For the model: what was refused, what is in force.
    Model(Input),
    /// The state has changed.
    State(State),
    /// It was compared: how many differences were found that nobody had asked for.
    Compared {
        /// Differences.
        differences: usize,
        /// Files that were not what they had to be.
        files: usize,
    },
    /// Files were loaded anew, for that reason: fields of the RouterConfig, `outdated` or `behind`.
    Reloaded(Vec<&'static str>),
    /// The files were not loaded, in HAProxy's words, shortened; the old process goes on.
    ReloadFailed(Arc<str>),
    /// Files cannot be written (or, with `None`, can again): the disk's words. Traffic goes on.
    Files(Option<Arc<str>>),
    /// Something cannot be removed, in HAProxy's words. It is tried again.
    Stuck(Slot, Arc<str>),
    /// How much waits for its last session to end.
    Leaving(usize),
}

/// Bounds of the drive.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Commands under way.
    pub window: usize,
    /// Steps after which orders are looked at again.
    pub chunk: usize,
    /// For a command: an answer that takes longer ends the session.
    pub command: Duration,
    /// For a question that reads a whole process.
    pub read: Duration,
    /// Between two looks whether the process is still the same: a reload by somebody else is noticed after that time, and
    /// what was told to the old process while the new one began is missing until then.
    pub look: Duration,
    /// Between two comparisons.
    pub compare: Duration,
    /// Least time between two comparisons that a surprise asked for.
    pub surprise: Duration,
    /// From a change to its file.
    pub files: Duration,
    /// Least time between two reloads, and the wait after the first that failed; doubles.
    pub reload: Duration,
    /// Longest wait after a reload that failed.
    pub reload_longest: Duration,
    /// Changes that a process may lack when it is connected; with more it is started from the files.
    pub behind: usize,
    /// Wait after the first failed connection; doubles.
    pub first_wait: Duration,
    /// Longest wait between connections: a process that is started again is back within milliseconds.
    pub longest_wait: Duration,
    /// From the moment that no route leads to a backend any more to its removal: requests that chose it before are on their
    /// way to it.
    pub linger: Duration,
    /// Wait before something is removed again; doubles.
    pub leave_first: Duration,
    /// Longest wait between two tries to remove something.
    pub leave_longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: 256,
            chunk: 1000,
            command: Duration::from_secs(10),
            read: Duration::from_secs(60),
            look: Duration::from_millis(100),
            compare: Duration::from_secs(600),
            surprise: Duration::from_secs(5),
            files: Duration::from_millis(20),
            reload: Duration::from_secs(10),
            reload_longest: Duration::from_secs(300),
            behind: 2000,
            first_wait: Duration::from_millis(5),
            longest_wait: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            leave_first: Duration::from_millis(50),
            leave_longest: Duration::from_secs(5),
        }
    }
}
