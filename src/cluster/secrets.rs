//! The Secrets that RouterConfigs name, and no others.
//!
//! Watches carry metadata only; contents are read by name when a referenced Secret has moved. Up to [`BY_NAME`] of a
//! namespace are watched one by one, above that the namespace's metadata are. The last known contents of a Secret
//! that goes missing are kept while it is referenced. Contents never appear in logs: they are not even decoded by
//! the client library, which logs what it cannot decode.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::meter::Meter;
use super::references::{References, lock};
pub use super::secret_scopes::BY_NAME;
use super::secret_scopes::{Scope, scopes};
use super::sources::Closed;
use super::watch::{Options, Seen};
use crate::engine::jitter::Jitter;
use crate::engine::loops::pass_on;
use crate::messaging::ids::Key;
use crate::messaging::input::Input;

const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(5);

/// Contents of a Secret. Shows its keys and never its values.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SecretData(BTreeMap<String, Vec<u8>>);

impl SecretData {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }
}

impl FromIterator<(String, Vec<u8>)> for SecretData {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The last known contents of referenced Secrets. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct SecretStore(Arc<Mutex<BTreeMap<Key, Arc<SecretData>>>>);

impl SecretStore {
    /// The last known contents.
    pub fn get(&self, key: &Key) -> Option<Arc<SecretData>> {
        lock(&self.0).get(key).cloned()
    }
}

/// A number for contents: differs when they do.
fn revision(data: &SecretData) -> u64 {
    ahash::RandomState::with_seeds(11, 13, 17, 19).hash_one(data)
}

/// A Secret has moved to this `resourceVersion`, or is gone.
type Moved = (Key, Option<String>);

/// Follows the referenced Secrets.
pub struct Secrets {
    /// For watches and reads.
    pub client: Client,
    /// Which to follow.
    pub references: References,
    /// Where contents go.
    pub store: SecretStore,
    /// Where revisions go.
    pub inputs: mpsc::Sender<Input>,
    /// Bounds of watches.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
}

/// What is known of a Secret.
#[derive(Default)]
struct Known {
    /// `resourceVersion` last read.
    version: Option<String>,
    /// What was told last: none when nothing was.
    told: Option<Option<u64>>,
}

impl Secrets {
    /// Runs until nobody takes inputs.
    ///
    /// # Errors
    /// Then.
    pub async fn run(self) -> Result<(), Closed> {
        let (moved_in, mut moved) = mpsc::channel::<Moved>(64);
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<Scope, AbortHandle> = BTreeMap::new();
        let mut known: BTreeMap<Key, Known> = BTreeMap::new();
        let mut to_read: BTreeSet<Key> = BTreeSet::new();
        loop {
            self.follow_references(&mut known, &mut to_read);
            let wanted = scopes(known.keys(), &watches);
            watches.retain(|scope, task| {
                let keep = wanted.contains(scope);
                if !keep {
                    task.abort();
                }
                keep
            });
            for scope in wanted {
                watches.entry(scope.clone()).or_insert_with(|| tasks.spawn(self.watch(&scope, moved_in.clone())));
            }
            let mut failed = false;
            for key in std::mem::take(&mut to_read) {
                if !self.read(&key, known.entry(key.clone()).or_default()).await? {
                    failed = true;
                    to_read.insert(key);
                }
            }
            let retry =
                async { if failed { sleep(self.jitter.spread(RETRY)).await } else { std::future::pending().await } };
            tokio::select! {
                biased;
                () = self.references.moved() => {}
                moved = moved.recv() => {
                    let Some((key, version)) = moved else { return Err(Closed) };
                    if known.get(&key).is_some_and(|known| version.is_none() || known.version != version) {
                        to_read.insert(key);
                    }
                }
                () = retry => {}
                Some(ended) = tasks.join_next() => {
                    // Only one that nobody needs any more ends.
                    pass_on(ended);
                }
                () = self.inputs.closed() => return Err(Closed),
            }
        }
    }

    fn follow_references(&self, known: &mut BTreeMap<Key, Known>, to_read: &mut BTreeSet<Key>) {
        let referenced = self.references.all();
        for key in self.references.take_dropped() {
            known.remove(&key);
        }
        let mut store = lock(&self.store.0);
        known.retain(|key, _| referenced.contains(key));
        to_read.retain(|key| referenced.contains(key));
        store.retain(|key, _| referenced.contains(key));
        for key in referenced {
            known.entry(key.clone()).or_insert_with(|| {
                to_read.insert(key);
                Known::default()
            });
        }
    }

    fn watch(&self, scope: &Scope, moved: mpsc::Sender<Moved>) -> impl Future<Output = ()> + Send + use<> {
        let mut watch = scope.watch(&self.client, &self.options, &self.jitter, &self.meter);
        async move {
            loop {
                let event = match watch.next().await {
                    Seen::Applied { object, .. } => {
                        let key = super::convert::key(&object.metadata);
                        (key, object.metadata.resource_version.clone())
                    }
                    Seen::Deleted(key) => (key, None),
                    // A Secret that is not listed was read as missing when it was first referenced.
                    Seen::Complete => continue,
                };
                if moved.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Reads a Secret and tells what is new of it; false when that has to be tried again.
    async fn read(&self, key: &Key, known: &mut Known) -> Result<bool, Closed> {
        let read = match timeout(DEADLINE, get(&self.client, key)).await {
            Ok(read) => read,
            Err(_) => Err(ReadError::Late),
        };
        let now = match read {
            Ok(Some((data, version))) => {
                let revision = revision(&data);
                known.version = version;
                lock(&self.store.0).insert(key.clone(), Arc::new(data));
                Some(revision)
            }
            Ok(None) => {
                known.version = None;
                None
            }
            Err(error) => {
                tracing::warn!(secret = %key, %error, "reading a Secret failed; it is tried again");
                return Ok(false);
            }
        };
        if known.told != Some(now) {
            known.told = Some(now);
            self.inputs.send(Input::Secret(key.clone(), now)).await.map_err(|_| Closed)?;
        }
        Ok(true)
    }
}

/// Why a Secret was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The API server's words, or that there were none.
    #[error(transparent)]
    Request(#[from] Error),
    /// Without the text: it is the Secret.
    #[error("the answer is no Secret")]
    Unreadable,
    /// None.
    #[error("no answer in time")]
    Late,
}

#[derive(Deserialize)]
struct Body {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
}

async fn get(client: &Client, key: &Key) -> Result<Option<(SecretData, Option<String>)>, ReadError> {
    let Some(text) = text(client, key).await? else { return Ok(None) };
    let body: Body = serde_json::from_str(&text).map_err(|_| ReadError::Unreadable)?;
    let data = body.data.into_iter().map(|(key, value)| (key, value.0)).collect();
    Ok(Some((data, body.metadata.resource_version)))
}

/// A Secret as JSON; none where there is none.
pub(super) async fn text(client: &Client, key: &Key) -> Result<Option<String>, ReadError> {
    if !key.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') {
        // No Secret has such a name, and it would mean something else in the path.
        return Ok(None);
    }
    let path = Secret::url_path(&(), Some(&key.namespace));
    let request = Request::new(path).get(&key.name, &kube::api::GetParams::default());
    let request = request.map_err(|_| ReadError::Unreadable)?;
    match client.request_text(request).await {
        Ok(text) => Ok(Some(text)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
