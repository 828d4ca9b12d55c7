//! The status of Ingresses: where clients find what is served.
//!
//! Written by whoever holds the Lease, one write for an Ingress whose status says something else. What is applied is owned
//! by a field manager of the RouterConfig's own, and only that is ever taken away again: two edges, or another controller,
//! do not undo each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::Api;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::presence::digest;
use crate::api;
use crate::cluster::meter::WriteResult;
use crate::cluster::patch::apply_status;
use crate::edge::ids::Key;
use crate::engine::jitter::Jitter;
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;

/// Writes under way.
const WRITES: usize = 8;
const DEADLINE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(5);

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
    /// Spreads retries.
    pub jitter: Jitter,
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
}

/// What one write says; none: nothing of ours.
type Wish = Option<Vec<String>>;
type Written = (Key, Arc<str>, Wish, Result<(), Error>);

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
            let retry_at = async {
                match retry {
                    Some(at) => sleep_until(at).await,
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
                    Some(observed) => state.take(observed),
                    None => return,
                },
                () = retry_at => {
                    retry = None;
                    let failed = std::mem::take(&mut state.failed);
                    state.marked.extend(failed);
                }
                () = self.permit.granted(DEADLINE), if may_write => {
                    if let Some((key, uid, wish)) = state.next() {
                        writing.push(write(self.client.clone(), manager.clone(), key, uid, wish).boxed());
                    }
                }
            }
        }
    }

    /// Takes in how a write ended; gives back what is to be tried again.
    fn take(&self, state: &mut State, (key, uid, wish, result): Written) -> Option<Key> {
        let known = state.ingresses.get_mut(&key).filter(|known| known.uid == uid);
        let (outcome, again) = match result {
            Ok(()) => {
                if let Some(known) = known {
                    known.writing = false;
                    known.clear &= wish.is_some();
                    if let Some(addresses) = wish {
                        known.addresses = addresses;
                    }
                }
                // It may have been changed meanwhile.
                state.marked.insert(key);
                (WriteResult::Written, None)
            }
            Err(error) => {
                if let Some(known) = known {
                    known.writing = false;
                }
                match error {
                    Error::Api(status) if matches!(status.code, 404 | 409) => (WriteResult::Skipped, None),
                    Error::Api(status) if matches!(status.code, 400 | 422) => {
                        tracing::warn!(ingress = %key, message = status.message, "its status is refused");
                        (WriteResult::Failed, None)
                    }
                    error => {
                        tracing::debug!(ingress = %key, %error, "a status could not be written; it is tried again");
                        (WriteResult::Retried, Some(key))
                    }
                }
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
                self.marked.extend(self.ingresses.keys().cloned());
            }
            self.changed(&before);
        }
    }

    /// After a change of what is published.
    fn changed(&mut self, before: &Wish) {
        if self.wish() != *before {
            self.marked.extend(self.ingresses.keys().cloned());
        }
    }

    fn take(&mut self, observed: Observed) {
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
            Observed::Ingress { key, uid, addresses } => {
                let wish = self.wish();
                let known = self.ingresses.entry(key.clone()).or_default();
                if known.uid != uid {
                    (known.uid, known.clear, known.writing) = (uid, false, false);
                }
                // Left by one who led before us.
                known.clear |= !known.served && !addresses.is_empty() && wish.as_ref() == Some(&addresses);
                known.addresses = addresses;
                self.marked.insert(key);
            }
            Observed::IngressGone(key) => {
                // Whether it is served is the model's word: one of this name may come at once, and be served like this one.
                match self.ingresses.get_mut(&key) {
                    Some(known) if known.served => *known = Known { served: true, ..Known::default() },
                    _ => {
                        self.ingresses.remove(&key);
                    }
                }
            }
            Observed::Served(changes) => {
                self.begun = true;
                for (key, served) in changes {
                    let known = self.ingresses.entry(key.clone()).or_default();
                    (known.served, known.clear) = (served, !served);
                    if !served && known.uid.is_empty() {
                        self.ingresses.remove(&key);
                    } else {
                        self.marked.insert(key);
                    }
                }
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
    fn next(&mut self) -> Option<(Key, Arc<str>, Wish)> {
        let wish = self.wish();
        while let Some(key) = self.marked.pop_first() {
            let Some(known) = self.ingresses.get_mut(&key) else { continue };
            if known.writing || known.uid.is_empty() {
                // Looked at again when that is answered.
                continue;
            }
            let says = match (known.served, &wish) {
                (true, Some(wish)) if *wish != known.addresses => Some(wish.clone()),
                (true, Some(_)) => continue,
                _ if known.clear && !known.addresses.is_empty() => None,
                _ => continue,
            };
            known.writing = true;
            return Some((key, Arc::clone(&known.uid), says));
        }
        None
    }
}

/// Owner of what is applied. A RouterConfig's own, and the same for all its agents.
fn manager(config: &Key) -> String {
    format!("waystation-edge-{}", digest(config))
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

async fn write(client: Client, manager: String, key: Key, uid: Arc<str>, wish: Wish) -> Written {
    let api: Api<Ingress> = Api::namespaced(client.clone(), &key.namespace);
    let url = format!("{}/{}", api.resource_url(), key.name);
    let body = body(&key, &uid, wish.as_ref());
    let late = || Err(Error::Service("no answer in time".into()));
    let written = timeout(DEADLINE, apply_status(&client, &url, &manager, &body)).await.unwrap_or_else(|_| late());
    (key, uid, wish, written.map(drop))
}

#[cfg(test)]
mod tests;
