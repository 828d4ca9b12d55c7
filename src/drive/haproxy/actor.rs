//! One task per HAProxy: keeps a session with the worker, reads it on each connection, carries out what is wanted, and
//! has the files follow.
//!
//! It alone commands the process and writes its files. A process that is hung, gone, reloaded by somebody else or
//! started anew is read and completed: nobody needs to remember what was sent to it.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::disk::{Disk, DiskError};
use super::files::Files;
use super::fixed::Fixed;
use super::leaving::Leaving;
use super::ledger::Ledger;
use super::link::{ProcessLink, ReloadError};
pub use super::order::{Batch, Limits, Order, Report, State};
use super::serve::{End, Session};
use super::writer::{Tick, Writer};
use crate::drive::meter::Meter;
use crate::edge::input::Input;
use crate::edge::render::{FixedPart, Layout};
use crate::edge::wanted::{Change, Slot};
use crate::engine::clock::Clock;
use crate::engine::jitter::{Jitter, doubling};

/// Everything a drive works with.
pub struct HaproxyDrive {
    /// How to reach the process.
    pub link: Arc<dyn ProcessLink>,
    /// Where its files are.
    pub disk: Arc<dyn Disk>,
    /// What they are called.
    pub layout: Layout,
    /// Serves hosts without a certificate where no RouterConfig names one: a certificate with its key, as PEM.
    pub fallback_certificate: Arc<str>,
    /// What it is told. The first is a batch with everything; before it nothing is done.
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// Where it reports to.
    pub reports: mpsc::Sender<Report>,
    /// Bounds.
    pub limits: Limits,
    /// Spreads waits.
    pub jitter: Jitter,
    /// Tells files from processes that started before they were written.
    pub clock: Arc<dyn Clock>,
    /// Counts commands.
    pub meter: Arc<dyn Meter>,
}

/// What a drive works with, from session to session.
pub(super) struct Work {
    pub link: Arc<dyn ProcessLink>,
    pub layout: Layout,
    pub orders: mpsc::UnboundedReceiver<Order>,
    reports: mpsc::Sender<Report>,
    pub limits: Limits,
    pub jitter: Jitter,
    clock: Arc<dyn Clock>,
    pub meter: Arc<dyn Meter>,
    pub ledger: Ledger,
    pub leaving: Leaving,
    pub writer: Writer,
    /// The process that was served last: number and start.
    pub process: Option<(u32, u64)>,
    /// Whether the last that was connected to said what it is.
    pub answers: bool,
    /// When one last answered, or files were looked at since.
    verified: Instant,
    /// The newest generation that was told to be in force.
    pub in_force: u64,
    /// What needs a reload; none before the first batch.
    pub fixed: Option<Fixed>,
    pub last_surprise: Option<Instant>,
    pub finishing: bool,
    /// A comparison was asked for and not yet told of: whichever session there is, or comes next, has to make it.
    pub compare_asked: bool,
    told: Option<State>,
    told_disk: Option<Arc<str>>,
}

impl HaproxyDrive {
    /// Runs until told to finish, or until nobody listens.
    pub async fn run(self) {
        let Self { link, disk, layout, fallback_certificate, orders, reports, limits, jitter, clock, meter } = self;
        let files = Files::new(layout.clone(), disk);
        let mut work = Work {
            link,
            layout,
            orders,
            reports,
            jitter,
            clock,
            meter,
            ledger: Ledger::new(fallback_certificate),
            leaving: Leaving::default(),
            writer: Writer::new(files, limits.files),
            limits,
            process: None,
            answers: false,
            verified: Instant::now(),
            in_force: 0,
            fixed: None,
            last_surprise: None,
            finishing: false,
            compare_asked: false,
            told: None,
            told_disk: None,
        };
        work.run().await;
    }
}

impl Work {
    async fn run(&mut self) {
        while self.ledger.config().is_none() && !self.finishing {
            let order = self.orders.recv().await;
            self.ordered(order);
        }
        if let Some(config) = self.ledger.config().cloned() {
            let there = self.writer.files().fixed().await.unwrap_or_default();
            self.fixed = Some(Fixed::new(self.layout.clone(), &config, there));
        }
        if self.first_files().await.is_err() {
            return;
        }
        let mut failures = 0;
        while !self.finishing {
            let mut was_read = false;
            self.answers = false;
            let end = match self.link.connect().await {
                Ok(session) => Session::serve(self, &*session, &mut was_read).await,
                Err(error) => End::Failed(error.message),
            };
            if was_read {
                failures = 0;
            }
            let told = match end {
                End::Finished => Ok(()),
                // The one that takes over is there, or in a moment.
                End::Changed => Ok(()),
                End::Failed(words) => self.report(Report::State(State::Unreachable(words.into()))).await,
            };
            if told.is_err() || self.finishing {
                break;
            }
            if self.unanswered().await.is_err() {
                break;
            }
            let wait = doubling(self.limits.first_wait, self.limits.longest_wait, failures);
            failures += 1;
            if self.wait(self.jitter.spread(wait)).await.is_err() {
                break;
            }
        }
        let _ = self.last_files().await;
    }

