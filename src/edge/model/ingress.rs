//! The front end for Ingress: whose it is, and what it claims.

use std::sync::Arc;

use super::Model;
use super::state::{Claims, Face, HostIndex};
use super::unit::{Need, Outcome, Reason, Unit};
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::input::{Allowed, BackendRef, Ingress, LabelTest, PathType, Port, Requirement, RouterConfig, Service};
use crate::edge::names;
use crate::edge::options::{Opt, Options, Scope, Value};
use crate::edge::route::{BackendId, Claim, DEFAULT_HOST, PathKind, Rank, RouteKey, Target};
use crate::edge::sets::Sorted;

/// `spec.controller` of IngressClasses that are ours.
pub const CONTROLLER: &str = "waystation.dev/edge";

/// Where tokens lie that prove that a host is ours.
const CHALLENGE: &str = "/.well-known/acme-challenge/";

/// What is collected from one Ingress.
struct Collected {
    claims: Claims,
    routes: Vec<(Arc<RouteKey>, u32, Arc<Claim>)>,
}

impl Model {
    /// Decides what an Ingress claims, and puts it into the indexes. The empty key stands for the RouterConfig's own
    /// default backend.
    pub(super) fn decide_ingress(&mut self, key: &Key) -> Outcome {
        let mut out = Outcome::default();
        let collected = match self.objects.config.clone() {
            Some((config, options)) if key.name.is_empty() => Some(own_claims(&config, &options)),
            Some((config, _)) => match self.objects.ingresses.get(key).cloned() {
                Some((ingress, options)) => {
                    self.is_ours(&config, &ingress, &mut out).then(|| collect(&ingress, &options, &mut out))
                }
                None => None,
            },
            None => None,
        };
        let new = collected.unwrap_or_else(|| Collected { claims: Claims::default(), routes: Vec::new() });
        self.index(key, new);
        out
    }

    /// Whether it is ours: its class, and its namespace.
    fn is_ours(&self, config: &RouterConfig, ingress: &Ingress, out: &mut Outcome) -> bool {
        let named = ingress.class.as_ref().or(ingress.class_annotation.as_ref());
        let by_class = match named {
            Some(name) => {
                out.needs.insert(Need::Class(name.clone()));
                match self.objects.classes.get(name) {
                    Some(class) => self.leads_here(config, class),
                    // The annotation is older than the kind, and many clusters have no object for it.
                    None => *name == config.class_name,
                }
            }
            None => {
                out.needs.insert(Need::Class("".into()));
                self.objects.classes.values().any(|class| class.default && self.leads_here(config, class))
            }
        };
        if !by_class {
            return false;
        }
        let key = &ingress.meta.key;
        if !self.is_allowed(config, &key.namespace, out) {
            let message = format!("RouterConfig {} serves no Ingress of this namespace", config.meta.key);
            out.tell(key, Reason::NamespaceNotAllowed, message);
            return false;
        }
        true
    }

    fn leads_here(&self, config: &RouterConfig, class: &crate::edge::input::IngressClass) -> bool {
        &*class.controller == CONTROLLER
            && match &class.parameters {
                Some(parameters) => *parameters == self.key,
                None => class.name == config.class_name,
            }
    }

    fn is_allowed(&self, config: &RouterConfig, namespace: &Arc<str>, out: &mut Outcome) -> bool {
        match &config.allowed {
            Allowed::All => true,
            Allowed::Same => *namespace == config.meta.key.namespace,
            Allowed::Selector(requirements) => {
                out.needs.insert(Need::Namespace(namespace.clone()));
                let Some(labels) = self.objects.namespaces.get(namespace) else { return false };
                requirements.iter().all(|Requirement { key, test }| {
                    let value = labels.get(&**key);
                    let is_in = |values: &[Arc<str>]| value.is_some_and(|v| values.iter().any(|w| **w == **v));
                    match test {
                        LabelTest::In(values) => is_in(values),
                        LabelTest::NotIn(values) => !is_in(values),
                        LabelTest::Exists => value.is_some(),
                        LabelTest::DoesNotExist => value.is_none(),
                    }
                })
            }
        }
    }

