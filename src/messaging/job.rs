//! Work for drives, and its answers: the same for brokers and routers, but for what is wished and what was done.

use super::ids::{Key, Slot};

/// Which work goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody changed something and waits.
    Change,
    /// Refilling, comparing, pruning.
    Repair,
}

/// One piece of work for a drive. The newest of a slot wins; every job that is not superseded is answered once, by its
/// `generation`.
#[derive(Clone, Debug, PartialEq)]
pub struct Job<W> {
    /// What it is about.
    pub slot: Slot,
    /// Rises with every job of the model.
    pub generation: u64,
    /// Whose turn it takes: the AddressSpace, or the RouterConfig.
    pub tenant: Key,
    /// Which work goes first.
    pub class: Class,
    /// What shall become of the slot.
    pub wish: W,
}

/// The answer to a job: done, or the other side's own words.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<D> {
    /// The job's slot.
    pub slot: Slot,
    /// The job's generation.
    pub generation: u64,
    /// What became of it.
    pub result: Result<D, String>,
}
