//! The drive of one AMQP router.
//!
//! [`link`] is the seam: what the drive needs of a router, which the simulation implements too; [`qpid`] carries it
//! over AMQP. [`names`] and [`ops`] are pure: what entities are called, how they are asked for and read. A router is
//! [`read`] once a session into a [`memory`]; [`carry`] carries jobs out, [`connectors`] and [`watch`] look after
//! connections and links, and [`actor`] holds it all together.

pub mod actor;
pub mod carry;
pub mod connectors;
pub mod link;
pub mod memory;
pub mod names;
pub mod ops;
pub mod qpid;
pub mod read;
pub mod watch;
