//! One seed, from the first object to the last comparison.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::api::store::{Id, Plural, Snapshot, deleting};
use crate::broker::{Broker, millis};
use crate::fleet::Fleet;
use crate::lies::Lie;
use crate::plan::{Action, Cause, NAMESPACES, Plan};
use crate::router::{Router, router_host};
use crate::seeds::Outcome;
use crate::stage::play;
use crate::terms::{Terms, is_moving};
use crate::world::{Faults, LEASE, Shared, World, lock};
use crate::{check, people, slices};

/// Runs a plan on a clock of its own. The first violation ends it.
pub fn run(plan: &Plan, lie: Option<Lie>, keep_trace: bool) -> Outcome {
    let world = || World::new(plan.seed, plan.setup.policy, lie, keep_trace);
    play(world, async |world| Story::new(world, plan).tell(plan).await)
}

/// Longest that anything takes to come to rest.
const PATIENCE: Duration = Duration::from_secs(240);

/// A run under way.
pub struct Story {
    pub world: Shared,
    pub fleet: Fleet,
    faults: Faults,
    restarts: Vec<(Instant, usize)>,
    pub snapshot: Option<Snapshot>,
    /// Something was refused for a while: the operator asks again after minutes only.
    pub refusals: bool,
    /// Somebody has changed a router by hand: nobody knows before it is read again.
    pub drifted: bool,
    pub passwords: u64,
    brokers: usize,
}

impl Story {
    fn new(world: &Shared, plan: &Plan) -> Self {
        let fleet = Fleet::new(Shared::clone(world), plan.setup.clone(), plan.seed);
        Self {
            world: Shared::clone(world),
            fleet,
            faults: plan.setup.faults,
            restarts: Vec::new(),
            snapshot: None,
            refusals: false,
            drifted: false,
            passwords: 0,
            brokers: plan.setup.brokers,
        }
    }

    async fn tell(mut self, plan: &Plan) {
        self.begin(plan);
        for step in &plan.steps {
            self.pause(Instant::now() + millis(step.wait_ms)).await;
            lock(&self.world).note(&format!("-- {:?}", step.action));
            self.act(&step.action).await;
            if !lock(&self.world).violations.is_empty() {
                return;
            }
        }
        self.quiet().await;
    }

    fn begin(&mut self, plan: &Plan) {
        let mut world = lock(&self.world);
        let passwords: BTreeSet<String> = plan.setup.secret.then(|| "p0".to_owned()).into_iter().collect();
        for index in 0..plan.setup.brokers {
            world.brokers.insert(host(index), Broker::new(&host(index), passwords.clone()));
        }
        for index in 0..plan.setup.routers {
            let host = router_host(index);
            let router = Router::new(&host, passwords.clone());
            world.routers.insert(host, router);
        }
        world.mixed = plan.setup.mixed;
        for namespace in ["kube-system", LEASE.0, people::CONFIGS[0].0].iter().chain(&NAMESPACES) {
            world.create(&Id::new(Plural::Namespaces, "", namespace), &json!({}));
        }
        if plan.setup.secret {
            people::put_secret(&mut world, 0);
        }
        world.single = plan.setup.single;
        world.terms = plan.setup.planned.then(Terms::default);
        world.followed = plan.setup.followed;
        world.begin_remotes(&plan.setup);
        if plan.setup.followed {
            slices::put(&mut world, plan.setup.routers);
        }
        people::create_config(&mut world, 0);
        if plan.setup.second {
            people::create_config(&mut world, 1);
        }
        world.faults = self.faults;
        world.outages = self.faults.broker > 0 || self.faults.router > 0;
        world.accountable = self.faults.api == 0;
        drop(world);
        for index in 0..self.fleet.count() {
            self.fleet.start(index);
        }
    }

