//! What a deletion waits for, what it says meanwhile, and who may cut it short.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::proxy::{Mode, Proxy};
use waystation_kit::standin::StandIn;

use crate::observer::{Observer, send, take};
use crate::peers::proxied_data_plane;
use crate::support::{CONFIG, Kind, SPACE, Tenant, World, condition};

const QUEUE: &str = "queue";

/// Says that a broker that cannot be reached shall hold nothing up.
async fn force(tenant: &Tenant<'_>, kind: Kind, name: &str) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {"waystation.dev/force-delete": "true"}}});
    tenant.change(kind, name, annotation).await
}

/// Waits until the object says that it is going and what it waits for, in these words.
async fn waits_for(tenant: &Tenant<'_>, kind: Kind, name: &str, words: &str) -> Result<()> {
    tenant
        .until(kind, name, &format!("waits for {words}"), |object| {
            let ready = condition(object, "Ready").context("there is no condition Ready")?;
            ensure!(ready["reason"] == "Terminating" && ready["status"] == "False", "it says {ready}");
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(message.contains(words), "it says {message:?}");
            Ok(())
        })
        .await
}

async fn still_there(tenant: &Tenant<'_>, kind: Kind, names: &[&str]) -> Result<()> {
    for name in names {
        tenant.get(kind, name).await.with_context(|| format!("{kind:?} {name} did not wait"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_cannot_be_reached_holds_a_deletion_until_told_to_let_go() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("unreachable").await?;
    let proxy = Proxy::start(world.broker.port()).await?;
    proxied_data_plane(&tenant, &proxy).await?;
    for space in ["forced", "other"] {
        tenant.space(space, CONFIG).await?;
        tenant.ready(Kind::AddressSpace, &[space]).await?;
    }
    let all =
        [("by-itself", SPACE), ("waits", SPACE), ("by-space", "forced"), ("by-config", "other"), ("drains", "other")];
    for (name, space) in all {
        let policy = if name == "drains" { "WhenEmpty" } else { "Delete" };
        let spec = json!({"type": QUEUE, "addressSpace": space, "deletionPolicy": policy});
        tenant.ready_address(name, spec).await?;
        send(&world.broker, &format!("{}.{space}/{name}", tenant.namespace), &["kept"]).await?;
    }
    let finalizers = tenant.get(Kind::Address, "waits").await?["metadata"]["finalizers"].clone();
    ensure!(finalizers == json!(["waystation.dev/address"]), "{finalizers}");

    proxy.set(Mode::Cut);
    tenant.broker_state(CONFIG, "broker", "Unreachable").await?;
    for (name, _) in all {
        tenant.delete(Kind::Address, name).await?;
    }
    for name in ["by-itself", "waits", "by-space", "by-config"] {
        waits_for(&tenant, Kind::Address, name, "broker broker").await?;
    }
    force(&tenant, Kind::Address, "by-itself").await?;
    tenant.gone(Kind::Address, "by-itself").await?;
    force(&tenant, Kind::AddressSpace, "forced").await?;
    tenant.gone(Kind::Address, "by-space").await?;
    still_there(&tenant, Kind::Address, &["waits", "by-config", "drains"]).await?;
    force(&tenant, Kind::RouterConfig, CONFIG).await?;
    for name in ["waits", "by-config", "drains"] {
        tenant.gone(Kind::Address, name).await?;
    }

    // It had been seen that they go: when the broker is back they go there as well.
    proxy.set(Mode::Pass);
    tenant.broker_state(CONFIG, "broker", "Serving").await?;
    let mut observer = Observer::of(&world.broker).await?;
    for (name, space) in all {
        observer.without_queue(&format!("{}.{space}/{name}", tenant.namespace)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_taken_out_lets_go_of_all_that_it_held() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("taken-out").await?;
    let proxy = Proxy::start(world.broker.port()).await?;
    proxied_data_plane(&tenant, &proxy).await?;
    for name in ["orders", "stays"] {
        tenant.ready_address(name, json!({"type": QUEUE})).await?;
        send(&world.broker, &tenant.name(name), &["kept"]).await?;
    }
    proxy.set(Mode::Cut);
    tenant.broker_state(CONFIG, "broker", "Unreachable").await?;
    tenant.delete(Kind::Address, "orders").await?;
    waits_for(&tenant, Kind::Address, "orders", "broker broker").await?;
    // The one in its place cannot be reached either, and need not: it never had anything.
    let next = StandIn::start(0, world.broker.login().clone()).await?;
    let way = Proxy::start(next.port()).await?;
    way.set(Mode::Cut);
    let hosts = json!([{"name": "next", "host": "127.0.0.1", "port": way.port()}]);
    let patch = json!({"spec": {"messaging": {"brokers": {"external": {"hosts": hosts}}}}});
    tenant.change(Kind::RouterConfig, CONFIG, patch).await?;
    tenant.gone(Kind::Address, "orders").await?;
    way.set(Mode::Pass);
    tenant.broker_state(CONFIG, "next", "Serving").await?;
    tenant.ready(Kind::Address, &["stays"]).await?;
    let space = tenant.get(Kind::AddressSpace, SPACE).await?;
    ensure!(space["status"]["broker"] == "next", "the space is on {}", space["status"]["broker"]);
    for name in ["orders", "stays"] {
        take(&world.broker, &tenant.name(name), &["kept"]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_emptied_first_waits_for_the_last_message_through_restarts() -> Result<()> {
    let world = World::shared().await?;
    let mut broker = Artemis::start(ArtemisOptions::default()).await?;
    let tenant = world.tenant("when-empty").await?.driven_by("when-empty");
    let mut operator = world.operator("when-empty", &[]).await?;
    tenant.data_plane(&[("broker", &broker)]).await?;
    tenant.ready_address("orders", json!({"type": QUEUE, "deletionPolicy": "WhenEmpty"})).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    let archive = json!({"type": "subscription", "topic": "news", "deletionPolicy": "WhenEmpty"});
    tenant.ready_address("archive", archive).await?;
    tenant.ready_address("unused", json!({"type": QUEUE, "deletionPolicy": "WhenEmpty"})).await?;
    let queue = tenant.name("orders");
    send(&broker, &queue, &["one", "two"]).await?;
    send(&broker, &tenant.name("news"), &["three"]).await?;

    for name in ["orders", "archive", "unused"] {
        tenant.delete(Kind::Address, name).await?;
    }
    tenant.gone(Kind::Address, "unused").await?;
    for name in ["orders", "archive"] {
        waits_for(&tenant, Kind::Address, name, "last message").await?;
    }
    take(&broker, &queue, &["one"]).await?;
    // Until the wait ends it is a queue like any other.
    send(&broker, &queue, &["late"]).await?;

    broker.stop().await?;
    tenant.broker_state(CONFIG, "broker", "Unreachable").await?;
    broker.start_again().await?;
    tenant.broker_state(CONFIG, "broker", "Serving").await?;
    operator.kill();
    let mut operator = world.operator("when-empty", &[]).await?;
    // A whole life of it: it leads, has read the broker, and has carried out a change.
    tenant.ready_address("another", json!({"type": QUEUE})).await?;
    tenant.broker_state(CONFIG, "broker", "Serving").await?;
    still_there(&tenant, Kind::Address, &["orders", "archive"]).await?;

    // Both at once, the operator first.
    operator.kill();
    broker.kill();
    broker.start_again().await?;
    let _operator = world.operator("when-empty", &[]).await?;
    tenant.ready_address("third", json!({"type": QUEUE})).await?;
    still_there(&tenant, Kind::Address, &["orders", "archive"]).await?;
    take(&broker, &queue, &["two", "late"]).await?;
    tenant.gone(Kind::Address, "orders").await?;
    still_there(&tenant, Kind::Address, &["archive"]).await?;
    take(&broker, &tenant.subscription("news", "archive"), &["three"]).await?;
    tenant.gone(Kind::Address, "archive").await?;
    let left = Observer::of(&broker).await?.queues(&tenant.name("")).await?;
    let left: Vec<&String> = left.keys().collect();
    ensure!(left == [&tenant.name("another"), &tenant.name("third")], "left: {left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_need_waits_for_them() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("waits").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    tenant.ready_address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    tenant.ready_address("dead", json!({"type": "deadLetter"})).await?;
    tenant.ready_address("late", json!({"type": "deadLetter"})).await?;
    tenant
        .ready_address("orders", json!({"type": QUEUE, "deadLetterAddress": "dead", "expiryAddress": "late"}))
        .await?;
    send(&world.broker, &tenant.name("news"), &["one"]).await?;

    // Everything at once, from the top.
    tenant.delete(Kind::RouterConfig, CONFIG).await?;
    tenant.delete(Kind::AddressSpace, SPACE).await?;
    for name in ["news", "dead", "late"] {
        tenant.delete(Kind::Address, name).await?;
    }
    waits_for(&tenant, Kind::RouterConfig, CONFIG, SPACE).await?;
    waits_for(&tenant, Kind::AddressSpace, SPACE, "5 Addresses").await?;
    waits_for(&tenant, Kind::Address, "news", "archive").await?;
    waits_for(&tenant, Kind::Address, "dead", "orders").await?;
    waits_for(&tenant, Kind::Address, "late", "orders").await?;

    // What waits works as before: messages still come in, and dead letters.
    send(&world.broker, &tenant.name("news"), &["two"]).await?;
    take(&world.broker, &tenant.subscription("news", "archive"), &["one", "two"]).await?;
    send(&world.broker, &tenant.name("orders"), &["bad"]).await?;
    let mut client = world.broker.client().await?;
    client.receive_and_reject(&tenant.name("orders"), 1, crate::support::SOON).await?;
    client.close().await?;
    take(&world.broker, &tenant.name("dead"), &["bad"]).await?;

    tenant.delete(Kind::Address, "archive").await?;
    tenant.gone(Kind::Address, "archive").await?;
    tenant.gone(Kind::Address, "news").await?;
    // To name another is as good as to go.
    tenant.change(Kind::Address, "orders", json!({"spec": {"expiryAddress": null}})).await?;
    tenant.gone(Kind::Address, "late").await?;
    still_there(&tenant, Kind::Address, &["dead", "orders"]).await?;
    still_there(&tenant, Kind::AddressSpace, &[SPACE]).await?;
    tenant.delete(Kind::Address, "orders").await?;
    tenant.gone(Kind::Address, "dead").await?;
    tenant.gone(Kind::AddressSpace, SPACE).await?;
    tenant.gone(Kind::RouterConfig, CONFIG).await?;

    let mut observer = Observer::of(&world.broker).await?;
    let left = observer.addresses(&tenant.name("")).await?;
    ensure!(left.is_empty(), "left over: {left:?}");
    let (ours, nobodys) = (observer.settings(&tenant.name("orders")).await?, observer.settings("nobodys").await?);
    ensure!(ours == nobodys, "settings are left over: {}", Value::Object(ours));
    Ok(())
}
