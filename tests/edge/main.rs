//! The edge as a whole: a real control plane, a real HAProxy with its supervisor and agent, real clients and endpoints. Each
//! test has a network namespace of its own, since API servers take no loopback addresses for endpoints.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod edge;
mod outages;
mod routing;
mod serving;
mod several;
#[allow(dead_code)]
#[path = "../haproxy_link/traffic.rs"]
mod traffic;
