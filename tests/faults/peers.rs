//! A peer that fails: what becomes of others, and what is said.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::proxy::{Mode, Proxy};

use crate::observer::{Observer, event, metric, send, take};
use crate::support::{CONFIG, Kind, LOGIN, SPACE, Tenant, World, condition};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_two_addresses_with_one_name_outlives_either() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("one-name").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    let queue = json!({"type": "queue", "address": "orders"});
    tenant.ready_address("first", queue.clone()).await?;
    for name in ["second", "third"] {
        tenant.address(name, queue.clone()).await?;
        let words = tenant.reason(Kind::Address, name, "DuplicateAddress").await?;
        ensure!(words.contains("first"), "it does not name the one that has it: {words}");
    }
    send(&world.broker, &tenant.name("orders"), &["one", "two"]).await?;

    tenant.delete(Kind::Address, "third").await?;
    tenant.gone(Kind::Address, "third").await?;
    tenant.ready(Kind::Address, &["first"]).await?;
    take(&world.broker, &tenant.name("orders"), &["one"]).await?;

    tenant.delete(Kind::Address, "first").await?;
    tenant.gone(Kind::Address, "first").await?;
    tenant.ready(Kind::Address, &["second"]).await?;
    take(&world.broker, &tenant.name("orders"), &["two"]).await?;

    tenant.delete(Kind::Address, "second").await?;
    tenant.gone(Kind::Address, "second").await?;
    let left = Observer::of(&world.broker).await?.addresses(&tenant.name("")).await?;
    ensure!(left.is_empty(), "left over: {left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_broker_holds_up_no_queue_of_another() -> Result<()> {
    let world = World::shared().await?;
    let mut other = Artemis::start(ArtemisOptions::default()).await?;
    let tenant = world.tenant("hung").await?;
    tenant.data_plane(&[("healthy", &world.broker), ("hung", &other)]).await?;
    tenant.space("side", CONFIG).await?;
    tenant.ready(Kind::AddressSpace, &["side"]).await?;
    for (space, broker) in [(SPACE, "healthy"), ("side", "hung")] {
        let placed = tenant.get(Kind::AddressSpace, space).await?["status"]["broker"].clone();
        ensure!(placed == broker, "space {space} is on {placed}");
    }
    let on_hung = json!({"type": "queue", "addressSpace": "side"});
    tenant.ready_address("before", on_hung.clone()).await?;

    other.hang()?;
    tenant.address("stuck", on_hung).await?;
    // The hung one has not even been noticed yet.
    for name in ["one", "two", "three"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
    }
    // Hung from its first connection on.
    tenant.router_config_on_ports("later", &[("hung", other.port())], json!({})).await?;
    let words = tenant.broker_state(CONFIG, "hung", "Unreachable").await?;
    ensure!(!words.is_empty(), "it does not say why");
    tenant.broker_state("later", "hung", "Unreachable").await?;
    tenant.reason(Kind::Address, "stuck", "BrokerUnreachable").await?;
    tenant.broker_state(CONFIG, "healthy", "Serving").await?;
    for name in ["four", "five"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
    }
    tenant.ready(Kind::Address, &["before", "one"]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    tenant.reason(Kind::AddressSpace, "side", "BrokerUnreachable").await?;

    other.go_on()?;
    tenant.ready(Kind::Address, &["stuck"]).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG, "later"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_goes_first_holds_up_no_deletion() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("secret-first").await?.driven_by("secret-first");
    let mut operator = world.operator("secret-first", &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for name in ["orders", "bills"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    secrets.delete(LOGIN, &DeleteParams::default()).await?;
    let lost = |config: &Value| {
        let message = config["status"]["brokers"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains(LOGIN) && message.contains("missing"), "it says {message:?}");
        Ok(())
    };
    tenant.until(Kind::RouterConfig, CONFIG, "says that the Secret is missing", lost).await?;
    tenant.delete(Kind::Address, "orders").await?;
    tenant.gone(Kind::Address, "orders").await?;

    // A new process has never known what was in it: then the queue cannot be removed, and that is said.
    operator.terminate().await?;
    let _operator = world.operator("secret-first", &[]).await?;
    tenant.reason(Kind::RouterConfig, CONFIG, "SecretNotFound").await?;
    tenant.delete(Kind::Address, "bills").await?;
    let words = tenant.reason(Kind::Address, "bills", "Terminating").await?;
    ensure!(words.contains("broker broker") && words.contains("force-delete"), "{words}");
    let name = tenant.name("bills");
    let mut observer = Observer::of(&world.broker).await?;
    ensure!(observer.queue(&name).await?.is_some(), "the queue is gone already");
    tenant.secret(LOGIN, &[("username", "admin"), ("password", "admin-password")]).await?;
    tenant.gone(Kind::Address, "bills").await?;
    ensure!(observer.queue(&name).await?.is_none(), "the queue is still there");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_people_delete_comes_back_at_once() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("by-hand").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("orders", json!({"type": "queue", "redelivery": {"maxAttempts": 4}})).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    tenant.ready_address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    let mark = tenant.mark().await?;
    let mut observer = Observer::of(&world.broker).await?;
    let (queue, archive) = (tenant.name("orders"), tenant.name("archive"));
    let before = observer.queues(&tenant.name("")).await?;
    let repairs = world.operator.metric("waystation_repairs_total").await?;

    // With its address, and with its settings.
    observer.destroy_queue(&queue).await?;
    observer.destroy_queue(&archive).await?;
    // Long before the next comparison, which is ten minutes away.
    for name in [&queue, &archive] {
        observer
            .until("it is back", name, |row| {
                ensure!(row.as_ref() == before.get(name), "it is {row:?}");
                Ok(())
            })
            .await?;
        event(&tenant, Kind::RouterConfig, CONFIG, "Repaired", name).await?;
    }
    metric(&world.operator, "waystation_repairs_total", |now| now >= repairs + 2.0).await?;
    ensure!(observer.settings(&queue).await?["maxDeliveryAttempts"] == 4, "its settings are not back");
    send(&world.broker, &queue, &["hello"]).await?;
    take(&world.broker, &queue, &["hello"]).await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "Addresses were written: {writes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_starts_while_the_broker_is_down_says_so_once_and_takes_nothing_back() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("down").await?.driven_by("down");
    let proxy = Proxy::start(world.broker.port()).await?;
    let mut operator = world.operator("down", &[]).await?;
    proxied_data_plane(&tenant, &proxy).await?;
    let names: Vec<String> = (0..20).map(|number| format!("queue-{number}")).collect();
    for name in &names {
        tenant.address(name, json!({"type": "queue"})).await?;
    }
    tenant.ready_address("doomed", json!({"type": "queue"})).await?;
    for name in &names {
        tenant.ready(Kind::Address, &[name]).await?;
    }
    operator.terminate().await?;

    proxy.set(Mode::Cut);
    let mark = tenant.mark().await?;
    let mut operator = world.operator("down", &[]).await?;
    tenant.broker_state(CONFIG, "broker", "Unreachable").await?;
    tenant.reason(Kind::RouterConfig, CONFIG, "BrokerUnreachable").await?;
    tenant.address("fresh", json!({"type": "queue"})).await?;
    tenant.reason(Kind::Address, "fresh", "BrokerUnreachable").await?;
    tenant.delete(Kind::Address, "doomed").await?;
    let words = tenant.reason(Kind::Address, "doomed", "Terminating").await?;
    ensure!(words.contains("broker broker") && words.contains("force-delete"), "{words}");
    let seen = tenant.get(Kind::Address, "doomed").await?;
    ensure!(condition(&seen, "Ready").context("no Ready")?["status"] == "False", "it is still Ready");

    proxy.set(Mode::Pass);
    tenant.ready(Kind::Address, &["fresh"]).await?;
    tenant.gone(Kind::Address, "doomed").await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    let mut wrong = tenant.address_writes(mark).await?;
    wrong.retain(|write| !["fresh", "doomed"].contains(&write.name.as_str()));
    ensure!(wrong.is_empty(), "Addresses that were Ready were written: {wrong:?}");
    for name in &names {
        tenant.ready(Kind::Address, &[name]).await?;
    }
    operator.ensure_running()
}

/// A RouterConfig `main` and a space `shop`, Ready, with the broker behind a proxy.
pub async fn proxied_data_plane(tenant: &Tenant<'_>, proxy: &Proxy) -> Result<()> {
    tenant.secret(LOGIN, &[("username", "admin"), ("password", "admin-password")]).await?;
    tenant.router_config_on_ports(CONFIG, &[("broker", proxy.port())], json!({})).await?;
    tenant.space(SPACE, CONFIG).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_told_to_end_gives_the_lease_back() -> Result<()> {
    let world = World::shared().await?;
    // Longer than anybody here waits: were it not given back, the next one would not begin.
    let hour = ["--lease-duration=1h"];
    let tenant = world.tenant("handover").await?.driven_by("handover");
    let mut first = world.operator("handover", &hour).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("before", json!({"type": "queue"})).await?;
    let status = first.terminate().await?;
    ensure!(status.success(), "it ended with {status}");
    let _second = world.operator("handover", &hour).await?;
    tenant.ready_address("after", json!({"type": "queue"})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_address_does_not_wait_for_the_bulk_of_another_tenant() -> Result<()> {
    const BULK: usize = 400;
    let world = World::shared().await?;
    let (big, small) = (world.tenant("bulk").await?, world.tenant("beside-bulk").await?);
    let proxy = Proxy::start(world.broker.port()).await?;
    proxied_data_plane(&big, &proxy).await?;
    big.change(Kind::RouterConfig, CONFIG, json!({"spec": {"allowedNamespaces": {"from": "All"}}})).await?;
    let reference = json!({"name": CONFIG, "namespace": big.namespace});
    small.create(Kind::AddressSpace, SPACE, json!({"type": "brokered", "routerConfigRef": reference})).await?;
    small.ready(Kind::AddressSpace, &[SPACE]).await?;

    // Far, so that the bulk is not done before the other begins.
    proxy.set(Mode::Slow(Duration::from_millis(100)));
    let bulk = stream::iter((0..BULK).map(Ok::<_, anyhow::Error>));
    let big = &big;
    bulk.try_for_each_concurrent(16, |number| async move {
        big.address(&format!("bulk-{number}"), json!({"type": "queue"})).await
    })
    .await?;
    let object = json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "Address", "metadata": {"name": "one"},
        "spec": {"type": "queue", "addressSpace": SPACE},
    });
    let made = small.api(Kind::Address).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let made = version(&serde_json::to_value(made)?)?;
    small.ready(Kind::Address, &["one"]).await?;
    // Ready is the last that is written of each: its version orders one Address against another.
    let ready = version(&small.get(Kind::Address, "one").await?)?;
    proxy.set(Mode::Pass);
    let versions: Vec<u64> = stream::iter(0..BULK)
        .map(|number| async move {
            let name = format!("bulk-{number}");
            big.ready(Kind::Address, &[&name]).await?;
            version(&big.get(Kind::Address, &name).await?)
        })
        .buffer_unordered(16)
        .try_collect()
        .await?;
    let behind = |since: u64| versions.iter().filter(|version| **version > since).count();
    let (waiting, later) = (behind(made), behind(ready));
    ensure!(waiting > BULK / 20, "the bulk was done: only {waiting} of it were left when the other began");
    ensure!(later > waiting / 4, "{} of the {waiting} that were before it became Ready first", waiting - later);
    Ok(())
}

fn version(object: &Value) -> Result<u64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?)
}
