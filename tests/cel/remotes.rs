//! Connectors, forwarders, and what a RouterConfig says of them.

use serde_json::{Value, json};

use super::creation::{Case, case};
use super::{A, R, S};

pub fn cases() -> Vec<Case> {
    let mut cases = connectors();
    cases.extend(forwarders());
    cases.extend(rules());
    cases
}

/// A standard space with a connector that has this laid over.
fn connector(overlay: Value) -> Value {
    let mut connector = json!({"name": "eu", "endpointHosts": [{"host": "eu.example", "port": 5671}]});
    super::merge(&mut connector, &overlay);
    json!({"type": "standard", "connectors": [connector]})
}

fn pattern(pattern: &str) -> Value {
    connector(json!({"addresses": [{"name": "one", "pattern": pattern}]}))
}

fn connectors() -> Vec<Case> {
    let full = connector(json!({
        "endpointHosts": [{"host": "10.0.0.1", "port": 5672}, {"host": "fd00::1", "port": 5672}],
        "tls": {"sslProfile": "web"},
        "credentials": {"secretName": "eu-login"},
        "idleTimeout": "30s",
        "maxFrameSize": 65536,
        "addresses": [{"name": "all", "pattern": "#"}, {"name": "some", "pattern": "eu.*/orders"}],
    }));
    let hosts = |count: usize| {
        let hosts = (0..count).map(|n| json!({"host": format!("h{n}"), "port": 1}));
        connector(json!({"endpointHosts": hosts.collect::<Vec<_>>()}))
    };
    let brokered = json!({"connectors": connector(json!({}))["connectors"].clone()});
    let unseen = "a pattern has no whitespace, no control characters and none that cannot be seen: remove them";
    let parts =
        "a pattern has '*' and '#' as whole parts only, and no '.' or '/' at its start, at its end or beside another";
    let two = |one: &str, other: &str| {
        connector(json!({"addresses": [{"name": "a", "pattern": one}, {"name": "b", "pattern": other}]}))
    };
    vec![
        case(
            S,
            full,
            brokered,
            "spec.connectors are made by routers, which only spaces of type standard have: remove them",
        ),
        case(S, hosts(8), hosts(9), "Too many"),
        case(S, hosts(1), hosts(0), "should have at least 1 items"),
        case(S, connector(json!({"name": "a-1"})), connector(json!({"name": "a.b"})), "should match"),
        case(S, connector(json!({"name": "a".repeat(30)})), connector(json!({"name": "a".repeat(31)})), "Too long"),
        case(
            S,
            connector(json!({"idleTimeout": "1h"})),
            connector(json!({"idleTimeout": "500ms"})),
            "idleTimeout is from 1s to 1h",
        ),
        case(
            S,
            connector(json!({"maxFrameSize": 512})),
            connector(json!({"maxFrameSize": 511})),
            "greater than or equal",
        ),
        case(
            S,
            connector(json!({"endpointHosts": [{"host": "a", "port": 1}]})),
            connector(json!({"endpointHosts": [{"host": "amqp://a", "port": 1}]})),
            "should match",
        ),
        case(S, pattern("ördersé.x"), pattern("a b"), unseen),
        case(S, pattern("a"), pattern("a\u{200b}"), unseen),
        case(S, pattern("#"), pattern("a#"), parts),
        case(S, pattern("*.a/*"), pattern("a.*b"), parts),
        case(S, pattern("topic::queue"), pattern("a..b"), parts),
        case(S, pattern("$x"), pattern("/a"), parts),
        case(
            S,
            two("a.b", "a.c"),
            two("a.b", "a/b"),
            "two addresses of a connector have the same pattern ('.' and '/' are one separator): remove one",
        ),
    ]
}

fn forwarders() -> Vec<Case> {
    let forwarder =
        |remote: &str, direction: &str| json!({"name": "f", "remoteAddress": remote, "direction": direction});
    let queue = |forwarders: Value| json!({"forwarders": forwarders});
    let of = |type_: &str, direction: &str| {
        let topic = if type_ == "subscription" { json!("news") } else { Value::Null };
        json!({"type": type_, "topic": topic, "forwarders": [forwarder("eu/orders", direction)]})
    };
    let other =
        "remoteAddress is the name of a connector of the space, '/', and an address on its host, such as eu/orders";
    let one = |remote: &str| queue(json!([forwarder(remote, "in")]));
    let many = |count: usize| {
        let all = (0..count)
            .map(|n| json!({"name": format!("f{n}"), "remoteAddress": format!("eu/{n}"), "direction": "out"}));
        queue(all.collect())
    };
    vec![
        case(
            A,
            of("queue", "in"),
            of("topic", "out"),
            "spec.forwarders are only for types queue and subscription: remove them",
        ),
        case(
            A,
            of("subscription", "out"),
            of("subscription", "in"),
            "a subscription gets its messages from its topic: a forwarder of it can only have direction out",
        ),
        case(A, one("eu/a/b.c::d"), one("orders"), other),
        case(A, one("e-1/$x"), one("eu.x/orders"), other),
        case(
            A,
            one("eu/örders"),
            one("eu/or ders"),
            "an address has no whitespace, no control characters and none that cannot be seen: remove them",
        ),
        case(A, many(8), many(9), "Too many"),
        case(A, one("eu/a"), queue(json!([forwarder("eu/a", "both")])), "Unsupported value"),
        case(
            A,
            queue(json!([
                {"name": "a", "remoteAddress": "eu/a", "direction": "in"},
                {"name": "b", "remoteAddress": "eu/a", "direction": "out"},
            ])),
            queue(json!([
                {"name": "a", "remoteAddress": "eu/a", "direction": "in"},
                {"name": "b", "remoteAddress": "eu/a", "direction": "in"},
            ])),
            "two forwarders have the same direction and remoteAddress: remove one",
        ),
    ]
}

fn rules() -> Vec<Case> {
    let rules = |rules: Value| json!({"messaging": {"routers": {"external": {"hosts": [{"host": "r", "port": 5672}]}, "connectors": rules}}});
    let hosts = |host: &str| rules(json!({"allowedHosts": [host]}));
    vec![
        case(R, rules(json!({})), hosts("a b"), "should match"),
        case(R, hosts("*.example.com"), hosts("a*.example.com"), "should match"),
        case(R, hosts("10.1.0.0/16"), hosts("*"), "should match"),
        case(
            R,
            rules(json!({"sslProfiles": ["web"]})),
            rules(json!({"sslProfiles": [""]})),
            "should be at least 1 chars",
        ),
    ]
}
