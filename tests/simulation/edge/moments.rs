//! What is served at a moment, against what was wanted lately.
//!
//! Of each of a few requests it is known where it was to go at every moment since process and files last were what was
//! wanted. Wherever it goes now must have been wanted at one of these; what had an answer at all of them has one now;
//! and what had the same answer at all of them has that.

use std::collections::{BTreeMap, BTreeSet};

use waystation::edge::render::Layout;
use waystation::edge::wanted::{MapName, Slot, Value, Wanted};
use waystation_kit::haproxy_core::Worker;

const HOSTS: [&str; 6] = ["h.com", "x.h.com", "www.h.com", "p.com", "q.com", "other.org"];
const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/c"];

type Place = (String, u16);

/// Where requests go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// By request: what the map says, and the servers that may be asked.
    routes: Vec<Option<Route>>,
    /// Hosts by SNI that are passed through.
    passed: Vec<Option<Route>>,
    /// Certificates by SNI; none: that of hosts without one.
    certificates: Vec<Option<String>>,
    /// Places that several Services have.
    shared: BTreeMap<Place, BTreeSet<String>>,
    backends: Backends,
}

/// Servers of every backend: those of one that nothing leads to make no difference.
#[derive(Clone, Debug, Default)]
struct Backends(BTreeMap<String, BTreeSet<Place>>);

impl PartialEq for Backends {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Backends {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    value: String,
    servers: BTreeSet<Place>,
}

impl Route {
    fn backend(&self) -> &str {
        self.value.split('|').next().unwrap_or_default()
    }

    fn tenant(&self) -> &str {
        self.backend().split(':').next().unwrap_or_default()
    }
}

/// Something that requests can be looked up in.
trait Holds {
    fn each(&self, map: MapName, take: &mut dyn FnMut(&str, &str));
    /// Backends that requests can be led to, with the servers that take new ones.
    fn backends(&self) -> BTreeMap<String, BTreeSet<Place>>;
    /// Of a host that has one: the certificate and what else is said.
    fn certificate(&self, host: &str) -> Option<String>;
    /// Whether TLS is looked into before anything ends it.
    fn looks(&self) -> bool;
}

impl Holds for Wanted {
    fn each(&self, map: MapName, take: &mut dyn FnMut(&str, &str)) {
        self.map(map).for_each(|(key, value)| take(key, value));
    }

    fn backends(&self) -> BTreeMap<String, BTreeSet<Place>> {
        let mut out: BTreeMap<String, BTreeSet<Place>> = BTreeMap::new();
        for (slot, value) in self.slots() {
            match (slot, value) {
                (Slot::Backend(name), _) => {
                    out.entry(name.to_string()).or_default();
                }
                (Slot::Server(backend, _), Value::Server(server)) if !server.drain => {
                    out.entry(backend.to_string()).or_default().insert((server.address.to_string(), server.port));
                }
                _ => {}
            }
        }
        out
    }

    fn certificate(&self, host: &str) -> Option<String> {
        let Some(Value::CrtLine(line)) = self.get(&Slot::CrtList(host.into())) else { return None };
        let pem = match self.get(&Slot::Certificate(line.certificate.clone())) {
            Some(Value::Sealed(pem)) => pem.to_string(),
            _ => super::objects::fallback(),
        };
        Some(format!("{} {pem}", line.client.is_some()))
    }

    fn looks(&self) -> bool {
        self.get(&Slot::Front).is_some()
    }
}

struct Process<'a>(&'a Worker, &'a Layout);

impl Holds for Process<'_> {
    fn each(&self, map: MapName, take: &mut dyn FnMut(&str, &str)) {
        let map = self.0.maps.get(&self.1.map(map));
        map.into_iter().flat_map(|map| &map.entries).for_each(|(key, value)| take(key, value));
    }

