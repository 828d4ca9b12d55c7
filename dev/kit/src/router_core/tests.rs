use serde_amqp::Value;
use serde_amqp::primitives::OrderedMap;

use super::{Answer, Bound, Core, Direction, Event, Flavour, OperStatus, Request};

const ADDRESS: &str = "org.apache.qpid.dispatch.router.config.address";
const AUTO_LINK: &str = "org.apache.qpid.dispatch.router.config.autoLink";
const LINK_ROUTE: &str = "org.apache.qpid.dispatch.router.config.linkRoute";
const CONNECTOR: &str = "org.apache.qpid.dispatch.connector";
const LISTENER: &str = "org.apache.qpid.dispatch.listener";
const VHOST: &str = "org.apache.qpid.dispatch.vhost";

fn router() -> Core {
    Core::new("R1", Flavour::Qdrouterd)
}

fn call(core: &mut Core, request: &Request) -> Answer {
    core.call(request).expect("an answer")
}

fn create(core: &mut Core, kind: &str, name: Option<&str>, attributes: &[(&str, &str)]) -> Answer {
    let attributes: Vec<_> = attributes.iter().map(|(key, value)| (*key, Value::from(*value))).collect();
    call(core, &Request::create(kind, name, &attributes))
}

fn words(answer: &Answer) -> (i32, &str) {
    (answer.status, &answer.description)
}

fn get(body: &Value, key: &str) -> Value {
    let Value::Map(map) = body else { return Value::Null };
    map.get(&Value::from(key)).cloned().unwrap_or_default()
}

fn rows(answer: &Answer) -> Vec<Vec<Value>> {
    let Value::List(rows) = get(&answer.body, "results") else { return Vec::new() };
    rows.into_iter().map(|row| if let Value::List(row) = row { row } else { Vec::new() }).collect()
}

#[test]
fn names_and_patterns_are_unique_and_separators_are_one() {
    let mut core = router();
    assert_eq!(words(&create(&mut core, ADDRESS, Some("one"), &[("pattern", "a.b")])), (201, "Created"));
    let again = create(&mut core, ADDRESS, Some("one"), &[("pattern", "zz")]);
    assert_eq!((words(&again), &again.body), ((400, "Name conflicts with an existing entity"), &Value::Null));
    for same in ["a/b", "/a.b/", "a.b."] {
        assert_eq!(words(&create(&mut core, ADDRESS, Some("two"), &[("pattern", same)])), (400, "Already exists"));
    }
    assert_eq!(words(&create(&mut core, ADDRESS, None, &[("prefix", "a.b")])), (201, "Created"));
    assert_eq!(words(&create(&mut core, ADDRESS, None, &[("pattern", "a/b/#")])), (400, "Already exists"));
    let both = create(&mut core, ADDRESS, None, &[("prefix", "p"), ("pattern", "p")]);
    assert_eq!(words(&both), (400, "Cannot specify both a 'prefix' and a 'pattern' attribute"));
    assert_eq!(words(&call(&mut core, &Request::delete(ADDRESS, "one"))), (204, "No Content"));
    assert_eq!(words(&create(&mut core, ADDRESS, Some("one"), &[("pattern", "a/b")])), (201, "Created"));
    assert_eq!(words(&call(&mut core, &Request::delete(ADDRESS, "nope"))), (404, "Not Found"));
}

#[test]
fn the_core_takes_nearly_everything() {
    let mut core = router();
    let made = create(&mut core, ADDRESS, None, &[("pattern", "x"), ("distribution", "zz"), ("bogus", "1")]);
    assert_eq!(get(&made.body, "distribution"), Value::from("balanced"));
    assert_eq!((get(&made.body, "name"), get(&made.body, "bogus")), (Value::Null, Value::Null));
    let waypoint = Request::create(ADDRESS, Some("w"), &[("pattern", "w".into()), ("waypoint", Value::Bool(true))]);
    let made = call(&mut core, &waypoint);
    assert_eq!((get(&made.body, "waypoint"), get(&made.body, "egressPhase")), (Value::Bool(true), Value::Int(1)));
    let update = Request { operation: "UPDATE".to_owned(), ..Request::read(ADDRESS, "w") };
    assert_eq!(core.call(&update), None);
    assert!((core.treatment("w").out_phase, core.treatment("w").in_phase) == (1, 0));
}

