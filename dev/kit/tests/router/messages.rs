//! Messages.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_amqp::Value;
use waystation_kit::amqp_client::{Client, Consumer, Node, Outgoing};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::process::{Port, eventually};
use waystation_kit::router::management::Management;
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::router_core::Request;

use crate::support::*;

async fn router() -> Result<(Router, Management)> {
    let router = Router::start(RouterOptions::default()).await?;
    let management = Management::connect(&router).await?;
    Ok((router, management))
}

/// A broker and a client of it.
async fn broker() -> Result<(Artemis, Client)> {
    let broker = Artemis::start(ArtemisOptions::default()).await?;
    let client = broker.client().await?;
    Ok((broker, client))
}

async fn all(consumer: &mut Consumer, count: usize) -> Result<Vec<String>> {
    Ok(consumer.receive(count, SOON).await?.into_iter().map(|message| message.body).collect())
}

#[tokio::test]
async fn anycast_is_shared_out_and_multicast_is_for_all() -> Result<()> {
    let (router, mut management) = router().await?;
    management.make(&create(ADDRESS, "any", &[("pattern", "any.one"), ("distribution", "balanced")])).await?;
    management.make(&create(ADDRESS, "multi", &[("pattern", "all"), ("distribution", "multicast")])).await?;
    let (mut sender, mut client) = (router.client().await?, router.client().await?);
    let texts: Vec<_> = (0..20).map(|number| Outgoing::text(&number.to_string())).collect();

    let mut one = client.consumer("any.one", Node::Any).await?;
    let mut other = client.consumer("any.one", Node::Any).await?;
    let (sent, (got_one, got_other)) = tokio::join!(sender.send_all("any.one", &texts), async {
        tokio::join!(all(&mut one, 10), all(&mut other, 10))
    });
    sent?;
    let (got_one, got_other) = (got_one?, got_other?);
    ensure!(got_one.len() == 10 && got_other.len() == 10, "{got_one:?} {got_other:?}");
    let mut both: Vec<_> = got_one.iter().chain(&got_other).collect();
    both.sort();
    both.dedup();
    ensure!(both.len() == 20, "each once: {both:?}");

    let mut one = client.consumer("all", Node::Any).await?;
    let mut other = client.consumer("all", Node::Any).await?;
    let (sent, (got_one, got_other)) =
        tokio::join!(sender.send_all("all", &texts), async { tokio::join!(all(&mut one, 20), all(&mut other, 20)) });
    sent?;
    ensure!(got_one?.len() == 20 && got_other?.len() == 20);
    Ok(())
}

#[tokio::test]
async fn nobody_there_gives_no_credit_and_a_message_without_a_receiver_comes_back() -> Result<()> {
    let (router, mut management) = router().await?;
    management.make(&create(ADDRESS, "any", &[("pattern", "any")])).await?;
    let mut sender = router.client().await?;
    let held = tokio::time::timeout(MOMENT, sender.send_text("any", "x")).await;
    ensure!(held.is_err(), "it was taken: {held:?}");

    // A receiver that gives no credit has it until it goes.
    let mut client = router.client().await?;
    let consumer = client.consumer("any", Node::Any).await?;
    let mut sender = router.client().await?;
    let (outcome, closed) = tokio::join!(sender.send_text("any", "y"), async {
        tokio::time::sleep(MOMENT).await;
        consumer.close().await
    });
    closed?;
    let words = outcome.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(words.contains("Released"), "{words}");
    Ok(())
}