    fn backends(&self) -> BTreeMap<String, BTreeSet<Place>> {
        let published = self.0.backends.iter().filter(|(_, backend)| backend.published && !backend.fixed);
        let of = |backend: &waystation_kit::haproxy_core::Backend| {
            backend.servers.values().filter(|s| s.takes()).map(|s| (s.address.clone(), s.port)).collect()
        };
        published.map(|(name, backend)| (name.clone(), of(backend))).collect()
    }

    fn certificate(&self, host: &str) -> Option<String> {
        let list = self.0.lists.get(&self.1.crt_list())?;
        let line = list.lines.iter().find(|line| line.hosts.iter().any(|h| h == host))?;
        let pem = self.0.certificates.get(&line.certificate)?;
        Some(format!("{} {pem}", line.authority().is_some()))
    }

    fn looks(&self) -> bool {
        let open = |name: &str| self.0.frontends.get(name).copied().flatten() == Some(true);
        open("_sni") && !open("_https")
    }
}

fn entry(held: &impl Holds, map: MapName, wanted: &str) -> Option<String> {
    let mut found = None;
    held.each(map, &mut |key, value| {
        if key == wanted {
            found.get_or_insert_with(|| value.to_owned());
        }
    });
    found
}

fn wild(host: &str) -> String {
    format!("*.{}", host.split_once('.').map_or("", |(_, rest)| rest))
}

/// As the rules of the frontends look up. Patterns are not computed.
fn route(held: &impl Holds, host: &str, path: &str) -> Option<String> {
    let known = [host.to_owned(), wild(host), "*".to_owned()];
    let found = known.into_iter().find_map(|key| Some((entry(held, MapName::Hosts, &key)?, key)));
    let longest = |whole: &str| {
        let mut best: Option<(usize, String)> = None;
        held.each(MapName::Prefix, &mut |key, value| {
            if whole.starts_with(key) && best.as_ref().is_none_or(|(length, _)| key.len() > *length) {
                best = Some((key.len(), value.to_owned()));
            }
        });
        best.map(|(_, value)| value)
    };
    let (flags, key) = found.map_or((String::new(), host.to_owned()), |(flags, key)| (flags, key));
    let exact = flags.contains('e').then(|| entry(held, MapName::Exact, &format!("{key}{path}"))).flatten();
    exact.or_else(|| longest(&format!("{key}{path}/"))).or_else(|| longest("!/"))
}

/// The Service of a backend.
fn service(backend: &str) -> String {
    backend.splitn(3, ':').take(2).collect::<Vec<_>>().join(":")
}

/// Places that serve several Services.
fn shared(backends: &BTreeMap<String, BTreeSet<Place>>) -> BTreeMap<Place, BTreeSet<String>> {
    let mut out: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
    for (name, servers) in backends {
        for place in servers {
            out.entry(place.clone()).or_default().insert(service(name));
        }
    }
    out.retain(|_, services| services.len() > 1);
    out
}

/// Whether a place may serve these Services at once on the way to what was wanted then: each has it there; or, among those
/// of one namespace, goes as a whole, since nothing leads to it, and never was without it.
fn may_share(now: &Answers, then: &Answers, place: &Place, services: &BTreeSet<String>) -> bool {
    let tenants: BTreeSet<&str> = services.iter().filter_map(|service| service.split(':').next()).collect();
    let of = |answers: &Answers, wanted: &str| -> Vec<String> {
        let all =
            answers.backends.0.iter().filter(|(name, servers)| service(name) == wanted && servers.contains(place));
        all.map(|(name, _)| name.clone()).collect()
    };
    services.iter().all(|service| {
        let goes = || of(now, service).iter().all(|name| !then.backends.0.contains_key(name));
        !of(then, service).is_empty() || tenants.len() == 1 && goes()
    })
}

