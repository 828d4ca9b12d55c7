//! What the model keeps of each object and each broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claims::Claimants;
use super::draining::Draining;
use super::expose::Reports;
use super::line::Line;
use super::remotes::Remotes;
use super::routers::Routers;
use super::services::Found;
use super::told::Told;
use crate::maps::{Map, Set};
use crate::messaging::broker::{Contents, Entry, ground_entry};
use crate::messaging::entry::Effective;
use crate::messaging::exposure::Exposure;
use crate::messaging::ids::{Key, Now, Slot, TargetId};
use crate::messaging::input::{Address, AddressSpace, Broker, RouterConfig};
use crate::messaging::plans::{Charge, Limit, SpacePlan};
use crate::messaging::status::{AddressSpaceStatus, AddressStatus, Leaving, RouterConfigStatus};

/// A refusal by the model itself: reason and message of `Accepted`.
pub(super) type Refusal = (&'static str, Arc<str>);

/// One Address.
#[derive(Debug)]
pub(super) struct AddressState {
    pub obj: Box<Address>,
    pub canonical: Arc<str>,
    pub told: Told<AddressStatus>,
    /// When this generation, or its deletion, was first seen.
    pub since_ms: u64,
    /// Refused when last decided.
    pub refused: bool,
    /// Its RouterConfig was not there when last decided.
    pub unled: bool,
    /// Accepted now or at some time before: never deprovisioned for what its references do later.
    pub accepted: bool,
    /// What its space is charged for it; none while there is no room for it.
    pub admitted: Option<Admitted>,
    /// It waits for room for so much more.
    pub in_line: Option<Charge>,
    /// Brokers that a queue or topic of a standard space is placed on.
    pub placed: Vec<Arc<str>>,
    /// Brokers that a queue was placed on before and holds messages on, or may, by name.
    pub leaving: Vec<(Arc<str>, Leaving)>,
    /// The brokers whose credit it takes.
    pub weighs: Option<Weight>,
    /// The brokers that hold its slot, in the order of their names.
    pub holds: Vec<TargetId>,
    /// What its routers hold for it.
    pub route: Option<Route>,
    /// What its routers hold for its forwarders.
    pub forwards: Vec<Route>,
    /// It is being deleted, and whatever a router still has of it is left over.
    pub unrouted: bool,
    /// The generation that all of them acknowledged.
    pub in_force: Option<i64>,
    /// Effective values of that generation.
    pub effective: Effective,
    /// As counted in its space.
    pub ready: bool,
    /// Its deletion waits for this.
    pub waits: Option<Arc<str>>,
    /// It is being deleted, and no broker holds anything of it any more.
    pub taken: bool,
    /// Its deletion may end.
    pub released: bool,
    pub timer_ms: Option<u64>,
}

/// What a space is charged for an Address.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Admitted {
    /// The plan in force.
    pub plan: Option<Arc<str>>,
    /// What it costs now.
    pub charge: Charge,
}

/// What an Address takes of brokers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weight {
    pub config: Key,
    pub brokers: Vec<Arc<str>>,
    /// Thousandths of credit of each of them.
    pub each: i64,
}

/// A slot of the routers of a RouterConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub config: Key,
    pub slot: Slot,
}

impl AddressState {
    /// Whether anything stands for it on a data plane.
    pub fn held(&self) -> bool {
        !self.holds.is_empty() || self.route.is_some()
    }

    /// Whether anything stands for it, or it was accepted: nobody else may have its address then.
    pub fn stands(&self) -> bool {
        self.held() || self.accepted
    }

    /// Whether its newest form is in force and its status says so, on the brokers that hold it and no others: one that
    /// has joined is told of when routers lead there.
    pub fn settled(&self) -> bool {
        let told = &self.told.latest().brokers;
        let all_told = told.len() == self.holds.len() && self.holds.iter().all(|id| told.contains(&id.name));
        self.ready && self.in_force == Some(self.obj.meta.generation) && all_told
    }
}

