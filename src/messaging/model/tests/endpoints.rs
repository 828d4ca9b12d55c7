//! How clients reach a standard space: what its Services lead to, and what is told.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::world::{World, key};
use crate::messaging::exposure::*;
use crate::messaging::ids::Key;
use crate::messaging::input::{Input, Router};

fn endpoint(name: &str, service: Protocol) -> EndpointSpec {
    EndpointSpec { name: name.into(), service, load_balancer: false, host: None }
}

/// Routers at these addresses, and a space with these endpoints.
fn exposed(hosts: &[&str], endpoints: &[EndpointSpec]) -> World {
    let mut w = World::bare();
    w.standard = true;
    w.config("rc", &["b"]);
    set_hosts(&mut w, hosts);
    w.space("s");
    let endpoints = endpoints.to_vec();
    w.change_space("s", |space| space.endpoints = endpoints);
    w.run();
    w
}

fn set_hosts(w: &mut World, hosts: &[&str]) {
    let routers = hosts.iter().enumerate().map(|(number, host)| Router {
        name: format!("r{number}").into(),
        host: (*host).into(),
        port: 5672,
        readiness_port: None,
    });
    let routers = routers.collect();
    w.change_config(|c| c.routers = routers);
}

/// Where the last wish leads, endpoint by endpoint.
fn wished(w: &World, endpoint: &str) -> Option<Vec<String>> {
    let (space, exposure) = w.exposures.last().expect("nothing is wished");
    assert_eq!(*space, key("s"));
    let wish = &exposure.as_ref().expect("it is forgotten").services[endpoint];
    let to = wish.to.as_ref()?;
    let addresses = |(port, all): (&(bool, u16), &Vec<IpAddr>)| {
        all.iter().map(|address| format!("{address} {}", port.1)).collect::<Vec<_>>()
    };
    Some(to.iter().flat_map(addresses).collect())
}

fn rows(w: &World) -> Vec<EndpointStatus> {
    w.spaces[&key("s")].status.endpoints.clone()
}

fn report(w: &mut World, states: &[(&str, Exposed)]) {
    let uid = w.spaces[&key("s")].meta.uid.clone();
    let report: BTreeMap<_, _> = states.iter().map(|(name, state)| ((*name).into(), state.clone())).collect();
    w.input(Input::Exposed(key("s"), uid, report));
    w.run();
}

#[test]
fn services_lead_to_the_routers_that_serve() {
    let mut w = exposed(&["10.0.0.1", "10.0.0.2", "fd00::3"], &[endpoint("plain", Protocol::Amqp)]);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.1 5672", "10.0.0.2 5672", "fd00::3 5672"]);
    let count = w.exposures.len();
    w.router_down("r1");
    w.advance(500);
    assert_eq!(w.exposures.len(), count, "a moment is no news");
    w.advance(10_000);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.1 5672", "fd00::3 5672"]);
    w.router_up("r1");
    w.advance(3_000);
    assert_eq!(wished(&w, "plain").unwrap().len(), 3);
    let count = w.exposures.len();
    w.address("a", crate::messaging::input::AddressType::Anycast);
    w.advance(3_000);
    assert_eq!(w.exposures.len(), count, "addresses are no matter of Services");
}

#[test]
fn while_no_router_serves_what_was_there_stays() {
    let mut w = exposed(&["10.0.0.1", "10.0.0.2"], &[endpoint("plain", Protocol::Amqp)]);
    let all = wished(&w, "plain");
    w.router_down("r0");
    w.advance(10_000);
    w.router_down("r1");
    w.advance(10_000);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.2 5672"]);
    w.router_up("r0");
    w.router_up("r1");
    w.advance(3_000);
    assert_eq!(wished(&w, "plain"), all);
}

#[test]
fn after_a_restart_what_was_told_is_true_until_it_is_known() {
    let mut w = exposed(&["10.0.0.1", "10.0.0.2"], &[endpoint("plain", Protocol::Amqp)]);
    report(&mut w, &[("plain", Exposed::Made)]);
    w.advance(3_000);
    let (told, writes) = (rows(&w), w.writes("s"));
    assert_eq!(told[0].at, Some(("s-plain.tenant.svc".into(), 5672)));
    w.router("r1").up = false;
    w.exposures.clear();
    w.restart();
    w.advance(500);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.1 5672", "10.0.0.2 5672"]);
    w.advance(10_000);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.1 5672"]);
    assert_eq!((rows(&w), w.writes("s")), (told, writes));
}

#[test]
fn what_a_process_that_died_has_made_is_taken_away_though_nobody_was_told_of_it() {
    let mut w = exposed(&["10.0.0.1"], &[endpoint("plain", Protocol::Amqp)]);
    assert!(wished(&w, "plain").is_some());
    // It dies before it hears that the Service is there; then the endpoint is not asked for any more.
    w.spaces.get_mut(&key("s")).unwrap().endpoints.clear();
    w.exposures.clear();
    let writes = w.writes("s");
    w.restart();
    w.advance(3_000);
    let (space, exposure) = w.exposures.last().expect("nobody looks for what is left");
    assert!(*space == key("s") && exposure.as_ref().unwrap().services.is_empty(), "{exposure:?}");
    report(&mut w, &[]);
    w.advance(3_000);
    assert_eq!(w.writes("s"), writes);
}

