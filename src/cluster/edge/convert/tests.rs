//! Objects as the API server sends them.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn an_ingress_with_everything() {
    let object = read(json!({
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z",
            "annotations": {
                "kubernetes.io/ingress.class": "old", "waystation.dev/hsts": "true", "unrelated": "x",
                "nginx.ingress.kubernetes.io/ssl-redirect": "false",
            },
        },
        "spec": {
            "ingressClassName": "new",
            "defaultBackend": { "service": { "name": "d", "port": { "name": "http" } } },
            "tls": [{ "hosts": ["h"], "secretName": "s" }, { "secretName": "" }],
            "rules": [
                { "host": "h", "http": { "paths": [
                    { "path": "/e", "pathType": "Exact", "backend": { "service": { "name": "w", "port": { "number": 80 } } } },
                    { "pathType": "ImplementationSpecific", "backend": { "resource": { "kind": "Bucket", "name": "b", "apiGroup": "x" } } },
                ] } },
                { "http": null },
            ],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }, { "hostname": "e.example" }] } },
    }));
    let got = ingress(&object);
    assert_eq!(
        (got.meta.created_s, got.class.as_deref(), got.class_annotation.as_deref()),
        (60, Some("new"), Some("old"))
    );
    assert_eq!(got.default_backend, Some(BackendRef::Service("d".into(), Port::Name("http".into()))));
    let keys: Vec<&str> = got.annotations.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["nginx.ingress.kubernetes.io/ssl-redirect", "waystation.dev/hsts"]);
    let paths: Vec<(&str, PathType)> = got.rules[0].paths.iter().map(|p| (&*p.path, p.kind)).collect();
    assert_eq!(paths, [("/e", PathType::Exact), ("", PathType::ImplementationSpecific)]);
    assert_eq!(got.rules[0].paths[1].backend, BackendRef::Resource("Bucket b".into()));
    assert_eq!((&*got.rules[1].host, got.rules[1].paths.len()), ("", 0));
    assert_eq!((got.tls[0].secret.as_deref(), got.tls[1].secret.as_deref()), (Some("s"), None));
    assert_eq!(ingress_addresses(&object), ["192.0.2.1", "e.example"]);
}

#[test]
fn parameters_of_a_class_lead_to_a_router_config_of_ours_or_nowhere() {
    let class = |parameters: Value| {
        ingress_class(&read(json!({
            "metadata": { "name": "c", "annotations": { "ingressclass.kubernetes.io/is-default-class": "true" } },
            "spec": { "controller": "waystation.dev/edge", "parameters": parameters },
        })))
    };
    let ours = class(json!({
        "apiGroup": "waystation.dev", "kind": "RouterConfig", "name": "main", "namespace": "edge", "scope": "Namespace",
    }));
    assert_eq!((ours.parameters, ours.default), (Some(Key::new("edge", "main")), true));
    let none = class(Value::Null);
    assert_eq!((&*none.controller, none.parameters), ("waystation.dev/edge", None));
    let foreign = class(json!({ "apiGroup": "x", "kind": "RouterConfig", "name": "main", "namespace": "edge" }));
    assert_eq!((&*foreign.controller, foreign.parameters), ("", None));
}

#[test]
fn services_of_every_kind() {
    let of = |spec: Value| service(&read(json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": spec })));
    let ports = json!([{ "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    let plain = of(
        json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["fd00::1", "10.0.0.1"], "ipFamilies": ["IPv6", "IPv4"], "ports": ports }),
    );
    assert_eq!((plain.cluster_ip, plain.ipv6_first), (Some("fd00::1".parse().unwrap()), true));
    assert_eq!((plain.ports[0].tcp, plain.ports[1].tcp), (true, false));
    assert_eq!(of(json!({ "clusterIP": "None" })).cluster_ip, None);
    let external = of(json!({ "type": "ExternalName", "externalName": "x.example" }));
    assert_eq!(external.external_name.as_deref(), Some("x.example"));
    // Without the type it means nothing.
    assert_eq!(of(json!({ "type": "ClusterIP", "externalName": "x.example" })).external_name, None);
}

#[test]
fn conditions_that_are_missing_mean_what_kubernetes_says() {
    let slice = endpoint_slice(&read(json!({
        "metadata": { "name": "s-1", "namespace": "n", "labels": { "kubernetes.io/service-name": "s" } },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080 }, { "port": null }, { "port": 53, "protocol": "UDP" }],
        "endpoints": [
            { "addresses": ["10.0.0.1", "10.0.0.2"] },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.4"], "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["no address"] },
        ],
    })));
    assert_eq!((&*slice.service, slice.ports.len()), ("s", 1));
    let all: Vec<(bool, bool, bool)> = slice.endpoints.iter().map(|e| (e.ready, e.serving, e.terminating)).collect();
    let (yes, no) = ((true, true, false), (false, false, false));
    assert_eq!(all, [yes, yes, no, (false, true, true), yes]);
    assert_eq!(slice.endpoints[4].address, None);
}

#[test]
fn a_router_config_and_its_defaults() {
    let of = |spec: Value| {
        router_config(&read(json!({
            "apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig",
            "metadata": { "name": "main", "namespace": "edge", "uid": "u" }, "spec": spec,
        })))
    };
    let plain = of(json!({ "edge": {} })).unwrap();
    assert_eq!((&*plain.class_name, &plain.allowed), ("waystation", &Allowed::All));
    assert_eq!((&plain.listeners, &plain.tuning), (&Listeners::default(), &Tuning::default()));
    let full = of(json!({
        "allowedNamespaces": { "from": "Same" },
        "edge": {
            "ingressClassName": "public", "hostOwnership": "Any", "externalName": true,
            "defaultCertificate": { "secretName": "cert" },
            "defaultBackend": { "service": { "name": "web", "port": 80 } },
            "listeners": { "http": 8080, "stats": 9000, "addresses": ["10.0.0.1", "::1"], "passthrough": false },
            "tuning": { "threads": 4, "timeoutServer": "2m", "hardStopAfter": "87600h" },
            "options": { "hsts": "true" },
        },
    }))
    .unwrap();
    assert_eq!((full.allowed, full.any_owner, full.external_name), (Allowed::Same, true, true));
    assert_eq!(full.default_certificate, Some(Key::new("edge", "cert")));
    assert_eq!(full.default_backend, Some(("web".into(), Port::Number(80))));
    assert_eq!((full.listeners.http, full.listeners.https, full.listeners.stats), (8080, 443, 9000));
    assert!(!full.listeners.passthrough && full.listeners.addresses.len() == 2);
    assert_eq!((full.tuning.timeout_server_ms, full.tuning.threads), (120_000, Some(4)));
    // HAProxy's clock ends before ten years.
    assert!(full.tuning.hard_stop_after_ms < 1 << 31);
    for refused in [
        json!({ "messaging": {} }),
        json!({ "edge": { "hostOwnership": "Nobody" } }),
        json!({ "edge": { "tuning": { "timeoutServer": "soon" } } }),
        json!({ "edge": { "listeners": { "addresses": ["1.2.3"] } } }),
    ] {
        assert!(of(refused.clone()).is_err(), "{refused}");
    }
}
