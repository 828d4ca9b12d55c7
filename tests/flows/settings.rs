//! What addresses ask of their broker takes effect, from the start and when it is changed later: told by messages, since
//! a setting that can be read back may still be without effect.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use waystation_kit::amqp_client::{Client, Node, Outgoing};

use crate::support::{CONFIG, Kind, MOMENT, SOON, SPACE, Tenant, World, arrived, nothing};

/// A limit that some fourteen messages of [`big`] reach.
const LIMIT: u64 = 20_000;
/// As many messages as are far over the limit, and fewer than a broker gives credit for at once.
const MANY: usize = 60;

fn big() -> Outgoing {
    Outgoing::text(&"x".repeat(1024))
}

async fn tenant<'w>(world: &'w World, name: &str) -> Result<Tenant<'w>> {
    let tenant = world.tenant(name).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    Ok(tenant)
}

/// Sends [`MANY`] big messages over one link; the words of the refusal, if one was refused. (A link that is made when
/// the address is full already gets no credit at all.)
async fn fill(client: &mut Client, address: &str) -> Result<Option<String>> {
    match client.send_all(address, &vec![big(); MANY]).await {
        Ok(()) => Ok(None),
        Err(error) => {
            let words = format!("{error:#}");
            ensure!(words.contains("rejected"), "{words}");
            Ok(Some(words))
        }
    }
}

/// Takes everything away that is there, which is `expected` where that is known.
async fn drain(client: &mut Client, address: &str, expected: Option<usize>) -> Result<usize> {
    let (count, patience) = expected.map_or((MANY, MOMENT * 3), |count| (count, SOON));
    Ok(client.receive(address, count, patience).await?.len())
}

#[tokio::test]
async fn a_longest_time_to_live_is_given_to_messages_and_can_be_changed() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "ttl-maximum").await?;
    tenant.ready_address("expired", json!({"type": "deadLetter"})).await?;
    let limited = json!({"type": "queue", "expiryAddress": "expired", "messageTtl": {"maximum": "200ms"}});
    tenant.ready_address("limited", limited).await?;
    tenant.ready_address("free", json!({"type": "queue", "expiryAddress": "expired"})).await?;
    let (limited, free, expired) = (tenant.name("limited"), tenant.name("free"), tenant.name("expired"));

    let mut client = tenant.client().await?;
    let patient = |text| Outgoing { ttl: Some(Duration::from_secs(3600)), ..Outgoing::text(text) };
    client.send_all(&free, &[patient("in time")]).await?;
    client.send_all(&limited, &[Outgoing::text("without its own"), patient("longer than allowed")]).await?;
    arrived(&client.receive(&expired, 2, SOON).await?, &["without its own", "longer than allowed"])?;
    arrived(&client.receive(&free, 1, SOON).await?, &["in time"])?;

    // The other way round on the live addresses.
    tenant.changed_address("limited", json!({"messageTtl": null})).await?;
    tenant.changed_address("free", json!({"messageTtl": {"maximum": "200ms"}})).await?;
    client.send_text(&limited, "kept now").await?;
    client.send_text(&free, "not kept now").await?;
    arrived(&client.receive(&expired, 1, SOON).await?, &["not kept now"])?;
    arrived(&client.receive(&limited, 1, SOON).await?, &["kept now"])
}

#[tokio::test]
async fn a_shortest_time_to_live_keeps_messages_that_would_expire() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "ttl-minimum").await?;
    tenant.ready_address("expired", json!({"type": "deadLetter"})).await?;
    let kept = json!({"type": "queue", "expiryAddress": "expired", "messageTtl": {"minimum": "1h"}});
    tenant.ready_address("kept", kept).await?;
    tenant.ready_address("plain", json!({"type": "queue", "expiryAddress": "expired"})).await?;

    let mut client = tenant.client().await?;
    let short = |text| Outgoing { ttl: Some(Duration::from_millis(50)), ..Outgoing::text(text) };
    client.send(&tenant.name("kept"), &short("raised")).await?;
    client.send(&tenant.name("plain"), &short("as sent")).await?;
    // The one that was sent later has expired; the one before has not.
    arrived(&client.receive(&tenant.name("expired"), 1, SOON).await?, &["as sent"])?;
    arrived(&client.receive(&tenant.name("kept"), 1, SOON).await?, &["raised"])
}

