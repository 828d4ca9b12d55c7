//! What this module counts. The wiring hands in something that does.

use crate::messaging::ids::Kind;

/// What became of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// The API server has it.
    Written,
    /// A newer one of the object took its place, or the object is gone.
    Skipped,
    /// It can never be carried out.
    Failed,
    /// It is tried again later.
    Retried,
}

impl WriteResult {
    /// As a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Retried => "retried",
        }
    }
}

/// Counts. Every method has a bounded set of arguments.
pub trait Meter: Send + Sync {
    /// A write of status or finalizer ended, or was put off.
    fn write(&self, _kind: Kind, _result: WriteResult) {}
    /// A list was read again from the start.
    fn relist(&self, _kind: &'static str) {}
    /// A list or watch failed.
    fn watch_error(&self, _kind: &'static str) {}
    /// So many objects of a kind cannot be decoded now.
    fn undecodable(&self, _kind: &'static str, _now: usize) {}
    /// An event was written (`written`), could not be (`failed`) or found no room (`dropped`).
    fn event(&self, _result: &'static str) {}
    /// Whether this process leads.
    fn leading(&self, _leads: bool) {}
}

/// Counts nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unmetered;

impl Meter for Unmetered {}
