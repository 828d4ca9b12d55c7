//! The charts, with the real Helm and a real API server: what they render, and what becomes of it when it is installed,
//! upgraded, rolled back and uninstalled.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod container;
mod helm;
mod install;
mod render;
