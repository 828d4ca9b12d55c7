//! A broker that goes with a thousand queues on it, and comes back.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::{TryStreamExt, stream};
use serde_json::{Value, json};
use waystation_kit::artemis::{Artemis, ArtemisOptions};

use crate::observer::{Observer, send};
use crate::plane::{Routed, routed_plane};
use crate::support::{CONFIG, Kind, SPACE, Tenant, World, arrived, is_ready};

const QUEUES: usize = 1_000;
/// With messages in them.
const STORED: [usize; 3] = [0, 499, 999];

fn hosts(brokers: [(&str, &Artemis); 2], drained: &str) -> Value {
    let host = |(name, broker): (&str, &Artemis)| json!({"name": name, "host": "127.0.0.1", "port": broker.plain_port(), "drain": name == drained});
    let hosts: Vec<Value> = brokers.into_iter().map(host).collect();
    json!({"spec": {"messaging": {"brokers": {"external": {"hosts": hosts}}}}})
}

fn name(number: usize) -> String {
    format!("q{number}")
}

async fn all_ready(tenant: &Tenant<'_>) -> Result<()> {
    let each = stream::iter((0..QUEUES).map(Ok::<_, anyhow::Error>));
    each.try_for_each_concurrent(16, |number| async move { tenant.ready(Kind::Address, &[&name(number)]).await }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_dies_with_a_thousand_queues_costs_no_address_a_write_and_moves_none() -> Result<()> {
    let world = World::shared().await?;
    let (mut doomed, router) = tokio::try_join!(Artemis::start(ArtemisOptions::default()), Routed::start())?;
    let tenant = world.tenant("routed-outage").await?;
    routed_plane(&tenant, &[("doomed", &doomed), ("other", &world.broker)], &[("r1", &router)]).await?;
    // All on one of the two; then either would be as good.
    tenant.change(Kind::RouterConfig, CONFIG, hosts([("doomed", &doomed), ("other", &world.broker)], "other")).await?;
    let tenant = &tenant;
    stream::iter((0..QUEUES).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(
            16,
            |number| async move { tenant.address(&name(number), json!({"type": "queue"})).await },
        )
        .await?;
    all_ready(tenant).await?;
    tenant.change(Kind::RouterConfig, CONFIG, hosts([("doomed", &doomed), ("other", &world.broker)], "")).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    for number in STORED {
        send(&doomed, &tenant.name(&name(number)), &["kept"]).await?;
    }
    let prefix = tenant.name("");
    let before = Observer::of(&doomed).await?.queues(&prefix).await?;
    ensure!(before.len() == QUEUES, "{} queues on it", before.len());

    let mark = tenant.mark().await?;
    doomed.kill();
    tenant.broker_state(CONFIG, "doomed", "Unreachable").await?;
    let words = format!("broker doomed does not answer; {QUEUES} Addresses are on it");
    tenant
        .until(Kind::AddressSpace, SPACE, "the space tells of it", |space| {
            is_ready(space)?;
            let ready = crate::support::condition(space, "Ready").context("no Ready")?;
            ensure!(ready["message"] == words.as_str(), "{ready}");
            Ok(())
        })
        .await?;
    // What comes meanwhile goes to the other one.
    tenant.ready_address("meanwhile", json!({"type": "queue"})).await?;
    doomed.start_again().await?;
    tenant.broker_state(CONFIG, "doomed", "Serving").await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    let written: BTreeSet<(String, String)> = tenant
        .writes(mark)
        .await?
        .into_iter()
        .map(|write| (write.resource, write.name))
        .filter(|(_, name)| name != "meanwhile")
        .collect();
    let fine = |(resource, _): &&(String, String)| !["routerconfigs", "addressspaces"].contains(&resource.as_str());
    ensure!(!written.iter().any(|write| fine(&write)), "{written:?}");

    ensure!(Observer::of(&doomed).await?.queues(&prefix).await? == before, "what it holds has changed");
    let elsewhere = Observer::of(&world.broker).await?.queues(&prefix).await?;
    ensure!(elsewhere.keys().eq([&tenant.name("meanwhile")]), "{:?}", elsewhere.keys());
    let mut client = router.router.client().await?;
    for number in STORED {
        arrived(&client.receive(&tenant.name(&name(number)), 1, crate::support::SOON).await?, &["kept"])?;
    }
    all_ready(tenant).await
}
