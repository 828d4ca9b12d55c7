//! The status of Ingresses: where clients find what is served.
//!
//! Written by whoever holds the Lease, one write for an Ingress whose status says something else. What is applied is owned
//! by a field manager of the RouterConfig's own, and only that is ever taken away again: two edges, or another controller,
//! do not undo each other. Where somebody else wants the same status to say something else, ours is put back less and less
//! often, and people are told who it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::presence::digest;
use super::rival::{self, rival};
use crate::api;
use crate::cluster::events::{EventQueue, Told};
use crate::cluster::meter::WriteResult;
use crate::cluster::patch::apply_status;
use crate::edge::ids::{Key, Kind, Object};
use crate::engine::jitter::{Jitter, doubling};
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;

/// Writes under way.
const WRITES: usize = 8;
const RETRY: Duration = Duration::from_secs(5);
/// Before one is put back that somebody else has written over, or tried again that was refused.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// What nobody has written over for so long is fought over no more.
const PEACE: Duration = Duration::from_secs(600);

/// What is heard of objects, and of the model.
#[derive(Debug)]
pub enum Observed {
    /// The RouterConfig.
    Config(Box<api::RouterConfig>),
    /// Where a Service of the RouterConfig's namespace is found from outside.
    Service(Arc<str>, Vec<String>),
    /// An Ingress, and where its status says that it is served.
    Ingress {
        /// Which.
        key: Key,
        /// Its uid.
        uid: Arc<str>,
        /// IP addresses and host names.
        addresses: Vec<String>,
    },
    /// An Ingress is gone.
    IngressGone(Key),
    /// From the model: Ingresses that are served from now on, or no more. Nothing is written before the first.
    Served(Vec<(Key, bool)>),
}

/// Who counts what becomes of a write.
pub type Count = Arc<dyn Fn(WriteResult) + Send + Sync>;

/// Writes the status of Ingresses.
pub struct Publisher {
    /// For writes.
    pub client: Client,
    /// The RouterConfig that is served.
    pub config: Key,
    /// What is heard.
    pub observed: mpsc::UnboundedReceiver<Observed>,
    /// Hears of the RouterConfig as well.
    pub configs: mpsc::UnboundedSender<Box<api::RouterConfig>>,
    /// Whether it may write.
    pub permit: Permit,
    /// For a call; none is sent while the permit lasts less.
    pub deadline: Duration,
    /// Spreads retries.
    pub jitter: Jitter,
    /// To people.
    pub events: EventQueue,
    /// Counts.
    pub count: Count,
    /// Begin nothing more; end when what is under way is answered.
    pub stop: Stop,
}

#[derive(Default)]
struct Known {
    uid: Arc<str>,
    addresses: Vec<String>,
    served: bool,
    /// It was served, or says what is ours: what is ours of its status is to go.
    clear: bool,
    writing: bool,
    /// It was seen to say what we want, and nothing else since.
    stands: bool,
    /// How often somebody wrote over it, and when last.
    lost: u32,
    lost_at: Option<Instant>,
    /// People know who it was.
    told: bool,
    /// How often it was refused.
    refused: u32,
    /// It is not written before.
    until: Option<Instant>,
}

impl Known {
    /// What was fought over is another thing.
    fn at_peace(&mut self) {
        (self.stands, self.lost, self.told, self.refused, self.until) = (false, 0, false, 0, None);
    }

    /// Says what we would write, and is not served: that was left by one who led before us.
    fn left_over(&mut self, wish: Option<&Vec<String>>) {
        self.clear |= !self.served && !self.addresses.is_empty() && wish == Some(&self.addresses);
    }
}

/// What one write says; none: nothing of ours.
type Wish = Option<Vec<String>>;

/// A write.
#[derive(Debug)]
struct Write {
    key: Key,
    uid: Arc<str>,
    wish: Wish,
    /// Look first who has written over ours.
    look: bool,
}

/// How a write ended, and who has written over ours.
type Written = (Write, Option<String>, Result<(), Error>);

#[derive(Default)]
struct State {
    publish: Option<api::router_config::Publish>,
    services: BTreeMap<Arc<str>, Vec<String>>,
    ingresses: BTreeMap<Key, Known>,
    /// The model has said what is served: before, nothing is known.
    begun: bool,
    /// Those that may need a write.
    marked: BTreeSet<Key>,
    failed: BTreeSet<Key>,
    /// Those that wait for their time.
    waiting: BTreeSet<(Instant, Key)>,
}

