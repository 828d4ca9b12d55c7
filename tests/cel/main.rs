//! The rules of the custom resources and the admission policy, on a real API server: each rule with an object that
//! passes and one that is refused, with a message that says what to do.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod columns;
mod creation;
mod edges;
mod plans;
mod policy;
mod remotes;

use std::collections::BTreeSet;

use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use waystation::api::{Address, AddressSpace, RouterConfig, crds};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::tools::repository;

const NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Address,
    AddressSpace,
    RouterConfig,
}
use Kind::{Address as A, AddressSpace as S, RouterConfig as R};

impl Kind {
    /// A spec that passes, to lay something over.
    fn base(self) -> Value {
        match self {
            A => json!({"addressSpace": "shop", "type": "queue"}),
            S => json!({"routerConfigRef": {"name": "brokers"}, "type": "brokered"}),
            R => json!({"messaging": {"brokers": {"external": {"hosts": [{"host": "b.example", "port": 5672}]}}}}),
        }
    }

    fn api(self, client: &Client) -> Api<DynamicObject> {
        let resource = match self {
            A => Address::api_resource(),
            S => AddressSpace::api_resource(),
            R => RouterConfig::api_resource(),
        };
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }

    /// An object with the overlay merged over the base; a null takes a field away.
    fn object(self, name: &str, overlay: &Value) -> DynamicObject {
        let mut spec = self.base();
        merge(&mut spec, overlay);
        serde_json::from_value(json!({
            "apiVersion": "waystation.dev/v1alpha1",
            "kind": format!("{self:?}"),
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }))
        .unwrap()
    }
}

/// A JSON merge patch.
fn merge(target: &mut Value, overlay: &Value) {
    let (Value::Object(target), Value::Object(overlay)) = (&mut *target, overlay) else {
        *target = overlay.clone();
        return;
    };
    for (name, value) in overlay {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name).or_insert(json!({})), value);
        }
    }
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// A cluster with the definitions that the types give, and what the admission policy needs.
async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start(ClusterOptions { audit: false, ..ClusterOptions::default() }).await.unwrap();
    cluster.apply_dir(&repository().join("crds")).await.unwrap();
    let names = crds::all().unwrap();
    let names: Vec<String> = names.iter().map(ResourceExt::name_any).collect();
    cluster.await_crds(&names.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
    let client = cluster.admin_client().await.unwrap();
    (cluster, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_holds_every_rule() {
    let (cluster, client) = start().await;
    let (mut wrong, mut said) = creation::run(&client).await;
    let (more_wrong, more_said) = changes::run(&client).await;
    wrong.extend(more_wrong);
    said.extend(more_said);
    said.insert(changes::type_of_a_space_is_immutable());
    for message in messages() {
        if !said.contains(&message) {
            wrong.push(format!("no object was refused with: {message}"));
        }
    }
    wrong.extend(columns::run(&cluster, &client).await);
    wrong.extend(policy::run(&cluster, &client).await);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The messages of all rules of all kinds.
fn messages() -> BTreeSet<String> {
    fn collect(value: &Value, messages: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (name, below) in object {
                    if name == "x-kubernetes-validations" {
                        let rules = below.as_array().into_iter().flatten();
                        messages.extend(rules.filter_map(|rule| rule["message"].as_str()).map(str::to_owned));
                    } else {
                        collect(below, messages);
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|below| collect(below, messages)),
            _ => {}
        }
    }
    let mut messages = BTreeSet::new();
    collect(&serde_json::to_value(crds::all().unwrap()).unwrap(), &mut messages);
    assert!(messages.len() > 30, "{messages:?}");
    messages
}
