//! A storm of changes of every kind, under traffic: no request fails, no WebSocket drops, nothing is reloaded; and in the
//! end model, process and files are what they would be if all that had been there from the start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use waystation::drive::haproxy::actor::{Batch, Report, State};
use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{
    Annotations, BackendRef, Endpoint, EndpointSlice, Ingress, Input, Meta, PathRule, PathType, Port, Rule, Secret,
    Service, ServicePort, Tls,
};
use waystation::edge::model::Model;
use waystation::edge::wanted::{MapName, Slot, Value};
use waystation::engine::jitter::Jitter;
use waystation_kit::pki::Leaf;
use waystation_kit::process::inside_own_network;

use crate::edge::{Edge, soon};
use crate::traffic::{Load, Server, Socket, get_tls};

const CHANGES: usize = 2000;
/// Hosts that stay, whatever else changes about them.
const STEADY: usize = 4;
/// Hosts that come and go.
const OTHERS: usize = 60;
const ENDPOINTS: usize = 8;
const SOCKETS: usize = 24;

/// What may be said of a host that must go on to answer.
const HARMLESS: &[(&str, &str)] = &[
    ("timeout-server", "40s"),
    ("balance", "leastconn"),
    ("balance", "random"),
    ("affinity", "cookie"),
    ("request-set-headers", "X-Storm: 1"),
    ("hsts", "true"),
    ("cors-enable", "true"),
    ("limit-connections", "100000"),
    ("allow-list", "127.0.0.0/8"),
    ("max-connections", "200"),
];

/// What may be said of others.
const ANYTHING: &[(&str, &str)] = &[
    ("auth-secret", "users"),
    ("allow-list", "192.0.2.0/24, !192.0.2.7"),
    ("deny-list", "127.0.0.0/8"),
    ("rewrite-target", "/x"),
    ("path-type", "regex"),
    ("limit-rps", "5"),
    ("app-root", "/a"),
    ("permanent-redirect", "/z"),
    ("from-to-www-redirect", "true"),
    ("body-size", "1m"),
    ("response-del-headers", "X-A, X-B"),
    ("backend-protocol", "h2c"),
    ("auth-tls-secret", "ca"),
    ("session-cookie-name", "STORM"),
    ("hsts", "perhaps"),
    ("ssl-redirect", "force"),
    ("ssl-passthrough", "true"),
];

fn meta(name: &str) -> Meta {
    Meta { key: Key::new("n", name), uid: name.into(), created_s: 1 }
}

fn annotations(pairs: impl IntoIterator<Item = (&'static str, &'static str)>) -> Annotations {
    let all: BTreeMap<Arc<str>, Arc<str>> =
        pairs.into_iter().map(|(key, value)| (format!("waystation.dev/{key}").into(), value.into())).collect();
    all.into_iter().collect()
}

/// The objects, the model that lived through all of their changes, and the HAProxy that it drives.
struct Storm {
    edge: Edge,
    model: Model,
    objects: BTreeMap<(Kind, String), Input>,
    leaves: Vec<Leaf>,
    dice: Jitter,
    /// The last that the drive was told, for people.
    last: VecDeque<String>,
}

impl Storm {
    fn new() -> Result<Self> {
        let edge = Edge::new()?;
        let leaves = (0..8).map(|number| edge.authority.server(&format!("leaf {number}"), &["t.com"]));
        let leaves = leaves.collect::<Result<Vec<_>>>()?;
        let model = Model::new(edge.config.meta.key.clone());
        let mut storm =
            Self { edge, model, objects: BTreeMap::new(), leaves, dice: Jitter::seeded(5), last: VecDeque::new() };
        for number in 0..STEADY {
            storm.service(&format!("s{number}"));
            storm.endpoints(&format!("s{number}"), &[number, number + 4]);
            storm.ingress(&format!("s{number}"), &[]);
        }
        for number in 0..OTHERS {
            storm.service(&format!("c{number}"));
            storm.endpoints(&format!("c{number}"), &[number % ENDPOINTS]);
            storm.ingress(&format!("c{number}"), &[("ssl-redirect", "false")]);
        }
        for number in 0..6 {
            storm.certificate(&format!("cert{number}"), number);
        }
        storm.secret("users", &[("auth", "ann::open sesame\n")]);
        let authority = storm.edge.authority.certificate();
        storm.secret("ca", &[("ca.crt", &authority)]);
        Ok(storm)
    }

