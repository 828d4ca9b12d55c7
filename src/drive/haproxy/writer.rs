//! When files are written: some milliseconds after the first change, and again a while after a failure. One write at a
//! time; it goes on beside commands.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::disk::DiskError;
use super::files::{Commit, Files, Written};
use crate::edge::render::FixedPart;
use crate::edge::wanted::Wanted;

/// After a failure: a disk that is full stays so for a while.
const AGAIN: Duration = Duration::from_secs(1);

/// What happened.
pub(super) enum Tick {
    /// It is time to write.
    Due,
    /// A write has ended.
    Ended(Result<Written, DiskError>),
}

/// Writes files at the right time.
pub(super) struct Writer {
    files: Files,
    delay: Duration,
    due: Option<Instant>,
    flying: Option<Commit>,
}

impl Writer {
    pub fn new(files: Files, delay: Duration) -> Self {
        Self { files, delay, due: None, flying: None }
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Something may have changed.
    pub fn note(&mut self, held: &mut Wanted) {
        self.files.note(held);
        if self.files.is_dirty() && self.due.is_none() {
            self.due = Some(Instant::now() + self.delay);
        }
    }

    /// The next thing that happens. Nothing is lost when the future is dropped.
    pub async fn tick(&mut self) -> Tick {
        if let Some(commit) = &mut self.flying {
            let result = (&mut commit.work).await;
            return self.ended(result);
        }
        match self.due {
            Some(due) => {
                sleep_until(due).await;
                self.due = None;
                Tick::Due
            }
            None => std::future::pending().await,
        }
    }

    fn ended(&mut self, result: Result<(), DiskError>) -> Tick {
        let Some(commit) = self.flying.take() else { return Tick::Ended(result.map(|()| Written::default())) };
        let written = self.files.committed(commit, result);
        if written.is_err() {
            self.due = Some(Instant::now() + AGAIN);
        } else if self.files.is_dirty() && self.due.is_none() {
            self.due = Some(Instant::now() + self.delay);
        }
        Tick::Ended(written)
    }

    /// Begins to write what is marked, unless a write is under way: then it is written after that.
    pub fn begin(&mut self, fixed: &FixedPart, held: &mut Wanted) {
        self.files.note(held);
        self.due = None;
        if self.flying.is_none() && self.files.is_dirty() {
            self.flying = Some(self.files.commit(fixed, held));
        }
    }

    /// The next step towards nothing being marked or under way; `None`: that is so.
    pub async fn settle(&mut self, fixed: &FixedPart, held: &mut Wanted) -> Option<Tick> {
        if self.flying.is_none() {
            self.begin(fixed, held);
        }
        match &mut self.flying {
            Some(commit) => {
                let result = (&mut commit.work).await;
                Some(self.ended(result))
            }
            None => None,
        }
    }

    /// Writes everything.
    pub async fn write_all(&mut self, fixed: &FixedPart, held: &mut Wanted) -> Result<Written, DiskError> {
        let mut before = Written::default();
        if let Some(commit) = &mut self.flying {
            let result = (&mut commit.work).await;
            if let Tick::Ended(Ok(written)) = self.ended(result) {
                before = written;
            }
        }
        self.due = None;
        let result = self.files.write_all(fixed, held).await;
        if result.is_err() {
            self.due = Some(Instant::now() + AGAIN);
        }
        let mut written = result?;
        written.certificates.extend(before.certificates);
        Ok(written)
    }

    /// Marks files that are not what was written; how many there are.
    pub async fn verify(&mut self, held: &mut Wanted) -> Result<usize, DiskError> {
        let count = self.files.verify(held).await?;
        if count > 0 && self.due.is_none() {
            self.due = Some(Instant::now());
        }
        Ok(count)
    }
}
