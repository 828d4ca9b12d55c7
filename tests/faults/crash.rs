//! The operator is killed (SIGKILL) again and again while addresses are made, changed and deleted.
//!
//! A seed decides what is done in which order and when it is killed; the machine decides the rest. `WAYSTATION_SEED`
//! gives a seed; a failure names the one it had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Map, Value, json};
use waystation_kit::operator::NAMESPACE as OPERATOR_NAMESPACE;
use waystation_kit::process::eventually;

use crate::observer::{Observer, QueueRow, metric, send, take};
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World, is_ready};

const ADDRESSES: usize = 500;
const KILLS: usize = 12;
const UNTOUCHED: usize = 20;
const STORED: [&str; 5] = ["one", "two", "three", "four", "five"];
const NAME: &str = "crash";
const SPACES: [&str; 3] = [SPACE, "pantry", "attic"];

/// Repeatable chance: SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Less than `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// One address of the plan.
#[derive(Clone)]
struct Planned {
    name: String,
    space: &'static str,
    spec: Value,
    change: Option<Value>,
    deleted: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Create(usize),
    Change(usize),
    Delete(usize),
}

/// Ten at a time, which refer to each other: five queues, an anycast, a multicast, a topic, its subscription, a dead
/// letter of some queues.
fn plan(chance: &mut Chance) -> (Vec<Planned>, Vec<Step>) {
    let mut all = Vec::with_capacity(ADDRESSES);
    for ten in 0..ADDRESSES / 10 {
        let space = SPACES[chance.below(SPACES.len())];
        let name = |what: &str| format!("{what}-{ten}");
        // Who refers to something goes with it: what waits for others for ever is another test.
        let (topic_goes, dead_goes) = (chance.below(3) == 0, chance.below(3) == 0);
        let mut add = |what: &str, spec: Value, change: Option<Value>, deleted: bool| {
            let mut spec = spec;
            spec["addressSpace"] = space.into();
            all.push(Planned { name: name(what), space, spec, change, deleted });
        };
        add("dead", json!({"type": "deadLetter"}), None, dead_goes);
        add("topic", json!({"type": "topic"}), Some(json!({"redelivery": {"maxAttempts": 5}})), topic_goes);
        add("sub", json!({"type": "subscription", "topic": name("topic")}), None, topic_goes);
        let limited = json!({"type": "queue", "maxSizeBytes": 1_000_000, "fullPolicy": "Fail"});
        add("limited", limited, Some(json!({"maxSizeBytes": 2_000_000})), chance.below(3) == 0);
        let aside = json!({"type": "queue", "deadLetterAddress": name("dead")});
        add("aside", aside.clone(), None, dead_goes);
        let (change, goes) = (json!({"deadLetterAddress": null}), dead_goes || chance.below(2) == 0);
        add("unsided", aside, Some(change), goes);
        let ttl = json!({"type": "queue", "messageTtl": {"maximum": "1h"}});
        add("ttl", ttl, Some(json!({"messageTtl": {"maximum": "2h", "minimum": "1m"}})), chance.below(3) == 0);
        add("plain", json!({"type": "queue"}), Some(json!({"redelivery": {"maxAttempts": 4}})), chance.below(3) == 0);
        add("anycast", json!({"type": "anycast"}), None, chance.below(3) == 0);
        add("multicast", json!({"type": "multicast"}), None, chance.below(3) == 0);
    }
    // In the order of creation, with everything else somewhere behind its creation.
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for (index, planned) in all.iter_mut().enumerate() {
        if chance.below(4) == 0 {
            planned.change = None;
        }
        let place = index * 1_000;
        steps.push((place, Step::Create(index)));
        let changed = place + 1 + chance.below(150_000);
        if planned.change.is_some() {
            steps.push((changed, Step::Change(index)));
        }
        if planned.deleted {
            steps.push((changed + 1 + chance.below(150_000), Step::Delete(index)));
        }
    }
    steps.sort_by_key(|(place, _)| *place);
    (all, steps.into_iter().map(|(_, step)| step).collect())
}