#[tokio::test]
async fn a_queue_stores_on_the_broker_what_nobody_receives() -> Result<()> {
    let (router, mut management) = router().await?;
    let (broker, mut at_broker) = broker().await?;
    at_broker.send_to("t.s/work", Node::Queue, &[Outgoing::text("first")]).await?;
    management.make(&connector("broker", &broker)).await?;
    make_queue(&mut management, "t.s/work", "broker").await?;
    for link in ["t.s/work-in", "t.s/work-out"] {
        until(&router, AUTO_LINK, link, "operStatus", "active").await?;
    }
    until(&router, CONNECTOR, "broker", "connectionStatus", "SUCCESS").await?;
    let mut client = router.client().await?;
    client.send_to("t.s/work", Node::Any, &["second", "third"].map(Outgoing::text)).await?;
    let got = client.receive("t.s/work", 3, SOON).await?;
    let mut bodies: Vec<_> = got.iter().map(|message| message.body.as_str()).collect();
    bodies.sort_unstable();
    ensure!(bodies == ["first", "second", "third"] && got.iter().all(|message| message.durable), "{got:?}");

    // What is not accepted stays on the broker.
    client.send_text("t.s/work", "kept").await?;
    ensure!(client.receive_and_release("t.s/work", 1, SOON).await?.len() == 1);
    client.close().await?;
    ensure!(at_broker.receive("t.s/work", 1, SOON).await?.iter().any(|message| message.body == "kept"));
    Ok(())
}

#[tokio::test]
async fn the_host_name_that_a_client_gives_is_its_tenant_without_any_vhost() -> Result<()> {
    let (router, mut management) = router().await?;
    let broker = Artemis::start(ArtemisOptions::default()).await?;
    manage(&broker, "createAddress", &["ns.one/news", "MULTICAST"]).await?;
    broker.client().await?.send_to("ns.one/work", Node::Queue, &[]).await?;
    management.make(&connector("broker", &broker)).await?;
    make_queue(&mut management, "ns.one/work", "broker").await?;
    for direction in ["in", "out"] {
        let attributes = [("pattern", "ns.one/news"), ("direction", direction), ("connection", "broker")];
        management.make(&create(LINK_ROUTE, direction, &attributes)).await?;
    }
    let port = Port::claim()?;
    let number = Value::String(port.number().to_string());
    let attributes = [("host", "127.0.0.1".into()), ("port", number), ("multiTenant", Value::Bool(true))];
    management.make(&Request::create(LISTENER, Some("tenants"), &attributes)).await?;
    until(&router, AUTO_LINK, "ns.one/work-out", "operStatus", "active").await?;

    let mut one = Tenant::connect(port.number(), "ns.one").await?;
    let mut other = Tenant::connect(port.number(), "ns.two").await?;
    let mut news = one.receiver("news").await?;
    one.send("news", "headline").await?;
    ensure!(next(&mut news, SOON).await?.as_deref() == Some("headline"));

    // The other's address of that name is another one, and nobody is there.
    let mut others_work = other.receiver("work").await?;
    one.send("work", "mine").await?;
    ensure!(next(&mut others_work, MOMENT).await?.is_none(), "another tenant's message came");
    let mut work = one.receiver("work").await?;
    ensure!(next(&mut work, SOON).await?.as_deref() == Some("mine"));
    // Without a broker in between the outcome is the receiver's.
    let (sent, received) = tokio::join!(other.send("work", "yours"), next(&mut others_work, SOON));
    sent?;
    ensure!(received?.as_deref() == Some("yours"));
    // Who comes by another listener says the whole name.
    router.client().await?.send_text("ns.one/work", "from outside").await?;
    ensure!(next(&mut work, SOON).await?.as_deref() == Some("from outside"));
    Ok(())
}

#[tokio::test]
async fn large_messages_pass_whole() -> Result<()> {
    let (router, mut management) = router().await?;
    let (broker, mut at_broker) = broker().await?;
    at_broker.send_to("big", Node::Queue, &[]).await?;
    management.make(&connector("broker", &broker)).await?;
    make_queue(&mut management, "big", "broker").await?;
    until(&router, AUTO_LINK, "big-out", "operStatus", "active").await?;
    let body = "0123456789".repeat(60_000);
    let mut client = router.client().await?;
    client.send_text("big", &body).await?;
    let got = client.receive("big", 1, SOON).await?;
    ensure!(got.len() == 1 && got[0].body == body);
    Ok(())
}

