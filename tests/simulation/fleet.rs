//! Replicas of the operator: the very code that runs in a cluster, started, stopped and killed.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::oneshot;
use waystation::cluster::watch;
use waystation::engine::permit::permit;
use waystation::messaging::model::Model;
use waystation::operator::{Health, Options, Parts};

use crate::api::service::ApiServer;
use crate::broker::SimLinks;
use crate::life::{Life, SimClock, asked};
use crate::plan::Setup;
use crate::router::link::SimRouterLinks;
use crate::world::{Shared, lock};

/// Longest wait before something that a broker refused is tried again; ten minutes in a cluster.
pub const RETRY: Duration = Duration::from_secs(60);

/// All replicas.
pub struct Fleet {
    world: Shared,
    setup: Setup,
    seed: u64,
    replicas: Vec<Life>,
}

impl Fleet {
    pub fn new(world: Shared, setup: Setup, seed: u64) -> Self {
        let replicas = (0..setup.replicas).map(|_| Life::default()).collect();
        Self { world, setup, seed, replicas }
    }

    pub fn count(&self) -> usize {
        self.replicas.len()
    }

    /// Starts a replica that does not run.
    pub fn start(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if replica.runs() {
            return;
        }
        replica.number += 1;
        let identity: Arc<str> = format!("op-{index}-{}", replica.number).into();
        let (stop, stopped) = oneshot::channel::<()>();
        let seed = self.seed ^ (replica.number << 8) ^ index as u64;
        let parts = parts(&self.world, &self.setup, index, &identity, seed, stopped);
        let world = Shared::clone(&self.world);
        {
            let mut world = lock(&world);
            world.started_us = world.now_us();
        }
        lock(&world).note(&format!("{identity} starts"));
        replica.run(world, identity, stop, waystation::operator::run(parts));
    }

    /// Kills a replica wherever it is.
    pub fn crash(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some(task) = replica.kill() {
            lock(&self.world).note(&format!("op-{index}-{} is killed", replica.number));
            task.abort();
        }
    }

    /// Asks a replica to end.
    pub fn stop(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some(task) = replica.ask() {
            lock(&self.world).note(&format!("op-{index}-{} is asked to end", replica.number));
            // It must not run beside its successor for ever.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(25)).await;
                task.abort();
            });
        }
    }

    /// The replica that holds the Lease, if it runs.
    pub fn leader(&self, holder: &str) -> Option<usize> {
        let leads =
            |(index, replica): &(usize, &Life)| replica.runs() && format!("op-{index}-{}", replica.number) == holder;
        self.replicas.iter().enumerate().find(leads).map(|(index, _)| index)
    }
}

fn parts(
    world: &Shared,
    setup: &Setup,
    replica: usize,
    identity: &Arc<str>,
    seed: u64,
    stopped: oneshot::Receiver<()>,
) -> Parts {
    let server = ApiServer { world: Shared::clone(world), replica, identity: Arc::clone(identity) };
    let client = || Client::new(server.clone(), "default");
    let mut options = Options::usual(&**identity, seed);
    options.watch.page = setup.page;
    options.watch.mode = if setup.stream { watch::Mode::Stream } else { watch::Mode::List };
    options.timing.retry_cap_ms = 50_000;
    options.timing.drain_cap_ms = 5_000;
    let began = lock(world).began;
    let watched = Shared::clone(world);
    let name = Arc::clone(identity);
    Parts {
        read_client: client(),
        write_client: client(),
        permit: permit(),
        links: Arc::new(SimLinks { world: Shared::clone(world), identity: Arc::clone(identity) }),
        router_links: Arc::new(SimRouterLinks { world: Shared::clone(world), identity: Arc::clone(identity) }),
        clock: Arc::new(SimClock(began)),
        options,
        health: Health::default(),
        inspect: Some(Arc::new(move |model: &Model| {
            if let Err(broken) = model.check() {
                lock(&watched).violated(format!("{name}: the model is broken: {broken}"));
            }
        })),
        shutdown: asked(stopped),
    }
}
