//! Who wants one and the same address of a space, and who has it.
//!
//! A thousand Addresses of one name must not cost a thousand looks each time one of them stirs: those who have no chance
//! stand in line in the order in which they would have one, and are told anew only when another has the address.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Model;
use super::state::AddressState;
use crate::maps::Map;
use crate::messaging::ids::Key;

/// Claimants of one address.
#[derive(Debug)]
pub(super) enum Claimants {
    /// As it nearly always is.
    One(Key),
    /// Several.
    Many(Box<Line>),
}

/// Several claimants.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether it is being deleted, when it was created, its name: the first comes first, unless somebody stands.
    waiting: BTreeSet<(bool, i64, Key)>,
    /// All that hold the address or were accepted for it; some of them may not be any more.
    standing: BTreeSet<Key>,
    /// Who had it when the others were last marked.
    seen: Option<Key>,
}

fn place(address: &AddressState) -> (bool, i64, Key) {
    (address.obj.meta.deleting, address.obj.meta.created_s, address.obj.meta.key.clone())
}

impl Claimants {
    /// Every claimant, in line.
    pub fn all(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            Self::One(key) => (Some(key), None),
            Self::Many(line) => (None, Some(line.waiting.iter().map(|(.., key)| key))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Those that may hold something, or would next: to be judged when what stands for the address has changed.
    fn concerned(&self) -> impl Iterator<Item = &Key> {
        let standing = match self {
            Self::One(_) => None,
            Self::Many(line) => Some(&line.standing),
        };
        // The first two in line: who has it, or would, and who comes after.
        standing.into_iter().flatten().chain(self.all().take(2))
    }

    /// Who stands is known anew.
    pub fn stand_anew(&mut self, addresses: &Map<Key, AddressState>) {
        if let Self::Many(line) = self {
            let stands = |key: &&Key| addresses.get(*key).is_some_and(AddressState::stands);
            line.standing = line.waiting.iter().map(|(.., key)| key).filter(stands).cloned().collect();
        }
    }

    /// What is wrong with it, for these addresses.
    pub fn check(&self, addresses: &Map<Key, AddressState>) -> Result<(), String> {
        let Self::Many(line) = self else { return Ok(()) };
        for (.., key) in &line.waiting {
            let address = addresses.get(key).ok_or(format!("{key}: claims an address and is not there"))?;
            if !line.waiting.contains(&place(address)) {
                return Err(format!("{key}: stands in line at the wrong place"));
            }
            if address.stands() && !line.standing.contains(key) {
                return Err(format!("{key}: is not known to stand"));
            }
        }
        match line.waiting.len() {
            0 | 1 => Err("a line of fewer than two".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether it is among those that may stand, as all are that do.
    pub fn may_stand(&self, key: &Key) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Many(line) => line.standing.contains(key),
        }
    }
}

impl Model {
    /// The Address that has an address: the one that holds it or was accepted, then the older, then the lower name.
    /// One that is being deleted and never had it comes last.
    pub(super) fn winner(&self, space: &Key, canonical: &str) -> Option<&AddressState> {
        let claimants = self.members.get(space)?.claims.get(canonical)?;
        let rank = |a: &&AddressState| {
            let (deleting, created_s, key) = place(a);
            (!a.held(), !a.stands(), deleting && !a.stands(), created_s, key)
        };
        match claimants {
            Claimants::One(key) => self.addresses.get(key),
            Claimants::Many(line) => {
                let first = line.waiting.first().map(|(.., key)| key);
                line.standing.iter().chain(first).filter_map(|key| self.addresses.get(key)).min_by_key(rank)
            }
        }
    }

    /// The one that is not being deleted and would have the address without `key`.
    pub(super) fn next_in_line(&self, space: &Key, canonical: &str, key: &Key) -> Option<&AddressState> {
        let Claimants::Many(line) = self.members.get(space)?.claims.get(canonical)? else { return None };
        let next = line.waiting.iter().take_while(|(deleting, ..)| !deleting).find(|(.., next)| next != key);
        self.addresses.get(&next?.2)
    }

    /// An Address that was not there before.
    pub(super) fn enter_claim(&mut self, space: &Key, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        let (canonical, own, stands) = (address.canonical.clone(), place(address), address.stands());
        self.note_under_connector(key, true);
        let Some(members) = self.members.get_mut(space) else { return };
        let Some(claimants) = members.claims.get_mut(&canonical) else {
            members.claims.insert(canonical, Claimants::One(key.clone()));
            return;
        };
        if let Claimants::One(other) = claimants {
            let mut line = Line { seen: Some(other.clone()), ..Line::default() };
            line.standing.insert(other.clone());
            line.waiting.extend(self.addresses.get(other).map(place));
            *claimants = Claimants::Many(Box::new(line));
        }
        if let Claimants::Many(line) = claimants {
            line.waiting.insert(own);
            if stands {
                line.standing.insert(key.clone());
            }
        }
    }

    /// An Address is being deleted from now on.
    pub(super) fn step_back(&mut self, space: &Key, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        let own = place(address);
        let before = (!own.0, own.1, own.2.clone());
        let claimants = self.members.get_mut(space).and_then(|m| m.claims.get_mut(&address.canonical));
        if let Some(Claimants::Many(line)) = claimants {
            line.waiting.remove(&before);
            line.waiting.insert(own);
        }
    }

    /// An Address that is about to be forgotten.
    pub(super) fn leave_claim(&mut self, space: &Key, key: &Key) {
        self.note_under_connector(key, false);
        let Some(address) = self.addresses.get(key) else { return };
        let own = place(address);
        let Some(members) = self.members.get_mut(space) else { return };
        let left = match members.claims.get_mut(&address.canonical) {
            None => return,
            Some(Claimants::One(_)) => None,
            Some(Claimants::Many(line)) => {
                line.waiting.remove(&own);
                line.standing.remove(key);
                if line.waiting.len() > 1 {
                    return;
                }
                line.waiting.first().map(|(.., last)| last.clone())
            }
        };
        match left {
            Some(last) => {
                self.dirty_addresses.insert(last.clone());
                self.dirty_claims.insert((space.clone(), address.canonical.clone()));
                members.claims.insert(address.canonical.clone(), Claimants::One(last));
            }
            None => drop(members.claims.remove(&address.canonical)),
        }
    }

    /// An Address may have something, or was accepted: to be called wherever that begins.
    pub(super) fn note_standing(&mut self, key: &Key) {
        self.note_under_connector(key, true);
        let Some(address) = self.addresses.get(key) else { return };
        let claimants =
            self.members.get_mut(&Self::space_key(address)).and_then(|m| m.claims.get_mut(&address.canonical));
        if let Some(Claimants::Many(line)) = claimants {
            line.standing.insert(key.clone());
        }
    }

    /// Marks those whom it may concern that something stands, or does not any more, for an address.
    pub(super) fn mark_claimants(&mut self, space: &Key, canonical: &str) {
        let Some((canonical, claimants)) = self.members.get(space).and_then(|m| m.claims.get_key_value(canonical))
        else {
            return;
        };
        self.dirty_addresses.extend(claimants.concerned().cloned());
        if matches!(claimants, Claimants::Many(_)) {
            self.dirty_claims.insert((space.clone(), canonical.clone()));
        }
    }

    /// Whether what happens to an Address means anything to those who refer to its address.
    pub(super) fn counts(&self, space: &Key, canonical: &str, key: &Key) -> bool {
        let claimants = self.members.get(space).and_then(|m| m.claims.get(canonical));
        claimants.is_none_or(|claimants| claimants.may_stand(key))
            || self.winner(space, canonical).is_some_and(|winner| winner.obj.meta.key == *key)
    }

    /// If another one has the address than before, all others are told, and those who refer to it look again.
    pub(super) fn settle_claim(&mut self, space: &Key, canonical: &Arc<str>) {
        let winner = self.winner(space, canonical).map(|winner| winner.obj.meta.key.clone());
        let Some(members) = self.members.get_mut(space) else { return };
        if let Some(Claimants::Many(line)) = members.claims.get_mut(canonical) {
            if line.seen == winner {
                return;
            }
            line.seen = winner;
            self.dirty_addresses.extend(line.waiting.iter().map(|(.., key)| key.clone()));
        }
        self.mark_referrers_of(space, canonical);
    }
}
