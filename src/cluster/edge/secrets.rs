//! The Secrets that the edge's model refers to, and no others.
//!
//! Watches carry metadata only (see [`secret_scopes`](crate::cluster::secret_scopes)); contents are read by name, many at a
//! time, when a Secret is first referred to and when it has moved. One that cannot be read for a while is said to be
//! unreadable, so that nobody waits for it for ever, and goes on being tried. Contents appear in no log: they are not even
//! decoded by the client library, which logs what it cannot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as ApiSecret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::convert;
use crate::cluster::meter::Meter;
use crate::cluster::secret_scopes::{Scope, scopes};
use crate::cluster::secrets::{ReadError, text};
use crate::cluster::sources::Closed;
use crate::cluster::watch::{Options, Seen};
use crate::edge::ids::{Key, Kind};
use crate::edge::input::{Input, Meta, Secret};
use crate::engine::jitter::Jitter;
use crate::engine::loops::pass_on;

/// Watches, each of which is a connection; where they would be more, one of all Secrets is preferred.
const WATCHES: usize = 64;
/// Between two looks whether other watches would do better, and whether we have the right to that one.
const LOOK: Duration = Duration::from_secs(600);
/// Reads under way.
const READS: usize = 16;
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(5);
/// How long is waited for one that cannot be read, before it is said to be unreadable.
const PATIENCE: Duration = Duration::from_secs(30);
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

/// What was said of one.
#[derive(PartialEq, Eq)]
enum Told {
    /// It is there, in this `resourceVersion`.
    There(Option<String>),
    Missing,
    Unreadable,
}

/// What is known of one.
#[derive(Default)]
struct Known {
    /// What was told last; none: nothing that is still remembered.
    told: Option<Told>,
    /// Since when it is asked for and was not read.
    waits: Option<Instant>,
    /// It could not be read since.
    failing: bool,
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
    /// When the patience with each ends.
    overdue: VecDeque<(Instant, Key)>,
    /// One has come that no watch sees.
    unseen: bool,
    /// Whether we have the right to watch all, if that was found out.
    wide: Option<bool>,
    /// When all watches are to be thought over.
    look_at: Instant,
    looking: Option<BoxFuture<'static, Result<bool, ReadError>>>,
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
            overdue: VecDeque::new(),
            unseen: false,
            wide: None,
            look_at: Instant::now() + self.jitter.spread(LOOK),
            looking: None,
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
            let looking = async {
                match &mut run.looking {
                    Some(looking) => looking.await,
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
                    // The walk through all is for those alone.
                    if std::mem::take(&mut run.unseen) {
                        self.follow(&mut run, &moved_in);
                    }
                }
                Some(read) = run.reading.next() => self.take(&mut run, read).await?,
                Some(moved) = moved.recv() => run.moved(moved),
                () = at(run.retry_at) => {
                    run.retry_at = None;
                    for key in std::mem::take(&mut run.failed) {
                        run.want(&key);
                    }
                }
                () = at(run.dropped.front().map(|(at, _)| *at)) => self.forget(&mut run).await?,
                () = at(run.overdue.front().map(|(at, _)| *at)) => self.give_up(&mut run).await?,
                found = looking => {
                    run.looking = None;
                    match found {
                        Ok(wide) => {
                            run.wide = Some(wide);
                            self.follow(&mut run, &moved_in);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "whether all Secrets may be listed could not be found out");
                            run.look_at = Instant::now() + self.jitter.spread(RETRY);
                        }
                    }
                }
                () = sleep_until(run.look_at) => {
                    run.look_at = Instant::now() + self.jitter.spread(LOOK);
                    run.wide = None;
                    self.follow(&mut run, &moved_in);
                }
                Some(ended) = run.tasks.join_next() => {
                    // Only one that nobody needs any more ends.
                    pass_on(ended);
                }
                () = self.inputs.closed() => return Err(Closed),
            }
        }
    }

    /// Begins and ends watches.
    fn follow(&self, run: &mut Run, moved: &mpsc::Sender<Moved>) {
        let narrow = scopes(run.known.keys(), &run.watches);
        // Not to and fro at the limit.
        let most = if run.watches.contains_key(&Scope::All) { WATCHES / 2 } else { WATCHES };
        let wanted = match (narrow.len() > most, run.wide) {
            (true, Some(true)) => [Scope::All].into(),
            (true, None) => {
                // Until that is known, those that there are do: what they miss is seen when the next begin.
                if run.looking.is_none() {
                    run.looking = Some(may_list_all(self.client.clone()).boxed());
                }
                return;
            }
            (true, Some(false)) | (false, _) => narrow,
        };
        run.watches.retain(|scope, task| {
            let keep = wanted.contains(scope);
            if !keep {
                task.abort();
            }
            keep
        });
        for scope in wanted {
            if !run.watches.contains_key(&scope) {
                let task = run.tasks.spawn(self.watch(&scope, moved.clone()));
                run.watches.insert(scope, task);
            }
        }
    }

    fn watch(&self, scope: &Scope, moved: mpsc::Sender<Moved>) -> impl Future<Output = ()> + Send + use<> {
        let mut watch = scope.watch(&self.client, &self.options, &self.jitter, &self.meter);
        let scope = scope.clone();
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
        let (input, told) = match read {
            Ok(Some((secret, version))) => (Input::Secret(Arc::new(secret)), Told::There(version)),
            Ok(None) => (Input::Vanished(Kind::Secret, key.clone()), Told::Missing),
            Err(error) => {
                tracing::warn!(secret = %key, %error, "reading a Secret failed; it is tried again");
                known.failing = true;
                run.failed.insert(key.clone());
                let retry = Instant::now() + self.jitter.spread(RETRY);
                run.retry_at.get_or_insert(retry);
                let forbidden = matches!(&error, ReadError::Request(Error::Api(status)) if status.code == 403);
                return match forbidden || known.is_overdue() {
                    true => self.tell_unreadable(known, key).await,
                    false => Ok(()),
                };
            }
        };
        (known.waits, known.failing) = (None, false);
        let again = std::mem::take(&mut known.again);
        if known.told.as_ref() != Some(&told) {
            known.told = Some(told);
            self.inputs.send(input).await.map_err(|_| Closed)?;
        }
        if again {
            run.want(&key);
        }
        Ok(())
    }

    /// Nobody waits for it any more.
    async fn tell_unreadable(&self, known: &mut Known, key: Key) -> Result<(), Closed> {
        if known.told.is_some() {
            return Ok(());
        }
        tracing::warn!(secret = %key, "a Secret cannot be read: it is as good as missing until it can be");
        known.told = Some(Told::Unreadable);
        self.inputs.send(Input::Unreadable(key)).await.map_err(|_| Closed)
    }

    /// Those that could not be read for long enough.
    async fn give_up(&self, run: &mut Run) -> Result<(), Closed> {
        let now = Instant::now();
        while run.overdue.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = run.overdue.pop_front() else { break };
            // One whose turn has not come yet is waited for, however long the line.
            if let Some(known) = run.known.get_mut(&key).filter(|known| known.failing && known.is_overdue()) {
                self.tell_unreadable(known, key).await?;
            }
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
                if let Some(task) = run.watches.remove(&Scope::Name(key.clone())) {
                    task.abort();
                }
                self.inputs.send(Input::Vanished(Kind::Secret, key)).await.map_err(|_| Closed)?;
            }
        }
        Ok(())
    }
}