    /// Waits, while replicas crash and come back.
    pub async fn pause(&mut self, until: Instant) {
        loop {
            let crash = std::sync::Arc::clone(&lock(&self.world).crash);
            let restart = self.restarts.iter().map(|(at, _)| *at).min();
            let next = restart.map_or(until, |at| at.min(until));
            tokio::select! {
                biased;
                () = crash.notified() => {
                    let leader = self.leader().unwrap_or(0);
                    self.fleet.crash(leader);
                    let down = lock(&self.world).random.one_of(&[0, 700, 9_000]);
                    self.restarts.push((Instant::now() + millis(down), leader));
                }
                () = sleep_until(next) => {
                    let now = Instant::now();
                    let due: Vec<usize> = self.restarts.iter().filter(|(at, _)| *at <= now).map(|(_, i)| *i).collect();
                    self.restarts.retain(|(at, _)| *at > now);
                    for index in due {
                        self.fleet.start(index);
                    }
                    if now >= until {
                        return;
                    }
                }
            }
        }
    }

    fn leader(&self) -> Option<usize> {
        let world = lock(&self.world);
        let lease = world.api.get(&Id::new(Plural::Leases, LEASE.0, LEASE.1))?;
        self.fleet.leader(lease["spec"]["holderIdentity"].as_str()?)
    }

    /// Faults cease; when nothing moves any more, everything is compared.
    pub async fn quiet(&mut self) {
        self.calm_down();
        self.rest().await;
        if self.refusals {
            // What was refused is asked again after a while only.
            self.refusals = false;
            self.pause(Instant::now() + crate::fleet::RETRY).await;
            self.rest().await;
        }
        if std::mem::take(&mut self.drifted) {
            people::resync(&mut lock(&self.world));
            self.rest().await;
        }
        check::agreement(&mut lock(&self.world));
        lock(&self.world).faults = self.faults;
    }

    fn calm_down(&mut self) {
        let mut world = lock(&self.world);
        world.faults = Faults { latency_ms: 2, watch_ms: 2, ..Faults::default() };
        world.api_down_until = Instant::now();
        world.stalls.clear();
        world.crash_in = None;
        let (current, secret) = (format!("p{}", self.passwords), people::has_secret(&world));
        for broker in world.brokers.values_mut() {
            broker.start(false);
            broker.hangs_until = Instant::now();
            if secret {
                broker.passwords = [current.clone()].into();
            }
        }
        world.calm_remotes();
        for router in world.routers.values_mut() {
            if !router.up {
                router.start();
            }
            router.hasten();
            if secret {
                router.passwords = [current.clone()].into();
            }
        }
        self.refusals |= crate::broker::hands::make_up(&mut world);
        if secret {
            people::put_secret(&mut world, self.passwords);
        }
        drop(world);
        self.restarts.clear();
        for index in 0..self.fleet.count() {
            self.fleet.start(index);
        }
    }

    /// Waits until faults have no consequences any more, somebody leads, and nothing has been changed for a while.
    pub async fn rest(&mut self) {
        // Drives wait up to 10 s before they connect, and up to 10 s for the connection. Routers dial again after 5 s;
        // whether links are active then is looked at every 10 s.
        let idle = {
            let world = lock(&self.world);
            let routed = if world.routers.is_empty() { 0 } else { 10 };
            // What a missing Secret held last is used for half a minute more.
            let patient = if world.lacks_far_secret() { 32 } else { 0 };
            Duration::from_secs(routed + patient + if world.outages || !world.calm_routers { 22 } else { 12 })
        };
        let began = Instant::now();
        let mut leads = None;
        loop {
            self.pause(Instant::now() + Duration::from_secs(3)).await;
            let now = Instant::now();
            let leader = self.leader();
            if leads.map(|(leader, _)| leader) != leader {
                leads = leader.map(|leader| (leader, now));
            }
            let (last, trouble) = {
                let world = lock(&self.world);
                (world.last_act.max(began), world.trouble_until)
            };
            let led = leads.is_some_and(|(_, since)| now - since.max(last) >= idle);
            if led && now >= trouble {
                return;
            }
            if now - began > PATIENCE {
                lock(&self.world).violated("it does not come to rest".to_owned());
                return;
            }
        }
    }

