//! `idle`: what the operator costs when nothing happens.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::figures::Figures;
use super::process::{cpu, rss_mb};
use super::say;
use super::stage::Stage;

/// Watches it do nothing for `seconds`.
pub(super) async fn run(stage: &mut Stage, seconds: u64) -> Result<Figures> {
    stage.quiet().await?;
    say(&format!("idle: {seconds} s"));
    let pid = stage.operator.pid();
    let mark = stage.audit.mark().await?;
    let (began, before) = (Instant::now(), cpu(pid)?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (took, used) = (began.elapsed(), cpu(pid)?.saturating_sub(before));
    let requests = stage.requests(mark).await?;
    let minutes = took.as_secs_f64() / 60.0;
    let per_minute = |count: usize| count as f64 / minutes;
    let leases = requests.iter().filter(|entry| entry.resource == "leases").count();
    let watches = requests.iter().filter(|entry| entry.verb == "watch").count();
    Ok(Figures::new("idle", stage.size(), 1)
        .with("requests_per_min", per_minute(requests.len()))
        .with("lease_requests_per_min", per_minute(leases))
        .with("watch_requests_per_min", per_minute(watches))
        .with("cpu_pct", 100.0 * used.as_secs_f64() / took.as_secs_f64())
        .with("rss_mb", rss_mb(pid)?))
}
