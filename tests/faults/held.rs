//! What is held by who cannot be asked: a RouterConfig that is gone, and finalizers of others.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::observer::{Observer, event, send};
use crate::support::{CONFIG, Kind, Tenant, World, condition};

/// Waits until the object is not Ready for this reason, in words that include these.
async fn says(tenant: &Tenant<'_>, kind: Kind, name: &str, reason: &str, words: &str) -> Result<Value> {
    tenant
        .until(kind, name, &format!("{reason}: {words}"), |object| {
            let ready = condition(object, "Ready").context("there is no condition Ready")?;
            ensure!(ready["status"] == "False" && ready["reason"] == reason, "it says {ready}");
            ensure!(ready["message"].as_str().unwrap_or_default().contains(words), "it says {ready}");
            Ok(object.clone())
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_config_that_was_lost_is_told_of_and_its_queues_are_not_forgotten() -> Result<()> {
    const CONTROLLER: &str = "loses";
    let world = World::shared().await?;
    let mut operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    let tenant = world.tenant("lost").await?.driven_by(CONTROLLER);
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for name in ["again", "forced"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
        send(&world.broker, &tenant.name(name), &["kept"]).await?;
    }
    operator.kill();
    // By force: somebody takes the finalizer off.
    tenant.delete(Kind::RouterConfig, CONFIG).await?;
    tenant.change(Kind::RouterConfig, CONFIG, json!({"metadata": {"finalizers": null}})).await?;
    tenant.gone(Kind::RouterConfig, CONFIG).await?;
    let _operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    let lost = format!("RouterConfig lost/{CONFIG} does not exist");
    for name in ["again", "forced"] {
        says(&tenant, Kind::Address, name, "RouterConfigNotFound", &lost).await?;
        tenant.delete(Kind::Address, name).await?;
        says(&tenant, Kind::Address, name, "Terminating", &lost).await?;
    }
    let annotation = json!({"metadata": {"annotations": {"waystation.dev/force-delete": "true"}}});
    tenant.change(Kind::Address, "forced", annotation).await?;
    tenant.gone(Kind::Address, "forced").await?;
    event(&tenant, Kind::Address, "forced", "BrokerLetGo", "broker broker").await?;
    tenant.router_config(CONFIG, &[("broker", &world.broker)], json!({})).await?;
    tenant.gone(Kind::Address, "again").await?;
    let mut observer = Observer::of(&world.broker).await?;
    observer.without_queue(&tenant.name("again")).await?;
    ensure!(observer.queue(&tenant.name("forced")).await?.is_some(), "what was let go of stays");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_others_hold_is_not_ready_and_names_them() -> Result<()> {
    const OTHERS: &str = "example.com/backup";
    let world = World::shared().await?;
    let tenant = world.tenant("others").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let all = [(Kind::Address, "orders"), (Kind::AddressSpace, crate::support::SPACE), (Kind::RouterConfig, CONFIG)];
    for (kind, name) in all {
        let mut finalizers =
            tenant.get(kind, name).await?["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(OTHERS.into());
        tenant.change(kind, name, json!({"metadata": {"finalizers": finalizers}})).await?;
    }
    for (kind, name) in all {
        let mark = tenant.mark().await?;
        tenant.delete(kind, name).await?;
        let object = says(&tenant, kind, name, "Terminating", OTHERS).await?;
        let left = tenant
            .until(kind, name, "ours is gone", |object| {
                let left = object["metadata"]["finalizers"].clone();
                ensure!(left == json!([OTHERS]), "{left}");
                Ok(left)
            })
            .await?;
        ensure!(left == json!([OTHERS]), "{object}");
        let writes = tenant.writes(mark).await?;
        let status = writes.iter().filter(|entry| entry.name == name && entry.subresource == "status").count();
        ensure!(status <= 2, "{writes:?}");
        tenant.change(kind, name, json!({"metadata": {"finalizers": null}})).await?;
        tenant.gone(kind, name).await?;
    }
    Ok(())
}
