//! The seam between the drive and a HAProxy: one connection that takes commands one after another, and the master that
//! reloads. Implemented by [`super::socket`] over Unix sockets.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;

/// Why there is no session. Texts carry no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LinkError {
    /// Bounded name for metrics: `unreachable`, `timeout`, `protocol`.
    pub category: &'static str,
    /// What happened, in words for people.
    pub message: String,
}

/// Why a command brought no answer. Whether it was carried out is unknown; the session is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The connection has ended.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No answer in time.
    #[error("HAProxy did not answer in time")]
    TimedOut,
}

impl AskError {
    /// Bounded name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::TimedOut => "timeout",
        }
    }
}

/// Why a reload did not come about; the old process goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// Nobody told us of a master.
    #[error("there is no master socket")]
    NoMaster,
    /// The files are refused, in HAProxy's words.
    #[error("{0}")]
    Refused(String),
    /// The master cannot be asked.
    #[error("the master does not answer: {0}")]
    Unreachable(String),
    /// It was asked, and did not answer in time: nobody knows what became of it.
    #[error("the master does not answer in time")]
    TimedOut,
}

/// An answer that comes.
pub type Asked = BoxFuture<'static, Result<String, AskError>>;

/// A HAProxy that can be connected to.
pub trait ProcessLink: Send + Sync {
    /// Opens a session with the worker that is there now.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn ProcessSession>, LinkError>>;

    /// Has the master start a new worker from the files; resolves when that one serves. Sessions stay with the old one.
    fn reload(&self) -> BoxFuture<'_, Result<(), ReloadError>>;

    /// Whether a process could listen there too: of one that cannot, HAProxy finds out only by silencing the old process
    /// for two seconds.
    ///
    /// # Errors
    /// Where not, and why, in words for people.
    fn bindable(&self, at: &[SocketAddr]) -> Result<(), String>;

    /// Whether there is a master to reload.
    fn reloads(&self) -> bool;
}

/// One session with a worker. Dropping it closes the connection.
pub trait ProcessSession: Send + Sync {
    /// One command, with its payload and final newline; resolves with the answer, without the empty line that ends it.
    /// Commands reach the worker in the order of the calls, whether or not earlier futures were polled. Dropping the
    /// future abandons the answer.
    fn ask(&self, text: String, deadline: Duration) -> Asked;

    /// Resolves with the reason when the session has ended. Safe to drop and ask again.
    fn lost(&self) -> BoxFuture<'_, String>;
}
