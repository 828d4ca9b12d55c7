//! What goes wrong around the operator, and what may not go wrong for that: on a real control plane and real brokers,
//! with the built operator under its own ServiceAccount.
//!
//! One file a theme. Tests that do not disturb each other share one control plane and one broker, each with a namespace
//! and, where it is stopped or killed, an operator of its own; the others start their own.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

mod apiserver;
mod crash;
mod deletions;
mod held;
mod mistakes;
mod namespaces;
mod observer;
mod peers;
mod replicas;
mod restore;
#[path = "../support/mod.rs"]
mod support;
