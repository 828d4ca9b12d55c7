//! The operator as a process: arguments, logs, clients, signals and sockets.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use futures::FutureExt;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tracing_subscriber::EnvFilter;

use super::links::ArtemisLinks;
use super::requests::CountRequests;
use super::router_links::QpidLinks;
use super::{Health, Options, Parts};
use crate::cli::{LogFormat, OperatorArgs, WatchMode};
use crate::cluster::{watch, writer};
use crate::drive::broker::actor;
use crate::engine::clock::Clock;
use crate::engine::guarded::Guarded;
use crate::engine::permit::{Permit, permit};
use crate::messaging::model::Timing;
use crate::metrics::Metrics;
use crate::serve::{self, Probes};

const DEFAULT_NAMESPACE: &str = "waystation-system";
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const UNUSABLE: &str = "the kubeconfig cannot be used";
/// A loop that is at one piece of work for longer is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// The time of the machine.
struct MachineClock;

impl Clock for MachineClock {
    fn unix_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Runs `waystation operator` until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or when one of its loops fails.
pub fn run(args: OperatorArgs) -> anyhow::Result<()> {
    log(args.log_format);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(operate(args))
}

fn log(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,waystation=info,fe2o3_amqp=error"));
    let colour = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

async fn operate(args: OperatorArgs) -> anyhow::Result<()> {
    // Before anything that takes time: a signal must never kill a process that has begun to act.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
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
        read_client: read_client(config.clone(), &health.metrics).context(UNUSABLE)?,
        // Two more for events.
        write_client: write_client(config, &health.metrics, usize::from(args.write_concurrency) + 2, permit.clone())
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
        shutdown: async move {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        .boxed(),
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

fn options(args: &OperatorArgs) -> Options {
    let micros = MachineClock.unix_micros();
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    // The name of a Pod stays over restarts of its container: the rest tells them apart.
    let identity = format!("{}-{}-{micros:x}", host.as_deref().unwrap_or("waystation"), std::process::id());
    Options {
        controller_name: args.controller_name.clone(),
        namespace: args.namespace.clone().unwrap_or_else(own_namespace),
        lease_name: args.lease_name.clone().unwrap_or_else(|| args.controller_name.clone()),
        lease_duration: args.lease_duration,
        identity,
        seed: micros.unsigned_abs() ^ (u64::from(std::process::id()) << 32),
        watch: watch::Options {
            mode: match args.watch_mode {
                WatchMode::List => watch::Mode::List,
                WatchMode::Stream => watch::Mode::Stream,
            },
            page: args.page_size,
            ..watch::Options::default()
        },
        writer: writer::Limits { concurrency: usize::from(args.write_concurrency), ..writer::Limits::default() },
        drive: actor::Limits::default(),
        timing: Timing {
            resync_ms: u64::try_from(args.resync_interval.as_millis()).unwrap_or(u64::MAX),
            ..Timing::default()
        },
    }
}

fn own_namespace() -> String {
    std::fs::read_to_string(Path::new(NAMESPACE_FILE))
        .ok()
        .map(|namespace| namespace.trim().to_owned())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

/// For reads and the Lease. Retrying is for those who know what they ask for.
fn read_client(mut config: kube::Config, metrics: &Arc<Metrics>) -> anyhow::Result<Client> {
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(&CountRequests(Arc::clone(metrics))).build())
}

impl Connection for Guarded<TcpStream> {
    fn connected(&self) -> Connected {
        self.inner().connected()
    }
}

/// For writes: so many at a time, and each only while it is permitted. The library's builder has no place for such a
/// socket, and puts together what is put together here.
fn write_client(
    config: kube::Config,
    metrics: &Arc<Metrics>,
    at_a_time: usize,
    permit: Permit,
) -> anyhow::Result<Client> {
    let mut tcp = HttpConnector::new();
    // TLS is put on top of it.
    tcp.enforce_http(false);
    let tcp = tcp.map_response(move |socket| TokioIo::new(Guarded::new(socket.into_inner(), permit.clone())));
    let http: legacy::Client<_, Body> =
        legacy::Builder::new(TokioExecutor::new()).build(config.rustls_https_connector_with_connector(tcp)?);
    let service = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(at_a_time))
        .layer(CountRequests(Arc::clone(metrics)))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// An API server with one connection that says yes to everything, and in the end what it was sent.
    async fn agreeable(listener: TcpListener) -> String {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut sent, mut chunk) = (String::new(), [0; 4096]);
        loop {
            let count = socket.read(&mut chunk).await.unwrap_or(0);
            if count == 0 {
                return sent;
            }
            sent.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
            if sent.ends_with("-body") {
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn no_byte_of_a_write_leaves_without_the_permit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let server = tokio::spawn(agreeable(listener));
        let (granter, permit) = permit();
        let client = write_client(config, &Arc::new(Metrics::default()), 1, permit).unwrap();
        let write = |name: &str| {
            client.request_text(http::Request::patch(format!("/{name}")).body(format!("{name}-body").into()).unwrap())
        };
        granter.grant(Instant::now() + Duration::from_secs(600));
        assert_eq!(write("early").await.unwrap(), "{}");
        // Over the connection that is open, and over one of its own.
        granter.revoke();
        for late in ["late", "later"] {
            write(late).await.unwrap_err();
        }
        drop(client);
        let sent = server.await.unwrap();
        assert!(sent.contains("early-body") && !sent.contains("late"), "{sent}");
    }
}
