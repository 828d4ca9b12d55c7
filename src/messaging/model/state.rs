//! What the model keeps of each object and each broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messaging::maps::{Map, Set};

use crate::messaging::broker::{Contents, Entry, ground_entry};
use crate::messaging::entry::Effective;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::{Address, AddressSpace, Broker, RouterConfig};
use crate::messaging::output::FinalizerChange;
use crate::messaging::status::{AddressSpaceStatus, AddressStatus, RouterConfigStatus, TargetState};

/// A refusal by the model itself: reason and message of `Accepted`.
pub(super) type Refusal = (&'static str, Arc<str>);

/// What the API server holds of one object's status and finalizer, as far as we know: what was watched, or written
/// since.
#[derive(Debug)]
pub(super) struct Told<S> {
    pub status: S,
    pub finalizer: bool,
    /// `resourceVersion` of the last write: older watch events say nothing of status and finalizer.
    pub version: u64,
    /// A write that was handed out and not answered.
    pub out: Option<Out<S>>,
    /// A write that the API server refused: not sent again while it is still what is wanted.
    pub refused: Option<(Option<Arc<S>>, Option<FinalizerChange>)>,
}

#[derive(Debug)]
pub(super) struct Out<S> {
    pub seq: u64,
    pub status: Option<Arc<S>>,
    pub finalizer: Option<FinalizerChange>,
}

impl<S: PartialEq + Clone> Told<S> {
    pub fn new(status: S, finalizer: bool) -> Self {
        Self { status, finalizer, version: 0, out: None, refused: None }
    }

    /// The status that will be there once everything handed out is written.
    pub fn latest(&self) -> &S {
        self.out.as_ref().and_then(|out| out.status.as_deref()).unwrap_or(&self.status)
    }

    /// The finalizer once everything handed out is written.
    pub fn latest_finalizer(&self) -> bool {
        match self.out.as_ref().and_then(|out| out.finalizer) {
            Some(change) => change == FinalizerChange::Add,
            None => self.finalizer,
        }
    }

    /// Takes in what came with a watched object.
    pub fn observe(&mut self, status: &S, finalizer: bool, version: u64, listed: bool) {
        let newer = version >= self.version || version == 0;
        if newer || (listed && self.out.is_none()) {
            if self.status != *status {
                self.status = status.clone();
                self.refused = None;
            }
            self.finalizer = finalizer;
            self.version = version;
        }
    }

    /// Registers a write of `status` and of the finalizer's wanted presence, if one is needed.
    pub fn plan(
        &mut self,
        status: S,
        finalizer: bool,
        seq: &mut u64,
    ) -> Option<(Option<Arc<S>>, Option<FinalizerChange>)> {
        if *self.latest() == status && self.latest_finalizer() == finalizer {
            return None;
        }
        let unsure = self.out.is_some();
        let status = (unsure || self.status != status).then(|| Arc::new(status));
        let change = (unsure || self.finalizer != finalizer).then_some(if finalizer {
            FinalizerChange::Add
        } else {
            FinalizerChange::Remove
        });
        if !unsure && self.refused.as_ref().is_some_and(|refused| (&refused.0, refused.1) == (&status, change)) {
            return None;
        }
        *seq += 1;
        self.out = Some(Out { seq: *seq, status: status.clone(), finalizer: change });
        Some((status, change))
    }

    /// Takes in that write `seq` was carried out as `version`; whether it was the last one handed out.
    pub fn written(&mut self, seq: u64, version: u64) -> bool {
        self.version = self.version.max(version);
        let Some(out) = self.out.take_if(|out| out.seq == seq) else { return false };
        if let Some(status) = out.status {
            self.status = Arc::unwrap_or_clone(status);
        }
        if let Some(change) = out.finalizer {
            self.finalizer = change == FinalizerChange::Add;
        }
        self.refused = None;
        true
    }

    /// Takes in that write `seq` can never be carried out.
    pub fn failed(&mut self, seq: u64) {
        if let Some(out) = self.out.take_if(|out| out.seq == seq) {
            self.refused = Some((out.status, out.finalizer));
        }
    }
}

/// One Address.
#[derive(Debug)]
pub(super) struct AddressState {
    pub obj: Box<Address>,
    pub canonical: Arc<str>,
    pub told: Told<AddressStatus>,
    /// When this generation, or its deletion, was first seen.
    pub since_ms: u64,
    /// Refused when last decided.
    pub refused: bool,
    /// Accepted now or at some time before: never deprovisioned for what its references do later.
    pub accepted: bool,
    /// Where its slot is held.
    pub holds: Option<TargetId>,
    /// The generation that the broker acknowledged.
    pub in_force: Option<i64>,
    /// Effective values of that generation.
    pub effective: Effective,
    /// As counted in its space.
    pub ready: bool,
    /// Its deletion waits for this.
    pub waits: Option<Arc<str>>,
    /// Its deletion may end.
    pub released: bool,
    pub timer_ms: Option<u64>,
}

/// What belongs to a space by name, whether or not the space exists.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub all: BTreeSet<Key>,
    /// Claimants of each address, by its canonical form.
    pub claims: Map<Arc<str>, Vec<Key>>,
    /// Subscriptions by the topic that they name.
    pub subscriptions: Map<Arc<str>, BTreeSet<Key>>,
    /// Queues and topics by the dead letters and expiry addresses that they name.
    pub dead_letter_users: Map<Arc<str>, BTreeSet<Key>>,
    pub ready: i64,
}

