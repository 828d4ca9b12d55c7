//! Standard spaces on a real control plane and a real broker, with routers that are stand-ins, or real ones when
//! `WAYSTATION_QDROUTERD` names a binary.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod away;
mod drift;
mod endpoints;
mod held;
mod kills;
mod moves;
#[path = "../faults/observer.rs"]
#[allow(dead_code)]
mod observer;
mod outage;
mod plane;
mod protected;
mod remotes;
mod restarts;
mod returns;
mod services;
mod tenants;
mod types;
