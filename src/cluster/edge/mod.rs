//! What the edge has of Kubernetes: its watches, the Secrets that are referred to, the status of Ingresses, and which
//! agents there are.

pub mod convert;
pub mod presence;
pub mod publish;
mod rival;
pub mod secrets;
pub mod sources;
pub mod status;
