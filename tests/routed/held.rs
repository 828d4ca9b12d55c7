//! Deletions that wait, while everything that holds them is restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use waystation_kit::amqp_client::{Client, Node, Outgoing};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::operator::Operator;
use waystation_kit::process::eventually;

use crate::observer::Observer;
use crate::plane::{Routed, held, routed_plane, router_state};
use crate::support::{CONFIG, Kind, MOMENT, SOON, Tenant, World, arrived, condition, nothing};

const NAME: &str = "routed-held";
/// What waits, with a word of what for.
const WAITING: [(&str, &str); 3] = [("orders", "last message"), ("news", "archive"), ("dead", "keeper")];

/// What is restarted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Router,
    Broker,
    Operator,
    All,
}

struct Stage<'w> {
    tenant: Tenant<'w>,
    broker: Artemis,
    routed: Routed,
    operator: Operator,
}

impl Stage<'_> {
    async fn restart(&mut self, part: Part) -> Result<()> {
        let world = self.tenant.world;
        match part {
            Part::Router => {
                self.routed.router.restart_empty().await?;
                self.routed.filled().await
            }
            Part::Broker => {
                self.broker.stop().await?;
                self.tenant.broker_state(CONFIG, "broker", "Unreachable").await?;
                self.broker.start_again().await?;
                self.tenant.broker_state(CONFIG, "broker", "Serving").await.map(drop)
            }
            Part::Operator => {
                self.operator.kill();
                self.operator = world.operator(NAME, &[]).await?;
                Ok(())
            }
            Part::All => {
                self.operator.kill();
                self.routed.router.stop().await?;
                self.broker.kill();
                self.broker.start_again().await?;
                self.routed.router.start_again().await?;
                self.operator = world.operator(NAME, &[]).await?;
                self.routed.filled().await
            }
        }
    }

    /// What the router holds of these three.
    async fn form(&self) -> Result<BTreeSet<String>> {
        let mut all = held(&self.routed.router, &self.tenant).await?;
        let names = WAITING.map(|(name, _)| self.tenant.name(name));
        all.retain(|entity| entity.split(' ').any(|word| names.iter().any(|name| name == word)));
        Ok(all)
    }

    /// Each of them still waits for what it waited for.
    async fn waits(&self) -> Result<()> {
        for (name, words) in WAITING {
            self.tenant
                .until(Kind::Address, name, &format!("waits for {words}"), |object| {
                    let ready = condition(object, "Ready").context("there is no condition Ready")?;
                    ensure!(ready["reason"] == "Terminating" && ready["status"] == "False", "it says {ready}");
                    ensure!(ready["message"].as_str().is_some_and(|text| text.contains(words)), "it says {ready}");
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }

    /// The topic still hands on, the dead letter still takes, and nothing can be sent to the queue.
    async fn works(&self, round: Part) -> Result<()> {
        let (tenant, text) = (&self.tenant, format!("{round:?}"));
        let news = [Outgoing::text(&text)];
        let sent = format!("a message of round {round:?} is taken by the topic");
        // The router's connection to a broker that was away is made anew after some seconds.
        eventually(SOON, &sent, || async {
            let mut client = self.routed.router.client().await?;
            client.send_to(&tenant.name("news"), Node::Topic, &news).await
        })
        .await?;
        comes(&self.routed, &tenant.subscription("news", "archive"), &text).await?;
        let keeper = tenant.name("keeper");
        let sent = format!("a message of round {round:?} is taken by the queue with a dead letter");
        eventually(SOON, &sent, || async { self.routed.router.client().await?.send_text(&keeper, &text).await })
            .await?;
        let mut client = self.routed.router.client().await?;
        let rejected = client.receive_and_reject(&keeper, 1, SOON).await?;
        ensure!(!rejected.is_empty(), "the queue with a dead letter gave nothing in round {round:?}");
        comes(&self.routed, &tenant.name("dead"), &text).await?;
        // No way in: there is no link that would give a sender leave to send.
        let kept_out = tokio::time::timeout(MOMENT, client.send_text(&tenant.name("orders"), "late")).await;
        ensure!(!matches!(kept_out, Ok(Ok(()))), "a message came into what drains, in round {round:?}");
        Ok(())
    }
}

/// Takes messages until this one is there: one whose sender was cut off may be there twice.
async fn comes(routed: &Routed, address: &str, text: &str) -> Result<()> {
    eventually(SOON, &format!("{text} comes out of {address}"), || async {
        let mut client: Client = routed.router.client().await?;
        let received = client.receive(address, 1, Duration::from_secs(5)).await?;
        arrived(&received, &[text])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_go_is_refilled_as_it_is_through_every_restart_and_goes_in_the_end() -> Result<()> {
    let world = World::shared().await?;
    let (broker, routed) = tokio::try_join!(Artemis::start(ArtemisOptions::default()), Routed::start())?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let operator = world.operator(NAME, &[]).await?;
    routed_plane(&tenant, &[("broker", &broker)], &[("r1", &routed)]).await?;
    tenant.address("orders", json!({"type": "queue", "deletionPolicy": "WhenEmpty"})).await?;
    tenant.address("news", json!({"type": "topic"})).await?;
    tenant.address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    tenant.address("dead", json!({"type": "deadLetter"})).await?;
    let keeper = json!({"type": "queue", "deadLetterAddress": "dead", "redelivery": {"maxAttempts": 1}});
    tenant.address("keeper", keeper).await?;
    tenant.ready(Kind::Address, &["orders", "news", "archive", "dead", "keeper"]).await?;
    let orders = tenant.name("orders");
    let stored = [Outgoing::text("one"), Outgoing::text("two")];
    routed.router.client().await?.send_all(&orders, &stored).await?;

    let mut stage = Stage { tenant, broker, routed, operator };
    let open = stage.form().await?;
    for (name, _) in WAITING {
        stage.tenant.delete(Kind::Address, name).await?;
    }
    stage.waits().await?;
    // The drain form: of the queue only the way out is left, and the others are as they were.
    let way_in = |entity: &&String| entity.starts_with(&format!("autoLink {orders} out "));
    let drains: BTreeSet<String> = open.iter().filter(|entity| !way_in(entity)).cloned().collect();
    ensure!(drains.len() + 1 == open.len(), "{open:?}");
    eventually(SOON, "the drain form", || async {
        let form = stage.form().await?;
        ensure!(form == drains, "{form:?} and not {drains:?}");
        Ok(())
    })
    .await?;
    stage.works(Part::Operator).await?;

    for part in [Part::Router, Part::Broker, Part::Operator, Part::All] {
        stage.restart(part).await?;
        // Filled, the router has what it shall have from the first moment on.
        let form = stage.form().await?;
        ensure!(form == drains, "after a restart of {part:?}: {form:?} and not {drains:?}");
        // A whole life: a change is carried out, on the broker as well.
        stage.tenant.ready_address(&format!("{part:?}").to_lowercase(), json!({"type": "queue"})).await?;
        stage.waits().await?;
        let form = stage.form().await?;
        ensure!(form == drains, "some time after a restart of {part:?}: {form:?} and not {drains:?}");
        stage.works(part).await?;
    }

    let Stage { tenant, broker, routed, operator: _operator } = stage;
    let mut client = routed.router.client().await?;
    arrived(&client.receive(&orders, 2, SOON).await?, &["one", "two"])?;
    tenant.gone(Kind::Address, "orders").await?;
    nothing(&client.receive(&tenant.name("dead"), 1, MOMENT).await?)?;
    for (last, first) in [("archive", "news"), ("keeper", "dead")] {
        tenant.get(Kind::Address, first).await.with_context(|| format!("{first} did not wait"))?;
        tenant.delete(Kind::Address, last).await?;
        tenant.gone(Kind::Address, last).await?;
        tenant.gone(Kind::Address, first).await?;
    }
    let expected = ["all", "broker", "operator", "router"].map(|name| tenant.name(name));
    let left = Observer::of(&broker).await?.addresses(&tenant.name("")).await?;
    ensure!(left.iter().eq(&expected), "on the broker: {left:?}");
    let left = held(&routed.router, &tenant).await?;
    let only = |entity: &String| expected.iter().any(|name| entity.split(' ').nth(1) == Some(name));
    ensure!(left.iter().all(only) && left.len() == 3 * expected.len(), "on the router: {left:?}");
    router_state(&tenant, "r1", "Serving").await.map(drop)
}
