//! One task per broker: keeps a session while the permit lasts, reads the broker on each connection, and carries out
//! what its mailbox holds, many jobs at a time.
//!
//! It alone takes from its mailbox, and every job that it takes is either answered or put back. A slow or hung broker
//! holds up nobody but itself: every wait has a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub use crate::drive::keep::Limits;

use super::carry::Carrier;
use super::link::{BrokerLink, BrokerSession, CallError, LinkError, SessionEvent};
use super::ops;
use super::read::{ReadError, read};
use crate::drive::keep::{self, End, Failure, Keeper, Orphaned, Serve, keep_connected};
use crate::drive::meter::Meter;
use crate::drive::pace::Pace;
use crate::engine::jitter::Jitter;
use crate::engine::mailbox::{Class, Mailbox};
use crate::engine::permit::Permit;
use crate::messaging::broker::{Contents, Done, Job, Outcome, Wish};
use crate::messaging::ids::{Slot, TargetId};
use crate::messaging::input::{Input, Link};

/// What a drive can be told besides its jobs.
pub type Command = keep::Command<dyn BrokerLink>;

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

impl BrokerDrive {
    /// Runs until told to stop, or until nobody listens.
    pub async fn run(self) {
        let Self { target, incarnation, user, link, mailbox, permit, commands, reports, limits, jitter, meter } = self;
        let keeper = Keeper { link, permit, commands, limits: limits.clone(), jitter };
        let pace = Pace::new(limits.window);
        let mut work = Work { target, incarnation, user, mailbox, reports, limits, meter, pace };
        // A drive that nobody listens to has nothing left to do.
        let _ = keep_connected(keeper, &mut work).await;
        work.mailbox.close();
    }
}

/// What a drive works with on a session, kept from one to the next.
struct Work {
    target: TargetId,
    incarnation: u64,
    user: Arc<str>,
    mailbox: Mailbox<Job>,
    reports: mpsc::Sender<Input>,
    limits: Limits,
    meter: Arc<dyn Meter>,
    pace: Pace,
}

impl Serve for Work {
    type Link = dyn BrokerLink;
    type Session = Box<dyn BrokerSession>;

    fn connect(link: &Self::Link) -> BoxFuture<'_, Result<Self::Session, LinkError>> {
        link.connect()
    }

    fn serve<'a>(
        &'a mut self,
        session: Self::Session,
        keeper: &'a mut Keeper<Self::Link>,
        was_read: &'a mut bool,
    ) -> BoxFuture<'a, Result<End, Orphaned>> {
        async move {
            let node = match self.identify(&*session).await {
                Ok(node) => node,
                Err(reason) => return Ok(End::Failed(Failure::Down(reason))),
            };
            self.report(Link::Connected(node)).await?;
            self.serve_session(&*session, keeper, was_read).await
        }
        .boxed()
    }

    fn ended(&mut self) {
        self.mailbox.lost();
    }

    fn tell(&mut self, failure: Failure) -> BoxFuture<'_, Result<(), Orphaned>> {
        self.report(match failure {
            Failure::Down(words) => Link::Down(words.into()),
            Failure::Unreadable(words) => Link::Unreadable(words.into()),
        })
        .boxed()
    }
}

