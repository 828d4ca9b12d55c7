//! A model, the objects that it was told of, and the HAProxy that it drives.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use waystation::drive::haproxy::actor::{Batch, Report};
use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{
    Annotations, BackendRef, Endpoint, EndpointSlice, Ingress, IngressClass, Input, Meta, PathRule, PathType, Port,
    Rule, Secret, Service, ServicePort, Tls,
};
use waystation::edge::model::{CONTROLLER, Model};
use waystation::edge::wanted::{MapName, Slot, Value};
use waystation_kit::pki::Leaf;

use crate::edge::{Edge, soon};

/// Where every object is.
pub const NAMESPACE: &str = "n";

/// What is there, by kind and name.
pub type Objects = BTreeMap<(Kind, Arc<str>), Input>;

/// See above.
pub struct Site {
    pub edge: Edge,
    pub model: Model,
    pub objects: Objects,
    /// Where names of DNS lead.
    pub names: BTreeMap<Arc<str>, Arc<[IpAddr]>>,
    /// The last that the drive was told, for people.
    pub last: VecDeque<String>,
    generation: u64,
    /// Reports of the drive that the model has heard.
    heard: usize,
}

impl Site {
    /// With nothing but the RouterConfig, as the edge has it.
    pub fn new(edge: Edge) -> Self {
        let mut model = Model::new(edge.config.meta.key.clone());
        model.apply(Input::RouterConfig(Arc::new(edge.config.clone())));
        let (objects, names, last) = Default::default();
        Self { edge, model, objects, names, last, generation: 0, heard: 0 }
    }

    /// What was put is all there is: HAProxy is started with it.
    pub async fn begin(&mut self) -> Result<()> {
        Kind::ALL.into_iter().for_each(|kind| self.model.apply(Input::Synced(kind)));
        self.settle();
        self.edge.begin().await
    }

    /// An object was made or changed.
    pub fn put(&mut self, input: Input) {
        if let Input::RouterConfig(config) = &input {
            // What one that is gone said goes on to count.
            self.edge.config = (**config).clone();
        }
        self.objects.insert(place(&input), input.clone());
        self.model.apply(input);
    }

    /// An object is gone; whether it was there.
    pub fn take(&mut self, kind: Kind, name: &str) -> bool {
        let was = self.objects.remove(&(kind, name.into())).is_some();
        if was {
            self.model.apply(Input::Vanished(kind, Key::new(NAMESPACE, name)));
        }
        was
    }

    /// A name of DNS leads there now.
    pub fn resolved(&mut self, name: &str, at: Vec<IpAddr>) {
        let at: Arc<[IpAddr]> = at.into();
        self.names.insert(name.into(), Arc::clone(&at));
        self.model.apply(Input::Resolved(name.into(), at));
    }

    /// Has the drive do what the model decides.
    pub fn settle(&mut self) {
        for batch in settled(&mut self.model, &self.objects, &self.names) {
            let kinds = batch.changes.iter().map(|change| format!("{:?} → {:?}", change.slot, change.after.is_some()));
            self.last.push_back(kinds.collect::<Vec<_>>().join(", "));
            if self.last.len() > 10 {
                self.last.pop_front();
            }
            self.generation = batch.generation;
            if self.edge.driver.is_some() { self.edge.send(batch) } else { self.edge.drive_to(batch) }
        }
    }

    /// Has the drive do what the model decides, and waits until it is in force.
    pub async fn in_force(&mut self) -> Result<()> {
        self.settle();
        self.edge.in_force().await
    }

    /// Tells the model what HAProxy has refused, and waits until what is decided then is in force.
    pub async fn hear(&mut self) -> Result<()> {
        let told = self.edge.driver.as_ref().map_or(&[][..], |driver| &driver.told);
        let refused = told.iter().skip(self.heard).filter_map(|report| match report {
            Report::Model(input @ Input::Refused(..)) => Some(input.clone()),
            _ => None,
        });
        let refused: Vec<Input> = refused.collect();
        self.heard = told.len();
        refused.into_iter().for_each(|input| self.model.apply(input));
        self.in_force().await
    }

    /// Another drive, which knows nothing but what is wanted now.
    pub fn drive_anew(&mut self) -> Result<()> {
        self.heard = 0;
        let config = self.model.configured().context("there is no RouterConfig")?.clone();
        self.edge.drive_to(Batch::first(self.generation, self.model.wanted(), config));
        Ok(())
    }

