//! An API server in memory: objects, versions, watches, as the operator and people see them.

pub mod patch;
pub mod service;
pub mod store;
pub mod watch;
