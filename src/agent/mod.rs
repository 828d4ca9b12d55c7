//! Wiring of `waystation edge`: watches → model → drive of the HAProxy beside it → statuses, and in which order all of it
//! starts and ends.
//!
//! No leader is needed for traffic to follow the cluster: every agent drives its own HAProxy. One of those of a
//! RouterConfig holds their Lease, and writes statuses and events for all. [`run`] knows no signals, sockets or clocks of
//! its own; [`process`] gives it the real ones.

pub mod certificate;
pub mod dispatch;
pub mod exporter;
pub mod names;
pub mod process;
pub mod progress;
pub mod reports;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use kube::Client;
use tokio::sync::{mpsc, watch as cell};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::edge::presence::{self, Presence, Row};
use crate::cluster::edge::publish::{Count, Publisher};
use crate::cluster::edge::secrets::Secrets;
use crate::cluster::edge::sources::Sources;
use crate::cluster::edge::status::StatusKeeper;
use crate::cluster::lease::LeaseKeeper;
use crate::cluster::readiness::Readiness;
use crate::cluster::{discovery, events, watch};
use crate::drive::haproxy::actor::{HaproxyDrive, Limits, Order};
use crate::drive::haproxy::disk::Disk;
use crate::drive::haproxy::link::ProcessLink;
use crate::edge::ids::{Key, Kind};
use crate::edge::model::Model;
use crate::edge::render::Layout;
use crate::engine::clock::{Clock, Stopwatch};
use crate::engine::jitter::Jitter;
use crate::engine::loops::{Ended, Loop, LoopError, Loops, endless, pass_on};
use crate::engine::owner;
use crate::engine::permit::{self, Granter, Permit};
use crate::engine::pulse::Pulses;
use crate::engine::stop::Stop;
use crate::metrics::KindResult;
use crate::metrics::edge::EdgeMetrics;
use crate::process::meters::Meters;
use dispatch::{Dispatch, Owned};
use names::Resolve;
use progress::Progress;
use reports::Reports;

/// Inputs that may wait for the model; who has more waits.
const INPUTS: usize = 1024;
/// How long what is in flight may take to end.
const PARTING: Duration = Duration::from_secs(10);
/// For a write, where the Lease leaves time for it.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// What can differ between agents.
#[derive(Clone, Debug)]
pub struct Options {
    /// The RouterConfig that is served.
    pub config: Key,
    /// What this agent is called: unique among those of its RouterConfig, and the same after a restart.
    pub name: String,
    /// Namespace of Leases.
    pub namespace: String,
    /// For how long a silent holder keeps the Lease.
    pub lease_duration: Duration,
    /// This process.
    pub identity: String,
    /// Spreads retries.
    pub seed: u64,
    /// Bounds of watches.
    pub watch: watch::Options,
    /// Bounds of the drive.
    pub drive: Limits,
}

/// What shows from outside how a running agent is.
#[derive(Clone)]
pub struct Health {
    /// What it counts.
    pub metrics: Arc<EdgeMetrics>,
    /// Whether its loops move.
    pub pulses: Pulses,
    /// What it waits for of the API server.
    pub readiness: Readiness,
    /// What it waits for of HAProxy.
    pub progress: Progress,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            metrics: Arc::default(),
            pulses: Pulses::default(),
            readiness: Readiness::awaiting(LISTED.map(Kind::as_str)),
            progress: Progress::default(),
        }
    }
}

/// Kinds that are listed as a whole; of Secrets only those that are referred to are read.
const LISTED: [Kind; 6] =
    [Kind::RouterConfig, Kind::IngressClass, Kind::Namespace, Kind::Ingress, Kind::Service, Kind::EndpointSlice];

/// Looks at a model that has settled.
pub type Inspect = Arc<dyn Fn(&Model) + Send + Sync>;

/// Everything that an agent is made of.
pub struct Parts {
    /// For watches, reads and Leases.
    pub read_client: Client,
    /// For writes of statuses and events.
    pub write_client: Client,
    /// Leave to write, which the Lease grants.
    pub permit: (Granter, Permit),
    /// How HAProxy is reached.
    pub link: Arc<dyn ProcessLink>,
    /// Where its files are.
    pub disk: Arc<dyn Disk>,
    /// What they are called.
    pub layout: Layout,
    /// The certificate of hosts without one: with its key, as PEM.
    pub fallback_certificate: Arc<str>,
    /// Who is asked for names.
    pub resolver: Arc<dyn Resolve>,
    /// Unix time.
    pub clock: Arc<dyn Clock>,
    /// What can differ.
    pub options: Options,
    /// Filled as it runs.
    pub health: Health,
    /// Looks at the model whenever it has settled: for simulations, which hold HAProxy against what was wanted.
    pub inspect: Option<Inspect>,
    /// When it resolves, the agent ends in order.
    pub shutdown: BoxFuture<'static, ()>,
}

