//! The model itself: one value that owns everything known of one installation's messaging.
//!
//! [`Model::apply`] takes one event in and marks what it touches; [`Model::settle`] decides all that is marked and says
//! what is to be done. Nothing on the way of one event walks all objects.

mod address;
mod apply;
pub mod check;
mod claims;
mod compare;
mod config;
mod deletion;
mod draining;
mod expose;
mod fill;
mod forwarding;
mod line;
mod marks;
mod moving;
mod place;
mod placing;
mod quota;
mod references;
mod remote_names;
mod remotes;
mod routers;
mod routes;
mod services;
mod show;
mod slots;
mod space;
mod state;
mod target;
#[cfg(test)]
mod tests;
mod told;
mod twins;
mod verdict;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::maps::Map;

use super::endpoints::Endpoints;
use super::ids::{Key, Kind, Now, Plane, Slot, TargetId};
use super::input::Source;
use super::output::{Event, Settled};
use super::reason;
use super::router::{Distribution, Entry};
use state::{AddressState, ConfigState, Members, SpaceState};

/// Waiting times, milliseconds.
#[derive(Clone, Debug)]
pub struct Timing {
    /// An address that is not Ready by then says `Configuring`; a missing reference is told.
    pub configuring_ms: u64,
    /// An address that was never Ready names an outage; a target that still connects is shown as it is.
    pub outage_ms: u64,
    /// A target that is down is shown so.
    pub down_ms: u64,
    /// Counts of a space are written at most this often.
    pub counts_ms: u64,
    /// And so long after they began to move: an Address that comes becomes Ready meanwhile and is counted once.
    pub counts_wait_ms: u64,
    /// What is told of connectors moves at most this often.
    pub rows_ms: u64,
    /// A connector whose Secret goes missing keeps the connection so long: one that is replaced by deleting and creating
    /// it cuts nobody.
    pub secret_ms: u64,
    /// What a broker holds is compared this often (plus up to a tenth).
    pub resync_ms: u64,
    /// First wait before a refused job is tried again; doubles to `retry_cap_ms`.
    pub retry_ms: u64,
    /// Longest wait of a refused job.
    pub retry_cap_ms: u64,
    /// First wait before a draining queue is asked again; doubles to `drain_cap_ms` while nothing moves in it.
    pub drain_ms: u64,
    /// Longest wait of a draining queue, but for its turn.
    pub drain_cap_ms: u64,
    /// One turn: a broker is asked for its draining queues at most this often, and the same again for those that are
    /// being emptied and for new ones.
    pub drain_turn_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            configuring_ms: 1_000,
            outage_ms: 5_000,
            down_ms: 1_000,
            counts_ms: 2_000,
            counts_wait_ms: 1_000,
            rows_ms: 10_000,
            secret_ms: 30_000,
            resync_ms: 600_000,
            retry_ms: 30_000,
            retry_cap_ms: 600_000,
            drain_ms: 500,
            drain_cap_ms: 15_000,
            drain_turn_ms: 25,
        }
    }
}

/// What a timer wakes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Config(Key),
    Space(Key),
    Address(Key),
    /// Sends a slot again.
    Slot(TargetId, Slot),
}

/// What is known of a Secret.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Current revision; none: missing.
    now: Option<u64>,
    /// The last one seen.
    last: Option<u64>,
    /// Since when it is missing.
    missing_ms: u64,
}

