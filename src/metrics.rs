//! Counters, gauges and histograms. Takes plain numbers and labels from bounded sets: no series grows with the number
//! of objects.

pub mod edge;
pub mod loops;

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use loops::{Counts, Loops};

/// One label, `kind`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfKind {
    /// What kind of object.
    pub kind: &'static str,
}

/// What became of something.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WithResult {
    /// What became of it.
    pub result: &'static str,
}

/// What became of something of a kind.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindResult {
    /// What kind of object.
    pub kind: &'static str,
    /// What became of it.
    pub result: &'static str,
}

/// A request to the API server.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ApiRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete`.
    pub verb: &'static str,
    /// Plural, with the subresource.
    pub resource: &'static str,
    /// HTTP status; 0 without an answer.
    pub code: u16,
}

/// A management operation on a broker.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CommandResult {
    /// Its name.
    pub operation: &'static str,
    /// `ok`, `refused`, `lost`, `timeout`.
    pub result: &'static str,
}

/// An operation alone.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfOperation {
    /// Its name.
    pub operation: &'static str,
}

/// A queue of work and its lane.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct QueueLane {
    /// `drives` or `writer`.
    pub queue: &'static str,
    /// `change`, `repair` or `in_flight`.
    pub lane: &'static str,
}

/// Where everything counts. See the texts of [`Metrics::new`] for what each one is.
#[allow(missing_docs)]
pub struct Metrics {
    registry: Registry,
    pub loops: Loops,
    pub objects: Family<OfKind, Gauge>,
    pub queue: Family<QueueLane, Gauge>,
    pub commands: Family<CommandResult, Counter>,
    pub command_seconds: Family<OfOperation, Histogram>,
    pub repairs: Counter,
    pub ready_seconds: Histogram,
    pub drives: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// 1 ms to 65 s.
fn wide() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

/// 0.1 ms to 6.5 s.
fn fine() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 17))
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("waystation");
        let loops = Loops::registered(&mut registry);
        let mut all = Self {
            registry,
            loops,
            objects: Family::default(),
            queue: Family::default(),
            commands: Family::default(),
            command_seconds: Family::new_with_constructor(fine),
            repairs: Counter::default(),
            ready_seconds: wide(),
            drives: Gauge::default(),
        };
        let r = &mut all.registry;
        r.register("objects", "Objects in the model", all.objects.clone());
        r.register("queue_depth", "Work that waits or is in flight", all.queue.clone());
        r.register("broker_commands", "Management operations on brokers", all.commands.clone());
        r.register("broker_command_seconds", "Time to the answer of an operation", all.command_seconds.clone());
        r.register("repairs", "Differences on brokers that a comparison mended", all.repairs.clone());
        r.register("address_ready_seconds", "From the change of an Address to Ready", all.ready_seconds.clone());
        r.register("drives", "Broker drives that run", all.drives.clone());
        all
    }

    /// In the text form of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Sets how much waits in a queue.
    pub fn queue(&self, queue: &'static str, change: usize, repair: usize, in_flight: usize) {
        for (lane, depth) in [("change", change), ("repair", repair), ("in_flight", in_flight)] {
            let depth = i64::try_from(depth).unwrap_or(i64::MAX);
            self.queue.get_or_create(&QueueLane { queue, lane }).set(depth);
        }
    }

    /// Sets how many objects of a kind there are.
    pub fn objects(&self, kind: &'static str, count: usize) {
        self.objects.get_or_create(&OfKind { kind }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

impl Counts for Metrics {
    fn loops(&self) -> &Loops {
        &self.loops
    }

    fn command(&self, operation: &'static str, result: &'static str, took: Duration) {
        self.commands.get_or_create(&CommandResult { operation, result }).inc();
        self.command_seconds.get_or_create(&OfOperation { operation }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_in_the_text() {
        let metrics = Metrics::new();
        metrics.command("createQueue", "ok", Duration::from_millis(3));
        metrics.queue("writer", 2, 1, 0);
        metrics.ready_seconds.observe(0.02);
        let text = metrics.text();
        for line in [
            r#"waystation_broker_commands_total{operation="createQueue",result="ok"} 1"#,
            r#"waystation_queue_depth{queue="writer",lane="change"} 2"#,
            "waystation_address_ready_seconds_count 1",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
