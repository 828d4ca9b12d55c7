//! The API server goes away, or stands still.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;
use tokio::sync::watch;

use crate::observer::{Observer, metric, send, take, total};
use crate::support::{CONFIG, Kind, SPACE, World};

const COUNT: usize = 80;

/// Creates addresses as a stubborn user does: each again until it is there; counts them.
async fn create(addresses: Api<DynamicObject>, made: watch::Sender<usize>) -> Result<()> {
    for number in 0..COUNT {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "waystation.dev/v1alpha1", "kind": "Address", "metadata": {"name": format!("made-{number}")},
            "spec": {"type": "queue", "addressSpace": SPACE},
        }))?;
        loop {
            match addresses.create(&PostParams::default(), &object).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => break,
                // What refuses for good would be refused for ever.
                Err(kube::Error::Api(status)) if status.code == 422 => return Err(kube::Error::Api(status).into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        made.send_replace(number + 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_are_made_while_the_api_server_comes_and_goes_become_ready() -> Result<()> {
    let mut world = World::start().await?;
    let tenant = world.tenant("outage").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("before", json!({"type": "queue"})).await?;
    send(&world.broker, &tenant.name("before"), &["kept"]).await?;
    let (made, mut count) = watch::channel(0);
    let creating = tokio::spawn(create(tenant.api(Kind::Address), made));
    let mark = tenant.mark().await?;
    for (turn, upto) in [COUNT / 4, COUNT / 2, COUNT * 3 / 4].into_iter().enumerate() {
        count.wait_for(|count| *count >= upto).await?;
        if turn == 1 {
            // In an orderly way: watches end instead of breaking.
            world.cluster.stop_apiserver().await?;
        } else {
            world.cluster.kill_apiserver();
        }
        world.cluster.start_apiserver().await?;
    }
    creating.await??;
    world.operator.ensure_running()?;
    let tenant = world.visit("outage").await?;
    for number in 0..COUNT {
        tenant.ready(Kind::Address, &[&format!("made-{number}")]).await?;
    }
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.iter().all(|write| write.name != "before"), "a Ready address was written: {writes:?}");
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    let queues = Observer::of(&world.broker).await?.queues(&tenant.name("")).await?;
    ensure!(queues.len() == COUNT + 1, "there are {} queues", queues.len());
    take(&world.broker, &tenant.name("before"), &["kept"]).await?;

    hangs(&mut world).await
}

/// Beyond the lease: nobody may act in the meantime, since another might.
async fn hangs(world: &mut World) -> Result<()> {
    world.operator.terminate().await?;
    let tenant = world.tenant("hangs").await?.driven_by("hangs");
    let operator = world.operator("hangs", &["--lease-duration=4s"]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let name = tenant.name("orders");
    // One that may act all the time shows what there was time for.
    let witness = world.operator("may-act", &["--lease-duration=1h"]).await?;
    let beside = world.tenant("may-act").await?.driven_by("may-act");
    beside.data_plane(&[("broker", &world.broker)]).await?;
    beside.ready_address("orders", json!({"type": "queue"})).await?;
    let its_name = beside.name("orders");
    let mark = tenant.mark().await?;
    let mut observer = Observer::of(&world.broker).await?;

    world.cluster.signal_apiserver("STOP")?;
    metric(&operator, "waystation_leading", |value| value == 0.0).await?;
    metric(&operator, "waystation_drives", |value| value == 0.0).await?;
    let sent = total(&operator, "waystation_broker_commands_total").await?;
    observer.destroy_queue(&name).await?;
    for _ in 0..3 {
        observer.destroy_queue(&its_name).await?;
        observer
            .until("the other's queue is back", &its_name, |row| {
                ensure!(row.is_some(), "it is not");
                Ok(())
            })
            .await?;
    }
    ensure!(total(&witness, "waystation_broker_commands_total").await? > 0.0, "nobody counts commands");
    ensure!(observer.queue(&name).await?.is_none(), "it acted without a lease");
    ensure!(total(&operator, "waystation_broker_commands_total").await? == sent, "it sent commands");

    world.cluster.signal_apiserver("CONT")?;
    metric(&operator, "waystation_leading", |value| value == 1.0).await?;
    let tenant = world.visit("hangs").await?.driven_by("hangs");
    observer
        .until("the queue is back", &name, |row| {
            ensure!(row.is_some(), "it is not");
            Ok(())
        })
        .await?;
    tenant.ready_address("after", json!({"type": "queue"})).await?;
    let mut wrong = tenant.address_writes(mark).await?;
    wrong.retain(|write| write.name != "after");
    ensure!(wrong.is_empty(), "Addresses that were Ready were written: {wrong:?}");
    Ok(())
}
