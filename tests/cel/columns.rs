//! What `kubectl get` prints of objects with a status, and that the API server takes the statuses of the Rust types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use waystation::api::address::{AddressBroker, AddressBrokerState};
use waystation::api::address_space::{AddressCount, Endpoint};
use waystation::api::router_config::{TargetState, TargetStatus};
use waystation::api::settings::{MessageTtl, Redelivery};
use waystation::api::{
    Address, AddressReason, AddressSpace, AddressSpaceReason, AddressSpaceStatus, AddressStatus, DurationText,
    RouterConfig, RouterConfigReason, RouterConfigStatus, conditions, set_condition,
};
use waystation_kit::cluster::{Cluster, cells};
use waystation_kit::tools::repository;

const NAMESPACE: &str = "demo";

/// What is printed, cell by cell: `-` is an empty one, `<age>` an age.
const PRINTED: &[(&[&str], &str)] = &[
    (
        &["addr", "-o", "wide"],
        "NAME | ADDRESS | TYPE | PLAN | READY | REASON | AGE | MESSAGE
alerts | - | multicast | - | - | - | <age> | -
archive | - | subscription | - | - | - | <age> | -
dead-letters | - | deadLetter | - | - | - | <age> | -
news | - | topic | - | - | - | <age> | -
orders | orders | queue | - | False | BrokerRefused | <age> | no: words of the broker
price-requests | - | anycast | - | - | - | <age> | -",
    ),
    (
        &["addr", "orders"],
        "NAME | ADDRESS | TYPE | READY | REASON | AGE
orders | orders | queue | False | BrokerRefused | <age>",
    ),
    (
        &["aspace"],
        "NAME | TYPE | READY | ADDRESSES | REASON | AGE
shop | brokered | True | 9998/10000 | Serving | <age>",
    ),
    (
        &["rcfg"],
        "NAME | KIND | READY | ROUTERS | BROKERS | EDGES | REASON | AGE
main | Messaging | False | 2/2 | 1/2 | 0/1 | BrokerUnreachable | <age>",
    ),
];

/// Applies the example, gives its objects a status, and reads them as people do; gives what went wrong.
pub async fn run(cluster: &Cluster, client: &Client) -> Vec<String> {
    cluster.apply_dir(&repository().join("docs/examples/messaging.yaml")).await.unwrap();
    let mut wrong = Vec::new();
    wrong.extend(round_trip::<Address, _>(client, "orders", address_status(), |a| a.status).await);
    wrong.extend(round_trip::<AddressSpace, _>(client, "shop", space_status(), |s| s.status).await);
    wrong.extend(round_trip::<RouterConfig, _>(client, "main", config_status(), |c| c.status).await);

    for (arguments, expected) in PRINTED {
        let arguments = [&["get", "-n", NAMESPACE], *arguments].concat();
        let printed = cluster.kubectl_text(&arguments).await.unwrap();
        let printed = cells(&printed);
        if printed != *expected {
            wrong.push(format!("kubectl {}\nprinted:\n{printed}\nexpected:\n{expected}", arguments.join(" ")));
        }
    }
    let selected =
        ["get", "addr", "-n", NAMESPACE, "-o", "name", "--field-selector", "spec.addressSpace=shop,spec.type=topic"];
    let selected = cluster.kubectl_text(&selected).await.unwrap();
    if selected.trim() != "address.waystation.dev/news" {
        wrong.push(format!("selected by field: {selected:?}"));
    }
    let explained = cluster.kubectl_text(&["explain", "addr.spec.messageTtl.maximum"]).await.unwrap();
    if !explained.contains("such as 24h") {
        wrong.push(format!("kubectl explain: {explained}"));
    }
    wrong
}

/// Writes a status as the operator does, and expects it back as it was.
async fn round_trip<K, T>(client: &Client, name: &str, status: T, of: fn(K) -> Option<T>) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
    T: Serialize + PartialEq + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "status": status});
    match api.patch_status(name, &PatchParams::apply("test").force(), &Patch::Apply(&patch)).await {
        Ok(object) => {
            let name = object.name_any();
            let back = of(object);
            if back.as_ref() == Some(&status) {
                vec![]
            } else {
                vec![format!("{name}: {status:?} came back as {back:?}")]
            }
        }
        Err(error) => vec![format!("{name}: {error}")],
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn address_status() -> AddressStatus {
    let mut status = AddressStatus {
        observed_generation: Some(1),
        address: Some("orders".into()),
        brokers: vec![AddressBroker { name: "broker".into(), state: AddressBrokerState::Active }],
        // No rule stands in the operator's way: this window could not be asked for.
        message_ttl: Some(MessageTtl {
            minimum: Some(DurationText("2h".into())),
            maximum: Some(DurationText("1h".into())),
        }),
        redelivery: Some(Redelivery { max_attempts: Some(-1), delay_multiplier: Some(1.5), ..Redelivery::default() }),
        ..AddressStatus::default()
    };
    let list = &mut status.conditions;
    set_condition(list, conditions::ACCEPTED, true.into(), AddressReason::Accepted.as_str(), "", 1, now());
    let message = "no: words of the broker";
    set_condition(list, conditions::READY, false.into(), AddressReason::BrokerRefused.as_str(), message, 1, now());
    status
}

fn space_status() -> AddressSpaceStatus {
    let mut status = AddressSpaceStatus {
        observed_generation: Some(1),
        addresses: Some(AddressCount { total: 10_000, ready: 9_998 }),
        summary: Some("9998/10000".into()),
        address_prefix: Some("demo.shop/".into()),
        broker: Some("broker".into()),
        endpoints: vec![Endpoint {
            name: "broker".into(),
            host: Some("127.0.0.1".into()),
            port: Some(5672),
            ca_certificate: None,
            message: None,
        }],
        ..AddressSpaceStatus::default()
    };
    let reason = AddressSpaceReason::Serving.as_str();
    set_condition(&mut status.conditions, conditions::READY, true.into(), reason, "", 1, now());
    status
}

fn config_status() -> RouterConfigStatus {
    let broker = |name: &str, state, message: &str| TargetStatus {
        name: name.into(),
        state,
        message: message.into(),
        since: Some(Time(now())),
    };
    let mut status = RouterConfigStatus {
        observed_generation: Some(1),
        kind: Some("Messaging".into()),
        owner: Some("a1b2c3".into()),
        brokers_summary: Some("1/2".into()),
        brokers: vec![
            broker("broker", TargetState::Serving, ""),
            broker("b2.example:5672", TargetState::Unreachable, "connection refused"),
        ],
        routers_summary: Some("2/2".into()),
        routers: ["r1", "r2"].map(|name| broker(name, TargetState::Serving, "")).to_vec(),
        edges_summary: Some("0/1".into()),
        edges: vec![broker("edge-0", TargetState::Filling, "")],
        orphans: Some(3),
        orphans_pruned: Some("2026-01-01".into()),
        resynced: Some("1".into()),
        ..RouterConfigStatus::default()
    };
    let reason = RouterConfigReason::BrokerUnreachable.as_str();
    set_condition(&mut status.conditions, conditions::READY, false.into(), reason, "b2.example:5672", 1, now());
    status
}
