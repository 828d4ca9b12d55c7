//! The Secrets that the edge's model refers to, and no others.
//!
//! Watches carry metadata only; contents are read by name, many at a time, when a Secret is first referred to and when it
//! has moved. A few are watched one by one, more by one watch of all Secrets' metadata: a connection for each would be
//! thousands. Contents appear in no log: they are not even decoded by the client library, which logs what it cannot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as ApiSecret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::convert;
use crate::cluster::meter::Meter;
use crate::cluster::secrets::{ReadError, text};
use crate::cluster::sources::Closed;
use crate::cluster::watch::{Options, Seen, Watch};
use crate::edge::ids::{Key, Kind};
use crate::edge::input::{Input, Meta, Secret};
use crate::engine::jitter::Jitter;

/// As many are watched one by one.
pub const BY_NAME: usize = 24;
/// Reads under way.
const READS: usize = 16;
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(5);
/// How long one stays that is referred to no more: what is deleted and made anew finds it.
const LINGER: Duration = Duration::from_secs(60);

/// Follows the Secrets that are referred to.
pub struct Secrets {
    /// For watches and reads.
    pub client: Client,
    /// Secrets that come to be referred to (`true`), or cease to be.
    pub asked: mpsc::UnboundedReceiver<(Key, bool)>,
    /// Where contents go.
    pub inputs: mpsc::Sender<Input>,
    /// Bounds of watches.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
}

/// What is known of one.
#[derive(Default)]
struct Known {
    /// `resourceVersion` last told; `Some(None)`: told to be missing.
    told: Option<Option<String>>,
    /// It stands in line to be read.
    queued: bool,
    reading: bool,
    /// It has moved while it was read.
    again: bool,
    /// Referred to no more since.
    dropped: Option<Instant>,
}

