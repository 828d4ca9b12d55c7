//! One watched kind: list, watch, list again when the server has forgotten where we were.
//!
//! Of its own rather than kube-runtime's, for four reasons: a page and the start of a watch have a deadline, a
//! `410 Gone` leads to a new list wherever it comes from, waits are spread by an injected seed, and what is missing
//! in a new list is told as a deletion.
//!
//! An API server whose etcd was restored to an older state takes a watch from a version that does not exist yet, and
//! says nothing on it until that version comes about. So after every failure, and after a watch that ended before its
//! time, the server is asked where it stands: when that is behind us, everything is listed.
//!
//! Invariant: whatever was told as applied and is not told as deleted was in the last complete list or came since.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::convert;
use super::meter::Meter;
use crate::engine::jitter::{Jitter, doubling};
use crate::messaging::ids::Key;

/// How the first list is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Page by page.
    #[default]
    List,
    /// As the beginning of the watch (WatchList), where the API server has it.
    Stream,
}

/// Bounds of a watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the first list is read.
    pub mode: Mode,
    /// Objects a page.
    pub page: u32,
    /// For a page, and for the start of a watch.
    pub deadline: Duration,
    /// After this long the server ends a watch, and it is opened anew; a silent one is given up a little later.
    pub watch: Duration,
    /// Wait after the first failure; doubles.
    pub first_wait: Duration,
    /// Longest wait after a failure.
    pub longest_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::List,
            page: 500,
            deadline: Duration::from_secs(60),
            watch: Duration::from_secs(290),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// What a watch tells.
#[derive(Debug)]
pub enum Seen<K> {
    /// An object, made or changed; `listed` when it comes from a list.
    Applied {
        /// The object, without managed fields.
        object: Box<K>,
        /// From a list rather than an event.
        listed: bool,
    },
    /// An object is gone.
    Deleted(Key),
    /// A list has been told completely.
    Complete,
}

type Events<K> = BoxStream<'static, Result<WatchEvent<K>, Error>>;

enum State<K> {
    /// The next page is to be read.
    List { next: Option<String> },
    /// A page is being told.
    Page { objects: VecDeque<K>, next: Option<String>, version: String },
    /// A watch is to be opened from here.
    Open { version: String },
    /// Events come; at first those of the list, where they come by the watch.
    Watching { version: String, events: Events<K>, initial: bool, since: Instant },
}

/// A watch of one kind. Ask it with [`Watch::next`], for ever.
pub struct Watch<K> {
    api: Api<K>,
    name: &'static str,
    fields: Option<String>,
    labels: Option<String>,
    options: Options,
    jitter: Jitter,
    meter: Arc<dyn Meter>,
    state: State<K>,
    /// Everything told and not deleted.
    known: BTreeSet<Key>,
    /// Told by the list under way.
    listing: BTreeSet<Key>,
    told: VecDeque<Seen<K>>,
    failures: u32,
    /// The server may have gone back since the version that is known.
    doubtful: bool,
}

