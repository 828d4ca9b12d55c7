//! Secrets of connectors: waited for, kept, and changed while a router or the operator is away.

use super::remotes::{connector, id, remote_slots, row, said, world};
use super::world::{World, key};
use crate::messaging::input::Input;
use crate::messaging::reason;
use crate::messaging::remote::*;
use crate::messaging::router::*;

#[test]
fn a_secret_is_waited_for_kept_and_followed() {
    let mut w = world();
    let secret = key("login");
    w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED), "not heard of: what is in use stays");
    w.input(Input::Secret(secret.clone(), None));
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::SECRET_NOT_FOUND));
    assert!(row(&w, "eu").unwrap().message.contains("Secret tenant/login is missing: create it"));
    for revision in [1, 2] {
        w.input(Input::Secret(secret.clone(), Some(revision)));
        w.advance(60_000);
        let held = w.held("r1");
        let Entry::Remote { connector, .. } = &*held[&connector_slot(&id("eu"))] else { panic!() };
        assert_eq!(connector.credentials, Some((secret.clone(), revision)));
    }
    w.input(Input::Secret(secret.clone(), None));
    w.advance(20_000);
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
    assert!(row(&w, "eu").unwrap().message.contains("what it held last is in use"));
    assert!(w.held("r1").contains_key(&connector_slot(&id("eu"))));
    w.input(Input::Secret(secret.clone(), Some(2)));
    w.advance(60_000);
    assert_eq!(row(&w, "eu").unwrap().message.as_ref(), "", "it was replaced, and nobody was cut off");
    w.input(Input::Secret(secret.clone(), None));
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::SECRET_NOT_FOUND));
    assert!(!w.held("r1").contains_key(&connector_slot(&id("eu"))), "who takes the login away takes the connection");
}

#[test]
fn a_restart_just_after_a_secret_went_cuts_nobody_off_at_once() {
    let mut w = world();
    w.login = Some(Some(1));
    w.tell_login();
    w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
    w.advance(60_000);
    w.login = Some(None);
    w.restart();
    w.advance(20_000);
    assert!(w.held("r1").contains_key(&connector_slot(&id("eu"))));
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
    w.advance(60_000);
    assert!(!w.held("r1").contains_key(&connector_slot(&id("eu"))));
    assert_eq!(said(row(&w, "eu")), (false, reason::SECRET_NOT_FOUND));
}

#[test]
fn a_password_that_changes_reaches_what_was_made_before_a_restart() {
    let mut w = world();
    w.login = Some(Some(1));
    w.tell_login();
    w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
    w.advance(60_000);
    w.restart();
    w.advance(60_000);
    let login = |w: &World| {
        let connector = w.held("r1")[&connector_slot(&id("eu"))].connector().unwrap().clone();
        (connector.credentials.map(|(_, revision)| revision), connector.relogin)
    };
    w.login = Some(Some(2));
    w.tell_login();
    w.advance(60_000);
    assert_eq!(login(&w), (Some(2), true), "no router shows which password it was made with");
    w.restart();
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
}

#[test]
fn a_password_that_changes_while_a_router_is_cut_off_reaches_it_afterwards() {
    let mut w = world();
    w.login = Some(Some(1));
    w.tell_login();
    w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
    w.advance(60_000);
    w.router_cut("r1");
    w.login = Some(Some(2));
    w.tell_login();
    w.advance(60_000);
    w.router("r1").log.clear();
    w.router_up("r1");
    w.advance(60_000);
    // Read, it looks as it did before.
    let slot = connector_slot(&id("eu"));
    assert!(w.router("r1").log.contains(&(slot, "hold")), "{:?}", w.router("r1").log);
}

#[test]
fn at_a_start_what_waits_for_its_secret_is_left_alone() {
    let mut w = world();
    w.input(Input::Secret(key("login"), Some(1)));
    w.change_space("s", |s| s.connectors[0].credentials = Some(key("login")));
    w.input(Input::Secret(key("login"), Some(1)));
    w.advance(60_000);
    let before = remote_slots(&w, "r1");
    assert_eq!(before.len(), 3);
    let writes = w.status_writes.clone();
    for router in ["r1", "r2"] {
        w.router(router).log.clear();
    }
    w.restart();
    w.advance(60_000);
    assert_eq!(remote_slots(&w, "r1"), before);
    w.input(Input::Secret(key("login"), Some(1)));
    w.advance(60_000);
    assert_eq!((remote_slots(&w, "r1"), &w.status_writes), (before, &writes));
    assert!(w.router("r1").log.iter().all(|(_, what)| *what != "gone"), "{:?}", w.router("r1").log);
}

/// What one space waits for spares nothing of another.
#[test]
fn what_is_left_of_a_space_goes_though_another_of_its_namespace_waits_for_a_secret() {
    let mut w = World::routed(&["b"], &["r1"]);
    w.change_config(|c| c.connectors = Some(ConnectorRules::default()));
    w.space("u");
    w.login = Some(Some(1));
    w.change_space("s", |s| s.connectors = vec![connector("eu", &["eu.example"])]);
    w.change_space("u", |s| {
        s.connectors = vec![ConnectorSpec { credentials: Some(key("login")), ..connector("us", &["us.example"]) }];
    });
    w.tell_login();
    w.advance(60_000);
    assert_eq!(remote_slots(&w, "r1").iter().filter(|slot| slot.contains("connector")).count(), 2);
    w.login = None;
    w.spaces.remove(&key("s"));
    w.restart();
    w.advance(60_000);
    let left: Vec<String> = remote_slots(&w, "r1").into_iter().filter(|slot| slot.contains("connector")).collect();
    assert_eq!(left, [connector_slot(&connection(&key("u"), "us")).to_string()]);
}