    fn roll(&self, below: usize) -> usize {
        usize::try_from(self.dice.next() % below as u64).unwrap()
    }

    fn put(&mut self, kind: Kind, name: &str, input: Input) {
        self.objects.insert((kind, name.to_owned()), input.clone());
        self.model.apply(input);
    }

    /// Whether it was there.
    fn take(&mut self, kind: Kind, name: &str) -> bool {
        let was = self.objects.remove(&(kind, name.to_owned())).is_some();
        if was {
            self.model.apply(Input::Vanished(kind, Key::new("n", name)));
        }
        was
    }

    fn service(&mut self, name: &str) {
        let port = ServicePort { name: "http".into(), port: 80, tcp: true };
        let service = Service {
            meta: meta(name),
            ports: vec![port],
            cluster_ip: None,
            external_name: None,
            ipv6_first: false,
            annotations: annotations([]),
        };
        self.put(Kind::Service, name, Input::Service(service.into()));
    }

    fn endpoints(&mut self, name: &str, numbers: &[usize]) {
        // Addresses of those that stay are nobody else's: where two swap theirs, both are without for a moment.
        let pool = name.strip_prefix('s').map_or(0, |number| number.parse::<usize>().unwrap() + 1);
        let endpoint = |number: &usize| Endpoint {
            address: format!("10.77.{pool}.{}", number % ENDPOINTS + 1).parse().ok(),
            ready: *number < ENDPOINTS,
            serving: true,
            terminating: *number >= ENDPOINTS,
        };
        let slice = EndpointSlice {
            key: Key::new("n", format!("{name}-1")),
            service: name.into(),
            fqdn: false,
            ports: vec![("http".into(), 8080)],
            endpoints: numbers.iter().map(endpoint).collect(),
        };
        self.put(Kind::EndpointSlice, &format!("{name}-1"), Input::EndpointSlice(slice.into()));
    }

    /// Everything of NAME.com goes to the Service of that name, and some of it may go elsewhere.
    fn ingress(&mut self, name: &str, options: &[(&'static str, &'static str)]) {
        let backend = |service: &str| BackendRef::Service(service.into(), Port::Number(80));
        let path = |path: &str, kind, to: &str| PathRule { path: path.into(), kind, backend: backend(to) };
        let mut paths = vec![path("/", PathType::Prefix, name)];
        for _ in 0..self.roll(3) {
            let kinds = [PathType::Exact, PathType::Prefix, PathType::ImplementationSpecific];
            let (kind, other) = (kinds[self.roll(3)], format!("c{}", self.roll(OTHERS)));
            paths.push(path(&format!("/p{}", self.roll(5)), kind, &other));
        }
        let secret = format!("cert{}", self.roll(6));
        let tls = name.starts_with('c') && self.roll(3) == 0;
        let host: Arc<str> = format!("{name}.com").into();
        let ingress = Ingress {
            meta: meta(name),
            class: Some("waystation".into()),
            class_annotation: None,
            default_backend: None,
            rules: vec![Rule { host: Arc::clone(&host), paths }],
            tls: if tls { vec![Tls { hosts: vec![host], secret: Some(secret.into()) }] } else { Vec::new() },
            annotations: annotations(options.iter().copied()),
        };
        self.put(Kind::Ingress, name, Input::Ingress(ingress.into()));
    }