#[tokio::test]
async fn a_message_is_tried_as_often_as_redelivery_says_and_then_goes_to_the_dead_letter() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "attempts").await?;
    tenant.ready_address("failed", json!({"type": "deadLetter"})).await?;
    let spec = json!({"type": "queue", "deadLetterAddress": "failed", "redelivery": {"maxAttempts": 3}});
    tenant.ready_address("jobs", spec).await?;
    let (jobs, failed) = (tenant.name("jobs"), tenant.name("failed"));

    let mut client = tenant.client().await?;
    client.send_text(&jobs, "hard").await?;
    let tried = client.receive_and_fail(&jobs, 3, SOON).await?;
    arrived(&tried, &["hard"; 3])?;
    let counts: Vec<u32> = tried.iter().map(|message| message.delivery_count).collect();
    ensure!(counts == [0, 1, 2], "{counts:?}");
    arrived(&client.receive(&failed, 1, SOON).await?, &["hard"])?;
    nothing(&client.receive(&jobs, 1, MOMENT).await?)?;

    // Fewer, on the live queue; and without a dead letter it goes where the broker's own settings say.
    tenant.changed_address("jobs", json!({"redelivery": {"maxAttempts": 1}})).await?;
    client.send_text(&jobs, "harder").await?;
    arrived(&client.receive_and_fail(&jobs, 1, SOON).await?, &["harder"])?;
    arrived(&client.receive(&failed, 1, SOON).await?, &["harder"])?;
    tenant.changed_address("jobs", json!({"deadLetterAddress": null})).await?;
    client.send_text(&jobs, "hardest").await?;
    arrived(&client.receive_and_fail(&jobs, 1, SOON).await?, &["hardest"])?;
    // Other tests may leave theirs there as well.
    let mut taken = Vec::new();
    while !taken.iter().any(|message: &waystation_kit::amqp_client::Received| message.body == "hardest") {
        let next = client.receive("DLQ", 1, SOON).await?;
        ensure!(!next.is_empty(), "it did not come to the broker's own dead letters, but {taken:?}");
        taken.extend(next);
    }
    nothing(&client.receive(&failed, 1, MOMENT).await?)?;
    nothing(&client.receive(&jobs, 1, MOMENT).await?)
}

#[tokio::test]
async fn attempts_are_spaced_as_redelivery_says() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "delays").await?;
    tenant.address("at-once", json!({"type": "queue"})).await?;
    tenant.address("late", json!({"type": "queue", "redelivery": {"delay": "1h"}})).await?;
    let growing = json!({"delay": "100ms", "delayMultiplier": 1000, "maxDelay": "1h", "maxAttempts": -1});
    tenant.address("growing", json!({"type": "queue", "redelivery": growing})).await?;
    let capped = json!({"delay": "100ms", "delayMultiplier": 1000, "maxDelay": "200ms", "maxAttempts": -1});
    tenant.address("capped", json!({"type": "queue", "redelivery": capped})).await?;
    tenant.ready(Kind::Address, &["at-once", "late", "growing", "capped"]).await?;

    let mut client = tenant.client().await?;
    for queue in ["at-once", "late", "growing", "capped"] {
        client.send_text(&tenant.name(queue), "job").await?;
        arrived(&client.receive_and_fail(&tenant.name(queue), 1, SOON).await?, &["job"])?;
    }
    arrived(&client.receive_and_fail(&tenant.name("at-once"), 1, SOON).await?, &["job"])?;
    nothing(&client.receive(&tenant.name("late"), 1, MOMENT).await?)?;
    // The second after a tenth of a second; the third after that times a thousand, or after the longest delay.
    arrived(&client.receive_and_fail(&tenant.name("growing"), 1, SOON).await?, &["job"])?;
    arrived(&client.receive_and_fail(&tenant.name("capped"), 2, SOON).await?, &["job"; 2])?;
    nothing(&client.receive(&tenant.name("growing"), 1, Duration::from_secs(2)).await?)?;

    // Changed on the live queue, for attempts from then on.
    tenant.changed_address("at-once", json!({"redelivery": {"delay": "1h"}})).await?;
    arrived(&client.receive_and_fail(&tenant.name("at-once"), 1, SOON).await?, &["job"])?;
    nothing(&client.receive(&tenant.name("at-once"), 1, MOMENT).await?)
}

