//! The drive against a real HAProxy: what comes and goes under traffic, what is left of it when it is killed, reloaded
//! or started from its files alone.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

mod alike;
mod asking;
mod batches;
mod certificates;
mod changes;
mod edge;
mod endpoints;
mod faults;
mod frames;
mod options;
mod reflect;
mod reloads;
mod site;
mod storm;
mod traffic;
