//! What the loops count, as metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::meter::{Meter, WriteResult};
use crate::drive::meter;
use crate::messaging::ids::Kind;
use crate::metrics::loops::Counts;
use crate::metrics::{KindResult, OfKind, WithResult};

/// Metrics behind the traits of those who count.
pub struct Meters<M>(pub Arc<M>);

impl<M: Counts> Meter for Meters<M> {
    fn write(&self, kind: Kind, result: WriteResult) {
        let labels = KindResult { kind: kind.as_str(), result: result.as_str() };
        self.0.loops().writes.get_or_create(&labels).inc();
    }

    fn relist(&self, kind: &'static str) {
        self.0.loops().relists.get_or_create(&OfKind { kind }).inc();
    }

    fn watch_error(&self, kind: &'static str) {
        self.0.loops().watch_errors.get_or_create(&OfKind { kind }).inc();
    }

    fn undecodable(&self, kind: &'static str, now: usize) {
        self.0.loops().undecodable.get_or_create(&OfKind { kind }).set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    fn event(&self, result: &'static str) {
        self.0.loops().events.get_or_create(&WithResult { result }).inc();
    }

    fn leading(&self, leads: bool) {
        self.0.loops().leading.set(leads.into());
    }
}

impl<M: Counts> meter::Meter for Meters<M> {
    fn command(&self, operation: &'static str, result: &'static str, took: Duration) {
        self.0.command(operation, result, took);
    }
}
