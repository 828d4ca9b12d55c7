//! The connections from a router to brokers: asked for soon after they were made, often while one is not up, and now
//! and then otherwise. A change is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::carry::{Carrier, Halt, text};
use super::link::Type;
use super::read::{by_position, pages};
use crate::messaging::router::RouterLink as Report;

const ATTRIBUTES: &[&str] = &["name", "connectionStatus", "connectionMsg"];
/// Between two looks while all are up.
const CALM: Duration = Duration::from_secs(10);
/// Between two looks while one is not up: as long as it has been so, within these bounds.
const SOONEST: Duration = Duration::from_millis(2);
const LATEST: Duration = Duration::from_secs(2);
/// A connection that was not up yet is told as down only after this time.
const GRACE: Duration = Duration::from_secs(1);
/// What was asked so long ago is as good as now.
const FRESH: Duration = Duration::from_millis(200);

/// In the message of a connection that is up.
const OPENED: &str = "Connection Opened";

/// What is told of a connection that is not up and does not say why.
const NOT_CONNECTED: &str = "not connected";

/// What is known of the connectors of one router, by broker.
#[derive(Debug, Default)]
pub struct Connectors {
    known: Mutex<BTreeMap<Arc<str>, State>>,
    looked: Mutex<Option<Instant>>,
    /// One was made.
    news: Notify,
}

#[derive(Debug)]
struct State {
    up: bool,
    /// Since when it is not up, or when it was made.
    since: Instant,
    /// It was made a moment ago, and need not be up yet.
    settling: bool,
    /// It is being made anew: what is seen of it may be of the one before, or of the one after.
    remade: bool,
    /// When it was made, as far as is known: what was asked before is about another.
    made: Option<Instant>,
    /// What was told last: up, or the words.
    told: Option<Option<Arc<str>>>,
}

impl State {
    fn new() -> Self {
        Self { up: false, since: Instant::now(), settling: true, remade: false, made: None, told: None }
    }
}

impl Connectors {
    fn known(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, State>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is about to be made anew: nothing is told of it before that has ended.
    pub fn leaves(&self, broker: &str) {
        if let Some(state) = self.known().get_mut(broker) {
            state.remade = true;
        }
    }

    /// It was not made anew after all.
    pub fn stays(&self, broker: &str) {
        if let Some(state) = self.known().get_mut(broker) {
            state.remade = false;
        }
    }

    /// One was made, anew perhaps.
    pub fn made(&self, broker: &Arc<str>) {
        let mut known = self.known();
        let told = known.get(broker).and_then(|state| state.told.clone());
        known.insert(broker.clone(), State { told, made: Some(Instant::now()), ..State::new() });
        *self.looked() = None;
        drop(known);
        self.news.notify_one();
    }

    /// One was taken away.
    pub fn gone(&self, broker: &str) {
        self.known().remove(broker);
    }

    /// Whether the connection was up when looked at last.
    pub fn is_up(&self, broker: &str) -> bool {
        self.known().get(broker).is_some_and(|state| state.up)
    }

    /// Whether the connection was told to be down, and still is for all that is known.
    pub fn is_down(&self, broker: &str) -> bool {
        self.known().get(broker).is_some_and(|state| !state.settling && matches!(state.told, Some(Some(_))))
    }

    /// When to look again; never, where there is none.
    fn wait(&self) -> Option<Duration> {
        let known = self.known();
        let ages = known.values().filter(|state| !state.up).map(|state| state.since.elapsed());
        match ages.min() {
            Some(age) => Some(age.clamp(SOONEST, LATEST)),
            None => (!known.is_empty()).then_some(CALM),
        }
    }

    /// Takes in what the router says of one connector since it was asked. What is to be told, and whether it just came up.
    fn take_in(&self, broker: &Arc<str>, status: &str, message: &str, asked: Instant) -> (Option<Report>, bool) {
        let mut known = self.known();
        let state = known.entry(broker.clone()).or_insert_with(State::new);
        if state.remade || state.made.is_some_and(|made| made > asked) {
            return (None, false);
        }
        // A router says SUCCESS as soon as it dials.
        let up = status == "SUCCESS" && message.contains(OPENED);
        let came_up = up && !state.up;
        if state.up && !up {
            state.since = Instant::now();
        }
        state.up = up;
        state.settling &= !up && state.since.elapsed() < GRACE;
        if state.settling {
            return (None, false);
        }
        let news = (!up).then(|| match (words(message), &state.told) {
            // One that opens and is shut over and over says why only half of the time.
            (NOT_CONNECTED, Some(Some(told))) => Arc::clone(told),
            (words, _) => words.into(),
        });
        if state.told.as_ref() == Some(&news) {
            return (None, came_up);
        }
        state.told = Some(news.clone());
        (Some(Report::Connector(broker.clone(), news)), came_up)
    }
}

/// Why a connection is not up, from what happened to it last: without the number of the attempt, which rises with
/// each, and without the status, which turns with it.
fn words(message: &str) -> &str {
    let message = match message.strip_prefix("[C").and_then(|rest| rest.split_once("] ")) {
        Some((number, message)) if number.bytes().all(|digit| digit.is_ascii_digit()) => message,
        _ => message,
    };
    if message.is_empty() || message.contains(OPENED) { NOT_CONNECTED } else { message }
}

impl Carrier<'_> {
    /// Asks for all connectors, unless that was done a moment ago.
    pub(super) async fn look_at_connectors(&self) -> Result<(), Halt> {
        let connectors = &self.connectors;
        if connectors.looked().is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let began = Instant::now();
        let mut rows = Vec::new();
        pages(&self.caller, Type::Connector, ATTRIBUTES, 1, self.means.deadline, |row| rows.push(row)).await?;
        let mut seen = BTreeSet::new();
        for row in rows {
            let get = |attribute| text(by_position(ATTRIBUTES, &row, attribute));
            let Some(broker) = get("name").and_then(|name| self.names().broker(&name)) else { continue };
            let status = get("connectionStatus").unwrap_or_else(|| "UNKNOWN".to_owned());
            let message = get("connectionMsg").unwrap_or_default();
            let (report, came_up) = connectors.take_in(&broker, &status, &message, began);
            if came_up {
                self.watch.soon();
            }
            if let Some(report) = report {
                self.tell(report);
            }
            seen.insert(broker);
        }
        // Taken away by hand; what was made meanwhile was not to be seen yet.
        connectors.known().retain(|broker, state| seen.contains(broker) || state.since >= began);
        *connectors.looked() = Some(began);
        Ok(())
    }