#[test]
fn the_best_pattern_wins_and_link_routes_are_apart() {
    let mut core = router();
    for (pattern, distribution) in [("#", "balanced"), ("a.*", "multicast"), ("a.b", "balanced")] {
        create(&mut core, ADDRESS, None, &[("pattern", pattern), ("distribution", distribution)]);
    }
    assert!(core.treatment("a/x").multicast && !core.treatment("a/b").multicast && !core.treatment("a/b/c").multicast);
    create(&mut core, LINK_ROUTE, Some("r"), &[("prefix", "news"), ("direction", "out"), ("connection", "c")]);
    create(&mut core, LINK_ROUTE, Some("s"), &[("pattern", "exact"), ("direction", "out"), ("connection", "c")]);
    let found = |core: &Core, address: &str| core.routes_for(address, Direction::Out).len();
    assert_eq!(["news", "news.sport", "exact", "exact.sport"].map(|a| found(&core, a)), [1, 1, 1, 0]);
    assert_eq!(core.routes_for("news", Direction::In).len(), 0);
    // Two of one pattern are one place for two.
    create(&mut core, LINK_ROUTE, Some("t"), &[("pattern", "exact"), ("direction", "out"), ("connection", "d")]);
    call(&mut core, &Request::delete(LINK_ROUTE, "s"));
    assert_eq!(found(&core, "exact"), 1);
}

#[test]
fn pages_are_cut_by_offset_and_count() {
    let mut core = router();
    for number in 0..1_000 {
        create(&mut core, ADDRESS, Some(&format!("n{number}")), &[("pattern", &format!("p{number}"))]);
    }
    let mut seen = Vec::new();
    for offset in (0..1_200).step_by(100) {
        let page = Request { offset: Some(offset), count: Some(100), ..Request::query(ADDRESS, &["name", "bogus"]) };
        seen.extend(rows(&call(&mut core, &page)));
    }
    assert_eq!(seen.len(), 1_000);
    assert!(seen.iter().enumerate().all(|(number, row)| row[0] == Value::String(format!("n{number}"))));
    assert_eq!(seen[7][1], Value::from("n7"), "a column that does not exist is the first one");
}

#[test]
fn the_second_agent_takes_the_schema_at_its_word_and_does_not_page() {
    let mut core = router();
    let made = create(&mut core, CONNECTOR, Some("c"), &[("host", "h"), ("port", "5671"), ("saslPassword", "pw")]);
    assert_eq!((made.status, made.echoes_any_id), (201, false));
    assert_eq!(get(&made.body, "identity"), Value::from("connector/h:5671:c"));
    assert_eq!(get(&made.body, "connectionStatus"), Value::from("CONNECTING"));
    let wrong = create(&mut core, CONNECTOR, Some("d"), &[("bogus", "1")]);
    assert_eq!(words(&wrong), (400, "Unknown attribute 'bogus' for 'org.apache.qpid.dispatch.connector'"));
    let wrong = create(&mut core, CONNECTOR, Some("d"), &[("role", "x")]);
    assert!(wrong.description.ends_with("'route-container', 'edge']: 'x'"), "{}", wrong.description);
    let again = create(&mut core, CONNECTOR, Some("c"), &[("host", "h")]);
    assert!(again.description.contains("duplicates unique attribute 'name' from existing ConnectorEntity("));
    create(&mut core, CONNECTOR, None, &[("host", "h"), ("port", "1")]);
    let page = Request { offset: Some(1), count: Some(1), ..Request::query(CONNECTOR, &["name"]) };
    assert_eq!(rows(&call(&mut core, &page)).len(), 2);
    let unknown = call(&mut core, &Request::query(CONNECTOR, &["name", "nope"]));
    assert_eq!(words(&unknown), (404, "Unknown attributes ['nope'] for type org.apache.qpid.dispatch.connector."));
    let update = Request { operation: "UPDATE".to_owned(), ..Request::read(CONNECTOR, "c") };
    assert_eq!(call(&mut core, &update).status, 501);
    assert_eq!(words(&call(&mut core, &Request::read(LISTENER, "x"))), (404, "No entity with name=x"));
}

#[test]
fn vhosts_can_be_updated() {
    let mut core = router();
    create(&mut core, VHOST, Some("t1"), &[("hostname", "t1")]);
    let again = create(&mut core, VHOST, Some("t2"), &[("hostname", "t1")]);
    assert!(again.description.contains("duplicates unique attribute 'identity'"), "{}", again.description);
    let mut update = Request::create(VHOST, Some("t1"), &[("maxConnections", Value::Int(5))]);
    update.operation = "UPDATE".to_owned();
    assert_eq!(get(&call(&mut core, &update).body, "maxConnections"), Value::Int(5));
    let missing = create(&mut core, VHOST, Some("t3"), &[]);
    assert_eq!(words(&missing), (400, "org.apache.qpid.dispatch.vhost: Missing required attribute 'hostname'"));
}