/// Runs an agent until `shutdown`, or until one of its loops fails.
///
/// # Errors
/// When a loop fails.
pub async fn run(parts: Parts) -> Result<(), LoopError> {
    let Parts {
        read_client,
        write_client,
        permit: (granter, permit),
        link,
        disk,
        layout,
        fallback_certificate,
        resolver,
        clock,
        options,
        health,
        inspect,
        shutdown,
    } = parts;
    let jitter = Jitter::seeded(options.seed);
    let deadline = permit::deadline(WRITE_DEADLINE, options.lease_duration);
    let meters = Arc::new(Meters(Arc::clone(&health.metrics)));
    let (inputs, inbox) = mpsc::channel(INPUTS);
    let (orders, ordered) = mpsc::unbounded_channel();
    let (reported, reports) = mpsc::channel(INPUTS);
    let (observed_in, observed) = mpsc::unbounded_channel();
    let (asked_in, asked) = mpsc::unbounded_channel();
    let (named_in, named) = mpsc::unbounded_channel();
    let (configs_in, configs) = mpsc::unbounded_channel();
    let (rows_in, rows) = mpsc::unbounded_channel();
    let (news_in, mut news) = mpsc::channel::<bool>(1);
    let (event_queue, event_writer) = events::queue("waystation.dev/edge", meters.clone());
    let begun =
        Row { name: options.name.clone(), state: "Connecting", message: String::new(), since_s: clock.unix_s() };
    let (own_in, own) = cell::channel(begun);
    let (stop, release, released, drive_ended) = (Stop::default(), Stop::default(), Stop::default(), Stop::default());
    let (publisher_ended, presence_ended) = (Stop::default(), Stop::default());
    let mut loops: JoinSet<Ended> = JoinSet::new();

    let mut dispatch = Dispatch {
        orders: orders.clone(),
        secrets: asked_in,
        names: named_in,
        observed: observed_in.clone(),
        events: event_queue.clone(),
        metrics: Arc::clone(&health.metrics),
        progress: health.progress.clone(),
    };
    let model = Owned::new(Model::new(options.config.clone()), inspect);
    let (pulse, stopwatch, owner_clock) = (health.pulses.of("model"), Stopwatch::start(), Arc::clone(&clock));
    loops.spawn(endless("model", async move {
        owner::own(model, inbox, owner_clock, stopwatch, pulse, move |output, taken| dispatch.carry_out(output, taken))
            .await;
    }));

    let drive = HaproxyDrive {
        link,
        disk,
        layout,
        fallback_certificate,
        orders: ordered,
        reports: reported,
        limits: options.drive.clone(),
        jitter: jitter.fork(),
        clock: Arc::clone(&clock),
        meter: meters.clone(),
    };
    loops.spawn(drive.run().map(expected(&stop, &drive_ended, "drive")));
    let reports = Reports {
        reports,
        inputs: inputs.clone(),
        own: own_in,
        events: event_queue.clone(),
        metrics: Arc::clone(&health.metrics),
        progress: health.progress.clone(),
        clock: Arc::clone(&clock),
    };
    // It ends with the drive.
    loops.spawn(reports.run().map(expected(&stop, &Stop::default(), "reports")));
    loops.spawn(endless("exporter", exporter::look(health.progress.clone(), Arc::clone(&health.metrics))));
    loops.spawn(endless("names", names::follow(resolver, named, inputs.clone(), jitter.fork())));

    let lease = LeaseKeeper {
        client: read_client.clone(),
        namespace: options.namespace.clone(),
        name: presence::lease_name(&options.config),
        identity: options.identity.clone(),
        duration: options.lease_duration,
        granter,
        inputs: news_in,
        as_input: |leads| leads,
        clock: Arc::clone(&clock),
        readiness: health.readiness.clone(),
        jitter: jitter.fork(),
        meter: meters.clone(),
        release: release.clone(),
    };
    loops.spawn(lease.run().map(|_| ()).map(expected(&release, &released, "Lease")));
    // Who leads is told by the permit.
    loops.spawn(endless("news of the Lease", async move { while news.recv().await.is_some() {} }).map({
        let release = release.clone();
        move |ended| if release.is_requested() { Ended::Expected } else { ended }
    }));
    let secrets = Secrets {
        client: read_client.clone(),
        asked,
        inputs: inputs.clone(),
        options: options.watch.clone(),
        jitter: jitter.fork(),
        meter: meters.clone(),
    };
    loops.spawn(endless("Secrets", secrets.run().map(|_| ())));
    let publisher = Publisher {
        client: write_client.clone(),
        config: options.config.clone(),
        observed,
        configs: configs_in,
        permit: permit.clone(),
        deadline,
        jitter: jitter.fork(),
        events: event_queue.clone(),
        count: count(&health.metrics, "Ingress"),
        stop: stop.clone(),
    };
    loops.spawn(publisher.run().map(expected(&stop, &publisher_ended, "status of Ingresses")));
    let status = StatusKeeper {
        client: write_client.clone(),
        configs,
        rows,
        permit: permit.clone(),
        deadline,
        clock: Arc::clone(&clock),
        jitter: jitter.fork(),
        count: count(&health.metrics, "RouterConfig"),
        stop: stop.clone(),
    };
    loops.spawn(status.run().map(expected(&stop, &Stop::default(), "status")));
    let presence = Presence {
        client: read_client.clone(),
        namespace: options.namespace.clone(),
        config: options.config.clone(),
        identity: options.identity.clone(),
        own,
        rows: rows_in,
        permit: permit.clone(),
        deadline,
        clock: Arc::clone(&clock),
        options: options.watch.clone(),
        jitter: jitter.fork(),
        meter: meters.clone(),
        stop: stop.clone(),
    };
    loops.spawn(presence.run().map(expected(&stop, &presence_ended, "presence")));
    let identity: Arc<str> = options.identity.as_str().into();
    loops.spawn(endless("events", event_writer.run(write_client, (permit, deadline), Arc::clone(&clock), identity)));
    let sources = Sources {
        client: read_client,
        config: options.config.clone(),
        options: options.watch,
        jitter: jitter.fork(),
        inputs,
        observed: observed_in,
        readiness: health.readiness.clone(),
        events: event_queue,
        meter: meters,
    };
    loops.spawn(endless("watches", watch_all(sources)));

    let (_starter, mut to_start) = mpsc::unbounded_channel::<Loop>();
    let mut loops = Loops::new(loops, shutdown);
    loops.until_shutdown(&mut to_start).await?;

    tracing::info!("ending: files are written, HAProxy goes on");
    stop.request();
    // The drive may have ended by itself.
    let _ = orders.send(Order::Finish);
    let finished = async {
        drive_ended.requested().await;
        publisher_ended.requested().await;
        presence_ended.requested().await;
    };
    loops.meanwhile(Instant::now() + PARTING, finished).await?;
    release.request();
    loops.meanwhile(Instant::now() + PARTING, released.requested()).await
}

