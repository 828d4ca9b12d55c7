//! Which agents a RouterConfig has: each keeps a Lease that says how it stands, and sees those of the others.
//!
//! Whether another is gone is judged by our own clock since its Lease was last seen to change, and only while our own is seen
//! to: a watch that shows nothing says nothing about anybody. Whoever holds the Lease of them all tells in the RouterConfig's
//! status, and takes away what is left of those that are gone, as it was last seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::meter::Meter;
use crate::cluster::watch::{Options, Seen, Watch};
use crate::edge::ids::Key;
use crate::engine::clock::Clock;
use crate::engine::jitter::Jitter;
use crate::engine::loops::pass_on;
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;

/// After this long without a word an agent is gone.
pub const LONGEST: Duration = Duration::from_secs(40);
const RENEW: Duration = Duration::from_secs(10);
/// When our own Lease was not seen to change for so long, we see nothing.
const BLIND: Duration = Duration::from_secs(25);
const DEADLINE: Duration = Duration::from_secs(5);
/// A state that is passed through is not told.
const REST: Duration = Duration::from_millis(250);
const MANAGER: &str = "waystation-edge";
const LABEL: &str = "waystation.dev/router-config";
const NAME: &str = "waystation.dev/edge-name";
const STATE: &str = "waystation.dev/edge-state";
const MESSAGE: &str = "waystation.dev/edge-message";
const SINCE: &str = "waystation.dev/edge-since";

/// A short name for a RouterConfig, for names and labels that have no room for its own.
pub fn digest(config: &Key) -> String {
    format!("{:016x}", crate::edge::names::digest(config.to_string().as_bytes()))
}

/// Name of the Lease by which one of a RouterConfig's agents leads.
pub fn lease_name(config: &Key) -> String {
    format!("waystation-edge-{}", digest(config))
}

/// How an agent stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, unique among those of its RouterConfig.
    pub name: String,
    /// `Connecting`, `Filling`, `Serving`, `Outdated` (all but what needs a reload) or `Unreachable`.
    pub state: &'static str,
    /// More about that.
    pub message: String,
    /// Since when, Unix seconds.
    pub since_s: i64,
}

/// Every state that a row may have.
pub const STATES: [&str; 5] = ["Connecting", "Filling", "Serving", "Outdated", "Unreachable"];

/// Keeps this agent's Lease, and sees those of the others.
pub struct Presence {
    /// For all of it.
    pub client: Client,
    /// Where Leases are.
    pub namespace: String,
    /// The RouterConfig.
    pub config: Key,
    /// This process.
    pub identity: String,
    /// How it stands.
    pub own: watch::Receiver<Row>,
    /// Where goes who is there.
    pub rows: mpsc::UnboundedSender<Vec<Row>>,
    /// Who holds the Lease of all takes away what is left of those that are gone.
    pub permit: Permit,
    /// For taking such a thing away; none is begun while the permit lasts less.
    pub deadline: Duration,
    /// For the times that people read.
    pub clock: Arc<dyn Clock>,
    /// Bounds of the watch.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
    /// Take the Lease away, and end.
    pub stop: Stop,
}

/// A Lease as it was last seen.
struct Held {
    row: Row,
    /// When it was seen to change.
    at: Instant,
    version: Preconditions,
}

/// What is seen of a Lease; none: it is gone, or none of an agent.
type Sight = (String, Option<(Row, Preconditions)>);

impl Presence {
    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn object(&self, name: &str) -> String {
        let digest = crate::edge::names::digest(name.as_bytes());
        format!("waystation-edge-{}-{digest:016x}", super::presence::digest(&self.config))
    }

    /// Runs until stopped, or until nobody listens.
    pub async fn run(mut self) {
        let (seen_in, mut seen) = mpsc::channel(64);
        let watching = tokio::spawn(self.watch(seen_in));
        self.keep(&mut seen).await;
        watching.abort();
        pass_on(watching.await);
        let own = self.object(&self.own.borrow().name.clone());
        let deleted = timeout(DEADLINE, self.api().delete(&own, &DeleteParams::default())).await;
        if !matches!(deleted, Ok(Ok(_))) {
            tracing::debug!("our Lease could not be taken away; it runs out by itself");
        }
    }

