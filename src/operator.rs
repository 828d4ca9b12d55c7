//! Wiring of `waystation operator`: watches → model → drives → statuses, and in which order all of it starts and ends.
//!
//! [`run`] knows no signals, sockets or clocks of its own, so that the simulation runs the very same; [`process`] gives
//! it the real ones. Every loop stands in one set: when one ends that should not, or panics, all of it ends, loudly.

pub mod dispatch;
pub mod links;
pub mod process;
pub mod release;
pub mod router_links;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::children::Children;
use crate::cluster::endpoints::EndpointSlices;
use crate::cluster::events;
use crate::cluster::lease::LeaseKeeper;
use crate::cluster::readiness::Readiness;
use crate::cluster::references::References;
use crate::cluster::secrets::{SecretStore, Secrets};
use crate::cluster::sources::Sources;
use crate::cluster::writer::Writer;
use crate::cluster::{discovery, watch, writer};
use crate::drive::broker::actor;
use crate::engine::clock::{Clock, Stopwatch};
use crate::engine::jitter::Jitter;
pub use crate::engine::loops::LoopError as OperatorError;
use crate::engine::loops::{Ended, Loop, Loops, endless, pass_on};
use crate::engine::mailbox::Mailbox;
use crate::engine::owner;
use crate::engine::permit::{self, Granter, Permit};
use crate::engine::pulse::Pulses;
use crate::engine::stop::Stop;
use crate::messaging::input::Input;
use crate::messaging::model::{Model, Timing};
use crate::metrics::Metrics;
use crate::process::meters::Meters;
use dispatch::{Dispatch, Owned};
use links::Links;
use router_links::RouterLinks;

/// Inputs that may wait for the model; who has more waits.
const INPUTS: usize = 1024;
/// How long what is in flight may take to end.
const PARTING: Duration = Duration::from_secs(10);

/// What can differ between installations.
#[derive(Clone, Debug)]
pub struct Options {
    /// The installation whose RouterConfigs are ours.
    pub controller_name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// For how long a silent holder keeps the Lease.
    pub lease_duration: Duration,
    /// Who we are: unique among all processes, also over restarts.
    pub identity: String,
    /// Spreads retries.
    pub seed: u64,
    /// Bounds of watches.
    pub watch: watch::Options,
    /// Bounds of the status writer; its deadline is cut to what the Lease allows.
    pub writer: writer::Limits,
    /// Bounds of the drives; their deadline for commands is cut to what the Lease allows.
    pub drive: actor::Limits,
    /// Waiting times of the model.
    pub timing: Timing,
}

impl Options {
    /// What is usual, for a process of this identity and seed.
    pub fn usual(identity: impl Into<String>, seed: u64) -> Self {
        Self {
            controller_name: crate::api::DEFAULT_CONTROLLER.to_owned(),
            namespace: "waystation-system".to_owned(),
            lease_name: crate::api::DEFAULT_CONTROLLER.to_owned(),
            lease_duration: Duration::from_secs(15),
            identity: identity.into(),
            seed,
            watch: watch::Options::default(),
            writer: writer::Limits::default(),
            drive: actor::Limits::default(),
            timing: Timing::default(),
        }
    }
}

/// What shows from outside how a running operator is.
#[derive(Clone, Default)]
pub struct Health {
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Whether its loops move.
    pub pulses: Pulses,
    /// What it waits for.
    pub readiness: Readiness,
}

/// Everything that an operator is made of.
pub struct Parts {
    /// For watches, reads and the Lease: without a limit.
    pub read_client: Client,
    /// For writes.
    pub write_client: Client,
    /// Leave to act, which the Lease grants; clients and links may hold it as well.
    pub permit: (Granter, Permit),
    /// How brokers are reached.
    pub links: Arc<dyn Links>,
    /// How routers are reached.
    pub router_links: Arc<dyn RouterLinks>,
    /// Unix time.
    pub clock: Arc<dyn Clock>,
    /// What can differ.
    pub options: Options,
    /// Filled as it runs.
    pub health: Health,
    /// Looks at the model whenever it has settled: for simulations, which check its invariants.
    pub inspect: Option<Inspect>,
    /// When it resolves, the operator ends in order.
    pub shutdown: BoxFuture<'static, ()>,
}

