//! Addresses that claim one name, and names that stand for nothing yet or no more.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use waystation_kit::amqp_client::{Node, Outgoing};

use crate::support::{Kind, MOMENT, SOON, Tenant, World, arrived, condition, nothing};

async fn tenant<'w>(world: &'w World, name: &str) -> Result<Tenant<'w>> {
    let tenant = world.tenant(name).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    Ok(tenant)
}

/// Creates one Address, waits until it has the name, then another that claims it; checks that the second is refused and
/// names the winner.
async fn contest(tenant: &Tenant<'_>, winner: (&str, Value), loser: (&str, Value)) -> Result<()> {
    let kind = winner.1["type"].as_str().unwrap_or_default().to_owned();
    let address = winner.1["address"].as_str().unwrap_or(winner.0).to_owned();
    tenant.ready_address(winner.0, winner.1).await?;
    tenant.address(loser.0, loser.1).await?;
    let told = tenant.reason(Kind::Address, loser.0, "DuplicateAddress").await?;
    let winner = winner.0;
    let expected = format!(
        "Address {winner} ({kind}) has {address} in this space already: choose another spec.address, or delete it"
    );
    ensure!(told == expected, "{told}");
    let object = tenant.get(Kind::Address, loser.0).await?;
    ensure!(condition(&object, "Accepted").is_some_and(|accepted| accepted["status"] == "False"), "{object}");
    tenant.ready(Kind::Address, &[winner]).await
}

#[tokio::test]
async fn a_second_queue_of_one_address_takes_over_with_the_stored_messages() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "same-type").await?;
    // By name alone the other one would win.
    let spec = json!({"type": "queue", "address": "orders"});
    contest(&tenant, ("winner", spec.clone()), ("second", spec)).await?;
    let orders = tenant.name("orders");

    let mut client = tenant.client().await?;
    client.send_text(&orders, "stored").await?;
    tenant.delete(Kind::Address, "winner").await?;
    tenant.gone(Kind::Address, "winner").await?;
    tenant.ready(Kind::Address, &["second"]).await?;
    arrived(&client.receive(&orders, 1, SOON).await?, &["stored"])?;
    client.send_text(&orders, "new").await?;
    arrived(&client.receive(&orders, 1, SOON).await?, &["new"])
}

#[tokio::test]
async fn deleting_the_one_that_lost_changes_nothing_for_the_winner() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "loser-goes").await?;
    let spec = json!({"type": "queue", "address": "orders"});
    contest(&tenant, ("winner", spec.clone()), ("second", spec)).await?;
    let mut client = tenant.client().await?;
    client.send_text(&tenant.name("orders"), "stored").await?;
    tenant.delete(Kind::Address, "second").await?;
    tenant.gone(Kind::Address, "second").await?;
    tenant.ready(Kind::Address, &["winner"]).await?;
    arrived(&client.receive(&tenant.name("orders"), 1, SOON).await?, &["stored"])
}

#[tokio::test]
async fn names_that_differ_by_their_separator_are_one() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "separator").await?;
    let dotted = json!({"type": "queue", "address": "a.b"});
    let slashed = json!({"type": "queue", "address": "a/b"});
    contest(&tenant, ("dotted", dotted), ("slashed", slashed)).await?;

    let mut client = tenant.client().await?;
    client.send_text(&tenant.name("a.b"), "as it is written").await?;
    arrived(&client.receive(&tenant.name("a.b"), 1, SOON).await?, &["as it is written"])?;
    ensure!(client.send_text(&tenant.name("a/b"), "lost").await.is_err(), "the one that lost has a queue");
    tenant.delete(Kind::Address, "dotted").await?;
    tenant.ready(Kind::Address, &["slashed"]).await?;
    client.send_text(&tenant.name("a/b"), "now this one").await?;
    arrived(&client.receive(&tenant.name("a/b"), 1, SOON).await?, &["now this one"])
}