    async fn keep(&mut self, seen: &mut mpsc::Receiver<Sight>) {
        let own_object = self.object(&self.own.borrow().name.clone());
        let mut leases: BTreeMap<String, Held> = BTreeMap::new();
        let mut told: Option<Vec<Row>> = None;
        let mut renew_at = Instant::now();
        let mut deleting: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        loop {
            let own = self.own.borrow_and_update().clone();
            let mut rows: Vec<Row> =
                leases.values().map(|lease| lease.row.clone()).filter(|row| row.name != own.name).collect();
            rows.push(own.clone());
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            if told.as_ref() != Some(&rows) {
                if self.rows.send(rows.clone()).is_err() {
                    return;
                }
                told = Some(rows);
            }
            let sees = |leases: &BTreeMap<String, Held>| {
                leases.get(&own_object).is_some_and(|own| Instant::now() < own.at + BLIND)
            };
            let others = leases.iter().filter(|(object, _)| **object != own_object);
            let gone_at = others.map(|(_, other)| other.at + LONGEST).min().filter(|_| sees(&leases));
            let gone = async {
                match gone_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stop.requested() => return,
                changed = self.own.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    renew_at = renew_at.min(Instant::now() + REST);
                }
                event = seen.recv() => match event {
                    Some((object, Some((row, version)))) => {
                        let now = Instant::now();
                        if object == own_object && !sees(&leases) {
                            // What the others did meanwhile is not known.
                            leases.values_mut().for_each(|lease| lease.at = now);
                        }
                        let same = leases.get(&object).filter(|before| before.version.resource_version == version.resource_version);
                        let at = same.map_or(now, |before| before.at);
                        leases.insert(object, Held { row, at, version });
                    }
                    Some((object, None)) => {
                        leases.remove(&object);
                    }
                    None => return,
                },
                () = gone => {
                    let now = Instant::now();
                    let is_gone = |object: &String, held: &Held| *object != own_object && held.at + LONGEST <= now;
                    let all = leases.iter().filter(|(object, held)| sees(&leases) && is_gone(object, held));
                    let gone: Vec<String> = all.map(|(object, _)| object.clone()).collect();
                    for object in gone {
                        if let Some(held) = leases.remove(&object)
                            && self.permit.allows(self.deadline)
                        {
                            deleting.push(self.delete(object, held.version).boxed());
                        }
                    }
                }
                Some(()) = deleting.next() => {}
                () = sleep_until(renew_at) => {
                    let wait = if self.renew(&own).await { RENEW } else { RENEW / 4 };
                    renew_at = Instant::now() + self.jitter.spread(wait);
                }
            }
        }
    }

    /// Takes away what is left of one that is gone, unless it has moved since.
    fn delete(&self, object: String, version: Preconditions) -> impl Future<Output = ()> + Send + use<> {
        let (api, deadline) = (self.api(), self.deadline);
        async move {
            let params = DeleteParams { preconditions: Some(version), ..DeleteParams::default() };
            // Failing that, whoever leads next sees it.
            let _ = timeout(deadline, api.delete(&object, &params)).await;
        }
    }

    fn watch(&self, seen: mpsc::Sender<Sight>) -> impl Future<Output = ()> + Send + use<> {
        let (api, options, jitter) = (self.api(), self.options.clone(), self.jitter.fork());
        let mut watch = Watch::new(api, "Lease", options, jitter, Arc::clone(&self.meter))
            .labels(format!("{LABEL}={}", digest(&self.config)));
        async move {
            loop {
                let event = match watch.next().await {
                    Seen::Applied { object, .. } => {
                        let (resource_version, uid) =
                            (object.metadata.resource_version.clone(), object.metadata.uid.clone());
                        let version = Preconditions { resource_version, uid };
                        (object.metadata.name.clone().unwrap_or_default(), row(&object).map(|row| (row, version)))
                    }
                    Seen::Deleted(key) => (key.name.to_string(), None),
                    Seen::Complete => continue,
                };
                if seen.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn renew(&self, row: &Row) -> bool {
        let object = self.object(&row.name);
        let now = Timestamp::from_microsecond(self.clock.unix_micros()).unwrap_or(Timestamp::UNIX_EPOCH);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": object,
                "namespace": self.namespace,
                "labels": { LABEL: digest(&self.config) },
                "annotations": {
                    NAME: row.name, STATE: row.state, MESSAGE: row.message, SINCE: row.since_s.to_string(),
                },
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": LONGEST.as_secs(),
                "renewTime": format!("{now:.6}"),
            },
        });
        let params = PatchParams::apply(MANAGER).force();
        match timeout(DEADLINE, self.api().patch(&object, &params, &Patch::Apply(&body))).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "our Lease could not be renewed; it is tried again");
                false
            }
            Err(_) => {
                tracing::warn!("our Lease could not be renewed in time; it is tried again");
                false
            }
        }
    }
}

/// What a Lease says of its agent; none if it is no such Lease.
fn row(lease: &Lease) -> Option<Row> {
    let says = |key: &str| lease.metadata.annotations.as_ref()?.get(key).cloned();
    let state = says(STATE)?;
    Some(Row {
        name: says(NAME)?,
        state: STATES.into_iter().find(|known| *known == state)?,
        message: says(MESSAGE).unwrap_or_default(),
        since_s: says(SINCE).and_then(|text| text.parse().ok()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
