//! From what the model wants to who carries it out. Synchronous, and nothing in it waits.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Inspect;
use super::progress::Progress;
use crate::cluster::edge::publish::Observed;
use crate::cluster::events::EventQueue;
use crate::drive::haproxy::actor::{Batch, Order};
use crate::edge::ids::Key;
use crate::edge::input::Input;
use crate::edge::model::{Model, Settled, Sizes};
use crate::engine::clock::Moment;
use crate::engine::owner;
use crate::metrics::edge::EdgeMetrics;

/// The model as the engine owns it.
pub struct Owned {
    model: Model,
    inspect: Option<Inspect>,
    began: Option<Instant>,
}

/// What came of one batch.
pub struct Output {
    settled: Settled,
    batch: Option<Batch>,
    sizes: Sizes,
    in_force: bool,
    began: Instant,
}

impl Owned {
    /// Owns a model, which `inspect` looks at whenever it has settled.
    pub fn new(model: Model, inspect: Option<Inspect>) -> Self {
        Self { model, inspect, began: None }
    }
}

impl owner::Model for Owned {
    type Input = Input;
    type Output = Output;

    fn apply(&mut self, input: Input, _: Moment) {
        self.began.get_or_insert_with(Instant::now);
        self.model.apply(input);
    }

    fn settle(&mut self, _: Moment) -> Output {
        let began = self.began.take().unwrap_or_else(Instant::now);
        let mut settled = self.model.settle();
        if let Some(inspect) = &self.inspect {
            inspect(&self.model);
        }
        let batch = Batch::of(&self.model, &mut settled);
        Output { settled, batch, sizes: self.model.sizes(), in_force: self.model.in_force(), began }
    }
}

/// Hands on what the model wants.
pub struct Dispatch {
    /// To the drive.
    pub orders: mpsc::UnboundedSender<Order>,
    /// To who reads Secrets.
    pub secrets: mpsc::UnboundedSender<(Key, bool)>,
    /// To who resolves names.
    pub names: mpsc::UnboundedSender<(Arc<str>, bool)>,
    /// To who writes statuses.
    pub observed: mpsc::UnboundedSender<Observed>,
    /// To people.
    pub events: EventQueue,
    /// Counts.
    pub metrics: Arc<EdgeMetrics>,
    /// Who asks how far it is.
    pub progress: Progress,
}

impl Dispatch {
    /// Hands everything on. The model never wants to settle by itself.
    pub fn carry_out(&mut self, output: Output, taken: usize) -> Option<u64> {
        let Output { settled, batch, sizes, in_force, began } = output;
        let Settled { generation, first, changes: _, reload: _, events, published, secrets, names } = settled;
        // Whoever is told has a loop that only ends with all.
        for secret in secrets {
            let _ = self.secrets.send(secret);
        }
        for name in names {
            let _ = self.names.send(name);
        }
        if let Some(batch) = batch {
            self.progress.sent(generation, &batch.config, began);
            let _ = self.orders.send(Order::Batch(batch));
        }
        if first || !published.is_empty() {
            let _ = self.observed.send(Observed::Served(published));
        }
        for event in events {
            self.events.tell(event);
        }
        let metrics = &self.metrics;
        metrics.loops.settled(taken, began.elapsed());
        metrics.in_force.set(in_force.into());
        for (kind, count) in [
            ("ingresses", sizes.ingresses),
            ("hosts", sizes.hosts),
            ("routes", sizes.routes),
            ("backends", sizes.backends),
            ("slots", sizes.slots),
            ("problems", sizes.problems),
        ] {
            metrics.size(kind, count);
        }
        None
    }
}
