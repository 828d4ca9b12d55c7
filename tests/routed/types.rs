//! What becomes of each type of address in a standard space, told by messages through a router.

use anyhow::{Result, ensure};
use serde_json::json;
use waystation_kit::amqp_client::{Node, Outgoing};
use waystation_kit::process::eventually;

use crate::plane::{Routed, held, routed_plane};
use crate::support::{Kind, MOMENT, SOON, World, arrived, nothing};

#[tokio::test]
async fn every_type_becomes_ready_and_carries_messages() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let tenant = world.tenant("routed-types").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
    tenant.address("prices", json!({"type": "anycast"})).await?;
    tenant.address("alerts", json!({"type": "multicast"})).await?;
    tenant.address("orders", json!({"type": "queue", "deadLetterAddress": "dead"})).await?;
    tenant.address("news", json!({"type": "topic"})).await?;
    tenant.address("mine", json!({"type": "subscription", "topic": "news"})).await?;
    tenant.address("dead", json!({"type": "deadLetter"})).await?;
    tenant.ready(Kind::Address, &["prices", "alerts", "orders", "news", "mine", "dead"]).await?;

    let (mut one, mut other) = (routed.router.client().await?, routed.router.client().await?);

    // A queue keeps what nobody takes yet.
    let orders = tenant.name("orders");
    one.send_all(&orders, &[Outgoing::text("first"), Outgoing::text("second")]).await?;
    arrived(&other.receive(&orders, 2, SOON).await?, &["first", "second"])?;
    nothing(&one.receive(&orders, 1, MOMENT).await?)?;

    // What nothing stores is answered by its receivers themselves. Anycast has one.
    let prices = tenant.name("prices");
    let mut consumer = other.consumer(&prices, Node::Queue).await?;
    let cheap = [Outgoing::text("cheap")];
    let (received, ()) = tokio::try_join!(consumer.receive(1, SOON), one.send_to(&prices, Node::Queue, &cheap))?;
    arrived(&received, &["cheap"])?;

    // Multicast goes to all.
    let alerts = tenant.name("alerts");
    let mut third = routed.router.client().await?;
    let (mut here, mut there) =
        (third.consumer(&alerts, Node::Topic).await?, other.consumer(&alerts, Node::Topic).await?);
    let fire = [Outgoing::text("fire")];
    let (here, there, ()) =
        tokio::try_join!(here.receive(1, SOON), there.receive(1, SOON), one.send_to(&alerts, Node::Topic, &fire))?;
    arrived(&here, &["fire"])?;
    arrived(&there, &["fire"])?;

    // A subscription keeps what its topic got.
    one.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("extra")]).await?;
    arrived(&other.receive(&tenant.subscription("news", "mine"), 1, SOON).await?, &["extra"])?;

    // What fails too often is in the dead letter.
    tenant.changed_address("orders", json!({"redelivery": {"maxAttempts": 1}})).await?;
    one.send_all(&orders, &[Outgoing::text("bad")]).await?;
    arrived(&other.receive_and_reject(&orders, 1, SOON).await?, &["bad"])?;
    arrived(&other.receive(&tenant.name("dead"), 1, SOON).await?, &["bad"])
}

#[tokio::test]
async fn two_spaces_with_one_address_never_see_each_others_messages() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let (one, other) = (world.tenant("routed-one").await?, world.tenant("routed-other").await?);
    for tenant in [&one, &other] {
        routed_plane(tenant, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
        tenant.ready_address("orders", json!({"type": "queue"})).await?;
    }
    let mut client = routed.router.client().await?;
    client.send_text(&one.name("orders"), "for one").await?;
    nothing(&client.receive(&other.name("orders"), 1, MOMENT).await?)?;
    arrived(&client.receive(&one.name("orders"), 1, SOON).await?, &["for one"])
}

#[tokio::test]
async fn a_topic_stands_beside_a_queue_whose_name_begins_with_its_own() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let tenant = world.tenant("routed-names").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    tenant.ready_address("mine", json!({"type": "subscription", "topic": "news"})).await?;
    tenant.ready_address("sport", json!({"type": "queue", "address": "news.sport"})).await?;
    tenant.address("twin", json!({"type": "queue", "address": "news/sport"})).await?;
    tenant.reason(Kind::Address, "twin", "DuplicateAddress").await?;
    let (mut client, mut reader) = (routed.router.client().await?, routed.router.client().await?);
    let (news, sport, mine) = (tenant.name("news"), tenant.name("news.sport"), tenant.subscription("news", "mine"));
    let mut listener = reader.consumer(&news, Node::Topic).await?;
    client.send_text(&sport, "goal").await?;
    client.send_to(&news, Node::Topic, &[Outgoing::text("weather")]).await?;
    // Each message came where it was sent to, and nowhere else.
    arrived(&listener.receive(1, SOON).await?, &["weather"])?;
    nothing(&listener.receive(1, MOMENT).await?)?;
    arrived(&client.receive(&mine, 1, SOON).await?, &["weather"])?;
    nothing(&client.receive(&mine, 1, MOMENT).await?)?;
    arrived(&client.receive(&sport, 1, SOON).await?, &["goal"])?;
    nothing(&client.receive(&sport, 1, MOMENT).await?)
}

#[tokio::test]
async fn a_queue_that_drains_lets_nothing_in_and_everything_out() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let tenant = world.tenant("routed-drain").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
    tenant.ready_address("orders", json!({"type": "queue", "deletionPolicy": "WhenEmpty"})).await?;
    let orders = tenant.name("orders");
    let mut client = routed.router.client().await?;
    client.send_all(&orders, &[Outgoing::text("one"), Outgoing::text("two")]).await?;
    tenant.delete(Kind::Address, "orders").await?;
    tenant.reason(Kind::Address, "orders", "Terminating").await?;
    eventually(SOON, "the way in is closed", || async {
        let all = held(&routed.router, &tenant).await?;
        ensure!(!all.iter().any(|entity| entity.starts_with(&format!("autoLink {orders} out "))), "{all:?}");
        Ok(())
    })
    .await?;
    let mut sender = routed.router.client().await?;
    let sent = tokio::time::timeout(MOMENT, sender.send_text(&orders, "late")).await;
    ensure!(!matches!(sent, Ok(Ok(()))), "a message came in");
    arrived(&client.receive(&orders, 2, SOON).await?, &["one", "two"])?;
    tenant.gone(Kind::Address, "orders").await
}
