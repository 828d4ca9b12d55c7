//! Every option with a real HAProxy and real requests: not said, said, said otherwise, wrong, said by two Ingresses, and
//! said no more.
//!
//! A case is one option. All cases are gone through at once, each with a host, an Ingress and a Service of its own; what
//! is expected at a step is asked of every one before the next step is taken.

mod aliases;
mod cases;
mod hosts;
mod paths;
mod services;
mod singles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use waystation::edge::ids::Kind;
use waystation::edge::input::{Ingress, Input, Tls};
use waystation::edge::options::{Scope, TABLE};
use waystation::supervise::verifier;
use waystation_kit::pki::{Authority, Leaf};
use waystation_kit::process::inside_own_network;

use self::cases::{Case, Said};
use crate::asking::{Ask, Edges};
use crate::edge::Edge;
use crate::reflect::Reflector;
use crate::site::{self, Site};

/// Those that are shown by a test of their own here.
const SINGLES: &[&str] = &[
    "canary",
    "canary-weight",
    "canary-weight-total",
    "canary-by-header",
    "canary-by-header-value",
    "canary-by-cookie",
    "maxqueue-server",
    "health-check",
    "health-check-interval",
    "health-check-rise-count",
    "health-check-fall-count",
];

/// What cases may name.
pub struct Props {
    /// With certificates of the authority in the Secret `ca`.
    pub ann: Leaf,
    pub ann_too: Leaf,
    /// With one of that in `other-ca`.
    pub bob: Leaf,
}

/// Secrets and Services that cases name, besides their own.
fn common(props: &Props, authority: &str, other: &str) -> Vec<Input> {
    let mut objects = Vec::new();
    for (name, data) in [
        ("ca", &[("ca.crt", authority)][..]),
        ("other-ca", &[("ca.crt", other)]),
        ("users", &[("auth", "ann::open sesame\n")]),
        ("others", &[("auth", "bob::open sesame\n")]),
        ("broken", &[("ca.crt", "nonsense"), ("auth", "nonsense"), ("tls.crt", "x"), ("tls.key", "x")]),
    ] {
        objects.push(Input::Secret(site::secret(name, data).into()));
    }
    for (name, leaf) in [("ann", &props.ann), ("ann-too", &props.ann_too)] {
        objects.push(Input::Secret(site::certificate(name, leaf).into()));
    }
    for (name, at) in [("spare", "10.77.240.1"), ("spare-too", "10.77.240.2")] {
        objects.push(Input::Service(site::service(name).into()));
        objects.push(Input::EndpointSlice(site::slice(name, 8080, &[at]).into()));
    }
    objects
}

/// The Service and the endpoints of a case.
fn served(case: &Case, number: usize) -> [Input; 2] {
    let mut service = site::service(&case.name);
    service.cluster_ip = Some("10.77.230.1".parse().unwrap());
    let at = (1..=case.endpoints).map(|endpoint| format!("10.77.{number}.{endpoint}")).collect::<Vec<_>>();
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    [Input::Service(service.into()), Input::EndpointSlice(site::slice(&case.name, case.port, &at).into())]
}

/// An Ingress of a case that says this.
fn ingress(case: &Case, name: &str, created_s: i64, path: &str, said: &[(&str, &str)]) -> Ingress {
    let mut ingress = site::ingress(name, created_s, &case.host(), &case.name);
    ingress.rules[0].paths = vec![site::path(path, case.kind, &case.name)];
    if case.tls {
        ingress.tls = vec![Tls { hosts: vec![case.host().into()], secret: None }];
    }
    ingress.annotations = site::annotations(said.iter().copied());
    ingress
}

/// An edge with reflecting servers behind it, and a verifier of passwords beside it.
pub struct World {
    pub site: Site,
    pub edges: Edges,
    pub props: Props,
    _more: (Reflector, Full, tokio::task::JoinHandle<std::io::Result<()>>),
}

/// A port that takes no connection any more.
pub const FULL: u16 = 8081;

/// What listens there, and those that fill it.
type Full = (TcpListener, Vec<TcpStream>);

