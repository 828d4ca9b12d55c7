//! The drive against a real HAProxy: what comes and goes under traffic, what is left of it when it is killed, reloaded
//! or started from its files alone.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

mod changes;
mod edge;
mod faults;
mod reloads;
mod storm;
mod traffic;
