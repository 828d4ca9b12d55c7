//! Connections to remote hosts, and links over them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use waystation::messaging::ids::Key;
use waystation::messaging::remote::{connection, forward_slot, tap_slot};
use waystation::messaging::router::{AutoLink, Connector, Direction, Entry, Remote, Wish, connector_slot, fence_slot};
use waystation_kit::amqp_client::{Node, Outgoing};
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;
use waystation_kit::router::{FileEntity, Router, RouterOptions, real_binary};
use waystation_kit::router_core::Request;

use crate::bench::{Bench, HELD, PATIENCE, broker_options, connector, forbid_creation, hold, make_queue, queue};

fn id() -> Arc<str> {
    connection(&Key::new("ns", "s"), "far")
}

fn remote(port: u16, patterns: &[&str]) -> Entry {
    let connector = Connector {
        broker: id(),
        host: "127.0.0.1".into(),
        port,
        ssl_profile: None,
        credentials: None,
        relogin: false,
        remote: Some(Remote { idle_s: 16, max_frame: 16_384 }),
    };
    let patterns = patterns.iter().map(|pattern| Arc::from(*pattern)).collect();
    Entry::Remote { connector, patterns, strip: "ns.s/far/".into() }
}

fn link(direction: Direction, broker: &str, external: &str) -> AutoLink {
    AutoLink { direction, broker: broker.into(), external: Some(external.into()) }
}

async fn router() -> Result<Router> {
    Router::start(RouterOptions { policies: true, ..RouterOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_made_for_a_remote_host_is_read_back_moves_messages_and_goes() -> Result<()> {
    let (router, mut far) = (router().await?, Router::stand_in(0, options("far")).await?);
    let broker = waystation_kit::artemis::Artemis::start(broker_options()).await?;
    forbid_creation(broker.port()).await?;
    make_queue(broker.port(), "ns.s/q").await?;
    make_queue(broker.port(), "ns.s/taken").await?;
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    let out = forward_slot(Direction::Out, &id(), "sink", "ns.s/q");
    let back = forward_slot(Direction::In, &id(), "source", "ns.s/q");
    let tap = tap_slot(&id(), "copies", "ns.s/taken");
    let entries = [
        (fence_slot(), Entry::Fence),
        (connector_slot("b"), connector("b", broker.port())),
        (connector_slot(&id()), remote(far.port(), &["ns.s/far/#"])),
        ("ns.s/q".into(), queue("b", None)),
        (out.clone(), Entry::Forward(link(Direction::Out, &id(), "sink"))),
        (tap, Entry::Tap { from: link(Direction::In, "b", "ns.s/taken"), to: link(Direction::Out, &id(), "copies") }),
    ];
    for (slot, entry) in &entries {
        let result = bench.does(slot, hold(entry.clone())).await.with_context(|| slot.to_string())?;
        ensure!(result == HELD, "{slot}: {result:?}");
    }
    let contents = bench.reread().await?;
    for (slot, entry) in &entries {
        ensure!(contents.slots.get(slot) == Some(&entry.fingerprint()), "{slot}: {:?}", contents.slots.get(slot));
    }
    ensure!(contents.slots.len() == entries.len(), "{contents:?}");

    let (mut near, mut there) = (router.client().await?, far.client().await?);
    let mut consumer = there.consumer("news.eu", Node::Queue).await?;
    let sent = [Outgoing::text("through")];
    let (received, ()) =
        tokio::try_join!(consumer.receive(1, PATIENCE), near.send_to("ns.s/far/news.eu", Node::Queue, &sent))?;
    ensure!(received.len() == 1, "{received:?}");
    near.send_text("ns.s/q", "out").await?;
    ensure!(there.receive("sink", 1, PATIENCE).await?.len() == 1);
    broker.client().await?.send_text("ns.s/taken", "copy").await?;
    ensure!(there.receive("copies", 1, PATIENCE).await?.len() == 1);
    ensure!(bench.does(&out, Wish::Gone).await? == Ok(waystation::messaging::router::Done::Gone));
    ensure!(bench.does(&back, hold(Entry::Forward(link(Direction::In, &id(), "source")))).await? == HELD);
    there.send_text("source", "in").await?;
    ensure!(near.receive("ns.s/q", 1, PATIENCE).await?.len() == 1);

    far.stop().await?;
    ensure!(bench.connector_until(&id(), |words| words.is_some()).await?);
    far.start_again().await?;
    ensure!(bench.connector_until(&id(), |words| words.is_none()).await?);
    for slot in entries.iter().map(|(slot, _)| slot).chain([&back]).rev() {
        let result = bench.does(slot, Wish::Gone).await?;
        ensure!(result == Ok(waystation::messaging::router::Done::Gone), "{slot}: {result:?}");
    }
    ensure!(bench.reread().await?.slots.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_no_connection_is_opened() -> Result<()> {
    let (router, far) = (router().await?, Router::stand_in(0, options("far")).await?);
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    ensure!(bench.does(&connector_slot(&id()), hold(remote(far.port(), &[]))).await? == HELD);
    ensure!(bench.connector_until(&id(), |words| words.is_some()).await?, "it must not be connected");
    ensure!(bench.does(&fence_slot(), hold(Entry::Fence)).await? == HELD);
    ensure!(bench.connector_until(&id(), |words| words.is_none()).await?);
    Ok(())
}

fn options(id: &str) -> RouterOptions {
    RouterOptions { id: id.to_owned(), ..RouterOptions::default() }
}

/// Only a real router attaches links of its own to whoever connects to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_host_cannot_use_the_router_that_connects_to_it() -> Result<()> {
    let Some(binary) = real_binary() else { return Ok(()) };
    let router = router().await?;
    let port = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?.port();
    let entity = |entity_type: &str, name: &str, attributes: &[(&str, &str)]| FileEntity {
        entity_type: entity_type.to_owned(),
        name: name.to_owned(),
        attributes: attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    let port_text = port.to_string();
    let listener =
        [("host", "127.0.0.1"), ("port", &*port_text), ("role", "route-container"), ("saslMechanisms", "ANONYMOUS")];
    let evil =
        |external| [("address", "evil"), ("direction", "out"), ("containerId", "R1"), ("externalAddress", external)];
    let file_entities = vec![
        entity("listener", "containers", &listener),
        entity("autoLink", "manages", &evil("$management")),
        entity("autoLink", "sends", &evil("other.space/orders")),
    ];
    let far = Router::real(&binary, RouterOptions { file_entities, ..options("far") }).await?;
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    ensure!(bench.does(&fence_slot(), hold(Entry::Fence)).await? == HELD);
    ensure!(bench.does(&connector_slot(&id()), hold(remote(port, &[]))).await? == HELD);
    ensure!(bench.connector_until(&id(), |words| words.is_none()).await?);
    eventually(PATIENCE, "two refused links", || async {
        let request =
            Request::query("org.apache.qpid.dispatch.router.config.autoLink", &["name", "operStatus", "lastError"]);
        let answer = Management::connect(&far).await?.ask(&request).await?;
        let shown = format!("{:?}", answer.body);
        ensure!(shown.matches("disallowed by local policy").count() == 2, "{shown}");
        Ok(())
    })
    .await
}
