//! HAProxy's runtime API as text: what is sent for a change, what an answer means, what the process holds. Pure: who
//! has the connection is the drive.

pub mod answer;
pub mod carry;
pub mod command;
pub mod compare;
pub mod show;
