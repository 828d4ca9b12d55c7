//! The router drive against a router on loopback: a stand-in, or a real one when `WAYSTATION_QDROUTERD` names it.

mod bench;
mod remotes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench::{Bench, HELD, connector, hold, queue};
use waystation::drive::amqp::{ConnectError, Login, Secret};
use waystation::drive::router::link::{Answer, CallError, Operation, Request, RouterLink, Type};
use waystation::drive::router::names::Names;
use waystation::drive::router::ops;
use waystation::messaging::router::{
    Abilities, Direction, Distribution, Done, Entity, Entry, RouterLink as Report, Wish, connector_slot, readiness_slot,
};
use waystation_kit::artemis::{self, Artemis};
use waystation_kit::process::eventually;
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::router_core::Flavour;

use crate::bench::{OWNER, broker_options, forbid_creation, link_to, make_queue};

fn anycast() -> Entry {
    Entry::Address { distribution: Distribution::Balanced, waypoint: false, links: Box::new([]) }
}

fn multicast() -> Entry {
    Entry::Address { distribution: Distribution::Multicast, waypoint: false, links: Box::new([]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_says_what_a_router_can_do() -> Result<()> {
    let router = Router::start(RouterOptions::default()).await?;
    let session = link_to(&router, Login::Anonymous).connect().await?;
    let all = Abilities { waypoints: true, link_routes: true, multi_tenant: true, policies: false };
    ensure!(session.abilities() == all, "{:?}", session.abilities());
    let skupper = Router::start(RouterOptions { flavour: Flavour::Skrouterd, ..Default::default() }).await?;
    let session = link_to(&skupper, Login::Anonymous).connect().await?;
    ensure!(session.abilities() == Abilities::default(), "{:?}", session.abilities());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_entry_is_made_read_back_and_taken_away() -> Result<()> {
    let router = Router::start(RouterOptions::default()).await?;
    let broker = Artemis::start(broker_options()).await?;
    forbid_creation(broker.port()).await?;
    make_queue(broker.port(), "ns.s/queue.x/y").await?;
    let mut bench = Bench::start(&router);
    ensure!(bench.contents().await?.slots.is_empty());
    let port = free_port().await?;
    let route = |both| Entry::LinkRoute { broker: "b.c".into(), both };
    let entries = [
        (connector_slot("b.c"), connector("b.c", broker.port())),
        ("ns.s/any".into(), anycast()),
        ("ns.s/every".into(), multicast()),
        ("ns.s/queue.x/y".into(), queue("b.c", None)),
        ("ns.s/other".into(), queue("b.c", Some("ns.s/other::q"))),
        ("ns.s/topic".into(), route(true)),
        ("ns.s/topic::sub \"ü\"".into(), route(false)),
        (format!("ns.s/{}", "ä".repeat(290)).into(), anycast()),
        (readiness_slot(), Entry::Readiness { host: "127.0.0.1".into(), port }),
    ];
    for (slot, entry) in &entries {
        let result = bench.does(slot, hold(entry.clone())).await.with_context(|| slot.to_string())?;
        // Nobody answers for the queue of another name.
        let trouble = matches!(&result, Ok(Done::Held { trouble: Some(words) }) if words.contains("is "));
        ensure!(result == HELD || trouble && &**slot == "ns.s/other", "{slot}: {result:?}");
    }
    eventually(Duration::from_secs(20), "the readiness listener", || async {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(drop).context("nobody listens")
    })
    .await?;
    let contents = bench.reread().await?;
    for (slot, entry) in &entries {
        ensure!(contents.slots.get(slot) == Some(&entry.fingerprint()), "{slot}: {:?}", contents.slots.get(slot));
    }
    ensure!(contents.slots.len() == entries.len(), "{contents:?}");

    let mut again = Bench::start(&router);
    ensure!(again.serving().await?, "our readiness listener is there");
    ensure!(*again.contents().await? == *contents, "another process sees the same");
    for (slot, _) in entries.iter().rev() {
        let result = again.does(slot, Wish::Gone).await.with_context(|| slot.to_string())?;
        ensure!(result == Ok(Done::Gone), "{slot}: {result:?}");
    }
    ensure!(again.reread().await?.slots.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_and_refusals_are_told_apart() -> Result<()> {
    let router = Router::start(RouterOptions::default()).await?;
    let session = link_to(&router, Login::Anonymous).connect().await?;
    let names = Names::new(OWNER);
    let address = Entity::Address { distribution: Distribution::Balanced, waypoint: true };
    let route = Entity::LinkRoute { direction: Direction::In, broker: "b".into() };
    let listener = Entity::Readiness { host: "127.0.0.1".into(), port: free_port().await? };
    for entity in [address.clone(), route, listener] {
        session.call(ops::create(&names, "s/x", &entity, &None)).await?;
        let refused = session.call(ops::create(&names, "s/x", &entity, &None)).await;
        ensure!(refused.as_ref().is_err_and(|error| ops::is_name_conflict(&error.to_string())), "{refused:?}");
    }
    let other = session.call(ops::create(&Names::new("another"), "s.x", &address, &None)).await;
    ensure!(other.as_ref().is_err_and(|error| !ops::is_name_conflict(&error.to_string())), "{other:?}");
    for of in [Type::Address, Type::AutoLink, Type::LinkRoute, Type::Listener, Type::Connector] {
        for request in [ops::read(of, "missing".to_owned()), ops::delete(of, "missing".to_owned())] {
            let missing = session.call(request.clone()).await;
            ensure!(missing == Err(CallError::NotFound), "{request:?}: {missing:?}");
        }
        let operation = Operation::Query { offset: 1_000, count: 10, attributes: &["name"] };
        let Answer::Rows(rows) = session.call(Request { of, operation }).await? else { bail!("no rows of {of:?}") };
        let none = if of == Type::Listener { rows.len() == 2 } else { rows.is_empty() };
        ensure!(none, "{of:?}: {rows:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_router_is_seen_empty_and_filled() -> Result<()> {
    let mut router = Router::start(RouterOptions::default()).await?;
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    let slots: Vec<String> = (0..1_300).map(|at| format!("ns.s/a{at}")).collect();
    for slot in &slots {
        bench.put(slot, hold(anycast()));
    }
    for _ in &slots {
        let outcome = bench.outcome().await?;
        ensure!(outcome.result == HELD, "{outcome:?}");
    }
    ensure!(bench.reread().await?.slots.len() == slots.len());
    router.restart_empty().await?;
    bench.down().await?;
    ensure!(bench.contents().await?.slots.is_empty());
    for slot in &slots {
        bench.put(slot, hold(anycast()));
    }
    for _ in &slots {
        ensure!(bench.outcome().await?.result == HELD);
    }
    ensure!(bench.reread().await?.slots.len() == slots.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connector_and_its_links_follow_their_broker() -> Result<()> {
    let router = Router::start(RouterOptions::default()).await?;
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    let mut broker = Artemis::prepare(broker_options())?;
    ensure!(bench.does(&connector_slot("b"), hold(connector("b", broker.port()))).await? == HELD);
    ensure!(bench.does("ns.s/q", hold(queue("b", None))).await? == HELD, "its connector's matter");
    let down = |words: Option<Arc<str>>| words.is_some();
    ensure!(bench.connector_until("b", down).await?, "nobody listens there");
    broker.start_again().await?;
    make_queue(broker.port(), "ns.s/p").await?;
    ensure!(bench.connector_until("b", |words| words.is_none()).await?);
    let held = bench.does("ns.s/p", hold(queue("b", None))).await?;
    ensure!(held == HELD, "active now: {held:?}");
    broker.stop().await?;
    ensure!(bench.connector_until("b", down).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_without_showing_it() -> Result<()> {
    let login = artemis::Login::password("admin", "right");
    let router = Router::start(RouterOptions { login, ..Default::default() }).await?;
    let plain = |password: &str| Login::Plain { username: "admin".to_owned(), password: Secret::new(password) };
    link_to(&router, plain("right")).connect().await?;
    let error = link_to(&router, plain("do-not-print-me")).connect().await.err().context("connected")?;
    ensure!(error.category == "login" && !error.to_string().contains("do-not-print-me"), "{error}");
    let refused = ConnectError::LoginRefused { mechanism: "PLAIN" }.to_string();
    ensure!(error.to_string() == refused, "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_hangs_is_given_up_and_found_again() -> Result<()> {
    let mut router = Router::start(RouterOptions::default()).await?;
    let mut bench = Bench::start(&router);
    bench.contents().await?;
    router.hang()?;
    bench.put("ns.s/a", hold(anycast()));
    bench.down().await?;
    router.go_on()?;
    loop {
        if let Report::Outcome(outcome) = bench.report(Duration::from_secs(60)).await? {
            ensure!(outcome.result == HELD, "{outcome:?}");
            return Ok(());
        }
    }
}

async fn free_port() -> Result<u16> {
    Ok(tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?.port())
}
