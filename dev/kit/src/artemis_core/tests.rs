use super::*;

fn queue_json(name: &str, address: &str) -> Value {
    Value::String(json!({ "name": name, "address": address, "routing-type": "ANYCAST", "user": "me" }).to_string())
}

fn broker(core: &mut Core, operation: &str, params: Value) -> Result<Value, String> {
    core.call("broker", operation, &params)
}

fn merged(core: &mut Core, address: &str, key: &str) -> Value {
    let answer = broker(core, "getAddressSettingsAsJSON", json!([address])).unwrap();
    serde_json::from_str::<Value>(answer.as_str().unwrap()).unwrap()[key].clone()
}

#[test]
fn a_queue_is_listed_counted_and_destroyed_with_a_notice() {
    let mut core = Core::default();
    broker(&mut core, "createQueue", json!([queue_json("q", "a"), false])).unwrap();
    assert!(core.set_messages("q", 7));
    assert_eq!(core.call("queue.q", "getMessageCount", &json!([])), Ok(json!(7)));
    let again = broker(&mut core, "createQueue", json!([queue_json("q", "b"), false]));
    assert_eq!(again, Err("AMQ229019: Queue q already exists on address a".to_owned()));
    core.set_consumers("q", 1);
    assert!(broker(&mut core, "destroyQueue", json!(["q", false, false])).unwrap_err().starts_with("AMQ229025"));
    broker(&mut core, "destroyQueue", json!(["q", true, false])).unwrap();
    assert_eq!(core.take_removals(), [Removal { queue: "q".to_owned(), address: "a".to_owned() }]);
    assert_eq!(core.addresses().collect::<Vec<_>>(), [("a", vec![Routing::Anycast])]);
}

#[test]
fn a_restart_keeps_what_is_durable_and_an_empty_one_nothing() {
    let mut core = Core::default();
    let passing = json!({ "name": "passing", "routing-type": "ANYCAST", "durable": false }).to_string();
    broker(&mut core, "createQueue", json!([passing, false])).unwrap();
    broker(&mut core, "createQueue", json!([queue_json("kept", "kept"), false])).unwrap();
    broker(&mut core, "addAddressSettings", json!(["kept", r#"{"maxDeliveryAttempts":3}"#])).unwrap();
    core.restart(false);
    assert_eq!(core.queues().map(|(name, _)| name).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(core.addresses().count(), 2, "the address of a queue that is gone stays");
    assert_eq!(core.settings().count(), 1);
    core.restart(true);
    assert_eq!((core.queues().count(), core.addresses().count(), core.settings().count()), (0, 0, 0));
    assert!(core.queue("DLQ").is_some());
}

#[test]
fn settings_replace_each_other_and_merge_over_wider_matches() {
    let mut core = Core::default();
    broker(
        &mut core,
        "addAddressSettings",
        json!(["n.s/*.#", r#"{"maxDeliveryAttempts":4,"autoCreateQueues":false}"#]),
    )
    .unwrap();
    broker(&mut core, "addAddressSettings", json!(["n.s/a", r#"{"maxDeliveryAttempts":5,"redeliveryDelay":9}"#]))
        .unwrap();
    broker(&mut core, "addAddressSettings", json!(["n.s/a", r#"{"maxDeliveryAttempts":6,"bogus":1}"#])).unwrap();
    assert_eq!(merged(&mut core, "n.s/a", "maxDeliveryAttempts"), json!(6));
    assert_eq!(merged(&mut core, "n.s/a", "redeliveryDelay"), json!(0));
    assert_eq!(merged(&mut core, "n.s/a", "autoCreateQueues"), json!(false));
    for (address, attempts) in
        [("n.s/b", json!(4)), ("n.s/b.c/d.e", json!(4)), ("n.s/", Value::Null), ("nxs/b", Value::Null)]
    {
        assert_eq!(merged(&mut core, address, "maxDeliveryAttempts"), attempts, "{address}");
    }
}

#[test]
fn one_name_can_be_refused_and_others_are_not() {
    let mut core = Core::default();
    core.refuse("bad", "AMQ000000: no");
    assert_eq!(
        broker(&mut core, "createQueue", json!([queue_json("bad", "bad"), false])),
        Err("AMQ000000: no".to_owned())
    );
    assert_eq!(core.changes(), 0);
    broker(&mut core, "createQueue", json!([queue_json("good", "good"), false])).unwrap();
    core.relent("bad");
    broker(&mut core, "createQueue", json!([queue_json("bad", "bad"), false])).unwrap();
    assert_eq!(core.changes(), 2);
}