#[tokio::test]
async fn a_full_queue_does_what_its_policy_says_and_can_be_changed() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "full").await?;
    let spec = |policy: &str| json!({"type": "queue", "maxSizeBytes": LIMIT, "fullPolicy": policy});
    for (name, policy) in [("fails", "Fail"), ("drops", "Drop"), ("pages", "Page"), ("turns", "Fail")] {
        tenant.address(name, spec(policy)).await?;
    }
    tenant.address("endless", json!({"type": "queue"})).await?;
    tenant.ready(Kind::Address, &["fails", "drops", "pages", "turns", "endless"]).await?;

    let mut client = tenant.client().await?;
    for (name, all_taken, all_kept) in
        [("fails", false, false), ("drops", true, false), ("pages", true, true), ("endless", true, true)]
    {
        let address = tenant.name(name);
        let refused = fill(&mut client, &address).await?;
        ensure!(refused.is_none() == all_taken, "{name}: {refused:?}");
        let kept = drain(&mut client, &address, all_kept.then_some(MANY)).await?;
        ensure!((kept == MANY) == all_kept && kept > 0, "{name} kept {kept} of {MANY}");
    }

    // On live queues: from refusing to paging, from paging to refusing; and a higher limit.
    let (turns, pages) = (tenant.name("turns"), tenant.name("pages"));
    tenant.changed_address("turns", json!({"fullPolicy": "Page"})).await?;
    tenant.changed_address("pages", json!({"fullPolicy": "Fail"})).await?;
    ensure!(fill(&mut client, &turns).await?.is_none(), "it pages now");
    let kept = drain(&mut client, &turns, Some(MANY)).await?;
    ensure!(kept == MANY, "it keeps all now, and not {kept}");
    ensure!(fill(&mut client, &pages).await?.is_some(), "it refuses now");
    drain(&mut client, &pages, None).await?;
    tenant.changed_address("pages", json!({"maxSizeBytes": LIMIT * 100})).await?;
    let refused = fill(&mut client, &pages).await?;
    ensure!(refused.is_none(), "there is room now: {refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_full_queue_that_blocks_takes_the_next_message_when_there_is_room() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "blocks").await?;
    let spec = json!({"type": "queue", "maxSizeBytes": LIMIT, "fullPolicy": "Block"});
    tenant.ready_address("blocks", spec).await?;
    let address = tenant.name("blocks");

    // Senders may use up the credit that they have; who comes later gets none.
    let (mut early, mut consumer) = (tenant.client().await?, tenant.client().await?);
    early.send_all(&address, &vec![big(); MANY]).await?;
    let mut late = tenant.client().await?;
    let later = address.clone();
    let mut sending = tokio::spawn(async move { late.send_text(&later, "the last").await });
    ensure!(tokio::time::timeout(MOMENT * 3, &mut sending).await.is_err(), "it was not kept from sending");
    let received = consumer.receive(&address, MANY, SOON).await?;
    ensure!(received.len() == MANY, "{} of {MANY} were there", received.len());
    sending.await?.context("sending when there was room again")?;
    arrived(&consumer.receive(&address, 1, SOON).await?, &["the last"])
}

