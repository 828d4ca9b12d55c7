//! Waystation: a Kubernetes operator for AMQP 1.0 addresses on routers and brokers, and for HAProxy without reloads.
//!
//! Data flows one way round: `cluster` watches the API server and hands what it sees to the pure model in
//! `messaging`, owned by one task of `engine`; what the model wants goes through a mailbox per data plane to a
//! `drive`; acknowledgements come back to the model, whose verdicts `cluster` writes to status. `edge` is the pure model
//! of HTTP routes: what HAProxy must hold; `agent` wires it as `operator` does the other, and `supervise` keeps HAProxy.
//! `key`, `maps` and `off_limits` are what the two models share.
//! `tests/layering.rs` holds the modules to that direction.

pub mod agent;
pub mod api;
pub mod cli;
pub mod cluster;
pub mod drive;
pub mod edge;
pub mod engine;
pub mod key;
pub mod maps;
pub mod messaging;
pub mod metrics;
pub mod off_limits;
pub mod operator;
pub mod process;
pub mod serve;
pub mod supervise;
