//! One task per router: keeps a session while the permit lasts, reads the router on each connection, and carries out
//! what its mailbox holds, many jobs at a time.
//!
//! It alone takes from its mailbox, and every job that it takes is either answered or put back. A slow or hung router
//! holds up nobody but itself: every wait has a deadline.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc;

use super::carry::{Caller, Carrier, Logins, Means, Secrets};
use super::link::{LinkError, RouterLink, RouterSession, Type};
use super::names::Names;
use super::read::{ReadError, Reading, pages, read};
use crate::drive::keep::{self, End, Failure, Keeper, Limits, Orphaned, Serve, keep_connected};
use crate::drive::meter::Meter;
use crate::drive::pace::Pace;
use crate::engine::jitter::Jitter;
use crate::engine::mailbox::{Class, Mailbox};
use crate::engine::permit::Permit;
use crate::messaging::ids::Slot;
use crate::messaging::router::{Done, Job, Outcome, RouterLink as Report};

/// Requests under way at a router that answers quickly.
pub const WINDOW: usize = 400;
/// Jobs under way for each request: those that wait for their links, or for their slot, send nothing.
const JOBS: usize = 4;
/// Requests that a job sends at once.
const BURST: usize = 3;

/// What a drive can be told besides its jobs.
pub type Command = keep::Command<dyn RouterLink>;

/// Everything a drive works with.
pub struct RouterDrive<T> {
    /// Marks what is ours.
    pub owner: Arc<str>,
    /// How to reach it.
    pub link: Arc<dyn RouterLink>,
    /// Its work.
    pub mailbox: Mailbox<Job>,
    /// Whether it may act.
    pub permit: Permit,
    /// What it is told besides.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// Where it reports to.
    pub reports: mpsc::Sender<T>,
    /// What a report is there.
    pub as_report: Box<dyn Fn(Report) -> T + Send + Sync>,
    /// Bounds.
    pub limits: Limits,
    /// Spreads reconnects.
    pub jitter: Jitter,
    /// Counts commands.
    pub meter: Arc<dyn Meter>,
    /// What connectors log in with.
    pub secrets: Arc<dyn Secrets>,
}

impl<T: Send + 'static> RouterDrive<T> {
    /// Runs until told to stop, or until nobody listens.
    pub async fn run(self) {
        let Self { owner, link, mailbox, permit, commands, reports, as_report, limits, jitter, meter, secrets } = self;
        let seed = jitter.next();
        let keeper = Keeper { link, permit, commands, limits: limits.clone(), jitter };
        let mut work = Work {
            names: Names::new(&owner),
            mailbox,
            reports,
            as_report,
            pace: Pace::new(limits.window),
            limits,
            meter,
            secrets,
            logins: Logins::default(),
            seed,
        };
        // A drive that nobody listens to has nothing left to do.
        let _ = keep_connected(keeper, &mut work).await;
        work.mailbox.close();
    }
}

/// What a drive works with on a session, kept from one to the next.
struct Work<T> {
    names: Names,
    mailbox: Mailbox<Job>,
    reports: mpsc::Sender<T>,
    as_report: Box<dyn Fn(Report) -> T + Send + Sync>,
    pace: Pace,
    limits: Limits,
    meter: Arc<dyn Meter>,
    secrets: Arc<dyn Secrets>,
    logins: Logins,
    seed: u64,
}

impl<T: Send + 'static> Serve for Work<T> {
    type Link = dyn RouterLink;
    type Session = Box<dyn RouterSession>;

    fn connect(link: &Self::Link) -> BoxFuture<'_, Result<Self::Session, LinkError>> {
        link.connect()
    }

    fn serve<'a>(
        &'a mut self,
        session: Self::Session,
        keeper: &'a mut Keeper<Self::Link>,
        was_read: &'a mut bool,
    ) -> BoxFuture<'a, Result<End, Orphaned>> {
        async move { self.serve_session(&*session, keeper, was_read).await }.boxed()
    }

    fn ended(&mut self) {
        self.mailbox.lost();
    }

    fn tell(&mut self, failure: Failure) -> BoxFuture<'_, Result<(), Orphaned>> {
        self.report(match failure {
            Failure::Down(words) => Report::Down(words.into()),
            Failure::Unreadable(words) => Report::Unreadable(words.into()),
        })
        .boxed()
    }
}

/// A job (none for what we gave ourselves to do), and what came of it; or why the session is of no use any more.
type Carried = (Option<Job>, Result<Result<Done, String>, String>);

/// What a session does beside its jobs, one after the other.
enum Stage {
    /// Whether our readiness listener is there.
    Greeted {
        serving: bool,
    },
    Read(Box<Reading>),
}