#[tokio::test]
async fn a_subscription_takes_as_many_consumers_as_it_says_and_can_be_changed() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "consumers").await?;
    tenant.address("news", json!({"type": "topic"})).await?;
    tenant.address("archive", json!({"type": "subscription", "topic": "news"})).await?;
    tenant.address("letters", json!({"type": "topic"})).await?;
    let two = json!({"type": "subscription", "topic": "letters", "subscription": {"maxConsumers": 2}});
    tenant.address("mail", two).await?;
    tenant.ready(Kind::Address, &["news", "archive", "letters", "mail"]).await?;

    let mut client = tenant.client().await?;
    for (topic, name, limit) in [("news", "archive", 1), ("letters", "mail", 2)] {
        let queue = tenant.subscription(topic, name);
        let mut consumers = Vec::new();
        for _ in 0..limit {
            consumers.push(client.consumer(&queue, Node::Any).await?);
        }
        let mut one_more = tenant.client().await?;
        let refused = one_more.receive(&queue, 1, MOMENT).await.err().context("one consumer too many was taken")?;
        ensure!(format!("{refused:#}").contains("AMQ229200"), "{refused:#}");
        // On the live subscription, whose consumers stay.
        let more = json!({"subscription": {"maxConsumers": limit + 1}});
        tenant.changed_address(name, more).await?;
        let mut added = client.consumer(&queue, Node::Any).await?;
        client.send_to(&tenant.name(topic), Node::Topic, &[Outgoing::text("one")]).await?;
        let mut received = added.receive(1, MOMENT).await?;
        for consumer in &mut consumers {
            received.extend(consumer.receive(1, MOMENT).await?);
        }
        arrived(&received, &["one"])?;
    }
    Ok(())
}

#[tokio::test]
async fn defaults_of_the_router_config_apply_where_an_address_says_nothing_of_its_own() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("defaults").await?;
    let defaults = json!({
        "redelivery": {"maxAttempts": 2, "delay": "1ms"},
        "maxSizeBytes": LIMIT,
        "fullPolicy": "Fail",
        "deadLetterAddress": "dead",
    });
    tenant.router_config(CONFIG, &[("broker", &world.broker)], json!({ "defaults": defaults })).await?;
    tenant.space(SPACE, CONFIG).await?;
    tenant.address("dead", json!({"type": "deadLetter"})).await?;
    tenant.address("own-dead", json!({"type": "deadLetter"})).await?;
    tenant.address("plain", json!({"type": "queue"})).await?;
    // Redelivery is taken field by field: its delay stays the default's.
    let own = json!({
        "type": "queue",
        "redelivery": {"maxAttempts": 3},
        "maxSizeBytes": LIMIT * 100,
        "deadLetterAddress": "own-dead",
    });
    tenant.address("own", own).await?;
    tenant.address("drops", json!({"type": "queue", "fullPolicy": "Drop"})).await?;
    tenant.ready(Kind::Address, &["dead", "own-dead", "plain", "own", "drops"]).await?;
    let told = tenant.get(Kind::Address, "own").await?["status"]["redelivery"].clone();
    ensure!(told == json!({"maxAttempts": 3, "delay": "1ms"}), "in force: {told}");

    let mut client = tenant.client().await?;
    for (name, attempts, dead) in [("plain", 2, "dead"), ("own", 3, "own-dead")] {
        client.send_text(&tenant.name(name), name).await?;
        let tried = client.receive_and_fail(&tenant.name(name), attempts, SOON).await?;
        arrived(&tried, &vec![name; attempts])?;
        arrived(&client.receive(&tenant.name(dead), 1, SOON).await?, &[name])?;
    }
    let refused = fill(&mut client, &tenant.name("plain")).await?;
    ensure!(refused.is_some(), "plain took all");
    drain(&mut client, &tenant.name("plain"), None).await?;
    for (name, all_kept) in [("own", true), ("drops", false)] {
        let refused = fill(&mut client, &tenant.name(name)).await?;
        ensure!(refused.is_none(), "{name}: {refused:?}");
        let kept = drain(&mut client, &tenant.name(name), all_kept.then_some(MANY)).await?;
        ensure!((kept == MANY) == all_kept && kept > 0, "{name} kept {kept} of {MANY}");
    }

    // Another default reaches live addresses, and only those that say nothing.
    let defaults = json!({"redelivery": {"maxAttempts": 1}, "maxSizeBytes": null, "fullPolicy": null});
    let patch = json!({"spec": {"messaging": {"defaults": defaults}}});
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    let before = generation(&tenant.get(Kind::Address, "plain").await?);
    tenant.change(Kind::RouterConfig, CONFIG, patch).await?;
    tenant
        .until(Kind::Address, "plain", "the new default in force", |object| {
            ensure!(object["status"]["redelivery"]["maxAttempts"] == 1, "not in force");
            Ok(())
        })
        .await?;
    ensure!(generation(&tenant.get(Kind::Address, "plain").await?) == before);
    let refused = fill(&mut client, &tenant.name("plain")).await?;
    ensure!(refused.is_none(), "plain: {refused:?}");
    let own = tenant.get(Kind::Address, "own").await?["status"]["redelivery"]["maxAttempts"].clone();
    ensure!(own == 3, "{own}");
    Ok(())
}

