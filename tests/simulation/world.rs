//! Everything around the operator, in one place: API server, brokers, routers, faults, and what is remembered for judging.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

pub use crate::api::lock;
use crate::api::service::Target;
use crate::api::store::{Id, Plural, deleting, uid};
use crate::broker::Broker;
use crate::lies::Lie;
use crate::remotes::Remotes;
use crate::router::Router;
use crate::router::things::{Settled, Thing};
use crate::stage::Stage;
use crate::terms::Terms;

/// Shared by everything in one run. Never held over an await.
pub type Shared = Arc<Mutex<World>>;

/// How bad it is: rates in a thousand, times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests to the API server that fail in some way.
    pub api: u64,
    /// Commands whose connection breaks (a quarter of it), connections that fail.
    pub broker: u64,
    /// The same for routers; answers that never come.
    pub router: u64,
    /// Longest delay of a watch event.
    pub watch_ms: u64,
    /// Longest way of a request or command, one way.
    pub latency_ms: u64,
}

/// The Lease of all replicas.
pub const LEASE: (&str, &str) = ("waystation-system", "waystation");

/// The space that belongs to the second RouterConfig.
pub const OTHER_SPACE: (&str, &str) = ("blue", "two");

/// The space that is of type brokered also where there are routers, in some installations.
pub const MIXED_SPACE: (&str, &str) = ("red", "two");

/// A write of an operator to one of our kinds.
#[derive(Clone, Debug)]
pub struct Written {
    pub at_us: u64,
    pub id: Id,
    pub uid: String,
    /// The status; none for a finalizer.
    pub status: Option<Value>,
}

/// An Address that was seen to be deleted.
#[derive(Clone, Debug)]
struct Tomb {
    slot: String,
    space: (String, String),
    uid: String,
    kind: String,
    topic: Option<String>,
    deleted_at: u64,
    when_empty: bool,
}

/// See the module.
pub struct World {
    pub stage: Stage<Lie>,
    pub brokers: BTreeMap<String, Broker>,
    pub routers: BTreeMap<String, Router>,
    pub faults: Faults,
    pub writes: Vec<Written>,
    /// Commands that changed a broker.
    pub commands: u64,
    /// Commands that changed a router.
    pub router_commands: u64,
    /// Events for people.
    pub events: u64,
    pub sessions: u64,
    /// After so many further changes a replica crashes.
    pub crash_in: Option<u64>,
    /// `prune-orphans` was asked for.
    pub pruned: bool,
    pub forced: BTreeSet<String>,
    /// Tenancy of the first RouterConfig: one space, no prefix.
    pub single: bool,
    /// One space is of type brokered though there are routers.
    pub mixed: bool,
    /// The terms of the first RouterConfig, where there are plans.
    pub terms: Option<Terms>,
    /// What spaces have may be more than their plans give.
    pub terms_moved: bool,
    /// The routers of the first RouterConfig are the endpoints of a Service.
    pub followed: bool,
    tombs: Vec<Tomb>,
    /// Version and time at which an object was made.
    pub births: BTreeMap<String, (u64, u64)>,
    /// No request to the API server fails and no operator was ever replaced: every write can be accounted for.
    pub accountable: bool,
    /// Prefixes of spaces in which anything but creation happened.
    pub disturbed: BTreeSet<String>,
    /// A broker could not be reached at some time: what was let go of then may be left over.
    pub outages: bool,
    /// Hosts and the queues that operators have made there and not taken away, whatever became of them.
    pub held: BTreeSet<(String, String)>,
    /// Broker-side names whose leftovers nobody has to take away: their Address was not seen to go.
    pub excused: BTreeSet<String>,
    /// Nothing was ever done to routers by hand.
    pub calm_routers: bool,
    /// What operators have made on any router, whatever became of it.
    pub made: BTreeSet<Thing>,
    pub remotes: Remotes,
    /// When an operator was started last.
    pub started_us: u64,
    /// What was Ready in standard spaces when everything was compared last, by uid.
    pub settled: BTreeMap<String, Settled>,
}