#[tokio::test]
async fn a_subscription_follows_a_queue_of_its_name_as_something_new() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "other-type").await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    let queue = json!({"type": "queue", "address": "archive"});
    let subscription = json!({"type": "subscription", "topic": "news", "address": "archive"});
    contest(&tenant, ("queue", queue), ("subscription", subscription)).await?;

    let mut client = tenant.client().await?;
    client.send_text(&tenant.name("archive"), "goes with the queue").await?;
    tenant.delete(Kind::Address, "queue").await?;
    tenant.ready(Kind::Address, &["subscription"]).await?;
    let archive = tenant.subscription("news", "archive");
    nothing(&client.receive(&archive, 1, MOMENT).await?)?;
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("news")]).await?;
    arrived(&client.receive(&archive, 1, SOON).await?, &["news"])
}

#[tokio::test]
async fn a_queue_follows_a_subscription_of_its_name_as_something_new() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "yet-another-type").await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    let subscription = json!({"type": "subscription", "topic": "news", "address": "archive"});
    let queue = json!({"type": "queue", "address": "archive"});
    contest(&tenant, ("subscription", subscription), ("queue", queue)).await?;

    let mut client = tenant.client().await?;
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("goes with the subscription")]).await?;
    tenant.delete(Kind::Address, "subscription").await?;
    tenant.ready(Kind::Address, &["queue"]).await?;
    nothing(&client.receive(&tenant.name("archive"), 1, MOMENT).await?)?;
    client.send_text(&tenant.name("archive"), "order").await?;
    arrived(&client.receive(&tenant.name("archive"), 1, SOON).await?, &["order"])
}

#[tokio::test]
async fn a_dead_letter_that_is_not_there_is_told_and_nothing_is_taken_away() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "dangling").await?;
    tenant.ready_address("dead", json!({"type": "deadLetter"})).await?;
    tenant.ready_address("orders", json!({"type": "queue", "deadLetterAddress": "dead"})).await?;
    let orders = tenant.name("orders");
    let mut client = tenant.client().await?;
    client.send_text(&orders, "stored").await?;

    // The queue turns to one that is not there: what was in force still is.
    tenant.change(Kind::Address, "orders", json!({"spec": {"deadLetterAddress": "later"}})).await?;
    let told = tenant.reason(Kind::Address, "orders", "DeadLetterNotFound").await?;
    let expected = "spec.deadLetterAddress names later, which is no address of space shop: create an Address of type \
                    deadLetter for it; what was in force before still is";
    ensure!(told == expected, "{told}");
    arrived(&client.receive_and_reject(&orders, 1, SOON).await?, &["stored"])?;
    arrived(&client.receive(&tenant.name("dead"), 1, SOON).await?, &["stored"])?;

    // A new one names it as well: it waits for it and has nothing yet.
    tenant.address("new", json!({"type": "queue", "deadLetterAddress": "later"})).await?;
    tenant.reason(Kind::Address, "new", "DeadLetterNotFound").await?;
    ensure!(client.send_text(&tenant.name("new"), "lost").await.is_err(), "it has a queue that is not accepted");

    // It comes: both follow without a touch.
    tenant.address("later", json!({"type": "deadLetter"})).await?;
    tenant.ready(Kind::Address, &["later", "orders", "new"]).await?;
    for name in ["orders", "new"] {
        client.send_text(&tenant.name(name), name).await?;
        arrived(&client.receive_and_reject(&tenant.name(name), 1, SOON).await?, &[name])?;
        arrived(&client.receive(&tenant.name("later"), 1, SOON).await?, &[name])?;
    }
    nothing(&client.receive(&tenant.name("dead"), 1, MOMENT).await?)
}

#[tokio::test]
async fn a_subscription_becomes_ready_when_its_topic_appears() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "topic-later").await?;
    tenant.address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    let told = tenant.reason(Kind::Address, "archive", "TopicNotFound").await?;
    let expected = "spec.topic names news, which is no address of space shop: create an Address of type topic for it";
    ensure!(told == expected, "{told}");

    tenant.address("news", json!({"type": "topic"})).await?;
    tenant.ready(Kind::Address, &["news", "archive"]).await?;
    let mut client = tenant.client().await?;
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("news")]).await?;
    arrived(&client.receive(&tenant.subscription("news", "archive"), 1, SOON).await?, &["news"])
}
