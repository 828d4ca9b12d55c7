//! An API server in memory: objects, versions, watches, as an operator, an edge and people see them.

pub mod patch;
pub mod service;
pub mod store;
pub mod watch;

use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::stage::Stage;
use service::Target;
use store::Plural;

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
pub trait Surroundings: DerefMut<Target = Stage<Self::Lie>> + Send + 'static {
    /// Bugs that can be planted.
    type Lie: Copy + PartialEq + Send;
    /// Requests of a thousand that fail in some way.
    fn failing(&self) -> u64;
    fn api_latency(&mut self) -> Duration;
    fn watch_delay(&mut self) -> Duration;
    /// Somebody sends what changes something.
    fn note_sender(&mut self, identity: &str, target: Option<&Target>);
    /// A write was carried out, or refused.
    fn wrote(&mut self, target: Option<&Target>, body: &Value, ok: bool, changed: bool);
    /// An event for people was written.
    fn told(&mut self, body: &Value);
    /// Whether a planted bug leaves this undone.
    fn omits(&mut self, deed: Deed) -> bool;
    /// What a planted bug has a list show in the place of an object.
    fn shows(&mut self, _: Plural, _: &Value) -> Option<Value> {
        None
    }
}
