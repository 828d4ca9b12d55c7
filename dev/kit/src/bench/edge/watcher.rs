//! The bare watcher: the least that a controller does. It sees each write, and notes when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures::TryStreamExt;
use http::Method;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::client::request;

/// What is watched.
const KINDS: [&str; 4] = [
    "/api/v1/services",
    "/api/v1/secrets",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/ingresses",
];
const SOON: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Deserialize)]
struct Slim {
    metadata: Metadata,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

type Seen = Arc<Mutex<HashMap<String, Instant>>>;

/// Watches; ends when dropped.
pub(super) struct BareWatcher {
    seen: Seen,
    count: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

impl BareWatcher {
    /// Sees everything from now on.
    pub async fn start(client: kube::Client) -> Result<Self> {
        let seen = Seen::default();
        let (told, count) = watch::channel(0);
        let told = Arc::new(told);
        let mut tasks = JoinSet::new();
        for path in KINDS {
            let list = request(&client, Method::GET, &format!("{path}?limit=1"), "application/json", None).await?;
            let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
            let (client, seen, told) = (client.clone(), Arc::clone(&seen), Arc::clone(&told));
            tasks.spawn(async move {
                if let Err(error) = follow(&client, path, version, &seen, &told).await {
                    super::super::say(&format!("the bare watcher has ended: {error:#}"));
                }
            });
        }
        Ok(Self { seen, count, _tasks: tasks })
    }

    /// When it had seen what was written as that version.
    pub async fn saw(&self, version: &str) -> Result<Instant> {
        let mut count = self.count.clone();
        let waited = async {
            loop {
                let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(version);
                if let Some(at) = seen {
                    return Ok(at);
                }
                count.changed().await.map_err(|_| anyhow!("the bare watcher has ended"))?;
            }
        };
        tokio::time::timeout(SOON, waited).await.map_err(|_| anyhow!("the bare watcher saw no {version}"))?
    }
}

async fn follow(
    client: &kube::Client,
    path: &str,
    mut version: String,
    seen: &Seen,
    told: &watch::Sender<u64>,
) -> Result<()> {
    loop {
        let query = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}");
        let events = client.request_events::<Slim>(http::Request::get(query).body(Vec::new())?).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    version = object.metadata.resource_version;
                    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(version.clone(), Instant::now());
                    told.send_modify(|count| *count += 1);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => bail!("{}", status.message),
            }
        }
    }
}
