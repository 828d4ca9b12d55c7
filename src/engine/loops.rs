//! The loops of a process: they stand in one set, and when one ends that should not, or panics, all of it ends.

use std::future::Future;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Why a process ended that was not asked to.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A loop that never ends has ended.
    #[error("the loop of the {0} has ended")]
    Ended(&'static str),
    /// A loop panicked; the panic itself is in the log.
    #[error("a loop failed: {0}")]
    Failed(#[source] tokio::task::JoinError),
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

fn judge(ended: Result<Ended, tokio::task::JoinError>) -> Result<(), LoopError> {
    match ended.map_err(LoopError::Failed)? {
        Ended::Expected => Ok(()),
        Ended::Unexpected(name) => Err(LoopError::Ended(name)),
    }
}
