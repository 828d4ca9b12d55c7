//! Everything around the agents, in one place: API server, machines, faults, and what is remembered for judging.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use waystation::cluster::edge::presence::lease_name;
use waystation::edge::ids::Key;

use super::lies::Lie;
use super::machine::Machine;
use super::objects::CONFIG;
use crate::api::service::Target;
use crate::api::store::{Id, Plural};
use crate::api::{Deed, Surroundings};
use crate::stage::Stage;

/// Shared by everything in one run. Never held over an await.
pub type Shared = Arc<Mutex<World>>;

/// How bad it is: rates in a thousand, times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests to the API server that fail in some way.
    pub api: u64,
    /// Commands whose connection breaks, before or after the deed, or that are never answered; connections that fail.
    pub haproxy: u64,
    /// Writes of files that fail halfway.
    pub disk: u64,
    /// Longest delay of a watch event.
    pub watch_ms: u64,
    /// Longest way of a request or command, one way.
    pub latency_ms: u64,
}

/// Where Leases are.
pub const LEASES: &str = "waystation-edge";

/// What happens when a count has run down.
pub enum Alarm {
    Crash(usize),
    Kill(usize),
}

/// See the module.
pub struct World {
    pub stage: Stage<Lie>,
    pub machines: Vec<Machine>,
    pub faults: Faults,
    /// Statuses that agents wrote, by what they are of.
    pub writes: BTreeMap<Plural, u64>,
    /// After so many further changes something happens.
    pub alarms: Vec<(u64, Alarm)>,
    /// Agents that are to be killed now.
    pub to_crash: Vec<usize>,
    /// Something has changed that needs a reload.
    pub may_reload: bool,
}

impl World {
    pub fn new(seed: u64, lie: Option<Lie>, keep_trace: bool) -> Self {
        Self {
            stage: Stage::new(seed, false, lie, keep_trace),
            machines: Vec::new(),
            faults: Faults::default(),
            writes: BTreeMap::new(),
            alarms: Vec::new(),
            to_crash: Vec::new(),
            may_reload: false,
        }
    }

    /// Something was changed.
    pub fn acted(&mut self) {
        self.last_act = Instant::now();
        self.alarms.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        let (due, later) = std::mem::take(&mut self.alarms).into_iter().partition(|(left, _)| *left == 0);
        self.alarms = later;
        for (_, alarm) in due {
            match alarm {
                Alarm::Crash(agent) => self.to_crash.push(agent),
                Alarm::Kill(machine) => self.machines[machine].kill(),
            }
            self.crash.notify_one();
        }
    }

    pub fn lease(&self) -> Id {
        let name = lease_name(&Key::new(CONFIG.0, CONFIG.1));
        Id::new(Plural::Leases, LEASES, &name)
    }

    /// Who leads, as the API server has it.
    pub fn leader(&self) -> String {
        let lease = self.api.get(&self.lease());
        lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned()
    }

    /// Statuses that were written so far.
    pub fn statuses(&self) -> u64 {
        self.writes.values().sum()
    }
}

impl Deref for World {
    type Target = Stage<Lie>;

    fn deref(&self) -> &Self::Target {
        &self.stage
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.stage
    }
}

impl Surroundings for World {
    type Lie = Lie;

    fn failing(&self) -> u64 {
        self.faults.api
    }

    fn api_latency(&mut self) -> Duration {
        let longest = self.faults.latency_ms;
        self.some_ms(longest)
    }

    fn watch_delay(&mut self) -> Duration {
        let longest = self.faults.watch_ms;
        self.some_ms(longest)
    }

    /// Whoever leads tells; every agent has a Lease of its own.
    fn note_sender(&mut self, identity: &str, target: Option<&Target>) {
        if target.is_none_or(|target| target.plural == Plural::Leases) {
            return;
        }
        let holder = self.leader();
        if holder != identity {
            self.violated(format!("{identity} sends while the Lease is held by {holder:?}"));
        }
    }

    fn wrote(&mut self, target: Option<&Target>, _: &Value, ok: bool, _: bool) {
        let Some(target) = target.filter(|target| target.plural != Plural::Leases) else { return };
        *self.writes.entry(target.plural).or_default() += 1;
        if ok {
            self.acted();
        }
    }

    fn told(&mut self, body: &Value) {
        let reason = body["reason"].as_str().unwrap_or_default().to_owned();
        self.saw(&format!("event {reason}"));
    }

    fn omits(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::Compare => self.lies(Lie::BlindLease),
            Deed::Status(Plural::Ingresses) => self.lies_once(Lie::DroppedStatus),
            Deed::Tell(Plural::EndpointSlices) => self.lies(Lie::LostSlice),
            _ => false,
        }
    }
}
