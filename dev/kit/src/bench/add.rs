//! `address-add`: two addresses among many, alone and behind another tenant's bulk.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::client::{Addresses, Group, in_parallel};
use super::data::Planned;
use super::figures::{Figures, Samples};
use super::management::Management;
use super::routers::ByHand;
use super::say;
use super::stage::{LONG, Stage};
use super::watcher::{Watcher, What};
use crate::cluster::AuditEntry;

const SOON: Duration = Duration::from_secs(60);

/// Adds two and takes them away again, and does by hand what that costs the API server alone, turn about.
pub(super) async fn run(stage: &mut Stage, rounds: usize) -> Result<Figures> {
    let [mut ready, mut api, mut seen, mut made, mut routed, mut least] = std::array::from_fn(|_| Samples::default());
    let bare = Bare::start(stage).await?;
    let mut broker = match stage.broker_port() {
        Some(port) => Some(Management::open(port).await?),
        None => None,
    };
    let mut routers = ByHand::open(&stage.router_ports(), stage.broker_port()).await?;
    let begin = stage.audit.mark().await?;
    // The first rounds open connections.
    for round in 0..rounds + 3 {
        if round % 50 == 0 {
            say(&format!("address-add: round {round} of {rounds}"));
        }
        let two = stage.two();
        let took = added(stage, &two).await?;
        let by_hand = by_hand(&stage.twins, &two).await?;
        remove_twins(stage, &two).await?;
        let by_watch = bare.added(&two).await?;
        remove_twins(stage, &two).await?;
        let on_broker = match &mut broker {
            Some(broker) => {
                broker.forget_settings().await?;
                let began = Instant::now();
                broker.make(&two).await?;
                let took = began.elapsed();
                broker.remove(&two).await?;
                took
            }
            None => Duration::ZERO,
        };
        let began = Instant::now();
        routers.make(&two).await?;
        let on_routers = began.elapsed();
        routers.remove(&two).await?;
        if round >= 3 {
            ready.push(took);
            api.push(by_hand);
            seen.push(by_watch);
            made.push(on_broker);
            routed.push(on_routers);
            least.push(by_watch + on_broker + on_routers);
        }
        let mark = stage.watcher.mark();
        for address in &two {
            stage.ours.delete(address).await?;
        }
        stage.watcher.all(mark, two.iter().map(Planned::key), What::Gone, SOON).await?;
    }
    if let Some(broker) = broker {
        broker.close().await?;
    }
    let writes = stage.requests(begin).await?.iter().filter(|entry| is_new(entry) && is_status(entry)).count();
    let figures = Figures::new("address-add", stage.size(), rounds)
        .with_latencies(["p50_ms", "p99_ms", "max_ms"], &ready)
        .with_latencies(["api_p50_ms", "api_p99_ms", ""], &api)
        .with_latencies(["api_watch_p50_ms", "api_watch_p99_ms", ""], &seen)
        .with_latencies(["broker_p50_ms", "broker_p99_ms", ""], &made)
        .with("status_writes_per_address", writes as f64 / (2 * (rounds + 3)) as f64);
    let figures = match stage.router_ports().is_empty() {
        true => figures,
        false => figures.with_latencies(["routers_p50_ms", "routers_p99_ms", ""], &routed),
    };
    Ok(figures.with_latencies(["least_p50_ms", "least_p99_ms", ""], &least))
}

