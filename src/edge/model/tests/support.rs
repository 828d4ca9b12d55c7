//! Objects in few words, and requests looked up in what the model wants the way HAProxy does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::edge::ids::{Key, Kind, Object};
use crate::edge::input::*;
use crate::edge::lookup::{Lookup, lookup};
use crate::edge::model::{Model, Reason, Settled};
use crate::edge::wanted::{Change, MapName, Slot, Value};

pub fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Key::new(namespace, name)
}

pub fn meta(text: &str, created_s: i64) -> Meta {
    Meta { key: key(text), uid: format!("uid-{text}-{created_s}").into(), created_s }
}

pub fn annotations(pairs: &[(&str, &str)]) -> Annotations {
    let mut list: Vec<(Arc<str>, Arc<str>)> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    list.sort();
    list.into()
}

/// `service:port`.
pub fn backend(text: &str) -> BackendRef {
    let (service, port) = text.split_once(':').unwrap();
    BackendRef::Service(service.into(), port.parse().map_or_else(|_| Port::Name(port.into()), Port::Number))
}

pub fn config() -> RouterConfig {
    RouterConfig {
        meta: meta("edge/main", 0),
        class_name: "waystation".into(),
        allowed: Allowed::All,
        any_owner: false,
        default_certificate: None,
        default_backend: None,
        external_name: false,
        listeners: Listeners::default(),
        tuning: Tuning::default(),
        options: annotations(&[]),
    }
}

/// An Ingress of our class, created at `created_s`.
pub struct Ing(pub Ingress);

pub fn ing(name: &str, created_s: i64) -> Ing {
    Ing(Ingress {
        meta: meta(name, created_s),
        class: Some("waystation".into()),
        class_annotation: None,
        default_backend: None,
        rules: Vec::new(),
        tls: Vec::new(),
        annotations: annotations(&[]),
    })
}

impl Ing {
    pub fn path_of(mut self, host: &str, kind: PathType, path: &str, to: &str) -> Self {
        let rule = PathRule { path: path.into(), kind, backend: backend(to) };
        match self.0.rules.last_mut() {
            Some(last) if *last.host == *host && !last.paths.is_empty() => last.paths.push(rule),
            _ => self.0.rules.push(Rule { host: host.into(), paths: vec![rule] }),
        }
        self
    }

    pub fn path(self, host: &str, path: &str, to: &str) -> Self {
        self.path_of(host, PathType::Prefix, path, to)
    }

    pub fn exact(self, host: &str, path: &str, to: &str) -> Self {
        self.path_of(host, PathType::Exact, path, to)
    }

    pub fn specific(self, host: &str, path: &str, to: &str) -> Self {
        self.path_of(host, PathType::ImplementationSpecific, path, to)
    }

    pub fn default(mut self, to: &str) -> Self {
        self.0.default_backend = Some(backend(to));
        self
    }

    pub fn tls(mut self, hosts: &[&str], secret: &str) -> Self {
        let secret = (!secret.is_empty()).then(|| secret.into());
        self.0.tls.push(Tls { hosts: hosts.iter().map(|h| (*h).into()).collect(), secret });
        self
    }

    /// Options with or without a prefix; without one it is ours.
    pub fn say(mut self, pairs: &[(&str, &str)]) -> Self {
        let own = |k: &str| if k.contains('/') { k.to_owned() } else { format!("waystation.dev/{k}") };
        let mut list = self.0.annotations.to_vec();
        list.extend(pairs.iter().map(|(k, v)| (own(k).into(), (*v).into())));
        list.sort();
        self.0.annotations = list.into();
        self
    }

    pub fn class(mut self, class: Option<&str>, annotation: Option<&str>) -> Self {
        (self.0.class, self.0.class_annotation) = (class.map(Into::into), annotation.map(Into::into));
        self
    }
}

pub fn svc(name: &str, ports: &[(&str, u16)]) -> Service {
    Service {
        meta: meta(name, 0),
        ports: ports.iter().map(|(name, port)| ServicePort { name: (*name).into(), port: *port, tcp: true }).collect(),
        cluster_ip: Some("10.96.0.1".parse().unwrap()),
        external_name: None,
        ipv6_first: false,
        annotations: annotations(&[]),
    }
}

pub fn endpoint(text: &str) -> Endpoint {
    let (address, state) = text.split_once('=').unwrap_or((text, "ready"));
    let (ready, serving, terminating) = match state {
        "ready" => (true, true, false),
        "drain" => (false, true, true),
        "published" => (true, true, true),
        "unready" => (false, false, false),
        _ => (false, false, true),
    };
    Endpoint { address: address.parse().ok(), ready, serving, terminating }
}

/// `address` or `address=drain|unready|gone`.
pub fn slice(name: &str, service: &str, ports: &[(&str, u16)], endpoints: &[&str]) -> EndpointSlice {
    EndpointSlice {
        key: key(name),
        service: service.into(),
        fqdn: false,
        ports: ports.iter().map(|(name, port)| ((*name).into(), *port)).collect(),
        endpoints: endpoints.iter().map(|e| endpoint(e)).collect(),
    }
}

const BODY: &str = "MIIBszCCAVmgAwIBAgIUQWJjZGVmZ2hpamtsbW5vcHFyc3QwCgYIKoZIzj0EAwIw";

pub fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
    let data = data.iter().map(|(k, v)| ((*k).into(), v.as_bytes().into())).collect();
    Secret { meta: meta(name, 0), data }
}

pub fn pem(label: &str, mark: &str) -> String {
    format!("-----BEGIN {label}-----\n{BODY}\n{mark:A<8}\n-----END {label}-----\n")
}

