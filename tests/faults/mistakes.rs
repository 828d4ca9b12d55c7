//! Nothing is destroyed by mistake: finalizers that people strip, another owner on the same broker, queues that people
//! made.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::observer::{Observer, event, events, send, take};
use crate::support::{CONFIG, Kind, SPACE, Tenant, World};

/// Takes the finalizer off and deletes the object, which is gone at once then.
pub async fn strip_and_delete(tenant: &Tenant<'_>, name: &str) -> Result<()> {
    tenant.change(Kind::Address, name, json!({"metadata": {"finalizers": null}})).await?;
    tenant.delete(Kind::Address, name).await?;
    tenant.gone(Kind::Address, name).await
}

/// Waits until `status.orphans` is that.
pub async fn orphans(tenant: &Tenant<'_>, count: i64) -> Result<()> {
    tenant
        .until(Kind::RouterConfig, CONFIG, &format!("{count} orphans"), |config| {
            let orphans = &config["status"]["orphans"];
            ensure!(orphans.as_i64().unwrap_or_default() == count, "there are {orphans}");
            Ok(())
        })
        .await
}

/// Has orphans destroyed, and waits until that is done.
pub async fn prune(tenant: &Tenant<'_>, value: &str) -> Result<()> {
    annotate(tenant, CONFIG, "waystation.dev/prune-orphans", value).await?;
    handled(tenant, CONFIG, "orphansPruned", value).await
}

/// Has the brokers read and compared, and waits until that has begun.
pub async fn resync(tenant: &Tenant<'_>, config: &str, value: &str) -> Result<()> {
    annotate(tenant, config, "waystation.dev/resync", value).await?;
    handled(tenant, config, "resynced", value).await
}

async fn annotate(tenant: &Tenant<'_>, config: &str, annotation: &str, value: &str) -> Result<()> {
    tenant.change(Kind::RouterConfig, config, json!({"metadata": {"annotations": {annotation: value}}})).await
}