impl Publisher {
    /// Runs until stopped, or until nobody tells anything.
    pub async fn run(mut self) {
        let manager = manager(&self.config);
        let mut state = State::default();
        let mut writing: FuturesUnordered<BoxFuture<'static, Written>> = FuturesUnordered::new();
        let mut retry: Option<Instant> = None;
        loop {
            let stopping = self.stop.is_requested();
            if stopping && writing.is_empty() {
                return;
            }
            let may_write = !stopping && state.begun && !state.marked.is_empty() && writing.len() < WRITES;
            let at = |when: Option<Instant>| async move {
                match when {
                    Some(when) => sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stop.requested(), if !stopping => {}
                Some(written) = writing.next() => {
                    if let Some(key) = self.take(&mut state, written) {
                        state.failed.insert(key);
                        retry.get_or_insert(Instant::now() + self.jitter.spread(RETRY));
                    }
                }
                observed = self.observed.recv() => match observed {
                    Some(Observed::Config(config)) => {
                        state.config(&config);
                        // Once nobody tells the status, all ends.
                        let _ = self.configs.send(config);
                    }
                    Some(observed) => state.take(observed, Instant::now()),
                    None => return,
                },
                () = at(retry) => {
                    retry = None;
                    let failed = std::mem::take(&mut state.failed);
                    state.marked.extend(failed);
                }
                () = at(state.waiting.first().map(|(at, _)| *at)) => state.due(Instant::now()),
                () = self.permit.granted(self.deadline), if may_write => {
                    if let Some(next) = state.next() {
                        writing.push(write(self.client.clone(), manager.clone(), next, self.deadline).boxed());
                    }
                }
            }
        }
    }

    /// Takes in how a write ended; gives back what is to be tried again.
    fn take(&self, state: &mut State, (write, rival, result): Written) -> Option<Key> {
        let Write { key, uid, wish, .. } = write;
        let known = state.answered(&key, &uid);
        if let (Some(known), Some(rival)) = (known, rival)
            && !std::mem::replace(&mut known.told, true)
        {
            let advice = rival::advice(&rival);
            tracing::warn!(ingress = %key, rival, "its status is written over by somebody else: {advice}");
            let message = format!(
                "its status is written over by {rival}, and is put back less and less often, down to once in five \
                 minutes: {advice}"
            );
            let object = Object::new(Kind::Ingress, key.clone());
            self.events.tell(Told::of_edge(&object, Arc::clone(&uid), "StatusContested", message));
        }
        let (outcome, again) = match result {
            Ok(()) => {
                state.written(key, &uid, wish);
                (WriteResult::Written, None)
            }
            Err(Error::Api(status)) if status.code == 404 => {
                if state.answered(&key, &uid).is_some() {
                    state.gone(&key);
                }
                (WriteResult::Skipped, None)
            }
            // Another one has its name, of which the watch has not told yet.
            Err(Error::Api(status)) if status.code == 409 => (WriteResult::Skipped, Some(key)),
            Err(Error::Api(status)) if matches!(status.code, 400 | 422) => {
                tracing::warn!(ingress = %key, message = status.message, "its status is refused; it is tried again");
                state.refused(&key, &uid, Instant::now());
                (WriteResult::Failed, None)
            }
            Err(error) => {
                tracing::debug!(ingress = %key, %error, "a status could not be written; it is tried again");
                (WriteResult::Retried, Some(key))
            }
        };
        (self.count)(outcome);
        again
    }
}

impl State {
    fn config(&mut self, config: &api::RouterConfig) {
        let publish = config.spec.edge.as_ref().and_then(|edge| edge.publish.clone());
        if publish != self.publish {
            let before = self.wish();
            self.publish = publish;
            if self.publish.is_none() {
                // Also what a Service said that says nothing any more.
                for known in self.ingresses.values_mut() {
                    known.clear |= known.served && !known.addresses.is_empty();
                }
                self.everything();
            }
            self.changed(&before);
        }
    }

    /// After a change of what is published.
    fn changed(&mut self, before: &Wish) {
        if self.wish() != *before {
            self.everything();
        }
    }

    fn everything(&mut self) {
        let wish = self.wish();
        for known in self.ingresses.values_mut() {
            known.at_peace();
            known.left_over(wish.as_ref());
        }
        self.marked.extend(self.ingresses.keys().cloned());
    }

    fn take(&mut self, observed: Observed, now: Instant) {
        match observed {
            Observed::Config(config) => self.config(&config),
            Observed::Service(name, addresses) => {
                let before = self.wish();
                if addresses.is_empty() {
                    self.services.remove(&name);
                } else {
                    self.services.insert(name, addresses);
                }
                self.changed(&before);
            }
            Observed::Ingress { key, uid, addresses } => self.seen(key, uid, addresses, now),
            Observed::IngressGone(key) => self.gone(&key),
            Observed::Served(changes) => {
                self.begun = true;
                for (key, served) in changes {
                    let known = self.ingresses.entry(key.clone()).or_default();
                    (known.served, known.clear) = (served, !served);
                    known.at_peace();
                    if !served && known.uid.is_empty() {
                        self.ingresses.remove(&key);
                    } else {
                        self.marked.insert(key);
                    }
                }
            }
        }
    }

    fn seen(&mut self, key: Key, uid: Arc<str>, addresses: Vec<String>, now: Instant) {
        let wish = self.wish();
        let known = self.ingresses.entry(key.clone()).or_default();
        if known.uid != uid {
            *known = Known { uid, served: known.served, ..Known::default() };
        }
        let ours = wish.as_ref() == Some(&addresses);
        known.addresses = addresses;
        known.left_over(wish.as_ref());
        // What was not seen to stand may be older than what we wrote.
        if known.served && known.stands && !ours && wish.is_some() {
            if known.lost_at.is_none_or(|at| at + PEACE < now) {
                known.at_peace();
            }
            let until = now + doubling(FIRST_WAIT, LONGEST_WAIT, known.lost);
            (known.lost, known.lost_at) = (known.lost.saturating_add(1), Some(now));
            known.until = Some(until);
            self.waiting.insert((until, key.clone()));
        }
        known.stands = known.served && ours;
        self.marked.insert(key);
    }