pub fn tls_secret(name: &str, mark: &str) -> Secret {
    secret(name, &[("tls.crt", &pem("CERTIFICATE", mark)), ("tls.key", &pem("PRIVATE KEY", mark))])
}

pub fn ca_secret(name: &str, mark: &str) -> Secret {
    secret(name, &[("ca.crt", &pem("CERTIFICATE", mark))])
}

/// A model that has everything synced, and a copy of what it told to change.
pub struct World {
    pub model: Model,
    pub held: BTreeMap<Slot, Value>,
    /// Secrets that are there.
    pub secrets: BTreeMap<Key, Secret>,
    pub last: Settled,
}

impl World {
    pub fn new(config: RouterConfig) -> Self {
        let mut model = Model::new(config.meta.key.clone());
        model.apply(Input::RouterConfig(Arc::new(config)));
        for kind in Kind::ALL {
            model.apply(Input::Synced(kind));
        }
        let mut world = Self { model, held: BTreeMap::new(), secrets: BTreeMap::new(), last: Settled::default() };
        world.settle();
        world
    }

    pub fn plain() -> Self {
        let mut world = Self::new(config());
        for (name, address) in [("a/web", "10.0.0.1"), ("a/api", "10.0.0.2"), ("b/web", "10.0.1.1")] {
            let short = name.split('/').nth(1).unwrap();
            world.model.apply(Input::Service(svc(name, &[("http", 80)]).into()));
            let slice = slice(&format!("{name}-1"), short, &[("http", 8080)], &[address]);
            world.model.apply(Input::EndpointSlice(slice.into()));
        }
        world.settle();
        world
    }

    pub fn ingress(&mut self, ingress: Ing) -> &mut Self {
        self.put(Input::Ingress(ingress.0.into()))
    }

    pub fn secret(&mut self, secret: Secret) -> &mut Self {
        self.secrets.insert(secret.meta.key.clone(), secret.clone());
        self.put(Input::Secret(secret.into()))
    }

    pub fn gone(&mut self, kind: Kind, name: &str) -> &mut Self {
        if kind == Kind::Secret {
            self.secrets.remove(&key(name));
        }
        self.put(Input::Vanished(kind, key(name)))
    }

    pub fn put(&mut self, input: Input) -> &mut Self {
        self.model.apply(input);
        self.settle();
        self
    }

    /// Settles until every Secret that is asked for is answered, carries out the changes, and checks.
    pub fn settle(&mut self) {
        let mut all = self.model.settle();
        let mut asked = all.secrets.clone();
        while !asked.is_empty() {
            for (key, now) in asked {
                match self.secrets.get(&key) {
                    Some(secret) if now => self.model.apply(Input::Secret(secret.clone().into())),
                    None if now => self.model.apply(Input::Vanished(Kind::Secret, key)),
                    _ => {}
                }
            }
            let next = self.model.settle();
            if next.first {
                self.held = self.model.wanted().slots().clone();
            }
            asked = next.secrets.clone();
            all.first |= next.first;
            all.generation = next.generation.max(all.generation);
            all.changes.extend(next.changes);
            all.events.extend(next.events);
            all.published.extend(next.published);
            all.secrets.extend(next.secrets);
            all.reload.extend(next.reload);
        }
        if all.generation == 0 {
            // It waits for an answer of another kind.
            self.last = all;
            return;
        }
        if all.first {
            assert!(all.changes.is_empty());
            self.held = self.model.wanted().slots().clone();
        }
        for Change { slot, before, after } in &all.changes {
            assert_eq!(self.held.get(slot), before.as_ref(), "{slot:?}: what was before");
            match after {
                Some(value) => self.held.insert(slot.clone(), value.clone()),
                None => self.held.remove(slot),
            };
        }
        assert_eq!(&self.held, self.model.wanted().slots(), "changes do not add up");
        self.model.check().unwrap();
        self.last = all;
    }

    pub fn text(&self, map: MapName, key: &str) -> Option<&str> {
        match self.held.get(&Slot::Map(map, key.into())) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// What a request comes to: `backend`, or `backend|flags|rid`.
    pub fn look(&self, host: &str, path: &str) -> String {
        match lookup(self.model.wanted(), host, path) {
            Lookup::Taken { value, .. } => value.to_string(),
            other => other.backend().to_owned(),
        }
    }

    /// The backend alone.
    pub fn to(&self, host: &str, path: &str) -> String {
        self.look(host, path).split('|').next().unwrap().to_owned()
    }

    /// The flags alone.
    pub fn flags(&self, host: &str, path: &str) -> String {
        self.look(host, path).split('|').nth(1).unwrap_or_default().to_owned()
    }

    /// Servers of a backend: name, and `drain`.
    pub fn servers(&self, backend: &str) -> Vec<String> {
        let servers = self.model.wanted().servers(backend);
        servers.map(|(name, s)| if s.drain { format!("{name} drain") } else { name.to_string() }).collect()
    }

    pub fn problems(&self) -> Vec<(String, Reason)> {
        self.model.problems().map(|p| (p.object.key.to_string(), p.reason)).collect()
    }

    pub fn told(&self, name: &str) -> Vec<Reason> {
        let object = Object::new(Kind::Ingress, key(name));
        self.model.problems_of(&object).map(|(reason, _)| reason).collect()
    }

    pub fn events(&self) -> Vec<(String, Reason)> {
        self.last.events.iter().map(|e| (e.object.key.to_string(), e.reason)).collect()
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
