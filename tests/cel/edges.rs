//! RouterConfigs with an edge.

use serde_json::{Value, json};

use super::R;
use super::creation::{Case, ONE_PLANE, case};

fn edge(edge: Value) -> Value {
    json!({"messaging": null, "edge": edge})
}

pub fn cases() -> Vec<Case> {
    let publish = "publish says where clients come in one of two ways: give either service or addresses";
    let ports = "two listeners have the same port: give http, https and stats ports of their own";
    let zero = "a timeout of zero ends everything at once: use at least 1ms, or leave it out";
    let mut cases = vec![
        case(R, edge(json!({})), json!({"edge": {}}), ONE_PLANE),
        case(R, edge(json!({"publish": {"service": "lb"}})), edge(json!({"publish": {}})), publish),
        case(
            R,
            edge(json!({"publish": {"addresses": ["192.0.2.1", "2001:db8::1", "edge.example.com"]}})),
            edge(json!({"publish": {"service": "lb", "addresses": ["192.0.2.1"]}})),
            publish,
        ),
        case(
            R,
            edge(json!({"publish": {"addresses": ["a", "b"]}})),
            edge(json!({"publish": {"addresses": ["a", "a"]}})),
            "Duplicate value",
        ),
        case(
            R,
            edge(json!({"listeners": {"http": 8080, "https": 8443, "stats": 9000}})),
            edge(json!({"listeners": {"http": 443}})),
            ports,
        ),
        case(R, edge(json!({"listeners": {"stats": 8404}})), edge(json!({"listeners": {"stats": 80}})), ports),
        case(
            R,
            edge(json!({"listeners": {"addresses": ["10.0.0.1", "::1"]}})),
            edge(json!({"listeners": {"addresses": ["edge.example.com"]}})),
            "should match",
        ),
        case(R, edge(json!({"hostOwnership": "Any"})), edge(json!({"hostOwnership": "Nobody"})), "Unsupported value"),
        case(
            R,
            edge(json!({"ingressClassName": "public.example"})),
            edge(json!({"ingressClassName": "Public"})),
            "should match",
        ),
        case(
            R,
            edge(json!({"defaultBackend": {"service": {"name": "web", "port": "http"}}})),
            edge(json!({"defaultBackend": {"service": {"name": "web"}}})),
            "port: Required value",
        ),
        case(
            R,
            edge(json!({"defaultCertificate": {"secretName": "cert"}})),
            edge(json!({"defaultCertificate": {"secretName": "other/cert"}})),
            "should match",
        ),
        case(
            R,
            edge(json!({"options": {"hsts": "true", "timeout-server": "5s"}})),
            edge(json!({"options": {"hsts": true}})),
            "must be of type string",
        ),
        case(
            R,
            edge(json!({"tuning": {"threads": 64, "maxConnections": 1}})),
            edge(json!({"tuning": {"threads": 65}})),
            "less than or equal to 64",
        ),
    ];
    for name in [
        "timeoutClient",
        "timeoutHttpRequest",
        "timeoutKeepAlive",
        "timeoutConnect",
        "timeoutServer",
        "timeoutTunnel",
        "timeoutQueue",
        "hardStopAfter",
    ] {
        cases.push(case(R, edge(json!({"tuning": {name: "1ms"}})), edge(json!({"tuning": {name: "0s"}})), zero));
    }
    cases
}
