//! The connection to one data plane, broker or router, as the model sees it.

use std::sync::Arc;

use super::target::spread;
use crate::messaging::ids::{Now, Slot};
use crate::messaging::status::TargetState;

/// The connection to a broker or router, and how far it is with reading it.
#[derive(Debug)]
pub(super) struct Line {
    /// 0: not started.
    pub incarnation: u64,
    /// Revisions of the TLS and the credentials Secret that it was last told to use.
    pub revisions: (Option<u64>, Option<u64>),
    /// Was taken from its connection for a rotated Secret and has not served since: the others wait for it.
    pub rotating: bool,
    /// Why it is not to be connected at all.
    pub refused: Option<Arc<str>>,
    pub state: TargetState,
    pub message: Arc<str>,
    pub since_ms: u64,
    pub since_s: i64,
    /// Since when it does not serve.
    pub down_ms: u64,
    /// What was last shown, for telling transitions.
    pub shown: Option<TargetState>,
    /// Read at least once, or failing for so long that a placement need not wait for it.
    pub known: bool,
    pub read_once: bool,
    /// Compared since it was connected: what was acknowledged before is still there.
    pub compared: bool,
    /// Acknowledgements after this mark are newer than the read under way.
    pub read_mark: u64,
    pub reading: bool,
    /// When the last read began, and how long it took.
    pub read_began_ms: u64,
    pub read_took_ms: u64,
    pub repaired: Vec<Slot>,
    pub resync_ms: Option<u64>,
    /// The causes of this outage that were logged.
    pub logged: Vec<Arc<str>>,
}

/// So many causes of one outage are logged; what names a new one with each attempt would fill the log.
const CAUSES: usize = 8;

impl Line {
    pub fn new(now: Now) -> Self {
        Self {
            incarnation: 0,
            revisions: (None, None),
            rotating: false,
            refused: None,
            state: TargetState::Connecting,
            message: "connecting".into(),
            since_ms: now.mono_ms,
            since_s: now.unix_s,
            down_ms: now.mono_ms,
            shown: None,
            known: false,
            read_once: false,
            compared: false,
            read_mark: 0,
            reading: false,
            read_began_ms: 0,
            read_took_ms: 0,
            repaired: Vec::new(),
            resync_ms: None,
            logged: Vec::new(),
        }
    }

    /// Whether its message is to be logged as why it cannot be reached; `begins`: the outage does.
    pub fn logs(&mut self, begins: bool) -> bool {
        if begins {
            self.logged.clear();
        }
        let new = self.logged.len() < CAUSES && !self.logged.contains(&self.message);
        if new {
            self.logged.push(self.message.clone());
        }
        new
    }

    /// Whether it has a drive, which takes jobs also while the other side cannot be reached.
    pub fn started(&self) -> bool {
        self.incarnation != 0
    }

    /// Whether commands can reach it.
    pub fn connected(&self) -> bool {
        matches!(self.state, TargetState::Filling | TargetState::Serving)
    }

    /// Whether it holds all that it must.
    pub fn serving(&self) -> bool {
        self.state == TargetState::Serving
    }

    /// A read begins at this moment; what is acknowledged after `mark` is newer.
    pub fn begin_read(&mut self, mark: u64, now_ms: u64) {
        (self.reading, self.read_mark, self.read_began_ms) = (true, mark, now_ms);
    }

    /// It has ended.
    pub fn end_read(&mut self, now_ms: u64) {
        (self.reading, self.known, self.read_took_ms) = (false, true, now_ms.saturating_sub(self.read_began_ms));
    }

    /// Plans the next read: every `period_ms`, spread by name, and so seldom that reading takes at most a hundredth of
    /// the time.
    pub fn plan_resync(&mut self, name: &str, period_ms: u64, now: Now) {
        let period = period_ms.max(self.read_took_ms.saturating_mul(100));
        self.resync_ms = Some(now.mono_ms + period + spread(name, period / 10));
    }

    /// Enters a state.
    pub fn turn(&mut self, state: TargetState, message: Arc<str>, now: Now) {
        if self.state != state {
            let served = self.state == TargetState::Serving;
            (self.since_ms, self.since_s) = (now.mono_ms, now.unix_s);
            if served {
                self.down_ms = now.mono_ms;
            }
            self.state = state;
        }
        self.message = message;
    }

    /// The state to show, and when that may change by itself: a state other than Serving is shown once it has lasted;
    /// until then what was told before stays.
    pub fn to_show(
        &self,
        told: Option<TargetState>,
        now_ms: u64,
        outage_ms: u64,
        down_ms: u64,
    ) -> (Option<TargetState>, Option<u64>) {
        let due = match self.state {
            TargetState::Serving => return (Some(self.state), None),
            TargetState::Unreachable => self.since_ms + down_ms,
            TargetState::Connecting | TargetState::Filling => self.down_ms + outage_ms,
        };
        if due <= now_ms { (Some(self.state), None) } else { (self.shown.or(told), Some(due)) }
    }
}