impl Known {
    fn is_overdue(&self) -> bool {
        self.dropped.is_none() && self.waits.is_some_and(|since| since + PATIENCE <= Instant::now())
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
        let seen = [Scope::All, Scope::Namespace(Arc::clone(&key.namespace)), Scope::Name(key.clone())];
        self.unseen |= !seen.iter().any(|scope| self.watches.contains_key(scope));
        let known = self.known.entry(key.clone()).or_default();
        known.dropped = None;
        // Who asks has forgotten what was told.
        known.told = None;
        if known.waits.is_none() {
            let now = Instant::now();
            known.waits = Some(now);
            self.overdue.push_back((now + PATIENCE, key.clone()));
        }
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
                let now = version.map_or(Told::Missing, |version| Told::There(Some(version)));
                let differs = |known: &Known| known.reading || known.told.as_ref() != Some(&now);
                if self.known.get(&key).is_some_and(differs) {
                    self.want(&key);
                }
            }
            Moved::Listed(scope, listed) => {
                // Deleted between the read and the list.
                let there = |known: &Known| matches!(known.told, Some(Told::There(_)));
                let unsure = self.known.iter().filter(|(key, known)| scope.covers(key) && there(known));
                let unsure: Vec<Key> =
                    unsure.map(|(key, _)| key).filter(|key| !listed.contains(*key)).cloned().collect();
                for key in unsure {
                    self.want(&key);
                }
            }
        }
    }
}

/// Whether all Secrets may be listed.
async fn may_list_all(client: Client) -> Result<bool, ReadError> {
    let api: Api<PartialObjectMeta<ApiSecret>> = Api::all(client);
    let one = ListParams::default().limit(1);
    match timeout(DEADLINE, api.list(&one)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(Error::Api(status))) if status.code == 403 => Ok(false),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(ReadError::Late),
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
