//! `edge-traffic`: what a request costs, beside the same through a bare HAProxy whose one backend has all the endpoints.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::super::data::Numbers;
use super::super::figures::{Figures, Samples};
use super::super::process::cpu;
use super::super::say;
use super::data::PORT;
use super::observer::Observer;
use super::stage::{EdgeStage, worker};
use super::web::{exchange, head, trust};
use crate::haproxy::Haproxy;

/// Connections that ask, each one request after the other.
const CONNECTIONS: usize = 8;
/// One request in so many is for a host that nobody has.
const UNKNOWN: usize = 10;
const PATHS: [&str; 4] = ["/", "/api", "/api/v1/orders/4711?full=1", "/images/logo.svg"];

/// A request, and how it must be answered by who knows the host.
#[derive(Debug, Clone)]
struct Request {
    head: Vec<u8>,
    status: u16,
}

/// What one turn came to.
#[derive(Debug, Default)]
struct Turn {
    requests: usize,
    wrong: usize,
    seconds: f64,
    cpu: Duration,
    latencies: Samples,
}

/// One row for plain HTTP and one for TLS, each `rounds` turns of both.
pub(super) async fn run(stage: &mut EdgeStage, rounds: usize, seconds: f64) -> Result<Vec<Figures>> {
    stage.ensure_running().await?;
    let bare = start_bare(stage).await?;
    let reloads = stage.subject.used().await?.reloads;
    let mut rows = Vec::new();
    for (scenario, tls) in [("edge-traffic", false), ("edge-traffic, TLS", true)] {
        say(&format!("{scenario}: {rounds} turns of {seconds} s each"));
        let requests = Arc::new(requests(stage, tls));
        let name = stage.data.sites.iter().find(|site| site.tls).context("no site has TLS")?.hosts[0].clone();
        let trust = trust(&stage.data.authority.certificate())?;
        let with_tls = tls.then_some((trust, name));
        let ours = if tls { stage.subject.https() } else { stage.subject.http() };
        let theirs = if tls { bare.https() } else { bare.http() };
        let (mut mine, mut its) = (Turn::default(), Turn::default());
        for _ in 0..rounds {
            turn(&mut mine, stage.subject.socket(), ours, &requests, with_tls.as_ref(), seconds, true).await?;
            turn(&mut its, &bare.socket(), theirs, &requests, with_tls.as_ref(), seconds, false).await?;
        }
        let per_request = |turn: &Turn| turn.cpu.as_secs_f64() * 1e6 / turn.requests as f64;
        let per_second = |turn: &Turn| turn.requests as f64 / turn.seconds;
        rows.push(
            Figures::new(scenario, stage.size(), rounds)
                .with("requests_per_s", per_second(&mine))
                .with("p99_ms", mine.latencies.percentile_ms(99.0))
                .with("haproxy_cpu_us_per_request", per_request(&mine))
                .with("bare_requests_per_s", per_second(&its))
                .with("bare_p99_ms", its.latencies.percentile_ms(99.0))
                .with("bare_cpu_us_per_request", per_request(&its))
                .with("cpu_ratio", per_request(&mine) / per_request(&its))
                .with("requests", mine.requests as f64)
                .with("failed_requests", (mine.wrong + its.wrong) as f64)
                .with("reloads", (stage.subject.used().await?.reloads - reloads) as f64),
        );
    }
    Ok(rows)
}

/// One turn of either.
async fn turn(
    sum: &mut Turn,
    socket: &Path,
    port: u16,
    requests: &Arc<Vec<Request>>,
    tls: Option<&(Arc<ClientConfig>, String)>,
    seconds: f64,
    knows: bool,
) -> Result<()> {
    let worker = worker(&mut Observer::connect(socket)?)?;
    let (before, began) = (cpu(worker)?, Instant::now());
    let until = began + Duration::from_secs_f64(seconds);
    let mut asking = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (requests, tls) = (Arc::clone(requests), tls.cloned());
        let first = number * requests.len() / CONNECTIONS;
        asking.spawn(async move { ask(port, &requests, first, tls, until, knows).await });
    }
    while let Some(asked) = asking.join_next().await {
        let (count, wrong, latencies) = asked??;
        sum.requests += count;
        sum.wrong += wrong;
        latencies.into_iter().for_each(|took| sum.latencies.push(took));
    }
    sum.seconds += began.elapsed().as_secs_f64();
    sum.cpu += cpu(worker)?.saturating_sub(before);
    Ok(())
}

