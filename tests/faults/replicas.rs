//! Two operators of one installation: one acts, and the other takes over.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{TryStreamExt, stream};
use serde_json::json;
use waystation_kit::operator::Operator;
use waystation_kit::process::eventually;
use waystation_kit::proxy::{Mode, Proxy};

use crate::observer::{Observer, connections_to, metric, send, take, total};
use crate::peers::proxied_data_plane;
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World};

const LEASE: [&str; 1] = ["--lease-duration=4s"];
const LEADING: &str = "waystation_leading";
const BULK: usize = 200;

/// A leader and one that waits, with ten queues that hold a message each, on a broker behind a proxy.
async fn pair<'w>(world: &'w World, name: &str, proxy: &Proxy) -> Result<(Tenant<'w>, Operator, Operator)> {
    let tenant = world.tenant(name).await?.driven_by(name);
    let leader = world.operator(name, &LEASE).await?;
    metric(&leader, LEADING, |value| value == 1.0).await?;
    let waiting = world.operator(name, &LEASE).await?;
    proxied_data_plane(&tenant, proxy).await?;
    for number in 0..10 {
        let queue = format!("queue-{number}");
        tenant.ready_address(&queue, json!({"type": "queue"})).await?;
        send(&world.broker, &tenant.name(&queue), &["kept"]).await?;
    }
    summary(&tenant, "10/10").await?;
    Ok((tenant, leader, waiting))
}

/// Waits until the space counts that many: the last thing that is written.
async fn summary(tenant: &Tenant<'_>, counts: &str) -> Result<()> {
    tenant
        .until(Kind::AddressSpace, SPACE, counts, |space| {
            ensure!(space["status"]["summary"] == counts, "it is {}", space["status"]["summary"]);
            Ok(())
        })
        .await
}

/// Commands that an operator sent to brokers, and changes that it asked of the API server, Leases left out.
async fn actions(operator: &Operator) -> Result<(f64, f64)> {
    let mut writes = 0.0;
    for verb in ["apply", "patch", "create", "delete"] {
        let text = operator.metrics().await?;
        let series = format!("waystation_api_requests_total{{verb=\"{verb}\"");
        let lines = text.lines().filter(|line| line.starts_with(&series) && !line.contains("\"leases\""));
        writes += lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
    }
    Ok((total(operator, "waystation_broker_commands_total").await?, writes))
}

async fn kept(tenant: &Tenant<'_>) -> Result<()> {
    for number in 0..10 {
        take(&tenant.world.broker, &tenant.name(&format!("queue-{number}")), &["kept"]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_is_killed_the_other_takes_over_and_no_address_flaps() -> Result<()> {
    let world = World::shared().await?;
    let proxy = Proxy::start(world.broker.port()).await?;
    let (tenant, mut leader, waiting) = pair(world, "takeover", &proxy).await?;
    let idle = actions(&waiting).await?;
    ensure!(idle == (0.0, 0.0), "the one that waits has acted: {idle:?}");
    ensure!(connections_to(waiting.pid(), proxy.port())? == 0, "the one that waits is connected");
    ensure!(actions(&leader).await?.0 > 0.0, "the leader has sent nothing: this measures nothing");
    let mark = tenant.mark().await?;
    leader.kill();
    tenant.address("fresh", json!({"type": "queue"})).await?;
    metric(&waiting, LEADING, |value| value == 1.0).await?;
    tenant.ready(Kind::Address, &["fresh"]).await?;
    tenant.broker_state(CONFIG, "broker", "Serving").await?;
    let mut wrong = tenant.address_writes(mark).await?;
    wrong.retain(|write| write.name != "fresh");
    ensure!(wrong.is_empty(), "Addresses flapped: {wrong:?}");
    kept(&tenant).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_wakes_after_its_lease_does_nothing_more() -> Result<()> {
    let world = World::shared().await?;
    let proxy = Proxy::start(world.broker.port()).await?;
    let (tenant, mut sleeper, mut successor) = pair(world, "sleeper", &proxy).await?;
    let mut observer = Observer::of(&world.broker).await?;
    ensure!(connections_to(sleeper.pid(), proxy.port())? > 0, "it is not connected");

    // It falls asleep over its work: some is done, some on its way, most of it waits.
    proxy.set(Mode::Slow(Duration::from_millis(100)));
    let bulk: Vec<String> = (0..BULK).map(|number| format!("bulk-{number}")).collect();
    let each = || stream::iter(bulk.iter().map(Ok::<_, anyhow::Error>));
    let all = &tenant;
    each().try_for_each_concurrent(8, |name| all.address(name, json!({"type": "queue"}))).await?;
    let prefix = tenant.name("bulk-");
    let begun = tokio::sync::Mutex::new(&mut observer);
    eventually(SOON, "some of the bulk is made", || async {
        let made = begun.lock().await.queues(&prefix).await?.len();
        ensure!(made > 0, "nothing yet");
        Ok(())
    })
    .await?;
    sleeper.signal("STOP")?;
    let made = observer.queues(&prefix).await?.len();
    ensure!(made < BULK / 2, "there is nothing left for it to do: {made} of {BULK} are made");
    proxy.set(Mode::Pass);

    // Meanwhile all of that is done by another, and undone again.
    metric(&successor, LEADING, |value| value == 1.0).await?;
    each().try_for_each_concurrent(8, |name| async move { all.ready(Kind::Address, &[name]).await }).await?;
    each().try_for_each_concurrent(8, |name| all.delete(Kind::Address, name)).await?;
    each().try_for_each_concurrent(8, |name| all.gone(Kind::Address, name)).await?;
    tenant.changed_address("queue-0", json!({"redelivery": {"maxAttempts": 7}})).await?;
    tenant.delete(Kind::Address, "queue-1").await?;
    tenant.gone(Kind::Address, "queue-1").await?;
    // What it would put back, if it may.
    observer.destroy_queue(&tenant.name("queue-2")).await?;
    observer
        .until("queue-2 is back", &tenant.name("queue-2"), |row| {
            ensure!(row.is_some(), "it is not");
            Ok(())
        })
        .await?;
    summary(&tenant, "9/9").await?;
    let mark = tenant.mark().await?;

    sleeper.signal("CONT")?;
    metric(&sleeper, LEADING, |value| value == 0.0).await?;
    metric(&sleeper, "waystation_drives", |value| value == 0.0).await?;
    eventually(SOON, "its connections are closed", || async {
        let count = connections_to(sleeper.pid(), proxy.port())?;
        ensure!(count == 0, "there are {count}");
        Ok(())
    })
    .await?;
    let left = observer.queues(&prefix).await?;
    ensure!(left.is_empty(), "it went on where it had fallen asleep: {left:?}");
    let writes = tenant.writes(mark).await?;
    ensure!(writes.is_empty(), "somebody wrote: {writes:?}");

    // It is fit to lead all the same, when its turn comes again.
    let ended = successor.terminate().await?;
    ensure!(ended.success(), "{ended}");
    metric(&sleeper, LEADING, |value| value == 1.0).await?;
    tenant.ready_address("later", json!({"type": "queue"})).await?;
    ensure!(observer.settings(&tenant.name("queue-0")).await?["maxDeliveryAttempts"] == 7, "queue-0 was set back");
    ensure!(observer.queue(&tenant.name("queue-1")).await?.is_none(), "queue-1 is back");
    let mut client = world.broker.client().await?;
    let first = client.receive(&tenant.name("queue-9"), 1, Duration::from_secs(10)).await?;
    ensure!(first.len() == 1 && first[0].body == "kept", "{first:?}");
    client.close().await
}
