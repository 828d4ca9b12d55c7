//! A world around the model: an API server that keeps objects, brokers that keep queues, a clock that is moved by hand.

use std::collections::{BTreeMap, BTreeSet};

use super::peer::Broker;
use super::router_peer::Router;
use crate::messaging::broker::*;
use crate::messaging::endpoints::*;
use crate::messaging::exposure::Exposure;
use crate::messaging::ids::*;
use crate::messaging::input::*;
use crate::messaging::model::{Model, Timing};
use crate::messaging::output::*;
use crate::messaging::status::*;

pub const NS: &str = "tenant";

/// See the module.
pub struct World {
    pub model: Model,
    pub now: Now,
    pub version: u64,
    pub configs: BTreeMap<Key, RouterConfig>,
    pub spaces: BTreeMap<Key, AddressSpace>,
    pub addresses: BTreeMap<Key, Address>,
    pub brokers: BTreeMap<TargetId, Broker>,
    pub routers: BTreeMap<TargetId, Router>,
    /// New spaces are of type standard.
    pub standard: bool,
    /// What the EndpointSlices of the Service `svc` say, where routers come from there.
    pub endpoints: Option<Endpoints>,
    /// The address at which routers are reached.
    pub peer: Option<std::net::IpAddr>,
    /// The Services that were wished.
    pub exposures: Vec<(Key, Option<Exposure>)>,
    /// Status writes and finalizer writes by object name.
    pub status_writes: BTreeMap<String, usize>,
    pub finalizer_writes: usize,
    pub events: Vec<Event>,
    pub notes: Vec<Note>,
    /// The admission policy puts the finalizer on.
    pub policy: bool,
    pub lists: bool,
    pub live: BTreeSet<TargetId>,
    /// Slots of Addresses that were deleted with what they store.
    pub given_up: BTreeSet<Slot>,
    /// How often a router was asked to be read again.
    pub rereads: usize,
    /// The Secret `login` of a connector, told again at a start.
    pub login: Option<Option<u64>>,
    wake: Option<u64>,
}

pub fn key(name: &str) -> Key {
    Key::new(NS, name)
}

impl World {
    /// A leading, synced model with one RouterConfig `rc` with broker `b`, which is up, and a space `s`.
    pub fn new() -> Self {
        let mut world = Self::bare();
        world.config("rc", &["b"]);
        world.space("s");
        world.run();
        world
    }

    /// The same with routers and a standard space.
    pub fn routed(brokers: &[&str], routers: &[&str]) -> Self {
        let mut world = Self::bare();
        world.standard = true;
        world.config("rc", brokers);
        world.set_routers(routers);
        world.space("s");
        world.run();
        world
    }

    /// The same with routers that are the endpoints of a Service.
    pub fn followed(brokers: &[&str], routers: &[&str]) -> Self {
        let mut world = Self::bare();
        world.standard = true;
        world.config("rc", brokers);
        world.change_config(|c| {
            c.router_service = Some(ServiceRef { service: key("svc"), port: PortRef::Name("amqp".into()) });
        });
        world.endpoints = Some(Endpoints::default());
        world.set_routers(routers);
        world.space("s");
        world.run();
        world
    }

    /// Routers join and leave.
    pub fn set_routers(&mut self, names: &[&str]) {
        if self.endpoints.is_some() {
            let endpoint = |name: &&str| Endpoint {
                pod: Some((*name).into()),
                family: 0,
                host: "h".into(),
                ports: [Port { name: "amqp".into(), number: Some(5672) }].into(),
            };
            return self.slices(Endpoints { slices: 1, all: names.iter().map(endpoint).collect() });
        }
        let routers = names.iter().map(|name| crate::messaging::input::Router {
            name: (*name).into(),
            host: "h".into(),
            port: 5672,
            readiness_port: None,
        });
        let routers = routers.collect();
        self.change_config(|c| c.routers = routers);
    }

    /// The EndpointSlices of the Service say this.
    pub fn slices(&mut self, endpoints: Endpoints) {
        self.endpoints = Some(endpoints.clone());
        self.input(Input::Endpoints(key("svc"), endpoints));
    }

    /// The names of the routers that the RouterConfig has now.
    pub fn router_names(&self) -> Vec<std::sync::Arc<str>> {
        match &self.endpoints {
            Some(endpoints) => endpoints.all.iter().filter_map(|endpoint| endpoint.pod.clone()).collect(),
            None => self.configs[&key("rc")].routers.iter().map(|r| r.name.clone()).collect(),
        }
    }

