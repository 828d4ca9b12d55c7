//! `address-bulk`: all addresses at once, against a bare client that does the same.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::client::{in_parallel, in_two_steps};
use super::data::Planned;
use super::figures::Figures;
use super::stage::{LONG, Stage, is_write};
use super::watcher::What;
use super::{management, routers, say};

/// In two halves, bare client and operator turn about, so that neither has the emptier cluster.
pub(super) async fn run(stage: &mut Stage) -> Result<Figures> {
    let all = stage.addresses();
    let (first, second) = all.split_at(all.len() / 2);
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    let begin = stage.audit.mark().await?;
    say(&format!("address-bulk: {} addresses", all.len()));
    bare += by_hand(stage, first).await?;
    ours += created(stage, first).await?;
    ours += created(stage, second).await?;
    bare += by_hand(stage, second).await?;
    stage.set_filled(true);
    stage.set_twins();
    stage.quiet().await?;
    let requests = stage.requests(begin).await?;
    let writes = requests.iter().filter(|entry| is_write(entry) && entry.resource == "addresses").count();
    Ok(Figures::new("address-bulk", all.len(), 1)
        .with("total_s", ours.as_secs_f64())
        .with("writes_per_address", writes as f64 / all.len() as f64)
        .with("bare_client_s", bare.as_secs_f64()))
}

/// From the first create until the last is Ready.
async fn created(stage: &Stage, addresses: &[Planned]) -> Result<Duration> {
    let mark = stage.watcher.mark();
    let api = stage.ours.clone();
    let began = Instant::now();
    in_parallel(addresses.to_vec(), move |address| {
        let api = api.clone();
        async move { api.create(&address).await }
    })
    .await?;
    Ok(stage.watcher.all(mark, addresses.iter().map(Planned::key), What::Ready, LONG).await? - began)
}

/// Creates twins and makes them Ready, and makes as much on the broker and the routers meanwhile.
pub(super) async fn by_hand(stage: &Stage, addresses: &[Planned]) -> Result<Duration> {
    let began = Instant::now();
    let (broker, ports) = (stage.broker_port(), stage.router_ports());
    let queues = async {
        match broker {
            Some(port) => management::make(port, addresses).await,
            None => Ok(()),
        }
    };
    let routes = routers::make(&ports, addresses, broker);
    let (create, status) = (stage.twins.clone(), stage.twins.clone());
    let objects = in_two_steps(
        addresses.to_vec(),
        move |address| {
            let api = create.clone();
            async move { api.create(&address).await }
        },
        move |address| {
            let api = status.clone();
            async move { api.apply_status(&address).await }
        },
    );
    tokio::try_join!(queues, routes, objects)?;
    Ok(began.elapsed())
}
