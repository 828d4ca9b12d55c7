//! `delete-all`: all addresses go at once, against a bare client that does the same.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, timeout};

use super::client::{in_parallel, in_two_steps};
use super::data::Planned;
use super::figures::Figures;
use super::stage::{LONG, Stage, is_write};
use super::watcher::What;
use super::{bulk, management, routers, say};

/// In two halves, operator and bare client turn about.
pub(super) async fn run(stage: &mut Stage) -> Result<Figures> {
    let all = stage.addresses();
    if !stage.has_twins() {
        say("delete-all: creating as many twins");
        bulk::by_hand(stage, &all).await?;
    }
    stage.quiet().await?;
    say(&format!("delete-all: {} addresses", all.len()));
    let (first, second) = all.split_at(all.len() / 2);
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    let begin = stage.audit.mark().await?;
    ours += deleted(stage, first).await?;
    bare += by_hand(stage, first).await?;
    bare += by_hand(stage, second).await?;
    ours += deleted(stage, second).await?;
    stage.set_filled(false);
    stage.quiet().await?;
    let requests = stage.requests(begin).await?;
    let calls = requests.iter().filter(|entry| is_write(entry) && entry.resource == "addresses").count();
    Ok(Figures::new("delete-all", all.len(), 1)
        .with("calls_per_address", calls as f64 / all.len() as f64)
        .with("total_s", ours.as_secs_f64())
        .with("bare_client_s", bare.as_secs_f64()))
}

/// From the first deletion until the last is gone.
async fn deleted(stage: &Stage, addresses: &[Planned]) -> Result<Duration> {
    let mark = stage.watcher.mark();
    let api = stage.ours.clone();
    let began = Instant::now();
    in_parallel(addresses.to_vec(), move |address| {
        let api = api.clone();
        async move { api.delete(&address).await }
    })
    .await?;
    Ok(stage.watcher.all(mark, addresses.iter().map(Planned::key), What::Gone, LONG).await? - began)
}

/// Deletes twins and takes their finalizers off, and takes away what [`bulk::by_hand`] made on broker and routers.
async fn by_hand(stage: &Stage, addresses: &[Planned]) -> Result<Duration> {
    let (delete, release) = (stage.twins.clone(), stage.twins.clone());
    let policy = stage.policy();
    let (broker, ports) = (stage.broker_port(), stage.router_ports());
    let began = Instant::now();
    // What routers lead to goes after what leads there.
    let planes = async {
        routers::remove(&ports, addresses).await?;
        match broker {
            Some(port) => management::remove(port, addresses).await,
            None => Ok(()),
        }
    };
    let objects = in_two_steps(
        addresses.to_vec(),
        move |address| {
            let api = delete.clone();
            async move { api.delete(&address).await }
        },
        move |address| {
            let api = release.clone();
            async move { if policy { api.release(&address).await } else { Ok(()) } }
        },
    );
    let planes = async { timeout(LONG, planes).await.context("the data planes do not answer")? };
    let objects = async { timeout(LONG, objects).await.context("the API server does not answer")? };
    tokio::try_join!(planes, objects)?;
    Ok(began.elapsed())
}
