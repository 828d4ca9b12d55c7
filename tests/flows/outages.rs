//! Brokers that go, come back and were never there: told where it belongs, and made good without a word to addresses
//! that were Ready.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use waystation_kit::amqp_client::{Node, Outgoing};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::operator::Operator;
use waystation_kit::process::eventually;

use crate::support::{CONFIG, Kind, MOMENT, SOON, SPACE, Tenant, World, arrived, condition, nothing};
use crate::writes::renewed_twice;

/// Management operations that change something.
const COMMANDS: [&str; 8] = [
    "createQueue",
    "updateQueue",
    "destroyQueue",
    "createAddress",
    "updateAddress",
    "deleteAddress",
    "addAddressSettings",
    "removeAddressSettings",
];

/// How many commands that change something an operator has sent to its brokers.
async fn commands(operator: &Operator) -> Result<f64> {
    let text = operator.metrics().await?;
    let counts = text.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix("waystation_broker_commands_total{")?.split_once("} ")?;
        let changes = COMMANDS.iter().any(|command| labels.contains(&format!("operation=\"{command}\"")));
        changes.then(|| count.parse::<f64>())
    });
    Ok(counts.sum::<Result<f64, _>>()?)
}

/// Waits until the space is not Ready since its broker is down.
async fn space_is_down(tenant: &Tenant<'_>) -> Result<String> {
    tenant.reason(Kind::AddressSpace, SPACE, "BrokerUnreachable").await
}

async fn names(tenant: &Tenant<'_>, specs: &[(&str, Value)]) -> Result<()> {
    for (name, spec) in specs {
        tenant.address(name, spec.clone()).await?;
    }
    let names: Vec<&str> = specs.iter().map(|(name, _)| *name).collect();
    tenant.ready(Kind::Address, &names).await
}

#[tokio::test]
async fn a_broker_that_comes_back_empty_is_filled_again_without_a_write_to_its_addresses() -> Result<()> {
    let world = World::shared().await?;
    let mut broker = Artemis::start(ArtemisOptions { persistence: false, ..ArtemisOptions::default() }).await?;
    let tenant = world.tenant("empty").await?;
    tenant.data_plane(&[("volatile", &broker)]).await?;
    let queue = json!({"type": "queue", "deadLetterAddress": "dead"});
    let mut specs = vec![
        ("dead", json!({"type": "deadLetter"})),
        ("news", json!({"type": "topic"})),
        ("archive", json!({"type": "subscription", "topic": "news"})),
        ("prices", json!({"type": "anycast"})),
        ("alerts", json!({"type": "multicast"})),
    ];
    let queues: Vec<String> = (0..20).map(|number| format!("queue-{number}")).collect();
    specs.extend(queues.iter().map(|name| (name.as_str(), queue.clone())));
    names(&tenant, &specs).await?;

    let mark = tenant.mark().await?;
    broker.kill();
    tenant.broker_state(CONFIG, "volatile", "Unreachable").await?;
    let told = tenant.reason(Kind::RouterConfig, CONFIG, "BrokerUnreachable").await?;
    ensure!(told.contains("volatile"), "{told}");
    let told = space_is_down(&tenant).await?;
    ensure!(told == format!("broker volatile does not answer; {} Addresses are on it", specs.len()), "{told}");
    tenant.address("meanwhile", queue.clone()).await?;

    broker.start_again().await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.broker_state(CONFIG, "volatile", "Serving").await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    tenant.ready(Kind::Address, &["meanwhile"]).await?;

    // Everything is there: the broker makes nothing by itself below our prefix, so that a missing one would refuse.
    let mut client = broker.client().await?;
    for name in queues.iter().map(String::as_str).chain(["meanwhile"]) {
        client.send_text(&tenant.name(name), name).await?;
        arrived(&client.receive_and_reject(&tenant.name(name), 1, SOON).await?, &[name])?;
        arrived(&client.receive(&tenant.name("dead"), 1, SOON).await?, &[name])?;
    }
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("news")]).await?;
    arrived(&client.receive(&tenant.subscription("news", "archive"), 1, SOON).await?, &["news"])?;
    let mut consumers = Vec::new();
    for name in ["prices", "alerts"] {
        let node = if name == "prices" { Node::Queue } else { Node::Topic };
        let mut consumer = client.consumer(&tenant.name(name), node).await?;
        client.send_to(&tenant.name(name), node, &[Outgoing::text(name)]).await?;
        arrived(&consumer.receive(1, SOON).await?, &[name])?;
        consumers.push(consumer);
    }
    let refused = client.send_text(&tenant.name("no-such"), "lost").await;
    ensure!(refused.is_err(), "the broker makes queues by itself, so that nothing is proven here");

    let mut writes = tenant.address_writes(mark).await?;
    writes.retain(|entry| entry.name != "meanwhile");
    ensure!(writes.is_empty(), "written to addresses that were Ready: {writes:?}");
    Ok(())
}

