//! The drive of one HAProxy: its runtime socket and its files.
//!
//! [`link`] is the seam: what the drive needs of a process, which a simulated one implements too; [`disk`] is that of
//! the files. [`socket`] and [`disk::Folder`] are the real ones.

pub mod actor;
mod carry;
pub mod disk;
pub mod files;
mod fixed;
mod leaving;
mod ledger;
pub mod link;
pub mod order;
mod read;
mod serve;
pub mod socket;
mod writer;
