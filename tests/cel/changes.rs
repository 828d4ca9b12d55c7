//! What may be changed: each immutable field as set → changed, absent → set, set → absent.

use std::collections::BTreeSet;

use kube::api::{DeleteParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use waystation::api::AddressSpace;
use waystation::api::address_space::AddressSpaceType;

use super::{A, Kind, R, S, dry_run};

/// From one spec to another; `says` is why not.
struct Change {
    kind: Kind,
    from: Value,
    to: Value,
    says: Option<&'static str>,
}

fn changes() -> Vec<Change> {
    let mut changes = Vec::new();
    let mut add =
        |kind, from: Value, to: Value, says: Option<&'static str>| changes.push(Change { kind, from, to, says });

    let says = Some("spec.addressSpace is immutable: delete this Address and create another");
    add(A, json!({"addressSpace": "a"}), json!({"addressSpace": "b"}), says);
    let says = Some("spec.address is immutable: delete this Address and create another");
    add(A, json!({"address": "a"}), json!({"address": "b"}), says);
    add(A, json!({}), json!({"address": "b"}), says);
    add(A, json!({"address": "a"}), json!({}), says);
    let says = Some("spec.type is immutable: delete this Address and create another");
    add(A, json!({"type": "queue"}), json!({"type": "topic"}), says);
    let says = Some("spec.topic is immutable: delete this Address and create another");
    let subscription = |topic: &str| json!({"type": "subscription", "topic": topic});
    add(A, subscription("a"), subscription("b"), says);
    add(A, json!({}), json!({"topic": "a"}), says);
    add(A, subscription("a"), json!({"type": "subscription"}), says);
    // Everything else of an Address may come, change and go.
    let full = json!({
        "deadLetterAddress": "dead", "expiryAddress": "dead", "messageTtl": {"minimum": "1s", "maximum": "1h"},
        "redelivery": {"maxAttempts": 3, "delay": "1s", "delayMultiplier": 2, "maxDelay": "8s"},
        "maxSizeBytes": 1_000_000, "fullPolicy": "Fail", "deletionPolicy": "WhenEmpty",
    });
    let other = json!({
        "deadLetterAddress": "d2", "expiryAddress": "d3", "messageTtl": {"maximum": "2h"},
        "redelivery": {"maxAttempts": -1}, "maxSizeBytes": 2_000_000, "fullPolicy": "Block", "deletionPolicy": "Delete",
    });
    add(A, json!({}), full.clone(), None);
    add(A, full.clone(), other, None);
    add(A, full, json!({}), None);
    let consumers = |n: u32| json!({"type": "subscription", "topic": "a", "subscription": {"maxConsumers": n}});
    add(A, subscription("a"), consumers(2), None);
    add(A, consumers(2), consumers(3), None);
    add(A, consumers(2), subscription("a"), None);
    for kind in [A, S] {
        add(kind, json!({}), json!({"plan": "small"}), None);
        add(kind, json!({"plan": "small"}), json!({"plan": "large"}), None);
        add(kind, json!({"plan": "small"}), json!({}), None);
    }

    let says = Some("spec.routerConfigRef is immutable: delete this AddressSpace and create another");
    let reference =
        |name: &str, namespace: Option<&str>| json!({"routerConfigRef": {"name": name, "namespace": namespace}});
    add(S, reference("a", None), reference("b", None), says);
    add(S, reference("a", None), reference("a", Some("x")), says);
    add(S, reference("a", Some("x")), reference("a", Some("y")), says);
    add(S, reference("a", Some("x")), reference("a", None), says);
    add(S, reference("a", Some("x")), reference("a", Some("x")), None);

    let says = Some("spec.controllerName is immutable: delete this RouterConfig and create another");
    add(R, json!({"controllerName": "a"}), json!({"controllerName": "b"}), says);
    add(R, json!({}), json!({"controllerName": "b"}), says);
    add(R, json!({"controllerName": "a"}), json!({}), says);
    // Absent is the default.
    add(R, json!({}), json!({"controllerName": "waystation"}), None);
    let says = Some("messaging.tenancy is immutable: delete this RouterConfig and create another");
    let tenancy = |value: &str| json!({"messaging": {"tenancy": value}});
    add(R, tenancy("Shared"), tenancy("Single"), says);
    add(R, json!({}), tenancy("Single"), says);
    add(R, tenancy("Single"), json!({}), says);
    add(R, tenancy("Shared"), json!({}), None);
    let says = Some("messaging.owner is immutable: delete this RouterConfig and create another");
    let owner = |value: &str| json!({"messaging": {"owner": value}});
    add(R, owner("a"), owner("b"), says);
    add(R, json!({}), owner("a"), says);
    add(R, owner("a"), json!({}), says);
    // The way round by leaving the whole half out is closed, too.
    add(R, owner("a"), json!({"messaging": null}), Some("a RouterConfig is one data plane"));
    let says = Some("what a RouterConfig is for is immutable: delete this RouterConfig and create another");
    add(R, json!({}), json!({"messaging": null, "edge": {}}), says);
    add(R, json!({"messaging": null, "edge": {}}), json!({}), says);
    add(
        R,
        json!({"messaging": null, "edge": {}}),
        json!({"messaging": null, "edge": {"listeners": {"http": 8080}}}),
        None,
    );
    let external = |value: Value| json!({"messaging": {"brokers": {"external": value}}});
    let more = json!({"hosts": [{"host": "c", "port": 1, "name": "c"}], "tls": {"secretName": "t"}, "credentials": {"secretName": "c"}});
    add(R, json!({}), external(more.clone()), None);
    add(
        R,
        external(more),
        json!({"allowedNamespaces": {"from": "All"}, "messaging": {"defaults": {"fullPolicy": "Page"}}}),
        None,
    );
    changes
}

/// Tries all of it; gives what went wrong, and what was said to those that were refused.
pub async fn run(client: &Client) -> (Vec<String>, BTreeSet<String>) {
    let (mut wrong, mut said) = (Vec::new(), BTreeSet::new());
    for (number, change) in changes().into_iter().enumerate() {
        let (api, name) = (change.kind.api(client), format!("change-{number}"));
        let line = format!("{:?} {} → {}", change.kind, change.from, change.to);
        let mut object = change.kind.object(&name, &change.to);
        match api.create(&PostParams::default(), &change.kind.object(&name, &change.from)).await {
            Ok(made) => object.metadata = made.metadata,
            Err(error) => {
                wrong.push(format!("{line}: cannot be made: {error}"));
                continue;
            }
        }
        match (api.replace(&name, &dry_run(), &object).await, change.says) {
            (Ok(_), None) => {}
            (Err(Error::Api(status)), Some(says)) if status.message.contains(says) => {
                said.insert(says.to_owned());
            }
            (other, says) => wrong.push(format!("{line}: should be {says:?}: {other:?}")),
        }
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    (wrong, said)
}

/// A space has one type so far, so that no API server can see it change: the rule is evaluated here.
pub fn type_of_a_space_is_immutable() -> String {
    let object = |type_| {
        let mut space: AddressSpace = serde_json::from_value(json!({
            "apiVersion": "waystation.dev/v1alpha1", "kind": "AddressSpace", "metadata": {"name": "a"}, "spec": S.base(),
        }))
        .unwrap();
        space.spec.type_ = type_;
        space
    };
    let (old, new) = (object(AddressSpaceType::Unknown), object(AddressSpaceType::Brokered));
    kube::core::cel::validate_cel_update(&new, &new).unwrap();
    let says = "spec.type is immutable: delete this AddressSpace and create another";
    let error = kube::core::cel::validate_cel_update(&new, &old).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    says.to_owned()
}
