//! From what the model wants to who carries it out. Synchronous, and nothing in it waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Inspect;
use super::links::{Links, NamedSecret};
use super::router_links::{BrokerCredentials, RouterLinks};
use crate::cluster::children;
use crate::cluster::events::EventQueue;
use crate::cluster::meter::{Meter, WriteResult};
use crate::cluster::secrets::SecretStore;
use crate::drive::amqp::Endpoint;
use crate::drive::broker::actor::{self, BrokerDrive};
use crate::drive::broker::link::BrokerLink;
use crate::drive::keep::{Command, Limits};
use crate::drive::router::actor::{self as router_actor, RouterDrive};
use crate::drive::router::link::RouterLink;
use crate::engine::clock::Moment;
use crate::engine::jitter::Jitter;
use crate::engine::loops::{Ended, Loop};
use crate::engine::mailbox::{Class, Item, Mailbox};
use crate::engine::owner;
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;
use crate::messaging::broker::Job;
use crate::messaging::ids::{Key, Now, TargetId};
use crate::messaging::input::{Broker, Input, Router};
use crate::messaging::model::Model;
use crate::messaging::output::{Event, Note, Settled, TargetChange, Write};
use crate::messaging::router;
use crate::metrics::Metrics;
use crate::process::meters::Meters;

/// The model as the engine owns it.
pub struct Owned {
    model: Model,
    inspect: Option<Inspect>,
    resigned: bool,
    began: Option<Instant>,
}

/// What came of one batch.
pub struct Output {
    settled: Settled,
    /// Leadership was lost since the last time: what was handed out before is void.
    resigned: bool,
    sizes: [usize; 3],
    took: std::time::Duration,
}

impl Owned {
    /// Owns a model, which `inspect` looks at whenever it has settled.
    pub fn new(model: Model, inspect: Option<Inspect>) -> Self {
        Self { model, inspect, resigned: false, began: None }
    }
}

fn now(moment: Moment) -> Now {
    Now { mono_ms: moment.mono_ms, unix_s: moment.unix_s }
}

impl owner::Model for Owned {
    type Input = Input;
    type Output = Output;

    fn apply(&mut self, input: Input, moment: Moment) {
        self.began.get_or_insert_with(Instant::now);
        self.resigned |= input == Input::Leading(false);
        self.model.apply(input, now(moment));
    }

    fn settle(&mut self, moment: Moment) -> Output {
        let began = self.began.take().unwrap_or_else(Instant::now);
        let settled = self.model.settle(now(moment));
        if let Some(inspect) = &self.inspect {
            inspect(&self.model);
        }
        Output {
            settled,
            resigned: std::mem::take(&mut self.resigned),
            sizes: self.model.sizes(),
            took: began.elapsed(),
        }
    }
}

struct Running {
    incarnation: u64,
    work: Work,
    ended: Stop,
}

/// What a drive is given.
enum Work {
    Broker { broker: Broker, mailbox: Mailbox<Job>, commands: mpsc::UnboundedSender<actor::Command> },
    Router { router: Router, mailbox: Mailbox<router::Job>, commands: mpsc::UnboundedSender<router_actor::Command> },
}

// A drive that is gone needs no telling: what is sent to it is dropped.
impl Work {
    fn finish(&self) {
        let _ = match self {
            Self::Broker { commands, .. } => commands.send(Command::Finish).is_ok(),
            Self::Router { commands, .. } => commands.send(Command::Finish).is_ok(),
        };
    }

    fn reread(&self) {
        let _ = match self {
            Self::Broker { commands, .. } => commands.send(Command::Reread).is_ok(),
            Self::Router { commands, .. } => commands.send(Command::Reread).is_ok(),
        };
    }

    fn stop(&self) {
        match self {
            Self::Broker { commands, mailbox, .. } => {
                let _ = commands.send(Command::Stop);
                mailbox.close();
            }
            Self::Router { commands, mailbox, .. } => {
                let _ = commands.send(Command::Stop);
                mailbox.close();
            }
        }
    }

    /// Waiting changes, waiting repairs, and what is under way.
    fn depths(&self) -> [usize; 3] {
        match self {
            Self::Broker { mailbox, .. } => depths(mailbox),
            Self::Router { mailbox, .. } => depths(mailbox),
        }
    }
}

fn depths<J: Item>(mailbox: &Mailbox<J>) -> [usize; 3] {
    [mailbox.depth(Class::Change), mailbox.depth(Class::Repair), mailbox.in_flight()]
}

type Table = Arc<Mutex<BTreeMap<TargetId, Running>>>;

/// The drives that run, for the end of the process.
pub struct Drives(Table);

fn lock(table: &Table) -> MutexGuard<'_, BTreeMap<TargetId, Running>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drives {
    /// No drive begins anything any more.
    pub fn finish(&self) {
        for running in lock(&self.0).values() {
            running.work.finish();
        }
    }

    /// Waits until what was begun is answered.
    pub async fn finished(&self) {
        let ends: Vec<Stop> = lock(&self.0).values().map(|running| running.ended.clone()).collect();
        for end in ends {
            end.requested().await;
        }
    }
}