    /// Puts claims in the place of those before, and marks what they touch.
    fn index(&mut self, key: &Key, new: Collected) {
        let old = self.decided.claims.remove(key).unwrap_or_default();
        let hosts: Sorted<Arc<str>> = old.hosts.iter().chain(&new.claims.hosts).cloned().collect();
        let faces: Vec<Option<Face>> =
            hosts.iter().map(|host| self.indexes.hosts.get(host).map(HostIndex::face)).collect();
        // Of a host that is passed through, all goes where its root goes.
        let roots = old.routes.iter().map(|(route, _)| route).chain(new.routes.iter().map(|(route, ..)| route));
        let roots: Sorted<Arc<str>> = roots.filter(|r| &*r.path == "/").map(|r| r.host.clone()).collect();
        let speaks = old.speaks || new.claims.speaks;
        if old.ours != new.claims.ours {
            self.decided.served_touched.entry(key.clone()).or_insert(old.ours);
            if new.claims.ours {
                self.decided.served.insert(key.clone())
            } else {
                self.decided.served.remove(key)
            };
        }
        for (route, index) in &old.routes {
            if let (Some(claims), Some(rank)) = (self.indexes.routes.get_mut(route), &old.rank) {
                claims.remove(rank, *index);
                if claims.is_empty() {
                    self.indexes.routes.remove(route);
                    if let Some(host) = self.indexes.hosts.get_mut(&route.host) {
                        host.routes.remove(route);
                    }
                }
            }
            self.dirty.insert(Unit::Route(route.clone()));
        }
        if let Some(rank) = &old.rank {
            for host in &old.hosts {
                if let Some(index) = self.indexes.hosts.get_mut(host) {
                    index.ingresses.remove(rank);
                }
            }
            for backend in &old.backends {
                if let Some(users) = self.indexes.backends.get_mut(backend) {
                    users.remove(rank);
                    if users.is_empty() {
                        self.indexes.backends.remove(backend);
                    }
                }
            }
        }
        for (route, index, claim) in new.routes {
            let Some(rank) = new.claims.rank.clone() else { continue };
            self.indexes.routes.entry(route.clone()).or_default().insert(rank, index, claim);
            self.indexes.hosts.entry(route.host.clone()).or_default().routes.insert(route.clone());
            self.dirty.insert(Unit::Route(route));
        }
        if let Some(rank) = &new.claims.rank {
            for host in &new.claims.hosts {
                self.indexes.hosts.entry(host.clone()).or_default().ingresses.insert(rank.clone());
            }
            for backend in &new.claims.backends {
                self.indexes.backends.entry(backend.clone()).or_default().insert(rank.clone());
            }
        }
        for (host, before) in hosts.iter().zip(faces) {
            let empty = self.indexes.hosts.get(host).is_some_and(|i| i.ingresses.is_empty() && i.routes.is_empty());
            if empty {
                self.indexes.hosts.remove(host);
            }
            if speaks || roots.contains(host) || before != self.indexes.hosts.get(host).map(HostIndex::face) {
                self.dirty.insert(Unit::Host(host.clone()));
            }
        }
        for backend in old.backends.iter().chain(&new.claims.backends) {
            self.dirty.insert(Unit::Backend(backend.clone()));
        }
        if new.claims.ours {
            self.decided.claims.insert(key.clone(), new.claims);
        }
    }

    /// A Service that is there.
    pub(super) fn service(&self, key: &Key) -> Option<&(Arc<Service>, Arc<Options>)> {
        self.objects.services.get(key)
    }
}

