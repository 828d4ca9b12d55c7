//! The operator is killed at any moment of two thousand creations and deletions under plans.
//!
//! A seed decides when it is killed, in steps and what passes after them; the machine decides the rest.
//! `WAYSTATION_SEED` gives a seed; a failure names the one it had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use futures::{TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use waystation_kit::operator::{NAMESPACE as OPERATOR_NAMESPACE, Operator};
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;

use crate::observer::Observer;
use crate::plane::{Routed, routed_plane, texts};
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World, condition, is_ready};

const NAME: &str = "kills";
/// Of these, every third goes again, and of those that stay some have no room.
const CREATED: usize = 1_500;
const KILLS: usize = 7;
/// Room of the space: less than what stays.
const ROOM: usize = 900;
/// What passes at most after a step before it is killed.
const MOMENT_MS: u64 = 400;

/// Repeatable chance: SplitMix64.
struct Chance(u64);

impl Chance {
    /// Less than `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn seed() -> u64 {
    let given = std::env::var("WAYSTATION_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    given.unwrap_or_else(clock)
}

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

async fn carry_out(tenant: &Tenant<'_>, steps: &[Step], done: &AtomicUsize) -> Result<()> {
    // In order, but for a few at a time: nothing is deleted before it is made.
    for some in steps.chunks(32) {
        let (made, gone): (Vec<Step>, Vec<Step>) = some.iter().partition(|step| matches!(step, Step::Create(_)));
        for kind in [made, gone] {
            stream::iter(kind.into_iter().map(Ok::<_, anyhow::Error>))
                .try_for_each_concurrent(16, |step| async move {
                    match step {
                        Step::Create(number) => {
                            let kind = if is_queue(number) { "queue" } else { "anycast" };
                            tenant.address(&name(number), json!({"type": kind, "plan": "small"})).await?;
                        }
                        Step::Delete(number) => tenant.delete(Kind::Address, &name(number)).await?,
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .await?;
        }
    }
    Ok(())
}

/// Kills it at moments of the seed while the steps are carried out, and a last time when they are.
async fn kill(
    tenant: &Tenant<'_>,
    operator: Operator,
    done: &AtomicUsize,
    steps: usize,
    seed: u64,
) -> Result<Operator> {
    let (world, mut chance, mut operator) = (tenant.world, Chance(seed), operator);
    let mut moments: Vec<usize> = (0..KILLS).map(|_| chance.below(steps as u64) as usize).collect();
    moments.push(steps);
    moments.sort_unstable();
    for after in moments {
        eventually(SOON * 2, &format!("{after} of {steps} steps"), || async {
            let done = done.load(Ordering::Relaxed);
            ensure!(done >= after, "{done} are done");
            Ok(())
        })
        .await?;
        // No condition is awaited here: the moment is to be any.
        tokio::time::sleep(Duration::from_millis(chance.below(MOMENT_MS))).await;
        operator.kill();
        // It is dead for sure: nobody needs to wait until its lease runs out.
        let leases: Api<Lease> = Api::namespaced(tenant.client.clone(), OPERATOR_NAMESPACE);
        let _ = leases.delete(NAME, &DeleteParams::default()).await;
        operator = world.spawn_operator(&[&format!("--controller-name={NAME}")])?;
    }
    operator.await_ready(SOON).await?;
    Ok(operator)
}

/// Waits until of those that stay exactly `ROOM` are Ready, and each other one is told that there is no room.
async fn admitted(tenant: &Tenant<'_>, left: &BTreeSet<usize>, room: usize) -> Result<BTreeSet<usize>> {
    let api = tenant.api(Kind::Address);
    eventually(SOON * 3, "as many as there is room for are Ready", || async {
        let mut missing: BTreeMap<String, usize> = left.iter().map(|number| (name(*number), *number)).collect();
        let mut admitted = BTreeSet::new();
        for address in api.list(&ListParams::default()).await?.items {
            let address = serde_json::to_value(address)?;
            let name = address["metadata"]["name"].as_str().unwrap_or_default();
            let number =
                missing.remove(name).with_context(|| format!("{name} is still there: {}", address["status"]))?;
            let ready = condition(&address, "Ready").with_context(|| format!("{name} is told nothing"))?;
            if ready["reason"] == "QuotaExceeded" {
                continue;
            }
            is_ready(&address).with_context(|| format!("{name}: {}", address["status"]))?;
            ensure!(address["status"]["plan"] == "small", "{name} has plan {}", address["status"]["plan"]);
            admitted.insert(number);
        }
        ensure!(missing.is_empty(), "missing: {missing:?}");
        ensure!(admitted.len() == room, "{} have room", admitted.len());
        Ok(admitted)
    })
    .await
}

/// Broker and routers hold these, and nothing else of this tenant.
async fn agreement(tenant: &Tenant<'_>, routers: [&Routed; 2], numbers: &BTreeSet<usize>) -> Result<()> {
    let called = |number: &usize| tenant.name(&name(*number));
    let queues: BTreeSet<String> = numbers.iter().filter(|number| is_queue(**number)).map(called).collect();
    let found = Observer::of(&tenant.world.broker).await?.queues(&tenant.name("")).await?;
    let found: BTreeSet<String> = found.into_keys().collect();
    ensure!(found == queues, "queues differ: {:?}", found.symmetric_difference(&queues).collect::<Vec<_>>());
    let all: BTreeSet<String> = numbers.iter().map(called).collect();
    for routed in routers {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_among_two_thousand_changes_leaves_exactly_what_was_asked_for() -> Result<()> {
    let seed = seed();
    killed(seed).await.with_context(|| format!("WAYSTATION_SEED={seed}"))
}

async fn killed(seed: u64) -> Result<()> {
    let world = World::shared().await?;
    let (first, second) = tokio::try_join!(Routed::start(), Routed::start())?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let operator = world.operator(NAME, &[]).await?;
    routed_plane(&tenant, &[("broker", &world.broker)], &[("r1", &first), ("r2", &second)]).await?;
    let plans = |room: usize| {
        json!({"spec": {"messaging": {
            "addressPlans": [{"name": "small", "addressTypes": ["queue", "anycast"], "routerCredit": 0.001, "brokerCredit": 0.001}],
            "spacePlans": [{"name": "team", "limits": {"addresses": room}}],
        }}})
    };
    tenant.change(Kind::RouterConfig, CONFIG, plans(ROOM)).await?;
    tenant.change(Kind::AddressSpace, SPACE, json!({"spec": {"plan": "team"}})).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;

    let (steps, done) = (steps(), AtomicUsize::new(0));
    let changes = carry_out(&tenant, &steps, &done);
    let (mut operator, ()) = tokio::try_join!(kill(&tenant, operator, &done, steps.len(), seed), changes)?;
    let left: BTreeSet<usize> = (0..CREATED).filter(|number| !goes(*number)).collect();
    let have_room = admitted(&tenant, &left, ROOM).await?;
    agreement(&tenant, [&first, &second], &have_room).await?;

    // Who has room keeps it: another life comes to the same, and writes nothing.
    let mark = tenant.mark().await?;
    operator.kill();
    let _operator = world.operator(NAME, &[]).await?;
    let more = plans(ROOM + 1);
    tenant.change(Kind::RouterConfig, CONFIG, more).await?;
    let one_more = admitted(&tenant, &left, ROOM + 1).await?;
    ensure!(one_more.is_superset(&have_room), "{:?} lost its room", have_room.difference(&one_more).next());
    let touched: BTreeSet<String> = tenant.address_writes(mark).await?.into_iter().map(|write| write.name).collect();
    let had = have_room.iter().map(|number| name(*number)).find(|name| touched.contains(name));
    ensure!(had.is_none(), "{had:?} had room and was written");
    // And with room for all, all of them are there.
    tenant.change(Kind::RouterConfig, CONFIG, plans(CREATED)).await?;
    admitted(&tenant, &left, left.len()).await?;
    agreement(&tenant, [&first, &second], &left).await
}
