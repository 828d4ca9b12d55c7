//! Addresses: which Address has an address, whether it is accepted, and what its slot shall hold.

use std::sync::Arc;

use super::Model;
use super::slots::Claim;
use super::state::{AddressState, Refusal};
use crate::messaging::broker::ground;
use crate::messaging::entry::{self, Effective, References};
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::{AddressType, Defaults};
use crate::messaging::names;
use crate::messaging::reason;

/// What is to be done with an Address that is not being deleted.
#[derive(Debug)]
pub(super) enum Decision {
    /// It belongs to another installation.
    Foreign,
    /// It cannot be carried out.
    Refuse(Refusal),
    /// Something that it needs is on its way: nothing to say yet.
    Wait(Refusal),
    /// Hold it there.
    Hold(TargetId, Slot, Arc<entry::References>),
}

impl Model {
    pub(super) fn space_key(address: &AddressState) -> Key {
        Key { namespace: address.obj.meta.key.namespace.clone(), name: address.obj.space.clone() }
    }

    /// Decides an address and carries the decision to its slot.
    pub(super) fn evaluate_address(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        if self.spaces.get(&Self::space_key(address)).is_some_and(|space| space.foreign) {
            // Another installation's, its deletion included: what it holds is not for us to let go.
            return;
        }
        if address.obj.meta.deleting {
            let held = (address.holds.is_some(), address.refused);
            self.evaluate_deletion(key);
            if self.addresses.get(key).is_some_and(|a| (a.holds.is_some(), a.refused) != held) {
                self.mark_referrers(key);
                self.dirty_addresses.remove(key);
            }
            self.verdict_address(key, None);
            return;
        }
        let decision = self.decide(address);
        let refused = matches!(decision, Decision::Refuse(_));
        let (was_refused, now_ms) = (address.refused, self.now.mono_ms);
        if refused != was_refused
            && let Some(address) = self.addresses.get_mut(key)
        {
            address.refused = refused;
            if was_refused {
                // What it lacked has come: patience starts anew.
                address.since_ms = now_ms;
            }
        }
        if refused {
            self.disinherit(key);
        }
        let Some(address) = self.addresses.get(key) else { return };
        let held = (address.accepted, address.holds.clone(), was_refused);
        if let Decision::Hold(id, slot, refs) = &decision
            && address.told.finalizer
        {
            let space = Self::space_key(address);
            let claim = self.claim(address, slot, refs, space);
            self.hold(id, slot, claim);
        }
        if self.addresses.get(key).is_some_and(|a| (a.accepted, a.holds.clone(), a.refused) != held) {
            self.mark_referrers(key);
            // Marking marks itself as well: once is enough, nothing else has changed for it.
            self.dirty_addresses.remove(key);
        }
        self.verdict_address(key, Some(decision));
    }

    pub(super) fn claim(&self, address: &AddressState, slot: &Slot, refs: &References, space: Key) -> Claim {
        let none = Defaults::default();
        let config = self.spaces.get(&space).and_then(|s| self.configs.get(&s.obj.config));
        let defaults = config.map_or(&none, |c| &c.obj.defaults);
        let generation = address.obj.meta.generation;
        let single = config.is_none_or(|c| c.obj.single);
        let ground = (!single).then(|| ground(&names::prefix(&space, false)));
        Claim {
            tenant: space,
            holder: address.obj.meta.key.clone(),
            entry: Arc::new(entry::entry(&address.obj, slot, refs, defaults, ground)),
            effective: entry::effective(&address.obj, defaults),
            generation,
            in_force: address.in_force == Some(generation),
        }
    }

    /// The Address that has an address: the one that holds it or was accepted, then the older, then the lower name.
    /// One that is being deleted and never had it comes last.
    pub(super) fn winner(&self, space: &Key, canonical: &str) -> Option<&AddressState> {
        let claimants = self.members.get(space)?.claims.get(canonical)?;
        let rank = |a: &&AddressState| {
            let rank = match (a.holds.is_some() || a.accepted, a.obj.meta.deleting) {
                (true, _) => 0,
                (false, false) => 1,
                (false, true) => 2,
            };
            (a.holds.is_none(), rank, a.obj.meta.created_s, a.obj.meta.key.clone())
        };
        claimants.iter().filter_map(|key| self.addresses.get(key)).min_by_key(rank)
    }