    /// Waits until nothing leaves any more.
    async fn left(&mut self) -> Result<()> {
        let leaving = |report: &Report| matches!(report, Report::Leaving(_));
        let told = self.edge.driver.iter().flat_map(|driver| driver.told.iter().rev());
        if told.into_iter().find(|report| leaving(report)).is_some_and(|report| *report != Report::Leaving(0)) {
            self.edge.until("all have left", |report| *report == Report::Leaving(0)).await?;
        }
        Ok(())
    }

    /// What was sent so far, by kind and answer.
    pub fn commands(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        self.edge.driver.as_ref().map(|driver| driver.counts.all()).unwrap_or_default()
    }

    /// Fails where something was repaired, reloaded, refused or lost.
    pub async fn undisturbed(&mut self) -> Result<()> {
        self.left().await?;
        let before = self.commands();
        let compared = self.edge.compare().await?;
        let mut after = self.commands();
        after.retain(|kind, count| before.get(kind) != Some(count));
        ensure!(compared == (0, 0), "{compared:?} differences; commands {before:?}, of which are new {after:?}");
        for report in self.edge.driver.iter().flat_map(|driver| &driver.told) {
            use waystation::drive::haproxy::actor::State;
            let fine = match report {
                Report::Model(input) => matches!(input, Input::InForce(_)),
                // At the beginning.
                Report::State(State::Unreachable(_) | State::Filling | State::Serving) => true,
                Report::Leaving(_) | Report::Compared { .. } => true,
                _ => false,
            };
            ensure!(fine, "{report:?}");
        }
        Ok(())
    }

    /// The model and HAProxy are what they would be if what is there now had been there from the start.
    pub async fn as_if_made_anew(&mut self) -> Result<BTreeMap<String, Vec<String>>> {
        self.left().await?;
        let mut fresh = Model::new(self.edge.config.meta.key.clone());
        fresh.apply(Input::RouterConfig(Arc::new(self.edge.config.clone())));
        Kind::ALL.into_iter().for_each(|kind| fresh.apply(Input::Synced(kind)));
        self.objects.iter().filter(|((kind, _), _)| *kind != Kind::Secret).for_each(|(_, o)| fresh.apply(o.clone()));
        settled(&mut fresh, &self.objects, &self.names);
        let (lived, built) = (self.model.wanted().slots(), fresh.wanted().slots());
        let differ: Vec<_> =
            lived.iter().filter(|(slot, value)| built.get(slot) != Some(value)).map(|(slot, _)| slot).collect();
        ensure!(differ.is_empty() && lived.len() == built.len(), "{differ:?}, {} and {}", lived.len(), built.len());
        // What leaves may not have been told of yet.
        soon("the process is what the model says", || async {
            let running = state(&self.edge).await?;
            same("the model and the process", &expected(&fresh), &running)?;
            Ok(running)
        })
        .await
    }
}

/// All that a model decides, with every Secret answered that it asks for, and every name.
pub fn settled(model: &mut Model, objects: &Objects, names: &BTreeMap<Arc<str>, Arc<[IpAddr]>>) -> Vec<Batch> {
    let mut batches = Vec::new();
    loop {
        let mut settled = model.settle();
        batches.extend(Batch::of(model, &mut settled));
        let asked: Vec<Key> = settled.secrets.into_iter().filter(|(_, now)| *now).map(|(key, _)| key).collect();
        let resolve: Vec<Arc<str>> = settled.names.into_iter().filter(|(_, now)| *now).map(|(name, _)| name).collect();
        if asked.is_empty() && resolve.is_empty() {
            return batches;
        }
        for key in asked {
            let there = objects.get(&(Kind::Secret, key.name.clone())).cloned();
            model.apply(there.unwrap_or(Input::Vanished(Kind::Secret, key)));
        }
        for name in resolve {
            let at = names.get(&name).cloned().unwrap_or_else(|| [].into());
            model.apply(Input::Resolved(name, at));
        }
    }
}

/// What HAProxy says that it holds, in words that do not tell when or how it came by it.
pub async fn state(edge: &Edge) -> Result<BTreeMap<String, Vec<String>>> {
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
        // Whether who is asked is well is another matter.
        let well = |line: String| if line.contains("-check ") { line.replace(" 0 1 ", " 2 1 ") } else { line };
        lines = lines.into_iter().map(well).collect();
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
    all.extend(["show backend", "show servers state"].map(|question| (question.to_owned(), Vec::new())));
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
    all.iter_mut().filter(|(question, _)| question.starts_with("show ")).for_each(|(_, lines)| lines.sort());
    all
}

