//! One task per broker: keeps a session while the permit lasts, reads the broker on each connection, and carries out
//! what its mailbox holds, many jobs at a time.
//!
//! It alone takes from its mailbox, and every job that it takes is either answered or put back. A slow or hung broker
//! holds up nobody but itself: every wait has a deadline.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::carry::{Carrier, Meter};
use super::link::{BrokerLink, BrokerSession, LinkError, SessionEvent};
use super::pace::Pace;
use super::read::{ReadError, read};
use crate::engine::jitter::{Jitter, doubling};
use crate::engine::mailbox::{Class, Item, Mailbox};
use crate::engine::permit::Permit;
use crate::messaging::broker::{self, Contents, Done, Job, Outcome};
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::{Input, Link};

impl Item for Job {
    type Slot = Slot;
    type Tenant = Key;

    fn slot(&self) -> Slot {
        Arc::clone(&self.slot)
    }

    fn tenant(&self) -> &Key {
        &self.tenant
    }

    fn class(&self) -> Class {
        match self.class {
            broker::Class::Change => Class::Change,
            broker::Class::Repair => Class::Repair,
        }
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

/// Bounds of a drive.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Jobs under way, where the broker is quick; see [`super::pace`].
    pub window: usize,
    /// For a command: an answer that takes longer ends the session; none is sent while the permit lasts less.
    pub command: Duration,
    /// For a question that reads a whole broker.
    pub read: Duration,
    /// For a connection.
    pub connect: Duration,
    /// Wait after the first failed connection; doubles.
    pub first_wait: Duration,
    /// Longest wait between connections.
    pub longest_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: 100,
            command: Duration::from_secs(5),
            read: Duration::from_secs(60),
            connect: Duration::from_secs(10),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(10),
        }
    }
}

/// What a drive can be told besides its jobs.
pub enum Command {
    /// Connect anew, by this link.
    Reconnect(Arc<dyn BrokerLink>),
    /// Read everything again.
    Reread,
    /// Take nothing more; end when what is in flight is answered.
    Finish,
    /// End at once.
    Stop,
}

/// Everything a drive works with.
pub struct BrokerDrive {
    /// Which broker.
    pub target: TargetId,
    /// Comes back with every report.
    pub incarnation: u64,
    /// `user` of what is ours there: `waystation:<owner>`.
    pub user: Arc<str>,
    /// How to reach it.
    pub link: Arc<dyn BrokerLink>,
    /// Its work.
    pub mailbox: Mailbox<Job>,
    /// Whether it may act.
    pub permit: Permit,
    /// What it is told besides.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// Where it reports to.
    pub reports: mpsc::Sender<Input>,
    /// Bounds.
    pub limits: Limits,
    /// Spreads reconnects.
    pub jitter: Jitter,
    /// Counts commands.
    pub meter: Arc<dyn Meter>,
}

/// Why a session, or the wait for one, ended.
enum End {
    Stopped,
    Revoked,
    Reconnect,
    Failed(Reported),
}

#[derive(Clone, PartialEq)]
enum Reported {
    Down(String),
    Unreadable(String),
}

/// Nobody listens to reports any more.
struct Orphaned;

impl BrokerDrive {
    /// Runs until told to stop, or until nobody listens.
    pub async fn run(mut self) {
        // A drive that nobody listens to has nothing left to do.
        let _ = self.keep_connected().await;
        self.mailbox.close();
    }

