//! What every drive does besides its work: keeps one session with its target while the permit lasts, connects anew
//! with growing waits, and takes commands meanwhile.
//!
//! A drive implements [`Serve`] and is run by [`keep_connected`]; it alone listens to its commands, here between
//! sessions and by itself within one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::amqp::ConnectError;
use super::amqp::management::AttachError;
use crate::engine::jitter::{Jitter, doubling};
use crate::engine::mailbox::{Class, Item};
use crate::engine::permit::Permit;
use crate::messaging::ids::{Key, Slot};
use crate::messaging::job::{self, Job};

/// Why there is no session. Texts carry no secrets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct LinkError {
    /// Bounded name for metrics: `unreachable`, `timeout`, `tls`, `login`, `protocol`.
    pub category: &'static str,
    /// What happened, in words for people.
    pub message: String,
}

impl From<ConnectError> for LinkError {
    fn from(error: ConnectError) -> Self {
        Self { category: error.category(), message: error.to_string() }
    }
}

impl From<AttachError> for LinkError {
    fn from(error: AttachError) -> Self {
        Self { category: "protocol", message: error.to_string() }
    }
}

impl<W: Clone> Item for Job<W> {
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
            job::Class::Change => Class::Change,
            job::Class::Repair => Class::Repair,
        }
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

/// What a drive can be told besides its jobs. `L` is what it connects by.
pub enum Command<L: ?Sized> {
    /// Connect anew, by this link.
    Reconnect(Arc<L>),
    /// Read everything again.
    Reread,
    /// Take nothing more; end when what is in flight is answered.
    Finish,
    /// End at once.
    Stop,
}

/// Bounds of a drive.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Jobs or requests under way, where the target is quick; see [`super::pace`].
    pub window: usize,
    /// For a command: an answer that takes longer ends the session; none is sent while the permit lasts less.
    pub command: Duration,
    /// For a question that reads a whole target.
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

/// What keeps a session.
pub struct Keeper<L: ?Sized> {
    /// How to reach the target.
    pub link: Arc<L>,
    /// Whether the drive may act.
    pub permit: Permit,
    /// What it is told.
    pub commands: mpsc::UnboundedReceiver<Command<L>>,
    /// Bounds.
    pub limits: Limits,
    /// Spreads reconnects.
    pub jitter: Jitter,
}

/// Why a session, or the wait for one, ended.
pub enum End {
    /// Told to stop.
    Stopped,
    /// The permit has gone.
    Revoked,
    /// Told to connect anew.
    Reconnect,
    /// The session is of no use any more.
    Failed(Failure),
}

/// What is told of a target that cannot be served, in words for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// No session.
    Down(String),
    /// A session, and nothing can be read.
    Unreadable(String),
}

/// Nobody listens to reports any more: a drive has nothing left to do.
pub struct Orphaned;

/// The work of a drive.
pub trait Serve: Send {
    /// What it connects by.
    type Link: ?Sized + Send + Sync;
    /// What a connection is.
    type Session: Send;

    /// Connects.
    fn connect(link: &Self::Link) -> BoxFuture<'_, Result<Self::Session, LinkError>>;

    /// Serves one session to its end, with the commands of `keeper`. `was_read` says whether the target could be read
    /// on it: what failed before is forgotten then.
    fn serve<'a>(
        &'a mut self,
        session: Self::Session,
        keeper: &'a mut Keeper<Self::Link>,
        was_read: &'a mut bool,
    ) -> BoxFuture<'a, Result<End, Orphaned>>;

    /// The session, or the attempt at one, is over: answers of what was in flight will not come.
    fn ended(&mut self);

    /// Tells a failure; the same one is not told twice in a row.
    fn tell(&mut self, failure: Failure) -> BoxFuture<'_, Result<(), Orphaned>>;
}

/// Runs a drive until it is told to stop, or nobody listens.
pub async fn keep_connected<S: Serve>(mut keeper: Keeper<S::Link>, drive: &mut S) -> Result<(), Orphaned> {
    let mut told: Option<Failure> = None;
    let mut failures = 0;
    loop {
        if let Some(end) = keeper.wait_for(None).await {
            match end {
                End::Stopped => return Ok(()),
                _ => continue,
            }
        }
        let mut was_read = false;
        let end = match keeper.connect::<S>().await {
            Ok(session) => drive.serve(session, &mut keeper, &mut was_read).await?,
            Err(end) => end,
        };
        drive.ended();
        if was_read {
            (told, failures) = (None, 0);
        }
        match end {
            End::Stopped => return Ok(()),
            End::Revoked | End::Reconnect => failures = 0,
            End::Failed(reason) => {
                tracing::debug!(failures, "no session");
                if told.as_ref() != Some(&reason) {
                    told = Some(reason.clone());
                    drive.tell(reason).await?;
                }
                let wait = doubling(keeper.limits.first_wait, keeper.limits.longest_wait, failures);
                failures += 1;
                match keeper.wait_for(Some(keeper.jitter.spread(wait))).await {
                    Some(End::Stopped) => return Ok(()),
                    Some(End::Reconnect) => failures = 0,
                    _ => {}
                }
            }
        }
    }
}

impl<L: ?Sized> Keeper<L> {
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

    async fn connect<S: Serve<Link = L>>(&mut self) -> Result<S::Session, End> {
        let link = Arc::clone(&self.link);
        let late = LinkError { category: "timeout", message: "no connection in time".to_owned() };
        let connecting = async { timeout(self.limits.connect, S::connect(&link)).await.unwrap_or(Err(late)) };
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
                    return connected.map_err(|error| End::Failed(Failure::Down(error.message)));
                }
            }
        }
    }
}