/// One AddressSpace.
#[derive(Debug)]
pub(super) struct SpaceState {
    pub obj: Box<AddressSpace>,
    pub told: Told<AddressSpaceStatus>,
    pub since_ms: u64,
    /// `None` until first judged.
    pub accept: Option<Result<(), Refusal>>,
    pub ever_accepted: bool,
    pub foreign: bool,
    pub prefix: Arc<str>,
    pub broker: Option<Arc<str>>,
    /// It is deleted, and what it shared on its broker is taken away.
    pub cleared: bool,
    /// When the status was last written: counts wait two seconds from there.
    pub written_ms: Option<u64>,
    pub timer_ms: Option<u64>,
}

/// One RouterConfig.
#[derive(Debug)]
pub(super) struct ConfigState {
    pub obj: Box<RouterConfig>,
    pub told: Told<RouterConfigStatus>,
    pub since_ms: u64,
    pub targets: BTreeMap<Arc<str>, Target>,
    pub pruned: Option<Arc<str>>,
    pub resynced: Option<Arc<str>>,
    pub timer_ms: Option<u64>,
}

/// What the spec wants of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Be there.
    Hold,
    /// Be gone once empty; until then it is used.
    Drain,
    /// Be gone; with `only_if_empty`, become an orphan if it holds messages.
    Gone { only_if_empty: bool },
}

/// How far that is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Progress {
    /// In force by its status, from before this process; the first comparison will tell.
    Restored,
    /// Not there; to be sent.
    Needed,
    /// Waits for another slot to be held.
    Gated,
    /// Handed to the drive under this generation.
    Sent(u64),
    /// Acknowledged; the mark orders it against reads.
    Acked(u64),
    /// Refused by the broker.
    Refused(Arc<str>),
    /// There were messages.
    NotEmpty,
}

/// One slot of one broker.
#[derive(Debug)]
pub(super) struct SlotState {
    pub tenant: Key,
    /// The Address that it stands for; none once that was let go.
    pub holder: Option<Key>,
    pub entry: Arc<Entry>,
    pub want: Want,
    pub progress: Progress,
    /// Generation of the Address that `entry` is of.
    pub for_generation: i64,
    /// Effective values that go with `entry`.
    pub effective: Effective,
    /// Its last Address was seen to be deleted.
    pub seen: bool,
    /// A comparison in detail was refused: held by its name, its settings unknown.
    pub unverified: bool,
    /// What is there may be destroyed to make room.
    pub replace: bool,
    /// Failed or NotEmpty attempts in a row.
    pub attempts: u32,
}

impl SlotState {
    /// The slot of the settings that a space shares, to be made.
    pub fn ground(slot: &Slot, space: &Key) -> Self {
        Self {
            tenant: space.clone(),
            holder: None,
            entry: Arc::new(ground_entry(slot)),
            want: Want::Hold,
            progress: Progress::Needed,
            for_generation: 0,
            effective: Effective::default(),
            seen: true,
            unverified: false,
            replace: false,
            attempts: 0,
        }
    }
}