async fn full() -> Result<Full> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([0, 0, 0, 0], FULL).into())?;
    let listener = socket.listen(1)?;
    let mut streams = Vec::new();
    let connect = async || TcpStream::connect(("127.0.0.1", FULL)).await;
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), connect()).await {
        streams.push(stream?);
    }
    Ok((listener, streams))
}

impl World {
    /// Nothing is started.
    pub async fn new() -> Result<Self> {
        let mut edge = Edge::new()?;
        edge.default = edge.authority.server("default", &["*.opt.test"])?;
        // What leaves is not waited for.
        edge.limits.linger = Duration::from_millis(10);
        // So long that nobody waits for them to pass.
        let long = ["timeout-connect", "timeout-server", "timeout-tunnel", "timeout-queue", "health-check-interval"];
        edge.config.options = long.into_iter().map(|name| (name.into(), "1h".into())).collect();
        let behind = edge.authority.server("behind", &["behind.test", "ssl-passthrough.opt.test"])?;
        let authority = edge.authority.certificate();
        let other = Authority::new("other")?;
        let props = Props {
            ann: edge.authority.client("ann", None)?,
            ann_too: edge.authority.client("ann too", None)?,
            bob: other.client("bob", None)?,
        };
        let reflector = Arc::new(Reflector::start("0.0.0.0:8080".parse()?, &behind, &authority).await?);
        // At the address of a Service.
        let service = Reflector::start("10.77.230.1:80".parse()?, &behind, &authority).await?;
        let users = edge.haproxy.folder().join("users");
        let verifier = verifier::serve(verifier::listen(edge.layout().verifier().as_ref())?, users);
        let (http, https) = (edge.haproxy.http(), edge.haproxy.https());
        let edges = Edges { http, https, authority: authority.clone(), reflector };
        let mut site = Site::new(edge);
        site.names.insert("auth.test".into(), ["10.77.241.2".parse()?].into());
        common(&props, &authority, &other.certificate()).into_iter().for_each(|object| site.put(object));
        Ok(Self { site, edges, props, _more: (service, full().await?, tokio::spawn(verifier)) })
    }

    /// Puts the Service and the endpoints of a case.
    fn serve(&mut self, case: &Case, number: usize) {
        served(case, number).into_iter().for_each(|object| self.site.put(object));
    }

    /// Puts the older Ingress of a case, which says that.
    fn say(&mut self, case: &Case, value: Option<&str>) {
        self.put_ingress(case, &case.name, 1, &case.root, value);
    }

    /// Puts a younger one, for the path `/second`.
    fn say_too(&mut self, case: &Case, value: &str) {
        self.put_ingress(case, &format!("{}-too", case.name), 2, "/second", Some(value));
    }

    fn put_ingress(&mut self, case: &Case, name: &str, created_s: i64, path: &str, value: Option<&str>) {
        let said: Vec<_> = case.also.iter().copied().chain(value.map(|value| (case.option, value))).collect();
        self.site.put(Input::Ingress(ingress(case, name, created_s, path, &said).into()));
    }

    /// Checks what every case expects now: all at once, but for what holds requests.
    async fn check(&self, step: &str, cases: &[Case], asks: impl Fn(&Case) -> Vec<Ask>) -> Result<()> {
        let of =
            |case: &Case| asks(case).into_iter().map(|ask| (case.name.clone(), case.host(), ask)).collect::<Vec<_>>();
        let (held, free): (Vec<_>, Vec<_>) = cases.iter().flat_map(of).partition(|(_, _, ask)| ask.holds());
        let check = |(name, host, ask): (String, String, Ask)| async move {
            let checked = ask.check(&self.edges, &host).await;
            checked.err().map(|error| format!("{name}, {step}: {error:#}"))
        };
        let mut wrong: Vec<_> = stream::iter(free).map(check).buffer_unordered(16).collect().await;
        for ask in held {
            wrong.push(check(ask).await);
        }
        let wrong: Vec<String> = wrong.into_iter().flatten().collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        Ok(())
    }
}