#[test]
fn auto_links_follow_their_connection() {
    let mut core = router();
    core.record_events();
    let both = [("address", "q"), ("direction", "in"), ("connection", "c"), ("containerId", "d")];
    let refused = create(&mut core, AUTO_LINK, None, &both);
    assert_eq!(words(&refused), (400, "Both connection and containerId cannot be specified. Specify only one"));
    create(&mut core, AUTO_LINK, Some("in"), &[("address", "q"), ("direction", "in"), ("connection", "c")]);
    let bound = Bound::Connection("c".to_owned());
    assert_eq!(core.auto_links().next().map(|(_, link)| (link.status, link.phase)), Some((OperStatus::Inactive, 1)));
    let links = core.container_up(&bound);
    core.set_auto_link(links[0], OperStatus::Failed, Some("no such queue"));
    core.set_auto_link(links[0], OperStatus::Active, None);
    let shown = call(&mut core, &Request::read(AUTO_LINK, "in"));
    let shown = (get(&shown.body, "operStatus"), get(&shown.body, "lastError"));
    assert_eq!(shown, (Value::from("active"), Value::from("no such queue")));
    create(&mut core, AUTO_LINK, Some("out"), &[("address", "q"), ("direction", "out"), ("connection", "c")]);
    assert_eq!(core.auto_links().nth(1).map(|(_, link)| link.status), Some(OperStatus::Attaching));
    assert_eq!(core.container_down(&bound).len(), 2);
    assert!(core.auto_links().all(|(_, link)| link.status == OperStatus::Inactive));
    assert_eq!(core.take_events().iter().filter(|event| matches!(event, Event::AutoLinkMade(_))).count(), 2);
}

#[test]
fn a_restart_leaves_what_the_file_says() {
    let mut core = router();
    core.file_listener("127.0.0.1", 5672);
    create(&mut core, ADDRESS, Some("a"), &[("pattern", "a")]);
    create(&mut core, LISTENER, Some("ready"), &[("host", "127.0.0.1"), ("port", "7779")]);
    assert_eq!(core.names("listener").collect::<Vec<_>>(), ["listener/127.0.0.1:5672", "ready"]);
    core.restart();
    assert_eq!(core.names("listener").count(), 1);
    assert!(rows(&call(&mut core, &Request::query(ADDRESS, &[]))).is_empty());
    assert_eq!(core.counters().creates, 2);
}

#[test]
fn the_newer_router_drops_what_it_does_not_know() {
    let mut core = Core::new("S1", Flavour::Skrouterd);
    let waypoint = [("pattern", "w".into()), ("waypoint", Value::Bool(true))];
    let made = call(&mut core, &Request::create("io.skupper.router.router.config.address", Some("w"), &waypoint));
    assert_eq!((made.status, get(&made.body, "waypoint")), (201, Value::Null));
    let route = create(&mut core, "io.skupper.router.router.config.linkRoute", Some("r"), &[("pattern", "x")]);
    assert_eq!(words(&route), (400, "No such entity type 'io.skupper.router.router.config.linkRoute'"));
    let schema = call(&mut core, &Request { operation: "GET-SCHEMA".to_owned(), ..Request::default() });
    let types = get(&schema.body, "entityTypes");
    let attributes = get(&get(&types, "address"), "attributes");
    assert_eq!(get(&schema.body, "prefix"), Value::from("io.skupper.router"));
    assert_eq!((get(&types, "linkRoute"), get(&attributes, "waypoint")), (Value::Null, Value::Null));
    assert_ne!(get(&attributes, "pattern"), Value::Null);
}

#[test]
fn one_name_can_be_refused_and_others_are_not() {
    let mut core = router();
    core.refuse("bad", "no");
    assert_eq!(words(&create(&mut core, ADDRESS, Some("a-bad-one"), &[("pattern", "x")])), (400, "no"));
    assert_eq!(words(&create(&mut core, ADDRESS, Some("other"), &[("pattern", "is/bad")])), (400, "no"));
    assert_eq!(words(&create(&mut core, CONNECTOR, Some("bad"), &[])), (400, "no"));
    assert_eq!(create(&mut core, ADDRESS, Some("good"), &[("pattern", "x")]).status, 201);
    core.relent("bad");
    assert_eq!(create(&mut core, ADDRESS, Some("a-bad-one"), &[("pattern", "y")]).status, 201);
}

#[test]
fn questions_about_the_schema_are_answered() {
    let mut core = router();
    let ask = |core: &mut Core, operation: &str, kind: Option<&str>| {
        let queried_type = kind.map(str::to_owned);
        call(core, &Request { operation: operation.to_owned(), queried_type, ..Request::default() })
    };
    let attributes = ask(&mut core, "GET-ATTRIBUTES", Some(CONNECTOR));
    let Value::List(attributes) = get(&attributes.body, CONNECTOR) else { panic!("{attributes:?}") };
    assert_eq!(attributes.len(), 26);
    let nodes = ask(&mut core, "GET-MGMT-NODES", None);
    assert_eq!(nodes.body, Value::List(vec!["amqp:/_topo/0/R1/$management".into()]));
    assert_eq!(ask(&mut core, "GET-ANNOTATIONS", None).body, Value::Map(OrderedMap::new()));
    assert_eq!(ask(&mut core, "FROB", None).status, 501);
    assert_eq!(words(&ask(&mut core, "GET-TYPES", Some("bogus"))), (400, "No such entity type 'bogus'"));
}
