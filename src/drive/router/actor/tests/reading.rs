//! What is found on a router, and what happens before and while it is read.

use super::*;

#[tokio::test(start_paused = true)]
async fn contents_are_all_slots_of_ours_with_what_they_are() {
    let mut bench = bench();
    make_by_hand(&bench.router, OWNER, &connector_slot("b"), &connector("b"));
    make_by_hand(&bench.router, OWNER, &readiness_slot(), &readiness());
    make_by_hand(&bench.router, OWNER, "s/topic", &topic("b"));
    make_by_hand(&bench.router, OWNER, "s/every", &multicast());
    // More than a page.
    for at in 0..1_234 {
        make_by_hand(&bench.router, OWNER, &format!("s/{at}"), &queue("b"));
    }
    make_by_hand(&bench.router, "another", "s/theirs", &queue("b"));
    let contents = bench.started().await;
    assert_eq!(contents.slots.len(), 1_238);
    for (slot, entry) in [
        (&*connector_slot("b"), connector("b")),
        (&*readiness_slot(), readiness()),
        ("s/topic", topic("b")),
        ("s/every", multicast()),
        ("s/0", queue("b")),
        ("s/1233", queue("b")),
    ] {
        assert_eq!(contents.slots[slot], entry.fingerprint(), "{slot}");
    }
    // The same number, whoever logs in.
    assert_eq!(with_login(7).fingerprint(), connector("b").fingerprint());
}

