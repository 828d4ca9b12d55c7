//! A storm of changes of every kind, under traffic: no request fails, no WebSocket drops, nothing is reloaded; and in the
//! end model, process and files are what they would be if all that had been there from the start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{IngressClass, Input, PathType};
use waystation::engine::jitter::Jitter;
use waystation_kit::pki::Leaf;
use waystation_kit::process::inside_own_network;

use crate::edge::{Edge, soon};
use crate::site::{self, Site};
use crate::traffic::{Load, Server, Socket};

const CHANGES: usize = 2000;
/// Hosts that stay, whatever else changes about them.
const STEADY: usize = 4;
/// Hosts that come and go.
const OTHERS: usize = 60;
const ENDPOINTS: usize = 8;
const SOCKETS: usize = 100;
/// Classes of others that come, go and lead elsewhere.
const CLASSES: [&str; 2] = ["one", "two"];

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
    ("maxconn-server", "2000"),
];

/// What the RouterConfig may say of all.
const DEFAULTS: &[(&str, &str)] = &[
    ("timeout-connect", "9s"),
    ("hsts", "true"),
    ("balance", "leastconn"),
    ("affinity", "cookie"),
    ("ssl-redirect-code", "302"),
    ("response-set-headers", "X-Of-All: 1"),
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

/// What lives through all of the changes.
struct Storm {
    site: Site,
    leaves: Vec<Leaf>,
    dice: Jitter,
    /// Whether what is made may be out of reach.
    begun: bool,
}

impl Storm {
    fn new() -> Result<Self> {
        let mut edge = Edge::new()?;
        edge.default = edge.authority.server("default", &["t.com"])?;
        let leaves = (0..8).map(|number| edge.authority.server(&format!("leaf {number}"), &["t.com"]));
        let leaves = leaves.collect::<Result<Vec<_>>>()?;
        let mut storm = Self { site: Site::new(edge), leaves, dice: Jitter::seeded(5), begun: false };
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
        for class in CLASSES {
            storm.site.put(Input::IngressClass(site::class(class, Some(storm.config())).into()));
        }
        let authority = storm.site.edge.authority.certificate();
        storm.secret("ca", &[("ca.crt", &authority)]);
        Ok(storm)
    }

    fn config(&self) -> Key {
        self.site.edge.config.meta.key.clone()
    }

    fn roll(&self, below: usize) -> usize {
        usize::try_from(self.dice.next() % below as u64).unwrap()
    }

    fn service(&mut self, name: &str) {
        self.site.put(Input::Service(site::service(name).into()));
    }

    fn endpoints(&mut self, name: &str, numbers: &[usize]) {
        // Addresses of those that stay are nobody else's: where two swap theirs, both are without for a moment.
        let pool = name.strip_prefix('s').map_or(0, |number| number.parse::<usize>().unwrap() + 1);
        let endpoint = |number: &usize| {
            let ending = if *number < ENDPOINTS { "" } else { "!" };
            format!("{ending}10.77.{pool}.{}", number % ENDPOINTS + 1)
        };
        let at: Vec<String> = numbers.iter().map(endpoint).collect();
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        self.site.put(Input::EndpointSlice(site::slice(name, 8080, &at).into()));
    }

    /// Everything of NAME.com goes to the Service of that name, and some of it may go elsewhere.
    fn ingress(&mut self, name: &str, options: &[(&'static str, &'static str)]) {
        let host = format!("{name}.com");
        let mut ingress = site::ingress(name, 1, &host, name);
        for _ in 0..self.roll(3) {
            let kinds = [PathType::Exact, PathType::Prefix, PathType::ImplementationSpecific];
            let (kind, other) = (kinds[self.roll(3)], format!("c{}", self.roll(OTHERS)));
            ingress.rules[0].paths.push(site::path(&format!("/p{}", self.roll(5)), kind, &other));
        }
        let secret = format!("cert{}", self.roll(6));
        if name.starts_with('c') && self.roll(3) == 0 {
            ingress.tls = vec![site::tls(&host, Some(&secret))];
        }
        if self.begun && name.starts_with('c') {
            // Also that of nobody, or of whichever is the default.
            ingress.class = match self.roll(6) {
                0 => None,
                1 | 2 => Some(CLASSES[self.roll(CLASSES.len())].into()),
                _ => ingress.class,
            };
        }
        ingress.annotations = site::annotations(options.iter().copied());
        self.site.put(Input::Ingress(ingress.into()));
    }

    /// A class comes, goes, leads elsewhere, or is the one of those who name none.
    fn class(&mut self) {
        let name = CLASSES[self.roll(CLASSES.len())];
        if self.roll(3) == 0 && self.site.take(Kind::IngressClass, name) {
            return;
        }
        let to = if self.roll(3) == 0 { Key::new("edge", "another") } else { self.config() };
        let class = IngressClass { default: self.roll(2) == 0, ..site::class(name, Some(to)) };
        self.site.put(Input::IngressClass(class.into()));
    }

    /// The RouterConfig says something else, of which nothing needs a reload.
    fn reconfigure(&mut self) {
        let mut config = self.site.edge.config.clone();
        let options = self.some_of(DEFAULTS).into_iter().collect::<BTreeMap<_, _>>();
        config.options = options.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        config.any_owner = self.roll(2) == 0;
        config.default_certificate =
            (self.roll(2) == 0).then(|| Key::new(site::NAMESPACE, format!("cert{}", self.roll(6))));
        self.site.put(Input::RouterConfig(config.into()));
    }

    fn secret(&mut self, name: &str, data: &[(&str, &str)]) {
        self.site.put(Input::Secret(site::secret(name, data).into()));
    }

    fn certificate(&mut self, name: &str, number: usize) {
        let secret = site::certificate(name, &self.leaves[number % self.leaves.len()]);
        self.site.put(Input::Secret(secret.into()));
    }

    fn some_of(&self, all: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        (0..self.roll(4)).map(|_| all[self.roll(all.len())]).collect()
    }

    /// One change of something.
    fn change(&mut self) {
        let other = format!("c{}", self.roll(OTHERS));
        let steady = format!("s{}", self.roll(STEADY));
        match self.roll(12) {
            10 => self.class(),
            11 => self.reconfigure(),
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
                if !self.site.take(Kind::Ingress, &other) {
                    self.ingress(&other, &[]);
                }
            }
            8 => {
                if !self.site.take(Kind::Service, &other) {
                    self.service(&other);
                }
            }
            _ => {
                let (name, leaf) = (format!("cert{}", self.roll(6)), self.roll(8));
                if self.roll(3) > 0 || !self.site.take(Kind::Secret, &name) {
                    self.certificate(&name, leaf);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_every_kind_disturb_nobody_and_leave_nothing_behind() -> Result<()> {
    if !inside_own_network("storm::changes_of_every_kind_disturb_nobody_and_leave_nothing_behind").await? {
        return Ok(());
    }
    // At every address.
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut storm = Storm::new()?;
    storm.site.begin().await?;
    let (http, https) = (storm.site.edge.haproxy.http(), storm.site.edge.haproxy.https());
    let began = storm.site.edge.haproxy.info().await?.pid;

    let mut sockets = Vec::new();
    for number in 0..SOCKETS {
        let host = match number % 2 {
            0 => format!("s{}.com", number % STEADY),
            _ => format!("c{}.com", number % OTHERS),
        };
        sockets.push(Socket::open(http, &host).await?);
    }
    let rest = Duration::from_millis(1);
    let loads = [
        Load::paced(http, "s0.com", 200, rest),
        Load::paced(http, "s1.com", 1, rest),
        Load::paced(http, "s2.com", 5, rest),
        Load::paced(http, "s3.com", 50, rest),
        Load::paced(http, "s0.com", 1000, rest),
        Load::paced(http, "s1.com", 1000, rest),
        Load::paced(http, "s2.com", 1000, rest),
        Load::paced(http, "s3.com", 2, rest),
        // A host without routes: what counts is that it is answered.
        Load::by_tls(
            https,
            storm.site.edge.authority.certificate(),
            "t.com",
            |status, _| {
                ensure!(status == 404, "{status}");
                Ok(())
            },
            Duration::from_millis(10),
        ),
    ];

    storm.begun = true;
    let mut done = 0;
    let start = Instant::now();
    while done < CHANGES && !loads.iter().any(Load::failed) {
        // Several of them may come at once.
        for _ in 0..1 + storm.roll(3) {
            storm.change();
            done += 1;
        }
        storm.site.settle();
        tokio::time::sleep(Duration::from_millis(2)).await;
        if storm.roll(10) == 0 {
            storm.site.edge.in_force().await?;
        }
    }
    storm.site.edge.in_force().await?;

    let (took, mut requests) = (start.elapsed(), 0);
    for load in loads {
        let ended = load.end().await;
        requests += ended.with_context(|| format!("after {done} changes, the last of them {:#?}", storm.site.last))?;
    }
    let mut messages = 0;
    for socket in sockets {
        messages += socket.end().await?;
    }
    let rate = requests as f64 / took.as_secs_f64();
    println!(
        "{done} changes, {requests} requests ({rate:.0}/s), {messages} messages of {SOCKETS} WebSockets in {took:.1?}"
    );
    ensure!(requests > 1000 && messages > 10 * SOCKETS, "{requests} requests, {messages} messages");
    ensure!(storm.site.edge.haproxy.info().await?.pid == began, "another process");

    storm.site.undisturbed().await?;
    let running = storm.site.as_if_made_anew().await?;
    storm.site.edge.finish().await?;
    storm.site.edge.haproxy.stop().await?;
    storm.site.edge.haproxy.start().await?;
    let restarted = site::state(&storm.site.edge).await?;
    site::same("the process and one that was started from the files", &running, &restarted)?;
    soon("it serves", || async {
        ensure!(crate::traffic::get(http, "s0.com", "/").await?.0 == 200);
        Ok(())
    })
    .await?;
    Ok(())
}
