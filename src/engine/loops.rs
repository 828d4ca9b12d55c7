//! The loops of a process: they stand in one set, and when one ends that should not, or panics, all of it ends.

use std::future::Future;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

/// Why a process ended that was not asked to.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A loop that never ends has ended.
    #[error("the loop of the {0} has ended")]
    Ended(&'static str),
    /// A loop panicked; the panic itself is in the log.
    #[error("a loop failed: {0}")]
    Failed(#[source] JoinError),
}

/// How one loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was to end some day.
    Expected,
    /// It was not.
    Unexpected(&'static str),
}

/// A loop to be run beside the others.
pub type Loop = BoxFuture<'static, Ended>;

/// A loop that must not end.
pub fn endless(name: &'static str, running: impl Future<Output = ()> + Send + 'static) -> Loop {
    running.map(move |()| Ended::Unexpected(name)).boxed()
}

/// What a task came to; none if it was told to end. A panic in it goes on in whoever asks, and so ends the process: a task
/// that is waited for by nobody would be missed by nobody.
pub fn pass_on<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(value) => Some(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// All loops, and the wish to end.
pub struct Loops {
    loops: JoinSet<Ended>,
    shutdown: BoxFuture<'static, ()>,
}

impl Loops {
    /// These loops, until `shutdown` resolves.
    pub fn new(loops: JoinSet<Ended>, shutdown: BoxFuture<'static, ()>) -> Self {
        Self { loops, shutdown }
    }

    /// Runs them, and those that come, until it is asked to end.
    ///
    /// # Errors
    /// When a loop fails.
    pub async fn until_shutdown(&mut self, to_start: &mut mpsc::UnboundedReceiver<Loop>) -> Result<(), LoopError> {
        loop {
            tokio::select! {
                biased;
                () = &mut self.shutdown => return Ok(()),
                Some(new) = to_start.recv() => {
                    self.loops.spawn(new);
                }
                Some(ended) = self.loops.join_next() => judge(ended)?,
            }
        }
    }

    /// Runs them until something is done, or until its time is over.
    ///
    /// # Errors
    /// When a loop fails.
    pub async fn meanwhile(&mut self, deadline: Instant, done: impl Future<Output = ()>) -> Result<(), LoopError> {
        let done = timeout_at(deadline, done);
        tokio::pin!(done);
        loop {
            tokio::select! {
                biased;
                in_time = &mut done => {
                    if in_time.is_err() {
                        tracing::warn!("not everything in flight was answered in time");
                    }
                    return Ok(());
                }
                Some(ended) = self.loops.join_next() => judge(ended)?,
            }
        }
    }
}

fn judge(ended: Result<Ended, JoinError>) -> Result<(), LoopError> {
    match ended.map_err(LoopError::Failed)? {
        Ended::Expected => Ok(()),
        Ended::Unexpected(name) => Err(LoopError::Ended(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_goes_on_in_who_asks_and_what_was_told_to_end_is_nothing() {
        assert_eq!(pass_on(tokio::spawn(async { 7 }).await), Some(7));
        let endless = tokio::spawn(std::future::pending::<()>());
        endless.abort();
        assert_eq!(pass_on(endless.await), None);
        let broken = tokio::spawn(async { panic!("broken") });
        let asking = tokio::spawn(async { pass_on::<()>(broken.await) });
        assert!(asking.await.unwrap_err().is_panic());
    }
}