/// What belongs to a space by name, whether or not the space exists.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub all: BTreeSet<Key>,
    /// Claimants of each address, by its canonical form.
    pub claims: BTreeMap<Arc<str>, Claimants>,
    /// Subscriptions by the topic that they name.
    pub subscriptions: Map<Arc<str>, BTreeSet<Key>>,
    /// Queues and topics by the dead letters and expiry addresses that they name.
    pub dead_letter_users: Map<Arc<str>, BTreeSet<Key>>,
    /// Addresses with forwarders by the connectors that they name.
    pub forwarders: Map<Arc<str>, BTreeSet<Key>>,
    pub ready: i64,
    /// How many of a standard space's Addresses each broker holds.
    pub on: BTreeMap<Arc<str>, i64>,
    pub quota: Quota,
}

/// Who has room in a space, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// The sum of all that is admitted.
    pub charged: Charge,
    /// Who waits, by creation, under what each asks for: so that those who fit are found without looking at the rest.
    pub line: BTreeMap<Charge, BTreeSet<(i64, Key)>>,
    /// Of which limits they may have been told, by what they ask for.
    pub told: BTreeMap<Charge, BTreeSet<Limit>>,
    /// Those of them who were not told yet that there is none.
    pub untold: BTreeSet<Key>,
}

/// One AddressSpace.
#[derive(Debug)]
pub(super) struct SpaceState {
    pub obj: Box<AddressSpace>,
    pub told: Told<AddressSpaceStatus>,
    pub since_ms: u64,
    /// `None` until first judged.
    pub accept: Option<Result<(), Refusal>>,
    pub ever_accepted: bool,
    pub foreign: bool,
    /// Since when its RouterConfig is not there.
    pub unled_ms: Option<u64>,
    pub prefix: Arc<str>,
    /// Its plan, as far as the RouterConfig has it: as last looked at.
    pub plan: Option<SpacePlan>,
    /// The broker of a brokered space.
    pub broker: Option<Arc<str>>,
    /// The Services that it was last said to have, and how far they are.
    pub exposure: Option<Exposure>,
    pub exposed: Option<Reports>,
    /// Its connectors.
    pub remotes: Remotes,
    /// When what is told of them was last written.
    pub rows_ms: Option<u64>,
    /// It is deleted, and what it shared on its brokers is taken away.
    pub cleared: bool,
    /// The brokers of a standard space where that is done.
    pub cleared_on: BTreeSet<Arc<str>>,
    /// When the status was last written: counts wait from there.
    pub written_ms: Option<u64>,
    /// Since when the counts are not what is told.
    pub moved_ms: Option<u64>,
    pub timer_ms: Option<u64>,
}

/// One RouterConfig.
#[derive(Debug)]
pub(super) struct ConfigState {
    pub obj: Box<RouterConfig>,
    pub told: Told<RouterConfigStatus>,
    pub since_ms: u64,
    pub targets: BTreeMap<Arc<str>, Target>,
    pub routers: Routers,
    /// How far its routers are known, and whether that may be said.
    pub found: Found,
    pub found_due: bool,
    /// Addresses of standard spaces that no broker has been chosen for, by creation.
    pub unplaced: BTreeSet<(i64, Key)>,
    /// Queues that would move if there was a broker for them.
    pub short: BTreeSet<Key>,
    pub pruned: Option<Arc<str>>,
    pub resynced: Option<Arc<str>>,
    pub timer_ms: Option<u64>,
}

/// What the spec wants of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Be there.
    Hold,
    /// Be gone once empty; until then it is used.
    Drain,
    /// Be gone; with `only_if_empty`, become an orphan if it holds messages.
    Gone { only_if_empty: bool },
}

/// How far that is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Progress {
    /// In force by its status, from before this process; the first comparison will tell.
    Restored,
    /// Not there; to be sent.
    Needed,
    /// Waits for another slot to be held.
    Gated,
    /// Handed to the drive under this generation.
    Sent(u64),
    /// Acknowledged; the mark orders it against reads.
    Acked(u64),
    /// Refused by the broker.
    Refused(Arc<str>),
    /// There were messages.
    NotEmpty,
}

