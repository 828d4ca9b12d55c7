use super::*;
use crate::messaging::broker::FullPolicy;

fn nested(text: &Value) -> Value {
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

fn echo(settings: &Settings) -> Value {
    put_settings("a", settings).params[1].clone()
}

#[test]
fn a_queue_is_asked_for_with_all_that_it_is() {
    let queue = Queue { name: "n.s/\"q\"".into(), durable: false, max_consumers: 2 };
    let call = create_queue(&queue, "n.s/topic", Routing::Multicast, "abc", false);
    assert_eq!((call.resource.as_str(), call.operation, &call.params[1]), ("broker", "createQueue", &json!(false)));
    let expected = json!({
        "name": "n.s/\"q\"", "address": "n.s/topic", "routing-type": "MULTICAST", "durable": false,
        "max-consumers": 2, "auto-create-address": false, "user": "waystation:abc",
    });
    assert_eq!(nested(&call.params[0]), expected);
}

#[test]
fn nothing_is_made_or_deleted_by_itself_whatever_the_settings() {
    let keys = nested(&echo(&Settings::default()));
    assert_eq!(keys.as_object().unwrap().len(), AUTOMATIC.len());
    assert!(AUTOMATIC.iter().all(|key| keys[*key] == json!(false)));
}

#[test]
fn a_limit_below_the_brokers_page_brings_its_own_page_size() {
    let page = |limit| {
        nested(&echo(&Settings { max_size_bytes: Some(limit), ..Settings::default() }))["pageSizeBytes"].clone()
    };
    assert_eq!(page(1), json!(1));
    assert_eq!(page(DEFAULT_PAGE_BYTES - 1), json!(DEFAULT_PAGE_BYTES - 1));
    assert_eq!(page(DEFAULT_PAGE_BYTES), Value::Null);
    assert_eq!(page(-1), Value::Null);
}

#[test]
fn what_the_broker_did_not_take_is_named() {
    let wanted = Settings {
        max_delivery_attempts: Some(i32::MAX),
        full_policy: Some(FullPolicy::Drop),
        redelivery_multiplier: Some(2.0),
        ..Settings::default()
    };
    let mut taken = nested(&echo(&wanted));
    taken["redeliveryMultiplier"] = json!(2);
    assert_eq!(check_echo(&wanted, &Value::String(taken.to_string())), Ok(()));
    taken["maxDeliveryAttempts"] = json!(-1);
    taken.as_object_mut().unwrap().remove("addressFullMessagePolicy");
    let missed = check_echo(&wanted, &Value::String(taken.to_string())).unwrap_err();
    assert_eq!(missed, ["addressFullMessagePolicy", "maxDeliveryAttempts"]);
    assert!(check_echo(&wanted, &Value::Null).is_err(), "no echo is no acknowledgement");
}

#[test]
fn refusals_are_told_apart_by_their_code() {
    let cases = [
        ("AMQ229019: Queue AMQ229017 already exists on address a", Refusal::AlreadyExists),
        ("AMQ229204: Address already exists: a", Refusal::AlreadyExists),
        ("AMQ229017: Queue q does not exist", Refusal::NotFound),
        ("AMQ229203: Address Does Not Exist: a", Refusal::NotFound),
        ("AMQ229067: Cannot find resource with name queue.q", Refusal::NotFound),
        ("AMQ229025: Cannot delete queue q on binding q - it has consumers", Refusal::InUse),
        ("AMQ229205: Address a has bindings", Refusal::InUse),
        ("Unclosed group near index 4\na(b$", Refusal::Other),
        ("", Refusal::Other),
    ];
    for (words, expected) in cases {
        assert_eq!(classify(words), expected, "{words}");
    }
}

#[test]
fn a_list_with_a_row_that_cannot_be_read_is_no_list() {
    let row = json!({
        "name": "q", "address": "a", "routingType": "ANYCAST", "durable": "true", "maxConsumers": "-1",
        "messageCount": "-1", "consumerCount": "2", "user": "waystation:o",
    });
    let answer = |rows: Value| Value::String(json!({ "data": rows, "count": 9 }).to_string());
    let page = parse_queues(&answer(json!([row]))).unwrap();
    assert_eq!((page.total, page.queues[0].queue.messages, page.queues[0].consumers), (9, 0, 2));
    assert!(page.queues[0].is_of("o") && !page.queues[0].is_of("o2"));
    let mut odd = row.clone();
    odd["routingType"] = json!("ROUND");
    assert!(parse_queues(&answer(json!([row, odd]))).is_err());
    assert!(parse_queues(&Value::Null).is_err());
}

#[test]
fn routing_types_are_read_behind_any_name() {
    let info = |text: &str| parse_routing(&Value::from(text));
    let both = info("Address [name=routingTypes={x}, routingTypes={MULTICAST,ANYCAST}, autoCreated=false]");
    assert_eq!(both, Ok(vec![Routing::Multicast, Routing::Anycast]));
    assert_eq!(info("Address [name=a, routingTypes={}, autoCreated=false]"), Ok(vec![]));
    assert!(info("Address [name=a]").is_err());
}
