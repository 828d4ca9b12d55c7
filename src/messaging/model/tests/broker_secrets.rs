//! Secrets of brokers that are rotated, wrong, missing, or go with their namespace.

use super::world::{NS, World, key};
use crate::messaging::ids::Key;
use crate::messaging::input::AddressType::*;
use crate::messaging::input::{Input, Link};
use crate::messaging::output::TargetChange;
use crate::messaging::reason;
use crate::messaging::status::TargetState;

#[test]
fn a_rotated_secret_reconnects_one_target_at_a_time_and_a_missing_one_is_kept() {
    let mut w = World::bare();
    w.config("rc", &["a", "b", "c"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    let started = w.model.settle(w.now).targets;
    assert!(started.is_empty(), "not before the Secret is known: {started:?}");
    w.input(Input::Secret(key("login"), Some(1)));
    w.advance(1_000);
    w.input(Input::Secret(key("login"), None));
    w.advance(2_000);
    let rows = &w.configs[&key("rc")].status.brokers;
    assert!(
        rows.iter().all(|row| row.state == TargetState::Serving && row.message.contains("tenant/login")),
        "{rows:?}"
    );
    w.input(Input::Secret(key("login"), Some(2)));
    let mut reconnected = Vec::new();
    for change in w.model.settle(w.now).targets {
        if let TargetChange::Reconnect { target, .. } = change {
            reconnected.push(target);
        }
    }
    assert_eq!(reconnected.len(), 1, "{reconnected:?}");
}

#[test]
fn a_secret_that_is_named_in_the_place_of_another_or_of_none_is_the_one_that_is_used() {
    let mut w = World::bare();
    w.config("rc", &["a"]);
    w.advance(1_000);
    let named = |w: &mut World| -> Vec<Option<Key>> {
        let changes = w.model.settle(w.now).targets.into_iter();
        let secret = changes.filter_map(|change| match change {
            TargetChange::Reconnect { credentials_secret, .. } => Some(credentials_secret),
            _ => None,
        });
        secret.collect()
    };
    for (number, secret) in [Some("one"), Some("two"), None].into_iter().enumerate() {
        let secret = secret.map(key);
        if let Some(secret) = &secret {
            w.input(Input::Secret(secret.clone(), Some(number as u64)));
        }
        w.change_config(|c| c.credentials_secret = secret.clone());
        assert_eq!(named(&mut w), [secret]);
    }
}

#[test]
fn contents_of_a_secret_that_no_broker_takes_cost_one_connection_and_not_all() {
    let mut w = World::bare();
    w.config("rc", &["a", "b"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    w.input(Input::Secret(key("login"), Some(1)));
    w.advance(1_000);
    let reconnected = |w: &mut World| -> Vec<TargetChange> { w.model.settle(w.now).targets };
    w.input(Input::Secret(key("login"), Some(2)));
    let first = reconnected(&mut w);
    let [TargetChange::Reconnect { target, incarnation, .. }] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(*target, w.id("a"));
    w.input(Input::Target(target.clone(), *incarnation, Link::Down("unknown password".into())));
    w.advance(60_000);
    let rows = &w.configs[&key("rc")].status.brokers;
    let states: Vec<_> = rows.iter().map(|row| row.state).collect();
    assert_eq!(states, [TargetState::Unreachable, TargetState::Serving]);
    // Others come: the one that is lost is tried at once, the one that serves only after it.
    w.input(Input::Secret(key("login"), Some(3)));
    let again = reconnected(&mut w);
    let [TargetChange::Reconnect { target, incarnation, .. }] = again.as_slice() else { panic!("{again:?}") };
    assert_eq!(*target, w.id("a"));
    w.input(Input::Target(target.clone(), *incarnation, Link::Connected(None)));
    w.input(Input::Target(target.clone(), *incarnation, Link::Reading));
    w.input(Input::Target(target.clone(), *incarnation, Link::Contents(Default::default())));
    let next = reconnected(&mut w);
    let [TargetChange::Reconnect { target, .. }] = next.as_slice() else { panic!("{next:?}") };
    assert_eq!(*target, w.id("b"));
}

#[test]
fn a_broker_that_is_down_does_not_keep_others_from_a_rotated_secret() {
    let mut w = World::bare();
    w.config("rc", &["a", "b"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    w.broker("a").up = false;
    w.input(Input::Secret(key("login"), Some(1)));
    w.advance(1_000);
    w.input(Input::Secret(key("login"), Some(2)));
    let changes = w.model.settle(w.now).targets;
    assert_eq!(changes.len(), 2, "{changes:?}");
}

#[test]
fn what_is_asked_for_before_the_secret_is_known_is_made_when_it_comes() {
    let mut w = World::bare();
    w.config("rc", &["b"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    w.space("s");
    w.address("q", Queue);
    w.run();
    assert!(w.broker("b").log.is_empty(), "no drive runs yet");
    w.delete("q");
    w.address("r", Queue);
    w.run();
    w.input(Input::Secret(key("login"), Some(1)));
    w.run();
    assert_eq!(w.ready("r"), Some((true, reason::CONFIGURED)));
    assert!(w.queue("r").is_some());
    assert!(!w.addresses.contains_key(&key("q")), "its deletion ends");
}

#[test]
fn a_missing_secret_is_named() {
    let mut w = World::bare();
    w.config("rc", &["b"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    w.input(Input::Secret(key("login"), None));
    w.advance(2_000);
    let ready = w.configs[&key("rc")].status.ready.clone().unwrap();
    assert_eq!((ready.status, ready.reason), (false, reason::SECRET_NOT_FOUND));
    assert!(ready.message.contains("tenant/login"), "{}", ready.message);
}

#[test]
fn a_data_plane_whose_secret_went_with_its_namespace_lets_go() {
    for going in [false, true] {
        let mut w = World::bare();
        w.config("rc", &["b"]);
        w.change_config(|c| c.credentials_secret = Some(key("login")));
        w.input(Input::Secret(key("login"), Some(1)));
        w.space("s");
        w.address("q", Queue);
        w.run();
        w.delete("q");
        w.delete_space("s");
        w.delete_config("rc");
        // A new process has never known the Secret.
        w.restart();
        w.input(Input::Namespace(NS.into(), Some(Default::default())));
        if going {
            w.input(Input::NamespaceGoing(NS.into()));
        }
        w.input(Input::Secret(key("login"), None));
        w.advance(10_000);
        assert_eq!(w.addresses.is_empty(), going, "{:?}", w.addresses.keys());
        assert_eq!((w.spaces.is_empty(), w.configs.is_empty()), (going, going));
        assert!(w.queue("q").is_some(), "nobody can reach it");
    }
}

#[test]
fn a_router_config_made_anew_under_its_name_knows_its_secret() {
    let mut w = World::bare();
    w.config("main", &["b"]);
    w.change_config(|c| c.credentials_secret = Some(key("login")));
    w.input(Input::Secret(key("login"), Some(1)));
    w.run();
    assert!(!w.live.is_empty());
    // Deleted and created between two looks: nobody tells of the Secret again.
    w.change_config(|c| c.meta.uid = "another".into());
    w.run();
    assert!(!w.live.is_empty());
}