/// See the module.
pub struct Model {
    timing: Timing,
    now: Now,
    leading: bool,
    synced: BTreeSet<Source>,
    configs: BTreeMap<Key, ConfigState>,
    foreign_configs: BTreeSet<Key>,
    spaces: Map<Key, SpaceState>,
    members: Map<Key, Members>,
    addresses: Map<Key, AddressState>,
    spaces_of_config: Map<Key, BTreeSet<Key>>,
    spaces_of_namespace: Map<Arc<str>, BTreeSet<Key>>,
    /// RouterConfigs by what they mark as theirs.
    configs_of_owner: Map<Arc<str>, BTreeSet<Key>>,
    /// Brokers by owner and the id that they told.
    nodes: Map<(Arc<str>, Arc<str>), BTreeSet<TargetId>>,
    /// Brokers that are refused, by the one that they are the same as.
    twins: BTreeMap<TargetId, BTreeSet<TargetId>>,
    configs_of_secret: Map<Key, BTreeSet<Key>>,
    spaces_of_secret: Map<Key, BTreeSet<Key>>,
    configs_of_service: Map<Key, BTreeSet<Key>>,
    /// What the EndpointSlices of Services say that RouterConfigs name.
    endpoints: Map<Key, Endpoints>,
    labels: Map<Arc<str>, Arc<BTreeMap<String, String>>>,
    /// Namespaces that are being deleted.
    going: BTreeSet<Arc<str>>,
    secrets: Map<Key, Known>,
    undecodable: BTreeSet<(Kind, Key)>,
    undecodable_in: Map<Arc<str>, usize>,
    dirty_configs: BTreeSet<Key>,
    dirty_spaces: BTreeSet<Key>,
    dirty_addresses: BTreeSet<Key>,
    /// Addresses, by space, that several claim and another may have now.
    dirty_claims: BTreeSet<(Key, Arc<str>)>,
    /// Spaces and RouterConfigs whose status may have changed.
    stale_spaces: BTreeSet<Key>,
    stale_configs: BTreeSet<Key>,
    to_compare: BTreeSet<TargetId>,
    /// Addresses that may be placed now, by RouterConfig and creation.
    to_place: BTreeSet<(Key, i64, Key)>,
    /// Spaces that may have room for who waits for it.
    to_admit: BTreeSet<Key>,
    timers: BTreeSet<(u64, Timer)>,
    seq: u64,
    generation: u64,
    incarnation: u64,
    acks: u64,
    /// What routers hold for every anycast and every multicast address: the same.
    plain: [Arc<Entry>; 2],
    out: Settled,
}

