//! Two operators of one installation: one acts, and the other takes over.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use waystation_kit::operator::Operator;
use waystation_kit::process::eventually;

use crate::observer::{Observer, connections_to, metric, send, take, total};
use crate::support::{CONFIG, Kind, SOON, Tenant, World};

const LEASE: [&str; 1] = ["--lease-duration=4s"];
const LEADING: &str = "waystation_leading";

/// A leader and one that waits, with ten queues that hold a message each.
async fn pair<'w>(world: &'w World, name: &str) -> Result<(Tenant<'w>, Operator, Operator)> {
    let tenant = world.tenant(name).await?.driven_by(name);
    let leader = world.operator(name, &LEASE).await?;
    metric(&leader, LEADING, |value| value == 1.0).await?;
    let waiting = world.operator(name, &LEASE).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for number in 0..10 {
        let queue = format!("queue-{number}");
        tenant.ready_address(&queue, json!({"type": "queue"})).await?;
        send(&world.broker, &tenant.name(&queue), &["kept"]).await?;
    }
    tenant
        .until(Kind::AddressSpace, crate::support::SPACE, "10/10", |space| {
            ensure!(space["status"]["summary"] == "10/10", "it is {}", space["status"]["summary"]);
            Ok(())
        })
        .await?;
    Ok((tenant, leader, waiting))
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
    let (tenant, mut leader, waiting) = pair(world, "takeover").await?;
    let idle = actions(&waiting).await?;
    ensure!(idle == (0.0, 0.0), "the one that waits has acted: {idle:?}");
    ensure!(connections_to(waiting.pid(), world.broker.port())? == 0, "the one that waits is connected");
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
    let (tenant, mut sleeper, successor) = pair(world, "sleeper").await?;
    let before = actions(&sleeper).await?;
    ensure!(before.0 > 0.0 && before.1 > 0.0, "it has done nothing: this measures nothing");
    ensure!(connections_to(sleeper.pid(), world.broker.port())? > 0, "it is not connected");
    sleeper.signal("STOP")?;

    // Work of every kind lies in front of it when it wakes: in its connections to both sides.
    let mut observer = Observer::of(&world.broker).await?;
    tenant.address("fresh", json!({"type": "queue"})).await?;
    tenant.change(Kind::Address, "queue-0", json!({"spec": {"redelivery": {"maxAttempts": 7}}})).await?;
    tenant.delete(Kind::Address, "queue-1").await?;
    observer.destroy_queue(&tenant.name("queue-2")).await?;
    metric(&successor, LEADING, |value| value == 1.0).await?;
    tenant.ready(Kind::Address, &["fresh", "queue-0"]).await?;
    tenant.gone(Kind::Address, "queue-1").await?;
    observer
        .until("queue-2 is back", &tenant.name("queue-2"), |row| {
            ensure!(row.is_some(), "it is not");
            Ok(())
        })
        .await?;
    // Changed again, so that anything done from an old view would show.
    observer.destroy_queue(&tenant.name("queue-3")).await?;
    let rebuilt = |row: Option<crate::observer::QueueRow>| {
        ensure!(row.is_some_and(|row| row.messages == 0), "it is not back");
        Ok(())
    };
    observer.until("queue-3 is back", &tenant.name("queue-3"), rebuilt).await?;

    sleeper.signal("CONT")?;
    metric(&sleeper, LEADING, |value| value == 0.0).await?;
    metric(&sleeper, "waystation_drives", |value| value == 0.0).await?;
    eventually(SOON, "its connections are closed", || async {
        let count = connections_to(sleeper.pid(), world.broker.port())?;
        ensure!(count == 0, "there are {count}");
        Ok(())
    })
    .await?;
    let after = actions(&sleeper).await?;
    ensure!(before == after, "it went on: (commands, writes) were {before:?} and are {after:?}");

    // It is fit to lead all the same, when its turn comes again.
    let mut successor = successor;
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
