//! AMQP 1.0 connections and management requests, for brokers and routers alike.
//!
//! Owns everything between a host name and a matched answer: TCP, TLS, SASL, session, links, correlation and
//! deadlines. Knows nothing of what is asked. Only the drives call it.

pub mod connection;
pub mod management;
mod sasl;
pub mod secret;
pub mod tls;

pub use connection::{ConnectError, Connector, Endpoint, Login, Opened};
pub use management::{Management, Reply, Request, RequestError};
pub use secret::Secret;
pub use tls::{Tls, TlsError};
