//! The stand-in is held to the real broker: the same calls, the same answers, word for word.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use waystation::drive::broker::link::{BrokerSession, Call, CallError};
use waystation::drive::broker::ops;
use waystation::messaging::broker::{Routing, Settings, ground};

use crate::peer::{Peer, attempts, raw};

#[tokio::test]
async fn the_stand_in_answers_word_for_word_like_the_real_broker() -> Result<()> {
    let (real, stand_in) = (Peer::real().await?, Peer::stand_in().await?);
    let (real, stand_in) = (real.session().await?, stand_in.session().await?);
    let mut different = Vec::new();
    for call in calls() {
        let (expected, found) = (answer(&*real, &call).await?, answer(&*stand_in, &call).await?);
        if expected != found {
            different.push(format!("{} {}\n  real:     {expected}\n  stand-in: {found}", call.operation, call.params));
        }
    }
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

/// An answer without what must differ: ids, order of sets, and keys of settings that nobody sets.
async fn answer(session: &dyn BrokerSession, call: &Call) -> Result<String> {
    Ok(match session.call(call.clone()).await {
        Err(CallError::Refused(words)) => format!("refused: {words}"),
        Err(error) => return Err(error.into()),
        Ok(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(nested) => normal(nested).to_string(),
            Err(_) => sorted_types(&text),
        },
        Ok(other) => normal(other).to_string(),
    })
}

fn normal(value: Value) -> Value {
    const NOT_OURS: [&str; 5] =
        ["id", "maxReadPageBytes", "maxReadPageMessages", "messageCounterHistoryDayLimit", "enabled"];
    const DEFAULTS: [&str; 4] = ["pageLimitBytes", "pageLimitMessages", "maxSizeMessages", "redeliveryDelay"];
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, value)| {
                let default = DEFAULTS.contains(&key.as_str()) && matches!(value.as_i64(), Some(0 | -1));
                !NOT_OURS.contains(&key.as_str()) && !default
            });
            Value::Object(kept.map(|(key, value)| (key, normal(value))).collect())
        }
        Value::Array(list) => {
            // Names of what only the real broker has: queues of clients and of its MQTT side.
            let ours = |name: &str| !name.starts_with('$') && !is_uuid(name);
            let mut list: Vec<Value> =
                list.into_iter().filter(|item| item.as_str().is_none_or(ours)).map(normal).collect();
            list.sort_by_key(ToString::to_string);
            Value::Array(list)
        }
        Value::String(text) => Value::String(sorted_types(&text)),
        other => other,
    }
}

fn is_uuid(name: &str) -> bool {
    name.len() == 36 && name.matches('-').count() == 4
}

/// `{ANYCAST,MULTICAST}` and `[ANYCAST, MULTICAST]` come in any order.
fn sorted_types(text: &str) -> String {
    text.replace("MULTICAST,ANYCAST", "ANYCAST,MULTICAST").replace("MULTICAST, ANYCAST", "ANYCAST, MULTICAST")
}

fn queue(fields: Value, ignore: bool) -> Call {
    raw("createQueue", json!([fields.to_string(), ignore]))
}

fn find(field: &str, operation: &str, value: &str) -> Call {
    let filter = json!({ "field": field, "operation": operation, "value": value });
    raw("listQueues", json!([filter.to_string(), 1, 100]))
}

fn settings(matches: &str, fields: Value) -> Call {
    raw("addAddressSettings", json!([matches, fields.to_string()]))
}