    async fn keep_connected(&mut self) -> Result<(), Orphaned> {
        let mut told: Option<Reported> = None;
        let mut failures = 0;
        let pace = Pace::new(self.limits.window);
        loop {
            if let Some(end) = self.wait_for(None).await {
                match end {
                    End::Stopped => return Ok(()),
                    _ => continue,
                }
            }
            let (end, read) = match self.connect().await {
                Ok(session) => {
                    self.report(Link::Connected).await?;
                    let mut read = false;
                    let end = self.serve(&*session, &pace, &mut read).await?;
                    (end, read)
                }
                Err(end) => (end, false),
            };
            self.mailbox.lost();
            if read {
                (told, failures) = (None, 0);
            }
            match end {
                End::Stopped => return Ok(()),
                End::Revoked | End::Reconnect => failures = 0,
                End::Failed(reason) => {
                    tracing::debug!(target = ?self.target, failures, "no session");
                    if told.as_ref() != Some(&reason) {
                        told = Some(reason.clone());
                        self.report(match reason {
                            Reported::Down(words) => Link::Down(words.into()),
                            Reported::Unreadable(words) => Link::Unreadable(words.into()),
                        })
                        .await?;
                    }
                    let wait = doubling(self.limits.first_wait, self.limits.longest_wait, failures);
                    failures += 1;
                    match self.wait_for(Some(self.jitter.spread(wait))).await {
                        Some(End::Stopped) => return Ok(()),
                        Some(End::Reconnect) => failures = 0,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Waits for a time, or for the permit; ends early when told something.
    async fn wait_for(&mut self, wait: Option<Duration>) -> Option<End> {
        let Self { commands, permit, limits, link, .. } = self;
        let over = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => permit.granted(limits.command).await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Reconnect(new)) => {
                        *link = new;
                        return Some(End::Reconnect);
                    }
                    // A new connection is read anyway.
                    Some(Command::Reread) => {}
                    // Nothing is in flight without a session.
                    Some(Command::Finish | Command::Stop) | None => return Some(End::Stopped),
                },
                () = &mut over => return None,
            }
        }
    }

    async fn connect(&mut self) -> Result<Box<dyn BrokerSession>, End> {
        let link = Arc::clone(&self.link);
        let late = LinkError { category: "timeout", message: "no connection in time".to_owned() };
        let connecting = async { timeout(self.limits.connect, link.connect()).await.unwrap_or(Err(late)) };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                () = self.permit.revoked() => return Err(End::Revoked),
                command = self.commands.recv() => match command {
                    Some(Command::Reconnect(new)) => {
                        self.link = new;
                        return Err(End::Reconnect);
                    }
                    Some(Command::Reread) => {}
                    Some(Command::Finish | Command::Stop) | None => return Err(End::Stopped),
                },
                connected = &mut connecting => {
                    return connected.map_err(|error| End::Failed(Reported::Down(error.message)));
                }
            }
        }
    }

    /// Serves one session. `was_read` says whether the broker could be read on it.
    async fn serve(&mut self, session: &dyn BrokerSession, pace: &Pace, was_read: &mut bool) -> Result<End, Orphaned> {
        let permit = self.permit.clone();
        let (user, meter) = (Arc::clone(&self.user), Arc::clone(&self.meter));
        let owner = user.strip_prefix("waystation:").unwrap_or(&user);
        let limits = self.limits.clone();
        let carrier = Carrier::new(session, owner, &permit, limits.command, &*meter, pace);
        let mut jobs = FuturesUnordered::new();
        let mut in_flight: BTreeSet<Slot> = BTreeSet::new();
        // Slots that were acted on, or told of, since the read began: what is known of them is newer than the read.
        let mut newer: BTreeSet<Slot> = BTreeSet::new();
        let begin_read = || read(session, owner, limits.window, limits.read).boxed();
        let mut reading: Option<BoxFuture<'_, Result<Contents, ReadError>>> = None;
        let mut read_next = true;
        let mut finishing = false;
        loop {
            if read_next && reading.is_none() {
                read_next = false;
                newer.clone_from(&in_flight);
                self.report(Link::Reading).await?;
                carrier.reading(true);
                reading = Some(begin_read());
            }
            if finishing && jobs.is_empty() {
                return Ok(End::Stopped);
            }
            let room = if finishing { 0 } else { pace.window().saturating_sub(jobs.len()) };
            // What waits for a change goes at once; comparing and refilling follow what was read.
            let lowest = if *was_read { Class::Repair } else { Class::Change };
            let contents = async {
                match &mut reading {
                    Some(reading) => reading.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = permit.revoked() => return Ok(End::Revoked),
                command = self.commands.recv() => match command {
                    Some(Command::Reconnect(new)) => {
                        self.link = new;
                        return Ok(End::Reconnect);
                    }
                    Some(Command::Reread) => read_next = true,
                    Some(Command::Finish) => finishing = true,
                    Some(Command::Stop) | None => return Ok(End::Stopped),
                },
                event = session.next_event() => {
                    let (name, queue) = match event {
                        SessionEvent::Lost(reason) => return Ok(End::Failed(Reported::Down(reason))),
                        SessionEvent::QueueRemoved { queue, .. } => (queue, true),
                        SessionEvent::AddressRemoved { address } => (address, false),
                    };
                    let ours = carrier.removed(&name, queue);
                    let name = Slot::from(name);
                    if reading.is_some() {
                        newer.insert(name.clone());
                    }
                    if ours {
                        self.report(Link::Lost(name)).await?;
                    }
                }
                Some((job, result)) = jobs.next(), if !jobs.is_empty() => {
                    let job: Job = job;
                    let result: Result<Result<Done, String>, String> = result;
                    in_flight.remove(&job.slot);
                    match result {
                        Ok(result) => {
                            let outcome = Outcome { slot: job.slot.clone(), generation: job.generation, result };
                            self.report(Link::Outcome(outcome)).await?;
                            self.mailbox.done(&job.slot, job.generation);
                        }
                        Err(reason) => return Ok(End::Failed(Reported::Down(reason))),
                    }
                }
                contents = contents => {
                    reading = None;
                    carrier.reading(false);
                    match contents {
                        Ok(contents) => {
                            carrier.learn(&contents, &newer);
                            *was_read = true;
                            self.report(Link::Contents(Arc::new(contents))).await?;
                        }
                        Err(ReadError::Unreadable(words)) => return Ok(End::Failed(Reported::Unreadable(words))),
                        Err(ReadError::Dead(reason)) => return Ok(End::Failed(Reported::Down(reason))),
                    }
                }
                taken = self.mailbox.take(room, lowest), if room > 0 => {
                    if taken.is_empty() {
                        // Closed: the drive was replaced.
                        return Ok(End::Stopped);
                    }
                    for job in taken {
                        in_flight.insert(job.slot.clone());
                        if reading.is_some() {
                            newer.insert(job.slot.clone());
                        }
                        let carrier = &carrier;
                        jobs.push(async move {
                            let result = carrier.carry_out(&job).await;
                            (job, result)
                        });
                    }
                }
            }
        }
    }

    async fn report(&self, link: Link) -> Result<(), Orphaned> {
        let input = Input::Target(self.target.clone(), self.incarnation, link);
        self.reports.send(input).await.map_err(|_| Orphaned)
    }
}

#[cfg(test)]
mod tests;
