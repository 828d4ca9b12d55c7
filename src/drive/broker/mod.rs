//! The drive of one Artemis broker.
//!
//! [`link`] is the seam: what the drive needs of a broker, which the simulation implements too. [`ops`] are the
//! broker's management operations as pure values; [`artemis`] carries them over AMQP.

pub mod actor;
pub mod artemis;
pub mod carry;
pub mod link;
pub mod ops;
pub mod read;