#[tokio::test]
async fn an_auto_link_fails_in_the_brokers_words_until_its_queue_exists() -> Result<()> {
    let (router, mut management) = router().await?;
    let broker = Artemis::start(ArtemisOptions::default()).await?;
    let off = r#"{"autoCreateQueues":false,"autoCreateAddresses":false}"#;
    manage(&broker, "addAddressSettings", &["late", off]).await?;
    management.make(&connector("broker", &broker)).await?;
    make_queue(&mut management, "late", "broker").await?;
    until(&router, AUTO_LINK, "late-in", "operStatus", "failed").await?;
    until(&router, AUTO_LINK, "late-out", "operStatus", "failed").await?;
    let words = told(&mut management, AUTO_LINK, "late-in", "lastError").await?;
    ensure!(matches!(&words, Value::String(text) if text.contains("late") || text.contains("AMQ")), "{words:?}");
    let queue = r#"{"name":"late","address":"late","routing-type":"ANYCAST","auto-create-address":true}"#;
    manage(&broker, "createQueue", &[queue]).await?;
    until(&router, AUTO_LINK, "late-in", "operStatus", "active").await?;
    until(&router, AUTO_LINK, "late-out", "operStatus", "active").await?;
    let mut client = router.client().await?;
    client.send_text("late", "at last").await?;
    ensure!(client.receive("late", 1, SOON).await?.len() == 1);
    Ok(())
}

#[tokio::test]
async fn links_are_inactive_while_the_broker_is_down_and_come_back_with_it() -> Result<()> {
    let (router, mut management) = router().await?;
    let (mut broker, mut at_broker) = broker().await?;
    at_broker.send_to("q", Node::Queue, &[]).await?;
    // Links may come before their connector.
    make_queue(&mut management, "q", "broker").await?;
    ensure!(told(&mut management, AUTO_LINK, "q-in", "operStatus").await? == Value::from("inactive"));
    management.make(&connector("broker", &broker)).await?;
    until(&router, AUTO_LINK, "q-out", "operStatus", "active").await?;
    let mut client = router.client().await?;
    client.send_text("q", "kept").await?;
    broker.kill();
    until(&router, AUTO_LINK, "q-out", "operStatus", "inactive").await?;
    until(&router, CONNECTOR, "broker", "connectionStatus", "CONNECTING").await?;
    let held = tokio::time::timeout(MOMENT * 2, router.client().await?.send_text("q", "x")).await;
    ensure!(held.is_err(), "it was taken: {held:?}");
    broker.start_again().await?;
    until(&router, AUTO_LINK, "q-in", "operStatus", "active").await?;
    until(&router, CONNECTOR, "broker", "connectionStatus", "SUCCESS").await?;
    let got = client.receive("q", 1, SOON).await?;
    ensure!(got.len() == 1 && got[0].body == "kept", "{got:?}");

    management.make(&Request::delete(CONNECTOR, "broker")).await?;
    until(&router, AUTO_LINK, "q-in", "operStatus", "inactive").await
}

