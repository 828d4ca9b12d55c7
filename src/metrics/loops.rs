//! What operator and edge count alike: their models, and how they stand with the API server.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{ApiRequest, KindResult, OfKind, WithResult, fine};

/// See the texts of [`Loops::registered`] for what each one is.
#[allow(missing_docs)]
pub struct Loops {
    pub inputs: Counter,
    pub settles: Counter,
    pub settle_seconds: Histogram,
    pub undecodable: Family<OfKind, Gauge>,
    pub api_requests: Family<ApiRequest, Counter>,
    pub writes: Family<KindResult, Counter>,
    pub relists: Family<OfKind, Counter>,
    pub watch_errors: Family<OfKind, Counter>,
    pub events: Family<WithResult, Counter>,
    pub leading: Gauge,
}

impl Loops {
    /// All at zero, and in the registry.
    pub(super) fn registered(r: &mut Registry) -> Self {
        let all = Self {
            inputs: Counter::default(),
            settles: Counter::default(),
            settle_seconds: fine(),
            undecodable: Family::default(),
            api_requests: Family::default(),
            writes: Family::default(),
            relists: Family::default(),
            watch_errors: Family::default(),
            events: Family::default(),
            leading: Gauge::default(),
        };
        r.register("model_inputs", "Events that the model took in", all.inputs.clone());
        r.register("model_settles", "Times that the model decided", all.settles.clone());
        r.register("model_settle_seconds", "Time to take in a batch and decide", all.settle_seconds.clone());
        r.register("undecodable_objects", "Objects that cannot be read by this version", all.undecodable.clone());
        r.register("api_requests", "Requests to the Kubernetes API server", all.api_requests.clone());
        r.register("writes", "Writes of statuses and finalizers", all.writes.clone());
        r.register("relists", "Lists read from the start", all.relists.clone());
        r.register("watch_errors", "Lists and watches that failed", all.watch_errors.clone());
        r.register("events", "Kubernetes Events", all.events.clone());
        r.register("leading", "1 while this process leads", all.leading.clone());
        all
    }

    /// Counts a batch that the model took in.
    pub fn settled(&self, inputs: usize, took: Duration) {
        self.inputs.inc_by(inputs as u64);
        self.settles.inc();
        self.settle_seconds.observe(took.as_secs_f64());
    }
}

/// Metrics of a process that has loops and sends commands.
pub trait Counts: Send + Sync {
    /// What it has of them all.
    fn loops(&self) -> &Loops;

    /// Counts a command that was answered, or not.
    fn command(&self, kind: &'static str, result: &'static str, took: Duration);
}
