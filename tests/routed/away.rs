//! A router that cannot be reached while addresses come and go.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{TryStreamExt, stream};
use serde_json::{Value, json};
use waystation_kit::process::eventually;
use waystation_kit::proxy::{Mode, Proxy};

use crate::plane::{Routed, held, routed_plane, router_state, rows};
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World, arrived};

/// How many there are before, how many come meanwhile; of the former every third goes, every other third is made anew as
/// something else under the same name, and the last stays.
const EARLY: usize = 90;
const LATE: usize = 60;
/// Connections are cut again after so many entities were made on return.
const CUT_AFTER: [u64; 3] = [3, 20, 50];
/// How late what a router sends is while it is filled again.
const LATENESS: Duration = Duration::from_millis(15);

fn spec(number: usize, anew: bool) -> Value {
    match (number.is_multiple_of(2), anew) {
        (true, false) | (false, true) => json!({"type": "queue"}),
        (false, false) => json!({"type": "anycast"}),
        (true, true) => json!({"type": "multicast"}),
    }
}

/// What it is on a router.
fn entities(tenant: &Tenant<'_>, name: &str, spec: &Value) -> Vec<String> {
    let name = tenant.name(name);
    let (distribution, waypoint) = match spec["type"].as_str() {
        Some("queue") => ("balanced", true),
        Some("multicast") => ("multicast", false),
        _ => ("balanced", false),
    };
    let links = ["in", "out"].map(|direction| format!("autoLink {name} {direction}"));
    let address = format!("address {name} {distribution} Bool({waypoint})");
    [address].into_iter().chain(links.into_iter().filter(|_| waypoint)).collect()
}

async fn each(numbers: impl IntoIterator<Item = usize>, act: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
    let numbers = stream::iter(numbers.into_iter().map(Ok::<_, anyhow::Error>));
    numbers.try_for_each_concurrent(16, |number| act(number)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_cut_off_while_addresses_come_and_go_holds_exactly_what_is_wanted_when_it_returns() -> Result<()> {
    let world = World::shared().await?;
    let (far, near) = tokio::try_join!(Routed::start(), Routed::start())?;
    let proxy = Proxy::start(far.router.port()).await?;
    let tenant = world.tenant("routed-away").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r2", &near)]).await?;
    let mut routers = rows(&[("r1", &far), ("r2", &near)]);
    routers["external"]["hosts"][0]["port"] = proxy.port().into();
    tenant.change(Kind::RouterConfig, CONFIG, json!({"spec": {"messaging": {"routers": routers}}})).await?;
    router_state(&tenant, "r1", "Serving").await?;
    let (early, late) = (|number| format!("early-{number}"), |number| format!("late-{number}"));
    let tenant = &tenant;
    each(0..EARLY, async |number| tenant.address(&early(number), spec(number, false)).await).await?;
    each(0..EARLY, async |number| tenant.ready(Kind::Address, &[&early(number)]).await).await?;
    let before = held(&far.router, tenant).await?;

    proxy.set(Mode::Cut);
    router_state(tenant, "r1", "Unreachable").await?;
    let goes = |number: &usize| number.is_multiple_of(3);
    each((0..EARLY).filter(|number| number % 3 < 2), async |number| {
        tenant.delete(Kind::Address, &early(number)).await?;
        // A router that cannot be reached holds up no deletion: it is compared when it is back.
        tenant.gone(Kind::Address, &early(number)).await
    })
    .await?;
    let anew: Vec<usize> = (0..EARLY).filter(|number| number % 3 == 1).collect();
    each(anew.iter().copied(), async |number| tenant.ready_address(&early(number), spec(number, true)).await).await?;
    each(0..LATE, async |number| tenant.ready_address(&late(number), spec(number, false)).await).await?;
    ensure!(held(&far.router, tenant).await? == before, "the router was told something all the same");

    let mut wanted = BTreeSet::new();
    for number in (0..EARLY).filter(|number| !goes(number)) {
        wanted.extend(entities(tenant, &early(number), &spec(number, anew.contains(&number))));
    }
    for number in 0..LATE {
        wanted.extend(entities(tenant, &late(number), &spec(number, false)));
    }
    // Back it is, with what it had; slow, and cut off again in the midst of its filling.
    let mark = tenant.mark().await?;
    let made = far.router.counters().unwrap_or_default().creates;
    if !far.router.is_real() {
        far.router.slow(LATENESS)?;
    }
    proxy.set(Mode::Pass);
    for after in CUT_AFTER.into_iter().filter(|_| !far.router.is_real()) {
        eventually(SOON, "some of what is missing is made", || async {
            let now = far.router.counters()?.creates;
            ensure!(now >= made + after, "{} of {after}", now - made);
            Ok(())
        })
        .await?;
        far.router.cut()?;
    }
    if !far.router.is_real() {
        far.router.slow(Duration::ZERO)?;
    }
    for routed in [&far, &near] {
        eventually(SOON, "exactly what is wanted", || async {
            let found = held(&routed.router, tenant).await?;
            let found: BTreeSet<String> = found.iter().map(|entity| plain(entity)).collect();
            ensure!(found == wanted, "{:?}", found.symmetric_difference(&wanted).collect::<Vec<_>>());
            Ok(())
        })
        .await?;
    }
    router_state(tenant, "r1", "Serving").await?;
    far.filled().await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    let mut client = far.router.client().await?;
    client.send_text(&tenant.name("late-0"), "by both").await?;
    arrived(&near.router.client().await?.receive(&tenant.name("late-0"), 1, SOON).await?, &["by both"])
}

/// Without the broker's name and what the address is called there.
fn plain(entity: &str) -> String {
    let words = if entity.starts_with("autoLink ") { 3 } else { 4 };
    entity.split(' ').take(words).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_router_that_answers_nothing_is_felt_by_no_address_and_not_by_the_other_router() -> Result<()> {
    let world = World::shared().await?;
    let (mut hung, other) = (Routed::start().await?, Routed::start().await?);
    let tenant = world.tenant("routed-silent").await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &hung), ("r2", &other)]).await?;
    for name in ["orders", "bills"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
    }
    let mark = tenant.mark().await?;
    hung.router.hang()?;
    let mut client = other.router.client().await?;
    client.send_text(&tenant.name("orders"), "by the other").await?;
    arrived(&client.receive(&tenant.name("orders"), 1, SOON).await?, &["by the other"])?;
    // Its deadline ends the wait for it: the newcomer is Ready by the other.
    tenant.ready_address("fresh", json!({"type": "queue"})).await?;
    router_state(&tenant, "r1", "Unreachable").await?;
    for name in ["second", "third"] {
        tenant.ready_address(name, json!({"type": "queue"})).await?;
        tenant.delete(Kind::Address, name).await?;
        tenant.gone(Kind::Address, name).await?;
    }
    router_state(&tenant, "r2", "Serving").await?;
    crate::support::is_ready(&tenant.get(Kind::AddressSpace, SPACE).await?)?;
    hung.router.go_on()?;
    router_state(&tenant, "r1", "Serving").await?;
    let same = held(&other.router, &tenant).await?;
    eventually(SOON, "both hold the same", || async {
        let found = held(&hung.router, &tenant).await?;
        ensure!(found == same, "{:?}", found.symmetric_difference(&same).collect::<Vec<_>>());
        Ok(())
    })
    .await?;
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.iter().all(|write| ["fresh", "second", "third"].contains(&&*write.name)), "{writes:?}");
    Ok(())
}