/// What the RouterConfig itself claims: its default backend, behind every other.
fn own_claims(config: &RouterConfig, options: &Arc<Options>) -> Collected {
    let rank = Rank { created_s: i64::MAX, key: Key::new("", "") };
    let mut claims = Claims { ours: false, rank: Some(rank.into()), ..Claims::default() };
    let mut routes = Vec::new();
    if let Some((service, port)) = &config.default_backend {
        let service = Key::new(config.meta.key.namespace.clone(), service.clone());
        let backend = Arc::new(BackendId { service, port: port.clone(), tcp: false });
        let claim = Claim {
            object: Object::new(Kind::RouterConfig, config.meta.key.clone()),
            conditions: Vec::new(),
            targets: vec![Target { backend: backend.clone(), weight: 1 }],
            options: options.clone(),
            canary: false,
            challenge: false,
        };
        let route = Arc::new(RouteKey { host: DEFAULT_HOST.into(), kind: PathKind::Prefix, path: "/".into() });
        claims.backends.insert(backend);
        claims.hosts.insert(route.host.clone());
        claims.routes.push((route.clone(), 0));
        claims.ours = true;
        routes.push((route, 0, Arc::new(claim)));
    }
    Collected { claims, routes }
}

fn collect(ingress: &Ingress, options: &Arc<Options>, out: &mut Outcome) -> Collected {
    let key = &ingress.meta.key;
    let rank = Rank { created_s: ingress.meta.created_s, key: key.clone() };
    let mut all =
        Collected { claims: Claims { ours: true, rank: Some(rank.into()), ..Claims::default() }, routes: Vec::new() };
    tell_options(key, options, out);
    let of_host = |opt: Opt| opt.definition().scope == Scope::Host;
    all.claims.speaks = !ingress.tls.is_empty()
        || options.iter().any(|(opt, _)| of_host(opt))
        || options.bad.iter().any(|bad| of_host(bad.opt));
    let mut index = 0;
    let mut add = |all: &mut Collected,
                   host: &Arc<str>,
                   kind: PathKind,
                   path: Arc<str>,
                   backend: &BackendRef,
                   out: &mut Outcome| {
        index += 1;
        let Some(claim) = claim(key, &path, backend, options, all, out) else { return };
        let route = Arc::new(RouteKey { host: host.clone(), kind, path });
        all.claims.routes.push((route.clone(), index));
        all.claims.hosts.insert(host.clone());
        all.routes.push((route, index, claim));
    };
    for rule in &ingress.rules {
        let host = match names::host(&rule.host) {
            Ok(host) => host,
            Err(why) => {
                out.tell(key, Reason::InvalidHost, why);
                continue;
            }
        };
        for path in &rule.paths {
            match path_of(path.kind, &path.path, options) {
                Ok((kind, text)) => add(&mut all, &host, kind, text, &path.backend, out),
                Err(why) => out.tell(key, Reason::InvalidPath, why),
            }
        }
        if let (true, Some(backend)) = (rule.paths.is_empty(), &ingress.default_backend) {
            add(&mut all, &host, PathKind::Prefix, "/".into(), backend, out);
        }
    }
    if let Some(backend) = &ingress.default_backend {
        add(&mut all, &DEFAULT_HOST.into(), PathKind::Prefix, "/".into(), backend, out);
    }
    if options.get(Opt::SslPassthrough) == Some(&Value::Bool(true)) {
        let of_bytes = |backend: &Arc<BackendId>| Arc::new(BackendId { tcp: true, ..(**backend).clone() });
        let tcp: Vec<Arc<BackendId>> = all.claims.backends.iter().map(of_bytes).collect();
        all.claims.backends.extend(tcp);
    }
    for host in ingress.tls.iter().flat_map(|tls| &tls.hosts) {
        match names::host(host) {
            Ok(host) => {
                all.claims.hosts.insert(host);
            }
            Err(why) => out.tell(key, Reason::InvalidHost, why),
        }
    }
    all
}

fn tell_options(key: &Key, options: &Options, out: &mut Outcome) {
    for bad in &options.bad {
        out.tell(key, Reason::InvalidOption, bad.message.clone());
    }
    for unknown in &options.unknown {
        out.tell(key, Reason::UnknownOption, format!("{unknown} is not an option here: it has no effect"));
    }
    for (opt, other) in &options.differing {
        let message = format!("{other} says another value of {} than a key that counts before it", opt.name());
        out.tell(key, Reason::OptionConflict, message);
    }
}