#[tokio::test]
async fn topics_and_subscriptions_are_link_routes_and_take_no_neighbour() -> Result<()> {
    let (router, mut management) = router().await?;
    let (broker, mut at_broker) = broker().await?;
    manage(&broker, "createAddress", &["news", "MULTICAST"]).await?;
    let queue = r#"{"name":"daily","address":"news","routing-type":"MULTICAST"}"#;
    manage(&broker, "createQueue", &[queue]).await?;
    at_broker.send_to("news.sport", Node::Queue, &[]).await?;
    management.make(&connector("broker", &broker)).await?;
    for (name, pattern, direction) in
        [("t-in", "news", "in"), ("t-out", "news", "out"), ("s-out", "news::daily", "out")]
    {
        let attributes = [("pattern", pattern), ("direction", direction), ("connection", "broker")];
        management.make(&create(LINK_ROUTE, name, &attributes)).await?;
    }
    make_queue(&mut management, "news.sport", "broker").await?;
    until(&router, LINK_ROUTE, "t-out", "operStatus", "active").await?;
    until(&router, AUTO_LINK, "news.sport-out", "operStatus", "active").await?;

    let (mut sender, mut client) = (router.client().await?, router.client().await?);
    let mut one = client.consumer("news", Node::Topic).await?;
    let mut other = client.consumer("news", Node::Topic).await?;
    sender.send_to("news", Node::Topic, &["a", "b"].map(Outgoing::text)).await?;
    ensure!(all(&mut one, 2).await? == ["a", "b"] && all(&mut other, 2).await? == ["a", "b"]);
    // The subscription has them too, and keeps one that is not accepted.
    ensure!(client.receive_and_release("news::daily", 1, SOON).await?.len() == 1);
    let kept = client.receive("news::daily", 2, SOON).await?;
    ensure!(kept.iter().map(|message| message.body.as_str()).collect::<Vec<_>>() == ["a", "b"], "{kept:?}");

    sender.send_text("news.sport", "match").await?;
    ensure!(client.receive("news.sport", 1, SOON).await?.len() == 1);
    ensure!(one.receive(1, MOMENT).await?.is_empty(), "the neighbour's message came to the topic");
    Ok(())
}

#[tokio::test]
async fn a_link_route_refuses_in_the_brokers_words_or_says_that_there_is_no_route() -> Result<()> {
    let (mut router, mut management) = router().await?;
    let attributes = [("pattern", "gone"), ("direction", "out"), ("connection", "broker")];
    management.make(&create(LINK_ROUTE, "r", &attributes)).await?;
    let mut client = router.client().await?;
    let words = refused(&mut client, "gone").await?;
    ensure!(words.contains("no-route-to-dest"), "{words}");

    let mut broker = Artemis::start(ArtemisOptions::default()).await?;
    let off = r#"{"autoCreateQueues":false,"autoCreateAddresses":false}"#;
    manage(&broker, "addAddressSettings", &["gone", off]).await?;
    manage(&broker, "createAddress", &["there", "MULTICAST"]).await?;
    management.make(&connector("broker", &broker)).await?;
    let attributes = [("pattern", "there"), ("direction", "out"), ("connection", "broker")];
    management.make(&create(LINK_ROUTE, "s", &attributes)).await?;
    until(&router, LINK_ROUTE, "r", "operStatus", "active").await?;
    let words = refused(&mut router.client().await?, "gone").await?;
    ensure!(words.contains("gone"), "{words}");
    let mut client = router.client().await?;
    let mut consumer = client.consumer("there", Node::Topic).await?;
    broker.kill();
    let lost = consumer.receive(1, SOON).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(lost.to_lowercase().contains("routed-link-lost") || !lost.is_empty(), "{lost}");
    router.stop().await
}

/// The words with which a link is refused, at once or after its attach.
async fn refused(client: &mut Client, address: &str) -> Result<String> {
    let error = match client.consumer(address, Node::Any).await {
        Err(error) => error,
        Ok(mut consumer) => match consumer.receive(1, SOON).await {
            Err(error) => error,
            Ok(received) => anyhow::anyhow!("not refused: {received:?}"),
        },
    };
    Ok(format!("{error:#}"))
}

#[tokio::test]
async fn a_router_that_is_not_there_any_more_is_noticed() -> Result<()> {
    let (mut router, mut management) = router().await?;
    let mut client = router.client().await?;
    router.stop().await?;
    eventually(Duration::from_secs(10), "the clients notice", || async {
        ensure!(tokio::net::TcpStream::connect(("127.0.0.1", router.port())).await.is_err(), "it listens");
        Ok(())
    })
    .await?;
    ensure!(client.send_text("any", "x").await.is_err());
    ensure!(management.ask(&Request::query(ADDRESS, &[])).await.is_err());
    Ok(())
}
