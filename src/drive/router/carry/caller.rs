//! How requests are sent: counted, with a deadline, and no more at a time than the router answers quickly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::drive::meter::Meter;
use crate::drive::pace::Pace;
use crate::drive::router::link::{Answer, CallError, Operation, Request, RouterSession};
use crate::messaging::router::Abilities;

/// Calls one session.
pub struct Caller<'a> {
    session: &'a dyn RouterSession,
    meter: &'a dyn Meter,
    pace: &'a Pace,
    /// Requests that are not answered yet, without questions.
    open: AtomicUsize,
    /// One who waits for a turn may go on.
    turn: Notify,
    /// There is room for more.
    eased: Notify,
}

impl<'a> Caller<'a> {
    /// What comes back sets the `pace`.
    pub fn new(session: &'a dyn RouterSession, meter: &'a dyn Meter, pace: &'a Pace) -> Self {
        let open = AtomicUsize::new(0);
        Self { session, meter, pace, open, turn: Notify::new(), eased: Notify::new() }
    }

    /// What the router can do.
    pub fn abilities(&self) -> Abilities {
        self.session.abilities()
    }

    /// Requests that may be sent now besides those under way.
    pub fn room(&self) -> usize {
        self.pace.window().saturating_sub(self.open.load(Ordering::Relaxed))
    }

    /// Waits until there is room.
    pub async fn turn(&self) {
        while self.room() == 0 {
            self.turn.notified().await;
        }
    }

    /// Waits until a request was answered.
    pub async fn eased(&self) {
        self.eased.notified().await;
    }

    /// Sends at once, before the future is polled; a late answer counts as none.
    pub fn send(
        &self,
        request: Request,
        deadline: Duration,
    ) -> impl Future<Output = Result<Answer, CallError>> + Send + use<'_, 'a> {
        let label = request.label();
        let began = Instant::now();
        // Questions have many rows: how long they take says nothing about commands.
        let place = (!matches!(request.operation, Operation::Query { .. })).then(|| Place::of(self));
        let answer = self.session.call(request);
        async move {
            let answer = timeout(deadline, answer).await.unwrap_or(Err(CallError::TimedOut));
            let result = answer.as_ref().map_or_else(CallError::category, |_| "ok");
            self.meter.command(label, result, began.elapsed());
            if place.is_some() {
                self.pace.answered(began);
            }
            drop(place);
            answer
        }
    }
}

/// The place of one request in the window.
struct Place<'c, 'a>(&'c Caller<'a>);

impl<'c, 'a> Place<'c, 'a> {
    fn of(caller: &'c Caller<'a>) -> Self {
        caller.open.fetch_add(1, Ordering::Relaxed);
        Self(caller)
    }
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.turn.notify_one();
        self.0.eased.notify_one();
    }
}
