//! Connectors of spaces and forwarders of Addresses.

use std::sync::Arc;

use super::world::{World, key};
use crate::messaging::ids::{Key, Kind};
use crate::messaging::input::{AddressType, Input};
use crate::messaging::reason;
use crate::messaging::remote::*;
use crate::messaging::router::*;

pub fn connector(name: &str, hosts: &[&str]) -> ConnectorSpec {
    ConnectorSpec {
        name: name.into(),
        hosts: hosts.iter().map(|host| Host { host: (*host).into(), port: 5672 }).collect(),
        ssl_profile: None,
        credentials: None,
        idle_s: IDLE_S,
        max_frame: MAX_FRAME,
        patterns: vec!["#".into()],
    }
}

pub fn forwarder(name: &str, connector: &str, direction: Direction) -> ForwarderSpec {
    ForwarderSpec { name: name.into(), connector: connector.into(), remote: "far".into(), direction }
}

/// Two routers, a space with connector `eu`, a queue `q` with forwarders both ways.
pub fn world() -> World {
    let mut w = World::routed(&["b"], &["r1", "r2"]);
    w.change_config(|c| c.connectors = Some(ConnectorRules::default()));
    w.change_space("s", |s| s.connectors = vec![connector("eu", &["eu.example"])]);
    w.address_with("q", AddressType::Queue, |a| {
        a.forwarders = vec![forwarder("in", "eu", Direction::In), forwarder("out", "eu", Direction::Out)];
    });
    w.run();
    w.advance(60_000);
    w
}

pub fn id(name: &str) -> Arc<str> {
    connection(&key("s"), name)
}

pub fn row<'a>(w: &'a World, name: &str) -> Option<&'a Row> {
    w.spaces[&key("s")].status.connectors.iter().find(|row| &*row.name == name)
}

pub fn said(row: Option<&Row>) -> (bool, &str) {
    row.map_or((false, ""), |row| (row.ready, row.reason))
}

fn forwards(w: &World, name: &str) -> Vec<(String, bool, &'static str)> {
    let rows = w.addresses[&key(name)].status.forwarders.iter();
    rows.map(|row| (row.name.to_string(), row.ready, row.reason)).collect()
}

/// Slots on a router that have to do with remote hosts.
pub fn remote_slots(w: &World, router: &str) -> Vec<String> {
    let held = w.held(router);
    let ours = held.keys().filter(|slot| is_remote(slot) || slot.starts_with("#tap") || slot.starts_with("#_tap"));
    ours.map(|slot| slot.to_string()).collect()
}

/// The remote host goes away, or comes back, for a router.
pub fn turn(w: &mut World, router: &str, connector: &str, up: bool) {
    let (target, id) = (w.router_id(router), id(connector));
    let peer = w.router(router);
    match up {
        true => peer.cut.remove(&id),
        false => peer.cut.insert(id.clone()),
    };
    let (incarnation, words) = (peer.incarnation, (!up).then(|| "connection refused".into()));
    w.input(Input::Router(target, incarnation, RouterLink::Connector(id, words)));
    w.run();
}

#[test]
fn routers_hold_a_connector_its_routes_and_forwarders_and_say_so() {
    let w = world();
    for router in ["r1", "r2"] {
        let held = w.held(router);
        let Entry::Remote { connector, patterns, strip } = &*held[&connector_slot(&id("eu"))] else { panic!() };
        assert_eq!((&*connector.host, connector.port), ("eu.example", 5672));
        assert_eq!((&*patterns[0], &**strip), ("tenant.s/eu/#", "tenant.s/eu/"));
        assert!(held.contains_key(&fence_slot()));
        for direction in [Direction::In, Direction::Out] {
            assert!(held.contains_key(&forward_slot(direction, &id("eu"), "far", "tenant.s/q")));
        }
    }
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
    let active = |name: &str| (name.to_owned(), true, reason::ACTIVE);
    assert_eq!(forwards(&w, "q"), [active("in"), active("out")]);
    assert!(w.addresses[&key("q")].status.ready.as_ref().unwrap().status);
}