/// What a watch saw.
enum Moved {
    /// It has this version, or is gone.
    To(Key, Option<String>),
    /// The first list is complete, and had these.
    Listed(Scope, BTreeSet<Key>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    One(Key),
    All,
}

type Read = (Key, Result<Option<(Secret, Option<String>)>, ReadError>);

/// Everything of a run.
struct Run {
    known: BTreeMap<Key, Known>,
    to_read: VecDeque<Key>,
    reading: FuturesUnordered<BoxFuture<'static, Read>>,
    failed: BTreeSet<Key>,
    retry_at: Option<Instant>,
    watches: BTreeMap<Scope, AbortHandle>,
    tasks: JoinSet<()>,
    dropped: VecDeque<(Instant, Key)>,
}

impl Secrets {
    /// Runs until nobody takes inputs.
    ///
    /// # Errors
    /// Then.
    pub async fn run(mut self) -> Result<(), Closed> {
        let (moved_in, mut moved) = mpsc::channel::<Moved>(64);
        let mut run = Run {
            known: BTreeMap::new(),
            to_read: VecDeque::new(),
            reading: FuturesUnordered::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            watches: BTreeMap::new(),
            tasks: JoinSet::new(),
            dropped: VecDeque::new(),
        };
        loop {
            while run.reading.len() < READS
                && let Some(key) = run.to_read.pop_front()
            {
                if let Some(known) = run.known.get_mut(&key) {
                    known.queued = false;
                    known.reading = true;
                    run.reading.push(read(self.client.clone(), key).boxed());
                }
            }
            let at = |when: Option<Instant>| async move {
                match when {
                    Some(when) => sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                asked = self.asked.recv() => {
                    let Some((key, wanted)) = asked else { return Err(Closed) };
                    run.asked(key, wanted);
                    while let Ok((key, wanted)) = self.asked.try_recv() {
                        run.asked(key, wanted);
                    }
                    self.follow(&mut run, &moved_in);
                }
                Some(read) = run.reading.next() => self.take(&mut run, read).await?,
                Some(moved) = moved.recv() => run.moved(moved),
                () = at(run.retry_at) => {
                    run.retry_at = None;
                    for key in std::mem::take(&mut run.failed) {
                        run.want(&key);
                    }
                }
                () = at(run.dropped.front().map(|(at, _)| *at)) => {
                    self.forget(&mut run).await?;
                    self.follow(&mut run, &moved_in);
                }
                () = self.inputs.closed() => return Err(Closed),
            }
            while run.tasks.try_join_next().is_some() {}
        }
    }

    /// Begins and ends watches.
    fn follow(&self, run: &mut Run, moved: &mpsc::Sender<Moved>) {
        let count = run.known.len();
        // Not to and fro at the limit.
        let wide = count > BY_NAME || (run.watches.contains_key(&Scope::All) && count > BY_NAME / 2);
        if wide {
            if !run.watches.contains_key(&Scope::All) {
                run.watches.values().for_each(AbortHandle::abort);
                run.watches.clear();
                let task = run.tasks.spawn(self.watch(Scope::All, moved.clone()));
                run.watches.insert(Scope::All, task);
            }
            return;
        }
        let known = &run.known;
        run.watches.retain(|scope, task| {
            let keep = matches!(scope, Scope::One(key) if known.contains_key(key));
            if !keep {
                task.abort();
            }
            keep
        });
        for key in run.known.keys() {
            let scope = Scope::One(key.clone());
            if !run.watches.contains_key(&scope) {
                let task = run.tasks.spawn(self.watch(scope.clone(), moved.clone()));
                run.watches.insert(scope, task);
            }
        }
    }

    fn watch(&self, scope: Scope, moved: mpsc::Sender<Moved>) -> impl Future<Output = ()> + Send + use<> {
        let api: Api<PartialObjectMeta<ApiSecret>> = match &scope {
            Scope::One(key) => Api::namespaced(self.client.clone(), &key.namespace),
            Scope::All => Api::all(self.client.clone()),
        };
        let (options, jitter) = (self.options.clone(), self.jitter.fork());
        let mut watch = Watch::new(api, "Secret", options, jitter, Arc::clone(&self.meter));
        if let Scope::One(key) = &scope {
            watch = watch.fields(format!("metadata.name={}", key.name));
        }
        async move {
            let mut listed = Some(BTreeSet::new());
            loop {
                let event = match watch.next().await {
                    Seen::Applied { object, .. } => {
                        let key = convert::key(&object.metadata);
                        if let Some(listed) = &mut listed {
                            listed.insert(key.clone());
                        }
                        Moved::To(key, object.metadata.resource_version.clone())
                    }
                    Seen::Deleted(key) => Moved::To(key, None),
                    Seen::Complete => match listed.take() {
                        Some(listed) => Moved::Listed(scope.clone(), listed),
                        None => continue,
                    },
                };
                if moved.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn take(&self, run: &mut Run, (key, read): Read) -> Result<(), Closed> {
        let Some(known) = run.known.get_mut(&key) else { return Ok(()) };
        known.reading = false;
        let (input, version) = match read {
            Ok(Some((secret, version))) => (Input::Secret(Arc::new(secret)), version),
            Ok(None) => (Input::Vanished(Kind::Secret, key.clone()), None),
            Err(error) => {
                tracing::warn!(secret = %key, %error, "reading a Secret failed; it is tried again");
                run.failed.insert(key.clone());
                let retry = Instant::now() + self.jitter.spread(RETRY);
                run.retry_at.get_or_insert(retry);
                let forbidden = matches!(&error, ReadError::Request(Error::Api(status)) if status.code == 403);
                if !forbidden || known.told.is_some() {
                    return Ok(());
                }
                // Who may not be read is as good as missing: nobody waits for that.
                (Input::Vanished(Kind::Secret, key.clone()), None)
            }
        };
        let again = std::mem::take(&mut known.again);
        if known.told.as_ref() != Some(&version) {
            known.told = Some(version);
            self.inputs.send(input).await.map_err(|_| Closed)?;
        }
        if again {
            run.want(&key);
        }
        Ok(())
    }

    /// Those that nobody has referred to for a while.
    async fn forget(&self, run: &mut Run) -> Result<(), Closed> {
        let now = Instant::now();
        while run.dropped.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = run.dropped.pop_front() else { break };
            let gone = run.known.get(&key).is_some_and(|known| known.dropped.is_some_and(|at| at + LINGER <= now));
            if gone {
                run.known.remove(&key);
                self.inputs.send(Input::Vanished(Kind::Secret, key)).await.map_err(|_| Closed)?;
            }
        }
        Ok(())
    }
}

impl Run {
    fn asked(&mut self, key: Key, wanted: bool) {
        if !wanted {
            if let Some(known) = self.known.get_mut(&key) {
                let now = Instant::now();
                known.dropped = Some(now);
                self.dropped.push_back((now + LINGER, key));
            }
            return;
        }
        let known = self.known.entry(key.clone()).or_default();
        known.dropped = None;
        // Who asks has forgotten what was told.
        known.told = None;
        self.want(&key);
    }

    /// Reads it, or again when it is being read.
    fn want(&mut self, key: &Key) {
        let Some(known) = self.known.get_mut(key) else { return };
        if known.reading {
            known.again = true;
        } else if !known.queued {
            known.queued = true;
            self.to_read.push_back(key.clone());
        }
    }

    fn moved(&mut self, moved: Moved) {
        match moved {
            Moved::To(key, version) => {
                let differs = |known: &Known| known.reading || known.told.as_ref() != Some(&version);
                if self.known.get(&key).is_some_and(differs) {
                    self.want(&key);
                }
            }
            Moved::Listed(scope, listed) => {
                // Deleted between the read and the list.
                let covered = |key: &Key| match &scope {
                    Scope::All => true,
                    Scope::One(one) => one == key,
                };
                let missing = |known: &Known| matches!(known.told, Some(Some(_)));
                let unsure = self.known.iter().filter(|(key, known)| covered(key) && missing(known));
                let unsure: Vec<Key> =
                    unsure.map(|(key, _)| key).filter(|key| !listed.contains(*key)).cloned().collect();
                for key in unsure {
                    self.want(&key);
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Body {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

async fn read(client: Client, key: Key) -> Read {
    let read = async {
        let Some(text) = text(&client, &key).await? else { return Ok(None) };
        let body: Body = serde_json::from_str(&text).map_err(|_| ReadError::Unreadable)?;
        let secret = Secret {
            meta: Meta {
                key: key.clone(),
                uid: body.metadata.uid.as_deref().unwrap_or_default().into(),
                created_s: body.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            },
            data: body.data.into_iter().map(|(name, value)| (name.into(), value.0.into())).collect(),
        };
        Ok(Some((secret, body.metadata.resource_version)))
    };
    let result = timeout(DEADLINE, read).await.unwrap_or(Err(ReadError::Late));
    (key, result)
}

#[cfg(test)]
mod tests;
