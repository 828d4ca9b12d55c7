//! What may be created.

use std::collections::BTreeSet;

use kube::{Client, Error};
use serde_json::{Value, json};

use super::{A, Kind, R, S, dry_run};

/// One rule: an overlay that passes, one that is refused, and what is said then.
pub struct Case {
    kind: Kind,
    passes: Value,
    refused: Value,
    says: &'static str,
}

pub const fn case(kind: Kind, passes: Value, refused: Value, says: &'static str) -> Case {
    Case { kind, passes, refused, says }
}

pub fn hosts(hosts: Value) -> Value {
    json!({"messaging": {"brokers": {"external": {"hosts": hosts}}}})
}

fn routers(hosts: Value) -> Value {
    json!({"messaging": {"routers": {"external": {"hosts": hosts}}}})
}

fn cases() -> Vec<Case> {
    let mut cases = addresses();
    cases.extend(types());
    cases.extend(settings());
    cases.extend(router_configs());
    cases.extend(super::plans::cases());
    cases.extend(endpoints());
    cases.extend(super::remotes::cases());
    cases.extend(super::edges::cases());
    cases
}

/// What is said of a RouterConfig that is for nothing, or for two things.
pub const ONE_PLANE: &str =
    "a RouterConfig is one data plane: give either spec.messaging, with brokers and routers, or spec.edge, for HAProxy";

fn addresses() -> Vec<Case> {
    let (white, wild) = (
        "an address has no whitespace, no control characters and none that cannot be seen: remove them",
        "an address has no '*' and no '#', which are wildcards of the data planes, and no '?', where brokers cut it off: use other characters",
    );
    let colons = "an address has no '::', which stands between a topic and a subscription: use other characters";
    let first =
        "an address does not start with '$', '_' or 'activemq.', which mark internal addresses: use another beginning";
    let dots = "an address has no '.' or '/' at its start, at its end or beside another: remove the extra one";
    let address =
        |passes: &str, refused: &str, says| case(A, json!({"address": passes}), json!({"address": refused}), says);
    vec![
        address("a!b", "a?b", wild),
        address("activemq", "activemq.management", first),
        address("xactivemq.a", "activemq.notifications", first),
        address("e\u{301}", "a\u{200b}b", white),
        address("\u{1F600}", "a\u{ffff}", white),
        address("a-b", "a b", white),
        address("ä\u{e9}", "a\tb", white),
        address("ab", "a\nb", white),
        address("a\u{2013}b", "a\u{a0}b", white),
        address("a+b", "a\u{3000}", white),
        address("a", "a\u{7}", white),
        address("a", "a\u{34f}", white),
        address("\u{1100}\u{1161}", "\u{115f}", white),
        address("\u{b4}", "\u{1160}a", white),
        address("a", "a\u{17b4}", white),
        address("a", "a\u{180b}", white),
        address("a", "a\u{2065}", white),
        address("\u{3131}", "a\u{3164}", white),
        address("a", "a\u{fe0f}", white),
        address("\u{ffa1}", "a\u{ffa0}", white),
        address("a", "a\u{fff0}", white),
        address("a", "a\u{e0100}", white),
        address("a", "a\u{ad}", white),
        address("a", "a\u{85}b", white),
        address("a!", "a*", wild),
        address("a%", "#", wild),
        address("a:b:c", "a::b", colons),
        address("a$b", "$a", first),
        address("a_b_", "_a", first),
        address("a.b/c.d", ".a", dots),
        address("a", "/a", dots),
        address("a", "a.", dots),
        address("a", "a/", dots),
        address("a-.b", "a..b", dots),
        address("a", "a//b", dots),
        address("a", "a./b", dots),
        address("a", "a/.b", dots),
        address("a", ".", dots),
        address("\u{e9}".repeat(255).leak(), "a".repeat(256).leak(), "Too long"),
        address("a", "", "should be at least 1 chars long"),
        case(A, json!({}), json!({"addressSpace": null}), "spec.addressSpace: Required value"),
        case(A, json!({}), json!({"addressSpace": ""}), "spec.addressSpace"),
    ]
}

