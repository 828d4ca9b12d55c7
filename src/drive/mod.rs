//! Data planes: what carries the model's wishes out.

pub mod amqp;
pub mod broker;
pub mod haproxy;
pub mod keep;
pub mod meter;
pub mod pace;
pub mod router;