/// One slot of one broker.
#[derive(Debug)]
pub(super) struct SlotState {
    pub tenant: Key,
    /// The Address that it stands for; none once that was let go.
    pub holder: Option<Key>,
    pub entry: Arc<Entry>,
    pub want: Want,
    pub progress: Progress,
    /// Generation of the Address that `entry` is of.
    pub for_generation: i64,
    /// Effective values that go with `entry`.
    pub effective: Effective,
    /// Its last Address was seen to be deleted.
    pub seen: bool,
    /// The broker itself has answered for `entry`, and not just its name been seen in a list.
    pub confirmed: bool,
    /// A comparison in detail was refused: held by its name, its settings unknown.
    pub unverified: bool,
    /// It is there, or may have been at some time: messages may lie in it.
    pub had: bool,
    /// What is there may be destroyed to make room.
    pub replace: bool,
    /// Failed or NotEmpty attempts in a row.
    pub attempts: u32,
}

impl SlotState {
    /// The slot of the settings that a space shares, to be made.
    pub fn ground(slot: &Slot, space: &Key) -> Self {
        Self {
            tenant: space.clone(),
            holder: None,
            entry: Arc::new(ground_entry(slot)),
            want: Want::Hold,
            progress: Progress::Needed,
            for_generation: 0,
            effective: Effective::default(),
            seen: true,
            confirmed: false,
            unverified: false,
            had: true,
            replace: false,
            attempts: 0,
        }
    }
}

/// One broker.
#[derive(Debug)]
pub(super) struct Target {
    pub broker: Broker,
    pub line: Line,
    /// The id that it last told.
    pub node: Option<Arc<str>>,
    /// Acknowledgements after this mark came on the present connection.
    pub session_mark: u64,
    pub slots: Map<Slot, SlotState>,
    /// Slots that wait, by the slot that they wait for.
    pub gates: Map<Slot, BTreeSet<Slot>>,
    /// Queues with messages whose Address was not seen to be deleted.
    pub orphans: BTreeMap<Slot, u64>,
    /// The value of `waystation.dev/prune-orphans` that was carried out here.
    pub pruned: Option<Arc<str>>,
    /// Read, not yet compared.
    pub contents: Option<Arc<Contents>>,
    /// Slots that were taken away since the read under way began.
    pub gone: Set<Slot>,
    /// What must be answered before it serves.
    pub fill: Set<Slot>,
    /// The queues that are to go once they are empty.
    pub draining: Draining,
    /// Which part of the slots the next comparison looks at in detail.
    pub sample: usize,
    /// Addresses of standard spaces that are placed here.
    pub placed: BTreeSet<Key>,
    /// Thousandths of credit that each Address takes here.
    pub weights: BTreeMap<Key, i64>,
    /// Their sum.
    pub used: i64,
}

impl Target {
    pub fn new(broker: Broker, now: Now) -> Self {
        Self {
            broker,
            line: Line::new(now),
            node: None,
            session_mark: 0,
            slots: Map::default(),
            gates: Map::default(),
            orphans: BTreeMap::new(),
            pruned: None,
            contents: None,
            gone: Set::default(),
            fill: Set::default(),
            draining: Draining::default(),
            sample: 0,
            placed: BTreeSet::new(),
            weights: BTreeMap::new(),
            used: 0,
        }
    }

    /// Forgets the connection, keeping what is wanted.
    pub fn reset(&mut self) {
        (self.line.read_once, self.line.reading, self.line.resync_ms) = (false, false, None);
        self.contents = None;
        self.orphans.clear();
        for slot in self.slots.values_mut() {
            if matches!(slot.progress, Progress::Sent(_)) {
                slot.progress = Progress::Needed;
            }
        }
    }
}