    fn secret(&mut self, name: &str, data: &[(&str, &str)]) {
        let data = data.iter().map(|(key, value)| ((*key).into(), value.as_bytes().into())).collect();
        self.put(Kind::Secret, name, Input::Secret(Secret { meta: meta(name), data }.into()));
    }

    fn certificate(&mut self, name: &str, number: usize) {
        let leaf = self.leaves[number % self.leaves.len()].clone();
        self.secret(name, &[("tls.crt", &leaf.certificate), ("tls.key", &leaf.key)]);
    }

    fn some_of(&self, all: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        (0..self.roll(4)).map(|_| all[self.roll(all.len())]).collect()
    }

    /// One change of something.
    fn change(&mut self) {
        let other = format!("c{}", self.roll(OTHERS));
        let steady = format!("s{}", self.roll(STEADY));
        match self.roll(10) {
            0 | 1 => {
                let first = self.roll(ENDPOINTS);
                let numbers: Vec<usize> = (0..1 + self.roll(3)).map(|more| (first + more) % ENDPOINTS).collect();
                self.endpoints(&steady, &numbers);
            }
            2 | 3 => {
                // Also none at all, and some that end.
                let numbers: BTreeSet<usize> = (0..self.roll(4)).map(|_| self.roll(2 * ENDPOINTS)).collect();
                self.endpoints(&other, &numbers.into_iter().collect::<Vec<_>>());
            }
            4 => {
                let options = self.some_of(HARMLESS);
                self.ingress(&steady, &options);
            }
            5 | 6 => {
                let options = [self.some_of(HARMLESS), self.some_of(ANYTHING)].concat();
                self.ingress(&other, &options);
            }
            7 => {
                if !self.take(Kind::Ingress, &other) {
                    self.ingress(&other, &[]);
                }
            }
            8 => {
                if !self.take(Kind::Service, &other) {
                    self.service(&other);
                }
            }
            _ => {
                let (name, leaf) = (format!("cert{}", self.roll(6)), self.roll(8));
                if self.roll(3) > 0 || !self.take(Kind::Secret, &name) {
                    self.certificate(&name, leaf);
                }
            }
        }
    }

    /// Has the drive do what the model decides.
    fn settle(&mut self) {
        for batch in settled(&mut self.model, &self.objects) {
            let kinds = batch.changes.iter().map(|change| format!("{:?} → {:?}", change.slot, change.after.is_some()));
            self.last.push_back(kinds.collect::<Vec<_>>().join(", "));
            if self.last.len() > 10 {
                self.last.pop_front();
            }
            if self.edge.driver.is_some() { self.edge.send(batch) } else { self.edge.drive_to(batch) }
        }
    }
}

/// All that a model decides, with every Secret answered that it asks for.
fn settled(model: &mut Model, objects: &BTreeMap<(Kind, String), Input>) -> Vec<Batch> {
    let mut batches = Vec::new();
    loop {
        let settled = model.settle();
        let anything = settled.first || !settled.changes.is_empty() || !settled.reload.is_empty();
        if let Some(config) = model.configured().cloned().filter(|_| anything) {
            batches.push(match settled.first {
                true => Batch::first(settled.generation, model.wanted(), config),
                false => {
                    let (generation, changes, reload) = (settled.generation, settled.changes, settled.reload);
                    Batch { generation, changes, config, reload }
                }
            });
        }
        if !settled.secrets.iter().any(|(_, now)| *now) {
            return batches;
        }
        for (key, _) in settled.secrets.into_iter().filter(|(_, now)| *now) {
            let there = objects.get(&(Kind::Secret, key.name.to_string())).cloned();
            model.apply(there.unwrap_or(Input::Vanished(Kind::Secret, key)));
        }
    }
}

