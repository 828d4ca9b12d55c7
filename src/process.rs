//! What every process needs of the machine: a log, time, a name of its own, clients.

pub mod clients;
pub mod meters;
pub mod requests;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, WatchMode};
use crate::cluster::watch;
use crate::engine::clock::Clock;

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// What is said of a kubeconfig that no client can be made of.
pub const UNUSABLE: &str = "the kubeconfig cannot be used";
/// A loop that is at one piece of work for longer is stuck.
pub const STUCK: Duration = Duration::from_secs(120);

/// SIGTERM and SIGINT, heard from the moment in which this is made.
#[derive(Debug)]
pub struct Ending {
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses that.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits until this process is told to end.
    pub async fn told(mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The time of the machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn unix_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Begins to log.
pub fn log(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,waystation=info,fe2o3_amqp=error"));
    let colour = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

/// The name of the machine or Pod.
pub fn host_name() -> String {
    let told = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let read = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|host| host.trim().to_owned());
    told.or_else(read).unwrap_or_else(|| "waystation".to_owned())
}

/// A name of this process, unlike that of any other.
pub fn identity() -> String {
    // The name of a Pod stays over restarts of its container: the rest tells them apart.
    format!("{}-{}-{:x}", host_name(), std::process::id(), MachineClock.unix_micros())
}

/// For spreading retries: other for every process.
pub fn seed() -> u64 {
    MachineClock.unix_micros().unsigned_abs() ^ (u64::from(std::process::id()) << 32)
}

/// How first lists are read.
pub fn watch_mode(mode: WatchMode) -> watch::Mode {
    match mode {
        WatchMode::List => watch::Mode::List,
        WatchMode::Stream => watch::Mode::Stream,
    }
}

/// The namespace of this Pod, or the `usual` one.
pub fn own_namespace(usual: &str) -> String {
    std::fs::read_to_string(Path::new(NAMESPACE_FILE))
        .ok()
        .map(|namespace| namespace.trim().to_owned())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| usual.to_owned())
}