    /// After a session, or none. What keeps a process from starting may be a file: one that has something else to say from
    /// now on, or one that is not what was written.
    async fn unanswered(&mut self) -> Result<(), End> {
        if self.answers {
            self.verified = Instant::now();
            return Ok(());
        }
        if self.fixed.as_mut().is_some_and(|fixed| fixed.unreachable(&self.limits)) {
            self.ledger.assume(&Default::default());
            self.write_all().await?;
        }
        if self.verified.elapsed() >= self.limits.reload {
            self.verified = Instant::now();
            let files = self.verify_files().await?;
            if files > 0 {
                self.report(Report::Compared { differences: 0, files }).await?;
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Takes in an order.
    pub fn ordered(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Batch(mut batch)) => {
                let fields = std::mem::take(&mut batch.reload);
                if let Some(fixed) = &mut self.fixed {
                    fixed.want(&batch.config, fields);
                }
                self.ledger.take(batch);
            }
            Some(Order::Compare) => self.compare_asked = true,
            Some(Order::Finish) | None => self.finishing = true,
        }
    }

    /// Between sessions: orders are taken in, and files follow what is wanted, since a process may be started from them.
    async fn wait(&mut self, wait: std::time::Duration) -> Result<(), End> {
        let over = sleep(wait);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => {
                    self.ordered(order);
                    if self.finishing {
                        return Ok(());
                    }
                    self.ledger.assume(&Default::default());
                    self.writer.note(self.ledger.held());
                }
                done = self.writer.tick() => self.wrote(done).await?,
                () = &mut over => return Ok(()),
            }
        }
    }

    /// Tells something; the same state is not told twice.
    pub async fn report(&mut self, report: Report) -> Result<(), End> {
        if let Report::State(state) = &report {
            if self.told.as_ref() == Some(state) {
                return Ok(());
            }
            self.told = Some(state.clone());
        }
        self.reports.send(report).await.map_err(|_| {
            self.finishing = true;
            End::Finished
        })
    }

    /// Tells that everything up to the newest batch is in force, when it is: also what needs a reload.
    pub async fn tell_in_force(&mut self) -> Result<(), End> {
        let generation = self.ledger.generation();
        if self.fixed.as_ref().is_some_and(Fixed::is_outdated) {
            return Ok(());
        }
        if self.in_force != generation && self.ledger.is_settled() {
            self.in_force = generation;
            self.report(Report::Model(Input::InForce(generation))).await?;
        }
        Ok(())
    }

    // === Files ===

    fn files(&self) -> Option<Arc<FixedPart>> {
        self.fixed.as_ref().map(Fixed::files)
    }

    /// Everything, before there is a process: it is started from them.
    async fn first_files(&mut self) -> Result<(), End> {
        match self.writer.files().tried(self.ledger.untried()).await {
            Ok(tried) => self.ledger.assume(&tried),
            Err(_) => self.ledger.assume(&Default::default()),
        };
        self.write_all().await.map(|_| ())
    }

    /// Writes everything; says whether that went well. What does not is tried again.
    pub async fn write_all(&mut self) -> Result<bool, End> {
        let Some(fixed) = self.files() else { return Ok(false) };
        let result = self.writer.write_all(&fixed, self.ledger.held()).await;
        if let Ok(written) = &result {
            self.certificates_written(&written.certificates);
        }
        self.told_of_disk(result.as_ref().err()).await?;
        Ok(result.is_ok())
    }

    /// What the writer came to.
    pub async fn wrote(&mut self, tick: Tick) -> Result<(), End> {
        match tick {
            Tick::Due if self.writer.files().complete() => {
                if let Some(fixed) = self.files() {
                    self.writer.begin(&fixed, self.ledger.held());
                }
                Ok(())
            }
            Tick::Due => self.write_all().await.map(|_| ()),
            Tick::Ended(Ok(written)) => {
                self.certificates_written(&written.certificates);
                self.told_of_disk(None).await
            }
            Tick::Ended(Err(error)) => self.told_of_disk(Some(&error)).await,
        }
    }

    fn certificates_written(&mut self, names: &[Arc<str>]) {
        let now_s = u64::try_from(self.clock.unix_s()).unwrap_or(0);
        for name in names {
            self.ledger.certificate_written(name, now_s);
        }
    }

    async fn told_of_disk(&mut self, error: Option<&DiskError>) -> Result<(), End> {
        let words: Option<Arc<str>> = error.map(|error| error.to_string().into());
        if self.told_disk.is_some() != words.is_some() {
            self.report(Report::Files(words.clone())).await?;
        }
        self.told_disk = words;
        Ok(())
    }

    /// Users of basic authentication are asked for in their files: they must be there before what names them is.
    pub async fn write_users(&mut self, changes: &[Change]) -> Result<(), End> {
        let mut any = false;
        for change in changes.iter().filter(|c| matches!(c.slot, Slot::Users(_)) && c.after.is_some()) {
            any = true;
            self.ledger.acknowledged(&change.slot);
        }
        if any {
            self.writer.note(self.ledger.held());
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes what is marked, now.
    async fn flush(&mut self) -> Result<(), End> {
        let Some(fixed) = self.files() else { return Ok(()) };
        if !self.writer.files().complete() {
            // Some of it would be no files that a process could be started from.
            return self.write_all().await.map(drop);
        }
        while let Some(tick) = self.writer.settle(&fixed, self.ledger.held()).await {
            let failed = matches!(tick, Tick::Ended(Err(_)));
            self.wrote(tick).await?;
            if failed {
                break;
            }
        }
        Ok(())
    }

    /// Whether files are what they were written as; how many were not. They are written anew.
    pub async fn verify_files(&mut self) -> Result<usize, End> {
        self.flush().await?;
        match self.writer.verify(self.ledger.held()).await {
            Ok(count) => Ok(count),
            Err(error) => self.told_of_disk(Some(&error)).await.map(|()| 0),
        }
    }

    async fn last_files(&mut self) -> Result<(), End> {
        self.writer.note(self.ledger.held());
        self.flush().await
    }

    // === Reloads ===

    /// When a reload that is needed may be done.
    pub fn reload_at(&self) -> Option<Instant> {
        self.fixed.as_ref()?.reload_at(&self.limits)
    }

    pub fn reload_due(&self) -> bool {
        self.reload_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether a process that is far behind may be started from the files: not again and again.
    pub fn may_refill(&self) -> bool {
        self.link.reloads() && self.fixed.as_ref().is_some_and(|fixed| fixed.may_reload(&self.limits))
    }

    /// Has the files, with all that is wanted, loaded by a new process. Whether the old one is no more to be talked to
    /// as if it was known; one that refuses them goes on, and so do we.
    pub async fn reload(&mut self) -> Result<bool, End> {
        let Some(fixed) = &mut self.fixed else { return Ok(false) };
        let (before, reasons) = fixed.begin();
        if let Err(words) = self.link.bindable(&fixed.new_binds(&before)) {
            let words = fixed.refused(before, &ReloadError::Refused(words), &self.limits, &self.jitter);
            self.ledger.forget_refusals();
            self.report(Report::ReloadFailed(words)).await?;
            return Ok(false);
        }
        let assumed = self.ledger.assume(&Default::default()) > 0;
        if !self.write_all().await? {
            // Asked for again when the disk has room; what is followed at run time is followed.
            if let Some(fixed) = &mut self.fixed {
                fixed.put_back(before);
            }
            return Ok(assumed);
        }
        let link = Arc::clone(&self.link);
        let loaded = timeout(self.limits.read, link.reload()).await.unwrap_or(Err(ReloadError::TimedOut));
        let Some(fixed) = &mut self.fixed else { return Ok(true) };
        match loaded {
            Ok(()) => {
                fixed.loaded();
                self.report(Report::Reloaded(reasons)).await?;
                Ok(true)
            }
            Err(error) => {
                let words = fixed.refused(before, &error, &self.limits, &self.jitter);
                // At once: HAProxy may end at any time, and must start from them.
                self.write_all().await?;
                // Not told while it was about to end.
                self.ledger.forget_refusals();
                self.report(Report::ReloadFailed(words)).await?;
                Ok(assumed || error == ReloadError::TimedOut)
            }
        }
    }
}
