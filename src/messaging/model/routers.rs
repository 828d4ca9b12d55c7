//! What the model keeps of the routers of a RouterConfig: they all hold the same, so that what is wanted is kept once,
//! and for each router only how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::line::Line;
use crate::maps::{Map, Set};
use crate::messaging::ids::{Key, Now, Slot};
use crate::messaging::input;
use crate::messaging::router::{self, Abilities};

/// How far one router is with a slot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Routed {
    /// Not there, and nothing was sent: its drive does not run, or the slot is new.
    Needed,
    /// In force by its Address's status, from before this process.
    Restored,
    /// Handed to the drive under this generation.
    Sent(u64),
    /// Acknowledged as held; the mark orders it against reads.
    Acked(u64),
    /// The router refused it.
    Refused(Box<str>),
    /// The router's kind cannot do it.
    Unsupported(&'static str),
    /// Acknowledged as gone, or never there.
    Gone,
}

/// What all routers of a RouterConfig hold under one pattern.
#[derive(Debug)]
pub(super) struct RouteState {
    pub tenant: Key,
    /// The Address that it stands for.
    pub holder: Option<Key>,
    pub entry: Arc<router::Entry>,
    /// Be there, or be gone.
    pub wanted: bool,
    /// Generation of the Address that `entry` is of.
    pub for_generation: i64,
    /// By the routers' places.
    pub at: Vec<Routed>,
    /// Refused attempts in a row.
    pub attempts: u32,
}

/// The routers of a RouterConfig.
#[derive(Debug, Default)]
pub(super) struct Routers {
    pub targets: BTreeMap<Arc<str>, Router>,
    pub slots: Map<Slot, RouteState>,
    /// Slots that are to go and wait for an answer.
    pub leaving: BTreeSet<Slot>,
    /// Slots of connectors.
    pub connectors: BTreeSet<Slot>,
    /// Addresses that were not Ready, or not in their newest form, when their status was last decided; also some that
    /// are gone since.
    pub unsettled: Set<Key>,
}

/// One router.
#[derive(Debug)]
pub(super) struct Router {
    pub spec: input::Router,
    pub line: Line,
    /// Its place in each slot's list: the lowest that was free.
    pub place: usize,
    pub abilities: Option<Abilities>,
    /// The address at which it was reached last.
    pub peer: Option<IpAddr>,
    /// Read, not yet compared.
    pub contents: Option<Arc<router::Contents>>,
    /// What must be answered before it serves.
    pub fill: Set<Slot>,
    /// Slots that were taken away since the read under way began.
    pub gone: Set<Slot>,
    /// Slots that it refused or cannot hold; also some that it holds by now.
    pub objections: Set<Slot>,
    /// How far its readiness listener is.
    pub readiness: Routed,
    /// Slots with a link that is not active, with the router's words.
    pub trouble: Map<Slot, Arc<str>>,
    /// How its connectors are, as far as it was told on this connection: why one is down, none when it is up.
    pub connectors: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Its links were looked at on this connection: one that is not in `trouble` is active.
    pub looked: bool,
    /// Slots that were in `trouble` on connections before this one, as long as it has not looked.
    pub unseen: Set<Slot>,
    /// Slots that were forgotten while a job of theirs waited for the connection: should they be wanted again, that job
    /// must not come first.
    pub stale: Set<Slot>,
    /// Slots of connectors that were told to be down while a job of theirs was under way, which may not have known.
    pub renewals: Set<Slot>,
}

impl Router {
    pub fn new(spec: input::Router, place: usize, now: Now) -> Self {
        Self {
            spec,
            line: Line::new(now),
            place,
            abilities: None,
            peer: None,
            contents: None,
            fill: Set::default(),
            gone: Set::default(),
            objections: Set::default(),
            readiness: Routed::Needed,
            trouble: Map::default(),
            connectors: BTreeMap::new(),
            looked: false,
            unseen: Set::default(),
            stale: Set::default(),
            renewals: Set::default(),
        }
    }
}
