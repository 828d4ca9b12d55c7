//! Agents: the very code that runs beside a HAProxy, started, stopped and killed.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::oneshot;
use waystation::agent::names::{Answer, Resolve};
use waystation::agent::{Health, Options, Parts};
use waystation::cluster::watch;
use waystation::drive::haproxy::actor::Limits;
use waystation::edge::ids::Key;
use waystation::edge::model::Model;
use waystation::engine::permit::permit;

use super::disk::SimDisk;
use super::link::SimLink;
use super::objects::{CONFIG, fallback};
use super::plan::Setup;
use super::world::{LEASES, Shared};
use crate::api::lock;
use crate::api::service::ApiServer;
use crate::life::{Life, SimClock, asked};

/// Knows no name.
struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, _: &str) -> BoxFuture<'_, Answer> {
        async { Answer::Absent }.boxed()
    }
}

/// Between two comparisons.
pub const COMPARE: Duration = Duration::from_secs(45);

/// All agents, one a machine.
pub struct Fleet {
    world: Shared,
    setup: Setup,
    seed: u64,
    agents: Vec<Life>,
}

impl Fleet {
    pub fn new(world: Shared, setup: Setup, seed: u64) -> Self {
        let agents = (0..setup.agents).map(|_| Life::default()).collect();
        Self { world, setup, seed, agents }
    }

    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// Starts an agent that does not run.
    pub fn start(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        if agent.runs() {
            return;
        }
        agent.number += 1;
        let identity: Arc<str> = format!("edge-{index}-{}", agent.number).into();
        let (stop, stopped) = oneshot::channel::<()>();
        let world = Shared::clone(&self.world);
        {
            let mut world = lock(&world);
            world.note(&format!("{identity} starts"));
            world.machines[index].life = agent.number;
            world.machines[index].window.unfollowed();
        }
        let seed = self.seed ^ (agent.number << 8) ^ index as u64;
        let parts = parts(&world, &self.setup, (index, agent.number), &identity, seed, stopped);
        agent.run(world, identity, stop, waystation::agent::run(parts));
    }

    /// Kills an agent wherever it is.
    pub fn crash(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        if let Some(task) = agent.kill() {
            let mut world = lock(&self.world);
            world.note(&format!("edge-{index}-{} is killed", agent.number));
            world.machines[index].life = 0;
            world.machines[index].window.unfollowed();
            task.abort();
        }
    }

    /// Asks an agent to end, and waits until it has: two never write the same files.
    pub async fn stop(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        if let Some(task) = agent.ask() {
            lock(&self.world).note(&format!("edge-{index}-{} is asked to end", agent.number));
            let killed = task.abort_handle();
            if tokio::time::timeout(Duration::from_secs(25), task).await.is_err() {
                killed.abort();
            }
            lock(&self.world).machines[index].window.unfollowed();
        }
    }
}

fn parts(
    world: &Shared,
    setup: &Setup,
    (index, life): (usize, u64),
    identity: &Arc<str>,
    seed: u64,
    stopped: oneshot::Receiver<()>,
) -> Parts {
    let server = ApiServer { world: Shared::clone(world), replica: index, identity: Arc::clone(identity) };
    let client = || Client::new(server.clone(), "default");
    let (began, layout) = {
        let world = lock(world);
        (world.began, world.machines[index].layout.clone())
    };
    let drive = Limits {
        look: Duration::from_millis(400),
        compare: COMPARE,
        reload: Duration::from_secs(2),
        reload_longest: Duration::from_secs(10),
        ..Limits::default()
    };
    let mode = if setup.stream { watch::Mode::Stream } else { watch::Mode::List };
    let (watched, name) = (Shared::clone(world), Arc::clone(identity));
    Parts {
        read_client: client(),
        write_client: client(),
        permit: permit(),
        link: Arc::new(SimLink { world: Shared::clone(world), machine: index, life }),
        disk: Arc::new(SimDisk { world: Shared::clone(world), machine: index, life }),
        layout,
        fallback_certificate: fallback().into(),
        resolver: Arc::new(NoNames),
        clock: Arc::new(SimClock(began)),
        options: Options {
            config: Key::new(CONFIG.0, CONFIG.1),
            name: format!("edge-{index}"),
            namespace: LEASES.to_owned(),
            lease_duration: Duration::from_secs(15),
            identity: identity.to_string(),
            seed,
            watch: watch::Options { mode, page: setup.page, ..watch::Options::default() },
            drive,
        },
        health: Health::default(),
        inspect: Some(Arc::new(move |model: &Model| {
            let mut world = lock(&watched);
            if world.machines[index].life != life || model.configured().is_none() {
                return;
            }
            if let Err(broken) = model.check() {
                world.violated(format!("{name}: the model is broken: {broken}"));
            }
            world.machines[index].window.want(model.wanted(), model.in_force());
        })),
        shutdown: asked(stopped),
    }
}
