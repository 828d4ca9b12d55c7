//! A broker that comes back with nothing, and routers that are there before the operator.

use anyhow::{Result, ensure};
use serde_json::json;
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::process::eventually;

use crate::observer::Observer;
use crate::plane::{Routed, routed_plane};
use crate::support::{CONFIG, Kind, MOMENT, SOON, World, arrived};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_makes_by_itself_for_routers_becomes_what_is_wanted() -> Result<()> {
    const NAME: &str = "returns";
    let world = World::shared().await?;
    let mut broker = Artemis::start(ArtemisOptions::default()).await?;
    let router = Routed::start().await?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let mut operator = world.operator(NAME, &[]).await?;
    routed_plane(&tenant, &[("broker", &broker)], &[("r1", &router)]).await?;
    let dead = json!({"type": "deadLetter"});
    tenant.ready_address("dead", dead).await?;
    tenant.ready_address("orders", json!({"type": "queue", "redelivery": {"maxAttempts": 4}})).await?;
    tenant.ready_address("plain", json!({"type": "queue", "deadLetterAddress": "dead"})).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    tenant.ready_address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    let mut observer = Observer::of(&broker).await?;
    let ours = tenant.name("");
    let (queues, addresses) = (observer.queues(&ours).await?, observer.addresses(&ours).await?);
    let settings = observer.settings(&tenant.name("orders")).await?;

    operator.terminate().await?;
    broker.kill();
    broker.start_empty().await?;
    // Nobody has told it yet that nothing is made by itself here.
    let (orders, archive) = (tenant.name("orders"), tenant.subscription("news", "archive"));
    eventually(SOON, "what the broker makes for the router's links", || async {
        let made = Observer::of(&broker).await?.addresses("").await?;
        ensure!(made.contains(&orders) && made.contains(&tenant.name("dead")), "{made:?}");
        Ok(())
    })
    .await?;
    let mut client = router.router.client().await?;
    let _ = client.receive(&archive, 1, MOMENT).await;

    let _operator = world.operator(NAME, &[]).await?;
    tenant.broker_state(CONFIG, "broker", "Serving").await?;
    tenant.ready(Kind::Address, &["orders", "plain", "news", "archive", "dead"]).await?;
    eventually(SOON, "the same as before", || async {
        let mut observer = Observer::of(&broker).await?;
        let (now, also) = (observer.queues(&tenant.name("")).await?, observer.addresses(&tenant.name("")).await?);
        ensure!(now == queues && also == addresses, "{now:?} {also:?} and not {queues:?} {addresses:?}");
        ensure!(observer.settings(&orders).await? == settings, "settings differ");
        Ok(())
    })
    .await?;
    eventually(SOON, "a message through the new queue", || async { client_of(&router, &orders).await }).await
}

/// Sends a message through a router and receives it there.
async fn client_of(router: &Routed, address: &str) -> Result<()> {
    let mut client = router.router.client().await?;
    client.send_text(address, "hello").await?;
    arrived(&client.receive(address, 1, SOON).await?, &["hello"])
}