    /// An Ingress is not there. Whether it is served is the model's word: one of its name may come at once, and be served
    /// like this one.
    fn gone(&mut self, key: &Key) {
        match self.ingresses.get_mut(key) {
            Some(known) if known.served => *known = Known { served: true, ..Known::default() },
            _ => {
                self.ingresses.remove(key);
            }
        }
    }

    /// That object, if it is still there, whose write is answered.
    fn answered(&mut self, key: &Key, uid: &Arc<str>) -> Option<&mut Known> {
        let known = self.ingresses.get_mut(key).filter(|known| known.uid == *uid)?;
        known.writing = false;
        Some(known)
    }

    fn written(&mut self, key: Key, uid: &Arc<str>, wish: Wish) {
        if let Some(known) = self.answered(&key, uid) {
            known.refused = 0;
            known.clear &= wish.is_some();
            if let Some(addresses) = wish {
                known.addresses = addresses;
            }
        }
        // It may have been changed meanwhile.
        self.marked.insert(key);
    }

    fn refused(&mut self, key: &Key, uid: &Arc<str>, now: Instant) {
        let Some(known) = self.answered(key, uid) else { return };
        let until = now + doubling(FIRST_WAIT, LONGEST_WAIT, known.refused);
        known.refused = known.refused.saturating_add(1);
        known.until = Some(until);
        self.waiting.insert((until, key.clone()));
    }

    /// Those whose time has come are looked at again.
    fn due(&mut self, now: Instant) {
        while let Some((until, key)) = self.waiting.pop_first() {
            if until > now {
                self.waiting.insert((until, key));
                return;
            }
            // It may have got another time, or none, since.
            if let Some(known) = self.ingresses.get_mut(&key).filter(|known| known.until == Some(until)) {
                known.until = None;
                self.marked.insert(key);
            }
        }
    }

    /// What is to stand in the status of who is served; none: it is not known, or nothing is published.
    fn wish(&self) -> Wish {
        let publish = self.publish.as_ref()?;
        match &publish.service {
            Some(name) => self.services.get(name.as_str()).cloned(),
            None => Some(publish.addresses.iter().map(|address| address.0.clone()).collect()),
        }
    }

    /// The next that needs a write.
    fn next(&mut self) -> Option<Write> {
        let wish = self.wish();
        while let Some(key) = self.marked.pop_first() {
            let Some(known) = self.ingresses.get_mut(&key) else { continue };
            if known.writing || known.until.is_some() || known.uid.is_empty() {
                // Looked at again when that is answered, or over.
                continue;
            }
            let says = match (known.served, &wish) {
                (true, Some(wish)) if *wish != known.addresses => Some(wish.clone()),
                (true, Some(_)) => continue,
                _ if known.clear && !known.addresses.is_empty() => None,
                _ => continue,
            };
            known.writing = true;
            let look = known.lost > 0 && !known.told && says.is_some();
            return Some(Write { key, uid: Arc::clone(&known.uid), wish: says, look });
        }
        None
    }
}

/// Owner of what is applied. A RouterConfig's own, and the same for all its agents.
fn manager(config: &Key) -> String {
    format!("{}{}", rival::PREFIX, digest(config))
}

fn body(key: &Key, uid: &str, wish: Option<&Vec<String>>) -> Value {
    let entry = |address: &String| match address.parse::<IpAddr>() {
        Ok(_) => json!({ "ip": address }),
        Err(_) => json!({ "hostname": address }),
    };
    let status = match wish {
        Some(addresses) => json!({ "loadBalancer": { "ingress": addresses.iter().map(entry).collect::<Vec<_>>() } }),
        None => json!({}),
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "namespace": &*key.namespace, "name": &*key.name, "uid": uid },
        "status": status,
    })
}

async fn write(client: Client, manager: String, write: Write, deadline: Duration) -> Written {
    let api: Api<PartialObjectMeta<Ingress>> = Api::namespaced(client.clone(), &write.key.namespace);
    let rival = match write.look {
        // Afterwards it says no more who it was. Failing that, the next time tells.
        true => match timeout(deadline, api.get(&write.key.name)).await {
            Ok(Ok(object)) => rival(&object.metadata, &manager),
            _ => None,
        },
        false => None,
    };
    let url = format!("{}/{}", api.resource_url(), write.key.name);
    let body = body(&write.key, &write.uid, write.wish.as_ref());
    let late = || Err(Error::Service("no answer in time".into()));
    let written = timeout(deadline, apply_status(&client, &url, &manager, &body)).await.unwrap_or_else(|_| late());
    (write, rival, written.map(drop))
}

#[cfg(test)]
mod tests;