#[tokio::test]
async fn a_default_time_to_live_applies_where_an_address_has_none() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("default-ttl").await?;
    let defaults = json!({"messageTtl": {"maximum": "200ms"}});
    tenant.router_config(CONFIG, &[("broker", &world.broker)], json!({ "defaults": defaults })).await?;
    tenant.space(SPACE, CONFIG).await?;
    tenant.address("expired", json!({"type": "deadLetter"})).await?;
    tenant.address("plain", json!({"type": "queue", "expiryAddress": "expired"})).await?;
    let own = json!({"type": "queue", "expiryAddress": "expired", "messageTtl": {"maximum": "1h"}});
    tenant.address("own", own).await?;
    tenant.ready(Kind::Address, &["expired", "plain", "own"]).await?;

    let mut client = tenant.client().await?;
    client.send_text(&tenant.name("own"), "kept").await?;
    client.send_text(&tenant.name("plain"), "not kept").await?;
    // A dead letter keeps what it has, whatever the default.
    arrived(&client.receive(&tenant.name("expired"), 1, SOON).await?, &["not kept"])?;
    arrived(&client.receive(&tenant.name("own"), 1, SOON).await?, &["kept"])
}

#[tokio::test]
async fn what_a_topic_asks_for_holds_for_each_of_its_subscriptions() -> Result<()> {
    let world = World::shared().await?;
    let tenant = tenant(world, "topic-settings").await?;
    tenant.address("failed", json!({"type": "deadLetter"})).await?;
    tenant.address("expired", json!({"type": "deadLetter"})).await?;
    let spec = json!({"type": "topic", "deadLetterAddress": "failed", "expiryAddress": "expired",
        "redelivery": {"maxAttempts": 2}, "maxSizeBytes": LIMIT, "fullPolicy": "Fail"});
    tenant.address("news", spec).await?;
    for subscription in ["archive", "mail"] {
        tenant.address(subscription, json!({"type": "subscription", "topic": "news"})).await?;
    }
    tenant.ready(Kind::Address, &["failed", "expired", "news", "archive", "mail"]).await?;
    let news = tenant.name("news");

    let mut client = tenant.client().await?;
    client.send_to(&news, Node::Topic, &[Outgoing::text("hard")]).await?;
    for subscription in ["archive", "mail"] {
        let queue = tenant.subscription("news", subscription);
        arrived(&client.receive_and_fail(&queue, 2, SOON).await?, &["hard"; 2])?;
        arrived(&client.receive(&tenant.name("failed"), 1, SOON).await?, &["hard"])?;
    }
    ensure!(fill(&mut client, &news).await?.is_some(), "it took more than its limit");
    for subscription in ["archive", "mail"] {
        drain(&mut client, &tenant.subscription("news", subscription), None).await?;
    }

    // On the live topic.
    tenant.changed_address("news", json!({"messageTtl": {"maximum": "200ms"}})).await?;
    client.send_to(&news, Node::Topic, &[Outgoing::text("too late")]).await?;
    arrived(&client.receive(&tenant.name("expired"), 2, SOON).await?, &["too late"; 2])
}