impl World {
    pub fn new(seed: u64, policy: bool, lie: Option<Lie>, keep_trace: bool) -> Self {
        Self {
            stage: Stage::new(seed, policy, lie, keep_trace),
            brokers: BTreeMap::new(),
            routers: BTreeMap::new(),
            faults: Faults::default(),
            writes: Vec::new(),
            commands: 0,
            router_commands: 0,
            events: 0,
            sessions: 0,
            crash_in: None,
            pruned: false,
            forced: BTreeSet::new(),
            single: false,
            mixed: false,
            terms: None,
            terms_moved: false,
            followed: false,
            tombs: Vec::new(),
            births: BTreeMap::new(),
            accountable: true,
            disturbed: BTreeSet::new(),
            outages: false,
            held: BTreeSet::new(),
            excused: BTreeSet::new(),
            calm_routers: true,
            made: BTreeSet::new(),
            remotes: Remotes::default(),
            started_us: 0,
            settled: BTreeMap::new(),
        }
    }

    // === Faults ===

    pub fn api_latency(&mut self) -> Duration {
        let longest = self.faults.latency_ms;
        self.some_ms(longest)
    }

    pub fn broker_latency(&mut self) -> Duration {
        let longest = self.faults.latency_ms;
        self.some_ms(longest)
    }

    pub fn watch_delay(&mut self) -> Duration {
        let longest = self.faults.watch_ms;
        self.some_ms(longest)
    }

    // === What operators do ===

    /// Somebody sends something that only the leader may.
    pub fn note_sender(&mut self, identity: &str, target: Option<&Target>) {
        if target.is_some_and(|target| target.plural == Plural::Leases) {
            return;
        }
        let lease = self.api.get(&Id::new(Plural::Leases, LEASE.0, LEASE.1));
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned();
        if holder != identity {
            self.violated(format!("{identity} sends while the Lease is held by {holder:?}"));
        }
    }

    /// A write of an operator was carried out, or refused.
    pub fn wrote(&mut self, target: Option<&Target>, body: &Value, ok: bool, changed: bool) {
        let Some(target) = target.filter(|target| target.plural != Plural::Leases) else { return };
        let id = Id::new(target.plural, &target.namespace, &target.name);
        let there = self.api.get(&id).map(|object| uid(object).to_owned()).unwrap_or_default();
        let uid = body["metadata"]["uid"].as_str().map_or(there, str::to_owned);
        let status = target.status.then(|| body["status"].clone());
        self.writes.push(Written { at_us: self.now_us(), id: id.clone(), uid, status });
        // One that goes gets its finalizer taken off behind whatever was under way, which is said again.
        let goes = self.api.get(&id).is_none_or(|object| deleting(object));
        if ok && !changed && !goes && self.accountable && self.lie.is_none() {
            self.violated(format!(
                "{}/{}/{} was written though it says so already",
                target.plural.as_str(),
                target.namespace,
                target.name
            ));
        }
        if ok {
            self.acted();
            if target.status && id.plural == Plural::Addresses {
                self.judge_ready(&id);
            }
        }
    }

