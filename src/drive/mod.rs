//! Data planes: what carries the model's wishes out.

pub mod amqp;
pub mod broker;