#[test]
fn a_router_with_a_name_is_where_it_was_reached() {
    let mut w = World::bare();
    w.standard = true;
    w.peer = Some("10.0.0.7".parse().unwrap());
    w.config("rc", &["b"]);
    w.set_routers(&["r"]);
    w.space("s");
    w.change_space("s", |space| space.endpoints = vec![endpoint("plain", Protocol::Amqp)]);
    w.run();
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.7 5672"]);
    // Where it was before this process is not known: what is there stays.
    w.advance(3_000);
    w.router("r").up = false;
    w.restart();
    w.advance(500);
    assert_eq!(wished(&w, "plain"), None);
    w.router_up("r");
    w.advance(3_000);
    assert_eq!(wished(&w, "plain").unwrap(), ["10.0.0.7 5672"]);
}

#[test]
fn what_clients_need_is_told_once_it_is_there() {
    let balanced = EndpointSpec { load_balancer: true, ..endpoint("out", Protocol::Amqps) };
    let named = EndpointSpec { host: Some("mq.example.com".into()), ..endpoint("named", Protocol::Amqp) };
    let mut w = exposed(&["10.0.0.1"], &[endpoint("in", Protocol::Amqp), balanced, named]);
    w.change_config(|c| {
        c.listeners = Listeners { amqp: Some(6000), amqps: Some(6001), ca_certificate: Some("PEM".into()) };
    });
    w.run();
    assert_eq!(rows(&w), []);
    assert_eq!(wished(&w, "in").unwrap(), ["10.0.0.1 6000"]);
    assert_eq!(wished(&w, "out").unwrap(), ["10.0.0.1 6001"]);
    report(&mut w, &[("in", Exposed::Made), ("named", Exposed::Made), ("out", Exposed::Pending)]);
    let row = |name: &str, at: Option<(&str, u16)>| EndpointStatus {
        name: name.into(),
        at: at.map(|(host, port)| (host.into(), port)),
        ca_certificate: None,
        message: None,
    };
    let out = |at: Option<(&str, u16)>| EndpointStatus { ca_certificate: Some("PEM".into()), ..row("out", at) };
    let (within, named) = (row("in", Some(("s-in.tenant.svc", 5672))), row("named", Some(("mq.example.com", 5672))));
    let pending = EndpointStatus { message: Some("waits for a load balancer".into()), ..out(None) };
    assert_eq!(rows(&w), [within.clone(), named.clone(), pending]);
    report(&mut w, &[("in", Exposed::Made), ("named", Exposed::Made), ("out", Exposed::At("198.51.100.7".into()))]);
    assert_eq!(rows(&w), [within.clone(), named, out(Some(("198.51.100.7", 5671)))]);
    // One that nobody asks for any more is told until it is gone.
    w.change_space("s", |space| space.endpoints = vec![endpoint("in", Protocol::Amqp)]);
    w.run();
    assert_eq!(rows(&w).len(), 3);
    report(&mut w, &[("in", Exposed::Made), ("out", Exposed::Leaving)]);
    assert_eq!(rows(&w).len(), 2);
    report(&mut w, &[("in", Exposed::Made)]);
    assert_eq!(rows(&w), [within]);
    w.change_space("s", |space| space.endpoints = Vec::new());
    w.run();
    report(&mut w, &[]);
    assert_eq!(rows(&w), []);
}

#[test]
fn what_leads_nowhere_says_why() {
    let mut w = exposed(&["127.0.0.1"], &[endpoint("in", Protocol::Amqp), endpoint("tls", Protocol::Amqps)]);
    report(&mut w, &[("in", Exposed::Made), ("tls", Exposed::Made)]);
    let message = |w: &World, at: usize| rows(w)[at].message.clone().unwrap_or_default().to_string();
    assert!(message(&w, 0).contains("such as loopback"), "{}", message(&w, 0));
    assert_eq!(
        message(&w, 1),
        "RouterConfig tenant/rc names no listener for it: ask for spec.messaging.routers.listeners.amqps"
    );
    report(&mut w, &[("in", Exposed::Refused("Service s-in is there already".into())), ("tls", Exposed::Made)]);
    let refused = &rows(&w)[0];
    assert_eq!((refused.at.clone(), refused.message.as_deref()), (None, Some("Service s-in is there already")));
    assert!(w.spaces[&key("s")].status.ready.clone().unwrap().status, "the space serves all the same");
    // A report about a namesake says nothing.
    w.input(Input::Exposed(key("s"), "another".into(), BTreeMap::new()));
    w.run();
    assert_eq!(rows(&w).len(), 2);
}

#[test]
fn a_space_that_is_not_taken_has_no_services_and_one_that_is_gone_is_forgotten() {
    let mut w = World::bare();
    w.standard = true;
    w.space("s");
    w.change_space("s", |space| space.endpoints = vec![endpoint("in", Protocol::Amqp)]);
    w.advance(3_000);
    assert!(w.exposures.is_empty());
    w.config("rc", &["b"]);
    set_hosts(&mut w, &["10.0.0.1"]);
    w.run();
    assert_eq!(wished(&w, "in").unwrap(), ["10.0.0.1 5672"]);
    w.delete_space("s");
    w.advance(3_000);
    let forgotten: Vec<&Key> = w.exposures.iter().filter(|(_, wish)| wish.is_none()).map(|(key, _)| key).collect();
    assert_eq!(forgotten, [&key("s")]);
}
