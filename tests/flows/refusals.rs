//! What cannot be done is told to the object that asked for it, in words that name the field, the value and the remedy,
//! and never to its neighbours.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use waystation_kit::process::eventually;

use crate::support::{CONFIG, Kind, SOON, SPACE, World, arrived, condition, is_ready};

#[tokio::test]
async fn of_two_hundred_addresses_only_the_one_that_the_broker_refuses_is_not_ready() -> Result<()> {
    const COUNT: usize = 200;
    // The broker takes a match for a regular expression; only settings of its own need one.
    const ODD: usize = 77;
    let world = World::shared().await?;
    let tenant = world.tenant("refused").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    let spec = |number| match number {
        ODD => json!({"type": "queue", "address": "odd(name", "messageTtl": {"maximum": "1h"}}),
        _ => json!({"type": "queue", "messageTtl": {"maximum": "1h"}}),
    };
    let (tenant, name) = (&tenant, |number| format!("queue-{number}"));
    stream::iter(0..COUNT)
        .map(|number| async move { tenant.address(&name(number), spec(number)).await })
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;

    let told = tenant.reason(Kind::Address, &name(ODD), "BrokerRefused").await?;
    ensure!(told.starts_with("broker broker: ") && told.contains("Unclosed group"), "{told}");
    let addresses = tenant.api(Kind::Address);
    eventually(SOON, "all others are Ready", || async {
        let list = addresses.list(&ListParams::default()).await?;
        ensure!(list.items.len() == COUNT, "{} of {COUNT} are there", list.items.len());
        for object in list {
            let object = serde_json::to_value(object)?;
            let reason = condition(&object, "Ready").map(|ready| ready["reason"].clone());
            if object["metadata"]["name"] == name(ODD).as_str() {
                ensure!(reason == Some("BrokerRefused".into()), "the odd one: {reason:?}");
            } else {
                is_ready(&object).with_context(|| format!("{}: {reason:?}", object["metadata"]["name"]))?;
            }
        }
        Ok(())
    })
    .await?;
    let mut client = tenant.client().await?;
    for number in [ODD - 1, ODD + 1] {
        client.send_text(&tenant.name(&name(number)), "works").await?;
        arrived(&client.receive(&tenant.name(&name(number)), 1, SOON).await?, &["works"])?;
    }
    // Without settings of its own the name is none of the broker's business.
    tenant.changed_address(&name(ODD), json!({"messageTtl": null})).await?;
    client.send_text(&tenant.name("odd(name"), "works").await?;
    arrived(&client.receive(&tenant.name("odd(name"), 1, SOON).await?, &["works"])
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_named_and_left_alone() -> Result<()> {
    const CONTROLLER: &str = "undecodable";
    let world = World::shared().await?;
    let operator = world.operator(CONTROLLER, &[]).await?;
    let tenant = world.tenant("undecodable").await?.driven_by(CONTROLLER);
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("broken", json!({"type": "queue"})).await?;
    tenant.ready_address("whole", json!({"type": "queue"})).await?;

    // As a version to come, or an administrator's script, might write it.
    let key = format!("/registry/waystation.dev/addresses/{}/broken", tenant.namespace);
    let stored: Value = serde_json::from_slice(&world.cluster.etcd_get(&key).await?)?;
    let mut broken = stored.clone();
    broken["spec"]["type"] = "quantum".into();
    world.cluster.etcd_put(&key, &serde_json::to_vec(&broken)?).await?;

    let series = r#"waystation_undecodable_objects{kind="Address"}"#;
    eventually(SOON, "it is counted", || async {
        let count = operator.metric(series).await?;
        ensure!(count == 1.0, "{count}");
        Ok(())
    })
    .await?;
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let note = eventually(SOON, "an event names it", || async {
        let list = events.list(&ListParams::default()).await?;
        let found = list.items.into_iter().find(|event| event.reason.as_deref() == Some("Invalid"));
        let event = found.context("there is no such event")?;
        let about = event.regarding.and_then(|object| object.name);
        ensure!(about.as_deref() == Some("broken"), "it is about {about:?}");
        event.note.context("it says nothing")
    })
    .await?;
    ensure!(note.contains("cannot be read") && note.contains("spec.type"), "{note}");

    // The others go on: the one that was there, a new one, and a deletion.
    tenant.changed_address("whole", json!({"messageTtl": {"maximum": "1h"}})).await?;
    tenant.ready_address("new", json!({"type": "queue"})).await?;
    tenant.delete(Kind::Address, "whole").await?;
    tenant.gone(Kind::Address, "whole").await?;
    // Its queue is there, though it was empty and anybody could have taken it for a leftover.
    let mut client = tenant.client().await?;
    client.send_text(&tenant.name("broken"), "still there").await?;

    world.cluster.etcd_put(&key, &serde_json::to_vec(&stored)?).await?;
    eventually(SOON, "it is counted no more", || async {
        let count = operator.metric(series).await?;
        ensure!(count == 0.0, "{count}");
        Ok(())
    })
    .await?;
    // Mended, it is changed and deleted like any other.
    tenant.ready_address("dead", json!({"type": "deadLetter"})).await?;
    tenant.changed_address("broken", json!({"deadLetterAddress": "dead"})).await?;
    arrived(&client.receive_and_reject(&tenant.name("broken"), 1, SOON).await?, &["still there"])?;
    arrived(&client.receive(&tenant.name("dead"), 1, SOON).await?, &["still there"])?;
    tenant.delete(Kind::Address, "broken").await?;
    tenant.gone(Kind::Address, "broken").await?;
    ensure!(client.send_text(&tenant.name("broken"), "lost").await.is_err(), "its queue is still there");
    Ok(())
}

#[tokio::test]
async fn each_refusal_names_the_field_the_value_and_the_remedy() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("refusals").await?;
    let stranger = world.tenant("refusals-stranger").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.router_config("single", &[("broker", &world.broker)], json!({"tenancy": "Single"})).await?;
    tenant.space("only", "single").await?;
    tenant.ready(Kind::AddressSpace, &["only"]).await?;
    tenant.create(Kind::RouterConfig, "locked-out", secretless("no-such-secret", world.broker.port())).await?;

    tenant.space("lost", "no-such-config").await?;
    tenant.space("second", "single").await?;
    let reference = json!({"name": CONFIG, "namespace": tenant.namespace});
    stranger.create(Kind::AddressSpace, SPACE, json!({"type": "brokered", "routerConfigRef": reference})).await?;

    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    tenant.address("homeless", json!({"type": "queue", "addressSpace": "no-such-space"})).await?;
    tenant.address("refused-space", json!({"type": "queue", "addressSpace": "second"})).await?;
    tenant.address("topicless", json!({"type": "subscription", "topic": "no-such-topic"})).await?;
    tenant.address("wrong-topic", json!({"type": "subscription", "topic": "orders"})).await?;
    tenant.address("letterless", json!({"type": "queue", "deadLetterAddress": "no-such-letter"})).await?;
    tenant.address("expiryless", json!({"type": "queue", "expiryAddress": "no-such-letter"})).await?;
    tenant.address("wrong-letter", json!({"type": "queue", "deadLetterAddress": "orders"})).await?;
    tenant.address("duplicate", json!({"type": "topic", "address": "orders"})).await?;

    use Kind::{Address, AddressSpace, RouterConfig};
    let expected = [
        (
            RouterConfig,
            "locked-out",
            "SecretNotFound",
            "broker broker: Secret refusals/no-such-secret is missing: create it, or change the RouterConfig",
        ),
        (
            AddressSpace,
            "lost",
            "RouterConfigNotFound",
            "spec.routerConfigRef names refusals/no-such-config, which does not exist: create that RouterConfig",
        ),
        (
            AddressSpace,
            "second",
            "TenancySingle",
            "RouterConfig refusals/single has tenancy Single and serves AddressSpace refusals/only: use another \
             RouterConfig",
        ),
        (
            Address,
            "homeless",
            "SpaceNotFound",
            "spec.addressSpace names no-such-space, which does not exist in namespace refusals: create that AddressSpace",
        ),
        (
            Address,
            "refused-space",
            "SpaceNotAccepted",
            "AddressSpace second is not accepted: RouterConfig refusals/single has tenancy Single and serves \
             AddressSpace refusals/only: use another RouterConfig",
        ),
        (
            Address,
            "topicless",
            "TopicNotFound",
            "spec.topic names no-such-topic, which is no address of space shop: create an Address of type topic for it",
        ),
        (
            Address,
            "wrong-topic",
            "TopicNotFound",
            "spec.topic names orders, which is of type queue: name an address of type topic",
        ),
        (
            Address,
            "letterless",
            "DeadLetterNotFound",
            "spec.deadLetterAddress names no-such-letter, which is no address of space shop: create an Address of \
             type deadLetter for it",
        ),
        (
            Address,
            "expiryless",
            "DeadLetterNotFound",
            "spec.expiryAddress names no-such-letter, which is no address of space shop: create an Address of type \
             deadLetter for it",
        ),
        (
            Address,
            "wrong-letter",
            "DeadLetterWrongType",
            "spec.deadLetterAddress names orders, which is of type queue: name an address of type deadLetter",
        ),
        (
            Address,
            "duplicate",
            "DuplicateAddress",
            "Address orders (queue) has orders in this space already: choose another spec.address, or delete it",
        ),
    ];
    let mut wrong = Vec::new();
    for (kind, name, reason, message) in expected {
        let told = tenant.reason(kind, name, reason).await?;
        if told != message {
            wrong.push(format!("{name}: {told}\ninstead of: {message}"));
        }
    }
    let told = stranger.reason(AddressSpace, SPACE, "NamespaceNotAllowed").await?;
    let message = "RouterConfig refusals/main does not take spaces of namespace refusals-stranger: its \
                   allowedNamespaces must be widened";
    if told != message {
        wrong.push(format!("{told}\ninstead of: {message}"));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    // None of them had anything to do with the one that is in order.
    tenant.ready(Address, &["orders"]).await?;
    Ok(())
}

/// A RouterConfig whose login is in a Secret of that name.
fn secretless(secret: &str, port: u16) -> Value {
    let host = json!({"name": "broker", "host": "127.0.0.1", "port": port});
    json!({"messaging": {"brokers": {"external": {"hosts": [host], "credentials": {"secretName": secret}}}}})
}
