//! What one tenant does wrong is told to that tenant, and costs no neighbour anything.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::{TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;

use crate::observer::Observer;
use crate::plane::{Routed, routed_plane, texts};
use crate::support::{CONFIG, Kind, SOON, SPACE, Tenant, World, arrived, condition};

/// Addresses that all want the same name.
const TWINS: usize = 1_000;

/// Names that no address may have, with a word of what the refusal says.
const IMPOSSIBLE: [(&str, &str); 8] = [
    ("a\u{0}b", "spec.address"),
    ("a\nb", "no control characters"),
    ("a\u{202e}b", "none that cannot be seen"),
    ("a b", "no whitespace"),
    ("$management", "does not start with"),
    ("a::b", "'::'"),
    ("everything.#", "wildcards"),
    ("a..b", "beside another"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_tenant_does_wrong_hurts_no_neighbour() -> Result<()> {
    let world = World::shared().await?;
    let routed = Routed::start().await?;
    let good = world.tenant("routed-good").await?;
    routed_plane(&good, &[("broker", &world.broker)], &[("r1", &routed)]).await?;
    let open = json!({"spec": {
        "allowedNamespaces": {"from": "All"},
        "messaging": {
            "addressPlans": [{"name": "small", "addressTypes": ["queue", "topic", "subscription", "anycast", "multicast", "deadLetter"]}],
            "spacePlans": [{"name": "team", "addressPlans": ["small"]}],
        },
    }});
    good.change(Kind::AddressSpace, SPACE, json!({"spec": {"plan": "team"}})).await?;
    good.change(Kind::RouterConfig, CONFIG, open).await?;
    good.ready(Kind::AddressSpace, &[SPACE]).await?;
    good.ready_address("orders", json!({"type": "queue", "plan": "small"})).await?;
    let mut client = routed.router.client().await?;
    client.send_text(&good.name("orders"), "kept").await?;

    let bad = world.tenant("routed-bad").await?;
    let reference = json!({"name": CONFIG, "namespace": good.namespace});
    let space = |plan: &str| json!({"type": "standard", "plan": plan, "routerConfigRef": reference});
    bad.create(Kind::AddressSpace, SPACE, space("team")).await?;
    bad.create(Kind::AddressSpace, "planless", space("no-such-plan")).await?;
    bad.reason(Kind::AddressSpace, "planless", "PlanNotFound").await?;

    let mark = good.mark().await?;
    twins(&bad).await?;
    never_made(&bad).await?;
    references(&bad).await?;
    let longest = longest(&bad).await?;

    // The neighbour meanwhile: nothing is written but what it asks for itself.
    good.ready_address("fresh", json!({"type": "queue", "plan": "small"})).await?;
    arrived(&client.receive(&good.name("orders"), 1, SOON).await?, &["kept"])?;
    client.send_text(&good.name("fresh"), "works").await?;
    arrived(&client.receive(&good.name("fresh"), 1, SOON).await?, &["works"])?;
    let written = good.address_writes(mark).await?;
    let of_others: Vec<_> = written.iter().filter(|write| write.name != "fresh").collect();
    ensure!(of_others.is_empty(), "{of_others:?}");
    for name in &longest {
        client.send_text(&bad.name(name), "far").await?;
        arrived(&client.receive(&bad.name(name), 1, SOON).await?, &["far"])?;
    }

    // One name is on the router once, whoever wanted it.
    let mut names: Vec<String> = patterns(&routed, &bad).await?;
    names.sort();
    let mut expected: Vec<String> =
        longest.iter().map(String::as_str).chain(["dead", "loop", "same"]).map(|name| bad.name(name)).collect();
    expected.sort();
    ensure!(names == expected, "{names:?}");

    // All of it goes in one go.
    let namespaces: Api<Namespace> = Api::all(good.client.clone());
    namespaces.delete(&bad.namespace, &DeleteParams::default()).await?;
    eventually(SOON * 2, "the namespace is gone", || async {
        match namespaces.get_opt(&bad.namespace).await? {
            None => Ok(()),
            Some(left) => Err(anyhow::anyhow!("{:?}", left.status)),
        }
    })
    .await?;
    ensure!(patterns(&routed, &bad).await?.is_empty(), "{:?}", patterns(&routed, &bad).await?);
    let left = Observer::of(&world.broker).await?.addresses(&bad.name("")).await?;
    ensure!(left.is_empty(), "left over on the broker: {left:?}");
    good.ready(Kind::Address, &["orders", "fresh"]).await
}

/// A thousand Addresses of one name: one has it, each of the others names that one.
async fn twins(bad: &Tenant<'_>) -> Result<()> {
    bad.ready_address("same", json!({"type": "queue", "plan": "small"})).await?;
    let twin = json!({"type": "queue", "plan": "small", "address": "same"});
    stream::iter((1..TWINS).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(16, |number| {
            let twin = twin.clone();
            async move { bad.address(&format!("twin-{number}"), twin).await }
        })
        .await?;
    let api = bad.api(Kind::Address);
    eventually(SOON, "each of the others is told", || async {
        let mut told: BTreeMap<String, usize> = BTreeMap::new();
        for address in api.list(&ListParams::default()).await?.items {
            let address = serde_json::to_value(address)?;
            let ready = condition(&address, "Ready").with_context(|| format!("nothing is told yet: {address}"))?;
            *told.entry(ready["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let expected = BTreeMap::from([("Configured".to_owned(), 1), ("DuplicateAddress".to_owned(), TWINS - 1)]);
        ensure!(told == expected, "{told:?}");
        Ok(())
    })
    .await?;
    let told = bad.reason(Kind::Address, "twin-500", "DuplicateAddress").await?;
    ensure!(told.starts_with("Address same (queue) has same in this space already"), "{told}");
    Ok(())
}

/// What the API server refuses is said to whoever asks for it, and never made.
async fn never_made(bad: &Tenant<'_>) -> Result<()> {
    for (address, words) in IMPOSSIBLE {
        let made = bad.address("impossible", json!({"type": "queue", "plan": "small", "address": address})).await;
        let refusal = format!("{:#}", made.err().with_context(|| format!("{address:?} was taken"))?);
        ensure!(refusal.contains(words), "{address:?}: {refusal}");
    }
    let long = "x".repeat(256);
    let made = bad.address("impossible", json!({"type": "queue", "plan": "small", "address": long})).await;
    ensure!(made.is_err(), "256 characters were taken");
    Ok(())
}

/// References to oneself, in a circle, to nothing and to what is of another kind.
async fn references(bad: &Tenant<'_>) -> Result<()> {
    let cases = [
        ("itself", json!({"type": "subscription", "topic": "itself"}), "TopicNotFound"),
        ("this", json!({"type": "subscription", "topic": "that"}), "TopicNotFound"),
        ("that", json!({"type": "subscription", "topic": "this"}), "TopicNotFound"),
        ("planned", json!({"type": "queue", "plan": "no-such-plan"}), "PlanNotFound"),
        ("circle", json!({"type": "queue", "deadLetterAddress": "circle"}), "DeadLetterWrongType"),
    ];
    for (name, mut spec, reason) in cases {
        if spec["plan"].is_null() {
            spec["plan"] = "small".into();
        }
        bad.address(name, spec).await?;
        bad.reason(Kind::Address, name, reason).await.with_context(|| name)?;
    }
    // Where dead letters go to is where they came from: allowed, since a dead letter is never one twice.
    bad.ready_address("dead", json!({"type": "deadLetter", "plan": "small"})).await?;
    let both = json!({"type": "queue", "plan": "small", "deadLetterAddress": "dead", "expiryAddress": "dead"});
    bad.ready_address("loop", both).await
}

/// The longest names that there can be, in characters of one, two and four bytes.
async fn longest(bad: &Tenant<'_>) -> Result<Vec<String>> {
    let names: Vec<String> = ["x", "é", "𝄞"].iter().map(|letter| letter.repeat(255)).collect();
    for (number, name) in names.iter().enumerate() {
        let spec = json!({"type": "queue", "plan": "small", "address": name});
        bad.ready_address(&format!("longest-{number}"), spec).await?;
    }
    Ok(names)
}

/// Names of a tenant on a router.
async fn patterns(routed: &Routed, tenant: &Tenant<'_>) -> Result<Vec<String>> {
    let mut manager = Management::connect(&routed.router).await?;
    let names = texts(&mut manager, "address", "pattern").await?;
    Ok(names.into_keys().filter(|name| name.starts_with(&tenant.name(""))).collect())
}