fn asks(said: &Said, path: &str) -> Vec<Ask> {
    (said.asks)(path)
}

fn definition(case: &Case) -> Result<&'static waystation::edge::options::Definition> {
    TABLE.iter().find(|row| row.name == case.option).with_context(|| format!("{} is no option", case.option))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_option_does_what_it_says_and_leaves_nothing_behind() -> Result<()> {
    if !inside_own_network("options::every_option_does_what_it_says_and_leaves_nothing_behind").await? {
        return Ok(());
    }
    let mut world = World::new().await?;
    let cases = [hosts::cases(&world.props), paths::cases(), services::cases(&world.props)];
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    let shown: BTreeSet<&str> = cases.iter().map(|case| case.option).chain(SINGLES.iter().copied()).collect();
    let missing: Vec<&str> = TABLE.iter().map(|row| row.name).filter(|name| !shown.contains(name)).collect();
    ensure!(missing.is_empty(), "nothing shows {missing:?}");

    for (case, number) in cases.iter().zip(1..) {
        world.serve(case, number);
        world.say(case, None);
    }
    world.site.begin().await?;
    world.check("not said", &cases, |case| asks(&case.plain, "")).await?;
    let before = world.site.as_if_made_anew().await?;
    let began = world.site.edge.haproxy.info().await?.pid;

    cases.iter().for_each(|case| world.say(case, Some(case.set.value)));
    world.site.in_force().await?;
    world.check("said", &cases, |case| asks(&case.set, "")).await?;

    // Two Ingresses of one host: each says it of its own paths, or the older one of all.
    let both: Vec<&Case> = cases.iter().filter(|case| !case.alone).collect();
    both.iter().for_each(|case| world.say_too(case, case.changed.value));
    world.site.in_force().await?;
    world.check("said by the older", &cases, |case| asks(&case.set, "")).await?;
    let second = |case: &Case| match definition(case).map(|row| row.scope) {
        _ if case.alone => Vec::new(),
        Ok(Scope::Path) => asks(&case.changed, "/second"),
        _ => asks(&case.set, "/second"),
    };
    world.check("said by the younger", &cases, second).await?;
    world.site.undisturbed().await?;

    // A process that is started from the files alone does all of it.
    ensure!(world.site.edge.haproxy.info().await?.pid == began, "another process");
    world.site.edge.finish().await?;
    world.site.edge.haproxy.stop().await?;
    world.site.edge.haproxy.start().await?;
    world.check("said, from the files,", &cases, |case| asks(&case.set, "")).await?;
    world.check("said by the younger, from the files,", &cases, second).await?;
    world.site.drive_anew()?;
    world.site.edge.in_force().await?;
    let began = world.site.edge.haproxy.info().await?.pid;

    for case in &cases {
        world.site.take(Kind::Ingress, &format!("{}-too", case.name));
        world.say(case, Some(case.changed.value));
    }
    world.site.in_force().await?;
    world.check("said otherwise", &cases, |case| asks(&case.changed, "")).await?;

    for number in 0..cases.iter().map(|case| case.bad.len()).max().unwrap_or(0) {
        let value = |case: &Case| case.bad.get(number).or(case.bad.last()).copied();
        cases.iter().for_each(|case| world.say(case, value(case)));
        world.site.in_force().await?;
        let denied = |case: &Case| match (definition(case).is_ok_and(|row| row.protects), value(case)) {
            (true, Some(_)) => asks(&case.denied, ""),
            _ => asks(&case.plain, ""),
        };
        world.check(&format!("wrong ({number})"), &cases, denied).await?;
    }

    cases.iter().for_each(|case| world.say(case, None));
    world.site.in_force().await?;
    world.check("said no more", &cases, |case| asks(&case.plain, "")).await?;
    world.site.undisturbed().await?;
    let after = world.site.as_if_made_anew().await?;
    site::same("before and after", &before, &after)?;
    ensure!(world.site.edge.haproxy.info().await?.pid == began, "another process");
    Ok(())
}
