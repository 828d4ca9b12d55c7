//! `edge-route`: an Ingress comes with all that it needs, a path comes, a host goes, a certificate is another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::data::Numbers;
use super::super::figures::{Figures, Samples};
use super::super::say;
use super::stage::EdgeStage;
use super::web::{Asker, shown, trust};

const SOON: Duration = Duration::from_secs(30);
/// Between two requests.
const PAUSE: Duration = Duration::from_micros(200);
const REST: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Taken {
    came: Samples,
    bare: Samples,
    path: Samples,
    host: Samples,
    certificate: Samples,
}

/// Each of them in turn, one at a time.
pub(super) async fn run(stage: &mut EdgeStage, rounds: usize) -> Result<Figures> {
    stage.ensure_running().await?;
    say(&format!("edge-route: {rounds} rounds of four changes"));
    let mut numbers = Numbers::seeded();
    let before = stage.subject.used().await?;
    let mut taken = Taken::default();
    for number in 0..rounds {
        let site = comes(stage, number, &mut taken).await?;
        path_added(stage, number, &mut numbers, &mut taken.path).await?;
        host_removed(stage, site, &mut taken.host).await?;
        certificate_rotated(stage, number, &mut taken.certificate).await?;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = stage.subject.used().await?;
    let cpu = after.controller.saturating_sub(before.controller).as_secs_f64() * 1000.0;
    Ok(Figures::new("edge-route", stage.size(), rounds)
        .with_latencies(["new_p50_ms", "new_p99_ms", "new_max_ms"], &taken.came)
        .with_latencies(["bare_watcher_p50_ms", "bare_watcher_p99_ms", "bare_watcher_max_ms"], &taken.bare)
        .with_latencies(["path_added_p50_ms", "path_added_p99_ms", ""], &taken.path)
        .with_latencies(["host_removed_p50_ms", "host_removed_p99_ms", ""], &taken.host)
        .with_latencies(["cert_rotated_p50_ms", "cert_rotated_p99_ms", ""], &taken.certificate)
        .with("agent_cpu_ms_per_event", cpu / (4 * rounds) as f64)
        .with("reloads", (after.reloads - before.reloads) as f64))
}

/// Service, slice and Ingress at a time, until the first 200; and until the bare watcher has seen all three. Its place among
/// the sites.
async fn comes(stage: &mut EdgeStage, number: usize, taken: &mut Taken) -> Result<usize> {
    let site = stage.data.another("new", number);
    let [service, slice] = site.create_endpoints();
    let ingress = site.create_ingress();
    let host = site.hosts[1].clone();
    let answering = answers(stage.subject.http(), host, "/".to_owned(), |status, _| status == 200);
    let began = Instant::now();
    let (a, b, c) = tokio::try_join!(stage.write(&service), stage.write(&slice), stage.write(&ingress))?;
    let mut last = began;
    for version in [a, b, c] {
        last = last.max(stage.bare.saw(&version).await?);
    }
    taken.came.push(answering.await?.map(|at| at - began)?);
    taken.bare.push(last - began);
    stage.data.sites.push(site);
    tokio::time::sleep(REST).await;
    Ok(stage.data.sites.len() - 1)
}

/// A path that leads to another Service, until that one answers; then it is taken away again.
async fn path_added(stage: &mut EdgeStage, number: usize, numbers: &mut Numbers, samples: &mut Samples) -> Result<()> {
    let plain = loop {
        let site = numbers.below(stage.size());
        if !stage.data.sites[site].tls {
            break site;
        }
    };
    let site = stage.data.sites[plain].clone();
    let own: Vec<String> = site.addresses.iter().map(ToString::to_string).collect();
    let to = stage.data.sites[stage.data.neighbour(plain)].clone();
    let path = format!("/added-{number}");
    let host = site.hosts[0].clone();
    let others = move |status, body: &str| status == 200 && !own.iter().any(|address| address == body);
    let answering = answers(stage.subject.http(), host, path.clone(), others);
    let began = Instant::now();
    stage.write(&site.add_path(&path, &to)).await?;
    samples.push(answering.await?.map(|at| at - began)?);
    stage.write(&site.remove_path()).await?;
    tokio::time::sleep(REST).await;
    Ok(())
}

/// The second host of one that came, until nothing answers for it.
async fn host_removed(stage: &mut EdgeStage, site: usize, samples: &mut Samples) -> Result<()> {
    let site = &mut stage.data.sites[site];
    let host = site.hosts[1].clone();
    let write = site.remove_host();
    let answering = answers(stage.subject.http(), host, "/".to_owned(), |status, _| status == 404);
    let began = Instant::now();
    stage.write(&write).await?;
    samples.push(answering.await?.map(|at| at - began)?);
    tokio::time::sleep(REST).await;
    Ok(())
}

/// A Secret's contents, until a new connection is shown the new certificate.
async fn certificate_rotated(stage: &mut EdgeStage, number: usize, samples: &mut Samples) -> Result<()> {
    let with_tls: Vec<usize> = (0..stage.size()).filter(|site| stage.data.sites[*site].tls).collect();
    let Some(site) = with_tls.get(number % with_tls.len().max(1)) else { return Ok(()) };
    let site = &stage.data.sites[*site];
    let leaf = stage.data.certificate(site, &format!("rotated {number}"))?;
    let new = CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?;
    let trust = trust(&stage.data.authority.certificate())?;
    let (port, host) = (stage.subject.https(), site.hosts[0].clone());
    let looking = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + SOON;
        while shown(port, &Arc::clone(&trust), &host)? != new {
            if Instant::now() > deadline {
                bail!("{host} was not shown its new certificate within {SOON:?}");
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Instant::now())
    });
    let began = Instant::now();
    stage.write(&site.rotate(&leaf)).await?;
    samples.push(looking.await?? - began);
    tokio::time::sleep(REST).await;
    Ok(())
}

/// Asks until it is answered so, on a thread of its own; when that was.
fn answers(
    port: u16,
    host: String,
    path: String,
    condition: impl Fn(u16, &str) -> bool + Send + 'static,
) -> tokio::task::JoinHandle<Result<Instant>> {
    tokio::task::spawn_blocking(move || {
        let (mut asker, deadline) = (Asker::new(port), Instant::now() + SOON);
        loop {
            let (status, body) = asker.get(&host, &path)?;
            let now = Instant::now();
            if condition(status, &body) {
                return Ok(now);
            }
            if now > deadline {
                bail!("{host}{path} answers {status} {body} after {SOON:?}");
            }
            std::thread::sleep(PAUSE);
        }
    })
}
