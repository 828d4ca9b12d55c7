//! The seam between the broker drive and a broker: one connection that takes management operations and tells of
//! removals. Implemented by [`super::artemis`] over AMQP, and in memory by the simulation.

use futures::future::BoxFuture;
use serde_json::Value;

pub use crate::drive::keep::LinkError;

/// One management operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The broker's name of what is asked: `broker`, `queue.NAME`, `address.NAME`.
    pub resource: String,
    /// The operation on it.
    pub operation: &'static str,
    /// Its parameters: a JSON array.
    pub params: Value,
}

/// Why an operation brought nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The broker said no, in these words. The session goes on.
    #[error("{0}")]
    Refused(String),
    /// The session has ended; whether the operation was carried out is unknown.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No answer in time; whether the operation was or will be carried out is unknown. Drop the session.
    #[error("the broker did not answer in time")]
    TimedOut,
}

impl CallError {
    /// Bounded name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Lost(_) => "lost",
            Self::TimedOut => "timeout",
        }
    }
}

/// What a session tells by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// A queue is gone, by our own hand or another's.
    QueueRemoved {
        /// The queue.
        queue: String,
        /// The address it was bound to.
        address: String,
    },
    /// An address is gone. Brokers tell it only where their notification plugin is configured.
    AddressRemoved {
        /// The address.
        address: String,
    },
    /// The session has ended, with the reason. Every further call and event says the same.
    Lost(String),
}

/// A broker that can be connected to.
pub trait BrokerLink: Send + Sync {
    /// Opens a session; bounded in time.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>>;
}

/// One session with a broker. Dropping it closes the connection.
pub trait BrokerSession: Send + Sync {
    /// One operation; resolves with the broker's answer (null when it has nothing to say) or its refusal, within the
    /// session's deadline for requests. Operations reach the broker in the order of the calls and are carried out in
    /// that order, whether or not earlier futures were polled. Dropping the future abandons the answer.
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Value, CallError>>;

    /// A question whose answer is long and holds up nothing: it may overtake operations and be overtaken by them. By
    /// default it does not.
    fn ask(&self, call: Call) -> BoxFuture<'static, Result<Value, CallError>> {
        self.call(call)
    }

    /// The next event. Safe to drop and ask again; one caller at a time.
    fn next_event(&self) -> BoxFuture<'_, SessionEvent>;
}
