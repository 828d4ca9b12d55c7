//! What an Address refers to: the topic of a subscription, the dead letter and expiry address of a queue or topic.

use std::sync::Arc;

use super::Model;
use super::address::{Decision, type_name};
use super::state::AddressState;
use crate::messaging::entry::References;
use crate::messaging::ids::{Key, Slot};
use crate::messaging::input::AddressType;
use crate::messaging::names;
use crate::messaging::reason;

impl Model {
    /// Resolves what an address refers to.
    pub(super) fn references(&self, address: &AddressState, space: &Key, prefix: &str) -> Result<References, Decision> {
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
            if names::impossible(name) {
                let text = format!(
                    "{field} names {name}, which no Address can have (kubectl explain addr.spec.address says why): name \
                     an address of type {word}"
                );
                return refuse(missing, text);
            }
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
        if found.obj.meta.deleting && !address.stands() {
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
        let kept = found.accepted && found.refused;
        if !found.held() && !kept {
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
        if !found.held() {
            let text = format!("the default dead letter {name} is not configured yet");
            return Err(Decision::Wait((reason::CONFIGURING, text.into())));
        }
        Ok(Some(names::slot(prefix, &found.obj.address)))
    }

    /// References of an address that goes: what cannot be resolved any more is named as it was.
    pub(super) fn references_for_removal(&self, address: &AddressState, space: &Key, prefix: &str) -> References {
        let name = |name: &Option<Arc<str>>| {
            name.as_ref().map(|name| {
                let found = self.winner(space, &names::canonical(name));
                names::slot(prefix, found.map_or(&**name, |a| &*a.obj.address))
            })
        };
        References {
            topic: name(&address.obj.topic),
            dead_letter: name(&address.obj.dead_letter),
            expiry: name(&address.obj.expiry),
        }
    }
}