    async fn act(&mut self, action: &Action) {
        people::disturb(&mut lock(&self.world), action);
        lock(&self.world).note_terms(action);
        if let Action::Measure(cause) = action {
            lock(&self.world).saw(&format!("{cause:?} by itself"));
        }
        match action {
            Action::Crash { replica, down_ms } => {
                self.fleet.crash(*replica);
                self.restarts.push((Instant::now() + millis(*down_ms), *replica));
            }
            Action::CrashAfter { changes } => lock(&self.world).crash_in = Some(*changes),
            Action::Stop { replica, down_ms } => {
                self.fleet.stop(*replica);
                self.restarts.push((Instant::now() + millis(*down_ms), *replica));
            }
            Action::BrokerRestart { broker, down_ms, empty } => {
                let (world, host, empty) = (Shared::clone(&self.world), host(*broker), *empty);
                lock(&world).outages = true;
                if let Some(broker) = lock(&world).brokers.get_mut(&host) {
                    broker.stop();
                }
                let at = Instant::now() + millis(*down_ms);
                tokio::spawn(async move {
                    sleep_until(at).await;
                    if let Some(broker) = lock(&world).brokers.get_mut(&host) {
                        broker.start(empty);
                    }
                });
            }
            Action::RouterRestart { router, down_ms } => {
                let (world, host) = (Shared::clone(&self.world), router_host(*router));
                lock(&world).calm_routers = false;
                if let Some(router) = lock(&world).routers.get_mut(&host) {
                    router.stop();
                }
                let at = Instant::now() + millis(*down_ms);
                tokio::spawn(async move {
                    sleep_until(at).await;
                    if let Some(router) = lock(&world).routers.get_mut(&host) {
                        router.start();
                    }
                });
            }
            Action::Restore => {
                let Some(snapshot) = self.snapshot.clone() else { return };
                for index in 0..self.fleet.count() {
                    self.fleet.crash(index);
                    self.restarts.push((Instant::now() + millis(100), index));
                }
                people::restore(&mut lock(&self.world), snapshot);
            }
            Action::Quiet => self.quiet().await,
            Action::Measure(cause) => self.measure(*cause).await,
            action => people::act(self, action),
        }
    }

    /// Looks at one cause alone: it must not cost an Address write, nor a command where the broker kept everything.
    async fn measure(&mut self, cause: Cause) {
        self.quiet().await;
        self.calm_down();
        if !lock(&self.world).violations.is_empty() {
            return;
        }
        let (writes, commands, router_commands, spaces, serving, drains, hidden) = {
            let world = lock(&self.world);
            let all: Vec<_> = world.api.all(Plural::Addresses).map(|(_, address)| address).collect();
            let hidden = all.iter().any(|address| check::spoilt(address));
            let drains = all.iter().any(|address| deleting(address) || is_moving(address));
            let config = world.api.get(&people::config_id(0));
            let serving = config.map_or(0, |config| slices::routers_of(&world, config).len());
            let counts = (address_writes(&world), world.commands, world.router_commands, space_writes(&world));
            (counts.0, counts.1, counts.2, counts.3, serving, drains, hidden)
        };
        {
            let mut world = lock(&self.world);
            world.remotes.counted = world.count_connectors();
            world.remotes.failing = world.has_failing_forwarders();
        }
        self.bring_about(cause).await;
        self.rest().await;
        let mut world = lock(&self.world);
        let more = address_writes(&world) - writes;
        // Messages that are lost end the deletions that waited for them.
        let ends = drains && cause == Cause::BrokerRestart { empty: true };
        // Who starts anew does not know the name of an Address that cannot be read, and another of that name has it then;
        // who ran before remembers what it was.
        let taken = hidden && matches!(cause, Cause::OperatorRestart | Cause::Takeover);
        let failing = world.remotes.failing;
        if more > 0 && !ends && !taken && !failing {
            let told: Vec<String> = world.writes.iter().rev().take(3).map(|w| format!("{w:?}")).collect();
            world.violated(format!("{cause:?} cost {more} Address writes: {}", told.join("; ")));
        }
        let kept = !matches!(cause, Cause::BrokerRestart { .. } | Cause::BrokerOutage);
        let more = world.commands - commands;
        if kept && more > 0 && !taken {
            world.violated(format!("{cause:?} cost {more} commands though nothing was missing"));
        }
        let kept = matches!(cause, Cause::OperatorRestart | Cause::Takeover | Cause::Relist | Cause::RouterCut);
        let more = world.router_commands - router_commands;
        // One that is not connected may be so for its login, which only another try can tell.
        let tried = world.remotes.counted.0 > 0;
        if kept && more > 0 && !taken && !tried {
            world.violated(format!("{cause:?} cost {more} commands to routers though nothing was missing"));
        }
        let more = space_writes(&world) - spaces;
        if one_of_several(cause, serving) && more > 0 {
            world.violated(format!("{cause:?} of one of {serving} routers cost {more} AddressSpace writes"));
        }
        world.judge_far_writes(cause, more);
        check::agreement(&mut world);
        world.faults = self.faults;
    }