type Asked = (usize, usize, Vec<Duration>);

/// One connection as long as it lasts, one request after the other.
async fn ask(
    port: u16,
    requests: &[Request],
    first: usize,
    tls: Option<(Arc<ClientConfig>, String)>,
    until: Instant,
    knows: bool,
) -> Result<Asked> {
    let mut at = first;
    let (mut count, mut wrong, mut latencies, mut buffer) = (0, 0, Vec::new(), Vec::with_capacity(4096));
    while Instant::now() < until {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = match &tls {
            None => Box::new(stream),
            Some((trust, name)) => {
                let name = ServerName::try_from(name.clone())?;
                Box::new(TlsConnector::from(Arc::clone(trust)).connect(name, stream).await?)
            }
        };
        loop {
            let request = &requests[at % requests.len()];
            at += 1;
            let began = Instant::now();
            let (status, stays) = exchange(&mut stream, &request.head, &mut buffer).await?;
            latencies.push(began.elapsed());
            count += 1;
            wrong += usize::from(status != if knows { request.status } else { 200 });
            if !stays || Instant::now() >= until {
                break;
            }
        }
    }
    Ok((count, wrong, latencies))
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Stream for S {}

/// All hosts with TLS, or all without, each with one of the paths, in an order that has no order; and hosts that nobody has.
fn requests(stage: &EdgeStage, tls: bool) -> Vec<Request> {
    let mut numbers = Numbers::seeded();
    let sites = stage.data.sites.iter().filter(|site| site.tls == tls);
    let mut all: Vec<Request> = sites
        .flat_map(|site| &site.hosts)
        .map(|host| Request { head: head(host, PATHS[numbers.below(PATHS.len())]), status: 200 })
        .collect();
    let unknown = |number| Request { head: head(&format!("nobody-{number}.example"), "/"), status: 404 };
    all.extend((0..(all.len() / (UNKNOWN - 1)).max(1)).map(unknown));
    for at in (1..all.len()).rev() {
        all.swap(at, numbers.below(at + 1));
    }
    all
}

/// Nothing but a listener for each, and one backend with all the endpoints: that connections to these are opened anew costs
/// both the same.
async fn start_bare(stage: &EdgeStage) -> Result<Haproxy> {
    let mut bare = Haproxy::prepare()?;
    let site = stage.data.sites.iter().find(|site| site.tls).context("no site has TLS")?;
    let leaf = stage.data.certificate(site, "bare")?;
    let pem = bare.folder().join("bare.pem");
    std::fs::write(&pem, format!("{}{}", leaf.certificate, leaf.key))?;
    let mut text = format!(
        "global\n  stats socket {} level admin\n  no strict-limits\n\
         defaults\n  mode http\n  timeout client 60s\n  timeout connect 5s\n  timeout server 60s\n\
         frontend http\n  bind 127.0.0.1:{}\n  default_backend all\n\
         frontend https\n  bind 127.0.0.1:{} ssl crt {} alpn h2,http/1.1\n  default_backend all\n\
         backend all\n",
        bare.socket().display(),
        bare.http(),
        bare.https(),
        pem.display()
    );
    for (number, address) in stage.data.sites.iter().flat_map(|site| &site.addresses).enumerate() {
        let _ = writeln!(text, "  server s{number} {address}:{PORT}");
    }
    std::fs::write(bare.folder().join("haproxy.cfg"), text)?;
    bare.start().await.context("the bare HAProxy")?;
    ensure!(bare.log().is_empty() || !bare.log().contains("ALERT"), "{}", bare.log());
    Ok(bare)
}
