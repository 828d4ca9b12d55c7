//! The pure model of addresses: spaces and addresses in, what each broker must hold and what each status says out.
//!
//! No I/O, no clock, no Kubernetes types. `Model::apply` costs the object and what refers to it,
//! `Model::settle` costs what is dirty.

pub mod broker;
pub mod endpoints;
pub mod entry;
pub mod exposure;
pub mod ids;
pub mod input;
pub mod job;
pub mod model;
pub mod names;
pub mod output;
pub mod plans;
pub mod reason;
pub mod remote;
pub mod router;
pub mod status;