/// Adds two in a space beside a bulk, two in its space, and two by hand, turn about, until all of the bulk is Ready.
pub(super) async fn behind(stage: &mut Stage, count: usize) -> Result<Figures> {
    say(&format!("address-add behind a bulk of {count}"));
    let bulk = stage.bulk(count);
    let begin = stage.audit.mark().await?;
    let mark = stage.watcher.mark();
    let api = stage.ours.clone();
    let creating = tokio::spawn(in_parallel(bulk.clone(), move |address| create(api.clone(), address)));
    let (mut other, mut same, mut bare) = (Samples::default(), Samples::default(), Samples::default());
    let mut extra = Vec::new();
    let started = Instant::now();
    loop {
        for (behind_same, samples) in [(false, &mut other), (true, &mut same)] {
            let two = stage.two_behind(behind_same);
            samples.push(added(stage, &two).await?);
            extra.extend(two);
        }
        let two = stage.two_behind(false);
        bare.push(by_hand(&stage.twins, &two).await?);
        remove_twins(stage, &two).await?;
        if creating.is_finished()
            && stage.watcher.all(mark, bulk.iter().map(Planned::key), What::Ready, Duration::ZERO).await.is_ok()
        {
            break;
        }
        anyhow::ensure!(started.elapsed() < LONG, "the bulk does not become Ready");
    }
    creating.await??;
    let last = stage.watcher.all(mark, bulk.iter().map(Planned::key), What::Ready, LONG).await?;
    let writes = stage.requests(begin).await?.iter().filter(|entry| is_new(entry) && is_status(entry)).count();
    let created = bulk.len() + extra.len();
    say("taking the bulk away");
    let mark = stage.watcher.mark();
    let all: Vec<Planned> = bulk.into_iter().chain(extra).collect();
    let api = stage.ours.clone();
    in_parallel(all.clone(), move |address| delete(api.clone(), address)).await?;
    stage.watcher.all(mark, all.iter().map(Planned::key), What::Gone, LONG).await?;
    stage.quiet().await?;
    Ok(Figures::new("address-add behind a bulk", stage.size(), other.len())
        .with("bulk", count as f64)
        .with("bulk_s", (last - started).as_secs_f64())
        .with("other_space_p50_ms", other.percentile_ms(50.0))
        .with("same_space_p50_ms", same.percentile_ms(50.0))
        .with("api_p50_ms", bare.percentile_ms(50.0))
        .with("status_writes_per_address", writes as f64 / created as f64))
}

/// From the first create until the watcher has seen both Ready.
async fn added(stage: &Stage, two: &[Planned; 2]) -> Result<Duration> {
    let mark = stage.watcher.mark();
    let began = Instant::now();
    tokio::try_join!(stage.ours.create(&two[0]), stage.ours.create(&two[1]))?;
    let last = stage.watcher.all(mark, two.iter().map(Planned::key), What::Ready, SOON).await?;
    Ok(last - began)
}

/// Creates both and writes their statuses: requests alone, nobody in between.
async fn by_hand(api: &Addresses, two: &[Planned; 2]) -> Result<Duration> {
    let one = |address| async move {
        api.create(address).await?;
        api.apply_status(address).await
    };
    let began = Instant::now();
    tokio::try_join!(one(&two[0]), one(&two[1]))?;
    Ok(began.elapsed())
}

async fn remove_twins(stage: &Stage, two: &[Planned; 2]) -> Result<()> {
    for address in two {
        stage.twins.delete(address).await?;
        if stage.policy() {
            stage.twins.release(address).await?;
        }
    }
    Ok(())
}

/// The least that any operator does: it sees a twin by its watch and writes its status, which an observer sees by
/// another. Nothing in here costs anything beside the API server's own work and its deliveries.
struct Bare {
    twins: Addresses,
    operator: Arc<Watcher>,
    observer: Watcher,
}

impl Bare {
    async fn start(stage: &Stage) -> Result<Self> {
        let start = || Watcher::start(stage.client.clone(), Group::Twin);
        Ok(Self { twins: stage.twins.clone(), operator: Arc::new(start().await?), observer: start().await? })
    }

    async fn added(&self, two: &[Planned; 2]) -> Result<Duration> {
        let (created, ready) = (self.operator.mark(), self.observer.mark());
        let acting: Vec<_> = two
            .iter()
            .map(|address| {
                let (twins, operator, address) = (self.twins.clone(), Arc::clone(&self.operator), address.clone());
                tokio::spawn(async move {
                    operator.all(created, [address.key()], What::Created, SOON).await?;
                    twins.apply_status(&address).await
                })
            })
            .collect();
        let began = Instant::now();
        tokio::try_join!(self.twins.create(&two[0]), self.twins.create(&two[1]))?;
        let last = self.observer.all(ready, two.iter().map(Planned::key), What::Ready, SOON).await?;
        for acted in acting {
            acted.await??;
        }
        Ok(last - began)
    }
}

/// Of an address that a scenario added.
fn is_new(entry: &AuditEntry) -> bool {
    entry.resource == "addresses" && (entry.name.starts_with("new-") || entry.name.starts_with("bulk-"))
}

fn is_status(entry: &AuditEntry) -> bool {
    entry.subresource == "status" && entry.is_write()
}

async fn create(api: Addresses, address: Planned) -> Result<()> {
    api.create(&address).await
}

async fn delete(api: Addresses, address: Planned) -> Result<()> {
    api.delete(&address).await
}
