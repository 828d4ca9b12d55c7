//! Routers that are the endpoints of a Service.

use super::world::{World, key};
use crate::messaging::endpoints::{Endpoints, PortRef, ServiceRef};
use crate::messaging::input::AddressType::*;
use crate::messaging::input::Input;
use crate::messaging::reason;
use crate::messaging::router::readiness_slot;
use crate::messaging::status::{Condition, TargetState};

fn config_ready(w: &World) -> Condition {
    w.configs[&key("rc")].status.ready.clone().unwrap()
}

fn space_ready(w: &World) -> Condition {
    w.spaces[&key("s")].status.ready.clone().unwrap()
}

fn rows(w: &World) -> Vec<(String, TargetState)> {
    w.configs[&key("rc")].status.routers.iter().map(|row| (row.name.to_string(), row.state)).collect()
}

#[test]
fn routers_come_and_go_with_the_slices_and_addresses_are_not_written() {
    let mut w = World::followed(&["b"], &["r1"]);
    for name in ["a", "q"] {
        w.address(name, if name == "q" { Queue } else { Anycast });
    }
    w.run();
    w.advance(3_000);
    assert!(config_ready(&w).status && space_ready(&w).status);
    let before = w.status_writes.clone();
    w.set_routers(&["r1", "r2", "r3", "r4", "r5"]);
    w.advance(3_000);
    for router in ["r1", "r2", "r3", "r4", "r5"] {
        assert!(w.held(router).contains_key(&readiness_slot()), "{router}");
        assert_eq!(w.held(router), w.held("r1"));
    }
    assert_eq!(rows(&w).len(), 5);
    // One that goes away hangs, as those do that are being ended: it is waited for by nobody.
    w.router("r1").slow = true;
    w.set_routers(&["r2", "r4"]);
    w.advance(3_000);
    let serving = |name: &str| (name.to_owned(), TargetState::Serving);
    assert_eq!(rows(&w), [serving("r2"), serving("r4")]);
    assert!(config_ready(&w).status && space_ready(&w).status);
    for name in ["a", "q", "s"] {
        assert_eq!(w.writes(name), before[name], "{name}");
    }
    let held = w.held("r3");
    w.delete("q");
    w.address("new", Anycast);
    w.run();
    assert_eq!(w.ready("new"), Some((true, reason::CONFIGURED)));
    assert!(!w.addresses.contains_key(&key("q")));
    assert_eq!(w.held("r3"), held, "it is no router of ours any more");
}

#[test]
fn what_is_not_known_is_not_empty() {
    let mut w = World::followed(&["b"], &["r1", "r2"]);
    w.address("a", Anycast);
    w.run();
    w.advance(3_000);
    let before = w.status_writes.clone();
    let known = w.endpoints.take();
    w.restart();
    w.advance(60_000);
    assert_eq!(w.status_writes, before, "nothing is said before the slices are known");
    w.slices(known.unwrap());
    w.advance(60_000);
    assert_eq!(w.status_writes, before);
    assert_eq!(rows(&w), [("r1".to_owned(), TargetState::Serving), ("r2".to_owned(), TargetState::Serving)]);
    // From hosts to a Service that nobody has told of yet: what is driven stays.
    let other = ServiceRef { service: key("other"), port: PortRef::Number(5672) };
    w.change_config(|c| c.router_service = Some(other));
    w.run();
    w.address("b", Anycast);
    w.run();
    assert_eq!(w.ready("b"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.held("r2"), w.held("r1"));
}

#[test]
fn a_service_without_slices_is_told_after_a_second_and_to_the_space() {
    let mut w = World::bare();
    w.standard = true;
    w.config("rc", &["b"]);
    let service = ServiceRef { service: key("svc"), port: PortRef::Name("amqp".into()) };
    w.change_config(|c| c.router_service = Some(service));
    w.slices(Endpoints::default());
    w.space("s");
    w.run();
    assert!(w.configs[&key("rc")].status.ready.is_none(), "they may be on their way");
    w.advance(1_500);
    let ready = config_ready(&w);
    assert_eq!((ready.status, ready.reason), (false, reason::NO_ENDPOINTS));
    assert!(ready.message.starts_with("Service tenant/svc has no EndpointSlices: create it"), "{}", ready.message);
    assert!(w.spaces[&key("s")].status.accepted.clone().unwrap().status);
    let ready = space_ready(&w);
    assert_eq!((ready.status, ready.reason), (false, reason::NO_ROUTER_SERVING));
    assert!(ready.message.contains("has no EndpointSlices"), "{}", ready.message);
    let writes = (w.writes("rc"), w.writes("s"));
    w.advance(60_000);
    assert_eq!((w.writes("rc"), w.writes("s")), writes, "once");
    w.endpoints = Some(Endpoints::default());
    w.set_routers(&["r1"]);
    w.advance(3_000);
    assert!(config_ready(&w).status && space_ready(&w).status);
    assert_eq!((w.writes("rc"), w.writes("s")), (writes.0 + 1, writes.1 + 1));
    w.slices(Endpoints { slices: 1, all: Vec::new() });
    w.advance(3_000);
    assert_eq!((config_ready(&w).reason, space_ready(&w).reason), (reason::NO_ENDPOINTS, reason::NO_ROUTER_SERVING));
}

#[test]
fn a_port_that_no_slice_has_is_told_with_those_that_there_are() {
    let mut w = World::followed(&["b"], &["r1"]);
    w.change_config(|c| {
        c.router_service = Some(ServiceRef { service: key("svc"), port: PortRef::Name("amqps".into()) });
    });
    w.advance(3_000);
    let ready = config_ready(&w);
    assert_eq!((ready.status, ready.reason), (false, reason::PORT_NOT_FOUND));
    assert!(ready.message.contains("no port amqps, but amqp (5672)"), "{}", ready.message);
}

#[test]
fn a_router_config_made_anew_under_its_name_knows_its_service() {
    let mut w = World::followed(&["b"], &["r1"]);
    w.advance(3_000);
    let uid = "another".into();
    w.change_config(|c| (c.meta.uid, c.meta.generation, c.status) = (uid, 0, Default::default()));
    w.advance(3_000);
    assert!(config_ready(&w).status);
    w.model.check().unwrap();
    w.input(Input::Vanished(crate::messaging::ids::Kind::RouterConfig, key("rc")));
    w.model.check().unwrap();
}