impl Model {
    /// An empty model that waits for its sources.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            now: Now::default(),
            leading: false,
            synced: BTreeSet::new(),
            configs: BTreeMap::new(),
            foreign_configs: BTreeSet::new(),
            spaces: Map::default(),
            members: Map::default(),
            addresses: Map::default(),
            spaces_of_config: Map::default(),
            spaces_of_namespace: Map::default(),
            configs_of_owner: Map::default(),
            nodes: Map::default(),
            twins: BTreeMap::new(),
            configs_of_secret: Map::default(),
            spaces_of_secret: Map::default(),
            configs_of_service: Map::default(),
            endpoints: Map::default(),
            labels: Map::default(),
            going: BTreeSet::new(),
            secrets: Map::default(),
            undecodable: BTreeSet::new(),
            undecodable_in: Map::default(),
            dirty_configs: BTreeSet::new(),
            dirty_spaces: BTreeSet::new(),
            dirty_addresses: BTreeSet::new(),
            dirty_claims: BTreeSet::new(),
            stale_spaces: BTreeSet::new(),
            stale_configs: BTreeSet::new(),
            to_compare: BTreeSet::new(),
            to_place: BTreeSet::new(),
            to_admit: BTreeSet::new(),
            timers: BTreeSet::new(),
            seq: 0,
            generation: 0,
            incarnation: 0,
            acks: 0,
            plain: [Distribution::Balanced, Distribution::Multicast]
                .map(|distribution| Arc::new(Entry::Address { distribution, waypoint: false, links: [].into() })),
            out: Settled::default(),
        }
    }

    /// Whether every source has been read and this process leads: only then is anything driven, pruned or judged.
    fn active(&self) -> bool {
        const SOURCES: usize = 4;
        self.leading && self.synced.len() == SOURCES
    }

    /// Decides all that is marked. Costs what is marked.
    pub fn settle(&mut self, now: Now) -> Settled {
        self.now = now;
        if !self.active() {
            // What was said while leading (stops at the loss of the lease) still goes out.
            return std::mem::take(&mut self.out);
        }
        while let Some((due, _)) = self.timers.first() {
            if *due > now.mono_ms {
                break;
            }
            if let Some((_, timer)) = self.timers.pop_first() {
                self.fire(timer);
            }
        }
        // Configs before spaces before addresses: each reads what the one before decided. Addresses may mark others
        // of their space; a comparison may mark addresses.
        loop {
            if let Some(key) = self.dirty_configs.pop_first() {
                self.evaluate_config(&key);
            } else if let Some(key) = self.dirty_spaces.pop_first() {
                self.evaluate_space(&key);
            } else if let Some(key) = self.dirty_addresses.pop_first() {
                self.evaluate_address(&key);
            } else if let Some((space, canonical)) = self.dirty_claims.pop_first() {
                self.settle_claim(&space, &canonical);
            } else if let Some((config, created, key)) = self.to_place.pop_first() {
                self.place_address(&config, created, key);
            } else if let Some(target) = self.to_compare.pop_first() {
                match target.plane {
                    Plane::Broker => self.compare(&target),
                    Plane::Router => self.compare_router(&target),
                }
            } else if let Some(space) = self.to_admit.pop_first() {
                // Last, when all that is charged already has been counted.
                self.admit_waiting(&space);
            } else {
                break;
            }
        }
        while let Some(key) = self.stale_spaces.pop_first() {
            self.expose(&key);
            self.verdict_space(&key);
        }
        while let Some(key) = self.stale_configs.pop_first() {
            self.verdict_config(&key);
        }
        self.out.wake_ms = self.timers.first().map(|(due, _)| *due);
        std::mem::take(&mut self.out)
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Config(key) => {
                if let Some(config) = self.configs.get_mut(&key) {
                    (config.timer_ms, config.told.refused) = (None, None);
                }
                self.dirty_configs.insert(key.clone());
                self.stale_configs.insert(key);
            }
            Timer::Space(key) => {
                if let Some(space) = self.spaces.get_mut(&key) {
                    (space.timer_ms, space.told.refused) = (None, None);
                }
                self.dirty_spaces.insert(key.clone());
                self.stale_spaces.insert(key);
            }
            Timer::Address(key) => {
                if let Some(address) = self.addresses.get_mut(&key) {
                    (address.timer_ms, address.told.refused) = (None, None);
                }
                self.dirty_addresses.insert(key);
            }
            Timer::Slot(target, slot) => match target.plane {
                Plane::Broker => self.retry_slot(&target, &slot),
                Plane::Router => self.retry_route(&target, &slot),
            },
        }
    }

    /// Wakes the object at `due_ms`, unless it is woken earlier anyway.
    fn wake_at(&mut self, due_ms: u64, timer: Timer) {
        let slot = match &timer {
            Timer::Config(key) => self.configs.get_mut(key).map(|c| &mut c.timer_ms),
            Timer::Space(key) => self.spaces.get_mut(key).map(|s| &mut s.timer_ms),
            Timer::Address(key) => self.addresses.get_mut(key).map(|a| &mut a.timer_ms),
            Timer::Slot(..) => {
                self.timers.insert((due_ms, timer));
                return;
            }
        };
        let Some(slot) = slot else { return };
        match *slot {
            Some(earlier) if earlier <= due_ms => return,
            Some(later) => {
                *slot = Some(due_ms);
                self.timers.remove(&(later, timer.clone()));
            }
            None => *slot = Some(due_ms),
        }
        self.timers.insert((due_ms, timer));
    }

    fn event(&mut self, kind: Kind, key: &Key, uid: &Arc<str>, warning: bool, reason: &'static str, message: String) {
        debug_assert!(reason::event::ALL.contains(&reason), "{reason} is no Event of docs/api.md");
        self.out.events.push(Event { kind, key: key.clone(), uid: uid.clone(), warning, reason, message });
    }

    /// Objects known, for metrics: RouterConfigs, AddressSpaces, Addresses.
    pub fn sizes(&self) -> [usize; 3] {
        [self.configs.len(), self.spaces.len(), self.addresses.len()]
    }
}
