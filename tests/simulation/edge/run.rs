//! One seed, from the first object to the last comparison.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::fleet::{COMPARE, Fleet};
use super::lies::Lie;
use super::machine::{Machine, supervise};
use super::plan::{Action, NAMESPACES, Plan};
use super::world::{Faults, LEASES, Shared, World};
use super::{check, objects, people};
use crate::api::lock;
use crate::api::store::{Id, Plural};
use crate::seeds::Outcome;
use crate::stage::play;

/// Runs a plan on a clock of its own. The first violation ends it.
pub fn run(plan: &Plan, lie: Option<Lie>, keep_trace: bool) -> Outcome {
    play(|| World::new(plan.seed, lie, keep_trace), async |world| Story::new(world, plan).tell(plan).await)
}

/// Runs what people do in a plan, and then, when all is as it must be, has the API server away for that long, and back:
/// what an agent has done meanwhile, though nothing has changed, is a violation.
pub fn away(mut plan: Plan, long: Duration) -> Outcome {
    plan.of_people_alone();
    play(
        || World::new(plan.seed, None, false),
        async |world| {
            let mut story = Story::new(world, &plan);
            story.begin(&plan);
            for step in &plan.steps {
                story.pause(Instant::now() + millis(step.wait_ms)).await;
                story.act(&step.action).await;
            }
            story.quiet().await;
            let before = check::counts(&lock(world));
            let ends = Instant::now() + long;
            lock(world).api_down_until = ends;
            story.pause(ends + PEACE).await;
            check::peace(&mut lock(world), &before);
            // And it is followed again.
            story.quiet().await;
        },
    )
}

/// Longest that anything takes to come to rest.
const PATIENCE: Duration = Duration::from_secs(400);
/// Nothing is done for so long by somebody who has anything to do: writes are tried again after 5 s.
const IDLE: Duration = Duration::from_secs(14);
/// In which nobody does anything, though he could.
const PEACE: Duration = Duration::from_secs(60);

