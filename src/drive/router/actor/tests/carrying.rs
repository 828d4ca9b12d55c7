//! One job at a time: what is asked, and what becomes of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_kind_of_entry_is_made_left_alone_and_taken_away() {
    let mut bench = Bench::connected().await;
    let before = names_on(&bench.router);
    for (slot, entry) in [
        ("s/any", anycast()),
        ("s/every", multicast()),
        ("s/queue", queue("b")),
        ("s/topic", topic("b")),
        ("#ready", readiness()),
        ("s/ü::x \"quoted\"", Entry::LinkRoute { broker: "b".into(), both: false }),
    ] {
        assert_eq!(bench.does(slot, hold(entry.clone())).await, HELD, "{slot}");
        let mut all = [before.clone(), names_of(slot, &entry)].concat();
        all.sort();
        assert_eq!(names_on(&bench.router), all);
        assert_eq!(bench.does(slot, hold(entry.clone())).await, HELD);
        assert!(bench.router.asked().is_empty(), "{slot}");
        assert_eq!(bench.does(slot, Wish::Gone).await, Ok(Done::Gone));
        assert_eq!(bench.does(slot, Wish::Gone).await, Ok(Done::Gone));
        assert!(bench.router.asked().len() == entry.entities().len() || bench.router.asked().is_empty());
        assert_eq!(names_on(&bench.router), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_moves_to_another_broker_by_its_links_alone() {
    let mut bench = Bench::connected().await;
    assert_eq!(bench.does(&connector_slot("c"), hold(connector("c"))).await, HELD);
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    assert_eq!(bench.does("s/q", hold(queue("c"))).await, HELD);
    let asked: Vec<String> = bench.router.asked().into_iter().filter(|asked| !asked.starts_with("READ")).collect();
    let of = "router.config.autoLink";
    let expected = [
        ("DELETE", name("s/q", &queue("b"), 2)),
        ("DELETE", name("s/q", &queue("b"), 1)),
        ("CREATE", name("s/q", &queue("c"), 1)),
        ("CREATE", name("s/q", &queue("c"), 2)),
    ];
    assert_eq!(asked, expected.map(|(operation, name)| format!("{operation} {of} {name}")));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_changes_is_made_anew_and_its_links_stay() {
    let mut bench = Bench::connected().await;
    assert_eq!(bench.does("s/q", hold(anycast())).await, HELD);
    assert_eq!(bench.does("s/q", hold(multicast())).await, HELD);
    let address = name("s/q", &anycast(), 0);
    let of = "router.config.address";
    assert_eq!(bench.router.asked(), [format!("DELETE {of} {address}"), format!("CREATE {of} {address}")]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_routers_words_and_what_was_made_is_taken_back() {
    let mut bench = Bench::connected().await;
    let before = names_on(&bench.router);
    bench.router.state().core.refuse(&name("s/q", &queue("b"), 2), "Out of memory");
    for slot in ["s/p", "s/q", "s/r"] {
        bench.put(slot, Turn::Change, hold(queue("b")));
    }
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let outcome = bench.outcome().await;
        outcomes.push((outcome.slot.to_string(), outcome.result));
    }
    outcomes.sort_by(|one, other| one.0.cmp(&other.0));
    let refused = Err("Out of memory".to_owned());
    assert_eq!(outcomes, [("s/p".to_owned(), HELD), ("s/q".to_owned(), refused.clone()), ("s/r".to_owned(), HELD)]);
    let mut left = [before, names_of("s/p", &queue("b")), names_of("s/r", &queue("b"))].concat();
    left.sort();
    assert_eq!(names_on(&bench.router), left);
    // And once more, since nothing is remembered of it.
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, refused);
    bench.router.state().core.relent(&name("s/q", &queue("b"), 2));
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
}

#[tokio::test(start_paused = true)]
async fn what_others_made_is_never_touched() {
    let mut bench = bench();
    make_by_hand(&bench.router, "another", "s/a", &anycast());
    bench.started().await;
    let words = bench.does("s/a", hold(multicast())).await.unwrap_err();
    assert_eq!(words, "Already exists");
    assert_eq!(bench.does("s/a", Wish::Gone).await, Ok(Done::Gone));
    let theirs = Names::new("another").name("s/a", &anycast().entities()[0]);
    assert!(bench.router.by_hand(ops::read(Type::Address, theirs)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_went_by_hand_is_missed_and_nothing_more() {
    let mut bench = Bench::connected().await;
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    bench.router.by_hand(ops::delete(Type::AutoLink, name("s/q", &queue("b"), 1))).unwrap();
    assert_eq!(bench.does("s/q", Wish::Gone).await, Ok(Done::Gone));
    assert_eq!(names_on(&bench.router), names_of(&connector_slot("b"), &connector("b")));
}

#[tokio::test(start_paused = true)]
async fn the_readiness_listener_speaks_no_http_and_lets_nobody_in() {
    let mut bench = bench();
    bench.started().await;
    assert_eq!(bench.does(&readiness_slot(), hold(readiness())).await, HELD);
    let made = bench.router.by_hand(ops::read(Type::Listener, Names::new(OWNER).readiness())).unwrap();
    let crate::drive::router::link::Answer::Entity(made) = made else { panic!("{made:?}") };
    let made: Map<String, Value> = made;
    assert_eq!((made["host"].as_str(), made["port"].as_str()), (Some("127.0.0.1"), Some("7779")));
    assert_eq!((made["role"].as_str(), made["http"].as_bool()), (Some("normal"), Some(false)));
    assert_eq!((made["authenticatePeer"].as_bool(), made["saslMechanisms"].as_str()), (Some(true), Some("EXTERNAL")));
}

#[tokio::test(start_paused = true)]
async fn a_connector_logs_in_with_what_its_secret_says_and_nobody_sees_it() {
    let mut bench = bench();
    bench.started().await;
    let slot = connector_slot("b");
    assert_eq!(bench.does(&slot, hold(with_login(1))).await, HELD);
    let made = bench.router.state().core.connectors().remove(0);
    assert_eq!((made.user.as_deref(), made.password.as_deref()), (Some("user"), Some("do-not-print-me")));
    assert!(made.route_container);
    let asked = bench.router.asked();
    assert_eq!(asked, [format!("CREATE connector {}", Names::new(OWNER).connector("b"))]);
    // Another password: the connector is made anew, and nothing else.
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    assert_eq!(bench.does(&slot, hold(with_login(1))).await, HELD);
    assert!(bench.router.asked().is_empty());
    assert_eq!(bench.does(&slot, hold(with_login(2))).await, HELD);
    let connector = Names::new(OWNER).connector("b");
    assert_eq!(bench.router.asked(), ["DELETE", "CREATE"].map(|done| format!("{done} connector {connector}")));
}

#[tokio::test(start_paused = true)]
async fn a_connector_without_its_secret_is_refused() {
    let mut bench = bench();
    bench.started().await;
    let Entry::Connector(mut other) = connector("b") else { panic!() };
    other.credentials = Some((Key::new("infra", "missing"), 1));
    let refused = bench.does(&connector_slot("b"), hold(Entry::Connector(other))).await;
    assert_eq!(refused, Err("Secret infra/missing has no username and password".to_owned()));
    assert!(bench.router.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_router_says_of_a_connector_never_shows_its_password() {
    let mut bench = bench();
    bench.started().await;
    let slot = connector_slot("b");
    bench.router.state().core.refuse("waystation-o.connector", "Invalid {'saslPassword': 'do-not-print-me'}");
    let refused = bench.does(&slot, hold(with_login(1))).await;
    assert_eq!(refused, Err("Invalid {'saslPassword': '***'}".to_owned()));
    // A name that another of its types has: the router's words would show both.
    bench.router.state().core.relent("waystation-o.connector");
    let mut taken = ops::create(&Names::new(OWNER), "", &readiness().entities()[0], &None);
    if let Operation::Create(name, _) = &mut taken.operation {
        *name = Names::new(OWNER).connector("b");
    }
    bench.router.by_hand(taken).unwrap();
    let refused = bench.does(&slot, hold(with_login(1))).await.unwrap_err();
    assert!(!refused.contains("do-not-print-me"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_connector_of_an_earlier_process_is_left_alone_while_it_is_up() {
    for (down, expected) in [(None, 0), (Some("refused"), 2)] {
        let mut bench = bench();
        bench.router.state().brokers_down = down;
        make_by_hand(&bench.router, OWNER, &connector_slot("b"), &connector("b"));
        bench.started().await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.does(&connector_slot("b"), hold(with_login(1))).await, HELD);
        assert_eq!(bench.router.asked().len(), expected, "{down:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connector_of_an_earlier_process_is_made_anew_when_its_login_changes_however_well_it_is_connected() {
    let mut bench = bench();
    make_by_hand(&bench.router, OWNER, &connector_slot("b"), &connector("b"));
    bench.started().await;
    sleep(Duration::from_secs(2)).await;
    let Entry::Connector(mut changed) = with_login(2) else { panic!() };
    changed.relogin = true;
    let entry = Entry::Connector(changed);
    assert_eq!(bench.does(&connector_slot("b"), hold(entry.clone())).await, HELD);
    let made = bench.router.state().core.connectors().remove(0);
    assert_eq!(made.password.as_deref(), Some("do-not-print-me"));
    // From then on it is known.
    bench.router.asked();
    assert_eq!(bench.does(&connector_slot("b"), hold(entry)).await, HELD);
    assert!(bench.router.asked().is_empty());
}