    pub(super) fn decide(&self, address: &AddressState) -> Decision {
        let space_key = Self::space_key(address);
        let refuse = |reason, message: String| Decision::Refuse((reason, message.into()));
        let Some(space) = self.spaces.get(&space_key) else {
            return refuse(
                reason::SPACE_NOT_FOUND,
                format!(
                    "spec.addressSpace names {}, which does not exist in namespace {}: create that AddressSpace",
                    space_key.name, space_key.namespace
                ),
            );
        };
        if space.foreign {
            return Decision::Foreign;
        }
        let closed = match &space.accept {
            Some(Err((_, message))) => Some(format!("AddressSpace {} is not accepted: {message}", space_key.name)),
            _ if space.obj.meta.deleting => {
                Some(format!("AddressSpace {} is being deleted: use another", space_key.name))
            }
            _ => None,
        };
        let known = address.accepted && space.ever_accepted;
        if let Some(message) = closed.filter(|_| !known) {
            return refuse(reason::SPACE_NOT_ACCEPTED, message);
        }
        if let Some(winner) = self.winner(&space_key, &address.canonical)
            && winner.obj.meta.key != address.obj.meta.key
        {
            let (name, kind) = (&winner.obj.meta.key.name, type_name(winner.obj.kind));
            return refuse(
                reason::DUPLICATE_ADDRESS,
                format!(
                    "Address {name} ({kind}) has {} in this space already: choose another spec.address, or delete it",
                    winner.obj.address
                ),
            );
        }
        let Some(id) = self.target_of_space(&space_key) else {
            return Decision::Wait((
                reason::WAITING_FOR_BROKER,
                "its space has no broker yet: see the AddressSpace".into(),
            ));
        };
        match self.references(address, &space_key, &space.prefix) {
            Ok(refs) => Decision::Hold(id, names::slot(&space.prefix, &address.obj.address), Arc::new(refs)),
            Err(other) => other,
        }
    }

    /// Resolves what an address refers to.
    fn references(&self, address: &AddressState, space: &Key, prefix: &str) -> Result<References, Decision> {
        let mut refs = References::default();
        if let Some(topic) = &address.obj.topic {
            refs.topic = Some(self.resolve(address, space, prefix, "spec.topic", topic, AddressType::Topic)?);
        }
        let dead = AddressType::DeadLetter;
        if let Some(name) = &address.obj.dead_letter {
            refs.dead_letter = Some(self.resolve(address, space, prefix, "spec.deadLetterAddress", name, dead)?);
        } else if matches!(address.obj.kind, AddressType::Queue | AddressType::Topic) {
            refs.dead_letter = self.default_dead_letter(space, prefix)?;
        }
        if let Some(name) = &address.obj.expiry {
            refs.expiry = Some(self.resolve(address, space, prefix, "spec.expiryAddress", name, dead)?);
        }
        Ok(refs)
    }

    fn resolve(
        &self,
        address: &AddressState,
        space: &Key,
        prefix: &str,
        field: &str,
        name: &str,
        kind: AddressType,
    ) -> Result<Slot, Decision> {
        let (missing, word) = match kind {
            AddressType::Topic => (reason::TOPIC_NOT_FOUND, "topic"),
            _ => (reason::DEAD_LETTER_NOT_FOUND, "deadLetter"),
        };
        let refuse = |reason, text: String| Err(Decision::Refuse((reason, text.into())));
        let Some(found) = self.winner(space, &names::canonical(name)) else {
            return refuse(
                missing,
                format!(
                    "{field} names {name}, which is no address of space {}: create an Address of type {word} for it",
                    space.name
                ),
            );
        };
        let found_kind = found.obj.kind;
        if found_kind != kind {
            let reason = if kind == AddressType::Topic { missing } else { reason::DEAD_LETTER_WRONG_TYPE };
            return refuse(
                reason,
                format!(
                    "{field} names {name}, which is of type {}: name an address of type {word}",
                    type_name(found_kind)
                ),
            );
        }
        if found.obj.meta.deleting && address.holds.is_none() && !address.accepted {
            return refuse(missing, format!("{field} names {name}, which is being deleted: name another {word}"));
        }
        if found.refused && !found.accepted {
            let text = format!(
                "{field} names {name}, which is not accepted itself: see kubectl describe addr {}",
                found.obj.meta.key.name
            );
            return refuse(missing, text);
        }
        // One that is refused now and was accepted before keeps what it has.
        if found.holds.is_none() && !(found.accepted && found.refused) {
            let text = format!(
                "{field} names {name}, which is not configured yet: see kubectl describe addr {}",
                found.obj.meta.key.name
            );
            return Err(Decision::Wait((reason::CONFIGURING, text.into())));
        }
        Ok(names::slot(prefix, &found.obj.address))
    }

    /// The RouterConfig's default dead letter, where the space has it.
    fn default_dead_letter(&self, space: &Key, prefix: &str) -> Result<Option<Slot>, Decision> {
        let config = self.spaces.get(space).and_then(|s| self.configs.get(&s.obj.config));
        let Some(name) = config.and_then(|c| c.obj.defaults.dead_letter_address.as_ref()) else { return Ok(None) };
        let found = self.winner(space, &names::canonical(name));
        let Some(found) = found.filter(|a| a.obj.kind == AddressType::DeadLetter && !a.obj.meta.deleting && !a.refused)
        else {
            return Ok(None);
        };
        if found.holds.is_none() {
            let text = format!("the default dead letter {name} is not configured yet");
            return Err(Decision::Wait((reason::CONFIGURING, text.into())));
        }
        Ok(Some(names::slot(prefix, &found.obj.address)))
    }

    pub(super) fn effective_of(&self, address: &AddressState) -> Effective {
        address.effective
    }
}

/// The type as written in the spec.
pub(super) fn type_name(kind: AddressType) -> &'static str {
    match kind {
        AddressType::Anycast => "anycast",
        AddressType::Multicast => "multicast",
        AddressType::Queue => "queue",
        AddressType::Topic => "topic",
        AddressType::Subscription => "subscription",
        AddressType::DeadLetter => "deadLetter",
    }
}
