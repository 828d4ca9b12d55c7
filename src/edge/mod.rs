//! The pure model of the edge: Ingresses, Services, EndpointSlices and Secrets in; what HAProxy must hold, and events,
//! out. No I/O, no clock, no Kubernetes types.

pub mod address;
pub mod class;
pub mod headers;
pub mod ids;
pub mod input;
pub mod lookup;
pub mod model;
pub mod names;
pub mod options;
pub mod order;
pub mod pem;
pub mod render;
pub mod route;
pub mod runtime;
pub mod sets;
pub mod users;
pub mod wanted;

#[cfg(test)]
mod tests;