#[tokio::test(start_paused = true)]
async fn a_router_that_lists_slowly_is_asked_for_less_at_a_time() {
    for (page, most) in [(1, 16..=50), (2_000, 1..=1)] {
        let mut bench = bench();
        for at in 0..20_000 {
            make_by_hand(&bench.router, OWNER, &format!("s/{at}"), &anycast());
        }
        bench.router.state().slow.insert("QUERY", Duration::from_millis(page));
        assert_eq!(bench.started().await.slots.len(), 20_000);
        let asked = bench.router.state().most_pages;
        assert!(most.contains(&asked), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_router_says_what_it_can_do_and_whether_it_serves() {
    let mut bench = bench();
    let all =
        crate::messaging::router::Abilities { waypoints: true, link_routes: true, multi_tenant: true, policies: false };
    assert_eq!(bench.report().await, Report::Connected { abilities: all, serving: false, peer: None });
    make_by_hand(&bench.router, OWNER, &readiness_slot(), &readiness());
    bench.router.cut();
    loop {
        if let Report::Connected { serving, .. } = bench.report().await {
            assert!(serving);
            break;
        }
    }
    let mut bench = bench_of(MemoryRouter::new(Flavour::Skrouterd));
    let none = Default::default();
    assert_eq!(bench.report().await, Report::Connected { abilities: none, serving: false, peer: None });
    make_by_hand(&bench.router, OWNER, "s/a", &anycast());
    bench.commands.send(Command::Reread).ok().unwrap();
    loop {
        if let Report::Contents(contents) = bench.report().await
            && !contents.slots.is_empty()
        {
            assert_eq!(contents.slots["s/a"], anycast().fingerprint());
            break;
        }
    }
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, Err("this router has no waypoint addresses".to_owned()));
    assert_eq!(bench.does("s/t", hold(topic("b"))).await, Err("this router has no link routes".to_owned()));
    assert!(bench.router.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_go_before_the_read_is_done_and_repairs_and_removals_after_it() {
    let mut bench = bench();
    make_by_hand(&bench.router, OWNER, "s/gone", &queue("b"));
    bench.router.state().slow.insert("QUERY", Duration::from_secs(1));
    bench.put("s/repair", Turn::Repair, hold(anycast()));
    bench.put("s/gone", Turn::Change, Wish::Gone);
    bench.put("s/change", Turn::Change, hold(anycast()));
    assert!(matches!(bench.report().await, Report::Connected { .. }));
    assert_eq!(bench.report().await, Report::Reading);
    assert_eq!(&*bench.outcome().await.slot, "s/change");
    assert!(matches!(bench.report().await, Report::Contents(_)));
    let mut after = [bench.outcome().await, bench.outcome().await].map(|outcome| outcome.slot);
    after.sort();
    assert_eq!(after.map(|slot| slot.to_string()), ["s/gone", "s/repair"]);
    let mut left = [names_of("s/change", &anycast()), names_of("s/repair", &anycast())].concat();
    left.sort();
    assert_eq!(names_on(&bench.router), left);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_before_it_was_read_is_taken_as_it_is_or_replaced() {
    let mut bench = bench();
    make_by_hand(&bench.router, OWNER, "s/same", &multicast());
    make_by_hand(&bench.router, OWNER, "s/other", &anycast());
    make_by_hand(&bench.router, OWNER, "s/less", &queue("b"));
    bench.router.state().slow.insert("QUERY", Duration::from_secs(1));
    assert!(matches!(bench.report().await, Report::Connected { .. }));
    assert_eq!(bench.report().await, Report::Reading);
    bench.router.asked();
    for slot in ["s/same", "s/other"] {
        bench.put(slot, Turn::Change, hold(multicast()));
        assert_eq!(bench.outcome().await.result, HELD);
    }
    let (same, other) = (name("s/same", &multicast(), 0), name("s/other", &multicast(), 0));
    let of = "router.config.address";
    let expected = [
        ("CREATE", &same),
        ("READ", &same),
        ("CREATE", &other),
        ("READ", &other),
        ("DELETE", &other),
        ("CREATE", &other),
    ];
    assert_eq!(bench.router.asked(), expected.map(|(operation, name)| format!("{operation} {of} {name}")));
    // One that holds more than is wished: what is too much is found by the read.
    bench.put("s/less", Turn::Change, hold(anycast()));
    assert_eq!(bench.outcome().await.result, HELD);
    assert!(matches!(bench.report().await, Report::Contents(_)));
    sleep(Duration::from_secs(1)).await;
    let mut left = ["s/same", "s/other"].map(|slot| names_of(slot, &multicast())).concat();
    left.extend(names_of("s/less", &anycast()));
    left.sort();
    assert_eq!(names_on(&bench.router), left);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_while_it_was_read_is_remembered() {
    let mut bench = bench();
    bench.started().await;
    make_by_hand(&bench.router, OWNER, "s/a", &anycast());
    bench.router.state().slow.insert("QUERY", Duration::from_secs(1));
    bench.commands.send(Command::Reread).ok().unwrap();
    assert_eq!(bench.report().await, Report::Reading);
    // The addresses are on their way, the links are not asked for yet.
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(bench.does("s/b", hold(multicast())).await, HELD);
    assert!(matches!(bench.report().await, Report::Contents(_)));
    assert_eq!(bench.does("s/b", hold(multicast())).await, HELD);
    assert!(bench.router.asked().is_empty());
    assert_eq!(bench.does("s/b", Wish::Gone).await, Ok(Done::Gone));
    assert_eq!(bench.does("s/a", Wish::Gone).await, Ok(Done::Gone));
    assert!(names_on(&bench.router).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_bears_our_mark_and_is_none_of_ours_is_seen_and_goes() {
    let mut bench = bench();
    let mut stray = ops::create(&Names::new(OWNER), "s/a", &anycast().entities()[0], &None);
    if let Operation::Create(name, _) = &mut stray.operation {
        *name = name.replace("address/", "from-an-older-version/");
    }
    bench.router.by_hand(stray).unwrap();
    let contents = bench.started().await;
    assert_ne!(contents.slots["s/a"], anycast().fingerprint());
    assert_eq!(bench.does("s/a", hold(anycast())).await, HELD);
    assert_eq!(names_on(&bench.router), names_of("s/a", &anycast()));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_restarts_comes_back_empty_and_is_filled() {
    let mut bench = bench();
    bench.started().await;
    assert_eq!(bench.does("s/a", hold(anycast())).await, HELD);
    bench.router.restart();
    assert!(matches!(bench.report().await, Report::Down(_)));
    assert!(bench.started().await.slots.is_empty());
    bench.put("s/a", Turn::Repair, hold(anycast()));
    assert_eq!(bench.outcome().await.result, HELD);
    assert_eq!(names_on(&bench.router), names_of("s/a", &anycast()));
}
