//! Everything that speaks to Kubernetes: watches in, statuses, finalizers, events and the Lease out.
//!
//! Decides nothing: what is seen becomes inputs of the model, what the model wants written is written. Every call has
//! a deadline, every loop survives a failing API server, and everything that writes holds the permit of the Lease.

pub mod children;
pub mod convert;
pub mod discovery;
pub mod edge;
pub mod endpoints;
pub mod events;
pub mod lease;
pub mod meter;
pub mod patch;
pub mod readiness;
pub mod references;
pub mod release;
mod secret_scopes;
pub mod secrets;
pub mod sources;
pub mod status_body;
pub mod watch;
pub mod writer;

#[cfg(test)]
pub(crate) mod tests;