impl Answers {
    fn of(held: &impl Holds) -> Self {
        let backends = held.backends();
        let led = |value: Option<String>| {
            let route = Route { value: value?, servers: BTreeSet::new() };
            let fixed = route.backend().starts_with('_');
            match backends.get(route.backend()) {
                Some(servers) => Some(Route { servers: servers.clone(), ..route }),
                // Rules skip what is not there.
                None => fixed.then_some(route),
            }
        };
        let requests = HOSTS.iter().flat_map(|host| PATHS.iter().map(move |path| (host, path)));
        let routes = requests.map(|(host, path)| led(route(held, host, path))).collect();
        let looks = held.looks();
        let pass = |host: &&str| {
            let of = |key: &str| entry(held, MapName::Passthrough, key);
            looks.then(|| of(host).or_else(|| of(&wild(host)))).flatten()
        };
        let passed = HOSTS.iter().map(|host| led(pass(host))).collect();
        let certificates =
            HOSTS.iter().map(|host| held.certificate(host).or_else(|| held.certificate(&wild(host)))).collect();
        let shared = shared(&backends);
        Self { routes, passed, certificates, shared, backends: Backends(backends) }
    }
}

/// What was wanted lately, and what is there.
#[derive(Default)]
pub struct Window {
    /// Oldest first.
    moments: Vec<Answers>,
    /// Everything up to the last is acknowledged.
    in_force: bool,
    process: Option<Answers>,
    files: Option<Answers>,
    /// Files were changed, and not looked at since.
    pub files_changed: bool,
    /// Writes under way.
    pub writing: usize,
}

impl Window {
    /// That is wanted from now on.
    pub fn want(&mut self, wanted: &Wanted, in_force: bool) {
        let answers = Answers::of(wanted);
        self.in_force = in_force;
        let same_servers = |last: &Answers| last.backends.0 == answers.backends.0;
        if self.moments.last() != Some(&answers) || !self.moments.last().is_some_and(same_servers) {
            self.moments.push(answers);
        }
        self.trim();
    }

    /// Nobody follows any more.
    pub fn unfollowed(&mut self) {
        (self.in_force, self.writing) = (false, 0);
    }

    /// Process and files are what is wanted: what was before is no excuse any more.
    fn trim(&mut self) {
        let Some(last) = self.moments.last() else { return };
        if self.in_force
            && self.writing == 0
            && self.process.as_ref() == Some(last)
            && self.files.as_ref() == Some(last)
        {
            self.moments.drain(..self.moments.len() - 1);
        }
    }

    pub fn process(&mut self, worker: &Worker, layout: &Layout, excused: (bool, bool)) -> Option<String> {
        let answers = Answers::of(&Process(worker, layout));
        if self.process.as_ref() == Some(&answers) {
            return None;
        }
        let wrong = judge(&self.moments, &answers, true, excused);
        self.process = Some(answers);
        self.trim();
        wrong
    }

    pub fn files(&mut self, worker: &Worker, layout: &Layout, (refused, drifted): (bool, bool)) -> Option<String> {
        let mut answers = Answers::of(&Process(worker, layout));
        // A process that was just started takes connections both ways, until it is told.
        if worker.frontends.get("_https").copied().flatten().is_some() {
            answers.passed.iter_mut().for_each(|route| *route = None);
        }
        // Halfway through a write, some files are older than others.
        let wrong = judge(&self.moments, &answers, false, (refused || self.writing > 0, drifted));
        self.files = Some(answers);
        self.trim();
        wrong.map(|wrong| format!("a HAProxy that was started from the files would be wrong: {wrong}"))
    }
}

