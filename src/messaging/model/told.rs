//! What the API server is known to hold of an object's status, and what is on its way there.

use std::sync::Arc;

use super::state::Admitted;
use crate::messaging::output::FinalizerChange;
use crate::messaging::plans::Charge;
use crate::messaging::status::{AddressSpaceStatus, AddressStatus};

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

/// Whether a status tells of an acceptance, now or before: only what was accepted has a prefix or a broker.
pub(super) fn was_accepted(status: &AddressSpaceStatus) -> bool {
    let told = status.broker.is_some() || status.address_prefix.is_some();
    told || status.accepted.as_ref().is_some_and(|c| c.status)
}

/// Whether a status tells that the Address was accepted once, whatever is said of its spec now: there is something to
/// keep.
pub(super) fn kept(status: &AddressStatus) -> bool {
    !status.brokers.is_empty() || status.configured.is_some()
}

/// What a status tells that a space is charged for; how much that is, its RouterConfig says.
pub(super) fn admitted(status: &AddressStatus) -> Option<Admitted> {
    let accepted = kept(status) || status.accepted.as_ref().is_some_and(|c| c.status);
    accepted.then(|| Admitted { plan: status.plan.clone(), charge: Charge::default() })
}

/// The generation that a status says is in force.
pub(super) fn in_force(status: &AddressStatus) -> Option<i64> {
    status.ready.as_ref().filter(|c| c.status).map(|c| c.generation)
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