/// A loop that ends once it is told to, and tells that it has.
fn expected(told: &Stop, ended: &Stop, name: &'static str) -> impl FnOnce(()) -> Ended + Send + use<> {
    let (told, ended) = (told.clone(), ended.clone());
    move |()| {
        ended.request();
        if told.is_requested() { Ended::Expected } else { Ended::Unexpected(name) }
    }
}

fn count(metrics: &Arc<EdgeMetrics>, kind: &'static str) -> Count {
    let metrics = Arc::clone(metrics);
    Arc::new(move |result| {
        metrics.loops.writes.get_or_create(&KindResult { kind, result: result.as_str() }).inc();
    })
}

/// The watches of all kinds, begun when the API server has ours.
async fn watch_all(sources: Sources) {
    discovery::crds(&sources.client, discovery::EDGE_KINDS, &sources.readiness).await;
    // Of Secrets only those that are referred to are read, which are known when all else is.
    if sources.inputs.send(crate::edge::input::Input::Synced(Kind::Secret)).await.is_err() {
        return;
    }
    let mut kinds = JoinSet::new();
    kinds.spawn(sources.clone().router_config());
    kinds.spawn(sources.clone().ingress_classes());
    kinds.spawn(sources.clone().namespaces());
    kinds.spawn(sources.clone().ingresses());
    kinds.spawn(sources.clone().services());
    kinds.spawn(sources.endpoint_slices());
    // Any end is the end of all.
    kinds.join_next().await.and_then(pass_on);
}
