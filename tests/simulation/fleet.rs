//! Replicas of the operator: the very code that runs in a cluster, started, stopped and killed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use waystation::cluster::watch;
use waystation::engine::clock::Clock;
use waystation::engine::permit::permit;
use waystation::messaging::model::Model;
use waystation::operator::{Health, Options, Parts};

use crate::api::service::ApiServer;
use crate::api::store::EPOCH_S;
use crate::broker::SimLinks;
use crate::plan::Setup;
use crate::router::link::SimRouterLinks;
use crate::world::{Shared, lock};

/// Longest wait before something that a broker refused is tried again; ten minutes in a cluster.
pub const RETRY: Duration = Duration::from_secs(60);

struct SimClock(Instant);

impl Clock for SimClock {
    fn unix_micros(&self) -> i64 {
        EPOCH_S * 1_000_000 + i64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

#[derive(Default)]
struct Replica {
    life: u64,
    running: Option<(JoinHandle<()>, oneshot::Sender<()>)>,
}

/// All replicas.
pub struct Fleet {
    world: Shared,
    setup: Setup,
    seed: u64,
    replicas: Vec<Replica>,
}

impl Fleet {
    pub fn new(world: Shared, setup: Setup, seed: u64) -> Self {
        let replicas = (0..setup.replicas).map(|_| Replica::default()).collect();
        Self { world, setup, seed, replicas }
    }

    pub fn count(&self) -> usize {
        self.replicas.len()
    }

    /// Starts a replica that does not run.
    pub fn start(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if replica.running.as_ref().is_some_and(|(task, _)| !task.is_finished()) {
            return;
        }
        replica.life += 1;
        let identity: Arc<str> = format!("op-{index}-{}", replica.life).into();
        let (stop, stopped) = oneshot::channel::<()>();
        let seed = self.seed ^ (replica.life << 8) ^ index as u64;
        let parts = parts(&self.world, &self.setup, index, &identity, seed, stopped);
        let world = Shared::clone(&self.world);
        {
            let mut world = lock(&world);
            world.started_us = world.now_us();
        }
        lock(&world).note(&format!("{identity} starts"));
        let running = async move {
            let ended = AssertUnwindSafe(waystation::operator::run(parts)).catch_unwind().await;
            let mut world = lock(&world);
            world.note(&format!("{identity} ended"));
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => world.violated(format!("{identity} ended: {error}")),
                Err(_) => world.violated(format!("{identity} panicked")),
            }
        };
        replica.running = Some((tokio::spawn(running), stop));
    }

    /// Kills a replica wherever it is.
    pub fn crash(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some((task, _)) = replica.running.take() {
            lock(&self.world).note(&format!("op-{index}-{} is killed", replica.life));
            task.abort();
        }
    }

    /// Asks a replica to end.
    pub fn stop(&mut self, index: usize) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some((task, stop)) = replica.running.take() {
            lock(&self.world).note(&format!("op-{index}-{} is asked to end", replica.life));
            let _ = stop.send(());
            // It must not run beside its successor for ever.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(25)).await;
                task.abort();
            });
        }
    }

    /// The replica that holds the Lease, if it runs.
    pub fn leader(&self, holder: &str) -> Option<usize> {
        let life = |(index, replica): (usize, &Replica)| (index, format!("op-{index}-{}", replica.life));
        let running =
            |(_, replica): &(usize, &Replica)| replica.running.as_ref().is_some_and(|(task, _)| !task.is_finished());
        self.replicas
            .iter()
            .enumerate()
            .filter(running)
            .map(life)
            .find(|(_, identity)| identity == holder)
            .map(|(index, _)| index)
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
        shutdown: async move {
            // Killed or asked: both ways it is told to nobody else.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed(),
    }
}