/// A run under way.
struct Story {
    world: Shared,
    fleet: Fleet,
    faults: Faults,
    restarts: Vec<(Instant, usize)>,
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Story {
    fn new(world: &Shared, plan: &Plan) -> Self {
        let fleet = Fleet::new(Shared::clone(world), plan.setup.clone(), plan.seed);
        Self { world: Shared::clone(world), fleet, faults: plan.setup.faults, restarts: Vec::new() }
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
        world.machines = (0..plan.setup.agents).map(Machine::new).collect();
        for namespace in [LEASES, objects::CONFIG.0].iter().chain(&NAMESPACES) {
            let labels = json!({ "metadata": { "labels": { "edge": "yes" } } });
            world.put(&Id::new(Plural::Namespaces, "", namespace), labels);
        }
        world.put(&objects::config_id(), objects::config());
        let default = Id::new(Plural::Secrets, objects::CONFIG.0, objects::DEFAULT_SECRET);
        world.put(&default, objects::secret(1));
        world.faults = self.faults;
        drop(world);
        for index in 0..self.fleet.count() {
            self.fleet.start(index);
            tokio::spawn(supervise(Shared::clone(&self.world), index, millis(5)));
        }
    }

    /// Waits, while agents and processes end and come back.
    async fn pause(&mut self, until: Instant) {
        loop {
            let crash = std::sync::Arc::clone(&lock(&self.world).crash);
            let restart = self.restarts.iter().map(|(at, _)| *at).min();
            let next = restart.map_or(until, |at| at.min(until));
            tokio::select! {
                biased;
                () = crash.notified() => {
                    let agents = std::mem::take(&mut lock(&self.world).to_crash);
                    for agent in agents {
                        self.crash(agent);
                    }
                    for index in 0..self.fleet.count() {
                        let killed = std::mem::take(&mut lock(&self.world).machines[index].killed);
                        if killed {
                            let down = lock(&self.world).random.one_of(&[3, 30, 800]);
                            tokio::spawn(supervise(Shared::clone(&self.world), index, millis(down)));
                        }
                    }
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

    fn crash(&mut self, agent: usize) {
        self.fleet.crash(agent);
        lock(&self.world).saw("agent crashes");
        let down = lock(&self.world).random.one_of(&[0, 40, 9_000]);
        self.restarts.push((Instant::now() + millis(down), agent));
    }

    async fn act(&mut self, action: &Action) {
        match action {
            Action::Crash { agent, down_ms } => {
                self.fleet.crash(*agent);
                lock(&self.world).saw("agent crashes");
                self.restarts.push((Instant::now() + millis(*down_ms), *agent));
            }
            Action::Stop { agent, down_ms } => {
                self.fleet.stop(*agent).await;
                self.restarts.push((Instant::now() + millis(*down_ms), *agent));
            }
            Action::Kill { machine, down_ms } => {
                let mut world = lock(&self.world);
                if world.machines[*machine].worker.is_some() {
                    world.machines[*machine].kill();
                    world.machines[*machine].killed = false;
                    drop(world);
                    tokio::spawn(supervise(Shared::clone(&self.world), *machine, millis(*down_ms)));
                }
            }
            Action::Quiet => self.quiet().await,
            action => people::act(&self.world, action),
        }
    }

    /// Faults cease; when nothing moves any more, everything is compared.
    async fn quiet(&mut self) {
        let refused = self.calm_down();
        self.rest().await;
        if refused {
            // What was refused is asked for again by who starts anew, and nobody else.
            for index in 0..self.fleet.count() {
                self.fleet.stop(index).await;
                lock(&self.world).machines[index].kill();
                lock(&self.world).machines[index].killed = false;
                tokio::spawn(supervise(Shared::clone(&self.world), index, millis(5)));
                self.fleet.start(index);
            }
            self.rest().await;
        }
        if lock(&self.world).machines.iter().any(|machine| machine.drifted) {
            // Jitter spreads comparisons.
            self.pause(Instant::now() + COMPARE * 3 / 2).await;
            self.rest().await;
        }
        if !lock(&self.world).violations.is_empty() {
            return;
        }
        check::agreement(&mut lock(&self.world));
        let before = check::counts(&lock(&self.world));
        self.pause(Instant::now() + PEACE).await;
        check::peace(&mut lock(&self.world), &before);
        let mut world = lock(&self.world);
        world.faults = self.faults;
        world.machines.iter_mut().for_each(|machine| (machine.refused, machine.drifted) = (false, false));
    }

    /// Whether anything was refused.
    fn calm_down(&mut self) -> bool {
        let mut world = lock(&self.world);
        world.faults = Faults { latency_ms: 2, watch_ms: 2, ..Faults::default() };
        let now = Instant::now();
        world.api_down_until = now;
        world.stalls.clear();
        world.alarms.clear();
        let mut refused = false;
        for machine in &mut world.machines {
            machine.refuses.clear();
            machine.refuse_next = None;
            (machine.busy_until, machine.disk_full_until, machine.disk_slow_until) = (now, now, now);
            refused |= machine.refused;
            for worker in machine.worker.iter_mut().chain(&mut machine.old) {
                worker.refuses.clear();
            }
        }
        drop(world);
        self.restarts.clear();
        for index in 0..self.fleet.count() {
            self.fleet.start(index);
        }
        refused
    }

    /// Waits until faults have no consequences any more, somebody leads, and nothing has been changed for a while.
    async fn rest(&mut self) {
        let began = Instant::now();
        let mut leads: Option<(String, Instant)> = None;
        loop {
            self.pause(Instant::now() + Duration::from_secs(3)).await;
            let now = Instant::now();
            let (leader, last, trouble, runs) = {
                let world = lock(&self.world);
                let runs = world.machines.iter().all(|machine| machine.worker.is_some());
                (world.leader(), world.last_act.max(began), world.trouble_until, runs)
            };
            if leads.as_ref().map(|(leader, _)| leader) != Some(&leader) {
                leads = leader.starts_with("edge-").then_some((leader, now));
            }
            let led = leads.as_ref().is_some_and(|(_, since)| now - (*since).max(last) >= IDLE);
            if (led && now >= trouble && runs) || !lock(&self.world).violations.is_empty() {
                return;
            }
            if now - began > PATIENCE {
                lock(&self.world).violated("it does not come to rest".to_owned());
                return;
            }
        }
    }
}
