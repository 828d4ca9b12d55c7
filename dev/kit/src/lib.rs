//! The development kit: real Kubernetes control planes and real brokers for tests, the demo and the bench.
//!
//! It is an outside observer. It knows nothing of the `waystation` crate and sees only what any user sees: the API
//! server, `kubectl`, a broker's AMQP port, the operator's process and its HTTP endpoints. Whatever it starts ends with
//! the process that started it, however that process ends (see [`process`]).

pub mod amqp_client;
pub mod artemis;
pub mod artemis_core;
pub mod bench;
pub mod cluster;
pub mod edge;
pub mod haproxy;
pub mod haproxy_core;
pub mod operator;
pub mod pki;
pub mod process;
pub mod proxy;
pub mod router;
pub mod router_core;
pub mod standin;
pub mod tools;