impl Work {
    /// Which broker this is; none where it does not say. An error: the session is of no use.
    async fn identify(&self, session: &dyn BrokerSession) -> Result<Option<Arc<str>>, String> {
        let answer = timeout(self.limits.command, session.ask(ops::node_id())).await;
        match answer.unwrap_or(Err(CallError::TimedOut)) {
            Ok(node) => Ok(node.as_str().filter(|node| !node.is_empty()).map(Arc::from)),
            Err(CallError::Refused(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Serves one session. `was_read` says whether the broker could be read on it.
    async fn serve_session(
        &self,
        session: &dyn BrokerSession,
        keeper: &mut Keeper<dyn BrokerLink>,
        was_read: &mut bool,
    ) -> Result<End, Orphaned> {
        let (permit, pace) = (keeper.permit.clone(), &self.pace);
        let (user, meter) = (Arc::clone(&self.user), Arc::clone(&self.meter));
        let owner = user.strip_prefix("waystation:").unwrap_or(&user);
        let limits = self.limits.clone();
        let carrier = Carrier::new(session, owner, &permit, limits.command, &*meter, pace);
        let mut jobs = FuturesUnordered::new();
        // Slots with a job under way, and whether a queue went there by another's hand meanwhile: it may be the one that was
        // found, or made, a moment before.
        let mut in_flight: BTreeMap<Slot, bool> = BTreeMap::new();
        // Slots that were acted on, or told of, since the read began: what is known of them is newer than the read.
        let mut newer: BTreeSet<Slot> = BTreeSet::new();
        let carry_out = |job: Job| {
            let carrier = &carrier;
            async move {
                let result = carrier.carry_out(&job).await;
                (job, result)
            }
        };
        let begin_read = || read(session, owner, limits.window, limits.read).boxed();
        let mut reading: Option<BoxFuture<'_, Result<Contents, ReadError>>> = None;
        let mut read_next = true;
        let mut finishing = false;
        loop {
            if read_next && reading.is_none() {
                read_next = false;
                newer = in_flight.keys().cloned().collect();
                self.report(Link::Reading).await?;
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
                command = keeper.commands.recv() => match command {
                    Some(Command::Reconnect(new)) => {
                        keeper.link = new;
                        return Ok(End::Reconnect);
                    }
                    Some(Command::Reread) => read_next = true,
                    Some(Command::Finish) => finishing = true,
                    Some(Command::Stop) | None => return Ok(End::Stopped),
                },
                event = session.next_event() => {
                    let (name, queue) = match event {
                        SessionEvent::Lost(reason) => return Ok(End::Failed(Failure::Down(reason))),
                        SessionEvent::QueueRemoved { queue, .. } => (queue, true),
                        SessionEvent::AddressRemoved { address } => (address, false),
                    };
                    let removed = carrier.removed(&name, queue);
                    if reading.is_some() {
                        let known = removed.as_ref().filter(|(_, ours)| *ours).map(|(slot, _)| slot.clone());
                        newer.insert(known.unwrap_or_else(|| name.into()));
                    }
                    let Some((slot, ours)) = removed else { continue };
                    if let Some(went) = in_flight.get_mut(&slot).filter(|_| queue) {
                        *went = true;
                    }
                    if ours {
                        self.report(Link::Lost(slot)).await?;
                    }
                }
                Some((job, result)) = jobs.next(), if !jobs.is_empty() => {
                    let job: Job = job;
                    let result: Result<Result<Done, String>, String> = result;
                    let went = in_flight.remove(&job.slot) == Some(true);
                    if went && matches!(job.wish, Wish::Hold { .. }) && matches!(result, Ok(Ok(_))) {
                        in_flight.insert(job.slot.clone(), false);
                        jobs.push(carry_out(job));
                        continue;
                    }
                    match result {
                        Ok(result) => {
                            let outcome = Outcome { slot: job.slot.clone(), generation: job.generation, result };
                            self.report(Link::Outcome(outcome)).await?;
                            self.mailbox.done(&job.slot, job.generation);
                        }
                        Err(reason) => return Ok(End::Failed(Failure::Down(reason))),
                    }
                }
                contents = contents => {
                    reading = None;
                    match contents {
                        Ok(contents) => {
                            carrier.learn(&contents, &newer);
                            *was_read = true;
                            self.report(Link::Contents(Arc::new(contents))).await?;
                        }
                        Err(ReadError::Unreadable(words)) => return Ok(End::Failed(Failure::Unreadable(words))),
                        Err(ReadError::Dead(reason)) => return Ok(End::Failed(Failure::Down(reason))),
                    }
                }
                taken = self.mailbox.take(room, lowest), if room > 0 => {
                    if taken.is_empty() {
                        // Closed: the drive was replaced.
                        return Ok(End::Stopped);
                    }
                    for job in taken {
                        in_flight.insert(job.slot.clone(), false);
                        if reading.is_some() {
                            newer.insert(job.slot.clone());
                        }
                        jobs.push(carry_out(job));
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
