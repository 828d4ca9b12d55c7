//! What people take away from a router or change on it behind the operator's back.

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::types::primitives::Value;
use serde_json::json;
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;
use waystation_kit::router_core::Request;

use crate::observer::{event, metric};
use crate::plane::{Routed, held, routed_plane};
use crate::support::{CONFIG, Kind, SOON, World, arrived};

const ADDRESS: &str = "org.apache.qpid.dispatch.router.config.address";
const LINK: &str = "org.apache.qpid.dispatch.router.config.autoLink";

/// The names of what a router has for an address.
async fn names(manager: &mut Management, of: &str, key: &str, address: &str) -> Result<Vec<String>> {
    let rows = manager.all_rows(of, &["name", key], 500, 2).await?;
    let named = rows.into_iter().filter_map(|row| match <[Value; 2]>::try_from(row) {
        Ok([Value::String(name), Value::String(its)]) if its == address => Some(name),
        _ => None,
    });
    Ok(named.collect())
}

#[tokio::test]
async fn what_people_take_away_or_change_on_a_router_is_mended_when_asked_for_told_and_counted() -> Result<()> {
    const NAME: &str = "routed-drift";
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let operator = world.operator(NAME, &[]).await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    tenant.ready_address("alerts", json!({"type": "multicast"})).await?;
    let before = held(&routed.router, &tenant).await?;
    let mended = operator.metric("waystation_repairs_total").await?;
    ensure!(mended == 0.0, "{mended} were mended when nothing was wrong");
    let mark = tenant.mark().await?;

    let mut manager = Management::connect(&routed.router).await?;
    let (orders, prices, alerts) = (tenant.name("orders"), tenant.name("prices"), tenant.name("alerts"));
    // A link, a whole address, and one that is made anew as something else.
    let links = names(&mut manager, LINK, "address", &orders).await?;
    manager.make(&Request::delete(LINK, links.first().context("no link")?)).await?;
    for address in [&prices, &alerts] {
        let names = names(&mut manager, ADDRESS, "pattern", address).await?;
        let name = names.first().context("no address")?;
        manager.make(&Request::delete(ADDRESS, name)).await?;
        if address == &alerts {
            let other = [("pattern", Value::from(address.as_str())), ("distribution", Value::from("balanced"))];
            manager.make(&Request::create(ADDRESS, Some(name), &other)).await?;
        }
    }
    ensure!(held(&routed.router, &tenant).await? != before, "nothing has changed");
    let resync = json!({"metadata": {"annotations": {"waystation.dev/resync": "1"}}});
    tenant.change(Kind::RouterConfig, CONFIG, resync).await?;
    eventually(SOON, "all is as it was", || async {
        let now = held(&routed.router, &tenant).await?;
        ensure!(now == before, "{:?}", now.symmetric_difference(&before).collect::<Vec<_>>());
        Ok(())
    })
    .await?;
    for address in [&orders, &prices, &alerts] {
        event(&tenant, Kind::RouterConfig, CONFIG, "Repaired", address).await?;
    }
    // Each once.
    metric(&operator, "waystation_repairs_total", |now| now == 3.0).await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    let mut client = routed.router.client().await?;
    client.send_text(&orders, "by the link").await?;
    arrived(&client.receive(&orders, 1, SOON).await?, &["by the link"])
}
