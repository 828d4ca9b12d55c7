//! The agent as a process: arguments, clients, signals, sockets, and the supervisor of a single machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::names::System;
use super::{Health, Options, Parts, certificate};
use crate::cli::{EdgeArgs, SuperviseArgs};
use crate::cluster::watch;
use crate::drive::haproxy::actor::Limits;
use crate::drive::haproxy::disk::Folder;
use crate::drive::haproxy::socket::SocketLink;
use crate::edge::ids::Key;
use crate::edge::render::Layout;
use crate::engine::permit::permit;
use crate::process::clients::{read_client, write_client};
use crate::process::{
    Ending, MachineClock, STUCK, UNUSABLE, host_name, identity, log, own_namespace, seed, watch_mode,
};
use crate::serve::{self, Probes};
use crate::supervise;

/// Where `charts/waystation/rbac/edge.yaml` has it.
const NAMESPACE: &str = "waystation-edge";
/// Writes at a time: statuses and events.
const WRITES: usize = 12;
const CONNECT: Duration = Duration::from_secs(5);
/// As long as a configuration with tens of thousands of backends takes, many times over.
const RELOAD: Duration = Duration::from_secs(60);
/// Between two looks whether the supervisor is there.
const SUPERVISOR: Duration = Duration::from_millis(500);

/// Runs `waystation edge` until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or when one of its loops fails.
pub fn run(args: EdgeArgs) -> anyhow::Result<()> {
    log(args.common.log_format);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(edge(args))
}

async fn edge(args: EdgeArgs) -> anyhow::Result<()> {
    // Before anything that takes time: a signal must never kill a process that has begun to act.
    let ending = Ending::listen()?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let config = kube::Config::infer().await.context("no kubeconfig, and not in a cluster")?;
    let (namespace, name) = args.router_config.split_once('/').context("--router-config is not NAMESPACE/NAME")?;
    let folder = absolute(&args.folder)?;
    let layout = Layout::new(folder.clone());
    let fallback_certificate = certificate::fallback(&layout).context("no certificate could be made")?;
    let health = Health::default();
    let options = Options {
        config: Key::new(namespace, name),
        name: args.name.clone().unwrap_or_else(host_name),
        namespace: args.namespace.clone().unwrap_or_else(|| own_namespace(NAMESPACE)),
        lease_duration: args.common.lease_duration,
        identity: identity(),
        seed: seed(),
        watch: watch::Options {
            mode: watch_mode(args.common.watch_mode),
            page: args.common.page_size,
            ..watch::Options::default()
        },
        drive: Limits { compare: args.common.resync_interval, ..Limits::default() },
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        router_config = %options.config,
        name = options.name,
        folder,
        listen = %listener.local_addr()?,
        cluster = %config.cluster_url,
        "starting"
    );
    let socket =
        |given: &Option<PathBuf>, usual: String| given.as_ref().map_or(usual, |path| path.display().to_string());
    let link = SocketLink {
        socket: socket(&args.runtime_socket, layout.socket()),
        master: Some(socket(&args.master_socket, format!("{folder}/master.sock"))),
        connect: CONNECT,
        reload: RELOAD,
    };
    let (granter, permit) = permit();
    let router_config = args.router_config.clone();
    let parts = Parts {
        read_client: read_client(config.clone(), &health.metrics.loops.api_requests).context(UNUSABLE)?,
        write_client: write_client(config, &health.metrics.loops.api_requests, WRITES, permit.clone())
            .context(UNUSABLE)?,
        permit: (granter, permit),
        link: Arc::new(link),
        disk: Arc::new(Folder),
        layout,
        fallback_certificate,
        resolver: Arc::new(System::default()),
        clock: Arc::new(MachineClock),
        options,
        health: health.clone(),
        inspect: None,
        shutdown: ending.told().boxed(),
    };
    let probes = probes(&health, router_config);
    let supervisor = async {
        match &args.haproxy {
            Some(haproxy) => keep_supervisor(Path::new(&folder), haproxy).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ended = super::run(parts) => {
            ended?;
            tracing::info!("ended in order");
            Ok(())
        }
        served = serve::serve(listener, probes) => served.context("the listener failed"),
        failed = supervisor => failed,
    }
}

/// As HAProxy's files name it: absolute, and without what their syntax has another use for.
fn absolute(folder: &Path) -> anyhow::Result<String> {
    let text = std::path::absolute(folder)?.display().to_string();
    let text = text.trim_end_matches('/').to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '+' | '@' | ':');
    ensure!(!text.is_empty() && text.chars().all(plain), "--folder {text}: use letters, digits and -_.+@: alone");
    Ok(text)
}

fn probes(health: &Health, config: String) -> Probes {
    let Health { metrics, pulses, readiness, progress } = health.clone();
    Probes {
        stuck: Arc::new(move || pulses.stuck(STUCK).into_iter().map(str::to_owned).collect()),
        awaits: Arc::new(move || {
            let awaits = readiness.awaits();
            if awaits.is_empty() { progress.awaits(&config) } else { awaits }
        }),
        metrics: Arc::new(move || metrics.text()),
    }
}

// === The supervisor of a single machine ===

/// Sees to it that there is a supervisor, in a process group of its own: it outlives us, as HAProxy does. One that is there
/// keeps the folder, and the one that we start then ends by itself.
async fn keep_supervisor(folder: &Path, haproxy: &Path) -> anyhow::Result<()> {
    let mut child = None;
    loop {
        let ended = match &mut child {
            None => true,
            Some(child) => Child::try_wait(child)?.is_some(),
        };
        if ended && !supervise::is_kept(folder) {
            child = Some(start_supervisor(folder, haproxy).context("the supervisor cannot be started")?);
        }
        sleep(SUPERVISOR).await;
    }
}

fn start_supervisor(folder: &Path, haproxy: &Path) -> std::io::Result<Child> {
    // Not ours: what it says must have a place when we are gone.
    let log = folder.join("supervise.log");
    let output = std::fs::File::options().create(true).append(true).open(&log)?;
    Command::new(std::env::current_exe()?)
        .arg("supervise")
        .arg("--folder")
        .arg(folder)
        .arg("--haproxy")
        .arg(haproxy)
        .arg("--log-file")
        .arg(log)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
}

/// Runs `waystation supervise` until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot supervise that folder.
pub fn run_supervise(args: SuperviseArgs) -> anyhow::Result<()> {
    log(args.log_format);
    // One thread: HAProxy is told to end when the one that started it does.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut hang_up = signal(SignalKind::hangup())?;
        let options = supervise::Options {
            folder: absolute(&args.folder)?.into(),
            haproxy: args.haproxy.clone(),
            grace: args.grace,
            log: args.log_file.clone(),
        };
        let (told, signals) = tokio::sync::mpsc::channel(8);
        let listening = async move {
            loop {
                let signal = tokio::select! {
                    _ = terminate.recv() => supervise::Signal::Terminate,
                    _ = interrupt.recv() => supervise::Signal::Terminate,
                    _ = hang_up.recv() => supervise::Signal::Reload,
                };
                if told.send(signal).await.is_err() {
                    return;
                }
            }
        };
        tokio::spawn(listening);
        Ok(supervise::run(options, signals).await?)
    })
}
