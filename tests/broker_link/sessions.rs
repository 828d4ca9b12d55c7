//! What the drive relies on, against both peers.

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use serde_json::Value;
use waystation::drive::broker::link::{BrokerSession, CallError, SessionEvent};
use waystation::drive::broker::ops::{self, Refusal};
use waystation::messaging::broker::{FullPolicy, Routing, Settings, ground};

use crate::peer::{OWNER, Peer, attempts, create, event, node_id, queue, refusal};

#[tokio::test]
async fn the_drive_can_rely_on_the_real_broker() -> Result<()> {
    relies_on(Peer::real().await?).await
}

#[tokio::test]
async fn the_drive_can_rely_on_the_stand_in() -> Result<()> {
    relies_on(Peer::stand_in().await?).await
}

async fn relies_on(mut peer: Peer) -> Result<()> {
    let session = peer.session().await?;
    queues_are_listed_with_what_they_were_made_of(&*session).await.context("queues")?;
    refusals_are_told_apart(&*session).await.context("refusals")?;
    settings_are_checked_by_their_echo(&*session).await.context("settings")?;
    own_settings_are_seen_against_those_of_the_space(&*session).await.context("space settings")?;
    calls_are_carried_out_in_their_order(&*session).await.context("order")?;
    removals_are_told(&*peer.session().await?, &*session).await.context("removals")?;
    an_abandoned_answer_disturbs_nobody(&*session).await.context("abandoned")?;
    a_cut_session_says_so_everywhere(&mut peer, &*session).await.context("cut")
}

async fn queues_are_listed_with_what_they_were_made_of(session: &dyn BrokerSession) -> Result<()> {
    let name = "n.s/listed, 'odd' \"name\" \\ & ü";
    let mut wanted = queue(name);
    wanted.max_consumers = 3;
    session.call(ops::create_queue(&wanted, "n.s/topic", Routing::Multicast, OWNER, true)).await?;
    let mut foreign = queue("n.s/foreign");
    foreign.durable = false;
    session.call(ops::create_queue(&foreign, "n.s/foreign", Routing::Anycast, "another", true)).await?;

    let page = ops::parse_queues(&session.call(ops::list_queues(OWNER, 1, 1_000)).await?)?;
    ensure!(page.total == 1 && page.queues.len() == 1, "{page:?}");
    let listed = &page.queues[0];
    ensure!(&*listed.queue.name == name && &*listed.queue.address == "n.s/topic", "{listed:?}");
    ensure!(listed.queue.routing == Routing::Multicast && listed.queue.durable, "{listed:?}");
    ensure!(listed.queue.max_consumers == 3 && listed.queue.messages == 0 && listed.is_of(OWNER), "{listed:?}");

    let found = ops::parse_queues(&session.call(ops::find_queue("n.s/foreign")).await?)?;
    ensure!(found.queues.len() == 1 && !found.queues[0].is_of(OWNER) && !found.queues[0].queue.durable, "{found:?}");
    ensure!(ops::parse_names(&session.call(ops::queue_names()).await?)?.contains(&name.to_owned()));
    ensure!(ops::parse_names(&session.call(ops::address_names()).await?)?.contains(&"n.s/topic".to_owned()));
    let routing = ops::parse_routing(&session.call(ops::address_info("n.s/topic")).await?)?;
    ensure!(routing == [Routing::Multicast], "{routing:?}");
    ensure!(ops::parse_count(&session.call(ops::message_count(name)).await?)? == 0);

    session.call(ops::update_queue(name, -1)).await?;
    let found = ops::parse_queues(&session.call(ops::find_queue(name)).await?)?;
    ensure!(found.queues[0].queue.max_consumers == -1 && found.queues[0].is_of(OWNER), "{found:?}");
    session.call(ops::destroy_queue(name, true)).await?;
    session.call(ops::delete_address("n.s/topic", false)).await?;
    Ok(())
}

async fn refusals_are_told_apart(session: &dyn BrokerSession) -> Result<()> {
    session.call(create("n.s/taken")).await?;
    let cases = [
        (create("n.s/taken"), Refusal::AlreadyExists),
        (ops::create_address("n.s/taken", Routing::Multicast), Refusal::AlreadyExists),
        (ops::delete_address("n.s/taken", false), Refusal::InUse),
        (ops::destroy_queue("n.s/missing", true), Refusal::NotFound),
        (ops::update_queue("n.s/missing", 1), Refusal::NotFound),
        (ops::delete_address("n.s/missing", true), Refusal::NotFound),
        (ops::address_info("n.s/missing"), Refusal::NotFound),
        (ops::message_count("n.s/missing"), Refusal::NotFound),
        (ops::put_settings("n.s/open(", &Settings::default()), Refusal::Other),
    ];
    for (call, expected) in cases {
        let words = refusal(session, call.clone()).await?;
        ensure!(ops::classify(&words) == expected, "{call:?}: {words}");
    }
    let on_topic = ops::create_queue(&queue("n.s/no-topic"), "n.s/no-topic-address", Routing::Multicast, OWNER, false);
    ensure!(ops::classify(&refusal(session, on_topic).await?) == Refusal::NotFound);
    Ok(())
}

