//! What users see: the operator, the API server and the broker, all real, with messages sent through. One file a theme.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod names;
mod outages;
mod reading;
mod refusals;
mod secrets;
mod settings;
mod types;
mod writes;
