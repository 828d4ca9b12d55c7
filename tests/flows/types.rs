//! What becomes of each type of address, told by messages.

use anyhow::{Result, ensure};
use serde_json::json;
use waystation_kit::amqp_client::{Node, Outgoing, Received};

use crate::support::{MOMENT, SOON, World};

pub fn bodies(received: &[Received]) -> Vec<&str> {
    received.iter().map(|message| message.body.as_str()).collect()
}

#[tokio::test]
async fn a_queue_keeps_each_message_for_one_consumer() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("queue").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let orders = tenant.name("orders");

    let mut client = tenant.client().await?;
    client.send_all(&orders, &[Outgoing::text("one"), Outgoing::text("two")]).await?;
    let first = client.receive(&orders, 1, SOON).await?;
    let second = client.receive(&orders, 1, SOON).await?;
    ensure!((bodies(&first), bodies(&second)) == (vec!["one"], vec!["two"]), "{first:?} {second:?}");
    let more = client.receive(&orders, 1, MOMENT).await?;
    ensure!(more.is_empty(), "{more:?}");
    let _ = Node::Any;
    Ok(())
}
