//! `edge-endpoint`: one endpoint is replaced by another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::data::Numbers;
use super::super::figures::{Figures, Samples};
use super::super::say;
use super::metrics::{self, Histogram};
use super::observer::{Observer, Servers};
use super::stage::EdgeStage;

const SOON: Duration = Duration::from_secs(30);
/// From one round to the next: what follows the effect, such as files, is part of no other's time.
const REST: Duration = Duration::from_millis(20);

/// One at a time.
pub(super) async fn run(stage: &mut EdgeStage, rounds: usize) -> Result<Figures> {
    stage.ensure_running().await?;
    say(&format!("edge-endpoint: {rounds} rounds"));
    let mut numbers = Numbers::seeded();
    let mut observer = Observer::connect(stage.subject.socket())?;
    let servers = observer.servers(None)?;
    // Before what counts, a few that warm up connections.
    for _ in 0..5 {
        observer = round(stage, observer, &servers, &mut numbers).await?.0;
    }
    let (before, text) = (stage.subject.used().await?, stage.subject.metrics().await?);
    let (mut effects, mut bare, mut beyond) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..rounds {
        let (again, effect, seen) = round(stage, observer, &servers, &mut numbers).await?;
        observer = again;
        effects.push(effect);
        bare.push(seen);
        beyond.push(effect.saturating_sub(seen));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (after, later) = (stage.subject.used().await?, stage.subject.metrics().await?);
    let read = |text: &str| Histogram::read(text, "waystation_edge_apply_seconds");
    let acknowledged = read(&later).since(&read(&text));
    let commands = |text: &str| metrics::sum(text, "waystation_edge_commands_total");
    let per_event = |value: f64| value / rounds as f64;
    let cpu = |before: Duration, after: Duration| per_event(after.saturating_sub(before).as_secs_f64() * 1000.0);
    let figures = Figures::new("edge-endpoint", stage.size(), rounds)
        .with_latencies(["api_to_effect_p50_ms", "api_to_effect_p99_ms", "api_to_effect_max_ms"], &effects)
        .with_latencies(["bare_watcher_p50_ms", "bare_watcher_p99_ms", ""], &bare)
        .with_latencies(["beyond_watcher_p50_ms", "beyond_watcher_p99_ms", ""], &beyond)
        .with("agent_cpu_ms_per_event", cpu(before.controller, after.controller))
        .with("haproxy_cpu_ms_per_event", cpu(before.haproxy, after.haproxy))
        .with("reloads", (after.reloads - before.reloads) as f64);
    if later.is_empty() {
        return Ok(figures);
    }
    Ok(figures
        .with("event_to_ack_p50_us", acknowledged.percentile_us(50.0))
        .with("event_to_ack_p99_us", acknowledged.percentile_us(99.0))
        .with("commands_per_event", per_event(commands(&later) - commands(&text))))
}

/// Until HAProxy has the new one in service and the old one no more, and until the bare watcher has seen the write.
async fn round(
    stage: &mut EdgeStage,
    mut observer: Observer,
    servers: &Servers,
    numbers: &mut Numbers,
) -> Result<(Observer, Duration, Duration)> {
    let site = loop {
        let site = numbers.below(stage.data.sites.len());
        if stage.data.sites[site].addresses.len() > 1 {
            break site;
        }
    };
    let count = stage.data.sites[site].addresses.len();
    let turn = numbers.below(count);
    let new = stage.data.fresh_address();
    let site = &mut stage.data.sites[site];
    // What the backend is called is the controller's affair: it is the one with the endpoints that stay.
    let kept = site.addresses[(turn + 1) % count].to_string();
    let backend = servers.iter().find(|(_, addresses)| addresses.contains(&kept)).map(|(name, _)| name.clone());
    let backend = match backend {
        Some(backend) => backend,
        // Both were replaced meanwhile.
        None => {
            let now = observer.servers(None)?;
            let found = now.into_iter().find(|(_, addresses)| addresses.contains(&kept));
            found.context("no backend has the endpoint")?.0
        }
    };
    let (came, gone) = (new.to_string(), site.addresses[turn].to_string());
    let write = site.replace_endpoint(turn, new);
    let looking = tokio::task::spawn_blocking(move || {
        let at = observer.until(&backend, SOON, |all| all.contains(&came) && !all.contains(&gone))?;
        anyhow::Ok((observer, at))
    });
    let began = Instant::now();
    let version = stage.write(&write).await?;
    let seen = stage.bare.saw(&version).await?;
    let (observer, at) = looking.await??;
    tokio::time::sleep(REST).await;
    Ok((observer, at - began, seen - began))
}
