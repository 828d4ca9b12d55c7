//! What may be created of plans.

use serde_json::{Value, json};

use super::creation::{Case, case, hosts};
use super::{A, R, S, merge};

fn address_plan(overlay: Value) -> Value {
    let mut plan = json!({"name": "small", "addressTypes": ["queue"]});
    merge(&mut plan, &overlay);
    json!({"messaging": {"addressPlans": [plan]}})
}

fn space_plan(overlay: Value) -> Value {
    let mut plan = json!({"name": "team"});
    merge(&mut plan, &overlay);
    json!({"messaging": {"spacePlans": [plan], "addressPlans": [{"name": "small", "addressTypes": ["queue"]}]}})
}

pub fn cases() -> Vec<Case> {
    let decimals = "a credit has at most three decimals: round it to thousandths, such as 0.125";
    let credit = |passes: f64, refused: f64, says| {
        case(R, address_plan(json!({"brokerCredit": passes})), address_plan(json!({"brokerCredit": refused})), says)
    };
    let limits = |limits: Value| space_plan(json!({"limits": limits}));
    let types = |types: Value| address_plan(json!({"addressTypes": types}));
    let redelivery = json!({"redelivery": {"maxAttempts": 3}});
    let of = |types: Value, block: &Value| {
        let mut overlay = json!({"addressTypes": types});
        merge(&mut overlay, block);
        address_plan(overlay)
    };
    let ttl = json!({"messageTtl": {"maximum": "1h"}});
    vec![
        case(A, json!({"plan": "small.2"}), json!({"plan": "Small"}), "should match"),
        case(A, json!({"plan": "a"}), json!({"plan": ""}), "at least 1 chars long"),
        case(S, json!({"plan": "team"}), json!({"plan": "-"}), "should match"),
        credit(0.001, 0.0001, decimals),
        credit(1.001, 1.0005, decimals),
        credit(0.57, 0.5755, decimals),
        credit(999_999.999, 999_999.999_5, decimals),
        credit(0.0, -0.1, "greater than or equal to 0"),
        credit(1_000_000.0, 1_000_001.0, "less than or equal to 1e+06"),
        // A whole number is a number too.
        case(
            R,
            address_plan(json!({"routerCredit": 2})),
            address_plan(json!({"routerCredit": "2"})),
            "must be of type number",
        ),
        case(R, types(json!(["queue", "deadLetter"])), types(json!([])), "should have at least 1 items"),
        case(R, types(json!(["anycast"])), types(json!(["stream"])), "Unsupported value"),
        case(R, types(json!(["topic", "queue"])), types(json!(["queue", "queue"])), "Duplicate value"),
        case(
            R,
            of(json!(["anycast", "topic"]), &ttl),
            of(json!(["anycast", "subscription"]), &ttl),
            "an address plan's messageTtl is only for types queue and topic: remove it, or add one of them to addressTypes",
        ),
        case(
            R,
            of(json!(["queue"]), &redelivery),
            of(json!(["deadLetter"]), &redelivery),
            "an address plan's redelivery is only for types queue and topic: remove it, or add one of them to addressTypes",
        ),
        case(
            R,
            of(json!(["topic", "queue"]), &json!({"partitions": 2})),
            of(json!(["topic", "deadLetter"]), &json!({"partitions": 1})),
            "an address plan's partitions are only for type queue: remove them, or add it to addressTypes",
        ),
        case(
            R,
            address_plan(json!({"partitions": 64})),
            address_plan(json!({"partitions": 65})),
            "less than or equal to 64",
        ),
        case(
            R,
            address_plan(json!({"partitions": 1})),
            address_plan(json!({"partitions": 0})),
            "greater than or equal to 1",
        ),
        case(
            R,
            json!({"messaging": {"addressPlans": [{"name": "a", "addressTypes": ["queue"]}, {"name": "b", "addressTypes": ["queue"]}]}}),
            json!({"messaging": {"addressPlans": [{"name": "a", "addressTypes": ["queue"]}, {"name": "a", "addressTypes": ["topic"]}]}}),
            "Duplicate value",
        ),
        case(
            R,
            limits(json!({"addresses": 0})),
            limits(json!({})),
            "limits is empty: give router, broker, aggregate or addresses, or leave limits out",
        ),
        case(R, limits(json!({"router": 0.5, "broker": 2})), limits(json!({"router": 0.5, "broker": -1})), "broker"),
        case(R, limits(json!({"aggregate": 3})), limits(json!({"addresses": -1})), "greater than or equal to 0"),
        case(
            R,
            space_plan(json!({"addressPlans": ["small"]})),
            space_plan(json!({"addressPlans": ["small", "large"]})),
            "a space plan allows an address plan that messaging.addressPlans does not have: add it there, or remove its name",
        ),
        case(
            R,
            space_plan(json!({})),
            json!({"messaging": {"spacePlans": [{"name": "team", "addressPlans": ["small"]}]}}),
            "a space plan allows an address plan that messaging.addressPlans does not have: add it there, or remove its name",
        ),
        case(
            R,
            hosts(json!([{"host": "a", "port": 1, "credit": 1}, {"host": "b", "port": 1, "credit": 0.5}])),
            hosts(json!([{"host": "a", "port": 1, "credit": 1}, {"host": "b", "port": 1}])),
            "some brokers have a credit and some have none, which cannot be compared: give each one, or none",
        ),
    ]
}
