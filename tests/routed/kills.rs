//! The operator is killed at any moment of two thousand creations and deletions under plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use waystation_kit::operator::NAMESPACE as OPERATOR_NAMESPACE;
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;

use crate::observer::Observer;
use crate::plane::{Routed, routed_plane, texts};
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World, is_ready};

const NAME: &str = "kills";
/// Of these, every third goes again, and some have no room.
const CREATED: usize = 1_500;
const KILLS: usize = 5;
/// Room of the space.
const ROOM: usize = 1_400;

#[derive(Clone, Copy)]
enum Step {
    Create(usize),
    Delete(usize),
}

fn name(number: usize) -> String {
    format!("a{number}")
}

fn goes(number: usize) -> bool {
    number % 3 == 1
}

fn is_queue(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// A deletion comes some time after its creation.
fn steps() -> Vec<Step> {
    let mut placed: Vec<(usize, Step)> = Vec::new();
    for number in 0..CREATED {
        placed.push((number * 2, Step::Create(number)));
        if goes(number) {
            placed.push((number * 2 + 1 + (number * 7_919) % 500, Step::Delete(number)));
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, step)| step).collect()
}

async fn carry_out(tenant: &Tenant<'_>, steps: &[Step]) -> Result<()> {
    // In order, but for a few at a time: nothing is deleted before it is made.
    for some in steps.chunks(32) {
        let (made, gone): (Vec<Step>, Vec<Step>) = some.iter().partition(|step| matches!(step, Step::Create(_)));
        for kind in [made, gone] {
            stream::iter(kind.into_iter().map(Ok::<_, anyhow::Error>))
                .try_for_each_concurrent(16, |step| async move {
                    match step {
                        Step::Create(number) => {
                            let kind = if is_queue(number) { "queue" } else { "anycast" };
                            tenant.address(&name(number), json!({"type": kind, "plan": "small"})).await
                        }
                        Step::Delete(number) => tenant.delete(Kind::Address, &name(number)).await,
                    }
                })
                .await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_among_two_thousand_changes_leaves_exactly_what_was_asked_for() -> Result<()> {
    let world = World::shared().await?;
    let (first, second) = tokio::try_join!(Routed::start(), Routed::start())?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let mut running = Some(world.operator(NAME, &[]).await?);
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &first), ("r2", &second)]).await?;
    let plans = json!({"spec": {"messaging": {
        "addressPlans": [{"name": "small", "addressTypes": ["queue", "anycast"], "routerCredit": 0.001, "brokerCredit": 0.001}],
        "spacePlans": [{"name": "team", "limits": {"addresses": ROOM}}],
    }}});
    tenant.change(Kind::RouterConfig, CONFIG, plans).await?;
    tenant.change(Kind::AddressSpace, SPACE, json!({"spec": {"plan": "team"}})).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;

    let steps = steps();
    for (index, part) in steps.chunks(steps.len().div_ceil(KILLS)).enumerate() {
        let mut operator = match running.take() {
            Some(operator) => operator,
            None => world.spawn_operator(&[&format!("--controller-name={NAME}")])?,
        };
        let (before, after) = part.split_at(part.len() * (index + 1) / (KILLS + 1));
        carry_out(&tenant, before).await?;
        // No condition is awaited here: the moment is to be any.
        tokio::time::sleep(Duration::from_millis(150 * index as u64)).await;
        operator.kill();
        carry_out(&tenant, after).await?;
        // It is dead for sure: nobody needs to wait until its lease runs out.
        let leases: Api<Lease> = Api::namespaced(tenant.client.clone(), OPERATOR_NAMESPACE);
        let _ = leases.delete(NAME, &DeleteParams::default()).await;
    }
    let _operator = world.operator(NAME, &[]).await?;

    let left: BTreeSet<usize> = (0..CREATED).filter(|number| !goes(*number)).collect();
    let api = tenant.api(Kind::Address);
    eventually(SOON * 2, "all that is left is Ready, and the rest is gone", || async {
        let mut missing: BTreeSet<String> = left.iter().map(|number| name(*number)).collect();
        for address in api.list(&ListParams::default()).await?.items {
            let address = serde_json::to_value(address)?;
            let name = address["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(missing.remove(name), "{name} is still there: {}", address["status"]);
            is_ready(&address).with_context(|| format!("{name}: {}", address["status"]))?;
            ensure!(address["status"]["plan"] == "small", "{name} has plan {}", address["status"]["plan"]);
        }
        ensure!(missing.is_empty(), "missing: {missing:?}");
        Ok(())
    })
    .await?;

    let called = |number: &usize| tenant.name(&name(*number));
    let queues: BTreeSet<String> = left.iter().filter(|number| is_queue(**number)).map(called).collect();
    let found = Observer::of(&world.broker).await?.queues(&tenant.name("")).await?;
    let found: BTreeSet<String> = found.into_keys().collect();
    ensure!(found == queues, "queues differ: {:?}", found.symmetric_difference(&queues).collect::<Vec<_>>());
    let all: BTreeSet<String> = left.iter().map(called).collect();
    for routed in [&first, &second] {
        let mut manager = Management::connect(&routed.router).await?;
        let addresses = texts(&mut manager, "address", "pattern").await?;
        let addresses: BTreeSet<String> =
            addresses.into_keys().filter(|name| name.starts_with(&tenant.name(""))).collect();
        ensure!(addresses == all, "{:?}", addresses.symmetric_difference(&all).collect::<Vec<_>>());
        let links = texts(&mut manager, "autoLink", "address").await?;
        let both: BTreeMap<String, usize> = queues.iter().map(|queue| (queue.clone(), 2)).collect();
        ensure!(links == both, "{} links, {} queues", links.values().sum::<usize>(), both.len());
    }
    Ok(())
}
