//! What becomes of each type of address, told by messages.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::Instant;
use waystation_kit::amqp_client::{Node, Outgoing};

use crate::support::{Kind, MOMENT, SOON, World, arrived, nothing};

#[tokio::test]
async fn a_queue_keeps_each_message_for_one_consumer() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("queue").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let orders = tenant.name("orders");

    let (mut one, mut other) = (tenant.client().await?, tenant.client().await?);
    one.send_all(&orders, &[Outgoing::text("first"), Outgoing::text("second")]).await?;
    arrived(&one.receive(&orders, 1, SOON).await?, &["first"])?;
    arrived(&other.receive(&orders, 1, SOON).await?, &["second"])?;
    nothing(&one.receive(&orders, 1, MOMENT).await?)
}

#[tokio::test]
async fn anycast_gives_each_message_to_one_of_the_consumers() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("anycast").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    let prices = tenant.name("prices");

    let mut client = tenant.client().await?;
    let mut one = client.consumer(&prices, Node::Queue).await?;
    let mut other = client.consumer(&prices, Node::Queue).await?;
    let sent: Vec<String> = (0..4).map(|number| format!("request {number}")).collect();
    let messages: Vec<Outgoing> = sent.iter().map(|text| Outgoing::text(text)).collect();
    client.send_to(&prices, Node::Queue, &messages).await?;
    // Both take as long as there is anything: none is lost, none comes twice.
    let mut received = Vec::new();
    let deadline = Instant::now() + SOON;
    loop {
        let complete = received.len() >= sent.len();
        let (got, more) = tokio::try_join!(one.receive(1, MOMENT), other.receive(1, MOMENT))?;
        received.extend(got.into_iter().chain(more).map(|message| message.body));
        if complete || Instant::now() > deadline {
            break;
        }
    }
    received.sort();
    ensure!(received == sent, "sent {sent:?}, received {received:?}");
    Ok(())
}

#[tokio::test]
async fn multicast_gives_every_message_to_every_consumer_and_keeps_none() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("multicast").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("alerts", json!({"type": "multicast"})).await?;
    let alerts = tenant.name("alerts");

    let mut client = tenant.client().await?;
    client.send_to(&alerts, Node::Topic, &[Outgoing::text("nobody hears it")]).await?;
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(client.consumer(&alerts, Node::Topic).await?);
    }
    client.send_to(&alerts, Node::Topic, &[Outgoing::text("fire"), Outgoing::text("all clear")]).await?;
    for consumer in &mut consumers {
        arrived(&consumer.receive(2, SOON).await?, &["fire", "all clear"])?;
        nothing(&consumer.receive(1, MOMENT).await?)?;
    }
    Ok(())
}

#[tokio::test]
async fn each_subscription_holds_every_message_of_its_topic() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("topic").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    // All at once, the subscriptions first: they follow their topic by themselves.
    for subscription in ["archive", "mail"] {
        tenant.address(subscription, json!({"type": "subscription", "topic": "news"})).await?;
    }
    tenant.address("news", json!({"type": "topic"})).await?;
    tenant.ready(Kind::Address, &["news", "archive", "mail"]).await?;

    let mut client = tenant.client().await?;
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("one"), Outgoing::text("two")]).await?;
    for subscription in ["archive", "mail"] {
        let queue = tenant.subscription("news", subscription);
        arrived(&client.receive(&queue, 2, SOON).await?, &["one", "two"])?;
        nothing(&client.receive(&queue, 1, MOMENT).await?)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_dead_letter_gets_what_is_rejected_and_what_expires() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("dead-letter").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("rejected", json!({"type": "deadLetter"})).await?;
    tenant.ready_address("expired", json!({"type": "deadLetter"})).await?;
    let spec = json!({"type": "queue", "deadLetterAddress": "rejected", "expiryAddress": "expired"});
    tenant.ready_address("orders", spec).await?;
    let orders = tenant.name("orders");

    let mut client = tenant.client().await?;
    client.send_text(&orders, "nobody wants it").await?;
    arrived(&client.receive_and_reject(&orders, 1, SOON).await?, &["nobody wants it"])?;
    arrived(&client.receive(&tenant.name("rejected"), 1, SOON).await?, &["nobody wants it"])?;

    let soon = Outgoing { ttl: Some(Duration::from_millis(100)), ..Outgoing::text("too late") };
    client.send(&orders, &soon).await?;
    arrived(&client.receive(&tenant.name("expired"), 1, SOON).await?, &["too late"])?;
    nothing(&client.receive(&tenant.name("rejected"), 1, MOMENT).await?)?;
    nothing(&client.receive(&orders, 1, MOMENT).await?)
}

#[tokio::test]
async fn spaces_of_two_namespaces_with_one_address_never_see_each_others_messages() -> Result<()> {
    let world = World::shared().await?;
    let (one, other) = tokio::try_join!(world.tenant("twin-a"), world.tenant("twin-b"))?;
    for tenant in [&one, &other] {
        tenant.data_plane(&[("broker", &world.broker)]).await?;
        tenant.address("orders", json!({"type": "queue"})).await?;
        tenant.address("news", json!({"type": "topic"})).await?;
        tenant.address("archive", json!({"type": "subscription", "topic": "news"})).await?;
        tenant.ready(Kind::Address, &["orders", "news", "archive"]).await?;
    }
    ensure!(one.name("orders") != other.name("orders"));

    let mut client = one.client().await?;
    client.send_text(&one.name("orders"), "for a").await?;
    client.send_to(&one.name("news"), Node::Topic, &[Outgoing::text("news of a")]).await?;
    nothing(&client.receive(&other.name("orders"), 1, MOMENT).await?)?;
    nothing(&client.receive(&other.subscription("news", "archive"), 1, MOMENT).await?)?;
    arrived(&client.receive(&one.name("orders"), 1, SOON).await?, &["for a"])?;
    arrived(&client.receive(&one.subscription("news", "archive"), 1, SOON).await?, &["news of a"])
}
