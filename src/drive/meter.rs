//! Who counts what drives send.

use std::time::Duration;

/// What counts commands.
pub trait Meter: Send + Sync {
    /// A management operation was answered (`ok`, `refused`) or not (`lost`, `timeout`).
    fn command(&self, operation: &'static str, result: &'static str, took: Duration);
}