#[test]
fn a_remote_host_that_goes_is_told_once_and_nobody_else_is_less_ready() {
    let mut w = world();
    let (space, address) = (w.status_writes["s"], w.status_writes["q"]);
    turn(&mut w, "r1", "eu", false);
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::NOT_CONNECTED));
    assert_eq!(&*row(&w, "eu").unwrap().message, "router r1: connection refused");
    assert!(w.spaces[&key("s")].status.ready.as_ref().unwrap().status);
    assert_eq!((w.status_writes["s"], w.status_writes["q"]), (space + 1, address));
    turn(&mut w, "r1", "eu", true);
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
    // It comes and goes every second for a minute.
    let before = w.status_writes["s"];
    for second in 0..60 {
        turn(&mut w, "r2", "eu", second % 2 == 1);
        w.advance(1_000);
    }
    assert!(w.status_writes["s"] - before <= 7, "{}", w.status_writes["s"] - before);
    assert_eq!(w.status_writes["q"], address);
}

#[test]
fn what_a_router_config_does_not_allow_is_taken_away_and_told() {
    let mut w = world();
    let cases: [(Option<ConnectorRules>, &str); 2] = [
        (None, reason::CONNECTORS_NOT_ALLOWED),
        (Some(ConnectorRules { hosts: vec!["us.example".into()], profiles: Vec::new() }), reason::HOST_NOT_ALLOWED),
    ];
    for (rules, why) in cases {
        w.change_config(|c| c.connectors = rules);
        w.advance(60_000);
        assert_eq!(said(row(&w, "eu")), (false, why));
        assert_eq!(remote_slots(&w, "r1"), Vec::<String>::new());
        w.change_config(|c| c.connectors = Some(ConnectorRules::default()));
        w.advance(60_000);
        assert_eq!(said(row(&w, "eu")), (true, reason::CONNECTED));
    }
    w.change_space("s", |s| s.connectors[0].ssl_profile = Some("brokers".into()));
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::SSL_PROFILE_NOT_ALLOWED));
    w.change_space("s", |s| s.connectors[0].hosts[0].host = "127.0.0.1".into());
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::HOST_NOT_ALLOWED));
}

#[test]
fn what_is_not_allowed_is_told_once_however_many_hosts_it_has() {
    let mut w = world();
    w.change_space("s", |s| s.connectors = vec![connector("eu", &["one.example", "two.example"])]);
    w.advance(60_000);
    turn(&mut w, "r1", "eu", false);
    turn(&mut w, "r2", "eu", false);
    w.advance(3_000);
    w.change_config(|c| c.connectors = Some(ConnectorRules { hosts: vec!["us.example".into()], profiles: Vec::new() }));
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::HOST_NOT_ALLOWED));
    let writes = w.status_writes["s"];
    w.advance(120_000);
    assert_eq!(w.status_writes["s"], writes);
}

#[test]
fn a_router_that_restarts_is_no_news_of_a_host_that_no_router_reaches() {
    let mut w = world();
    turn(&mut w, "r1", "eu", false);
    turn(&mut w, "r2", "eu", false);
    w.advance(60_000);
    let writes = w.status_writes["s"];
    w.router_down("r1");
    w.advance(60_000);
    w.router_up("r1");
    w.advance(60_000);
    assert_eq!(&*row(&w, "eu").unwrap().message, "router r1: connection refused; router r2: connection refused");
    assert_eq!(w.status_writes["s"], writes);
}

#[test]
fn a_connector_that_came_later_is_not_told_to_be_missing() {
    let mut w = world();
    w.change("q", |a| a.forwarders = vec![forwarder("out", "us", Direction::Out)]);
    w.advance(60_000);
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), false, reason::CONNECTOR_NOT_FOUND)]);
    for router in ["r1", "r2"] {
        w.router(router).cut.insert(id("us"));
    }
    w.change_space("s", |s| s.connectors.push(connector("us", &["us.example"])));
    w.advance(60_000);
    assert_eq!(said(row(&w, "us")), (false, reason::NOT_CONNECTED));
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), false, reason::CONNECTOR_NOT_READY)]);
}

#[test]
fn what_no_router_can_do_is_told_once_and_nothing_of_it_is_made() {
    let mut w = world();
    for router in ["r1", "r2"] {
        w.router(router).abilities.policies = false;
        w.router_down(router);
        w.router_up(router);
    }
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::NOT_SUPPORTED_BY_ROUTER));
    let unsupported = |name: &str| (name.to_owned(), false, reason::NOT_SUPPORTED_BY_ROUTER);
    assert_eq!(forwards(&w, "q"), [unsupported("in"), unsupported("out")]);
    assert!(!w.held("r2").keys().any(|slot| slot.starts_with("#forward")));
    // Either of them is the one that is named.
    let writes = w.status_writes.clone();
    for router in ["r1", "r2"] {
        w.router_down(router);
        w.advance(60_000);
        w.router_up(router);
        w.advance(60_000);
    }
    assert_eq!((w.status_writes["s"], w.status_writes["q"]), (writes["s"], writes["q"]));
}