async fn carry_out(tenant: &Tenant<'_>, all: &[Planned], step: Step) -> Result<()> {
    match step {
        Step::Create(index) => tenant.create(Kind::Address, &all[index].name, all[index].spec.clone()).await,
        Step::Change(index) => {
            let change = all[index].change.clone().context("nothing to change")?;
            tenant.change(Kind::Address, &all[index].name, json!({ "spec": change })).await
        }
        Step::Delete(index) => tenant.delete(Kind::Address, &all[index].name).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_at_any_moment_leaves_exactly_what_was_asked_for() -> Result<()> {
    let given = std::env::var("WAYSTATION_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = match given {
        Some(seed) => seed,
        None => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    run(Chance(seed)).await.with_context(|| format!("WAYSTATION_SEED={seed}"))
}

async fn run(mut chance: Chance) -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant(NAME).await?.driven_by(NAME);
    let operator = world.operator(NAME, &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for space in &SPACES[1..] {
        tenant.space(space, CONFIG).await?;
    }
    tenant.ready(Kind::AddressSpace, &SPACES).await?;
    let untouched: Vec<String> = (0..UNTOUCHED).map(|number| format!("untouched-{number}")).collect();
    for name in &untouched {
        tenant.address(name, json!({"type": "queue"})).await?;
    }
    for name in &untouched {
        tenant.ready(Kind::Address, &[name]).await?;
        send(&world.broker, &tenant.name(name), &STORED).await?;
    }

    let (all, steps) = plan(&mut chance);
    let mut running = Some(operator);
    for part in steps.chunks(steps.len().div_ceil(KILLS)) {
        let mut operator = match running.take() {
            Some(operator) => operator,
            None => world.spawn_operator(&[&format!("--controller-name={NAME}")])?,
        };
        // Most often it leads when it is killed; sometimes it is killed on the way there.
        if chance.below(4) > 0 {
            metric(&operator, "waystation_leading", |value| value == 1.0).await?;
        }
        let (last, later) = (chance.below(part.len()), Duration::from_millis(chance.next() % 300));
        for step in &part[..last] {
            carry_out(&tenant, &all, *step).await?;
        }
        // No condition is awaited here: the moment is to be any.
        tokio::time::sleep(later).await;
        operator.kill();
        for step in &part[last..] {
            carry_out(&tenant, &all, *step).await?;
        }
        // It is dead for sure: nobody needs to wait until its lease runs out.
        let leases: Api<Lease> = Api::namespaced(tenant.client.clone(), OPERATOR_NAMESPACE);
        let _ = leases.delete(NAME, &DeleteParams::default()).await;
    }
    let _operator = world.operator(NAME, &[]).await?;

    let left: BTreeMap<&str, &Planned> =
        all.iter().filter(|planned| !planned.deleted).map(|planned| (planned.name.as_str(), planned)).collect();
    settled(&tenant, &left, &untouched).await?;
    agreement(&tenant, &all, &left, &untouched).await?;
    for name in &untouched {
        take(&world.broker, &tenant.name(name), &STORED).await?;
    }
    Ok(())
}

/// Waits until the API server has what is left of the plan, all of it Ready, and nothing else.
async fn settled(tenant: &Tenant<'_>, left: &BTreeMap<&str, &Planned>, untouched: &[String]) -> Result<()> {
    let api = tenant.api(Kind::Address);
    eventually(SOON * 3, "all that is left is Ready, and the rest is gone", || async {
        let mut missing: BTreeSet<&str> = left.keys().copied().chain(untouched.iter().map(String::as_str)).collect();
        for address in api.list(&ListParams::default()).await?.items {
            let address = serde_json::to_value(address)?;
            let name = address["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(missing.remove(name), "{name} is still there: {}", address["status"]);
            is_ready(&address).with_context(|| format!("{name}: {}", address["status"]))?;
        }
        ensure!(missing.is_empty(), "missing: {missing:?}");
        Ok(())
    })
    .await
}

/// The broker holds exactly that: queues, addresses and settings.
async fn agreement(
    tenant: &Tenant<'_>,
    all: &[Planned],
    left: &BTreeMap<&str, &Planned>,
    untouched: &[String],
) -> Result<()> {
    let on_broker = |space: &str, name: &str| format!("{}.{space}/{name}", tenant.namespace);
    let owner = tenant.get(Kind::RouterConfig, CONFIG).await?["status"]["owner"].clone();
    let user = format!("waystation:{}", owner.as_str().context("no owner")?);
    let (mut queues, mut addresses) = (BTreeMap::new(), BTreeSet::new());
    for planned in left.values() {
        let name = on_broker(planned.space, &planned.name);
        let kind = planned.spec["type"].as_str().unwrap_or_default();
        let address = match planned.spec["topic"].as_str() {
            Some(topic) => on_broker(planned.space, topic),
            None => name.clone(),
        };
        addresses.insert(address.clone());
        if matches!(kind, "topic" | "multicast") {
            continue;
        }
        let routing = if kind == "subscription" { "MULTICAST" } else { "ANYCAST" }.to_owned();
        let durable = kind != "anycast";
        queues.insert(name, QueueRow { address, routing, durable, messages: 0, user: user.clone() });
    }
    for name in untouched {
        let name = tenant.name(name);
        addresses.insert(name.clone());
        let messages = STORED.len().try_into()?;
        let row = QueueRow {
            address: name.clone(),
            routing: "ANYCAST".to_owned(),
            durable: true,
            messages,
            user: user.clone(),
        };
        queues.insert(name, row);
    }

    let prefix = format!("{}.", tenant.namespace);
    let mut observer = Observer::of(&tenant.world.broker).await?;
    let found = observer.queues(&prefix).await?;
    let differ: Vec<_> = found.iter().filter(|(name, row)| queues.get(*name) != Some(row)).collect();
    ensure!(differ.is_empty(), "queues that should not be there, or not so: {differ:?}");
    let missing: Vec<_> = queues.keys().filter(|name| !found.contains_key(*name)).collect();
    ensure!(missing.is_empty(), "queues that should be there: {missing:?}");
    let found = observer.addresses(&prefix).await?;
    ensure!(found == addresses, "addresses differ: {:?}", found.symmetric_difference(&addresses).collect::<Vec<_>>());

    for planned in all {
        // What a name without settings of its own has in this space: also what a deleted one must have.
        let mut wanted = observer.settings(&on_broker(planned.space, "never-was")).await?;
        ensure!(wanted["autoCreateQueues"] == false, "a space without settings: {wanted:?}");
        if !planned.deleted {
            wanted.extend(settings(planned, &on_broker)?);
        }
        let found = observer.settings(&on_broker(planned.space, &planned.name)).await?;
        for (key, value) in &wanted {
            let got = found.get(key).unwrap_or(&Value::Null);
            ensure!(
                got == value || got.as_f64().is_some_and(|got| Some(got) == value.as_f64()),
                "{}: {key} is {got} and not {value}",
                planned.name
            );
        }
    }
    Ok(())
}

/// The settings that an address asks for, in the broker's keys.
fn settings(planned: &Planned, on_broker: &impl Fn(&str, &str) -> String) -> Result<Map<String, Value>> {
    let mut spec = planned.spec.clone();
    let changes = planned.change.as_ref().and_then(Value::as_object);
    for (key, value) in changes.into_iter().flatten() {
        spec[key] = value.clone();
    }
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            keys.insert(key.to_owned(), value);
        }
    };
    put("maxDeliveryAttempts", spec["redelivery"]["maxAttempts"].clone());
    put("maxSizeBytes", spec["maxSizeBytes"].clone());
    // A broker takes no limit below its page size.
    put("pageSizeBytes", spec["maxSizeBytes"].clone());
    if spec["fullPolicy"] == "Fail" {
        put("addressFullMessagePolicy", "FAIL".into());
    }
    if spec["type"] == "deadLetter" {
        put("addressFullMessagePolicy", "PAGE".into());
    }
    if let Some(dead) = spec["deadLetterAddress"].as_str() {
        put("deadLetterAddress", on_broker(planned.space, dead).into());
    }
    let millis = |text: &Value| match text.as_str() {
        Some("1h") => json!(3_600_000),
        Some("2h") => json!(7_200_000),
        Some("1m") => json!(60_000),
        _ => Value::Null,
    };
    put("maxExpiryDelay", millis(&spec["messageTtl"]["maximum"]));
    put("minExpiryDelay", millis(&spec["messageTtl"]["minimum"]));
    Ok(keys)
}