/// What a dispatch works with.
pub struct Parts {
    /// Writes go here.
    pub outbox: Mailbox<Write>,
    /// Wishes for Services go here.
    pub children: mpsc::UnboundedSender<children::Command>,
    /// Events go here.
    pub events: EventQueue,
    /// Contents of Secrets.
    pub store: SecretStore,
    /// How brokers are reached.
    pub links: Arc<dyn Links>,
    /// How routers are reached.
    pub router_links: Arc<dyn RouterLinks>,
    /// For drives.
    pub permit: Permit,
    /// Where drives report to.
    pub reports: mpsc::Sender<Input>,
    /// Bounds of drives.
    pub limits: Limits,
    /// Spreads reconnects.
    pub jitter: Jitter,
    /// Counts.
    pub meters: Arc<Meters<Metrics>>,
    /// Who runs new loops.
    pub(crate) starter: mpsc::UnboundedSender<Loop>,
}

/// Hands on what the model wants.
pub struct Dispatch {
    parts: Parts,
    table: Table,
    /// Drives that were stopped and may not have ended yet.
    leaving: BTreeMap<TargetId, Stop>,
}

/// One line for what turned: people who read the log learn what the Events say.
fn log_event(event: &Event) {
    use crate::messaging::reason::event;
    if [event::BROKER_UNREACHABLE, event::ROUTER_UNREACHABLE, event::BROKER_SERVING, event::ROUTER_SERVING]
        .contains(&event.reason)
    {
        // A note says it already, and with more.
        return;
    }
    log(event.kind.as_str(), &event.key, event.warning, Some(event.reason), &event.message);
}

fn log(kind: &str, object: &Key, warning: bool, reason: Option<&str>, message: &str) {
    match warning {
        true => tracing::warn!(kind, %object, reason, "{message}"),
        false => tracing::info!(kind, %object, reason, "{message}"),
    }
}

impl Dispatch {
    /// With no drives yet.
    pub fn new(parts: Parts) -> Self {
        Self { parts, table: Table::default(), leaving: BTreeMap::new() }
    }

    /// The drives, now and later.
    pub fn drives(&self) -> Drives {
        Drives(Arc::clone(&self.table))
    }

    /// Hands everything on; says when the model wants to settle again.
    pub fn carry_out(&mut self, output: Output, taken: usize) -> Option<u64> {
        let Output { settled, resigned, sizes, took } = output;
        let Settled { targets, jobs, router_jobs, writes, events, notes, ready_after_ms, repairs, exposures, wake_ms } =
            settled;
        if resigned {
            // The model decides anew when it leads again.
            self.parts.outbox.clear();
            self.tell_children(children::Command::Resign);
        }
        for change in targets {
            self.change_target(change);
        }
        {
            let table = lock(&self.table);
            for (target, job) in jobs {
                match table.get(&target).map(|running| &running.work) {
                    Some(Work::Broker { mailbox, .. }) => {
                        mailbox.put(job);
                    }
                    // Cannot be: jobs are for drives that were started before.
                    _ => tracing::error!(?target, slot = %job.slot, "a job for a drive that does not run"),
                }
            }
            for (target, job) in router_jobs {
                match table.get(&target).map(|running| &running.work) {
                    Some(Work::Router { mailbox, .. }) => {
                        mailbox.put(job);
                    }
                    _ => tracing::error!(?target, slot = %job.slot, "a job for a drive that does not run"),
                }
            }
        }
        for write in writes {
            let kind = write.kind;
            if self.parts.outbox.put(write) {
                self.parts.meters.write(kind, WriteResult::Skipped);
            }
        }
        for (space, exposure) in exposures {
            self.tell_children(match exposure {
                Some(exposure) => children::Command::Have(exposure),
                None => children::Command::Forget(space),
            });
        }
        for event in events {
            log_event(&event);
            self.parts.events.tell(event);
        }
        for Note { config, warning, message } in notes {
            log("RouterConfig", &config, warning, None, &message);
        }
        self.count(&ready_after_ms, repairs, sizes, taken, took);
        wake_ms
    }

    fn tell_children(&self, command: children::Command) {
        // Once they have ended, nobody wishes anything.
        let _ = self.parts.children.send(command);
    }

    fn count(&self, ready: &[u64], repairs: u64, sizes: [usize; 3], taken: usize, took: std::time::Duration) {
        let metrics = &self.parts.meters.0;
        metrics.loops.settled(taken, took);
        metrics.repairs.inc_by(repairs);
        for ms in ready {
            metrics.ready_seconds.observe(*ms as f64 / 1000.0);
        }
        for (kind, count) in ["RouterConfig", "AddressSpace", "Address"].into_iter().zip(sizes) {
            metrics.objects(kind, count);
        }
        let outbox = &self.parts.outbox;
        metrics.queue("writer", outbox.depth(Class::Change), outbox.depth(Class::Repair), outbox.in_flight());
        let (mut change, mut repair, mut flying) = (0, 0, 0);
        let table = lock(&self.table);
        for running in table.values() {
            let [changes, repairs, under_way] = running.work.depths();
            (change, repair, flying) = (change + changes, repair + repairs, flying + under_way);
        }
        metrics.queue("drives", change, repair, flying);
        metrics.drives.set(i64::try_from(table.len()).unwrap_or(i64::MAX));
    }