#[test]
fn what_looks_like_nothing_of_ours_goes() {
    let mut w = world();
    let entry = w.held("r1")[&connector_slot(&id("eu"))].clone();
    w.router("r1").held.insert("#stray/a-name-of-ours".into(), entry);
    w.change_config(|c| c.resync = Some("1".into()));
    w.advance(60_000);
    assert!(!w.held("r1").contains_key("#stray/a-name-of-ours"));
}

#[test]
fn a_router_without_policies_gets_none_and_serves_all_the_same() {
    let mut w = World::routed(&["b"], &["r1"]);
    w.router("r1").abilities.policies = false;
    w.router_down("r1");
    w.router_up("r1");
    w.change_config(|c| c.connectors = Some(ConnectorRules::default()));
    w.change_space("s", |s| s.connectors = vec![connector("eu", &["eu.example"])]);
    w.advance(60_000);
    assert_eq!(said(row(&w, "eu")), (false, reason::NOT_SUPPORTED_BY_ROUTER));
    assert!(row(&w, "eu").unwrap().message.contains("enableVhostPolicy"));
    w.router_down("r1");
    w.router_up("r1");
    w.advance(60_000);
    assert!(w.router("r1").serving(), "it is filled without what it cannot have");
}

#[test]
fn where_no_router_reaches_a_host_the_next_one_is_tried_and_a_restart_stays_there() {
    let mut w = world();
    w.change_space("s", |s| s.connectors = vec![connector("eu", &["one.example", "two.example"])]);
    w.advance(60_000);
    let host = |w: &World| {
        let held = w.held("r1");
        let Entry::Remote { connector, .. } = &*held[&connector_slot(&id("eu"))] else { panic!() };
        connector.host.to_string()
    };
    turn(&mut w, "r1", "eu", false);
    w.advance(60_000);
    assert_eq!(host(&w), "one.example", "the other router reaches it");
    turn(&mut w, "r2", "eu", false);
    w.advance(9_000);
    assert_eq!(host(&w), "one.example");
    w.advance(1_500);
    assert_eq!(host(&w), "two.example");
    turn(&mut w, "r1", "eu", true);
    turn(&mut w, "r2", "eu", true);
    w.advance(60_000);
    assert_eq!(host(&w), "two.example");
    assert_eq!(row(&w, "eu").unwrap().host.as_deref(), Some("two.example:5672"));
    let writes = w.status_writes.clone();
    w.restart();
    w.advance(60_000);
    assert_eq!((host(&w), &w.status_writes), ("two.example".to_owned(), &writes));
}

#[test]
fn addresses_that_begin_with_a_connectors_name_are_its_own_unless_they_were_there_first() {
    let mut w = world();
    w.address_with("late", AddressType::Queue, |a| a.address = "eu/late".into());
    w.advance(60_000);
    let accepted = w.addresses[&key("late")].status.accepted.as_ref().unwrap();
    assert_eq!((accepted.status, accepted.reason), (false, reason::DUPLICATE_ADDRESS));
    assert!(accepted.message.contains("connector eu"), "{}", accepted.message);
    w.address_with("early", AddressType::Queue, |a| a.address = "us.early".into());
    w.advance(60_000);
    w.change_space("s", |s| s.connectors.push(connector("us", &["us.example"])));
    w.advance(60_000);
    assert_eq!(said(row(&w, "us")), (false, reason::NAME_TAKEN));
    w.delete("early");
    w.advance(60_000);
    assert_eq!(said(row(&w, "us")), (true, reason::CONNECTED));
    w.change_space("s", |s| s.connectors.truncate(0));
    w.advance(60_000);
    assert!(w.addresses[&key("late")].status.ready.as_ref().unwrap().status);
}

#[test]
fn a_subscription_is_led_to_a_remote_host_by_an_address_of_its_own() {
    let mut w = world();
    w.address("t", AddressType::Topic);
    w.address_with("sub", AddressType::Subscription, |a| {
        a.topic = Some("t".into());
        a.forwarders = vec![forwarder("out", "eu", Direction::Out)];
    });
    w.advance(60_000);
    let slot = tap_slot(&id("eu"), "far", "tenant.s/t::tenant.s/sub");
    let held = w.held("r1");
    let Entry::Tap { from, to } = &*held[&slot] else { panic!() };
    assert_eq!((&*from.broker, from.external.as_deref()), ("b", Some("tenant.s/t::tenant.s/sub")));
    assert_eq!((&to.broker, to.external.as_deref()), (&id("eu"), Some("far")));
    assert_eq!(forwards(&w, "sub"), [("out".to_owned(), true, reason::ACTIVE)]);
    assert_eq!(w.queue("sub").unwrap().max_consumers, -1, "every router receives");
    w.delete("sub");
    w.advance(60_000);
    assert!(!w.held("r1").contains_key(&slot));
}