/// What HAProxy says that it holds, in words that do not tell when or how it came by it.
async fn state(edge: &Edge) -> Result<BTreeMap<String, Vec<String>>> {
    let layout = edge.layout();
    let mut all = BTreeMap::new();
    let ask = async |question: &str, columns: &[usize]| {
        let text = edge.haproxy.ask(question).await?;
        let words = |line: &str| -> Option<String> {
            let words: Vec<&str> = line.split(' ').collect();
            let picked = |column: &usize| words.get(*column).copied();
            Some(columns.iter().map(picked).collect::<Option<Vec<_>>>()?.join(" "))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(words);
        anyhow::Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('_')).collect::<Vec<_>>())
    };
    for map in MapName::ALL {
        let text = edge.haproxy.ask(&format!("show map {}", layout.map(*map))).await?;
        let mut lines: Vec<String> =
            text.lines().filter_map(|line| line.split_once(' ')).map(|(_, entry)| entry.to_owned()).collect();
        if !map.ordered() {
            lines.sort();
        }
        all.insert(map.to_string(), lines);
    }
    // Names, addresses, states, weights and ports.
    for (question, columns) in
        [("show backend", &[0][..]), ("show servers state", &[1, 3, 4, 5, 7, 18]), ("show ssl cert", &[0])]
    {
        let mut lines = ask(question, columns).await?;
        lines.sort();
        all.insert(question.to_owned(), lines);
    }
    let text = edge.haproxy.ask(&format!("show ssl crt-list {}", layout.crt_list())).await?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    all.insert("show ssl crt-list".to_owned(), lines);
    Ok(all)
}

/// What a model says of the same, as far as it is the same.
fn expected(model: &Model) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for map in MapName::ALL {
        let mut lines: Vec<String> =
            waystation::edge::render::map(model.wanted(), *map).lines().map(str::to_owned).collect();
        if !map.ordered() {
            lines.sort();
        }
        all.insert(map.to_string(), lines);
    }
    for (slot, value) in model.wanted().slots() {
        let (question, line) = match (slot, value) {
            (Slot::Backend(name), _) => ("show backend", name.to_string()),
            (Slot::Server(backend, name), Value::Server(server)) => {
                let weight = u8::from(!server.drain);
                let line = format!("{backend} {name} {} 2 {weight} {}", server.address, server.port);
                ("show servers state", line)
            }
            _ => continue,
        };
        all.entry(question.to_owned()).or_default().push(line);
    }
    all.values_mut().for_each(|lines| lines.sort());
    all
}

fn same(what: &str, a: &BTreeMap<String, Vec<String>>, b: &BTreeMap<String, Vec<String>>) -> Result<()> {
    for (question, lines) in a {
        let other = b.get(question).with_context(|| format!("{what}: {question} is missing"))?;
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
        };
        ensure!(lines == other, "{what}, {question}: only {:?} and {:?}", only(lines, other), only(other, lines));
    }
    Ok(())
}

