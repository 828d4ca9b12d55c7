//! Deletions: what waits for what, and when the finalizer may go.

use std::sync::Arc;

use super::Model;
use super::address::Decision;
use super::state::{AddressState, Progress, Target, Want};
use crate::messaging::broker::Class;
use crate::messaging::entry::References;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::AddressType;
use crate::messaging::names;
use crate::messaging::status::TargetState;

impl Model {
    /// Takes an Address that is being deleted one step further.
    pub(super) fn evaluate_deletion(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| !a.released) else { return };
        let space = Self::space_key(address);
        let ours = self.winner(&space, &address.canonical).is_some_and(|w| w.obj.meta.key == *key);
        let id = address.holds.clone().or_else(|| self.target_of_space(&space)).filter(|id| self.target(id).is_some());
        let Some(id) = id.filter(|_| ours) else {
            // It never had anything, or what had it is no part of the RouterConfig any more.
            self.release(key);
            return;
        };
        let slot = self.slot_on(&id, &space, &address.obj.address);
        if let Some(heir) = self.heir(address, &space) {
            // Queue and messages are handed over without a command.
            if let Some(state) = self.target_mut(&id).and_then(|t| t.slots.get_mut(&slot)) {
                (state.holder, state.seen) = (None, true);
            }
            self.release(key);
            self.dirty_addresses.insert(heir);
            return;
        }
        let force = self.forced(address, &space);
        let had = address.holds.is_some() || address.accepted;
        let waits = if force || !had { None } else { self.awaited(address, &space) };
        let refs = self.references_for_removal(address, &space, &id);
        let claim = self.claim(address, &slot, &refs, space);
        let drains = address.obj.when_empty && !force && claim.entry.queue.is_some();
        let refused = self
            .target(&id)
            .and_then(|t| t.slots.get(&slot))
            .is_some_and(|s| s.want != Want::Hold && matches!(s.progress, Progress::Refused(_)));
        if force && (refused || self.target(&id).is_none_or(|t| self.given_up(t))) {
            // Let go of; should the broker come back while we remember, it is taken away there after all.
            self.take_away(&id, &slot, Want::Gone { only_if_empty: false }, Class::Change, claim);
            if let Some(state) = self.target_mut(&id).and_then(|t| t.slots.get_mut(&slot)) {
                state.holder = None;
            }
            self.release(key);
            return;
        }
        let text = match &waits {
            Some(text) => Some(text.clone()),
            None if drains => Some(
                "waits for its last message (deletionPolicy WhenEmpty); senders are not kept out meanwhile, since a \
                 brokered space has no way in of its own to close"
                    .into(),
            ),
            None => None,
        };
        if waits.is_some() {
            // Stays wanted, and is changed and refilled like any other, until the wait ends.
            let decision = self.decide(address);
            let refused = matches!(decision, Decision::Refuse(_));
            if let Decision::Hold(id, slot, refs) = decision {
                let claim = self.claim(address, &slot, &refs, Self::space_key(address));
                self.hold(&id, &slot, claim);
            }
            if let Some(address) = self.addresses.get_mut(key) {
                address.refused = refused;
            }
        } else {
            let want = if drains { Want::Drain } else { Want::Gone { only_if_empty: false } };
            self.take_away(&id, &slot, want, Class::Change, claim);
        }
        if let Some(address) = self.addresses.get_mut(key) {
            address.waits = text;
        }
    }

    /// Lets the finalizer go.
    fn release(&mut self, key: &Key) {
        if let Some(address) = self.addresses.get_mut(key) {
            (address.released, address.holds, address.waits, address.accepted) = (true, None, None, false);
        }
    }

    /// The name of an address on a broker.
    pub(super) fn slot_on(&self, id: &TargetId, space: &Key, address: &str) -> Slot {
        let single = self.configs.get(&id.config).is_some_and(|c| c.obj.single);
        names::slot(&names::prefix(space, single), address)
    }

    /// Whether a target cannot be reached: one that was only just begun with is waited for.
    fn given_up(&self, target: &Target) -> bool {
        match target.state {
            TargetState::Unreachable => true,
            TargetState::Connecting => target.down_ms + self.timing.outage_ms <= self.now.mono_ms,
            TargetState::Filling | TargetState::Serving => false,
        }
    }

    /// Whom a deleted Address hands its queue to: the next claimant, if it is of the same type.
    fn heir(&self, address: &AddressState, space: &Key) -> Option<Key> {
        let claimants = self.members.get(space)?.claims.get(&address.canonical)?;
        let next = claimants
            .iter()
            .filter_map(|key| self.addresses.get(key))
            .filter(|a| !a.obj.meta.deleting && a.obj.meta.key != address.obj.meta.key)
            .min_by_key(|a| (a.obj.meta.created_s, a.obj.meta.key.clone()))?;
        let same = next.obj.kind == address.obj.kind
            && next.obj.topic == address.obj.topic
            && next.obj.address == address.obj.address;
        same.then(|| next.obj.meta.key.clone())
    }

    /// Whether somebody said to let go: on the Address, its space or its RouterConfig.
    fn forced(&self, address: &AddressState, space: &Key) -> bool {
        let space = self.spaces.get(space);
        let config = space.and_then(|s| self.configs.get(&s.obj.config));
        address.obj.meta.force_delete
            || space.is_some_and(|s| s.obj.meta.force_delete)
            || config.is_some_and(|c| c.obj.meta.force_delete)
    }

    /// What else must go first.
    fn awaited(&self, address: &AddressState, space: &Key) -> Option<Arc<str>> {
        let members = self.members.get(space)?;
        let (users, what) = match address.obj.kind {
            AddressType::Topic => (members.subscriptions.get(&address.canonical)?, "subscriptions of it"),
            AddressType::DeadLetter => (members.dead_letter_users.get(&address.canonical)?, "Addresses that name it"),
            _ => return None,
        };
        let mut users =
            users.iter().filter(|key| self.addresses.get(*key).is_some_and(|a| a.holds.is_some() || a.accepted));
        let first = users.next()?;
        let more = users.count();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("waits for {what}: {}{rest}; delete them, or have them name another", first.name).into())
    }

    /// References of an address that goes: what cannot be resolved any more is named as it was.
    fn references_for_removal(&self, address: &AddressState, space: &Key, id: &TargetId) -> References {
        let name = |name: &Option<Arc<str>>| {
            name.as_ref().map(|name| {
                let found = self.winner(space, &names::canonical(name));
                self.slot_on(id, space, found.map_or(&**name, |a| &*a.obj.address))
            })
        };
        References {
            topic: name(&address.obj.topic),
            dead_letter: name(&address.obj.dead_letter),
            expiry: name(&address.obj.expiry),
        }
    }

    /// Decides what becomes of the slot of an Address that is gone from the API server.
    pub(super) fn release_vanished(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        let Some(id) = address.holds.clone() else {
            self.disinherit(key);
            return;
        };
        let space = Self::space_key(address);
        let slot = self.slot_on(&id, &space, &address.obj.address);
        let heir = self.heir(address, &space).is_some();
        let seen = address.obj.meta.deleting;
        let drains = address.obj.when_empty && !self.forced(address, &space);
        let Some(target) = self.target_mut(&id) else { return };
        let Some(state) = target.slots.get_mut(&slot).filter(|s| s.holder.as_ref() == Some(key)) else { return };
        (state.holder, state.seen) = (None, seen);
        if heir {
            return;
        }
        let want = match state.entry.queue {
            _ if seen && !drains => Want::Gone { only_if_empty: false },
            Some(_) => Want::Gone { only_if_empty: true },
            None => {
                // An address without queues goes only with an Address that was seen to go.
                self.forget(&id, &slot);
                return;
            }
        };
        let under_way = state.want == want && matches!(state.progress, Progress::Sent(_));
        state.want = want;
        if !under_way {
            self.send(&id, &slot, Class::Change);
        }
    }

    /// A slot that was handed over to an Address which cannot take it: as with any leftover, nothing with messages is
    /// destroyed.
    pub(super) fn disinherit(&mut self, heir: &Key) {
        let Some(address) = self.addresses.get(heir).filter(|a| a.holds.is_none() && !a.released) else { return };
        let space = Self::space_key(address);
        let Some(id) = self.target_of_space(&space) else { return };
        let slot = self.slot_on(&id, &space, &address.obj.address);
        let Some(target) = self.target_mut(&id) else { return };
        let Some(state) = target.slots.get_mut(&slot).filter(|s| s.holder.is_none()) else { return };
        if matches!(state.want, Want::Gone { .. }) {
            return;
        }
        let queue = state.entry.queue.is_some();
        if !queue && !state.seen {
            self.forget(&id, &slot);
            return;
        }
        state.want = Want::Gone { only_if_empty: queue };
        self.send(&id, &slot, Class::Change);
    }
}
