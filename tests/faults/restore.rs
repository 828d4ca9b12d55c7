//! etcd is restored to an older state: what was made since is forgotten by the API server and not by the broker.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::mistakes::{orphans, prune};
use crate::observer::{Observer, event, send, take};
use crate::support::{CONFIG, Kind, World};

const NAMESPACE: &str = "restored";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_queue_with_messages_goes_because_etcd_went_back() -> Result<()> {
    let mut world = World::start().await?;
    let tenant = world.tenant(NAMESPACE).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for name in ["kept", "doomed", "changed"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
        send(&world.broker, &tenant.name(name), &["old"]).await?;
    }
    let older = world.cluster.etcd_snapshot().await?;
    let tenant = world.visit(NAMESPACE).await?;
    let settings = json!({"type": "queue", "redelivery": {"maxAttempts": 3}});
    for name in ["late", "late-too", "late-empty"] {
        tenant.ready_address(name, settings.clone()).await?;
    }
    for name in ["late", "late-too"] {
        send(&world.broker, &tenant.name(name), &["new"]).await?;
    }
    tenant.changed_address("changed", json!({"redelivery": {"maxAttempts": 6}})).await?;
    tenant.delete(Kind::Address, "doomed").await?;
    tenant.gone(Kind::Address, "doomed").await?;
    let mut observer = Observer::of(&world.broker).await?;
    let name = |name: &str| format!("{NAMESPACE}.shop/{name}");

    // With the operator running: its watches are from a future that never was.
    world.cluster.restore(&older).await?;
    let tenant = world.visit(NAMESPACE).await?;
    observer.without_queue(&name("late-empty")).await?;
    orphans(&tenant, 2).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &name("late")).await?;
    observer
        .until("doomed is back", &name("doomed"), |row| {
            ensure!(row.is_some(), "it is not");
            Ok(())
        })
        .await?;
    tenant.ready(Kind::Address, &["kept", "doomed", "changed"]).await?;
    observer_sets(&mut observer, &name("changed"), &name("kept")).await?;
    // What is made again has what it had.
    tenant.ready_address("late", settings.clone()).await?;
    orphans(&tenant, 1).await?;
    take(&world.broker, &name("late"), &["new"]).await?;
    prune(&tenant, "1").await?;
    observer.without_queue(&name("late-too")).await?;
    orphans(&tenant, 0).await?;

    // With the operator stopped.
    tenant.ready_address("later", settings).await?;
    send(&world.broker, &name("later"), &["newer"]).await?;
    world.operator.terminate().await?;
    world.cluster.restore(&older).await?;
    let mut again = world.operator("waystation", &[]).await?;
    let tenant = world.visit(NAMESPACE).await?;
    orphans(&tenant, 1).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &name("later")).await?;
    // Empty by now, and forgotten again.
    observer.without_queue(&name("late")).await?;
    ensure!(observer.queue(&name("later")).await?.is_some_and(|row| row.messages == 1), "its message is gone");
    prune(&tenant, "2").await?;
    observer.without_queue(&name("later")).await?;
    tenant.ready(Kind::Address, &["kept", "doomed", "changed"]).await?;
    for kept in ["kept", "changed"] {
        take(&world.broker, &name(kept), &["old"]).await?;
    }
    again.ensure_running()
}

/// Waits until the one has the settings of the other again.
async fn observer_sets(observer: &mut Observer, changed: &str, plain: &str) -> Result<()> {
    let plain = observer.settings(plain).await?;
    let observer = tokio::sync::Mutex::new(observer);
    waystation_kit::process::eventually(crate::support::SOON, "the settings are the older ones", || async {
        let now = observer.lock().await.settings(changed).await?;
        ensure!(now == plain, "they are {now:?}");
        Ok(())
    })
    .await
}