/// Somebody who looks at the model.
pub type Inspect = Arc<dyn Fn(&Model) + Send + Sync>;

/// Runs an operator until `shutdown`, or until one of its loops fails.
///
/// # Errors
/// When a loop fails.
pub async fn run(parts: Parts) -> Result<(), OperatorError> {
    let Parts { read_client, write_client, permit, links, router_links, clock, options, health, inspect, shutdown } =
        parts;
    let jitter = Jitter::seeded(options.seed);
    let meters = Arc::new(Meters(Arc::clone(&health.metrics)));
    let (granter, permit) = permit;
    let (inputs, inbox) = mpsc::channel(INPUTS);
    let (starter, mut to_start) = mpsc::unbounded_channel::<Loop>();
    let (event_queue, event_writer) = events::queue("waystation.dev/operator", meters.clone());
    let (secret_references, service_references) = (References::default(), References::default());
    let store = SecretStore::default();
    let (child_wishes, child_commands) = mpsc::unbounded_channel();
    let outbox = Mailbox::default();
    let (stop_writer, release, released) = (Stop::default(), Stop::default(), Stop::default());
    // The permit must outlast what is sent, and be renewed in time all the same.
    let within = |usual| permit::deadline(usual, options.lease_duration);
    let mut limits = (options.writer.clone(), options.drive.clone());
    limits.0.deadline = within(limits.0.deadline);
    limits.1.command = within(limits.1.command);

    let deadline_of_writes = limits.0.deadline;

    let dispatch = Dispatch::new(dispatch::Parts {
        outbox: outbox.clone(),
        children: child_wishes,
        events: event_queue.clone(),
        store: store.clone(),
        links,
        router_links,
        permit: permit.clone(),
        reports: inputs.clone(),
        limits: limits.1,
        jitter: jitter.fork(),
        meters: Arc::clone(&meters),
        starter,
    });
    let drives = dispatch.drives();

    let mut loops: JoinSet<Ended> = JoinSet::new();
    let model = Owned::new(Model::new(options.timing.clone()), inspect);
    let pulse = health.pulses.of("model");
    let stopwatch = Stopwatch::start();
    let owner_clock = Arc::clone(&clock);
    loops.spawn(endless("model", async move {
        let mut dispatch = dispatch;
        owner::own(model, inbox, owner_clock, stopwatch, pulse, move |output, taken| dispatch.carry_out(output, taken))
            .await;
    }));
    loops.spawn(
        LeaseKeeper {
            client: read_client.clone(),
            namespace: options.namespace.clone(),
            name: options.lease_name.clone(),
            identity: options.identity.clone(),
            duration: options.lease_duration,
            granter,
            inputs: inputs.clone(),
            as_input: Input::Leading,
            clock: Arc::clone(&clock),
            readiness: health.readiness.clone(),
            jitter: jitter.fork(),
            meter: meters.clone(),
            release: release.clone(),
        }
        .run()
        .map({
            let (release, released) = (release.clone(), released.clone());
            move |_| {
                released.request();
                if release.is_requested() { Ended::Expected } else { Ended::Unexpected("Lease") }
            }
        }),
    );
    let secrets = Secrets {
        client: read_client.clone(),
        references: secret_references.clone(),
        store,
        inputs: inputs.clone(),
        options: options.watch.clone(),
        jitter: jitter.fork(),
        meter: meters.clone(),
    };
    loops.spawn(endless("Secrets", secrets.run().map(|_| ())));
    let services = EndpointSlices {
        client: read_client.clone(),
        references: service_references.clone(),
        inputs: inputs.clone(),
        options: options.watch.clone(),
        jitter: jitter.fork(),
        meter: meters.clone(),
    };
    loops.spawn(endless("EndpointSlices", services.run().map(|_| ())));
    let writer_stop = stop_writer.clone();
    let writer = Writer {
        client: write_client.clone(),
        outbox,
        permit: permit.clone(),
        inputs: inputs.clone(),
        limits: limits.0,
        jitter: jitter.fork(),
        meter: meters.clone(),
        stop: stop_writer.clone(),
    };
    let writer_ended = Stop::default();
    let ended = writer_ended.clone();
    loops.spawn(writer.run().map(move |()| {
        ended.request();
        if writer_stop.is_requested() { Ended::Expected } else { Ended::Unexpected("status writer") }
    }));
    let children_stop = stop_writer.clone();
    let children = Children {
        client: read_client.clone(),
        write_client: write_client.clone(),
        permit: permit.clone(),
        commands: child_commands,
        inputs: inputs.clone(),
        options: options.watch.clone(),
        deadline: deadline_of_writes,
        jitter: jitter.fork(),
        meter: meters.clone(),
        stop: stop_writer.clone(),
    };
    let children_ended = Stop::default();
    let ended = children_ended.clone();
    loops.spawn(children.run().map(move |()| {
        ended.request();
        if children_stop.is_requested() { Ended::Expected } else { Ended::Unexpected("Services") }
    }));
    let identity: Arc<str> = options.identity.as_str().into();
    loops.spawn(endless(
        "events",
        event_writer.run(write_client, (permit, deadline_of_writes), Arc::clone(&clock), identity),
    ));
    let sources = Watching {
        client: read_client,
        options,
        jitter: jitter.fork(),
        inputs,
        secrets: secret_references,
        services: service_references,
        readiness: health.readiness.clone(),
        events: event_queue,
        meters,
    };
    loops.spawn(endless("watches", sources.run()));

    let mut supervise = Loops::new(loops, shutdown);
    supervise.until_shutdown(&mut to_start).await?;

    // Nothing new is begun; what was sent is answered; only then may another begin.
    tracing::info!("ending: what is in flight is finished first");
    stop_writer.request();
    drives.finish();
    let deadline = Instant::now() + PARTING;
    let finished = async {
        writer_ended.requested().await;
        children_ended.requested().await;
        drives.finished().await;
    };
    supervise.meanwhile(deadline, finished).await?;
    release.request();
    supervise.meanwhile(Instant::now() + PARTING, released.requested()).await
}

