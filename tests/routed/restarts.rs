//! Routers and brokers that go and come back.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::plane::{Routed, routed_plane, router_state, rows};
use crate::support::{CONFIG, Kind, SOON, SPACE, World, arrived};

#[tokio::test]
async fn a_router_that_restarts_is_filled_before_it_says_so_and_costs_no_address_a_write() -> Result<()> {
    let world = World::shared().await?;
    let (mut first, second) = (Routed::start().await?, Routed::start().await?);
    let tenant = world.tenant("routed-restart").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &first), ("r2", &second)]).await?;
    let names: Vec<String> = (0..40).map(|number| format!("a{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let kind = if number % 4 == 0 { "queue" } else { "anycast" };
        tenant.address(name, json!({"type": kind})).await?;
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    tenant.ready(Kind::Address, &all).await?;
    first.filled().await?;
    second.filled().await?;

    let mark = tenant.mark().await?;
    first.router.stop().await?;
    router_state(&tenant, "r1", "Unreachable").await?;
    let space = tenant.get(Kind::AddressSpace, SPACE).await?;
    crate::support::is_ready(&space)?;
    first.router.start_again().await?;
    first.filled().await?;
    router_state(&tenant, "r1", "Serving").await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "{} writes to Addresses, first {:?}", writes.len(), writes.first());

    let mut client = first.router.client().await?;
    client.send_text(&tenant.name("a0"), "still here").await?;
    let mut other = second.router.client().await?;
    arrived(&other.receive(&tenant.name("a0"), 1, SOON).await?, &["still here"])
}

#[tokio::test]
async fn a_router_that_hangs_delays_nobody_for_long() -> Result<()> {
    let world = World::shared().await?;
    let (mut first, second) = (Routed::start().await?, Routed::start().await?);
    let tenant = world.tenant("routed-hang").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &first), ("r2", &second)]).await?;
    first.router.hang()?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    router_state(&tenant, "r1", "Unreachable").await?;
    tenant.ready_address("later", json!({"type": "anycast"})).await?;
    first.router.go_on()?;
    router_state(&tenant, "r1", "Serving").await?;
    Ok(())
}

#[tokio::test]
async fn without_a_router_the_space_says_so_and_a_new_address_once() -> Result<()> {
    let world = World::shared().await?;
    let mut only = Routed::start().await?;
    let tenant = world.tenant("routed-none").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &only)]).await?;
    tenant.ready_address("early", json!({"type": "anycast"})).await?;
    only.router.stop().await?;
    tenant.reason(Kind::AddressSpace, SPACE, "NoRouterServing").await?;
    let mark = tenant.mark().await?;
    tenant.address("late", json!({"type": "anycast"})).await?;
    tenant.reason(Kind::Address, "late", "NoRouterServing").await?;
    only.router.start_again().await?;
    tenant.ready(Kind::Address, &["late"]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.iter().all(|write| write.name == "late"), "{writes:?}");
    ensure!(writes.len() <= 3, "{writes:?}");
    Ok(())
}

#[tokio::test]
async fn routers_join_and_leave_with_traffic() -> Result<()> {
    let world = World::shared().await?;
    let (first, second, third) = (Routed::start().await?, Routed::start().await?, Routed::start().await?);
    let tenant = world.tenant("routed-scale").await?;
    let broker = [("broker", &world.broker)];
    routed_plane(&tenant, &broker, &[("r1", &first)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let orders = tenant.name("orders");
    let mut client = first.router.client().await?;
    client.send_text(&orders, "one").await?;
    let scale = json!({"spec": {"messaging": {"routers": rows(&[("r2", &second), ("r3", &third)])}}});
    tenant.change(Kind::RouterConfig, CONFIG, scale).await?;
    router_state(&tenant, "r2", "Serving").await?;
    router_state(&tenant, "r3", "Serving").await?;
    second.filled().await?;
    let mut client = third.router.client().await?;
    let received = client.receive(&orders, 1, Duration::from_secs(30)).await?;
    arrived(&received, &["one"])
}