#[tokio::test]
async fn a_broker_that_is_down_at_first_is_told_once_and_one_that_keeps_its_data_is_left_alone() -> Result<()> {
    const CONTROLLER: &str = "patient";
    let world = World::shared().await?;
    let operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    let mut broker = Artemis::prepare(ArtemisOptions::default())?;
    let tenant = world.tenant("late").await?.driven_by(CONTROLLER);
    tenant.router_config(CONFIG, &[("late", &broker)], json!({})).await?;
    tenant.space(SPACE, CONFIG).await?;
    let specs = [
        ("dead", json!({"type": "deadLetter"})),
        ("orders", json!({"type": "queue", "deadLetterAddress": "dead", "messageTtl": {"maximum": "1h"}})),
        ("news", json!({"type": "topic"})),
        ("archive", json!({"type": "subscription", "topic": "news"})),
    ];
    let mark = tenant.mark().await?;
    for (name, spec) in &specs {
        tenant.address(name, spec.clone()).await?;
    }
    for (name, _) in &specs {
        let told = tenant.reason(Kind::Address, name, "BrokerUnreachable").await?;
        ensure!(told.contains("broker late"), "{told}");
        let accepted = tenant.get(Kind::Address, name).await?;
        let accepted = condition(&accepted, "Accepted").context("there is no condition Accepted")?;
        ensure!(accepted["status"] == "True", "{accepted}");
    }
    space_is_down(&tenant).await?;
    // Also with the shortest Lease there is time for an Event.
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let where_it_is = format!("broker late at 127.0.0.1:{}: ", broker.plain_port());
    eventually(SOON, "an Event of the outage", || async {
        let notes = events.list(&ListParams::default()).await?.items.into_iter().filter_map(|event| event.note);
        let notes: Vec<String> = notes.collect();
        ensure!(notes.iter().any(|note| note.starts_with(&where_it_is)), "{notes:?}");
        Ok(())
    })
    .await?;
    let logged = |words: &str| operator.logs().lines().filter(|line| line.contains(words)).count();
    ensure!(logged(&format!("WARN waystation::operator::dispatch: {where_it_is}")) == 1, "{}", operator.logs());
    renewed_twice(&tenant, CONTROLLER).await?;
    renewed_twice(&tenant, CONTROLLER).await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.len() == specs.len(), "one write for each address expected: {writes:?}");

    broker.start_again().await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    tenant.ready(Kind::Address, &specs.each_ref().map(|(name, _)| *name)).await?;

    // From here on it keeps what it has.
    let mut client = broker.client().await?;
    client.send_text(&tenant.name("orders"), "stored").await?;
    client.send_to(&tenant.name("news"), Node::Topic, &[Outgoing::text("news")]).await?;
    client.close().await?;
    let (mark, before) = (tenant.mark().await?, commands(&operator).await?);
    ensure!(before > 0.0, "no command was counted");
    broker.stop().await?;
    tenant.broker_state(CONFIG, "late", "Unreachable").await?;
    broker.start_again().await?;
    tenant.broker_state(CONFIG, "late", "Serving").await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    let mut client = broker.client().await?;
    arrived(&client.receive(&tenant.name("orders"), 1, SOON).await?, &["stored"])?;
    arrived(&client.receive(&tenant.subscription("news", "archive"), 1, SOON).await?, &["news"])?;
    nothing(&client.receive(&tenant.name("orders"), 1, MOMENT).await?)?;
    renewed_twice(&tenant, CONTROLLER).await?;
    ensure!(logged(&format!("{}serves again after ", where_it_is.replace(": ", " "))) >= 1, "{}", operator.logs());
    let after = commands(&operator).await?;
    ensure!(after == before, "{} commands were sent though nothing was to be done", after - before);
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    Ok(())
}
