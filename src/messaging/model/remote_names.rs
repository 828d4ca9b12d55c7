//! The addresses that begin with a connector's name: who has them, and who is judged anew when that changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Model;
use super::claims::Claimants;
use super::state::{AddressState, Refusal, SpaceState};
use crate::messaging::ids::Key;
use crate::messaging::reason;

impl Model {
    /// An accepted Address of the space that begins with a connector's name.
    pub(super) fn taken_by(&self, space: &Key, name: &str) -> Option<&Arc<str>> {
        let state = self.spaces.get(space).and_then(|space| space.remotes.get(name))?;
        state.standing.iter().find(|key| self.stands(key)).map(|key| &key.name)
    }

    fn stands(&self, key: &Key) -> bool {
        self.addresses.get(key).is_some_and(AddressState::stands)
    }

    /// Who stands for an address that begins with this name: for a connector that has just come.
    pub(super) fn standing_under(&self, space: &Key, name: &str) -> BTreeSet<Key> {
        self.beginning_with(space, name).filter(|key| self.stands(key)).cloned().collect()
    }

    /// An Address that may begin with a connector's name stands from now on, or is about to be forgotten.
    pub(super) fn note_under_connector(&mut self, key: &Key, stands: bool) {
        let Some(address) = self.addresses.get(key).filter(|address| !stands || address.stands()) else { return };
        let (space, canonical) = (Self::space_key(address), &address.canonical);
        let Some(space) = self.spaces.get_mut(&space).filter(|space| !space.remotes.is_empty()) else { return };
        let Some(remote) = canonical.split('.').next().and_then(|first| space.remotes.get_mut(first)) else { return };
        match stands {
            true => remote.standing.insert(key.clone()),
            false => remote.standing.remove(key),
        };
    }

    /// Who claims an address of the space that is, or begins with, this part.
    fn beginning_with<'a>(&'a self, space: &Key, part: &str) -> impl Iterator<Item = &'a Key> + use<'a> {
        let first = format!("{part}.");
        let claims = self.members.get(space).map(|members| &members.claims);
        let exact = claims.and_then(|claims| claims.get(part)).into_iter();
        let longer = claims.into_iter().flat_map({
            let from: Arc<str> = first.as_str().into();
            move |claims| claims.range(from.clone()..)
        });
        let longer =
            longer.take_while(move |(canonical, _)| canonical.starts_with(&first)).map(|(_, claimants)| claimants);
        exact.chain(longer).flat_map(Claimants::all)
    }

    /// Why an Address that never was accepted cannot have its address: a connector has it.
    pub(super) fn taken_by_connector(&self, space: &SpaceState, canonical: &str) -> Option<Refusal> {
        let name = connector_of(space, canonical)?;
        let own = &space.obj.meta.key;
        // One that has just come is looked at with its space.
        let taken = match space.remotes.contains_key(name) {
            true => self.taken_by(own, name).is_some(),
            false => self.beginning_with(own, name).any(|key| self.stands(key)),
        };
        if taken {
            return None;
        }
        let text = format!(
            "connector {name} of AddressSpace {} has all addresses that begin with {name}: choose another spec.address, or \
             give the connector another name",
            space.obj.meta.key.name
        );
        Some((reason::DUPLICATE_ADDRESS, text.into()))
    }

    /// An Address came or went that may have, or want, the name of a connector.
    pub(super) fn mark_connector_of(&mut self, space: &Key, canonical: &str) {
        if self.spaces.get(space).is_some_and(|state| connector_of(state, canonical).is_some()) {
            self.dirty_spaces.insert(space.clone());
        }
    }

    pub(super) fn mark_beginning(&mut self, space: &Key, name: &str) {
        let marked: Vec<Key> = self.beginning_with(space, name).cloned().collect();
        self.dirty_addresses.extend(marked);
    }

    /// Addresses with forwarders over a connector are judged anew.
    pub(super) fn mark_forwarders(&mut self, space: &Key, connector: &str) {
        if let Some(keys) = self.members.get(space).and_then(|members| members.forwarders.get(connector)) {
            self.dirty_addresses.extend(keys.iter().cloned());
        }
    }
}

/// The connector of a space that has all addresses which begin as this one.
fn connector_of<'a>(space: &'a SpaceState, canonical: &str) -> Option<&'a Arc<str>> {
    let first = canonical.split('.').next()?;
    space.obj.connectors.iter().map(|spec| &spec.name).find(|name| ***name == *first)
}
