//! Where a Service is: what comes, goes, ends, moves and flickers there, under traffic.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use waystation::edge::ids::Kind;
use waystation::edge::input::{BackendRef, EndpointSlice, Input, Port, Service, ServicePort};
use waystation_kit::process::inside_own_network;

use crate::asking::{Edges, at_of, get};
use crate::edge::Edge;
use crate::reflect::{Reflector, until_held};
use crate::site::{self, Site};
use crate::traffic::Load;

/// The ports at which servers listen, at every address.
const PORTS: [u16; 2] = [8080, 8082];

struct World {
    site: Site,
    edges: Edges,
    _other: Reflector,
}

impl World {
    /// With Services that lead nowhere yet, each with a host of its own.
    async fn new(services: &[&str]) -> Result<Self> {
        let mut edge = Edge::new()?;
        edge.config.external_name = true;
        let (leaf, authority) = (edge.authority.server("behind", &["behind.test"])?, edge.authority.certificate());
        let [first, other] = PORTS.map(|port| std::net::SocketAddr::from(([0, 0, 0, 0], port)));
        let reflector = Arc::new(Reflector::start(first, &leaf, &authority).await?);
        let other = Reflector::start(other, &leaf, &authority).await?;
        let edges = Edges { http: edge.haproxy.http(), https: edge.haproxy.https(), authority, reflector };
        let mut world = Self { site: Site::new(edge), edges, _other: other };
        for name in services {
            world.site.put(Input::Service(site::service(name).into()));
            world.site.put(Input::Ingress(site::ingress(name, 1, &format!("{name}.test"), name).into()));
        }
        Ok(world)
    }

    fn at(&mut self, service: &str, endpoints: &[&str]) {
        self.site.put(Input::EndpointSlice(site::slice(service, 8080, endpoints).into()));
    }

    async fn now_at(&mut self, service: &str, endpoints: &[&str]) -> Result<()> {
        self.at(service, endpoints);
        self.site.in_force().await
    }

