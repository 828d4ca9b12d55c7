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
use super::leaving::Leaving;
use super::ledger::Ledger;
use super::link::ProcessLink;
pub use super::order::{Batch, Limits, Order, Report, State};
use super::serve::{End, Session};
use super::writer::{Tick, Writer};
use crate::drive::meter::Meter;
use crate::edge::input::Input;
use crate::edge::render::Layout;
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
    /// The newest generation that was told to be in force.
    pub in_force: u64,
    /// Fields that a reload was asked for by.
    pub reload_wanted: Vec<&'static str>,
    last_reload: Option<Instant>,
    pub last_surprise: Option<Instant>,
    pub finishing: bool,
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
            in_force: 0,
            reload_wanted: Vec::new(),
            last_reload: None,
            last_surprise: None,
            finishing: false,
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
        if self.first_files().await.is_err() {
            return;
        }
        let mut failures = 0;
        while !self.finishing {
            let mut was_read = false;
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
            let wait = doubling(self.limits.first_wait, self.limits.longest_wait, failures);
            failures += 1;
            if self.wait(self.jitter.spread(wait)).await.is_err() {
                break;
            }
        }
        let _ = self.last_files().await;
    }

    /// Takes in an order; gives back what a session must know of.
    pub fn ordered(&mut self, order: Option<Order>) -> Option<Order> {
        match order {
            Some(Order::Batch(mut batch)) => {
                let first = self.ledger.config().is_none();
                let reload = std::mem::take(&mut batch.reload);
                self.ledger.take(batch);
                if !first {
                    self.reload_wanted.extend(reload);
                    self.reload_wanted.sort_unstable();
                    self.reload_wanted.dedup();
                }
                None
            }
            Some(Order::Compare) => order,
            Some(Order::Finish) | None => {
                self.finishing = true;
                None
            }
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

    /// Tells that everything up to the newest batch is in force, when it is.
    pub async fn tell_in_force(&mut self) -> Result<(), End> {
        let generation = self.ledger.generation();
        if self.in_force != generation && self.ledger.is_settled() {
            self.in_force = generation;
            self.report(Report::Model(Input::InForce(generation))).await?;
        }
        Ok(())
    }

    // === Files ===

    /// Everything, before there is a process: it is started from them.
    async fn first_files(&mut self) -> Result<(), End> {
        match self.writer.files().tried(self.ledger.untried()).await {
            Ok(tried) => self.ledger.assume(&tried),
            Err(_) => self.ledger.assume(&Default::default()),
        };
        self.write_all().await.map(|_| ())
    }

    /// Writes everything; says whether that went well. What does not is tried again.
    async fn write_all(&mut self) -> Result<bool, End> {
        let Some(config) = self.ledger.config().cloned() else { return Ok(false) };
        let result = self.writer.write_all(&config, self.ledger.held()).await;
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
                if let Some(config) = self.ledger.config().cloned() {
                    self.writer.begin(&config, self.ledger.held());
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
        let Some(config) = self.ledger.config().cloned() else { return Ok(()) };
        while let Some(tick) = self.writer.settle(&config, self.ledger.held()).await {
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

    /// When a reload that was asked for may be done.
    pub fn reload_at(&self) -> Option<Instant> {
        let earliest = || self.last_reload.map_or_else(Instant::now, |last| last + self.limits.reload);
        (!self.reload_wanted.is_empty()).then(earliest)
    }

    pub fn reload_due(&self) -> bool {
        self.reload_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether a process that is far behind may be started from the files: not again and again.
    pub fn may_refill(&self) -> bool {
        self.last_reload.is_none_or(|last| last.elapsed() >= self.limits.reload)
    }

    /// Has the files, with all that is wanted, loaded by a new process.
    pub async fn reload(&mut self, fields: Vec<&'static str>) -> Result<(), End> {
        self.last_reload = Some(Instant::now());
        self.ledger.assume(&Default::default());
        if !self.write_all().await? {
            // Asked for again when the disk has room; what is followed at run time is followed.
            self.reload_wanted.extend(fields.into_iter().filter(|field| *field != "behind"));
            return Ok(());
        }
        let link = Arc::clone(&self.link);
        match timeout(self.limits.read, link.reload()).await {
            Ok(Ok(())) => self.report(Report::Reloaded(fields)).await,
            Ok(Err(error)) => self.report(Report::ReloadFailed(error.to_string().into())).await,
            Err(_) => self.report(Report::ReloadFailed("no answer in time".into())).await,
        }
    }
}