/// The watches of all kinds, begun when the API server has them.
struct Watching {
    client: Client,
    options: Options,
    jitter: Jitter,
    inputs: mpsc::Sender<Input>,
    secrets: References,
    services: References,
    readiness: Readiness,
    events: events::EventQueue,
    meters: Arc<Meters<Metrics>>,
}

impl Watching {
    async fn run(self) {
        discovery::crds(&self.client, discovery::KINDS, &self.readiness).await;
        let cluster_uid = discovery::cluster_uid(&self.client).await;
        let sources = Sources {
            client: self.client,
            controller_name: self.options.controller_name.as_str().into(),
            cluster_uid: cluster_uid.as_str().into(),
            options: self.options.watch,
            jitter: self.jitter,
            inputs: self.inputs,
            secrets: self.secrets,
            services: self.services,
            readiness: self.readiness,
            events: self.events,
            meter: self.meters,
        };
        let all = (
            sources.clone().namespaces(),
            sources.clone().router_configs(),
            sources.clone().address_spaces(),
            sources.addresses(),
        );
        // Any end is the end of all.
        let mut kinds = JoinSet::new();
        kinds.spawn(all.0);
        kinds.spawn(all.1);
        kinds.spawn(all.2);
        kinds.spawn(all.3);
        kinds.join_next().await.and_then(pass_on);
    }
}
