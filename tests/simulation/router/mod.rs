//! Routers in memory behind the drive's own seam: management as the kit has it, connections to the brokers of this
//! world, and everything that can go wrong.
//!
//! A router keeps nothing over a restart. What it does by itself (dial, attach, try again) is made up whenever
//! somebody looks: [`Router::live`].

pub mod hands;
pub mod link;
mod live;
pub mod remote;
pub mod things;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_amqp::Value as Amqp;
use tokio::time::Instant;
use waystation_kit::router_core::{Answer, Core, Flavour, Request};

use crate::people::CONFIGS;
use link::Session;
use live::{Connection, Link};
use things::Thing;

/// Before the names of a router's types.
const PREFIX: &str = "org.apache.qpid.dispatch";
/// The words of a refusal.
const NOT_TODAY: &str = "Not today";

/// A router and its connections.
pub struct Router {
    pub core: Core,
    pub up: bool,
    /// Answers nothing before this.
    pub hangs_until: Instant,
    /// Every answer takes so much longer, up to this moment.
    slow: (Duration, Instant),
    /// Passwords that it takes; none: anything.
    pub passwords: BTreeSet<String>,
    /// Patterns that it refuses.
    refused: BTreeSet<String>,
    /// Names of what somebody else has put in the way.
    squatted: BTreeSet<String>,
    sessions: BTreeMap<u64, Session>,
    connections: BTreeMap<String, Connection>,
    links: BTreeMap<u64, Link>,
    /// Why each connector failed last: it says so until it is open.
    failures: BTreeMap<String, String>,
    attempts: u64,
    /// Somebody has connected since it was started.
    was_connected: bool,
    /// It enforces policies.
    enforces: bool,
    /// Remote hosts that could use everything on it.
    pub exposed: BTreeSet<String>,
    /// When it was said to be filled, for each RouterConfig.
    filled: BTreeMap<usize, u64>,
}

impl Router {
    pub fn new(name: &str, passwords: BTreeSet<String>) -> Self {
        let mut core = Core::new(name, Flavour::Qdrouterd);
        core.record_events();
        let now = Instant::now();
        Self {
            core,
            up: true,
            hangs_until: now,
            slow: (Duration::ZERO, now),
            passwords,
            refused: BTreeSet::new(),
            squatted: BTreeSet::new(),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            links: BTreeMap::new(),
            failures: BTreeMap::new(),
            attempts: 0,
            was_connected: false,
            enforces: false,
            exposed: BTreeSet::new(),
            filled: BTreeMap::new(),
        }
    }

    /// From now on it enforces policies: its own configuration says so.
    pub fn enforce_policies(&mut self) {
        self.core.file_entity("policy", "policy/None", &[("enableVhostPolicy", true.into())]);
        self.enforces = true;
    }

    /// Ends every session.
    pub fn lose_all(&mut self, reason: &str) {
        for session in self.sessions.values_mut() {
            session.lose(reason);
        }
    }

    /// Stops, and forgets everything.
    pub fn stop(&mut self) {
        (self.up, self.was_connected) = (false, false);
        self.core.restart();
        self.connections.clear();
        self.links.clear();
        self.failures.clear();
        self.squatted.clear();
        self.filled.clear();
        self.lose_all("the router went down");
    }

    pub fn start(&mut self) {
        self.up = true;
        self.hangs_until = Instant::now();
    }

    /// Answers as quickly as it can again.
    pub fn hasten(&mut self) {
        self.slow = (Duration::ZERO, Instant::now());
        self.hangs_until = Instant::now();
    }

    /// Whether the connection of a connector is open.
    pub fn is_open(&self, connector: &str) -> bool {
        matches!(self.connections.get(connector), Some(Connection::Open(_)))
    }

    /// Whether it brings messages of an address to a broker.
    pub fn leads_into(&self, address: &str, broker: &str) -> bool {
        (0..CONFIGS.len()).any(|config| {
            self.things(config).iter().any(|thing| match thing {
                Thing::Link { address: its, out, broker: to } => *out && its == address && to == broker,
                Thing::Route { pattern, out, broker: to } => !*out && pattern == address && to == broker,
                _ => false,
            })
        })
    }

    fn delay(&self) -> Duration {
        let (by, until) = self.slow;
        if until > Instant::now() { by } else { Duration::ZERO }
    }

    /// Refuses nothing any more, and has nothing of others in the way; whether there was anything.
    pub fn make_up(&mut self) -> bool {
        let (refused, squatted) = (std::mem::take(&mut self.refused), std::mem::take(&mut self.squatted));
        for part in &refused {
            self.core.relent(part);
        }
        for name in &squatted {
            self.by_hand(&Request::delete(&kind("router.config.address"), name));
        }
        !(refused.is_empty() && squatted.is_empty())
    }

    /// Asks it by hand.
    fn by_hand(&mut self, request: &Request) -> Option<Answer> {
        let answer = self.core.call(request);
        self.follow();
        answer
    }
}

/// A type's whole name.
fn kind(of: &str) -> String {
    format!("{PREFIX}.{of}")
}

/// The rows of a QUERY's answer.
fn rows(answer: Option<Answer>) -> Vec<Vec<Amqp>> {
    let Some(Answer { body: Amqp::Map(map), .. }) = answer else { return Vec::new() };
    let Some(Amqp::List(rows)) = map.get(&Amqp::from("results")) else { return Vec::new() };
    rows.iter().filter_map(|row| if let Amqp::List(row) = row { Some(row.clone()) } else { None }).collect()
}

fn words(value: &Amqp) -> &str {
    match value {
        Amqp::String(text) => text,
        _ => "",
    }
}

/// Where a router is.
pub fn router_host(index: usize) -> String {
    format!("10.0.0.{}", index + 1)
}

/// The name that a RouterConfig has for a router.
pub fn router_name(index: usize) -> String {
    format!("r{index}")
}
