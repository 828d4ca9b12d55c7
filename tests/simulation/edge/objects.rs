//! Objects as people write them.

use serde_json::{Map, Value, json};

use super::plan::{Options, Path};
use crate::api::store::{Id, Plural};

/// The RouterConfig.
pub const CONFIG: (&str, &str) = ("infra", "edge");
/// The Secret with the certificate of hosts that have none.
pub const DEFAULT_SECRET: &str = "default";

pub fn config_id() -> Id {
    Id::new(Plural::RouterConfigs, CONFIG.0, CONFIG.1)
}

pub fn config() -> Value {
    json!({ "spec": {
        "controllerName": "waystation", "allowedNamespaces": { "from": "All" },
        "edge": { "publish": { "addresses": ["192.0.2.1"] }, "external": {} },
    } })
}

pub fn class(ours: bool) -> Value {
    let controller = if ours { "waystation.dev/edge" } else { "example.com/other" };
    let parameters = json!({
        "apiGroup": "waystation.dev", "kind": "RouterConfig", "scope": "Namespace", "namespace": CONFIG.0, "name": CONFIG.1,
    });
    json!({ "spec": { "controller": controller, "parameters": parameters } })
}

fn annotations(options: &Options) -> Value {
    let one = |(key, value): &(&str, &str)| (format!("waystation.dev/{key}"), Value::from(*value));
    Value::Object(options.iter().map(one).collect::<Map<_, _>>())
}

pub fn ingress(class: &str, host: &str, paths: &[Path], secret: Option<&str>, options: &Options) -> Value {
    let path = |(path, kind, service): &Path| {
        let (service, port) = service.split_once(':').unwrap();
        let port = match port.parse::<u16>() {
            Ok(number) => json!({ "number": number }),
            Err(_) => json!({ "name": port }),
        };
        json!({ "path": path, "pathType": kind, "backend": { "service": { "name": service, "port": port } } })
    };
    let mut rule = json!({ "http": { "paths": paths.iter().map(path).collect::<Vec<_>>() } });
    if !host.is_empty() {
        rule["host"] = host.into();
    }
    let mut spec = json!({ "ingressClassName": class, "rules": [rule] });
    if let Some(secret) = secret
        && !host.is_empty()
    {
        spec["tls"] = json!([{ "hosts": [host], "secretName": secret }]);
    }
    json!({ "metadata": { "annotations": annotations(options) }, "spec": spec })
}

pub fn service((namespace, name): (&str, &str), options: &Options) -> Value {
    let ip = format!("10.96.{}.{}", namespace.len(), name.as_bytes()[0]);
    let ports = json!([
        { "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" },
        { "name": "other", "port": 81, "targetPort": 9090, "protocol": "TCP" },
    ]);
    json!({ "metadata": { "annotations": annotations(options) },
            "spec": { "type": "ClusterIP", "clusterIP": ip, "ports": ports } })
}

pub fn slice(service: &str, endpoints: &[(u8, &str)]) -> Value {
    let endpoint = |(number, state): &(u8, &str)| {
        let (ready, serving, terminating) = match *state {
            "ready" => (true, true, false),
            "drain" => (false, true, true),
            _ => (false, false, false),
        };
        json!({ "addresses": [format!("10.0.0.{number}")],
                "conditions": { "ready": ready, "serving": serving, "terminating": terminating } })
    };
    let ports = json!([
        { "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "other", "port": 9090, "protocol": "TCP" },
    ]);
    json!({ "metadata": { "labels": { "kubernetes.io/service-name": service } }, "addressType": "IPv4", "ports": ports,
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>() })
}

/// Contents of this number, which is to be found in them.
pub fn pem(label: &str, number: u64) -> String {
    const BODY: &str = "MIIBszCCAVmgAwIBAgIUQWJjZGVmZ2hpamtsbW5vcHFyc3QwCgYIKoZIzj0EAwIw";
    format!("-----BEGIN {label}-----\n{BODY}\n{}\n-----END {label}-----\n", mark(number))
}

/// What stands in contents of this number, and in no others.
pub fn mark(number: u64) -> String {
    format!("{:A<8}", format!("N{number}x"))
}

/// What is good for everything that a Secret is for. Contents of a number that three divides are none.
pub fn secret(number: u64) -> Value {
    use k8s_openapi::ByteString;
    let text = |text: String| serde_json::to_value(ByteString(text.into_bytes())).unwrap();
    let certificate = if number.is_multiple_of(3) { "junk".to_owned() } else { pem("CERTIFICATE", number) };
    json!({
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": text(certificate.clone()), "tls.key": text(pem("PRIVATE KEY", number)),
            "ca.crt": text(certificate), "auth": text(format!("ann:{{SHA}}{number}")),
        },
    })
}

/// The certificate of hosts without one where nobody names one.
pub fn fallback() -> String {
    pem("CERTIFICATE", 1_000) + &pem("PRIVATE KEY", 1_000)
}
