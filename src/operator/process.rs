//! The operator as a process: arguments, logs, clients, signals and sockets.

use std::sync::Arc;

use anyhow::Context;
use futures::FutureExt;
use tokio::net::TcpListener;

use super::links::ArtemisLinks;
use super::router_links::QpidLinks;
use super::{Health, Options, Parts};
use crate::cli::{InstallationArgs, OperatorArgs};
use crate::cluster::{watch, writer};
use crate::drive::broker::actor;
use crate::engine::permit::permit;
use crate::messaging::model::Timing;
use crate::process::clients::{read_client, write_client};
use crate::process::{Ending, MachineClock, STUCK, UNUSABLE, identity, log, own_namespace, seed, watch_mode};
use crate::serve::{self, Probes};

/// Where `charts/waystation/rbac/account.yaml` has it.
const NAMESPACE: &str = "waystation-system";

/// Runs `waystation operator` until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or when one of its loops fails.
pub fn run(args: OperatorArgs) -> anyhow::Result<()> {
    log(args.common.log_format);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(operate(args))
}

async fn operate(args: OperatorArgs) -> anyhow::Result<()> {
    // Before anything that takes time: a signal must never kill a process that has begun to act.
    let ending = Ending::listen()?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let config = kube::Config::infer().await.context("no kubeconfig, and not in a cluster")?;
    let health = Health::default();
    let options = options(&args);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        controller = options.controller_name,
        identity = options.identity,
        listen = %listener.local_addr()?,
        cluster = %config.cluster_url,
        "starting"
    );
    let (granter, permit) = permit();
    let parts = Parts {
        read_client: read_client(config.clone(), &health.metrics.loops.api_requests).context(UNUSABLE)?,
        // Two more for events.
        write_client: write_client(
            config,
            &health.metrics.loops.api_requests,
            usize::from(args.write_concurrency) + 2,
            permit.clone(),
        )
        .context(UNUSABLE)?,
        links: Arc::new(ArtemisLinks {
            container_id: format!("waystation-{}", options.identity),
            connect: options.drive.connect,
            request: options.drive.read,
            permit: permit.clone(),
        }),
        router_links: Arc::new(QpidLinks {
            container_id: format!("waystation-{}", options.identity),
            connect: options.drive.connect,
            request: options.drive.read,
            permit: permit.clone(),
        }),
        permit: (granter, permit),
        clock: Arc::new(MachineClock),
        options,
        health: health.clone(),
        inspect: None,
        shutdown: ending.told().boxed(),
    };
    let probes = probes(&health);
    tokio::select! {
        biased;
        ended = super::run(parts) => {
            ended?;
            tracing::info!("ended in order");
            Ok(())
        }
        served = serve::serve(listener, probes) => served.context("the listener failed"),
    }
}

fn probes(health: &Health) -> Probes {
    let Health { metrics, pulses, readiness } = health.clone();
    Probes {
        stuck: Arc::new(move || pulses.stuck(STUCK).into_iter().map(str::to_owned).collect()),
        awaits: Arc::new(move || readiness.awaits()),
        metrics: Arc::new(move || metrics.text()),
    }
}

/// Where the operator's Lease is.
pub(super) fn namespace(args: &InstallationArgs) -> String {
    args.namespace.clone().unwrap_or_else(|| own_namespace(NAMESPACE))
}

fn options(args: &OperatorArgs) -> Options {
    Options {
        controller_name: args.installation.controller_name.clone(),
        namespace: namespace(&args.installation),
        lease_name: args.installation.lease_name().to_owned(),
        lease_duration: args.common.lease_duration,
        identity: identity(),
        seed: seed(),
        watch: watch::Options {
            mode: watch_mode(args.common.watch_mode),
            page: args.common.page_size,
            ..watch::Options::default()
        },
        writer: writer::Limits { concurrency: usize::from(args.write_concurrency), ..writer::Limits::default() },
        drive: actor::Limits::default(),
        timing: Timing {
            resync_ms: u64::try_from(args.common.resync_interval.as_millis()).unwrap_or(u64::MAX),
            ..Timing::default()
        },
    }
}
