//! What goes over the wire, and what comes back.

use super::*;

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::String(key.to_owned()), value)).collect())
}

fn list(names: &[&str]) -> Value {
    Value::List(names.iter().map(|name| Value::String((*name).to_owned())).collect())
}

fn reply(status: i32, words: &str, body: Value) -> Reply {
    let properties = [
        ("statusCode".to_owned(), SimpleValue::Int(status)),
        ("statusDescription".to_owned(), SimpleValue::String(words.to_owned())),
    ];
    Reply { properties: properties.into_iter().collect(), body }
}

#[test]
fn the_schema_tells_which_router_it_is_and_what_it_lacks() {
    let Value::Map(full) = map([
        ("org.apache.qpid.dispatch.router.config.address", list(&["name", "waypoint"])),
        ("org.apache.qpid.dispatch.router.config.linkRoute", list(&["name"])),
        ("org.apache.qpid.dispatch.listener", list(&["multiTenant"])),
    ]) else {
        panic!()
    };
    let all = Abilities { waypoints: true, link_routes: true, multi_tenant: true, policies: false };
    assert_eq!(understand(&full), Some(("org.apache.qpid.dispatch", all)));
    let Value::Map(less) = map([
        ("io.skupper.router.router.config.address", list(&["name", "pattern"])),
        ("io.skupper.router.listener", list(&["name"])),
    ]) else {
        panic!()
    };
    assert_eq!(understand(&less), Some(("io.skupper.router", Abilities::default())));
    let Value::Map(broker) = map([("org.example.queue", list(&["name"]))]) else { panic!() };
    assert_eq!(understand(&broker), None);
}

#[test]
fn a_question_says_what_page_of_which_type_it_wants() {
    let operation = Operation::Query { offset: 500, count: 250, attributes: &["name", "pattern"] };
    let request = encode(Request { of: Type::Address, operation }, "p");
    let text = |text: &str| SimpleValue::String(text.to_owned());
    let expected = [
        ("operation", text("QUERY")),
        ("entityType", text("p.router.config.address")),
        ("offset", SimpleValue::Int(500)),
        ("count", SimpleValue::Int(250)),
    ];
    assert_eq!(request.properties, expected);
    assert_eq!(request.body, map([("attributeNames", list(&["name", "pattern"]))]));
}

#[test]
fn rows_come_in_the_order_that_was_asked_for() {
    let operation = Operation::Query { offset: 0, count: 10, attributes: &["name", "pattern"] };
    let body = map([
        ("attributeNames", list(&["pattern", "name"])),
        ("results", Value::List(vec![list(&["x", "n"]), list(&[])])),
    ]);
    let rows = vec![vec!["n".into(), "x".into()], vec![Json::Null, Json::Null]];
    assert_eq!(decode(&operation, reply(200, "OK", body)), Ok(Answer::Rows(rows)));
    assert!(matches!(decode(&operation, reply(200, "OK", Value::Null)), Err(CallError::Refused(_))));
}

#[test]
fn what_is_missing_is_told_from_what_is_refused() {
    let read = Operation::Read("n".to_owned());
    assert_eq!(decode(&read, reply(404, "Not Found", Value::Null)), Err(CallError::NotFound));
    assert_eq!(decode(&read, reply(400, "words", Value::Null)), Err(CallError::Refused("words".to_owned())));
    let entity = map([("name", Value::String("n".into())), ("saslPassword", Value::String("p".into()))]);
    let Ok(Answer::Entity(entity)) = decode(&read, reply(200, "OK", entity)) else { panic!() };
    assert_eq!(entity.keys().collect::<Vec<_>>(), ["name"], "a password is not taken in");
    let create = Operation::Create("n".to_owned(), serde_json::Map::new());
    assert_eq!(decode(&create, reply(201, "Created", Value::Null)), Ok(Answer::Done));
    let delete = Operation::Delete("n".to_owned());
    assert_eq!(decode(&delete, reply(204, "", Value::Null)), Ok(Answer::Done));
    let silent = decode(&delete, reply(500, "", Value::Null));
    assert_eq!(silent, Err(CallError::Refused("refused without a reason (500)".to_owned())));
}
