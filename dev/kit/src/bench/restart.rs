//! `operator-restart`: what a new process does before it follows changes, and what it costs others.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::{Instant, sleep};

use super::data::Planned;
use super::figures::{Figures, Samples};
use super::say;
use super::stage::{Stage, is_write};
use super::watcher::{What, holder, leadership};

const WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(25);
/// A comparison that has asked nothing for this long is over.
const QUIET: Duration = Duration::from_secs(2);

/// Each round stops it in order, undisturbed; stops it again and adds two as soon as a new one leads; and kills it.
pub(super) async fn run(stage: &mut Stage, rounds: usize) -> Result<Figures> {
    let (mut writes, mut added) = (0, Samples::default());
    let (mut synced, mut complete) = (Samples::default(), Samples::default());
    let (mut wait_after_term, mut wait_after_kill) = (Samples::default(), Samples::default());
    for round in 1..=rounds {
        say(&format!("operator-restart: round {round} of {rounds}"));
        // An undisturbed restart: nothing is written.
        let mark = stage.audit.mark().await?;
        let before = holder(&stage.client).await?;
        stage.operator.terminate().await?;
        ensure!(holder(&stage.client).await?.is_empty(), "the Lease was not given back");
        let started = Started::now(stage)?;
        let (is_synced, leads) = started.leads(stage, &before).await?;
        synced.push(is_synced);
        wait_after_term.push(leads.saturating_sub(is_synced));
        complete.push(started.complete(stage).await?.saturating_sub(leads.saturating_sub(is_synced)));
        stage.quiet().await?;
        writes += stage.requests(mark).await?.iter().filter(|entry| is_write(entry)).count();

        // A new address while the comparison is under way.
        let before = holder(&stage.client).await?;
        stage.operator.terminate().await?;
        let two = stage.two();
        let started = Started::now(stage)?;
        let mark = stage.watcher.mark();
        let (at, _) = leadership(&stage.client, &before, WITHIN).await?;
        tokio::try_join!(stage.ours.create(&two[0]), stage.ours.create(&two[1]))?;
        added.push(stage.watcher.all(mark, two.iter().map(Planned::key), What::Ready, WITHIN).await? - at);
        started.complete(stage).await?;
        let mark = stage.watcher.mark();
        for address in &two {
            stage.ours.delete(address).await?;
        }
        stage.watcher.all(mark, two.iter().map(Planned::key), What::Gone, WITHIN).await?;
        stage.quiet().await?;

        // Killed: the Lease has to run out.
        let mark = stage.audit.mark().await?;
        let before = holder(&stage.client).await?;
        stage.operator.kill();
        let started = Started::now(stage)?;
        let (is_synced, leads) = started.leads(stage, &before).await?;
        wait_after_kill.push(leads.saturating_sub(is_synced));
        started.complete(stage).await?;
        stage.quiet().await?;
        writes += stage.requests(mark).await?.iter().filter(|entry| is_write(entry)).count();
    }
    let seconds = |samples: &Samples| samples.percentile_ms(50.0) / 1000.0;
    Ok(Figures::new("operator-restart", stage.size(), rounds)
        .with("writes", writes as f64)
        .with("to_synced_s", seconds(&synced))
        .with("lease_wait_s", seconds(&wait_after_term))
        .with("lease_wait_after_kill_s", seconds(&wait_after_kill))
        .with("new_address_ready_ms", added.percentile_ms(50.0))
        .with("new_address_ready_max_ms", added.percentile_ms(100.0))
        .with("complete_s", seconds(&complete)))
}

/// A process that was started.
struct Started(Instant);

impl Started {
    fn now(stage: &mut Stage) -> Result<Self> {
        let began = Instant::now();
        stage.restart()?;
        Ok(Self(began))
    }

    /// When everything was read, and when it led, counted from its start.
    async fn leads(&self, stage: &mut Stage, before: &str) -> Result<(Duration, Duration)> {
        let client = stage.client.clone();
        let operator = &mut stage.operator;
        let ready = async {
            operator.await_ready(WITHIN).await?;
            Ok(self.0.elapsed())
        };
        let (synced, (leads, _)) = tokio::try_join!(ready, leadership(&client, before, WITHIN))?;
        Ok((synced, leads - self.0))
    }

    /// When its comparison with the broker had asked its last question. (The one figure that the operator tells itself.)
    async fn complete(&self, stage: &Stage) -> Result<Duration> {
        let (mut last, mut count) = (Instant::now(), 0.0);
        loop {
            let now = commands(&stage.operator.metrics().await.unwrap_or_default())?;
            if now != count {
                (last, count) = (Instant::now(), now);
            }
            if count > 0.0 && last.elapsed() > QUIET {
                return Ok(last - self.0);
            }
            if self.0.elapsed() > WITHIN * 2 {
                bail!("the comparison does not end: {count} commands so far");
            }
            sleep(POLL).await;
        }
    }
}

/// Commands that were answered so far.
fn commands(metrics: &str) -> Result<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with("waystation_broker_commands_total{"));
    lines
        .map(|line| line.rsplit(' ').next().context("a metric without a value")?.parse::<f64>().context("a metric"))
        .sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_of_all_kinds_are_added() {
        let text = "waystation_broker_commands_total{operation=\"createQueue\",result=\"ok\"} 3\n\
                    waystation_broker_commands_total{operation=\"destroyQueue\",result=\"ok\"} 4\nother 5\n";
        assert_eq!(super::commands(text).unwrap(), 7.0);
    }
}
