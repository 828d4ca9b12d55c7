//! What the loops count, as metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::meter::Meter;
use crate::drive::meter;
use crate::metrics::edge::EdgeMetrics;
use crate::metrics::{OfKind, WithResult};

/// Metrics behind the traits of those who count.
pub struct Meters(pub Arc<EdgeMetrics>);

impl Meter for Meters {
    fn relist(&self, kind: &'static str) {
        self.0.relists.get_or_create(&OfKind { kind }).inc();
    }

    fn watch_error(&self, kind: &'static str) {
        self.0.watch_errors.get_or_create(&OfKind { kind }).inc();
    }

    fn undecodable(&self, kind: &'static str, now: usize) {
        self.0.undecodable.get_or_create(&OfKind { kind }).set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    fn event(&self, result: &'static str) {
        self.0.events.get_or_create(&WithResult { result }).inc();
    }

    fn leading(&self, leads: bool) {
        self.0.leading.set(leads.into());
    }
}

impl meter::Meter for Meters {
    fn command(&self, operation: &'static str, result: &'static str, took: Duration) {
        self.0.command(operation, result, took);
    }
}
