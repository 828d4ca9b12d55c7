//! Connectors to remote hosts, and forwarders over them, told by messages.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use waystation_kit::amqp_client::{Node, Outgoing};
use waystation_kit::artemis::Login;
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::router_core::Request;

use crate::plane::{Routed, routed_plane, rows};
use crate::support::{CONFIG, Kind, MOMENT, SOON, SPACE, Tenant, World, arrived, nothing};

const USER: &str = "far";
const PASSWORD: &str = "far-away";

/// A remote host that stores nothing: a router of somebody else.
async fn remote(login: Login) -> Result<Router> {
    Router::stand_in(0, RouterOptions { id: "remote".to_owned(), login, ..RouterOptions::default() }).await
}

/// A data plane whose spaces may have connectors to this machine, with a connector `far` to this port.
async fn plane(tenant: &Tenant<'_>, world: &World, routed: &Routed, port: u16, login: Option<&str>) -> Result<()> {
    routed_plane(tenant, &[("broker", &world.broker)], &[("r1", routed)]).await?;
    let mut routers = rows(&[("r1", routed)]);
    routers["connectors"] = json!({"allowedHosts": ["127.0.0.1"]});
    tenant.change(Kind::RouterConfig, CONFIG, json!({"spec": {"messaging": {"routers": routers}}})).await?;
    let mut far = json!({
        "name": "far",
        "endpointHosts": [{"host": "127.0.0.1", "port": port}],
        "addresses": [{"name": "all", "pattern": "#"}],
    });
    if let Some(secret) = login {
        far["credentials"] = json!({"secretName": secret});
    }
    tenant.change(Kind::AddressSpace, SPACE, json!({"spec": {"connectors": [far]}})).await
}

/// Waits for a row of a status.
async fn row(tenant: &Tenant<'_>, kind: Kind, name: &str, field: &str, row: &str, reason: &str) -> Result<Value> {
    tenant
        .until(kind, name, &format!("{row} {reason}"), |object| {
            let rows = object["status"][field].as_array().context("there are no rows")?;
            let found = rows.iter().find(|found| found["name"] == row).context("there is no such row")?;
            ensure!(found["reason"] == reason, "it is {found}");
            Ok(found.clone())
        })
        .await
}

#[tokio::test]
async fn clients_reach_a_remote_host_and_queues_are_forwarded_there_and_back() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::with_policies().await?;
    let far = remote(Login::Anonymous).await?;
    let tenant = world.tenant("remotes").await?;
    plane(&tenant, world, &routed, far.port(), None).await?;
    row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "Connected").await?;
    let (mut near, mut there) = (routed.router.client().await?, far.client().await?);

    // By link routes: the remote host sees its own names.
    let through = tenant.name("far/news");
    let mut consumer = there.consumer("news", Node::Queue).await?;
    let sent = [Outgoing::text("hello")];
    let node = Node::Queue;
    let (received, ()) = tokio::try_join!(consumer.receive(1, SOON), near.send_to(&through, node, &sent))?;
    arrived(&received, &["hello"])?;

    // A queue's messages are brought there, and wait while nobody is there to take them.
    let out = json!([{"name": "out", "remoteAddress": "far/sink", "direction": "out"}]);
    tenant.ready_address("orders", json!({"type": "queue", "forwarders": out})).await?;
    row(&tenant, Kind::Address, "orders", "forwarders", "out", "Active").await?;
    near.send_text(&tenant.name("orders"), "to the sink").await?;
    arrived(&there.receive("sink", 1, SOON).await?, &["to the sink"])?;

    // And from there.
    let back = json!([{"name": "in", "remoteAddress": "far/source", "direction": "in"}]);
    tenant.ready_address("inbox", json!({"type": "queue", "forwarders": back})).await?;
    row(&tenant, Kind::Address, "inbox", "forwarders", "in", "Active").await?;
    there.send_text("source", "from the source").await?;
    arrived(&near.receive(&tenant.name("inbox"), 1, SOON).await?, &["from the source"])?;

    // A subscription as well.
    tenant.ready_address("events", json!({"type": "topic"})).await?;
    let out = json!([{"name": "out", "remoteAddress": "far/copies", "direction": "out"}]);
    tenant.ready_address("copy", json!({"type": "subscription", "topic": "events", "forwarders": out})).await?;
    row(&tenant, Kind::Address, "copy", "forwarders", "out", "Active").await?;
    near.send_to(&tenant.name("events"), Node::Topic, &[Outgoing::text("event")]).await?;
    arrived(&there.receive("copies", 1, SOON).await?, &["event"])?;

    for name in ["orders", "inbox", "copy"] {
        tenant.delete(Kind::Address, name).await?;
        tenant.gone(Kind::Address, name).await?;
    }
    tenant.change(Kind::AddressSpace, SPACE, json!({"spec": {"connectors": null}})).await?;
    nothing_left(&routed, "far").await
}

/// Nothing on the router has to do with this connector any more.
async fn nothing_left(routed: &Routed, connector: &str) -> Result<()> {
    let part = format!(">{connector}");
    for kind in ["connector", "router.config.autoLink", "router.config.linkRoute", "router.config.address"] {
        eventually(SOON, "an empty router", || async {
            let request = Request::query(&format!("org.apache.qpid.dispatch.{kind}"), &["name"]);
            let answer = Management::connect(&routed.router).await?.ask(&request).await?;
            let shown = format!("{:?}", answer.body);
            ensure!(!shown.contains(&part) && !shown.contains("_tap"), "{kind}: {shown}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_told_and_the_right_one_mends_it_and_a_host_that_goes_costs_no_address_a_write()
-> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::with_policies().await?;
    let mut far = remote(Login::password(USER, PASSWORD)).await?;
    let tenant = world.tenant("remotes-login").await?;
    plane(&tenant, world, &routed, far.port(), Some("far-login")).await?;
    let missing = row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "SecretNotFound").await?;
    ensure!(missing["message"].as_str().is_some_and(|text| text.contains("create it")), "{missing}");
    tenant.secret("far-login", &[("username", USER), ("password", "do-not-print-me")]).await?;
    let wrong = row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "NotConnected").await?;
    ensure!(!wrong.to_string().contains("do-not-print-me"), "{wrong}");
    crate::support::is_ready(&tenant.get(Kind::AddressSpace, SPACE).await?)?;
    tenant.secret("far-login", &[("username", USER), ("password", PASSWORD)]).await?;
    row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "Connected").await?;

    let out = json!([{"name": "out", "remoteAddress": "far/sink", "direction": "out"}]);
    tenant.ready_address("orders", json!({"type": "queue", "forwarders": out})).await?;
    row(&tenant, Kind::Address, "orders", "forwarders", "out", "Active").await?;
    let mark = tenant.mark().await?;
    far.stop().await?;
    row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "NotConnected").await?;
    let mut near = routed.router.client().await?;
    near.send_text(&tenant.name("orders"), "kept").await?;
    far.start_again().await?;
    row(&tenant, Kind::AddressSpace, SPACE, "connectors", "far", "Connected").await?;
    arrived(&far.client().await?.receive("sink", 1, SOON).await?, &["kept"])?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    let log = world.operator.logs();
    ensure!(!log.contains("do-not-print-me") && !log.contains(PASSWORD), "a password is in the log");
    nothing(&near.receive(&tenant.name("orders"), 1, MOMENT).await?)
}