async fn handled(tenant: &Tenant<'_>, config: &str, field: &str, value: &str) -> Result<()> {
    tenant
        .until(Kind::RouterConfig, config, field, |config: &Value| {
            ensure!(config["status"][field] == value, "it is {}", config["status"][field]);
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stripped_finalizer_leaves_behind_is_kept_while_it_holds_messages() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("stripped").await?.driven_by("stripped");
    let mut operator = world.operator("stripped", &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    let archive = json!({"type": "subscription", "topic": "news"});
    tenant.ready_address("archive", archive.clone()).await?;
    for name in ["full", "full-too", "empty", "empty-too"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
    }
    for (name, text) in [("full", "one"), ("full-too", "two"), ("news", "three")] {
        send(&world.broker, &tenant.name(name), &[text]).await?;
    }
    let mut observer = Observer::of(&world.broker).await?;

    // While it runs, but between two looks: with a moment in between it would put the finalizer back.
    operator.signal("STOP")?;
    for name in ["full", "empty", "archive"] {
        strip_and_delete(&tenant, name).await?;
    }
    operator.signal("CONT")?;
    observer.without_queue(&tenant.name("empty")).await?;
    orphans(&tenant, 2).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &tenant.name("full")).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &tenant.name("archive")).await?;

    // While it does not run.
    operator.terminate().await?;
    for name in ["full-too", "empty-too"] {
        strip_and_delete(&tenant, name).await?;
    }
    let _operator = world.operator("stripped", &[]).await?;
    observer.without_queue(&tenant.name("empty-too")).await?;
    orphans(&tenant, 3).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &tenant.name("full-too")).await?;

    // What comes back has what it had.
    tenant.ready_address("full", json!({"type": "queue"})).await?;
    tenant.ready_address("archive", archive).await?;
    orphans(&tenant, 1).await?;
    take(&world.broker, &tenant.name("full"), &["one"]).await?;
    take(&world.broker, &tenant.subscription("news", "archive"), &["three"]).await?;
    send(&world.broker, &tenant.name("full"), &["four"]).await?;

    // Only what nobody stands for goes, and only when it is said.
    ensure!(observer.queue(&tenant.name("full-too")).await?.is_some_and(|row| row.messages == 1), "it is gone");
    prune(&tenant, "1").await?;
    observer.without_queue(&tenant.name("full-too")).await?;
    orphans(&tenant, 0).await?;
    take(&world.broker, &tenant.name("full"), &["four"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stripped_finalizer_leaves_of_topics_and_spaces_goes_with_the_next_look() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("stripped-topics").await?.driven_by("stripped-topics");
    let mut operator = world.operator("stripped-topics", &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.space("second", CONFIG).await?;
    tenant.ready(Kind::AddressSpace, &["second"]).await?;
    tenant.ready_address("news", json!({"type": "topic", "messageTtl": {"maximum": "1h"}})).await?;
    tenant.ready_address("stays", json!({"type": "topic"})).await?;
    tenant.ready_address("alerts", json!({"type": "multicast", "addressSpace": "second"})).await?;
    let mut observer = Observer::of(&world.broker).await?;
    let all = |name: &str| format!("{}.{name}", tenant.namespace);
    let closed = observer.settings(&all("second/nobody")).await?;
    ensure!(closed["autoCreateQueues"] == false, "{closed:?}");

    operator.terminate().await?;
    for name in ["news", "alerts"] {
        strip_and_delete(&tenant, name).await?;
    }
    tenant.change(Kind::AddressSpace, "second", json!({"metadata": {"finalizers": null}})).await?;
    tenant.delete(Kind::AddressSpace, "second").await?;
    tenant.gone(Kind::AddressSpace, "second").await?;
    let _operator = world.operator("stripped-topics", &[]).await?;
    observer.without_queue(&format!("_waystation/{}", all("second/alerts"))).await?;
    observer.without_queue(&format!("_waystation/{}", all("shop/news"))).await?;
    let left = observer.addresses(&all("")).await?;
    ensure!(left.iter().eq([&all("shop/stays")]), "left over: {left:?}");
    // The settings of a space go after all that they are for.
    resync(&tenant, CONFIG, "1").await?;
    observer.without_queue(&format!("_waystation/{}", all("second/"))).await?;
    let nobodys = observer.settings("nobodys").await?;
    for name in ["second/nobody", "second/alerts"] {
        let left = observer.settings(&all(name)).await?;
        ensure!(left == nobodys, "settings of {name} are left over: {left:?}");
    }
    ensure!(observer.settings(&all("shop/news")).await? == observer.settings(&all("shop/nobody")).await?);
    let marks = observer.queues(&format!("_waystation/{}", all(""))).await?;
    let marks: Vec<&String> = marks.keys().collect();
    ensure!(marks.len() == 2, "what is there has its marks: {marks:?}");
    tenant.ready(Kind::Address, &["stays"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner_on_the_same_broker_takes_nothing_away() -> Result<()> {
    let world = World::shared().await?;
    let (first, second) = (world.tenant("first-owner").await?, world.tenant("second-owner").await?);
    first.data_plane(&[("broker", &world.broker)]).await?;
    first.ready_address("orders", json!({"type": "queue", "messageTtl": {"maximum": "1h"}})).await?;
    first.ready_address("news", json!({"type": "topic", "messageTtl": {"maximum": "2h"}})).await?;
    first.ready_address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    send(&world.broker, &first.name("orders"), &["one"]).await?;
    send(&world.broker, &first.name("news"), &["two"]).await?;
    let mut observer = Observer::of(&world.broker).await?;
    let before = observer.queues(&first.name("")).await?;
    let names = ["orders", "news", "archive"].map(|name| first.name(name));
    let set = observer.settings_of(&names).await?;
    ensure!(set[0]["maxExpiryDelay"] == 3_600_000 && set[1]["maxExpiryDelay"] == 7_200_000, "{set:?}");
    let mark = first.mark().await?;

    // Without a prefix, every name of the first one can be asked for.
    let messaging = json!({"tenancy": "Single"});
    second.router_config(CONFIG, &[("broker", &world.broker)], messaging).await?;
    second.space(SPACE, CONFIG).await?;
    second.ready(Kind::AddressSpace, &[SPACE]).await?;
    let short = json!({"maximum": "1ms"});
    for (name, kind, ttl) in [
        ("orders", "queue", Some(&short)),
        ("orders", "topic", Some(&short)),
        ("orders", "multicast", None),
        ("news", "queue", Some(&short)),
        ("news", "topic", Some(&short)),
        ("news", "multicast", None),
        ("archive", "deadLetter", None),
    ] {
        let wanted = first.name(name);
        let object = format!("{name}-{kind}").to_lowercase();
        // One after the other: two of one name would be duplicates.
        let mut spec = json!({"type": kind, "address": wanted});
        if let Some(ttl) = ttl {
            spec["messageTtl"] = ttl.clone();
        }
        second.address(&object, spec).await?;
        let words = second.reason(Kind::Address, &object, "BrokerRefused").await?;
        ensure!(
            words.contains(&wanted) && (kind == "queue" || words.contains("waystation:") || name != "news"),
            "{words}"
        );
        let now = observer.settings_of(&names).await?;
        ensure!(now == set, "{object}: before {set:?}, now {now:?}");
        second.delete(Kind::Address, &object).await?;
        second.gone(Kind::Address, &object).await?;
    }
    resync(&second, CONFIG, "1").await?;
    prune(&second, "1").await?;
    second.ready_address("own", json!({"type": "queue"})).await?;
    second.delete(Kind::Address, "own").await?;
    second.gone(Kind::Address, "own").await?;
    second.delete(Kind::AddressSpace, SPACE).await?;
    second.delete(Kind::RouterConfig, CONFIG).await?;
    second.gone(Kind::RouterConfig, CONFIG).await?;
    resync(&first, CONFIG, "1").await?;
    prune(&first, "1").await?;

    let after = observer.queues(&first.name("")).await?;
    ensure!(before == after, "before {before:?}, after {after:?}");
    let now = observer.settings_of(&names).await?;
    ensure!(now == set, "before {set:?}, after {now:?}");
    ensure!(observer.queue("own").await?.is_none(), "its own queue is left over");
    let writes = first.address_writes(mark).await?;
    ensure!(writes.is_empty(), "Addresses of the first owner were written: {writes:?}");
    take(&world.broker, &first.name("orders"), &["one"]).await?;
    take(&world.broker, &first.subscription("news", "archive"), &["two"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_people_made_are_left_alone() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("people").await?.driven_by("people");
    let mut operator = world.operator("people", &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    let mut observer = Observer::of(&world.broker).await?;
    let inside = [tenant.name("claimed"), tenant.name("unclaimed"), tenant.name("of-another")];
    let outside = "people-made".to_owned();
    for (name, user) in inside.iter().chain([&outside]).zip([None, None, Some("waystation:another"), None]) {
        observer.make_queue(name, user).await?;
        send(&world.broker, name, &["mine"]).await?;
    }
    // A queue of theirs on a topic of ours.
    let theirs = json!({
        "name": "people-archive", "address": tenant.name("news"), "routing-type": "MULTICAST", "durable": true,
    });
    observer.call("broker", "createQueue", json!([theirs.to_string(), false])).await?;
    let before = observer.queues("people").await?;
    ensure!(before.len() == 5, "{before:?}");
    // One that is left over, so that it shows when the broker has been looked at.
    tenant.ready_address("lost", json!({"type": "queue"})).await?;
    send(&world.broker, &tenant.name("lost"), &["ours"]).await?;

    tenant.address("claimed", json!({"type": "queue"})).await?;
    let words = tenant.reason(Kind::Address, "claimed", "BrokerRefused").await?;
    ensure!(words.contains(&inside[0]) && words.contains("1 messages"), "{words}");
    tenant.delete(Kind::Address, "claimed").await?;
    tenant.gone(Kind::Address, "claimed").await?;
    resync(&tenant, CONFIG, "1").await?;
    prune(&tenant, "1").await?;
    operator.terminate().await?;
    strip_and_delete(&tenant, "lost").await?;
    let _operator = world.operator("people", &[]).await?;
    event(&tenant, Kind::RouterConfig, CONFIG, "OrphanedQueue", &tenant.name("lost")).await?;
    orphans(&tenant, 1).await?;
    let told = events(&tenant, Kind::RouterConfig, CONFIG).await?;
    let orphaned: Vec<_> = told.iter().filter(|(reason, _)| reason == "OrphanedQueue").collect();
    ensure!(orphaned.len() == 1, "{orphaned:?}");
    prune(&tenant, "2").await?;
    observer.without_queue(&tenant.name("lost")).await?;
    orphans(&tenant, 0).await?;

    // The topic cannot go without their queue: it waits, and says for what.
    tenant.delete(Kind::Address, "news").await?;
    let words = tenant.reason(Kind::Address, "news", "Terminating").await?;
    ensure!(words.contains("people-archive"), "{words}");
    let force = json!({"metadata": {"annotations": {"waystation.dev/force-delete": "true"}}});
    tenant.change(Kind::Address, "news", force).await?;
    tenant.gone(Kind::Address, "news").await?;
    tenant.delete(Kind::AddressSpace, SPACE).await?;
    tenant.gone(Kind::AddressSpace, SPACE).await?;

    let after = observer.queues("people").await?;
    ensure!(before == after, "before {before:?}, after {after:?}");
    for name in inside.iter().chain([&outside]) {
        take(&world.broker, name, &["mine"]).await?;
    }
    Ok(())
}