    pub fn bare() -> Self {
        let mut world = Self {
            model: Model::new(Timing::default()),
            now: Now { mono_ms: 1_000, unix_s: 1_700_000_000 },
            version: 100,
            configs: BTreeMap::new(),
            spaces: BTreeMap::new(),
            addresses: BTreeMap::new(),
            brokers: BTreeMap::new(),
            routers: BTreeMap::new(),
            standard: false,
            endpoints: None,
            peer: None,
            exposures: Vec::new(),
            status_writes: BTreeMap::new(),
            finalizer_writes: 0,
            events: Vec::new(),
            notes: Vec::new(),
            policy: true,
            lists: false,
            live: BTreeSet::new(),
            given_up: BTreeSet::new(),
            rereads: 0,
            login: None,
            wake: None,
        };
        world.lead();
        world
    }

    fn lead(&mut self) {
        for source in [Source::RouterConfigs, Source::AddressSpaces, Source::Addresses, Source::Namespaces] {
            self.input(Input::Synced(source));
        }
        self.input(Input::Leading(true));
    }

    pub fn input(&mut self, input: Input) {
        self.model.apply(input, self.now);
    }

    fn meta(&mut self, name: &str) -> Meta {
        self.version += 1;
        Meta {
            key: key(name),
            uid: format!("uid-{}", self.version).into(),
            generation: 1,
            version: self.version,
            created_s: self.now.unix_s + self.version as i64,
            deleting: false,
            finalizer: self.policy,
            others: None,
            force_delete: false,
            listed: self.lists,
        }
    }

    pub fn config(&mut self, name: &str, brokers: &[&str]) {
        let meta = self.meta(name);
        let brokers: Vec<_> = brokers
            .iter()
            .map(|b| crate::messaging::input::Broker {
                name: (*b).into(),
                host: "h".into(),
                port: 5672,
                router_host: None,
                router_port: None,
                credit: 0,
                drain: false,
            })
            .collect();
        for broker in &brokers {
            let id = TargetId::broker(meta.key.clone(), broker.name.clone());
            self.brokers.insert(id, Broker { up: true, ..Default::default() });
        }
        let config = RouterConfig {
            owner: "me".into(),
            single: false,
            allowed: Allowed::Same,
            brokers,
            tls_secret: None,
            credentials_secret: None,
            routers: Vec::new(),
            router_service: None,
            router_tls_secret: None,
            router_credentials_secret: None,
            broker_ssl_profile: None,
            broker_credentials_secret: None,
            connectors: None,
            readiness: Readiness::default(),
            listeners: Default::default(),
            defaults: Defaults::default(),
            address_plans: Vec::new(),
            space_plans: Vec::new(),
            resync: None,
            prune_orphans: None,
            status: RouterConfigStatus::default(),
            meta,
        };
        self.configs.insert(key(name), config.clone());
        self.input(Input::RouterConfig(Box::new(config)));
    }

    /// Another broker joins `rc`.
    pub fn add_broker(&mut self, name: &str) {
        let id = TargetId::broker(key("rc"), name.into());
        self.brokers.insert(id, Broker { up: true, ..Default::default() });
        self.change_config(|c| {
            let broker = crate::messaging::input::Broker { name: name.into(), ..c.brokers[0].clone() };
            c.brokers.push(broker);
        });
    }

    pub fn space(&mut self, name: &str) {
        let meta = self.meta(name);
        let status = AddressSpaceStatus::default();
        let space = AddressSpace {
            meta,
            config: key("rc"),
            standard: self.standard,
            plan: None,
            endpoints: Vec::new(),
            connectors: Vec::new(),
            status,
        };
        self.spaces.insert(key(name), space.clone());
        self.input(Input::AddressSpace(Box::new(space)));
    }

    pub fn address(&mut self, name: &str, kind: AddressType) {
        self.address_with(name, kind, |_| {});
    }

    pub fn address_with(&mut self, name: &str, kind: AddressType, edit: impl FnOnce(&mut Address)) {
        let meta = self.meta(name);
        let mut address = Address {
            meta,
            space: "s".into(),
            address: name.into(),
            kind,
            plan: None,
            topic: None,
            dead_letter: None,
            expiry: None,
            ttl: Ttl::default(),
            redelivery: Redelivery::default(),
            max_size_bytes: None,
            full_policy: None,
            max_consumers: None,
            when_empty: false,
            forwarders: Vec::new(),
            status: AddressStatus::default(),
        };
        edit(&mut address);
        self.addresses.insert(key(name), address.clone());
        self.input(Input::Address(Box::new(address)));
    }

