//! One job at a time: what is sent, and what becomes of it.

use super::broker_in_memory::{QueueState, State};
use super::*;

pub fn multicast(slot: &str) -> Entry {
    let settings = Some(Settings::default());
    Entry { address: slot.into(), routing: Routing::Multicast, queue: None, settings, ground: None }
}

pub fn subscription(slot: &str, topic: &str, max_consumers: i32) -> Entry {
    Entry {
        address: topic.into(),
        routing: Routing::Multicast,
        queue: Some(Queue { name: slot.into(), durable: true, max_consumers }),
        settings: None,
        ground: None,
    }
}

pub fn gone(entry: Entry, only_if_empty: bool) -> Wish {
    Wish::Gone { entry: Arc::new(entry), only_if_empty }
}

pub fn instead(entry: Entry) -> Wish {
    Wish::Hold { entry: Arc::new(entry), replace: true }
}

impl Bench {
    pub async fn does(&mut self, slot: &str, wish: Wish) -> Result<Done, String> {
        self.broker.state().calls.clear();
        self.put(slot, Class::Change, wish);
        self.outcome().await.result
    }
}

pub async fn ready() -> Bench {
    let mut bench = bench();
    bench.started().await;
    bench
}

#[tokio::test(start_paused = true)]
async fn settings_come_before_the_queue_and_go_after_the_address() {
    let mut bench = ready().await;
    assert_eq!(bench.does("s/a", hold(queue("s/a"))).await, Ok(Done::Held));
    let changes: Vec<&str> = bench.broker.operations().into_iter().filter(|name| !name.starts_with("get")).collect();
    assert_eq!(changes, ["addAddressSettings", "createQueue"]);
    assert_eq!(bench.broker.state().queues["s/a"].user, "waystation:o");
    assert_eq!(bench.does("s/a", gone(queue("s/a"), false)).await, Ok(Done::Gone));
    assert_eq!(bench.broker.operations(), ["destroyQueue", "deleteAddress", "removeAddressSettings"]);
    let state = bench.broker.state();
    assert!(state.queues.is_empty() && state.addresses.is_empty() && state.settings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_wish_is_met_again_and_after_any_half_of_it() {
    let mut bench = ready().await;
    for _ in 0..2 {
        assert_eq!(bench.does("s/a", hold(queue("s/a"))).await, Ok(Done::Held));
    }
    // A process that died before the address went, then one that died before the settings went.
    bench.broker.remove_by_hand("s/a");
    assert!(matches!(bench.report().await, Link::Lost(_)));
    assert_eq!(bench.does("s/a", gone(queue("s/a"), false)).await, Ok(Done::Gone));
    bench.broker.state().settings.insert("s/a".into(), Default::default());
    assert_eq!(bench.does("s/a", gone(queue("s/a"), false)).await, Ok(Done::Gone));
    assert!(bench.broker.state().settings.is_empty());
    // One that died before the queue was made.
    bench.broker.state().addresses.insert("s/a".into(), vec!["ANYCAST".into()]);
    assert_eq!(bench.does("s/a", hold(queue("s/a"))).await, Ok(Done::Held));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_in_the_brokers_words_and_nothing_more_is_done() {
    let mut bench = ready().await;
    bench.broker.state().refuses.insert("addAddressSettings", "AMQ229161: pageSize has to be lower");
    assert_eq!(bench.does("s/a", hold(queue("s/a"))).await, Err("AMQ229161: pageSize has to be lower".into()));
    assert!(bench.broker.state().queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_owners_queue_is_left_as_it_is() {
    let mut bench = bench();
    bench.broker.make_by_hand("s/a", "waystation:other", 3);
    bench.started().await;
    for wish in [hold(queue("s/a")), instead(queue("s/a"))] {
        let words = bench.does("s/a", wish).await.unwrap_err();
        assert!(words.contains("waystation:other") && words.contains("3 messages"), "{words}");
    }
    assert!(bench.broker.state().settings.is_empty());
    // Nothing of ours is there: what never came to be needs no removal, and theirs stays.
    assert_eq!(bench.does("s/a", gone(queue("s/a"), false)).await, Ok(Done::Gone));
    assert_eq!(bench.does("s/a", gone(multicast("s/a"), false)).await, Ok(Done::Gone));
    assert_eq!(bench.broker.state().queues["s/a"].messages, 3);
    bench.broker.state().addresses.insert("s/b".into(), vec!["MULTICAST".into()]);
    assert!(bench.does("s/b", hold(queue("s/b"))).await.unwrap_err().contains("MULTICAST"));
    assert_eq!(bench.does("s/b", gone(queue("s/b"), false)).await, Ok(Done::Gone));
    assert!(bench.broker.state().addresses.contains_key("s/b"));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_queue_of_another_address_has_is_refused_and_leaves_no_settings() {
    let mut bench = ready().await;
    bench.broker.make_by_hand("elsewhere", "somebody", 2);
    let there = bench.broker.state().queues.remove("elsewhere").unwrap();
    bench.broker.state().queues.insert("s/a".into(), there);
    for wish in [hold(queue("s/a")), instead(queue("s/a"))] {
        let words = bench.does("s/a", wish).await.unwrap_err();
        assert!(words.contains("made by somebody") && words.contains("2 messages"), "{words}");
        assert!(bench.broker.state().settings.is_empty() && !bench.broker.state().addresses.contains_key("s/a"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_new_and_wants_what_its_space_has_is_asked_for_twice() {
    use crate::messaging::broker::{ground, ground_entry};
    let mut bench = ready().await;
    let space = ground("s/");
    bench.does(&space, hold(ground_entry(&space))).await.unwrap();
    let plain = |slot| Entry { settings: Some(Settings::default()), ground: Some(space.clone()), ..queue(slot) };
    bench.does("s/z", hold(plain("s/z"))).await.unwrap();
    assert_eq!(bench.does("s/a", hold(plain("s/a"))).await, Ok(Done::Held));
    assert_eq!(bench.broker.operations(), ["getAddressSettingsAsJSON", "getAddressInfo", "createQueue"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_meets_a_queue_which_has_just_gone_is_asked_for_again() {
    let mut bench = bench();
    bench.broker.make_by_hand("s/a", "waystation:o", 3);
    bench.broker.state().stumbles = 2;
    bench.started().await;
    assert_eq!(bench.broker.state().connects, 1, "the read went through");
    bench.broker.make_by_hand("s/b", "waystation:o", 0);
    bench.broker.state().stumbles = 2;
    assert_eq!(bench.does("s/b", hold(queue("s/b"))).await, Ok(Done::Held));
    bench.broker.make_by_hand("s/c", "waystation:o", 0);
    bench.broker.state().stumbles = 100;
    assert!(bench.does("s/c", hold(queue("s/c"))).await.unwrap_err().starts_with("Cannot invoke"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_ours_is_changed_in_place_or_replaced_only_when_told() {
    let mut bench = ready().await;
    bench.does("s/t", hold(multicast("s/t"))).await.unwrap();
    bench.does("s/sub", hold(subscription("s/sub", "s/t", 1))).await.unwrap();
    assert_eq!(bench.does("s/sub", hold(subscription("s/sub", "s/t", 5))).await, Ok(Done::Held));
    assert_eq!(bench.broker.operations(), ["getMessageCount", "updateQueue"]);
    bench.broker.state().queues.get_mut("s/sub").unwrap().messages = 4;
    let words = bench.does("s/sub", hold(queue("s/sub"))).await.unwrap_err();
    assert!(words.contains("4 messages") && words.contains("s/t"), "{words}");
    assert!(!bench.broker.state().settings.contains_key("s/sub"), "what is refused leaves no settings");
    assert_eq!(bench.does("s/sub", instead(queue("s/sub"))).await, Ok(Done::Held));
    assert_eq!(bench.broker.state().queues["s/sub"].address, "s/sub");
    assert!(bench.broker.state().addresses.contains_key("s/t"));
}

#[tokio::test(start_paused = true)]
async fn types_take_each_others_place_when_told() {
    let mut bench = ready().await;
    bench.does("s/a", hold(queue("s/a"))).await.unwrap();
    assert!(bench.does("s/a", hold(multicast("s/a"))).await.unwrap_err().contains("ANYCAST"));
    assert_eq!(bench.does("s/a", instead(multicast("s/a"))).await, Ok(Done::Held));
    assert_eq!(bench.broker.state().addresses["s/a"], ["MULTICAST"]);
    assert_eq!(bench.broker.state().queues.keys().collect::<Vec<_>>(), ["_waystation/s/a"]);
    assert_eq!(bench.does("s/a", instead(queue("s/a"))).await, Ok(Done::Held));
    assert_eq!(bench.broker.state().addresses["s/a"], ["ANYCAST"]);
    assert!(bench.reports.try_recv().is_err(), "our own removals are no losses");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_never_makes_or_takes_its_topics_address() {
    let mut bench = ready().await;
    assert!(bench.does("s/sub", hold(subscription("s/sub", "s/t", 1))).await.unwrap_err().contains("Does Not Exist"));
    bench.does("s/t", hold(multicast("s/t"))).await.unwrap();
    assert_eq!(bench.does("s/sub", hold(subscription("s/sub", "s/t", 1))).await, Ok(Done::Held));
    assert_eq!(bench.does("s/sub", gone(subscription("s/sub", "s/t", 1), false)).await, Ok(Done::Gone));
    assert_eq!(bench.broker.operations(), ["destroyQueue"]);
    assert!(bench.broker.state().addresses.contains_key("s/t"));
}

#[tokio::test(start_paused = true)]
async fn messages_hold_up_a_removal_that_is_only_for_the_empty() {
    let mut bench = ready().await;
    bench.does("s/a", hold(queue("s/a"))).await.unwrap();
    bench.broker.state().queues.get_mut("s/a").unwrap().messages = 2;
    assert_eq!(bench.does("s/a", gone(queue("s/a"), true)).await, Ok(Done::NotEmpty { messages: 2 }));
    bench.broker.state().queues.get_mut("s/a").unwrap().messages = 0;
    assert_eq!(bench.does("s/a", gone(queue("s/a"), true)).await, Ok(Done::Gone));
}

#[tokio::test(start_paused = true)]
async fn an_address_goes_with_temporary_queues_but_not_with_lasting_ones() {
    let mut bench = ready().await;
    bench.does("s/t", hold(multicast("s/t"))).await.unwrap();
    bench.does("s/sub", hold(subscription("s/sub", "s/t", 1))).await.unwrap();
    let words = bench.does("s/t", gone(multicast("s/t"), false)).await.unwrap_err();
    assert!(words.contains("s/sub"), "{words}");
    bench.broker.state().queues.get_mut("s/sub").unwrap().durable = false;
    assert_eq!(bench.does("s/t", gone(multicast("s/t"), false)).await, Ok(Done::Gone));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_wants_what_its_space_has_gets_no_settings_of_its_own() {
    use crate::messaging::broker::{ground, ground_entry};
    let mut bench = ready().await;
    let space = ground("s/");
    assert_eq!(bench.does(&space, hold(ground_entry(&space))).await, Ok(Done::Held));
    assert!(bench.broker.state().settings.contains_key(&*space));
    let plain = || Entry { settings: Some(Settings::default()), ground: Some(space.clone()), ..queue("s/a") };
    assert_eq!(bench.does("s/a", hold(plain())).await, Ok(Done::Held));
    assert!(!bench.broker.state().settings.contains_key("s/a"));
    assert_eq!(bench.does("s/a", gone(plain(), false)).await, Ok(Done::Gone));
    assert!(!bench.broker.operations().contains(&"removeAddressSettings"));
    assert_eq!(bench.does(&space, gone(ground_entry(&space), false)).await, Ok(Done::Gone));
    assert!(bench.broker.state().settings.is_empty() && bench.broker.state().addresses.is_empty());
}

#[tokio::test(start_paused = true)]
async fn verifying_writes_only_a_difference() {
    let mut bench = ready().await;
    bench.does("s/a", hold(queue("s/a"))).await.unwrap();
    let verify = || Wish::Verify { entry: Arc::new(queue("s/a")) };
    assert_eq!(bench.does("s/a", verify()).await, Ok(Done::Held));
    assert!(!bench.broker.operations().contains(&"addAddressSettings"));
    bench.broker.state().settings.get_mut("s/a").unwrap().insert("maxDeliveryAttempts".into(), 99.into());
    assert_eq!(bench.does("s/a", verify()).await, Ok(Done::Repaired));
    assert_eq!(bench.does("s/a", verify()).await, Ok(Done::Held));
    // A key that is wanted no more counts as well.
    bench.broker.state().settings.get_mut("s/a").unwrap().insert("redeliveryDelay".into(), 5.into());
    assert_eq!(bench.does("s/a", verify()).await, Ok(Done::Repaired));
}

/// A queue that a client has made by coming there.
fn guest(address: &str, durable: bool, routing: &str) -> QueueState {
    let (address, routing, user) = (address.to_owned(), routing.to_owned(), "client".to_owned());
    QueueState { address, routing, durable, max_consumers: -1, user, messages: 3 }
}

/// Puts an address there that serves topics, with a queue `1234` of a client who came; those named in
/// `by_itself` were made for him.
fn attended(state: &mut State, durable: bool, by_itself: &[&str]) {
    state.addresses.insert("s/q".into(), vec!["MULTICAST".into()]);
    state.queues.insert("1234".into(), guest("s/q", durable, "MULTICAST"));
    state.by_itself.extend(by_itself.iter().map(|name| (*name).to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_the_broker_made_by_itself_is_taken_over_with_its_messages() {
    let mut bench = bench();
    bench.started().await;
    {
        let mut state = bench.broker.state();
        state.addresses.insert("s/q".into(), vec!["ANYCAST".into()]);
        state.queues.insert("s/q".into(), guest("s/q", true, "ANYCAST"));
        state.by_itself.extend(["s/q".to_owned()]);
    }
    bench.put("s/q", Class::Change, hold(queue("s/q")));
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    let state = bench.broker.state();
    assert_eq!((state.queues["s/q"].user.as_str(), state.queues["s/q"].messages), ("waystation:o", 3));
    assert_eq!(state.settings["s/q"]["maxDeliveryAttempts"], 3);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_broker_made_by_itself_is_made_anew_and_its_guests_come_again() {
    let mut bench = bench();
    bench.started().await;
    attended(&mut bench.broker.state(), false, &["s/q", "1234"]);
    bench.put("s/q", Class::Change, hold(queue("s/q")));
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    let state = bench.broker.state();
    assert_eq!(state.addresses["s/q"], ["ANYCAST"]);
    assert_eq!(state.queues.keys().collect::<Vec<_>>(), ["s/q"]);
    assert!(state.calls.contains(&"closeConsumerConnectionsForAddress"));
}

#[tokio::test(start_paused = true)]
async fn guests_who_go_while_their_address_is_made_anew_are_no_refusal() {
    let mut bench = bench();
    bench.started().await;
    {
        let mut state = bench.broker.state();
        attended(&mut state, false, &["s/q", "1234"]);
        // With another address's guests, whose connections are ended at the same time.
        state.then.insert("deleteAddress", |state| {
            state.remove_queue("1234");
        });
    }
    bench.put("s/q", Class::Change, hold(queue("s/q")));
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    assert_eq!(bench.broker.state().addresses["s/q"], ["ANYCAST"]);
}

#[tokio::test(start_paused = true)]
async fn what_goes_by_anothers_hand_while_it_is_held_is_made_again() {
    for (made, at) in [("broker", "updateQueue"), ("operator", "createQueue"), ("operator", "addAddressSettings")] {
        let mut bench = bench();
        bench.started().await;
        {
            let mut state = bench.broker.state();
            if made == "broker" {
                state.addresses.insert("s/q".into(), vec!["ANYCAST".into()]);
                state.queues.insert("s/q".into(), guest("s/q", true, "ANYCAST"));
                state.by_itself.extend(["s/q".to_owned()]);
            }
            state.slow.insert(at, Duration::from_secs(1));
            state.then.insert(at, |state| {
                state.remove_queue("s/q");
            });
        }
        bench.put("s/q", Class::Change, hold(queue("s/q")));
        assert_eq!(bench.outcome().await.result, Ok(Done::Held));
        assert_eq!(bench.broker.state().queues["s/q"].user, "waystation:o", "{made} {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_made_on_purpose_or_with_stored_messages_is_nobodys_to_take_away() {
    for (by_itself, durable) in [(false, false), (true, true)] {
        let mut bench = bench();
        bench.started().await;
        attended(&mut bench.broker.state(), durable, if by_itself { &["s/q"] } else { &[] });
        bench.put("s/q", Class::Change, hold(queue("s/q")));
        let words = bench.outcome().await.result.unwrap_err();
        assert!(words.contains("is there already as MULTICAST"), "{words}");
        assert_eq!(bench.broker.state().queues["1234"].messages, 3);
    }
}