#[test]
fn what_a_forwarder_lacks_is_told_of_it_and_its_address_stays_ready() {
    let mut w = world();
    w.change("q", |a| a.forwarders = vec![forwarder("out", "nowhere", Direction::Out)]);
    w.advance(60_000);
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), false, reason::CONNECTOR_NOT_FOUND)]);
    assert!(w.addresses[&key("q")].status.ready.as_ref().unwrap().status);
    assert!(!w.held("r1").keys().any(|slot| slot.starts_with("#forward")));
    w.change("q", |a| a.forwarders = vec![forwarder("out", "eu", Direction::Out)]);
    w.advance(60_000);
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), true, reason::ACTIVE)]);
    let slot = forward_slot(Direction::Out, &id("eu"), "far", "tenant.s/q");
    w.link("r1", &slot, true);
    w.advance(60_000);
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), false, reason::LINK_FAILED)]);
    assert!(w.addresses[&key("q")].status.ready.as_ref().unwrap().status);
    w.router("r1").refuses.insert(slot.clone(), "no".into());
    w.router_down("r1");
    w.router_up("r1");
    w.advance(60_000);
    assert_eq!(forwards(&w, "q"), [("out".to_owned(), false, reason::ROUTER_REFUSED)]);
}

#[test]
fn a_queue_that_drains_brings_nothing_in_any_more_and_still_out() {
    let mut w = world();
    w.change("q", |a| a.when_empty = true);
    w.run();
    w.put_messages("q", 3);
    w.delete("q");
    w.advance(60_000);
    let held =
        |w: &World, direction| w.held("r1").contains_key(&forward_slot(direction, &id("eu"), "far", "tenant.s/q"));
    assert!(!held(&w, Direction::In) && held(&w, Direction::Out));
    w.put_messages("q", 0);
    w.advance(60_000);
    assert!(!held(&w, Direction::Out) && !w.addresses.contains_key(&key("q")));
}

#[test]
fn a_space_that_is_deleted_leaves_no_connector() {
    let mut w = world();
    w.delete("q");
    w.delete_space("s");
    w.advance(60_000);
    assert!(!w.spaces.contains_key(&key("s")));
    for router in ["r1", "r2"] {
        assert_eq!(remote_slots(&w, router), Vec::<String>::new());
        assert!(w.held(router).contains_key(&fence_slot()), "the RouterConfig's, not the space's");
    }
    w.change_config(|c| c.connectors = None);
    w.advance(60_000);
    assert!(!w.held("r1").contains_key(&fence_slot()));
}

#[test]
fn what_nobody_wants_goes_unless_somebody_cannot_be_read() {
    let mut w = world();
    let stray = connection(&Key::new("other", "gone"), "x");
    let entry = w.held("r1")[&connector_slot(&id("eu"))].clone();
    w.router("r1").held.insert(connector_slot(&stray), entry.clone());
    let unsure = connection(&Key::new("blurred", "s"), "x");
    w.router("r1").held.insert(connector_slot(&unsure), entry);
    w.input(Input::Undecodable(Kind::AddressSpace, Key::new("blurred", "s")));
    w.change_config(|c| c.resync = Some("1".into()));
    w.advance(60_000);
    assert!(!w.held("r1").contains_key(&connector_slot(&stray)));
    assert!(w.held("r1").contains_key(&connector_slot(&unsure)));
}

/// A login may have changed while a job was under way that did not know that the connection is down.
#[test]
fn a_connector_that_goes_down_during_its_job_is_looked_at_once_more() {
    let mut w = world();
    let (target, incarnation, slot) = (w.router_id("r1"), w.router("r1").incarnation, connector_slot(&id("eu")));
    w.router("r1").slow = true;
    w.change_space("s", |s| s.connectors[0].hosts[0].host = "us.example".into());
    w.run();
    let words = Some("unauthorized".into());
    w.input(Input::Router(target, incarnation, RouterLink::Connector(id("eu"), words)));
    w.run();
    w.router("r1").log.clear();
    w.router("r1").slow = false;
    w.advance(60_000);
    let jobs = w.router("r1").log.iter().filter(|(at, _)| *at == slot).count();
    assert_eq!(jobs, 2);
}