fn types() -> Vec<Case> {
    let subscription = json!({"type": "subscription", "topic": "news"});
    let mut cases = vec![
        case(
            A,
            subscription.clone(),
            json!({"type": "subscription"}),
            "a subscription needs spec.topic: give the address of a topic in the same space",
        ),
        case(
            A,
            subscription.clone(),
            json!({"topic": "news"}),
            "spec.topic is only for type subscription: remove it, or make this a subscription",
        ),
        case(
            A,
            json!({"type": "subscription", "topic": "news", "subscription": {"maxConsumers": 4}}),
            json!({"subscription": {"maxConsumers": 4}}),
            "spec.subscription is only for type subscription: remove it, or make this a subscription",
        ),
        case(
            A,
            json!({"type": "subscription", "topic": "news", "subscription": {}}),
            json!({"type": "subscription", "topic": "news", "subscription": {"maxConsumers": 0}}),
            "greater than or equal to 1",
        ),
        case(A, json!({}), json!({"type": "stream"}), "Unsupported value"),
        case(A, json!({}), json!({"type": null}), "spec.type: Required value"),
        case(S, json!({"type": "standard"}), json!({"type": "federated"}), "Unsupported value"),
        case(S, json!({}), json!({"routerConfigRef": null}), "spec.routerConfigRef: Required value"),
    ];
    for type_ in ["anycast", "multicast", "queue", "topic", "deadLetter"] {
        cases.push(case(A, json!({"type": type_}), json!({"type": type_.to_uppercase()}), "Unsupported value"));
    }
    for type_ in ["anycast", "multicast"] {
        cases.push(case(
            A,
            json!({"type": type_, "deletionPolicy": "Delete"}),
            json!({"type": type_, "deletionPolicy": "WhenEmpty"}),
            "types anycast and multicast keep no messages to wait for: remove spec.deletionPolicy, or set it to Delete",
        ));
    }
    for passes in ["queue", "topic", "deadLetter"] {
        let overlay = json!({"type": passes, "deletionPolicy": "WhenEmpty"});
        cases.push(case(A, overlay, json!({"type": passes, "deletionPolicy": "Never"}), "Unsupported value"));
    }

    let only_queue_and_topic = [
        (
            "deadLetterAddress",
            json!("dead"),
            "spec.deadLetterAddress is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
        (
            "expiryAddress",
            json!("dead"),
            "spec.expiryAddress is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
        (
            "messageTtl",
            json!({"maximum": "1h"}),
            "spec.messageTtl is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
        (
            "redelivery",
            json!({"maxAttempts": 3}),
            "spec.redelivery is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
        (
            "maxSizeBytes",
            json!(1_000_000),
            "spec.maxSizeBytes is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
        (
            "fullPolicy",
            json!("Fail"),
            "spec.fullPolicy is only for types queue and topic: remove it (a subscription follows its topic)",
        ),
    ];
    for (field, value, says) in only_queue_and_topic {
        for (passes, refused) in
            [("queue", "anycast"), ("topic", "multicast"), ("queue", "deadLetter"), ("topic", "subscription")]
        {
            let mut overlay = json!({"type": refused, field: value});
            if refused == "subscription" {
                overlay["topic"] = json!("news");
            }
            cases.push(case(A, json!({"type": passes, field: value}), overlay, says));
        }
    }
    cases
}

fn settings() -> Vec<Case> {
    let mut cases = vec![
        case(A, json!({"maxSizeBytes": 1}), json!({"maxSizeBytes": 0}), "greater than or equal to 1"),
        case(A, json!({"fullPolicy": "Page"}), json!({"fullPolicy": "page"}), "Unsupported value"),
        case(A, json!({"deadLetterAddress": "dead"}), json!({"deadLetterAddress": ""}), "at least 1 chars long"),
    ];
    // The same blocks stand in an Address and in the defaults of a RouterConfig.
    for kind in [A, R] {
        let put = |block: Value| if kind == A { block } else { json!({"messaging": {"defaults": block}}) };
        let mut add = |name: &str, passes: Value, refused: Value, says: &'static str| {
            cases.push(case(kind, put(json!({name: passes})), put(json!({name: refused})), says));
        };
        let ttl = "messageTtl";
        let zero = "a time to live of zero keeps nothing: use at least 1ms, or leave it out";
        add(
            ttl,
            json!({"minimum": "1s"}),
            json!({}),
            "messageTtl is empty: give minimum, maximum or both, or leave messageTtl out",
        );
        add(
            ttl,
            json!({"minimum": "1m", "maximum": "60s"}),
            json!({"minimum": "61s", "maximum": "1m"}),
            "messageTtl.minimum is longer than messageTtl.maximum: lower the one or raise the other",
        );
        add(ttl, json!({"minimum": "1ms"}), json!({"minimum": "0s"}), zero);
        add(ttl, json!({"maximum": "1ms"}), json!({"maximum": "0h0m0s0ms"}), zero);
        add(
            ttl,
            json!({"maximum": "87600h"}),
            json!({"maximum": "87600h1ms"}),
            "use a duration of at most 87600h (ten years)",
        );
        // The longest that the pattern lets through must reach the rule, not overflow in it.
        add(
            ttl,
            json!({"maximum": "1h30m"}),
            json!({"maximum": "999999999s999999999s999999999s999999999s"}),
            "use a duration of at most 87600h (ten years)",
        );
        for refused in ["", "5", "1.5h", "-1s", "1d", "1h 30m", "P1D", "1H"] {
            add(ttl, json!({"maximum": "1h0m0s"}), json!({"maximum": refused}), "maximum in body should");
        }
        let redelivery = "redelivery";
        add(
            redelivery,
            json!({"delay": "0s"}),
            json!({}),
            "redelivery is empty: give at least one of its fields, or leave redelivery out",
        );
        add(
            redelivery,
            json!({"delay": "1s", "maxDelay": "1000ms"}),
            json!({"delay": "1001ms", "maxDelay": "1s"}),
            "redelivery.delay is longer than redelivery.maxDelay: lower the one or raise the other",
        );
        let attempts = "use 1 or more attempts, or -1 for endless ones";
        add(redelivery, json!({"maxAttempts": -1}), json!({"maxAttempts": 0}), attempts);
        add(redelivery, json!({"maxAttempts": 1}), json!({"maxAttempts": -2}), attempts);
        add(
            redelivery,
            json!({"maxAttempts": 2_147_483_647}),
            json!({"maxAttempts": 2_147_483_648_u32}),
            "maxAttempts",
        );
        add(redelivery, json!({"delayMultiplier": 1}), json!({"delayMultiplier": 0.99}), "greater than or equal to 1");
        add(
            redelivery,
            json!({"delayMultiplier": 1.5}),
            json!({"delayMultiplier": 1000.5}),
            "less than or equal to 1000",
        );
    }
    cases
}

fn selector(passes: &str, values: &[&str], refused: &str, bad: &[&str]) -> Case {
    let spec = |operator: &str, values: &[&str]| {
        let expression = json!({"key": "a", "operator": operator, "values": values});
        json!({"allowedNamespaces": {"from": "Selector", "selector": {"matchExpressions": [expression]}}})
    };
    let says =
        "a label selector has the operators In and NotIn with values, Exists and DoesNotExist without: correct it";
    case(R, spec(passes, values), spec(refused, bad), says)
}

fn endpoints() -> Vec<Case> {
    let space = |endpoints: Value| json!({"type": "standard", "endpoints": endpoints});
    let one = |more: Value| {
        let mut endpoint = json!({"name": "in", "service": "amqp"});
        endpoint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        space(json!([endpoint]))
    };
    let listeners = |listeners: Value| {
        let external = json!({"hosts": [{"host": "r", "port": 1}]});
        json!({"messaging": {"routers": {"external": external, "listeners": listeners}}})
    };
    vec![
        case(
            S,
            one(json!({})),
            json!({"endpoints": [{"name": "in", "service": "amqp"}]}),
            "spec.endpoints lead to routers, which only spaces of type standard have: see status.endpoints for where \
             clients of a brokered one connect",
        ),
        case(
            S,
            space(json!([{"name": "in", "service": "amqp"}, {"name": "out", "service": "amqp"}])),
            space(json!([{"name": "in", "service": "amqp"}, {"name": "in", "service": "amqps"}])),
            "Duplicate value",
        ),
        case(S, one(json!({"service": "amqps"})), one(json!({"service": "mqtt"})), "Unsupported value"),
        case(S, one(json!({"expose": "loadBalancer"})), one(json!({"expose": "edge"})), "Unsupported value"),
        case(S, one(json!({"host": "mq.example.com"})), one(json!({"host": "amqp://mq"})), "should match"),
        case(S, one(json!({"name": "a".repeat(30)})), one(json!({"name": "a".repeat(31)})), "Too long"),
        case(S, one(json!({"name": "0-a"})), one(json!({"name": "in."})), "should match"),
        case(R, listeners(json!({"amqp": {"port": 5672}})), listeners(json!({"amqp": {}})), "port: Required value"),
        case(
            R,
            listeners(json!({"amqps": {"port": 5671, "caCertificate": "PEM"}})),
            listeners(json!({"amqps": {"port": 0}})),
            "greater than or equal to 1",
        ),
    ]
}

fn router_configs() -> Vec<Case> {
    let defaults =
        json!({"messaging": {"defaults": {"maxSizeBytes": 1, "fullPolicy": "Drop", "deadLetterAddress": "d"}}});
    let long: Vec<Value> = (0..65).map(|n| json!({"host": format!("b{n}"), "port": 5672})).collect();
    let service = |name: &str, port: Value| json!({"messaging": {"routers": {"external": {"serviceRef": {"name": name, "port": port}}}}});
    let ways = "routers.external names routers in one of two ways: give either hosts or serviceRef";
    vec![
        case(R, json!({}), json!({"messaging": null}), ONE_PLANE),
        case(
            R,
            json!({}),
            json!({"messaging": {"brokers": null}}),
            "messaging needs brokers, routers or both: give messaging.brokers.external or messaging.routers.external",
        ),
        case(
            R,
            routers(json!([{"host": "r", "port": 1, "readinessPort": 1}])),
            json!({"messaging": {"routers": {"external": null}}}),
            "routers is empty: give routers.external.hosts or routers.external.serviceRef",
        ),
        case(
            R,
            routers(json!([{"host": "r", "port": 1, "name": "x"}, {"host": "r", "port": 2}])),
            routers(json!([{"host": "r", "port": 1, "name": "x"}, {"host": "r", "port": 2, "name": "x"}])),
            "two routers have the same name: give each a name of its own, or none",
        ),
        case(R, service("routers", json!("amqp")), json!({"messaging": {"routers": {"external": {}}}}), ways),
        case(
            R,
            service("r", json!(65535)),
            json!({"messaging": {"routers": {"external": {
                "serviceRef": {"name": "r", "port": 1}, "hosts": [{"host": "r", "port": 1}],
            }}}}),
            ways,
        ),
        case(R, service("r-1", json!("a")), service("R", json!("a")), "should match"),
        case(R, service("r", json!(1)), service("r", json!(0)), "greater than or equal to 1"),
        case(R, service("r", json!(5672)), service("r", json!(65536)), "less than or equal to 65535"),
        case(R, service("r", json!("a")), service("r", json!("")), "at least 1 chars long"),
        case(
            R,
            json!({}),
            json!({"messaging": {"routers": {"external": {"serviceRef": {"name": "r"}}}}}),
            "port: Required value",
        ),
        case(
            R,
            json!({}),
            json!({"messaging": {"brokers": {"external": null}}}),
            "brokers is empty: give brokers.external.hosts",
        ),
        case(
            R,
            hosts(
                json!([{"host": "a", "port": 1, "name": "x"}, {"host": "a", "port": 2, "name": "y"}, {"host": "b", "port": 1}, {"host": "c", "port": 1}]),
            ),
            hosts(json!([{"host": "a", "port": 1, "name": "x"}, {"host": "b", "port": 1, "name": "x"}])),
            "two brokers have the same name: give each a name of its own, or none",
        ),
        case(
            R,
            hosts(json!([{"host": "a", "port": 1}, {"host": "a", "port": 2}])),
            hosts(json!([{"host": "a", "port": 1}, {"host": "a", "port": 1}])),
            "Duplicate value",
        ),
        case(R, hosts(json!(long[..64])), hosts(json!(long)), "Too many"),
        case(R, json!({}), hosts(json!([])), "should have at least 1 items"),
        case(R, hosts(json!([{"host": "::1", "port": 65535}])), hosts(json!([{"host": "a", "port": 65536}])), "65535"),
        case(R, hosts(json!([{"host": "10.0.0.1", "port": 1}])), hosts(json!([{"host": "a", "port": 0}])), "port"),
        case(R, json!({}), hosts(json!([{"host": "amqp://a", "port": 1}])), "should match"),
        case(R, json!({}), hosts(json!([{"host": "a"}])), "port: Required value"),
        case(R, json!({}), hosts(json!([{"host": "a", "port": 1, "name": "a:1"}])), "should match"),
        selector("In", &["x"], "In", &[]),
        selector("NotIn", &["x"], "NotIn", &[]),
        selector("Exists", &[], "Exists", &["x"]),
        selector("DoesNotExist", &[], "Like", &["x"]),
        case(
            R,
            json!({"allowedNamespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}}),
            json!({"allowedNamespaces": {"from": "Selector"}}),
            "allowedNamespaces.from is Selector: give allowedNamespaces.selector, with the labels of the namespaces",
        ),
        case(
            R,
            json!({"allowedNamespaces": {"from": "All"}}),
            json!({"allowedNamespaces": {"selector": {}}}),
            "allowedNamespaces.selector is only read when allowedNamespaces.from is Selector: set that, or remove it",
        ),
        case(
            R,
            json!({"allowedNamespaces": {"from": "Same"}}),
            json!({"allowedNamespaces": {"from": "None"}}),
            "Unsupported",
        ),
        case(R, json!({"messaging": {"tenancy": "Single"}}), json!({"messaging": {"tenancy": "Own"}}), "Unsupported"),
        case(R, json!({"messaging": {"owner": "team-1"}}), json!({"messaging": {"owner": "Team"}}), "should match"),
        case(
            R,
            json!({"messaging": {"owner": "a".repeat(32)}}),
            json!({"messaging": {"owner": "a".repeat(33)}}),
            "Too long",
        ),
        case(R, defaults, json!({"messaging": {"defaults": {"fullPolicy": "Lose"}}}), "Unsupported value"),
    ]
}

/// Tries all of it; gives what went wrong, and what was said to those that were refused.
pub async fn run(client: &Client) -> (Vec<String>, BTreeSet<String>) {
    let (mut wrong, mut said) = (Vec::new(), BTreeSet::new());
    for case in cases() {
        let api = case.kind.api(client);
        if let Err(error) = api.create(&dry_run(), &case.kind.object("passes", &case.passes)).await {
            wrong.push(format!("{:?} {} should pass: {error}", case.kind, case.passes));
        }
        match api.create(&dry_run(), &case.kind.object("refused", &case.refused)).await {
            Err(Error::Api(status)) if status.message.contains(case.says) => {
                said.insert(case.says.to_owned());
            }
            other => wrong.push(format!("{:?} {} should say {:?}: {other:?}", case.kind, case.refused, case.says)),
        }
    }

    // A rule on the object's name.
    let says =
        "the name of an AddressSpace has no dot, since it stands in the prefix <namespace>.<name>/: use '-' instead";
    let spaces = S.api(client);
    match spaces.create(&dry_run(), &S.object("team.shop", &json!({}))).await {
        Err(Error::Api(status)) if status.message.contains(says) => {
            said.insert(says.to_owned());
        }
        other => wrong.push(format!("a space with a dot: {other:?}")),
    }
    if let Err(error) = spaces.create(&dry_run(), &S.object("team-shop", &json!({}))).await {
        wrong.push(format!("a space without a dot: {error}"));
    }
    // A rule on both names: the Service of an endpoint has at most 63 characters.
    let says = "the Service of an endpoint is named <space>-<endpoint>, which has at most 63 characters: give the \
                endpoint a shorter name";
    let endpoint = json!({"type": "standard", "endpoints": [{"name": "in", "service": "amqp"}]});
    match spaces.create(&dry_run(), &S.object(&"a".repeat(61), &endpoint)).await {
        Err(Error::Api(status)) if status.message.contains(says) => {
            said.insert(says.to_owned());
        }
        other => wrong.push(format!("a long name with an endpoint: {other:?}")),
    }
    for (length, overlay) in [(60, &endpoint), (61, &json!({"type": "standard"}))] {
        if let Err(error) = spaces.create(&dry_run(), &S.object(&"a".repeat(length), overlay)).await {
            wrong.push(format!("a space with a name of {length}: {error}"));
        }
    }
    wrong.extend(defaults(client).await);
    (wrong, said)
}

/// What stands in an object whose author said nothing.
async fn defaults(client: &Client) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, pointer, value) in [
        (A, "/spec/deletionPolicy", "Delete"),
        (R, "/spec/controllerName", "waystation"),
        (R, "/spec/messaging/tenancy", "Shared"),
    ] {
        // A null is an absent field.
        let overlay = if kind == A { json!({"address": "a"}) } else { json!({}) };
        let mut object = kind.object("silent", &overlay);
        if kind == A {
            object.data["spec"]["deletionPolicy"] = Value::Null;
            object.data["spec"]["topic"] = Value::Null;
        }
        match kind.api(client).create(&dry_run(), &object).await {
            Ok(made) if made.data.pointer(pointer) == Some(&json!(value)) => {}
            other => wrong.push(format!("{kind:?}{pointer} should be {value} by default: {other:?}")),
        }
    }
    wrong
}