/// Asks by TLS again and again, each time on a connection of its own.
fn tls(port: u16, authority: String, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Result<usize>> {
    tokio::spawn(async move {
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            let (status, ..) = get_tls(port, &authority, "t.com").await?;
            // A host without routes: what counts is that it is answered.
            ensure!(status == 404, "{status}");
            count += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(count)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_every_kind_disturb_nobody_and_leave_nothing_behind() -> Result<()> {
    if !inside_own_network("storm::changes_of_every_kind_disturb_nobody_and_leave_nothing_behind").await? {
        return Ok(());
    }
    // At every address.
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut storm = Storm::new()?;
    storm.edge.default = storm.edge.authority.server("default", &["t.com"])?;
    storm.model.apply(Input::RouterConfig(Arc::new(storm.edge.config.clone())));
    Kind::ALL.into_iter().for_each(|kind| storm.model.apply(Input::Synced(kind)));
    storm.settle();
    storm.edge.begin().await?;
    let (http, https) = (storm.edge.haproxy.http(), storm.edge.haproxy.https());
    let began = storm.edge.haproxy.info().await?.pid;

    let mut sockets = Vec::new();
    for number in 0..SOCKETS {
        let host = if number % 2 == 0 { format!("s{}.com", number % STEADY) } else { format!("c{number}.com") };
        sockets.push(Socket::open(http, &host).await?);
    }
    let rest = Duration::from_millis(4);
    let loads = [
        Load::paced(http, "s0.com", 200, rest),
        Load::paced(http, "s1.com", 1, rest),
        Load::paced(http, "s2.com", 5, rest),
        Load::paced(http, "s3.com", 50, rest),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let tls = tls(https, storm.edge.authority.certificate(), Arc::clone(&stop));

    let mut done = 0;
    while done < CHANGES && !loads.iter().any(Load::failed) {
        // Several of them may come at once.
        for _ in 0..1 + storm.roll(3) {
            storm.change();
            done += 1;
        }
        storm.settle();
        tokio::time::sleep(Duration::from_millis(2)).await;
        if storm.roll(10) == 0 {
            storm.edge.in_force().await?;
        }
    }
    storm.edge.in_force().await?;

    stop.store(true, Ordering::SeqCst);
    let mut requests = tls.await?.context("TLS")?;
    for load in loads {
        let ended = load.end().await;
        requests += ended.with_context(|| format!("after {done} changes, the last of them {:#?}", storm.last))?;
    }
    let mut messages = 0;
    for socket in sockets {
        messages += socket.end().await?;
    }
    ensure!(requests > 1000 && messages > 1000, "{requests} requests, {messages} messages");
    ensure!(storm.edge.haproxy.info().await?.pid == began, "another process");

    // What left has left when its last session has ended.
    let leaving = |report: &Report| matches!(report, Report::Leaving(_));
    let told = storm.edge.driver.as_ref().unwrap().told.iter().rev().find(|report| leaving(report)).cloned();
    if told.is_some_and(|report| report != Report::Leaving(0)) {
        storm.edge.until("all have left", |report| *report == Report::Leaving(0)).await?;
    }
    let compared = storm.edge.compare().await?;
    ensure!(compared == (0, 0), "{compared:?}");
    for report in &storm.edge.driver.as_ref().unwrap().told {
        let fine = match report {
            Report::Model(input) => matches!(input, Input::InForce(_)),
            // At the beginning.
            Report::State(State::Unreachable(_) | State::Filling | State::Serving) => true,
            Report::Leaving(_) | Report::Compared { .. } => true,
            _ => false,
        };
        ensure!(fine, "{report:?}");
    }

    // A model that begins with what there is now.
    let mut fresh = Model::new(storm.edge.config.meta.key.clone());
    fresh.apply(Input::RouterConfig(Arc::new(storm.edge.config.clone())));
    Kind::ALL.into_iter().for_each(|kind| fresh.apply(Input::Synced(kind)));
    storm.objects.iter().filter(|((kind, _), _)| *kind != Kind::Secret).for_each(|(_, o)| fresh.apply(o.clone()));
    settled(&mut fresh, &storm.objects);
    let (lived, built) = (storm.model.wanted().slots(), fresh.wanted().slots());
    let differ: Vec<_> = lived.iter().filter(|(slot, value)| built.get(slot) != Some(value)).map(|(s, _)| s).collect();
    ensure!(differ.is_empty() && lived.len() == built.len(), "{differ:?}, {} and {}", lived.len(), built.len());

    let running = state(&storm.edge).await?;
    same("the model and the process", &expected(&fresh), &running)?;
    storm.edge.finish().await?;
    storm.edge.haproxy.stop().await?;
    storm.edge.haproxy.start().await?;
    let restarted = state(&storm.edge).await?;
    same("the process and one that was started from the files", &running, &restarted)?;
    soon("it serves", || async {
        ensure!(crate::traffic::get(http, "s0.com", "/").await?.0 == 200);
        Ok(())
    })
    .await?;
    Ok(())
}
