//! What an agent of the edge counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::loops::{Counts, Loops};
use super::{KindResult, OfKind, fine};

/// Why HAProxy was reloaded.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ForReason {
    /// A field of the RouterConfig, or `behind`.
    pub reason: &'static str,
}

/// Where everything counts. See the texts of [`EdgeMetrics::new`] for what each one is.
#[allow(missing_docs)]
pub struct EdgeMetrics {
    registry: Registry,
    pub loops: Loops,
    pub apply_seconds: Histogram,
    pub model: Family<OfKind, Gauge>,
    pub commands: Family<KindResult, Counter>,
    pub command_seconds: Histogram,
    pub reloads: Family<ForReason, Counter>,
    pub reloads_failed: Counter,
    pub comparisons: Counter,
    pub drift: Family<OfKind, Counter>,
    pub leaving: Gauge,
    pub haproxy_up: Gauge,
    pub exporter_up: Gauge,
    pub files_failing: Gauge,
    pub in_force: Gauge,
}

impl Default for EdgeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl EdgeMetrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("waystation_edge");
        let loops = Loops::registered(&mut registry);
        let mut all = Self {
            registry,
            loops,
            apply_seconds: fine(),
            model: Family::default(),
            commands: Family::default(),
            command_seconds: fine(),
            reloads: Family::default(),
            reloads_failed: Counter::default(),
            comparisons: Counter::default(),
            drift: Family::default(),
            leaving: Gauge::default(),
            haproxy_up: Gauge::default(),
            exporter_up: Gauge::default(),
            files_failing: Gauge::default(),
            in_force: Gauge::default(),
        };
        let r = &mut all.registry;
        r.register("apply_seconds", "From an event to the last answer of HAProxy", all.apply_seconds.clone());
        r.register("model_size", "How much of a kind the model has", all.model.clone());
        r.register("commands", "Commands to HAProxy", all.commands.clone());
        r.register("command_seconds", "Time to the answer of a command", all.command_seconds.clone());
        r.register("reloads", "Reloads that were asked for", all.reloads.clone());
        r.register("reloads_failed", "Reloads that HAProxy refused", all.reloads_failed.clone());
        r.register("comparisons", "Comparisons of HAProxy and files with the model", all.comparisons.clone());
        r.register("drift", "Differences that a comparison found and repaired", all.drift.clone());
        r.register("leaving", "What waits for its last session to be removed", all.leaving.clone());
        r.register("haproxy_up", "1 while HAProxy answers at its socket", all.haproxy_up.clone());
        r.register("exporter_up", "1 while HAProxy's own exporter answers", all.exporter_up.clone());
        r.register("files_failing", "1 while files cannot be written", all.files_failing.clone());
        r.register("in_force", "1 while HAProxy holds all that is wanted", all.in_force.clone());
        // The claim is that these are 0, which only shows where they are.
        all.drift("process", 0);
        all.drift("files", 0);
        all.reloads.get_or_create(&ForReason { reason: "behind" }).inc_by(0);
        all
    }

    /// In the text form of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Sets how much of a kind there is.
    pub fn size(&self, kind: &'static str, count: usize) {
        self.model.get_or_create(&OfKind { kind }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sums differences that were repaired, of `process` or `files`.
    pub fn drift(&self, kind: &'static str, count: usize) {
        self.drift.get_or_create(&OfKind { kind }).inc_by(count as u64);
    }
}

impl Counts for EdgeMetrics {
    fn loops(&self) -> &Loops {
        &self.loops
    }

    fn command(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.commands.get_or_create(&KindResult { kind, result }).inc();
        self.command_seconds.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_in_the_text() {
        let metrics = EdgeMetrics::new();
        metrics.command("add server", "ok", Duration::from_millis(3));
        metrics.size("ingresses", 7);
        metrics.drift("files", 2);
        let text = metrics.text();
        for line in [
            r#"waystation_edge_commands_total{kind="add server",result="ok"} 1"#,
            r#"waystation_edge_model_size{kind="ingresses"} 7"#,
            r#"waystation_edge_drift_total{kind="files"} 2"#,
            r#"waystation_edge_reloads_total{reason="behind"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