    /// Looks after the connectors until the session is of no use any more; says why.
    pub async fn keep_connectors(&self) -> String {
        loop {
            *self.connectors.looked() = None;
            match self.look_at_connectors().await {
                Ok(()) => {}
                Err(Halt::Dead(reason)) => return reason,
                Err(Halt::Refused(words)) => tracing::warn!(words, "a router does not show its connectors"),
            }
            let wait = async {
                match self.connectors.wait() {
                    Some(wait) => sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.connectors.news.notified() => {}
                () = wait => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: (&str, &str) = ("SUCCESS", "[C1] Connection Opened: dir=out");
    const DIALS: (&str, &str) = ("SUCCESS", "[C2] Connection to b:5672 failed: before");

    #[tokio::test(start_paused = true)]
    async fn why_a_connector_is_down_is_told_once_however_its_attempts_end() {
        let (connectors, broker) = (Connectors::default(), Arc::<str>::from("b"));
        let see = |shown: (&str, &str)| connectors.take_in(&broker, shown.0, shown.1, Instant::now()).0;
        let shut = ("FAILED", "[C2] Connection Opened: dir=out");
        let told = |words: &str| Some(Report::Connector(broker.clone(), Some(words.into())));
        see(UP);
        assert_eq!(see(shut), told("not connected"));
        assert_eq!(see(DIALS), told("Connection to b:5672 failed: before"));
        for _ in 0..3 {
            assert_eq!((see(shut), see(DIALS)), (None, None), "it opens and is shut, over and over");
        }
        assert_eq!(see(UP), Some(Report::Connector(broker.clone(), None)));
        assert_eq!(see(shut), told("not connected"), "why it was down before is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connector_that_is_made_anew_is_not_told_to_be_down_while_that_lasts() {
        let (connectors, broker) = (Connectors::default(), Arc::<str>::from("b"));
        let see = |shown: (&str, &str), asked| connectors.take_in(&broker, shown.0, shown.1, asked).0;
        connectors.made(&broker);
        let before = Instant::now();
        assert_eq!(see(UP, before), Some(Report::Connector(broker.clone(), None)));
        // Its successor is there before whoever asked for it knows.
        connectors.leaves(&broker);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(see(DIALS, Instant::now()), None);
        connectors.made(&broker);
        // The answer to a question from before is about the one that is gone.
        assert_eq!(see(UP, before), None);
        assert_eq!(see(DIALS, Instant::now()), None);
        assert_eq!(see(UP, Instant::now()), None, "it never was down for all that was told");
        sleep(GRACE).await;
        assert!(see(DIALS, Instant::now()).is_some());
    }
}