    pub fn id(&self, broker: &str) -> TargetId {
        TargetId::broker(key("rc"), broker.into())
    }

    pub fn broker(&mut self, broker: &str) -> &mut Broker {
        let id = self.id(broker);
        self.brokers.entry(id).or_default()
    }

    pub fn slot(&self, name: &str) -> Slot {
        format!("{NS}.s/{name}").into()
    }

    pub fn queue(&mut self, name: &str) -> Option<ObservedQueue> {
        let slot = self.slot(name);
        self.broker("b").queues.get(&slot).cloned()
    }

    pub fn put_messages(&mut self, name: &str, messages: u64) {
        let slot = self.slot(name);
        if let Some(queue) = self.broker("b").queues.get_mut(&slot) {
            queue.messages = messages;
        }
    }

    /// Settles and carries out until nothing happens any more at this instant.
    pub fn run(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "does not come to rest");
            let settled = self.model.settle(self.now);
            if let Err(broken) = self.model.check() {
                panic!("invariant: {broken}");
            }
            self.wake = settled.wake_ms;
            let quiet = settled.targets.is_empty()
                && settled.jobs.is_empty()
                && settled.router_jobs.is_empty()
                && settled.writes.is_empty();
            self.events.extend(settled.events);
            self.notes.extend(settled.notes);
            self.exposures.extend(settled.exposures);
            for change in settled.targets {
                self.target(change);
            }
            for (id, job) in settled.jobs {
                self.brokers.entry(id).or_default().waiting.push(job);
            }
            for (id, job) in settled.router_jobs {
                self.routers.entry(id).or_default().waiting.push(job);
            }
            for write in settled.writes {
                self.write(write);
            }
            let worked = self.work() | self.work_of_routers();
            if quiet && !worked {
                break;
            }
        }
    }

    /// Moves the clock, settling whenever the model asked to be woken.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.mono_ms + ms;
        self.run();
        while let Some(wake) = self.wake.filter(|w| *w <= end) {
            let step = wake.max(self.now.mono_ms) - self.now.mono_ms;
            self.tick(step.max(1));
            self.run();
        }
        if end > self.now.mono_ms {
            self.tick(end - self.now.mono_ms);
        }
        self.run();
    }

    fn tick(&mut self, ms: u64) {
        let before = self.now.mono_ms;
        self.now.mono_ms += ms;
        self.now.unix_s += (self.now.mono_ms / 1000 - before / 1000) as i64;
    }

    /// A new operator process: the objects as they are, the brokers as they are, nothing remembered.
    pub fn restart(&mut self) {
        self.restart_in(|_| {});
    }

    /// The same, with the objects told in another order.
    pub fn restart_in(&mut self, order: impl FnOnce(&mut Vec<Input>)) {
        self.model = Model::new(Timing::default());
        for broker in self.brokers.values_mut() {
            broker.incarnation = 0;
            broker.waiting.clear();
        }
        for router in self.routers.values_mut() {
            router.incarnation = 0;
            router.waiting.clear();
        }
        self.live.clear();
        self.wake = None;
        let mut inputs: Vec<Input> = (self.configs.values().cloned().map(|c| Input::RouterConfig(Box::new(c))))
            .chain(self.spaces.values().cloned().map(|s| Input::AddressSpace(Box::new(s))))
            .chain(self.addresses.values().cloned().map(|a| Input::Address(Box::new(a))))
            .collect();
        order(&mut inputs);
        for input in inputs {
            self.input(input);
        }
        self.lead();
        self.tell_login();
        if let Some(endpoints) = self.endpoints.clone() {
            self.slices(endpoints);
        }
    }

    /// Who follows Secrets tells of this one, as whenever somebody names it anew.
    pub fn tell_login(&mut self) {
        if let Some(revision) = self.login {
            self.input(Input::Secret(key("login"), revision));
        }
    }

    pub fn ready(&self, name: &str) -> Option<(bool, &'static str)> {
        let ready = self.addresses.get(&key(name))?.status.ready.as_ref()?;
        Some((ready.status, ready.reason))
    }

    pub fn message(&self, name: &str) -> String {
        self.addresses
            .get(&key(name))
            .and_then(|a| a.status.ready.as_ref())
            .map(|c| c.message.to_string())
            .unwrap_or_default()
    }

    pub fn writes(&self, name: &str) -> usize {
        self.status_writes.get(name).copied().unwrap_or(0)
    }
}