impl<T: Send + 'static> Work<T> {
    async fn serve_session(
        &self,
        session: &dyn RouterSession,
        keeper: &mut Keeper<dyn RouterLink>,
        was_read: &mut bool,
    ) -> Result<End, Orphaned> {
        let permit = keeper.permit.clone();
        let means = Means {
            names: &self.names,
            permit: &permit,
            deadline: self.limits.command,
            logins: &self.logins,
            secrets: &*self.secrets,
            seed: self.seed,
        };
        let (teller, mut told) = mpsc::unbounded_channel();
        let carrier = Carrier::new(means, Caller::new(session, &*self.meter, &self.pace), teller);
        let carrier = &carrier;
        let mut jobs: FuturesUnordered<BoxFuture<'_, Carried>> = FuturesUnordered::new();
        let mut in_flight: BTreeSet<Slot> = BTreeSet::new();
        // Slots that were acted on since the read began: what is known of them is newer than the read.
        let mut newer: BTreeSet<Slot> = BTreeSet::new();
        let begin_read = || {
            read(carrier.caller(), &self.names, session.abilities(), self.seed, self.limits.read)
                .map(|read| read.map(|read| Stage::Read(Box::new(read))))
                .boxed()
        };
        let greeting = self.is_ready(carrier.caller()).map(|there| there.map(|serving| Stage::Greeted { serving }));
        let mut stage: Option<BoxFuture<'_, Result<Stage, ReadError>>> = Some(greeting.boxed());
        let mut greeted = false;
        let mut read_next = true;
        let mut finishing = false;
        let minding = async {
            tokio::select! {
                biased;
                reason = carrier.keep_connectors() => reason,
                reason = carrier.keep_links() => reason,
            }
        };
        tokio::pin!(minding);
        loop {
            if read_next && stage.is_none() {
                read_next = false;
                newer.clone_from(&in_flight);
                self.report(Report::Reading).await?;
                stage = Some(begin_read());
            }
            // Jobs that wait for the read have not begun anything.
            if finishing && jobs.len() == carrier.parked() {
                return Ok(End::Stopped);
            }
            let under_way = jobs.len().saturating_sub(carrier.parked());
            let may_take = greeted && !finishing && under_way < self.limits.window * JOBS;
            let room = if may_take { carrier.caller().room().div_ceil(BURST) } else { 0 };
            // What waits for a change goes at once; comparing and refilling follow what was read.
            let lowest = if *was_read { Class::Repair } else { Class::Change };
            let next_stage = async {
                match &mut stage {
                    Some(stage) => stage.await,
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
                reason = session.lost() => return Ok(End::Failed(Failure::Down(reason))),
                Some((job, result)) = jobs.next(), if !jobs.is_empty() => match (job, result) {
                    (_, Err(reason)) => return Ok(End::Failed(Failure::Down(reason))),
                    (None, Ok(_)) => {}
                    (Some(job), Ok(result)) => {
                        in_flight.remove(&job.slot);
                        let outcome = Outcome { slot: job.slot.clone(), generation: job.generation, result };
                        self.report(Report::Outcome(outcome)).await?;
                        self.mailbox.done(&job.slot, job.generation);
                    }
                },
                Some(report) = told.recv(), if greeted => self.report(report).await?,
                next = next_stage => {
                    stage = None;
                    match next {
                        Ok(Stage::Greeted { serving }) => {
                            greeted = true;
                            self.report(Report::Connected { abilities: session.abilities(), serving, peer: session.peer() }).await?;
                        }
                        Ok(Stage::Read(reading)) => {
                            let Reading { memory, contents } = *reading;
                            for (slot, found) in carrier.learn(memory, newer.iter()) {
                                jobs.push(async move {
                                    let tidied = carrier.tidy(&slot, &found).await;
                                    (None, tidied.map(|()| Ok(Done::Gone)))
                                }.boxed());
                            }
                            *was_read = true;
                            self.report(Report::Contents(Arc::new(contents))).await?;
                        }
                        Err(ReadError::Unreadable(words)) => return Ok(End::Failed(Failure::Unreadable(words))),
                        Err(ReadError::Dead(reason)) => return Ok(End::Failed(Failure::Down(reason))),
                    }
                }
                reason = &mut minding => return Ok(End::Failed(Failure::Down(reason))),
                taken = self.mailbox.take(room, lowest), if room > 0 => {
                    if taken.is_empty() {
                        // Closed: the drive was replaced.
                        return Ok(End::Stopped);
                    }
                    for job in taken {
                        in_flight.insert(job.slot.clone());
                        if stage.is_some() {
                            newer.insert(job.slot.clone());
                        }
                        jobs.push(async move {
                            let result = carrier.carry_out(&job).await;
                            (Some(job), result)
                        }.boxed());
                    }
                }
                () = carrier.caller().eased(), if may_take && room == 0 => {}
            }
        }
    }

    async fn is_ready(&self, caller: &Caller<'_>) -> Result<bool, ReadError> {
        let ready = self.names.readiness();
        let mut there = false;
        pages(caller, Type::Listener, &["name"], 1, self.limits.command, |row| {
            there |= row.first() == Some(&Value::String(ready.clone()));
        })
        .await?;
        Ok(there)
    }

    async fn report(&self, report: Report) -> Result<(), Orphaned> {
        self.reports.send((self.as_report)(report)).await.map_err(|_| Orphaned)
    }
}

#[cfg(test)]
mod tests;