    /// Who answers when a Service is asked so many times.
    async fn who(&self, service: &str, times: usize) -> Result<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        for _ in 0..times {
            seen.insert(at_of(&get("/").send(&self.edges, &format!("{service}.test")).await?)?);
        }
        Ok(seen)
    }

    async fn expect(&self, service: &str, endpoints: &[&str]) -> Result<()> {
        let seen = self.who(service, 4 * endpoints.len()).await?;
        ensure!(seen.iter().map(String::as_str).eq(endpoints.iter().copied()), "{service}: {seen:?}");
        Ok(())
    }

    async fn nobody(&self, service: &str) -> Result<()> {
        get("/").status(503).check(&self.edges, &format!("{service}.test")).await
    }

    fn commands(&self) -> usize {
        self.site.commands().into_values().sum()
    }

    /// Nothing else happened, and nothing is left.
    async fn ends(mut self, began: u32) -> Result<()> {
        self.site.undisturbed().await?;
        self.site.as_if_made_anew().await?;
        ensure!(self.site.edge.haproxy.info().await?.pid == began, "another process");
        self.site.edge.finish().await?;
        self.site.edge.files_are_the_process().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_scaled_replaced_moved_and_emptied_and_no_request_fails() -> Result<()> {
    if !inside_own_network("endpoints::a_service_is_scaled_replaced_moved_and_emptied_and_no_request_fails").await? {
        return Ok(());
    }
    let mut world = World::new(&["web", "api"]).await?;
    world.site.begin().await?;
    let began = world.site.edge.haproxy.info().await?.pid;
    world.nobody("web").await?;
    let all: Vec<String> = (1..=100).map(|number| format!("10.77.1.{number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    world.now_at("web", &all[..1]).await?;
    world.expect("web", &["10.77.1.1:8080"]).await?;
    let load = Load::start(world.edges.http, "web.test");
    world.now_at("web", &all).await?;
    let mut seen = BTreeSet::new();
    while seen.len() < 100 && !load.failed() {
        seen.extend(world.who("web", 20).await?);
    }
    // Another order is no difference.
    let before = world.commands();
    let shuffled: Vec<&str> = (0..100).map(|number| all[number * 37 % 100]).collect();
    world.now_at("web", &shuffled).await?;
    ensure!(world.commands() == before, "{} commands for another order", world.commands() - before);
    world.now_at("web", &all[49..50]).await?;
    world.expect("web", &["10.77.1.50:8080"]).await?;
    for address in &all[..30] {
        world.now_at("web", &[address]).await?;
        load.go_on(5).await?;
    }
    // An address goes over to another Service, in one event or in two, whichever comes first.
    world.now_at("api", &["10.77.2.1", "10.77.1.30"]).await?;
    world.now_at("web", &["10.77.1.1", "10.77.2.2"]).await?;
    let other = Load::start(world.edges.http, "api.test");
    for round in 0..20 {
        let (web, api): (&[&str], &[&str]) = match round % 4 {
            0 => (&["10.77.1.1"], &["10.77.2.1", "10.77.2.2"]),
            1 => (&["10.77.1.1", "10.77.2.2"], &["10.77.2.1"]),
            2 => (&["10.77.1.2"], &["10.77.1.1"]),
            _ => (&["10.77.1.1", "10.77.2.2"], &["10.77.2.1", "10.77.2.2"]),
        };
        if round % 2 == 0 {
            world.at("web", web)
        } else {
            world.at("api", api)
        }
        if round % 3 == 0 {
            world.site.settle();
        }
        if round % 2 == 0 {
            world.at("api", api)
        } else {
            world.at("web", web)
        }
        world.site.in_force().await?;
        load.go_on(5).await?;
        other.go_on(5).await?;
    }
    // Ends that have begun, and nothing else: they go on until something else comes.
    world.now_at("web", &["!10.77.1.1", "!10.77.2.2"]).await?;
    load.go_on(5).await?;
    world.now_at("web", &["!10.77.1.1", "10.77.1.9"]).await?;
    world.expect("web", &["10.77.1.9:8080"]).await?;
    load.go_on(5).await?;
    load.end().await.context("a request for web failed")?;
    other.end().await.context("a request for api failed")?;
    world.now_at("web", &[]).await?;
    world.nobody("web").await?;
    world.site.take(Kind::EndpointSlice, "web-1");
    world.site.in_force().await?;
    world.nobody("web").await?;
    world.ends(began).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_to_those_who_may_take_them_at_their_own_ports() -> Result<()> {
    if !inside_own_network("endpoints::requests_go_to_those_who_may_take_them_at_their_own_ports").await? {
        return Ok(());
    }
    let mut world = World::new(&["ending", "published", "ports", "outside"]).await?;
    let mut ports = site::service("ports");
    ports.ports.push(ServicePort { name: "other".into(), port: 81, tcp: true });
    world.site.put(Input::Service(ports.into()));
    // By name as well.
    let mut ingress = site::ingress("ports", 1, "ports.test", "ports");
    let mut named = ingress.rules[0].clone();
    named.host = "named.test".into();
    named.paths[0].backend = BackendRef::Service("ports".into(), Port::Name("other".into()));
    ingress.rules.push(named);
    world.site.put(Input::Ingress(ingress.into()));
    world.at("ending", &["10.77.1.1", "10.77.1.2"]);
    world.site.begin().await?;
    let began = world.site.edge.haproxy.info().await?.pid;

    // Who ends finishes what it has, and gets nothing new.
    world.now_at("ending", &["10.77.1.1"]).await?;
    world.edges.reflector.hold(true);
    let edges = world.edges.clone();
    let held = tokio::spawn(async move { get("/held").send(&edges, "ending.test").await });
    until_held(&world.edges.reflector.counts, 1).await?;
    world.now_at("ending", &["!10.77.1.1", "10.77.1.2"]).await?;
    world.expect("ending", &["10.77.1.2:8080"]).await?;
    // Also when it is gone before it has finished.
    world.now_at("ending", &["10.77.1.2"]).await?;
    world.expect("ending", &["10.77.1.2:8080"]).await?;
    world.edges.reflector.hold(false);
    let answer = held.await??;
    ensure!(answer.get(":status") == Some("200") && at_of(&answer)? == "10.77.1.1:8080", "{:?}", answer.headers);

    // Who is not ready gets nothing, unless the Service publishes it all the same: then it is said to be ready.
    let slice = |state: [bool; 3]| {
        let mut slice = site::slice("published", 8080, &["10.77.2.1"]);
        let endpoint = &mut slice.endpoints[0];
        [endpoint.ready, endpoint.serving, endpoint.terminating] = state;
        Input::EndpointSlice(slice.into())
    };
    for (state, taken) in [
        ([false, false, false], false),
        ([true, false, false], true),
        ([false, true, false], false),
        ([true, true, true], true),
        ([false, true, true], true),
        ([false, false, true], false),
        ([true, true, false], true),
    ] {
        world.site.put(slice(state));
        world.site.in_force().await?;
        let asked =
            if taken { world.expect("published", &["10.77.2.1:8080"]).await } else { world.nobody("published").await };
        asked.with_context(|| format!("[ready, serving, terminating] = {state:?}"))?;
    }

    // Several slices, each with numbers of its own for the same names.
    world.site.put(Input::EndpointSlice(
        EndpointSlice {
            ports: vec![("other".into(), 8082), ("http".into(), 8080)],
            ..site::slice("ports", 0, &["10.77.3.1"])
        }
        .into(),
    ));
    let mut second = site::slice("ports", 0, &["10.77.3.2"]);
    (second.key.name, second.ports) = ("ports-2".into(), vec![("http".into(), 8082), ("other".into(), 8080)]);
    world.site.put(Input::EndpointSlice(second.into()));
    // One that knows only one of them.
    let mut third = site::slice("ports", 0, &["10.77.3.3"]);
    (third.key.name, third.ports) = ("ports-3".into(), vec![("other".into(), 8080)]);
    world.site.put(Input::EndpointSlice(third.into()));
    world.site.in_force().await?;
    world.expect("ports", &["10.77.3.1:8080", "10.77.3.2:8082"]).await?;
    world.expect("named", &["10.77.3.1:8082", "10.77.3.2:8080", "10.77.3.3:8080"]).await?;
    world.site.take(Kind::EndpointSlice, "ports-2");
    world.site.in_force().await?;
    world.expect("named", &["10.77.3.1:8082", "10.77.3.3:8080"]).await?;

    // A name outside of the cluster, which moves, is without an address, and is back.
    let mut outside = site::service("outside");
    (outside.external_name, outside.ports) = (Some("db.test".into()), Vec::new());
    let mut ingress = site::ingress("outside", 1, "outside.test", "outside");
    ingress.rules[0].paths[0].backend = BackendRef::Service("outside".into(), Port::Number(8080));
    world.site.names.insert("db.test".into(), ["10.77.4.1".parse()?].into());
    world.site.put(Input::Service(outside.clone().into()));
    world.site.put(Input::Ingress(ingress.into()));
    world.site.in_force().await?;
    world.expect("outside", &["10.77.4.1:8080"]).await?;
    for (addresses, who) in [
        (&["10.77.4.2", "10.77.4.3"][..], &["10.77.4.2:8080", "10.77.4.3:8080"][..]),
        // What is inside the machine is nobody's.
        (&["127.0.0.1", "10.77.4.1"], &["10.77.4.1:8080"]),
        (&["127.0.0.1", "169.254.169.254"], &[]),
        (&["10.77.4.1"], &["10.77.4.1:8080"]),
        (&[], &[]),
        (&["10.77.4.1"], &["10.77.4.1:8080"]),
    ] {
        let at = addresses.iter().map(|address| address.parse()).collect::<Result<Vec<_>, _>>()?;
        world.site.resolved("db.test", at);
        world.site.in_force().await?;
        if who.is_empty() { world.nobody("outside").await } else { world.expect("outside", who).await }?;
    }
    // And back into the cluster.
    outside.external_name = None;
    outside.ports = vec![ServicePort { name: "http".into(), port: 8080, tcp: true }];
    world.site.put(Input::Service(outside.into()));
    world.now_at("outside", &["10.77.4.9"]).await?;
    world.expect("outside", &["10.77.4.9:8080"]).await?;
    world.ends(began).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_families_that_one_is_asked_which_the_service_names_first() -> Result<()> {
    if !inside_own_network("endpoints::of_two_families_that_one_is_asked_which_the_service_names_first").await? {
        return Ok(());
    }
    let mut world = World::new(&["both"]).await?;
    let (leaf, authority) = (world.site.edge.authority.server("six", &["behind.test"])?, world.edges.authority.clone());
    // Where a machine knows no IPv6, nobody answers there; what HAProxy is told of is the same.
    let six = match tokio::net::TcpListener::bind("[fd00:77::1]:0").await {
        Ok(_) => Some(Reflector::start("[fd00:77::1]:8080".parse()?, &leaf, &authority).await?),
        Err(_) => None,
    };
    // One pod in both, a slice for each.
    let slices = |four: &[&str], six: &[&str]| {
        let mut other = site::slice("both", 8080, six);
        other.key.name = "both-6".into();
        [site::slice("both", 8080, four), other].map(|slice| Input::EndpointSlice(slice.into()))
    };
    let service = |ipv6_first: bool| Input::Service(Service { ipv6_first, ..site::service("both") }.into());
    world.site.begin().await?;
    let began = world.site.edge.haproxy.info().await?.pid;
    for (first, fours, sixes, at) in [
        (false, &["10.77.1.1"][..], &["fd00:77::1"][..], "10.77.1.1:8080"),
        (true, &["10.77.1.1"], &["fd00:77::1"], "[fd00:77::1]:8080"),
        // The other one is better than none.
        (true, &["10.77.1.1"], &[], "10.77.1.1:8080"),
        (true, &["10.77.1.1"], &["!fd00:77::1"], "10.77.1.1:8080"),
        (false, &["!10.77.1.1"], &["fd00:77::1"], "[fd00:77::1]:8080"),
        (false, &[], &["fd00:77::1"], "[fd00:77::1]:8080"),
        // Nothing inside the machine or the link, in neither family.
        (true, &["10.77.1.1"], &["::1", "fe80::1", "::ffff:127.0.0.1"], ""),
        (false, &["127.0.0.1"], &["::1"], ""),
        (false, &["10.77.1.1"], &["fd00:77::1"], "10.77.1.1:8080"),
    ] {
        world.site.put(service(first));
        slices(fours, sixes).into_iter().for_each(|slice| world.site.put(slice));
        world.site.in_force().await?;
        let asked = match (at, &six) {
            ("", _) => world.nobody("both").await,
            (at, Some(_)) => world.expect("both", &[at]).await,
            (at, None) if at.starts_with('[') => Ok(()),
            (at, None) => world.expect("both", &[at]).await,
        };
        asked.with_context(|| format!("IPv6 first: {first}, at {fours:?} and {sixes:?}"))?;
    }
    world.ends(began).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_flickers_a_thousand_times_leaves_nothing() -> Result<()> {
    if !inside_own_network("endpoints::an_endpoint_that_flickers_a_thousand_times_leaves_nothing").await? {
        return Ok(());
    }
    let mut world = World::new(&["steady", "alone"]).await?;
    // These HAProxy has from its files.
    world.at("steady", &["10.77.1.1", "10.77.1.2"]);
    world.at("alone", &["10.77.2.1"]);
    world.site.begin().await?;
    let began = world.site.edge.haproxy.info().await?.pid;
    // This one it is told of.
    world.now_at("steady", &["10.77.1.1", "10.77.1.2", "10.77.1.3"]).await?;
    let load = Load::start(world.edges.http, "steady.test");
    for round in 0..1000 {
        world.at("steady", &["10.77.1.1"]);
        world.at("alone", &[]);
        world.site.settle();
        // Sometimes nobody waits for what is under way.
        if round % 3 != 0 {
            world.site.edge.in_force().await?;
        }
        world.at("steady", &["10.77.1.1", "10.77.1.2", "10.77.1.3"]);
        world.at("alone", &["10.77.2.1"]);
        world.site.settle();
        if round % 3 != 1 {
            world.site.edge.in_force().await?;
        }
    }
    world.site.in_force().await?;
    load.go_on(10).await?;
    load.end().await.context("a request failed")?;
    world.expect("steady", &["10.77.1.1:8080", "10.77.1.2:8080", "10.77.1.3:8080"]).await?;
    world.expect("alone", &["10.77.2.1:8080"]).await?;
    let servers = world.site.edge.haproxy.stat().await?;
    let mine: Vec<String> = servers.iter().map(waystation_kit::haproxy::Row::name).collect();
    let mine = mine.iter().filter(|name| name.contains("10.77.")).count();
    ensure!(mine == 4, "{mine} servers");
    world.ends(began).await
}
