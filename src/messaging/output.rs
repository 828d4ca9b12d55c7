//! What the model wants done, one batch for each time it settled.

use std::sync::Arc;

use super::broker::Job;
use super::exposure::Exposure;
use super::ids::{Key, Kind, TargetId};
use super::input::{Broker, Router};
use super::router;
use super::status::{AddressSpaceStatus, AddressStatus, RouterConfigStatus};

/// A drive to start or stop.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetChange {
    /// Start a drive (after stopping an older incarnation, whose mailbox and answers no longer count).
    Start {
        /// Which broker.
        target: TargetId,
        /// Rises with every start; comes back with each [`Input::Target`](super::input::Input::Target).
        incarnation: u64,
        /// Where it is.
        broker: Broker,
        /// `user` of all that is ours there: `waystation:<owner>`.
        user: Arc<str>,
        /// Secret with certificate and CA, known to be readable.
        tls_secret: Option<Key>,
        /// Secret with user name and password, known to be readable.
        credentials_secret: Option<Key>,
    },
    /// The same for a router.
    StartRouter {
        /// Which router.
        target: TargetId,
        /// Rises with every start; comes back with each [`Input::Router`](super::input::Input::Router).
        incarnation: u64,
        /// Where it is.
        router: Router,
        /// Part of the name of all that is ours there.
        owner: Arc<str>,
        /// Secret with certificate and CA, known to be readable.
        tls_secret: Option<Key>,
        /// Secret with user name and password, known to be readable.
        credentials_secret: Option<Key>,
    },
    /// Connect anew, with the Secrets that are named now, as they are now. The mailbox stays.
    Reconnect {
        /// Which one.
        target: TargetId,
        /// The running one.
        incarnation: u64,
        /// Secret with certificate and CA, known to be readable.
        tls_secret: Option<Key>,
        /// Secret with user name and password, known to be readable.
        credentials_secret: Option<Key>,
    },
    /// Read everything again; the connection stays.
    Reread {
        /// Which one.
        target: TargetId,
        /// The running one.
        incarnation: u64,
    },
    /// Stop it; nothing is sent any more.
    Stop {
        /// Which one.
        target: TargetId,
        /// The running one.
        incarnation: u64,
    },
}

/// The status of one object, whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Of a RouterConfig.
    RouterConfig(Arc<RouterConfigStatus>),
    /// Of an AddressSpace.
    AddressSpace(Arc<AddressSpaceStatus>),
    /// Of an Address.
    Address(Arc<AddressStatus>),
}

/// What to do with our finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerChange {
    /// Put it on.
    Add,
    /// Take it off.
    Remove,
}

/// One write to the API server. The newest of an object wins while it waits; each one that is not superseded is
/// answered by [`WriteDone`].
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What kind of object.
    pub kind: Kind,
    /// Which object.
    pub key: Key,
    /// Only if it still is this one.
    pub uid: Arc<str>,
    /// `metadata.generation` when it was decided.
    pub generation: i64,
    /// Whose turn it takes: the AddressSpace, or the object itself.
    pub tenant: Key,
    /// Goes behind others: a word about waiting rather than a result.
    pub low: bool,
    /// Rises with every write of the model.
    pub seq: u64,
    /// The new status, if it changes.
    pub status: Option<Status>,
    /// The finalizer, if it changes; carried out after the status.
    pub finalizer: Option<FinalizerChange>,
}

/// How a write ended. A failure that may pass (429, 5xx, time-out) is retried by the writer and not reported.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteDone {
    /// What kind of object.
    pub kind: Kind,
    /// Which object.
    pub key: Key,
    /// The write's number.
    pub seq: u64,
    /// The new `resourceVersion`, or why it can never be carried out.
    pub result: Result<u64, WriteError>,
}

/// Why a write can never be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteError {
    /// The object is gone, or is another one of the same name.
    Gone,
    /// The API server refuses it, in its own words.
    Refused(Arc<str>),
}

/// An event for people, on an object. For transitions only.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What kind of object.
    pub kind: Kind,
    /// Which object.
    pub key: Key,
    /// Its uid.
    pub uid: Arc<str>,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A line for the log: what turned, and is no Event.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The RouterConfig.
    pub config: Key,
    /// Somebody should look.
    pub warning: bool,
    /// For people; holds no secret.
    pub message: String,
}

/// Everything that came of settling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Drives to start and stop, in order, before the jobs.
    pub targets: Vec<TargetChange>,
    /// Work for drives, in order.
    pub jobs: Vec<(TargetId, Job)>,
    /// Work for the drives of routers, in order.
    pub router_jobs: Vec<(TargetId, router::Job)>,
    /// Writes, in order.
    pub writes: Vec<Write>,
    /// The Services that spaces shall have; none where a space is gone. Of a space the last one counts.
    pub exposures: Vec<(Key, Option<Exposure>)>,
    /// Events.
    pub events: Vec<Event>,
    /// Lines for the log beside the Events, which are logged as well.
    pub notes: Vec<Note>,
    /// For addresses that became Ready: milliseconds since the change was seen.
    pub ready_after_ms: Vec<u64>,
    /// Repairs made by comparison since the last time.
    pub repairs: u64,
    /// Settle again at this monotonic millisecond, even if nothing happens.
    pub wake_ms: Option<u64>,
}
