//! From YAML as people write it to what the model reads.

use serde_json::{Value, json};

use super::*;

fn address_of(spec: Value) -> Result<Address> {
    let object = json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "Address",
        "metadata": {
            "name": "orders", "namespace": "team", "uid": "u", "generation": 3, "resourceVersion": "77",
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
            "finalizers": ["other", "waystation.dev/address"],
            "annotations": { "waystation.dev/force-delete": "true" },
        },
        "spec": spec,
    });
    address(&serde_json::from_value(object).unwrap(), true)
}

#[test]
fn an_address_keeps_all_that_it_says() {
    let address = address_of(json!({
        "addressSpace": "shop", "type": "queue", "deadLetterAddress": "dead", "expiryAddress": "old",
        "messageTtl": { "minimum": "1s", "maximum": "1h30m" },
        "redelivery": { "maxAttempts": 3, "delay": "500ms", "delayMultiplier": 1.5, "maxDelay": "10s" },
        "maxSizeBytes": 1000, "fullPolicy": "Fail", "deletionPolicy": "WhenEmpty",
    }))
    .unwrap();
    assert_eq!(address.meta.version, 77);
    assert_eq!(address.meta.created_s, 1_767_323_045);
    assert!(address.meta.deleting && address.meta.finalizer && address.meta.force_delete && address.meta.listed);
    assert_eq!((&*address.address, &*address.space), ("orders", "shop"));
    assert_eq!(address.ttl, Ttl { minimum_ms: Some(1_000), maximum_ms: Some(5_400_000) });
    let redelivery = Redelivery {
        max_attempts: Some(3),
        delay_ms: Some(500),
        delay_multiplier: Some(1.5),
        max_delay_ms: Some(10_000),
    };
    assert_eq!(address.redelivery, redelivery);
    assert_eq!((address.full_policy, address.when_empty), (Some(FullPolicy::Fail), true));
}

#[test]
fn values_of_a_later_version_are_not_guessed_at() {
    assert_eq!(
        address_of(json!({ "addressSpace": "shop", "type": "stream" })),
        Err(ConvertError::Unknown { field: "spec.type" })
    );
    let late = json!({ "addressSpace": "shop", "type": "queue", "messageTtl": { "maximum": "soon" } });
    assert!(address_of(late).unwrap_err().to_string().starts_with("messageTtl.maximum: not a duration"));
    // The careful side of the two.
    let kept = address_of(json!({ "addressSpace": "shop", "type": "queue", "deletionPolicy": "Ask" })).unwrap();
    assert!(kept.when_empty);
}

fn config_of(spec: Value) -> Result<RouterConfig> {
    let object = json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig",
        "metadata": { "name": "main", "namespace": "infra", "annotations": { "waystation.dev/resync": "1" } },
        "spec": spec,
    });
    router_config(&serde_json::from_value(object).unwrap(), "cluster", false)
}

#[test]
fn a_router_config_names_its_brokers_secrets_and_namespaces() {
    let config = config_of(json!({
        "allowedNamespaces": { "from": "Selector", "selector": {
            "matchLabels": { "tier": "gold" },
            "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }],
        } },
        "messaging": { "tenancy": "Single", "brokers": { "external": {
            "hosts": [{ "host": "10.0.0.1", "port": 5672 }, { "name": "b", "host": "b.svc", "port": 5671 }],
            "tls": { "secretName": "ca" }, "credentials": { "secretName": "login" },
        } } },
    }))
    .unwrap();
    assert!(config.single && config.resync.as_deref() == Some("1"));
    let names: Vec<&str> = config.brokers.iter().map(|broker| &*broker.name).collect();
    assert_eq!(names, ["10.0.0.1:5672", "b"]);
    assert_eq!(
        (config.tls_secret, config.credentials_secret),
        (Some(Key::new("infra", "ca")), Some(Key::new("infra", "login")))
    );
    let gold = Requirement { key: "tier".into(), test: LabelTest::In(vec!["gold".into()]) };
    let old = Requirement { key: "old".into(), test: LabelTest::DoesNotExist };
    assert_eq!(config.allowed, Allowed::Selector(vec![gold, old]));
}

#[test]
fn a_router_config_names_the_service_of_its_routers() {
    let config = |port: Value| {
        let service = json!({ "name": "routers", "port": port });
        config_of(json!({ "messaging": { "routers": { "external": { "serviceRef": service } } } }))
    };
    let reference = |port| Some(ServiceRef { service: Key::new("infra", "routers"), port });
    let named = config(json!("amqp")).unwrap();
    assert_eq!(named.router_service, reference(PortRef::Name("amqp".into())));
    assert!(named.routers.is_empty() && named.has_routers());
    assert_eq!(config(json!(5672)).unwrap().router_service, reference(PortRef::Number(5672)));
    assert!(matches!(config(json!(70_000)), Err(ConvertError::Unknown { .. })));
}

#[test]
fn plans_are_counted_in_thousandths() {
    let config = config_of(json!({ "messaging": {
        "brokers": { "external": { "hosts": [{ "host": "b", "port": 5672, "credit": 2.5 }] } },
        "addressPlans": [
            { "name": "small", "addressTypes": ["queue", "stream"], "brokerCredit": 0.29, "messageTtl": { "maximum": "1h" } },
        ],
        "spacePlans": [
            { "name": "team", "limits": { "aggregate": 4, "addresses": 10 }, "addressPlans": ["small"] },
            { "name": "all" },
        ],
    } }))
    .unwrap();
    assert_eq!(config.brokers[0].credit, 2_500);
    let small = &config.address_plans[0];
    assert_eq!((small.router, small.broker, small.ttl.maximum_ms), (0, 290, Some(3_600_000)));
    assert_eq!(small.types, [AddressType::Queue], "a type of another version fits nothing");
    let (team, all) = (&config.space_plans[0], &config.space_plans[1]);
    let limits = Limits { aggregate: Some(4_000), addresses: Some(10), ..Limits::default() };
    assert_eq!((team.limits, &*team.allowed[0]), (limits, "small"));
    assert_eq!((all.limits, all.allowed.len()), (Limits::default(), 0));
}

#[test]
fn the_default_owner_is_the_same_for_ever_and_differs_by_cluster_and_name() {
    let owner = |uid: &str, name: &str| default_owner(uid, &Key::new("infra", name)).to_string();
    // Written on brokers: if this changes, everything made before is lost sight of.
    assert_eq!(owner("6f1c", "main"), "ef469759");
    assert_ne!(owner("6f1c", "main"), owner("6f1d", "main"));
    assert_ne!(owner("6f1c", "main"), owner("6f1c", "main2"));
}