/// `excused`: something was refused, or is halfway; and somebody has meddled.
fn judge(moments: &[Answers], now: &Answers, runs: bool, excused: (bool, bool)) -> Option<String> {
    if moments.is_empty() {
        return None;
    }
    let lenient = excused.0 || excused.1;
    let excused = (lenient, excused.1);
    let had = |backend: &str, place: &Place| {
        moments.iter().any(|moment| moment.backends.0.get(backend).is_some_and(|servers| servers.contains(place)))
    };
    let lost = |backend: &str| lost(moments, backend);
    let had = Had { place: &had, lost: &lost };
    let names = || HOSTS.iter().flat_map(|host| PATHS.iter().map(move |path| format!("{host}{path}")));
    for (at, name) in names().enumerate() {
        let then = moments.iter().map(|moment| moment.routes[at].as_ref());
        if let Some(wrong) = judge_route(then, now.routes[at].as_ref(), &had, runs, excused) {
            return Some(format!("{name} {wrong}"));
        }
    }
    for (at, name) in HOSTS.iter().enumerate() {
        let then = moments.iter().map(|moment| moment.passed[at].as_ref());
        if let Some(wrong) = judge_route(then, now.passed[at].as_ref(), &had, runs, excused) {
            return Some(format!("{name}, passed through, {wrong}"));
        }
        let known = moments.iter().any(|moment| moment.certificates[at] == now.certificates[at]);
        // What no process has taken yet is in no file, and so in none that was just started.
        let untried = now.certificates[at].is_none();
        if !known && !lenient && !untried {
            return Some(format!("{name} has a certificate that was never wanted: {:?}", now.certificates[at]));
        }
    }
    let foreign = now
        .shared
        .iter()
        .find(|(place, services)| !moments.iter().any(|moment| may_share(now, moment, place, services)));
    foreign.filter(|_| !lenient).map(|(place, services)| format!("{place:?} serves {services:?} at once"))
}

/// What is known of backends beyond the route that is judged.
struct Had<'a> {
    /// Whether a backend was ever to have a server there.
    place: &'a dyn Fn(&str, &Place) -> bool,
    /// Whether a backend was to lose all that it had to others at once.
    lost: &'a dyn Fn(&str) -> bool,
}

/// Whether all places of a backend were other Services' at a later moment, and its own had none of them: none of two that
/// swap can be served on, since a place must leave one before it comes to the other.
fn lost(moments: &[Answers], backend: &str) -> bool {
    let of = service(backend);
    let theirs = |then: &Answers, place: &Place, own: bool| {
        then.backends.0.iter().any(|(name, servers)| (service(name) == of) == own && servers.contains(place))
    };
    moments.iter().enumerate().any(|(at, first)| {
        let places = first.backends.0.get(backend).filter(|places| !places.is_empty());
        places.is_some_and(|places| {
            moments[at..].iter().any(|then| places.iter().all(|p| theirs(then, p, false) && !theirs(then, p, true)))
        })
    })
}

fn judge_route<'a>(
    then: impl Iterator<Item = Option<&'a Route>> + Clone,
    now: Option<&Route>,
    had: &Had<'_>,
    runs: bool,
    (lenient, drifted): (bool, bool),
) -> Option<String> {
    let all = || then.clone();
    if let Some(now) = now.filter(|now| !now.backend().starts_with('_')) {
        // Whose it was is not said where a Service is missing, or where nobody had it.
        let unsaid = all().any(|then| then.is_none_or(|then| then.backend().starts_with('_')));
        if !unsaid && !drifted && !all().flatten().any(|then| then.tenant() == now.tenant()) {
            return Some(format!(
                "leads to {}, which is another tenant's: {:?}",
                now.backend(),
                all().collect::<Vec<_>>()
            ));
        }
        let led = all().flatten().any(|then| then.backend() == now.backend());
        let foreign = now.servers.iter().find(|place| !(had.place)(now.backend(), place));
        if let Some(place) = foreign.filter(|_| led && !lenient) {
            return Some(format!("leads to {place:?} of {}, which was never wanted there", now.backend()));
        }
    }
    if lenient {
        return None;
    }
    let live = |route: Option<&Route>| route.is_some_and(|route| !route.servers.is_empty());
    let lost = now.is_some_and(|now| (had.lost)(now.backend()));
    if runs && all().all(live) && !live(now) && !lost {
        return Some(format!("leads nowhere: {now:?}, wanted {:?}", all().collect::<Vec<_>>()));
    }
    let first = all().next().flatten().map(|route| &route.value);
    let of_service = first.is_some_and(|value| !value.starts_with('_'));
    if of_service && all().all(|then| then.map(|route| &route.value) == first) && now.map(|route| &route.value) != first
    {
        return Some(format!("leads to {now:?}, always wanted {first:?}"));
    }
    None
}