    fn change_target(&mut self, change: TargetChange) {
        match change {
            TargetChange::Start { target, incarnation, broker, user, tls_secret, credentials_secret } => {
                let link = self.broker_link(&broker, tls_secret.as_ref(), credentials_secret.as_ref());
                let (commands, told) = mpsc::unbounded_channel();
                let mailbox = Mailbox::default();
                let drive = BrokerDrive {
                    target: target.clone(),
                    incarnation,
                    user,
                    link,
                    mailbox: mailbox.clone(),
                    permit: self.parts.permit.clone(),
                    commands: told,
                    reports: self.parts.reports.clone(),
                    limits: self.parts.limits.clone(),
                    jitter: self.parts.jitter.fork(),
                    meter: Arc::clone(&self.parts.meters) as _,
                };
                let work = Work::Broker { broker, mailbox, commands };
                self.start(target, incarnation, work, drive.run());
            }
            TargetChange::StartRouter { target, incarnation, router, owner, tls_secret, credentials_secret } => {
                let link = self.router_link(&router, tls_secret.as_ref(), credentials_secret.as_ref());
                let (commands, told) = mpsc::unbounded_channel();
                let mailbox = Mailbox::default();
                let id = target.clone();
                let drive = RouterDrive {
                    owner,
                    link,
                    mailbox: mailbox.clone(),
                    permit: self.parts.permit.clone(),
                    commands: told,
                    reports: self.parts.reports.clone(),
                    as_report: Box::new(move |link| Input::Router(id.clone(), incarnation, link)),
                    limits: Limits { window: router_actor::WINDOW, ..self.parts.limits.clone() },
                    jitter: self.parts.jitter.fork(),
                    meter: Arc::clone(&self.parts.meters) as _,
                    secrets: Arc::new(BrokerCredentials(self.parts.store.clone())),
                };
                let work = Work::Router { router, mailbox, commands };
                self.start(target, incarnation, work, drive.run());
            }
            TargetChange::Reconnect { target, incarnation, tls_secret, credentials_secret } => {
                let table = lock(&self.table);
                let Some(running) = table.get(&target).filter(|running| running.incarnation == incarnation) else {
                    return;
                };
                let (tls, credentials) = (tls_secret.as_ref(), credentials_secret.as_ref());
                match &running.work {
                    Work::Broker { broker, commands, .. } => {
                        let _ = commands.send(Command::Reconnect(self.broker_link(broker, tls, credentials)));
                    }
                    Work::Router { router, commands, .. } => {
                        let _ = commands.send(Command::Reconnect(self.router_link(router, tls, credentials)));
                    }
                }
            }
            TargetChange::Reread { target, incarnation } => {
                let table = lock(&self.table);
                if let Some(running) = table.get(&target).filter(|running| running.incarnation == incarnation) {
                    running.work.reread();
                }
            }
            TargetChange::Stop { target, incarnation } => {
                let runs = lock(&self.table).get(&target).is_some_and(|running| running.incarnation == incarnation);
                if runs {
                    self.stop(&target);
                }
            }
        }
    }

    /// Runs a drive, once the one before it has ended.
    fn start(
        &mut self,
        target: TargetId,
        incarnation: u64,
        work: Work,
        drive: impl Future<Output = ()> + Send + 'static,
    ) {
        self.stop(&target);
        let before = self.leaving.remove(&target);
        let ended = Stop::default();
        let end = ended.clone();
        let running = async move {
            // Two that act on one target would undo each other's work.
            if let Some(before) = before {
                before.requested().await;
            }
            drive.await;
            end.request();
            Ended::Expected
        };
        // Nobody starts anything once the process ends.
        let _ = self.parts.starter.send(running.boxed());
        lock(&self.table).insert(target, Running { incarnation, work, ended });
    }

    /// Stops a drive. Its successor waits for its end.
    fn stop(&mut self, target: &TargetId) {
        let Some(running) = lock(&self.table).remove(target) else { return };
        running.work.stop();
        self.leaving.retain(|_, ended| !ended.is_requested());
        self.leaving.insert(target.clone(), running.ended);
    }

    fn broker_link(&self, broker: &Broker, tls: Option<&Key>, credentials: Option<&Key>) -> Arc<dyn BrokerLink> {
        let named = |key: &Key| NamedSecret { key: key.clone(), data: self.parts.store.get(key) };
        self.parts.links.link(broker, tls.map(named), credentials.map(named))
    }

    fn router_link(&self, router: &Router, tls: Option<&Key>, credentials: Option<&Key>) -> Arc<dyn RouterLink> {
        let named = |key: &Key| NamedSecret { key: key.clone(), data: self.parts.store.get(key) };
        let endpoint = Endpoint { host: router.host.to_string(), port: router.port };
        self.parts.router_links.link(endpoint, tls.map(named), credentials.map(named))
    }
}
