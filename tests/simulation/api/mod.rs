//! An API server in memory: objects, versions, watches, as an operator, an edge and people see them.

pub mod patch;
pub mod service;
pub mod store;
pub mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::random::Random;
use service::Target;
use store::{Plural, Store};

/// Never held over an await.
pub fn lock<W>(world: &Arc<Mutex<W>>) -> MutexGuard<'_, W> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a planted bug may make of what the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// An object is made by an apply: else it is said to be, and is not.
    Make(Plural),
    /// A replacement looks at the version that was read.
    Compare,
    /// A finalizer is added: else it is said to be, and is not.
    Finalize,
    /// A status is written: else it is said to be, and is not.
    Status(Plural),
    /// A watch tells of a change.
    Tell(Plural),
}

/// The world around an API server: what goes wrong on the way to it, and who keeps count.
pub trait Surroundings: Send + 'static {
    /// The server's objects.
    fn api(&mut self) -> &mut Store;
    fn random(&mut self) -> &mut Random;
    fn note(&mut self, line: &str);
    fn api_is_down(&self) -> bool;
    /// Requests of a thousand that fail in some way.
    fn failing(&self) -> u64;
    /// Something went wrong whose consequences may last so long.
    fn trouble(&mut self, seconds: u64);
    fn api_latency(&mut self) -> Duration;
    fn watch_delay(&mut self) -> Duration;
    /// What watches of a replica show waits until then.
    fn stalled_until(&self, replica: usize) -> Instant;
    /// Rises when every watch is cut.
    fn cuts(&self) -> u64;
    /// Somebody sends what changes something.
    fn note_sender(&mut self, identity: &str, target: Option<&Target>);
    /// A write was carried out, or refused.
    fn wrote(&mut self, target: Option<&Target>, body: &Value, ok: bool, changed: bool);
    /// An event for people was written.
    fn told(&mut self, body: &Value);
    /// Whether a planted bug leaves this undone.
    fn omits(&mut self, deed: Deed) -> bool;
}