impl<K> Watch<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches what `api` reaches; `name` is for logs and metrics.
    pub fn new(api: Api<K>, name: &'static str, options: Options, jitter: Jitter, meter: Arc<dyn Meter>) -> Self {
        Self {
            api,
            name,
            fields: None,
            labels: None,
            options,
            jitter,
            meter,
            state: State::List { next: None },
            known: BTreeSet::new(),
            listing: BTreeSet::new(),
            told: VecDeque::new(),
            failures: 0,
            doubtful: false,
        }
    }

    /// Only what the field selector takes.
    #[must_use]
    pub fn fields(mut self, selector: String) -> Self {
        self.fields = Some(selector);
        self
    }

    /// Only what the label selector takes.
    #[must_use]
    pub fn labels(mut self, selector: String) -> Self {
        self.labels = Some(selector);
        self
    }

    fn list_params(&self) -> ListParams {
        ListParams { field_selector: self.fields.clone(), label_selector: self.labels.clone(), ..ListParams::default() }
    }

    /// The next thing seen. Failures are counted, waited after and not told. Not to be dropped half way: a page under
    /// way would be read again.
    pub async fn next(&mut self) -> Seen<K> {
        loop {
            if let Some(seen) = self.told.pop_front() {
                return seen;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        match std::mem::replace(&mut self.state, State::List { next: None }) {
            State::List { next: None } if self.options.mode == Mode::Stream => self.open("0".to_owned(), true).await,
            State::List { next } => self.read_page(next).await,
            State::Page { mut objects, next, version } => match objects.pop_front() {
                Some(object) => {
                    self.state = State::Page { objects, next, version };
                    self.apply(object, true);
                }
                None => {
                    self.state = match next {
                        Some(next) => State::List { next: Some(next) },
                        None => {
                            self.complete();
                            State::Open { version }
                        }
                    };
                }
            },
            State::Open { version } if self.doubtful => self.look(version).await,
            State::Open { version } => self.open(version, false).await,
            State::Watching { version, events, initial, since } => self.follow(version, events, initial, since).await,
        }
    }

    async fn read_page(&mut self, next: Option<String>) {
        if next.is_none() {
            self.listing.clear();
            self.meter.relist(self.name);
        }
        let params = ListParams { limit: Some(self.options.page), continue_token: next, ..self.list_params() };
        match timeout(self.options.deadline, self.api.list(&params)).await {
            Ok(Ok(list)) => {
                self.failures = 0;
                let version = list.metadata.resource_version.unwrap_or_default();
                let next = list.metadata.continue_.filter(|token| !token.is_empty());
                self.state = State::Page { objects: list.items.into(), next, version };
            }
            // From the first page again, also after a 410: the list that the token stood for is gone.
            Ok(Err(error)) => self.failed(&error).await,
            Err(_) => self.late("list").await,
        }
    }

    /// Asks where the server stands, and lists everything when that is behind `version`.
    async fn look(&mut self, version: String) {
        let params = ListParams { limit: Some(1), ..self.list_params() };
        let stands = match timeout(self.options.deadline, self.api.list(&params)).await {
            Ok(Ok(list)) => list.metadata.resource_version.unwrap_or_default(),
            Ok(Err(error)) => {
                self.state = State::Open { version };
                return self.failed(&error).await;
            }
            Err(_) => {
                self.state = State::Open { version };
                return self.late("position").await;
            }
        };
        self.doubtful = false;
        let number = |version: &str| version.parse::<u64>().ok();
        if number(&stands).zip(number(&version)).is_some_and(|(stands, known)| stands < known) {
            tracing::warn!(kind = self.name, stands, known = version, "the API server has gone back: listing again");
            self.state = State::List { next: None };
        } else {
            self.state = State::Open { version };
        }
    }

    async fn open(&mut self, version: String, initial: bool) {
        if initial {
            self.listing.clear();
            self.meter.relist(self.name);
        }
        let params = WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: Some(u32::try_from(self.options.watch.as_secs()).unwrap_or(290)),
            bookmarks: true,
            send_initial_events: initial,
        };
        match timeout(self.options.deadline, self.api.watch(&params, &version)).await {
            Ok(Ok(events)) => {
                let since = Instant::now();
                self.state = State::Watching { version, events: events.boxed(), initial, since };
            }
            Ok(Err(error)) => {
                if !initial && !is_gone(&error) {
                    self.state = State::Open { version };
                }
                self.failed(&error).await;
            }
            Err(_) => {
                if !initial {
                    self.state = State::Open { version };
                }
                self.late("watch").await;
            }
        }
    }

    async fn follow(&mut self, version: String, mut events: Events<K>, initial: bool, since: Instant) {
        /// What the server may be late with the end of a watch, before the connection counts as dead.
        const MARGIN: Duration = Duration::from_secs(5);
        let event = timeout(self.options.watch + MARGIN, events.next()).await.unwrap_or(None);
        let (version, initial) = match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let newer = object.meta().resource_version.clone().unwrap_or(version);
                self.apply(object, initial);
                (newer, initial)
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                let newer = object.meta().resource_version.clone().unwrap_or(version);
                let key = convert::key(object.meta());
                self.known.remove(&key);
                self.listing.remove(&key);
                self.told.push_back(Seen::Deleted(key));
                (newer, initial)
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                let ends = initial && bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end");
                if ends {
                    self.complete();
                }
                (bookmark.metadata.resource_version, initial && !ends)
            }
            Some(Ok(WatchEvent::Error(status))) => {
                let error = Error::Api(status);
                if !initial && !is_gone(&error) {
                    self.state = State::Open { version };
                }
                return self.failed(&error).await;
            }
            Some(Err(error)) => {
                // What cannot be read at all is not read again for ever: after a few times everything is listed.
                const PATIENCE: u32 = 3;
                if !initial && self.failures < PATIENCE && !is_gone(&error) {
                    self.state = State::Open { version };
                }
                return self.failed(&error).await;
            }
            None if initial => return self.late("initial events").await,
            // The end that every watch comes to.
            None => {
                self.doubtful |= since.elapsed() < self.options.watch;
                self.state = State::Open { version };
                return;
            }
        };
        self.failures = 0;
        self.state = State::Watching { version, events, initial, since };
    }

    fn apply(&mut self, mut object: K, listed: bool) {
        // The bulk of most objects, and nothing that anybody here reads.
        object.meta_mut().managed_fields = None;
        if let Some(annotations) = &mut object.meta_mut().annotations {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        let key = convert::key(object.meta());
        if listed {
            self.listing.insert(key.clone());
        }
        self.known.insert(key);
        self.told.push_back(Seen::Applied { object: Box::new(object), listed });
    }

    fn complete(&mut self) {
        self.doubtful = false;
        let listing = std::mem::take(&mut self.listing);
        let known = std::mem::replace(&mut self.known, listing);
        let gone = known.difference(&self.known).cloned().map(Seen::Deleted);
        self.told.extend(gone);
        self.told.push_back(Seen::Complete);
    }

    async fn failed(&mut self, error: &Error) {
        match error {
            Error::Api(status) if status.code == 410 => tracing::debug!(kind = self.name, "410 Gone: listing again"),
            error => tracing::warn!(kind = self.name, %error, "watching failed; it is tried again"),
        }
        self.wait().await;
    }

    async fn late(&mut self, what: &'static str) {
        tracing::warn!(kind = self.name, what, "no answer in time; it is tried again");
        self.wait().await;
    }

    async fn wait(&mut self) {
        self.meter.watch_error(self.name);
        self.doubtful = true;
        let wait = doubling(self.options.first_wait, self.options.longest_wait, self.failures);
        self.failures = self.failures.saturating_add(1);
        sleep(self.jitter.spread(wait)).await;
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 410)
}

#[cfg(test)]
mod tests;
