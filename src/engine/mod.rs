//! What stands between a pure model and the tasks around it: the loop that owns the model, the mailboxes that its
//! wishes wait in, and the permit without which nothing is sent.
//!
//! Nothing in here knows Kubernetes, a broker or a particular model. Everything runs on tokio's clock and is
//! deterministic under a paused one: hash seeds are fixed, wake-ups are first come, first served.

pub mod clock;
pub mod guarded;
pub mod jitter;
pub mod loops;
pub mod mailbox;
pub mod owner;
pub mod permit;
pub mod pulse;
pub mod stop;
