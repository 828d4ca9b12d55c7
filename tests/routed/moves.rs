//! Queues that move from one broker to another.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use waystation_kit::amqp_client::Client;
use waystation_kit::artemis::{Artemis, ArtemisOptions};

use crate::plane::{Routed, routed_plane};
use crate::support::{CONFIG, Kind, SOON, Tenant, World};

/// Messages that are stored before anything moves, and those that are sent meanwhile.
const BEFORE: usize = 600;
const ALL: usize = 1_000;

/// Sends messages one by one; gives those that were sent again, since a link went away under the first attempt: a
/// router releases it then, or settles it and does not say what became of it.
async fn produce(client: &mut Client, address: &str, numbers: std::ops::Range<usize>) -> Result<BTreeSet<String>> {
    let mut again = BTreeSet::new();
    for body in numbers.map(|number| number.to_string()) {
        while let Err(error) = client.send_text(address, &body).await {
            let words = format!("{error:#}");
            let unsure = ["Released", "Modified", "without an outcome"];
            ensure!(unsure.iter().any(|outcome| words.contains(outcome)), "{words}");
            again.insert(body.clone());
        }
    }
    Ok(again)
}

/// Receives until `count` messages are there.
async fn consume(client: &mut Client, address: &str, count: usize) -> Result<Vec<String>> {
    let mut received = Vec::new();
    while received.len() < count {
        let more = client.receive(address, (count - received.len()).min(50), SOON).await?;
        ensure!(!more.is_empty(), "no message any more after {}", received.len());
        received.extend(more.into_iter().map(|message| message.body));
    }
    Ok(received)
}

/// Waits until the queue is on these brokers.
async fn is_on(tenant: &Tenant<'_>, brokers: Value) -> Result<()> {
    let what = format!("on {brokers}");
    tenant
        .until(Kind::Address, "orders", &what, |object| {
            ensure!(object["status"]["brokers"] == brokers, "it is on {}", object["status"]["brokers"]);
            Ok(())
        })
        .await
}

fn hosts(brokers: [(&str, &Artemis); 2], drained: &str) -> Value {
    let host = |(name, broker): (&str, &Artemis)| json!({"name": name, "host": "127.0.0.1", "port": broker.plain_port(), "drain": name == drained});
    let hosts: Vec<Value> = brokers.into_iter().map(host).collect();
    json!({"spec": {"messaging": {"brokers": {"external": {"hosts": hosts}}}}})
}

#[tokio::test]
async fn a_thousand_messages_survive_a_move_while_others_come_and_go() -> Result<()> {
    let world = World::shared().await?;
    let other = Artemis::start(ArtemisOptions::default()).await?;
    let (one, two) = (Routed::start().await?, Routed::start().await?);
    let tenant = world.tenant("routed-move").await?;
    let brokers = [("first", &world.broker), ("second", &other)];
    routed_plane(&tenant, &brokers, &[("r1", &one), ("r2", &two)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    is_on(&tenant, json!([{"name": "first", "state": "Active"}])).await?;

    let orders = tenant.name("orders");
    let (mut producer, mut consumer) = (one.router.client().await?, two.router.client().await?);
    let mut again = produce(&mut producer, &orders, 0..BEFORE).await?;
    let moves = async {
        tenant.change(Kind::RouterConfig, CONFIG, hosts(brokers, "first")).await?;
        is_on(&tenant, json!([{"name": "first", "state": "Draining"}, {"name": "second", "state": "Active"}])).await
    };
    let (more, mut received, ()) =
        tokio::try_join!(produce(&mut producer, &orders, BEFORE..ALL), consume(&mut consumer, &orders, 100), moves)?;
    again.extend(more);
    // Nobody has received all that the first one has: it is there until somebody does.
    received.extend(consume(&mut consumer, &orders, ALL - received.len()).await?);
    is_on(&tenant, json!([{"name": "second", "state": "Active"}])).await?;

    let missing = |received: &[String]| -> BTreeSet<usize> {
        let found: BTreeSet<usize> = received.iter().filter_map(|body| body.parse().ok()).collect();
        (0..ALL).filter(|number| !found.contains(number)).collect()
    };
    while !missing(&received).is_empty() {
        // A message that was sent again may be there twice, in the place of another.
        ensure!(received.len() < ALL + again.len(), "lost: {:?}", missing(&received));
        received.extend(consume(&mut consumer, &orders, 1).await?);
    }
    let mut seen = BTreeSet::new();
    let twice = received.iter().find(|body| !seen.insert((*body).clone()) && !again.contains(*body));
    ensure!(twice.is_none(), "{twice:?} came twice");

    // It works on, by the second one alone.
    producer.send_text(&orders, "after").await?;
    let last = consume(&mut consumer, &orders, 1).await?;
    ensure!(last == ["after"], "{last:?}");
    let gone = other_than(world.broker.client().await?, &orders).await;
    gone.context("the first broker still has the queue")
}

/// Whether a broker refuses to give messages of an address that it does not have.
async fn other_than(mut broker: Client, address: &str) -> Result<()> {
    let refused = broker.receive(address, 1, std::time::Duration::from_millis(1)).await;
    ensure!(refused.is_err(), "it gives messages of {address}");
    Ok(())
}
