//! The permit to act on anything outside: held by the lease, looked at right before every send.
//!
//! It says until when nobody else can act. What is sent needs an answer's deadline of that time left, so that nothing
//! of ours can still take effect when another process has begun.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Debug, Default)]
struct Shared {
    until: Mutex<Option<Instant>>,
    elsewhere: Mutex<Option<Instant>>,
    // `tokio::sync::watch` wakes its receivers in a random order; this one wakes them in the order of arrival.
    moved: Notify,
}

impl Shared {
    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elsewhere(&self) -> MutexGuard<'_, Option<Instant>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side that grants. Dropping it takes the permit away.
#[derive(Debug)]
pub struct Granter(Arc<Shared>);

/// The side that asks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Permit(Arc<Shared>);

/// A permit that nobody has yet.
pub fn permit() -> (Granter, Permit) {
    let shared = Arc::new(Shared::default());
    (Granter(Arc::clone(&shared)), Permit(shared))
}

impl Granter {
    /// Nobody else can act before `until`.
    pub fn grant(&self, until: Instant) {
        *self.0.until() = Some(until);
        self.0.moved.notify_waiters();
    }

    /// From now on others may act.
    pub fn revoke(&self) {
        *self.0.until() = None;
        self.0.moved.notify_waiters();
    }

    /// Somebody else had the permit at `at`, or later.
    pub fn had_elsewhere(&self, at: Instant) {
        let mut elsewhere = self.0.elsewhere();
        *elsewhere = (*elsewhere).max(Some(at));
    }
}

/// How long what needs the permit may wait for its answer: `usual`, or what a Lease of this duration leaves time for. One
/// that asks for more is never sent.
pub fn deadline(usual: Duration, lease: Duration) -> Duration {
    usual.min(lease / 3)
}

impl Drop for Granter {
    fn drop(&mut self) {
        self.revoke();
    }
}

impl Permit {
    /// One that never runs out: for what no Lease guards, as in tests and tools.
    pub fn unlimited() -> Self {
        let shared = Shared::default();
        // No clock gets there.
        *shared.until() = Instant::now().checked_add(Duration::from_secs(100 * 365 * 24 * 60 * 60));
        Self(Arc::new(shared))
    }

    /// Whether something that takes at most `deadline` may be sent now.
    pub fn allows(&self, deadline: Duration) -> bool {
        self.0.until().is_some_and(|until| Instant::now() + deadline <= until)
    }

    /// Whether somebody else is known to have had it at `at`, or since.
    pub fn was_elsewhere(&self, at: Instant) -> bool {
        self.0.elsewhere().is_some_and(|seen| at <= seen)
    }

    /// Waits until something that takes at most `deadline` may be sent.
    pub async fn granted(&self, deadline: Duration) {
        loop {
            // Registered before the look, so that a grant in between is not missed.
            let moved = self.0.moved.notified();
            if self.allows(deadline) {
                return;
            }
            moved.await;
        }
    }

    /// Waits until the permit has run out or was taken away; returns at once where there is none.
    pub async fn revoked(&self) {
        loop {
            let moved = self.0.moved.notified();
            let until = *self.0.until();
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return };
            tokio::select! {
                biased;
                () = moved => {}
                () = sleep_until(until) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_longer_than_what_a_lease_leaves() {
        let seconds = Duration::from_secs;
        assert_eq!(deadline(seconds(5), seconds(15)), seconds(5));
        assert_eq!(deadline(seconds(5), seconds(3)), seconds(1));
    }

    /// A fixed one would never fit into a short Lease.
    #[test]
    fn no_deadline_that_the_permit_is_asked_for_is_a_constant() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let (mut asked, mut wrong) = (0, Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.file_name().is_some_and(|name| name == "permit.rs" || name == "tests.rs") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for look in ["permit.allows(", "permit.granted("] {
                    for (at, _) in text.match_indices(look) {
                        asked += 1;
                        let rest = &text[at + look.len()..];
                        // `DEADLINE`, and not `Duration::…`.
                        if rest.chars().take(2).all(|c| c.is_ascii_uppercase()) {
                            wrong.push(format!("{}: {}", path.display(), rest.lines().next().unwrap()));
                        }
                    }
                }
            }
        }
        assert!(asked >= 8 && wrong.is_empty(), "{asked} {wrong:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn allows_only_what_ends_before_it_runs_out() {
        let (granter, permit) = permit();
        assert!(!permit.allows(Duration::ZERO));
        granter.grant(Instant::now() + Duration::from_secs(10));
        assert!(permit.allows(Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!permit.allows(Duration::from_secs(10)));
        assert!(permit.allows(Duration::from_secs(9)));
        granter.revoke();
        assert!(!permit.allows(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_grant_that_is_long_enough() {
        let (granter, permit) = permit();
        let waiting = tokio::spawn({
            let permit = permit.clone();
            async move {
                permit.granted(Duration::from_secs(5)).await;
                Instant::now()
            }
        });
        granter.grant(Instant::now() + Duration::from_secs(4));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        granter.grant(Instant::now() + Duration::from_secs(6));
        let at = waiting.await.unwrap();
        assert_eq!(at, Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_keeps_it_and_its_end_is_told() {
        let (granter, permit) = permit();
        let began = Instant::now();
        granter.grant(began + Duration::from_secs(3));
        let waiting = tokio::spawn({
            let permit = permit.clone();
            async move {
                permit.revoked().await;
                Instant::now()
            }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        granter.grant(began + Duration::from_secs(5));
        assert_eq!(waiting.await.unwrap() - began, Duration::from_secs(5));
        drop(granter);
        permit.revoked().await;
    }
}
