//! `edge-sync`: from the start of the process until HAProxy serves everything.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::figures::{Figures, Samples};
use super::super::say;
use super::stage::EdgeStage;
use super::{list, metrics};
use crate::cluster::AuditEntry;

/// Starts from nothing `rounds` times, after once in which statuses are written.
pub(super) async fn run(stage: &mut EdgeStage, rounds: usize) -> Result<Figures> {
    say("edge-sync: first start");
    let mark = stage.audit.mark().await?;
    stage.start().await?;
    stage.quiet().await?;
    let writes = stage.audit.count(mark, is_status).await?;
    let (mut complete, mut listing, mut model) = (Samples::default(), Samples::default(), Samples::default());
    let (mut agent, mut haproxy): (f64, f64) = (0.0, 0.0);
    let mark = stage.audit.mark().await?;
    for round in 1..=rounds {
        say(&format!("edge-sync: start {round} of {rounds}"));
        stage.stop().await?;
        listing.push(list::all(&stage.client).await?);
        complete.push(stage.start().await?);
        let text = stage.subject.metrics().await?;
        if !text.is_empty() {
            model.push(Duration::from_secs_f64(metrics::value(&text, "waystation_edge_model_settle_seconds_sum")));
        }
        // It has written its files by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let [a, h] = stage.subject.rss_mb()?;
        (agent, haproxy) = (agent.max(a), haproxy.max(h));
    }
    let again = stage.audit.count(mark, is_status).await?;
    let refused = metrics::sum(&stage.subject.metrics().await?, "waystation_edge_reloads_failed_total");
    ensure!(refused == 0.0, "HAProxy refused to be reloaded");
    let seconds = |samples: &Samples| samples.percentile_ms(50.0) / 1000.0;
    let figures = Figures::new("edge-sync", stage.size(), rounds)
        .with("complete_s", seconds(&complete))
        .with("list_s", seconds(&listing))
        .with("rss_mb", agent)
        .with("haproxy_rss_mb", haproxy)
        .with("reloads", stage.subject.used().await?.reloads as f64)
        .with("status_writes_per_ingress", writes as f64 / stage.size() as f64)
        .with("status_writes_of_restarts", again as f64);
    Ok(if model.len() > 0 { figures.with("model_ms", model.percentile_ms(50.0)) } else { figures })
}

fn is_status(entry: &AuditEntry) -> bool {
    entry.is_write() && entry.resource == "ingresses" && entry.subresource == "status"
}
