//! Keeps a HAProxy running from its files, whatever becomes of it or of the agent.
//!
//! It owns the process and nothing else: files and commands are the agent's. One supervisor has a folder, which a lock
//! says; HAProxy ends with it. The verifier of passwords lives here as well, so that an agent that restarts denies
//! nobody.

mod child;
pub mod hashes;
mod log;
mod process;
pub mod verifier;

pub use child::become_program;
pub use process::{Options, Signal, SuperviseError, is_kept, run};