/// One broker.
#[derive(Debug)]
pub(super) struct Target {
    pub broker: Broker,
    /// 0: not started.
    pub incarnation: u64,
    /// Revisions of the TLS and the credentials Secret that it was last told to use.
    pub revisions: (Option<u64>, Option<u64>),
    /// Was taken from its connection for a rotated Secret and has not served since: the others wait for it.
    pub rotating: bool,
    pub state: TargetState,
    pub message: Arc<str>,
    pub since_ms: u64,
    pub since_s: i64,
    /// Since when it does not serve.
    pub down_ms: u64,
    /// What was last shown, for telling transitions.
    pub shown: Option<TargetState>,
    /// Read at least once, or failed at it: a placement need not wait for it.
    pub known: bool,
    pub read_once: bool,
    /// Compared since it was connected: what was acknowledged before is still there.
    pub compared: bool,
    /// Acknowledgements after this mark came on the present connection.
    pub session_mark: u64,
    pub slots: Map<Slot, SlotState>,
    /// Slots that wait, by the slot that they wait for.
    pub gates: Map<Slot, BTreeSet<Slot>>,
    /// Queues with messages whose Address was not seen to be deleted.
    pub orphans: BTreeMap<Slot, u64>,
    /// Read, not yet compared.
    pub contents: Option<Arc<Contents>>,
    /// Acknowledgements after this mark are newer than the read under way.
    pub read_mark: u64,
    pub reading: bool,
    /// Slots that were taken away since the read under way began.
    pub gone: Set<Slot>,
    /// What must be answered before it serves.
    pub fill: Set<Slot>,
    pub repaired: Vec<Slot>,
    pub resync_ms: Option<u64>,
    /// Which part of the slots the next comparison looks at in detail.
    pub sample: usize,
}

impl Target {
    pub fn new(broker: Broker, now_ms: u64, now_s: i64) -> Self {
        Self {
            broker,
            incarnation: 0,
            revisions: (None, None),
            rotating: false,
            state: TargetState::Connecting,
            message: "connecting".into(),
            since_ms: now_ms,
            since_s: now_s,
            down_ms: now_ms,
            shown: None,
            known: false,
            read_once: false,
            compared: false,
            session_mark: 0,
            slots: Map::default(),
            gates: Map::default(),
            orphans: BTreeMap::new(),
            contents: None,
            read_mark: 0,
            reading: false,
            gone: Set::default(),
            fill: Set::default(),
            repaired: Vec::new(),
            resync_ms: None,
            sample: 0,
        }
    }

    /// Whether it has a drive, which takes jobs also while the broker cannot be reached.
    pub fn started(&self) -> bool {
        self.incarnation != 0
    }

    /// Whether commands can reach it.
    pub fn connected(&self) -> bool {
        matches!(self.state, TargetState::Filling | TargetState::Serving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_watch_event_does_not_undo_a_write() {
        let mut told = Told::new(1, false);
        let mut seq = 0;
        assert_eq!(told.plan(2, true, &mut seq), Some((Some(Arc::new(2)), Some(FinalizerChange::Add))));
        assert!(told.written(1, 10));
        told.observe(&1, false, 9, false);
        assert_eq!((told.status, told.finalizer), (2, true));
        told.observe(&3, false, 11, false);
        assert_eq!((told.status, told.finalizer), (3, false));
    }

    #[test]
    fn a_list_is_the_truth_even_with_older_versions() {
        let mut told = Told::new(1, false);
        let mut seq = 0;
        told.plan(2, false, &mut seq);
        told.written(1, 10);
        told.observe(&1, false, 4, true);
        assert_eq!(told.status, 1);
    }

    #[test]
    fn the_same_status_is_written_once() {
        let mut told = Told::new(0, false);
        let mut seq = 0;
        assert!(told.plan(5, false, &mut seq).is_some());
        assert!(told.plan(5, false, &mut seq).is_none());
        assert!(told.written(seq, 7));
        assert!(told.plan(5, false, &mut seq).is_none());
    }

    #[test]
    fn a_write_that_was_refused_is_not_sent_again_at_once() {
        for (status, finalizer) in [(5, false), (0, true), (5, true)] {
            let mut told = Told::new(0, false);
            let mut seq = 0;
            assert!(told.plan(status, finalizer, &mut seq).is_some());
            told.failed(seq);
            assert_eq!(told.plan(status, finalizer, &mut seq), None);
            assert!(told.plan(9, finalizer, &mut seq).is_some());
        }
    }

    #[test]
    fn a_return_to_the_old_status_is_written_while_the_new_one_is_under_way() {
        let mut told = Told::new(0, false);
        let mut seq = 0;
        told.plan(5, false, &mut seq);
        assert_eq!(told.plan(0, false, &mut seq).and_then(|(status, _)| status), Some(Arc::new(0)));
    }
}
