//! The outside observer: a client that watches Addresses and notes when each became Ready and when it was gone.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::client::{Group, request};

/// Namespace and name.
pub(super) type Key = (String, String);

/// What was seen of an Address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It was created.
    Created,
    /// It is Ready, of its current generation.
    Ready,
    /// It is gone.
    Gone,
}

#[derive(Debug, Default)]
struct Seen {
    /// In the order of the events.
    log: Mutex<Vec<(Key, What, Instant)>>,
    moved: Notify,
    failed: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches one group; ends when dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// Sees everything from now on.
    pub async fn start(client: kube::Client, group: Group) -> Result<Self> {
        let path = format!("/apis/{}/v1alpha1/addresses", group.name());
        let list = request(&client, http::Method::GET, &format!("{path}?limit=1"), "application/json", None).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            if let Err(error) = watch(&client, &path, version, &shared).await {
                *lock(&shared.failed) = Some(format!("{error:#}"));
                shared.moved.notify_waiters();
            }
        });
        Ok(Self { seen, task })
    }

    /// A place in what was seen: later questions are about what came after.
    pub fn mark(&self) -> usize {
        lock(&self.seen.log).len()
    }

    /// Waits until `what` was seen of all of them since the mark, and says when the last was.
    pub async fn all(
        &self,
        mark: usize,
        keys: impl IntoIterator<Item = Key>,
        what: What,
        within: Duration,
    ) -> Result<Instant> {
        let mut pending: HashSet<Key> = keys.into_iter().collect();
        let total = pending.len();
        let (mut next, mut last) = (mark, Instant::now());
        let deadline = Instant::now() + within;
        loop {
            let moved = self.seen.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            {
                let log = lock(&self.seen.log);
                for (key, seen, at) in &log[next..] {
                    if *seen == what && pending.remove(key) {
                        last = *at;
                    }
                }
                next = log.len();
            }
            if pending.is_empty() {
                return Ok(last);
            }
            if let Some(words) = lock(&self.seen.failed).clone() {
                bail!("the watch has ended: {words}");
            }
            if timeout_at(deadline, moved).await.is_err() {
                let (namespace, name) = pending.iter().next().cloned().unwrap_or_default();
                bail!("{} of {total} not {what:?} within {within:?}, such as {namespace}/{name}", pending.len());
            }
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Slim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    generation: i64,
    resource_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    observed_generation: i64,
}

impl Slim {
    fn is_ready(&self) -> bool {
        let generation = self.metadata.generation;
        let ready = |c: &Condition| c.kind == "Ready" && c.status == "True" && c.observed_generation == generation;
        self.status.conditions.iter().any(ready)
    }
}

async fn watch(client: &kube::Client, path: &str, mut version: String, seen: &Seen) -> Result<()> {
    loop {
        let query = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}");
        let events = client.request_events::<Slim>(http::Request::get(query).body(Vec::new())?).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.try_next().await? {
            let ready = |object: &Slim| object.is_ready().then_some(What::Ready);
            let (object, what) = match event {
                WatchEvent::Added(object) => (object, Some(What::Created)),
                WatchEvent::Modified(object) => {
                    let what = ready(&object);
                    (object, what)
                }
                WatchEvent::Deleted(object) => (object, Some(What::Gone)),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("{}", status.message),
            };
            let at = Instant::now();
            version = object.metadata.resource_version;
            if let Some(what) = what {
                lock(&seen.log).push(((object.metadata.namespace, object.metadata.name), what, at));
                seen.moved.notify_waiters();
            }
        }
    }
}

/// Waits until somebody other than `before` holds the operator's Lease, and says when that was seen.
pub(super) async fn leadership(client: &kube::Client, before: &str, within: Duration) -> Result<(Instant, String)> {
    let namespace = crate::operator::NAMESPACE;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let query =
        format!("{path}?watch=true&timeoutSeconds={}&fieldSelector=metadata.name%3Dwaystation", within.as_secs());
    let events = client.request_events::<Value>(http::Request::get(query).body(Vec::new())?).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event else { continue };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && holder != before {
            return Ok((Instant::now(), holder.to_owned()));
        }
    }
    bail!("nobody took the Lease within {within:?}")
}

/// Who holds the operator's Lease now; empty: nobody.
pub(super) async fn holder(client: &kube::Client) -> Result<String> {
    let namespace = crate::operator::NAMESPACE;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/waystation");
    let lease = request(client, http::Method::GET, &path, "application/json", None).await?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}