    async fn bring_about(&mut self, cause: Cause) {
        match cause {
            Cause::OperatorRestart => {
                for index in 0..self.fleet.count() {
                    self.fleet.crash(index);
                    self.fleet.start(index);
                }
            }
            Cause::Takeover => {
                let leader = self.leader().unwrap_or(0);
                self.fleet.stop(leader);
                self.restarts.push((Instant::now() + millis(1_000), leader));
            }
            Cause::BrokerRestart { empty } => self.outage(millis(300), empty).await,
            Cause::BrokerOutage => self.outage(millis(30_000), false).await,
            Cause::Relist => {
                let mut world = lock(&self.world);
                world.api.compact();
                world.cuts += 1;
                world.api.wake_all();
            }
            Cause::RouterRestart { all } => self.router_outage(millis(300), all).await,
            Cause::RouterOutage { all } => self.router_outage(millis(30_000), all).await,
            Cause::RouterCut => {
                for router in lock(&self.world).routers.values_mut() {
                    router.lose_all("the connection was reset");
                }
            }
            Cause::FarOutage => {
                lock(&self.world).turn_remotes(false);
                self.pause(Instant::now() + millis(30_000)).await;
                lock(&self.world).turn_remotes(true);
            }
            Cause::FarRotation => lock(&self.world).rotate_all_far(),
            Cause::Drift { pick, change } => {
                {
                    let mut world = lock(&self.world);
                    world.calm_routers = false;
                    if let Some(router) = world.routers.values_mut().next() {
                        router.drift(pick, change);
                    }
                }
                // A broker may have something to tell of its links first.
                self.rest().await;
                people::resync(&mut lock(&self.world));
            }
        }
    }

    async fn router_outage(&mut self, down: Duration, all: bool) {
        let count = if all { usize::MAX } else { 1 };
        lock(&self.world).calm_routers = false;
        for router in lock(&self.world).routers.values_mut().take(count) {
            router.stop();
        }
        self.pause(Instant::now() + down).await;
        for router in lock(&self.world).routers.values_mut().take(count) {
            router.start();
        }
    }

    async fn outage(&mut self, down: Duration, empty: bool) {
        for index in 0..self.brokers {
            if let Some(broker) = lock(&self.world).brokers.get_mut(&host(index)) {
                broker.stop();
            }
        }
        self.pause(Instant::now() + down).await;
        for index in 0..self.brokers {
            if let Some(broker) = lock(&self.world).brokers.get_mut(&host(index)) {
                broker.start(empty);
            }
        }
    }
}

/// Whether what happens leaves another router in service.
fn one_of_several(cause: Cause, serving: usize) -> bool {
    serving > 1 && matches!(cause, Cause::RouterRestart { all: false } | Cause::RouterOutage { all: false })
}

fn space_writes(world: &World) -> usize {
    world.writes.iter().filter(|write| write.id.plural == Plural::AddressSpaces).count()
}

fn address_writes(world: &World) -> usize {
    world.writes.iter().filter(|write| write.id.plural == Plural::Addresses).count()
}

/// Where a broker is.
pub fn host(index: usize) -> String {
    format!("broker-{index}")
}

/// The name that a RouterConfig has for a broker.
pub fn broker_name(index: usize) -> String {
    format!("b{index}")
}

/// An object's name for people.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The name of the broker that is there.
pub fn broker_at(host: &str) -> String {
    host.replacen("broker-", "b", 1)
}

/// Where the broker of this name is.
pub fn host_of(name: &str) -> String {
    name.replacen('b', "broker-", 1)
}