async fn settings_are_checked_by_their_echo(session: &dyn BrokerSession) -> Result<()> {
    let all = Settings {
        max_size_bytes: Some(1_000),
        full_policy: Some(FullPolicy::Fail),
        max_delivery_attempts: Some(4),
        redelivery_delay_ms: Some(100),
        redelivery_multiplier: Some(2.0),
        max_redelivery_delay_ms: Some(1_000),
        dead_letter_address: Some("n.s/dead".into()),
        expiry_address: Some("n.s/late".into()),
        min_expiry_delay_ms: Some(10),
        max_expiry_delay_ms: Some(60_000),
    };
    let echo = session.call(ops::put_settings("n.s/a", &all)).await?;
    ensure!(ops::check_echo(&all, &echo) == Ok(()), "{echo}");
    ensure!(ops::check_echo(&attempts(5), &echo) == Err(vec!["maxDeliveryAttempts".to_owned()]));
    // With every key set, nothing is left to a base.
    let in_force = ops::parse_settings(&session.call(ops::read_settings("n.s/a")).await?);
    let nothing = serde_json::Map::new();
    ensure!(ops::differing(&all, &in_force, &nothing).is_empty(), "{in_force:?}");
    // No more than its own limit: the broker takes it, whatever its page size is.
    let unlimited = Settings { max_size_bytes: Some(50 * 1024 * 1024), ..Settings::default() };
    let echo = session.call(ops::put_settings("n.s/a", &unlimited)).await?;
    ensure!(ops::check_echo(&unlimited, &echo) == Ok(()), "{echo}");
    let below = Settings { max_size_bytes: Some(-2), ..Settings::default() };
    ensure!(refusal(session, ops::put_settings("n.s/a", &below)).await? == "Invalid argument on maxSizeBytes");
    session.call(ops::remove_settings("n.s/a")).await?;
    session.call(ops::remove_settings("n.s/never-was")).await?;
    Ok(())
}

async fn own_settings_are_seen_against_those_of_the_space(session: &dyn BrokerSession) -> Result<()> {
    session.call(ops::put_settings(&ground("n.s/"), &attempts(7))).await?;
    let read = async |address: &str| -> Result<_> {
        Ok(ops::parse_settings(&session.call(ops::read_settings(address)).await?))
    };
    let base = read("n.s/has-none").await?;
    ensure!(base["maxDeliveryAttempts"] == 7 && base["autoCreateQueues"] == false, "{base:?}");
    ensure!(read("n.s/b.c/d.e").await?["maxDeliveryAttempts"] == 7, "everything below the prefix");
    ensure!(read("n.s2/b").await?.get("maxDeliveryAttempts").is_none_or(Value::is_null), "nothing beside it");

    session.call(ops::put_settings("n.s/b", &Settings { redelivery_delay_ms: Some(5), ..Settings::default() })).await?;
    let own = read("n.s/b").await?;
    ensure!(ops::differing(&Settings::default(), &own, &base) == ["redeliveryDelay"], "{own:?}");
    session.call(ops::put_settings("n.s/b", &attempts(3))).await?;
    let own = read("n.s/b").await?;
    ensure!(ops::differing(&attempts(3), &own, &base).is_empty(), "what was set before is gone: {own:?}");
    session.call(ops::remove_settings("n.s/b")).await?;
    ensure!(ops::differing(&Settings::default(), &read("n.s/b").await?, &base).is_empty());
    session.call(ops::remove_settings(&ground("n.s/"))).await?;
    Ok(())
}

async fn calls_are_carried_out_in_their_order(session: &dyn BrokerSession) -> Result<()> {
    // Each depends on the one before it; all are in flight together.
    let calls = (0..40).flat_map(|_| {
        let settings = ops::put_settings("n.s/turn", &Settings::default());
        [settings, create("n.s/turn"), ops::destroy_queue("n.s/turn", true), ops::delete_address("n.s/turn", false)]
    });
    for answer in join_all(calls.map(|call| session.call(call))).await {
        answer?;
    }
    // Made in order counts, not polled in order.
    let made = session.call(create("n.s/first"));
    let gone = session.call(ops::destroy_queue("n.s/first", true));
    gone.await?;
    made.await?;
    Ok(())
}

async fn removals_are_told(listener: &dyn BrokerSession, other: &dyn BrokerSession) -> Result<()> {
    other.call(create("n.s/told")).await?;
    other.call(ops::destroy_queue("n.s/told", true)).await?;
    let expected = SessionEvent::QueueRemoved { queue: "n.s/told".to_owned(), address: "n.s/told".to_owned() };
    // Queues that clients get for the time of a connection come and go as well.
    while event(listener).await? != expected {}
    Ok(())
}

async fn an_abandoned_answer_disturbs_nobody(session: &dyn BrokerSession) -> Result<()> {
    drop(session.call(create("n.s/abandoned")));
    let words = refusal(session, create("n.s/abandoned")).await?;
    ensure!(ops::classify(&words) == Refusal::AlreadyExists, "it was carried out all the same: {words}");
    Ok(())
}

async fn a_cut_session_says_so_everywhere(peer: &mut Peer, session: &dyn BrokerSession) -> Result<()> {
    match peer {
        Peer::Real(broker) => broker.kill(),
        Peer::StandIn(standin) => standin.restart(true),
    }
    while !matches!(event(session).await?, SessionEvent::Lost(_)) {}
    ensure!(matches!(event(session).await?, SessionEvent::Lost(_)), "again when asked again");
    let answer = session.call(node_id()).await;
    ensure!(matches!(answer, Err(CallError::Lost(_))), "{answer:?}");
    Ok(())
}