    /// Something was changed by an operator.
    pub fn acted(&mut self) {
        self.last_act = Instant::now();
        match &mut self.crash_in {
            Some(0) => {
                self.crash_in = None;
                self.crash.notify_one();
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    // === What people do ===

    /// The broker-side name of an Address.
    pub fn slot(&self, address: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (metadata, spec) = (&address["metadata"], &address["spec"]);
        let name = spec["address"].as_str().map_or_else(|| text(&metadata["name"]), str::to_owned);
        let space = (text(&metadata["namespace"]), text(&spec["addressSpace"]));
        format!("{}{name}", self.prefix((&space.0, &space.1)))
    }

    /// Whether an Address is on the broker of this name in the RouterConfig, as far as anything says where it is: its
    /// space, if that is brokered, else its own status.
    pub fn is_on(&self, address: &Value, broker: &str) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let space = text(&address["spec"]["addressSpace"]);
        let id = Id::new(Plural::AddressSpaces, &text(&address["metadata"]["namespace"]), &space);
        let Some(space) = self.api.get(&id) else { return true };
        if space["spec"]["type"] == "standard" {
            let on = address["status"]["brokers"].as_array().filter(|on| !on.is_empty());
            return on.is_none_or(|on| on.iter().any(|on| on["name"] == broker));
        }
        space["status"]["broker"].as_str().is_none_or(|on| on == broker)
    }

    /// What stands before every name of a space.
    pub fn prefix(&self, space: (&str, &str)) -> String {
        let alone = self.single && space != OTHER_SPACE;
        if alone { String::new() } else { format!("{}.{}/", space.0, space.1) }
    }

    pub fn create(&mut self, id: &Id, body: &Value) -> bool {
        let result = self.api.create(id, body);
        self.note(&format!("people create {}/{}/{}: {}", id.plural.as_str(), id.namespace, id.name, result.is_ok()));
        let Ok(object) = result else { return false };
        let now = self.now_us();
        self.births.insert(uid(&object).to_owned(), (self.api.version, now));
        true
    }

    pub fn change(&mut self, id: &Id, change: impl FnOnce(&mut Value)) -> bool {
        let result = self.api.update(id, change);
        self.note(&format!("people change {}/{}/{}: {}", id.plural.as_str(), id.namespace, id.name, result.is_ok()));
        result.is_ok()
    }

    /// Deletes, and remembers which queues may go for it.
    pub fn delete(&mut self, id: &Id) {
        if id.plural == Plural::Addresses
            && let Some(address) = self.api.get(id).filter(|address| !deleting(address))
        {
            let spec = &address["spec"];
            let tomb = Tomb {
                slot: self.slot(address),
                space: space_of(address),
                uid: uid(address).to_owned(),
                kind: spec["type"].as_str().unwrap_or_default().to_owned(),
                topic: spec["topic"].as_str().map(str::to_owned),
                deleted_at: self.api.version,
                when_empty: spec["deletionPolicy"] == "WhenEmpty",
            };
            let finalized = !crate::api::store::finalizers(address).is_empty();
            let mut others = self.stage.api.all(Plural::Addresses).map(|(_, other)| other);
            // Without prefixes, what has its name in another space is nobody's heir.
            let same = |other: &Value| self.slot(other) == tomb.slot && space_of(other) == tomb.space;
            let heir = others.any(|other| uid(other) != tomb.uid && same(other));
            if !finalized || heir {
                // It goes before the operator has taken it in hand; or what it had is handed over, to one that may not
                // be able to take it.
                self.excused.insert(tomb.slot.clone());
            }
            self.tombs.push(tomb);
        }
        let done = self.api.delete(id).is_ok();
        self.note(&format!("people delete {}/{}/{}: {done}", id.plural.as_str(), id.namespace, id.name));
    }

    /// What becomes of stored messages may be changed while they wait.
    pub fn retomb(&mut self, id: &Id) {
        let Some(address) = self.api.get(id) else { return };
        let (of, when_empty) = (uid(address).to_owned(), address["spec"]["deletionPolicy"] == "WhenEmpty");
        for tomb in self.tombs.iter_mut().filter(|tomb| tomb.uid == of) {
            // Both may have been seen.
            tomb.when_empty &= when_empty;
        }
    }

    /// Takes an object's finalizers away.
    pub fn strip(&mut self, id: &Id) {
        if id.plural == Plural::Addresses
            && let Some(address) = self.api.get(id)
        {
            let slot = self.slot(address);
            self.excused.insert(slot);
        }
        if id.plural == Plural::AddressSpaces {
            self.excused.insert(format!("{}.{}/*.#", id.namespace, id.name));
        }
        self.change(id, |object| object["metadata"]["finalizers"] = Value::Array(Vec::new()));
    }

    /// Something happens to a space besides creations: its writes are not counted.
    pub fn disturb(&mut self, space: &str) {
        self.disturbed.insert(space.to_owned());
    }

    // === Judging ===

    /// What an operator says of an Address: that it is Ready only after its broker had its queue. What is said of one
    /// that goes meanwhile may be old.
    fn judge_ready(&mut self, id: &Id) {
        let Some(address) = self.api.get(id).filter(|address| !deleting(address)) else { return };
        let ready = crate::api::store::condition(address, "Ready").is_some_and(|c| c["status"] == "True");
        if !ready {
            return;
        }
        let queue = !matches!(address["spec"]["type"].as_str(), Some("topic" | "multicast"));
        let slot = self.slot(address);
        let lacks = |on: &&str| {
            let host = crate::run::host_of(on);
            let there = self.brokers.get(&host).is_some_and(|broker| broker.core.queue(&slot).is_some());
            !there && !self.held.contains(&(host, slot.clone()))
        };
        let on = address["status"]["brokers"].as_array().into_iter().flatten();
        // What it leaves may be gone by now.
        let on = on.filter(|on| on["state"] == "Active").filter_map(|on| on["name"].as_str());
        let on = on.into_iter().find(|on| queue && lacks(on));
        let wrong = match on {
            Some(on) => Some(format!("is said to be Ready before {on} had {slot}")),
            None => self.judge_routes(address),
        };
        if let Some(wrong) = wrong {
            self.violated(format!("{}/{} {wrong}", id.namespace, id.name));
        }
    }

    /// A queue with messages was destroyed by an operator.
    pub fn judge_destruction(&mut self, host: &str, queue: &str, messages: u64) {
        let Some(broker) = self.brokers.get(host) else { return };
        let (counted, arrived) = (broker.counted.get(queue), broker.arrived.get(queue));
        if counted.is_some() && arrived > counted {
            // Messages that came between the question and the command: no operation of the broker excludes that.
            let only_since = self.tombs.iter().any(|tomb| tomb.slot == queue);
            if only_since {
                return;
            }
        }
        let addresses = self.api.all(Plural::Addresses).map(|(_, address)| address);
        // One whose space has moved to another broker has nothing here.
        let here = |address: &Value| self.is_on(address, &crate::run::broker_at(host));
        let live: Vec<&Arc<Value>> = addresses.filter(|a| !deleting(a) && self.slot(a) == queue && here(a)).collect();
        if self.pruned && live.is_empty() && !queue.starts_with(&self.prefix(OTHER_SPACE)) {
            return;
        }
        let ready =
            |address: &Value| crate::api::store::condition(address, "Ready").is_some_and(|c| c["status"] == "True");
        let forced = self.forced.iter().any(|prefix| queue.starts_with(prefix.as_str()));
        let heir = |tomb: &Tomb| {
            live.iter().any(|address| {
                let (born, _) = self.births.get(uid(address)).copied().unwrap_or_default();
                let same = space_of(address) == tomb.space
                    && address["spec"]["type"] == tomb.kind.as_str()
                    && address["spec"]["topic"].as_str() == tomb.topic.as_deref();
                uid(address) != tomb.uid && born < tomb.deleted_at && same
            })
        };
        let fine = self.tombs.iter().any(|tomb| {
            tomb.slot == queue && (!tomb.when_empty || forced) && !heir(tomb) && !live.iter().any(|a| ready(a))
        });
        if !fine {
            self.violated(format!("{host}: queue {queue} with {messages} messages was destroyed"));
        }
    }

    /// What a consumer that is attached to an address had not received yet was destroyed with the address, which only
    /// happens when its Address goes.
    pub fn judge_parting(&mut self, host: &str, address: &str, queue: &str, messages: u64) {
        let multicast = |tomb: &&Tomb| matches!(&*tomb.kind, "topic" | "multicast");
        if !self.tombs.iter().filter(multicast).any(|tomb| tomb.slot == address) {
            self.violated(format!("{host}: queue {queue} with {messages} messages was destroyed"));
        }
    }

    /// A queue was made: what was deleted before and is gone does not excuse anything that happens to it.
    pub fn forget_tombs(&mut self, queue: &str) {
        let there: BTreeSet<String> = self.api.all(Plural::Addresses).map(|(_, a)| uid(a).to_owned()).collect();
        self.tombs.retain(|tomb| tomb.slot != queue || there.contains(&tomb.uid));
    }
}

fn space_of(address: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&address["metadata"]["namespace"]), text(&address["spec"]["addressSpace"]))
}