pub fn same(what: &str, a: &BTreeMap<String, Vec<String>>, b: &BTreeMap<String, Vec<String>>) -> Result<()> {
    for (question, lines) in a {
        let other = b.get(question).with_context(|| format!("{what}: {question} is missing"))?;
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
        };
        ensure!(lines == other, "{what}, {question}: only {:?} and {:?}", only(lines, other), only(other, lines));
    }
    Ok(())
}

// === Objects ===

/// Kind and name.
pub fn place(input: &Input) -> (Kind, Arc<str>) {
    match input {
        Input::Ingress(o) => (Kind::Ingress, o.meta.key.name.clone()),
        Input::Service(o) => (Kind::Service, o.meta.key.name.clone()),
        Input::EndpointSlice(o) => (Kind::EndpointSlice, o.key.name.clone()),
        Input::Secret(o) => (Kind::Secret, o.meta.key.name.clone()),
        Input::IngressClass(o) => (Kind::IngressClass, o.name.clone()),
        Input::RouterConfig(o) => (Kind::RouterConfig, o.meta.key.name.clone()),
        other => panic!("{other:?} is nothing that is put"),
    }
}

/// Of an object that was made in that second.
pub fn meta(name: &str, created_s: i64) -> Meta {
    Meta { key: Key::new(NAMESPACE, name), uid: format!("{name}-{created_s}").into(), created_s }
}

/// Options under our prefix, and any others under their whole key.
pub fn annotations<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Annotations {
    let key = |key: &str| if key.contains('/') { key.to_owned() } else { format!("waystation.dev/{key}") };
    let all: BTreeMap<Arc<str>, Arc<str>> =
        pairs.into_iter().map(|(name, value)| (key(name).into(), value.into())).collect();
    all.into_iter().collect()
}

/// An IngressClass of ours, which leads to that RouterConfig; none: to the one that its name belongs to.
pub fn class(name: &str, to: Option<Key>) -> IngressClass {
    IngressClass { name: name.into(), controller: CONTROLLER.into(), parameters: to, default: false }
}

/// A headless Service with the port 80, called `http`.
pub fn service(name: &str) -> Service {
    Service {
        meta: meta(name, 1),
        ports: vec![ServicePort { name: "http".into(), port: 80, tcp: true }],
        cluster_ip: None,
        external_name: None,
        ipv6_first: false,
        annotations: annotations([]),
    }
}

/// Where an endpoint is: the address alone is ready, `!` before it says that it is about to end.
pub fn endpoint(text: &str) -> Endpoint {
    let ending = text.starts_with('!');
    let address = text.trim_start_matches('!').parse().ok();
    Endpoint { address, ready: !ending, serving: true, terminating: ending }
}

/// The slice SERVICE-1 with that port.
pub fn slice(service: &str, port: u16, endpoints: &[&str]) -> EndpointSlice {
    EndpointSlice {
        key: Key::new(NAMESPACE, format!("{service}-1")),
        service: service.into(),
        fqdn: false,
        ports: vec![("http".into(), port)],
        endpoints: endpoints.iter().map(|text| endpoint(text)).collect(),
    }
}

pub fn path(path: &str, kind: PathType, service: &str) -> PathRule {
    PathRule { path: path.into(), kind, backend: BackendRef::Service(service.into(), Port::Number(80)) }
}

/// Everything of a host goes to a Service.
pub fn ingress(name: &str, created_s: i64, host: &str, service: &str) -> Ingress {
    Ingress {
        meta: meta(name, created_s),
        class: Some("waystation".into()),
        class_annotation: None,
        default_backend: None,
        rules: vec![Rule { host: host.into(), paths: vec![path("/", PathType::Prefix, service)] }],
        tls: Vec::new(),
        annotations: annotations([]),
    }
}

pub fn tls(host: &str, secret: Option<&str>) -> Tls {
    Tls { hosts: vec![host.into()], secret: secret.map(Into::into) }
}

pub fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
    let data = data.iter().map(|(key, value)| ((*key).into(), value.as_bytes().into())).collect();
    Secret { meta: meta(name, 1), data }
}

pub fn certificate(name: &str, leaf: &Leaf) -> Secret {
    secret(name, &[("tls.crt", &leaf.certificate), ("tls.key", &leaf.key)])
}