/// How a path is compared, in the form of keys.
fn path_of(kind: PathType, text: &Arc<str>, options: &Options) -> Result<(PathKind, Arc<str>), String> {
    let special = match (options.get(Opt::PathType), options.get(Opt::RewriteTarget)) {
        (Some(Value::Word(word)), _) => *word,
        // A group that is referred to must be one.
        (_, Some(Value::Text(target))) if target.contains('$') => "regex",
        _ => "prefix",
    };
    let kind = match (kind, special) {
        (PathType::Exact, _) | (PathType::ImplementationSpecific, "exact") => PathKind::Exact,
        (PathType::ImplementationSpecific, "begin") => PathKind::Begin,
        (PathType::ImplementationSpecific, "regex") => PathKind::Regex,
        (PathType::Prefix | PathType::ImplementationSpecific, _) => PathKind::Prefix,
    };
    let path = match kind {
        PathKind::Regex if text.is_empty() => "/".into(),
        PathKind::Regex if !text.starts_with('/') => return Err(format!("path {text:?} does not start with /")),
        PathKind::Regex => names::regex(text)?,
        PathKind::Prefix => {
            let path = names::path(text)?;
            match path.trim_end_matches('/') {
                "" => "/".into(),
                trimmed => trimmed.into(),
            }
        }
        PathKind::Exact | PathKind::Begin => names::path(text)?,
    };
    // By letter up to a slash is by element.
    match path.strip_suffix('/') {
        Some(trimmed) if kind == PathKind::Begin => match trimmed.trim_end_matches('/') {
            "" => Ok((PathKind::Prefix, "/".into())),
            trimmed => Ok((PathKind::Prefix, trimmed.into())),
        },
        _ => Ok((kind, path)),
    }
}

fn claim(
    key: &Key,
    path: &str,
    backend: &BackendRef,
    options: &Arc<Options>,
    all: &mut Collected,
    out: &mut Outcome,
) -> Option<Arc<Claim>> {
    let (service, port) = match backend {
        BackendRef::Service(service, port) => (service, port),
        BackendRef::Resource(name) => {
            out.tell(key, Reason::UnsupportedBackend, format!("path {path}: {name} is no Service"));
            return None;
        }
    };
    let service = Key::new(key.namespace.clone(), service.clone());
    let backend = BackendId { service, port: port.clone(), tcp: false };
    let known = all.claims.backends.iter().find(|known| ***known == backend).cloned();
    let backend = known.unwrap_or_else(|| Arc::new(backend));
    all.claims.backends.insert(backend.clone());
    if let Some(fallback) = fallback(key, options, port) {
        all.claims.backends.insert(fallback.into());
    }
    Some(Arc::new(Claim {
        object: Object::new(Kind::Ingress, key.clone()),
        conditions: Vec::new(),
        targets: vec![Target { backend, weight: 1 }],
        options: options.clone(),
        canary: options.get(Opt::Canary) == Some(&Value::Bool(true)),
        challenge: path.starts_with(CHALLENGE) || path == CHALLENGE.trim_end_matches('/'),
    }))
}

/// The backend of the option `default-backend`.
pub(super) fn fallback(key: &Key, options: &Options, port: &Port) -> Option<BackendId> {
    let Some(Value::Text(text)) = options.get(Opt::DefaultBackend) else { return None };
    let (service, port) = match text.split_once(':') {
        Some((service, port)) => match port.parse() {
            Ok(number) => (service, Port::Number(number)),
            Err(_) => (service, Port::Name(port.into())),
        },
        None => (&**text, port.clone()),
    };
    Some(BackendId { service: Key::new(key.namespace.clone(), service), port, tcp: false })
}

/// Hosts that TLS entries of an Ingress speak of, if they speak of this one.
pub(super) fn covers(hosts: &[Arc<str>], rules: &Sorted<Arc<str>>, host: &str) -> bool {
    if hosts.is_empty() {
        return rules.iter().any(|h| **h == *host);
    }
    hosts.iter().filter_map(|h| names::host(h).ok()).any(|pattern| names::covers(&pattern, host))
}
