//! A broker that others use as well: what is theirs stays as it is, whatever is asked for under its name.

use serde_json::{Map, Value, json};

use super::broker_in_memory::QueueState;
use super::carrying::{gone, instead, multicast, ready, subscription};
use super::*;

const OTHER: &str = "waystation:other";

/// What somebody else has set for an address.
fn theirs() -> Map<String, Value> {
    let all = json!({
        "maxExpiryDelay": 3_600_000, "autoCreateQueues": false, "autoCreateAddresses": false, "autoDeleteQueues": false,
        "autoDeleteAddresses": false, "autoCreateDeadLetterResources": false, "autoCreateExpiryResources": false,
    });
    all.as_object().cloned().unwrap()
}

fn put(bench: &Bench, queue: &str, address: &str, routing: &str, user: &str) {
    let mut state = bench.broker.state();
    state.addresses.insert(address.to_owned(), vec![routing.to_owned()]);
    let (address, routing, user) = (address.to_owned(), routing.to_owned(), user.to_owned());
    let there = QueueState { address, routing, durable: true, max_consumers: -1, user, messages: 3 };
    state.queues.insert(queue.to_owned(), there);
}

#[tokio::test(start_paused = true)]
async fn the_settings_of_what_another_has_stay_whatever_type_is_asked_for() {
    let cases = [
        // The queue itself, one under another name, a topic with a subscription.
        ("s/a", "s/a", "ANYCAST", OTHER),
        ("s/elsewhere", "s/a", "ANYCAST", OTHER),
        ("s/archive", "s/a", "MULTICAST", OTHER),
        ("s/a", "s/a", "ANYCAST", ""),
        ("s/elsewhere", "s/a", "ANYCAST", ""),
    ];
    for (name, address, routing, user) in cases {
        for wish in [hold(queue("s/a")), hold(multicast("s/a")), instead(queue("s/a")), instead(multicast("s/a"))] {
            let mut bench = ready().await;
            put(&bench, name, address, routing, user);
            bench.broker.state().settings.insert("s/a".into(), theirs());
            let words = bench.does("s/a", wish.clone()).await.expect_err(&format!("{name} {routing} {user} {wish:?}"));
            assert!(words.contains("s/a"), "{words}");
            let state = bench.broker.state();
            assert_eq!(state.settings["s/a"], theirs(), "{name} {routing} {user} {wish:?}: {words}");
            assert_eq!(state.queues[name].messages, 3);
            let written = ["addAddressSettings", "removeAddressSettings", "createQueue", "createAddress"];
            assert!(!state.calls.iter().any(|call| written.contains(call)), "{wish:?}: {:?}", state.calls);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_were_sent_for_what_is_refused_are_taken_back() {
    for operation in ["createQueue", "createAddress"] {
        let wanted = if operation == "createQueue" { queue("s/a") } else { multicast("s/a") };
        let mut bench = ready().await;
        bench.broker.state().refuses.insert(operation, "AMQ229032: User has no permission");
        assert!(bench.does("s/a", hold(wanted.clone())).await.unwrap_err().contains("no permission"));
        assert!(bench.broker.state().settings.is_empty(), "{operation}");
        // What somebody had set there before is there again.
        bench.broker.state().settings.insert("s/a".into(), theirs());
        assert!(bench.does("s/a", hold(wanted)).await.unwrap_err().contains("no permission"));
        assert_eq!(bench.broker.state().settings["s/a"]["maxExpiryDelay"], 3_600_000, "{operation}");
        assert_eq!(bench.broker.state().settings["s/a"].get("maxDeliveryAttempts"), None, "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_refused_leaves_what_is_ours_as_it_was() {
    let mut bench = ready().await;
    bench.does("s/t", hold(multicast("s/t"))).await.unwrap();
    bench.does("s/a", hold(subscription("s/a", "s/t", 1))).await.unwrap();
    bench.broker.state().settings.insert("s/a".into(), theirs());
    let words = bench.does("s/a", hold(queue("s/a"))).await.unwrap_err();
    assert!(words.contains("queue of address s/t"), "{words}");
    assert_eq!(bench.broker.state().settings["s/a"], theirs());
}

#[tokio::test(start_paused = true)]
async fn what_never_came_to_be_beside_anothers_needs_no_removal() {
    for (name, routing) in [("s/a", "ANYCAST"), ("s/elsewhere", "ANYCAST"), ("s/archive", "MULTICAST")] {
        for wish in [gone(queue("s/a"), false), gone(multicast("s/a"), false)] {
            let mut bench = ready().await;
            put(&bench, name, "s/a", routing, OTHER);
            bench.broker.state().settings.insert("s/a".into(), theirs());
            assert_eq!(bench.does("s/a", wish.clone()).await, Ok(Done::Gone), "{name} {routing} {wish:?}");
            let state = bench.broker.state();
            assert_eq!(state.settings["s/a"], theirs(), "{name} {routing} {wish:?}");
            assert!(state.queues.contains_key(name) && state.addresses.contains_key("s/a"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_another_owner_is_neither_taken_over_nor_taken_away() {
    let mut bench = ready().await;
    {
        let mut state = bench.broker.state();
        state.addresses.insert("s/a".into(), vec!["MULTICAST".into()]);
        state.settings.insert("s/a".into(), theirs());
    }
    put(&bench, "_waystation/s/a", "_waystation/s", "MULTICAST", OTHER);
    let words = bench.does("s/a", hold(multicast("s/a"))).await.unwrap_err();
    assert!(words.contains(OTHER) && words.contains("address s/a"), "{words}");
    assert_eq!(bench.does("s/a", Wish::Verify { entry: Arc::new(multicast("s/a")) }).await, Ok(Done::Held));
    assert_eq!(bench.does("s/a", gone(multicast("s/a"), false)).await, Ok(Done::Gone));
    let state = bench.broker.state();
    assert!(state.addresses.contains_key("s/a") && state.queues.contains_key("_waystation/s/a"));
    assert_eq!(state.settings["s/a"], theirs());
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_marked_before_it_is_made_and_as_long_as_it_is_there() {
    let mut bench = ready().await;
    assert_eq!(bench.does("s/a", hold(multicast("s/a"))).await, Ok(Done::Held));
    let changes: Vec<&str> = bench.broker.operations().into_iter().filter(|name| !name.starts_with("get")).collect();
    assert_eq!(changes, ["createQueue", "addAddressSettings", "createAddress"]);
    assert_eq!(bench.broker.state().queues["_waystation/s/a"].user, "waystation:o");
    bench.commands.send(Command::Reread).ok().unwrap();
    assert_eq!(bench.report().await, Link::Reading);
    let Link::Contents(contents) = bench.report().await else { panic!() };
    assert!(contents.queues.is_empty() && contents.marks.iter().eq(["s/a"].map(Slot::from).iter()), "{contents:?}");
    assert_eq!(contents.addresses.len(), 1, "{contents:?}");
    // Taken away by hand, it is told of and made again.
    bench.broker.remove_by_hand("_waystation/s/a");
    assert_eq!(bench.report().await, Link::Lost("s/a".into()));
    assert_eq!(bench.does("s/a", hold(multicast("s/a"))).await, Ok(Done::Held));
    assert_eq!(bench.does("s/a", gone(multicast("s/a"), false)).await, Ok(Done::Gone));
    let state = bench.broker.state();
    assert!(state.queues.is_empty() && state.addresses.is_empty() && state.settings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_before_there_were_marks_gets_one_and_nothing_else() {
    let mut bench = ready().await;
    bench.does("s/a", hold(multicast("s/a"))).await.unwrap();
    bench.broker.remove_by_hand("_waystation/s/a");
    assert_eq!(bench.report().await, Link::Lost("s/a".into()));
    assert_eq!(bench.does("s/a", Wish::Verify { entry: Arc::new(multicast("s/a")) }).await, Ok(Done::Held));
    let changes: Vec<&str> = bench.broker.operations().into_iter().filter(|name| !name.starts_with("get")).collect();
    assert_eq!(changes, ["createQueue"]);
    assert_eq!(bench.broker.state().queues["_waystation/s/a"].user, "waystation:o");
}

#[tokio::test(start_paused = true)]
async fn a_mark_goes_with_what_is_refused_and_with_what_becomes_a_queue() {
    let mut bench = ready().await;
    bench.broker.state().refuses.insert("createAddress", "AMQ229032: User has no permission");
    assert!(bench.does("s/a", hold(multicast("s/a"))).await.is_err());
    assert!(bench.broker.state().queues.is_empty());
    bench.broker.state().refuses.clear();
    bench.does("s/a", hold(multicast("s/a"))).await.unwrap();
    assert_eq!(bench.does("s/a", instead(queue("s/a"))).await, Ok(Done::Held));
    assert_eq!(bench.broker.state().queues.keys().collect::<Vec<_>>(), ["s/a"]);
    assert!(bench.reports.try_recv().is_err(), "our own removals are no losses");
}

#[tokio::test(start_paused = true)]
async fn the_settings_of_a_space_that_another_has_marked_are_used_and_not_taken_away() {
    use crate::messaging::broker::{ground, ground_entry};
    let mut bench = ready().await;
    let space = ground("n.s/");
    put(&bench, "_waystation/n.s/", "_waystation/n.s", "MULTICAST", OTHER);
    assert_eq!(bench.does(&space, hold(ground_entry(&space))).await, Ok(Done::Held));
    assert!(bench.broker.state().settings.contains_key(&*space));
    assert_eq!(bench.does(&space, gone(ground_entry(&space), false)).await, Ok(Done::Gone));
    assert!(bench.broker.state().settings.contains_key(&*space));
}

#[tokio::test(start_paused = true)]
async fn a_leftover_address_stays_while_somebody_receives_from_it() {
    let mut bench = ready().await;
    bench.does("s/a", hold(multicast("s/a"))).await.unwrap();
    put(&bench, "1234", "s/a", "MULTICAST", "client");
    bench.broker.state().queues.get_mut("1234").unwrap().durable = false;
    assert_eq!(bench.does("s/a", gone(multicast("s/a"), true)).await, Ok(Done::NotEmpty { messages: 0 }));
    assert!(bench.broker.state().queues.contains_key("_waystation/s/a"), "it is found again");
    bench.broker.remove_by_hand("1234");
    assert_eq!(bench.does("s/a", gone(multicast("s/a"), true)).await, Ok(Done::Gone));
    assert!(bench.broker.state().queues.is_empty() && bench.broker.state().settings.is_empty());
}