fn calls() -> Vec<Call> {
    let any = |name: &str, address: &str| json!({ "name": name, "address": address, "routing-type": "ANYCAST", "user": "me" });
    let multi = |name: &str, address: &str, make: bool| {
        json!({
            "name": name, "address": address, "routing-type": "MULTICAST", "user": "me", "durable": false,
            "max-consumers": 2, "auto-create-address": make,
        })
    };
    let mut calls = vec![
        queue(any("q", "q"), false),
        queue(any("q", "q"), false),
        queue(any("q", "elsewhere"), false),
        queue(any("q", "elsewhere"), true),
        queue(json!({ "name": "plain" }), false),
        queue(json!({ "name": "bad", "routing-type": "ROUND" }), false),
        queue(multi("s", "q", false), false),
        queue(multi("s", "q", true), false),
        queue(multi("t", "nowhere", false), false),
        queue(multi("t", "topic", true), false),
        queue(json!({ "name": "unknown-key", "bogus": 1, "routing-type": "ANYCAST" }), false),
        find("name", "EQUALS", "q"),
        find("user", "EQUALS", "me"),
        find("address", "EQUALS", "q"),
        find("name", "CONTAINS", "unknown"),
        find("user", "EQUALS", "nobody"),
        raw("listQueues", json!([json!({ "field": "user", "operation": "EQUALS", "value": "me" }).to_string(), 2, 2])),
        ops::update_queue("q", 5),
        ops::update_queue("missing", 5),
        raw("updateQueue", json!([json!({ "name": "q", "user": "you" }).to_string()])),
        raw("updateQueue", json!([json!({ "name": "q", "durable": false }).to_string()])),
        find("name", "EQUALS", "q"),
        ops::message_count("q"),
        ops::message_count("missing"),
        ops::address_info("q"),
        ops::address_info("missing"),
        ops::queues_on("q"),
        ops::queues_on("missing"),
        ops::queue_user("q"),
        ops::queue_user("plain"),
        ops::queue_user("missing"),
        ops::create_mark("n.s/marked", "me"),
        ops::create_mark("n.s/marked", "you"),
        ops::queue_user(&ops::mark("n.s/marked")),
        ops::create_mark(&ground("n.s/"), "me"),
        ops::queue_user(&ops::mark(&ground("n.s/"))),
        ops::address_info("_waystation/n.s"),
        ops::destroy_mark("n.s/marked"),
        ops::address_info("_waystation/n.s"),
        ops::destroy_mark(&ground("n.s/")),
        ops::destroy_mark(&ground("n.s/")),
        ops::address_info("_waystation/n.s"),
        ops::create_address("a", Routing::Anycast),
        ops::create_address("a", Routing::Anycast),
        ops::create_address("a", Routing::Multicast),
        raw("createAddress", json!(["both", "ANYCAST,MULTICAST"])),
        raw("createAddress", json!(["bad", "ROUND"])),
        raw("updateAddress", json!(["a", "MULTICAST"])),
        raw("updateAddress", json!(["missing", "MULTICAST"])),
        ops::address_info("a"),
        ops::delete_address("q", false),
        ops::destroy_queue("missing", true),
        ops::destroy_queue("s", false),
        ops::destroy_queue("q", true),
        ops::address_info("q"),
        ops::delete_address("q", false),
        ops::delete_address("q", false),
        raw("destroyQueue", json!(["t", true, true])),
        ops::address_info("topic"),
        ops::delete_address("unknown-key", true),
        ops::queue_names(),
        ops::address_names(),
        raw("nonsense", json!(["x"])),
        // Auto-creation off: the address is made only when told.
        ops::put_settings("closed", &Settings::default()),
        queue(any("closed", "closed"), false),
        queue(json!({ "name": "closed", "routing-type": "ANYCAST", "auto-create-address": true }), false),
        // Settings.
        settings("x", json!({ "maxDeliveryAttempts": 3, "redeliveryMultiplier": 2, "bogus": 1, "DLA": "x" })),
        ops::read_settings("x"),
        settings("x", json!({ "redeliveryDelay": 5 })),
        ops::read_settings("x"),
        ops::put_settings(&ground("n.s/"), &attempts(4)),
        ops::remove_settings("x"),
        ops::remove_settings("x"),
        raw("removeAddressSettings", json!(["never"])),
    ];
    for address in ["x", "n.s/a", "n.s/a.b", "n.s/a/b.c d", "n.s/", "n.s", "n.s2/a", "nxs/a", "N.s/a"] {
        calls.push(ops::read_settings(address));
    }
    for fields in [
        json!({ "maxSizeBytes": 1000 }),
        json!({ "maxSizeBytes": 1000, "pageSizeBytes": 1000 }),
        json!({ "maxSizeBytes": 0 }),
        json!({ "maxSizeBytes": -2 }),
        json!({ "maxSizeBytes": 1.5, "pageSizeBytes": 1 }),
        json!({ "maxSizeBytes": "1000" }),
        json!({ "maxSizeBytes": 3_000_000_000_i64, "pageSizeBytes": 2_147_483_648_i64 }),
        json!({ "maxDeliveryAttempts": 3_000_000_000_i64 }),
        json!({ "redeliveryMultiplier": "2" }),
        json!({ "autoCreateQueues": "false" }),
        json!({ "addressFullMessagePolicy": "ZZ" }),
        json!({ "addressFullMessagePolicy": "BLOCK", "deadLetterAddress": null, "expiryAddress": "" }),
        json!({}),
    ] {
        calls.push(settings("y", fields));
    }
    for matches in ["a(b", "a(b)", "a[b", "a[b]", "a{b", "a{2}", "n.s/#x", "a b", "a,b'\"\\&?;ü", "$a", "a+b", "a?b"] {
        calls.push(settings(matches, json!({ "maxDeliveryAttempts": 3 })));
        calls.push(ops::remove_settings(matches));
    }
    calls
}
