//! A request to stop, made once and heard by many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Clones are the same request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(AtomicBool, Notify)>);

impl Stop {
    /// Makes the request.
    pub fn request(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }

    /// Whether it was made.
    pub fn is_requested(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    /// Waits for it.
    pub async fn requested(&self) {
        loop {
            let made = self.0.1.notified();
            if self.is_requested() {
                return;
            }
            made.await;
        }
    }
}
