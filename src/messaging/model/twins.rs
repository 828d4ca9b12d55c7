//! One broker under two names. Two that work on it as the same owner would each take for left over what the other holds:
//! the first alone is driven, and what an Address stands for under another name is not touched.
//!
//! A broker is known by the id that it tells at each connection. Owners that differ may share one.

use std::sync::Arc;

use super::Model;
use super::state::{AddressState, Target};
use crate::messaging::ids::{Key, TargetId};
use crate::messaging::names;
use crate::messaging::output::TargetChange;
use crate::messaging::status::TargetState;

impl Model {
    /// Takes in which broker answered; whether it may be driven. Of several that are the same one, the first is: of the
    /// older RouterConfig, and in it the one that its spec names first.
    pub(super) fn recognize(&mut self, id: &TargetId, node: Option<Arc<str>>) -> bool {
        if self.target(id).is_some_and(|target| target.node == node) && node.is_some() {
            return true;
        }
        self.forget_node(id);
        let Some(owner) = self.configs.get(&id.config).map(|config| config.obj.owner.clone()) else { return true };
        let Some(target) = self.target_mut(id) else { return true };
        target.node.clone_from(&node);
        let Some(node) = node else { return true };
        let same = self.nodes.entry((owner, node)).or_default();
        same.insert(id.clone());
        let all: Vec<TargetId> = same.iter().cloned().collect();
        let Some(first) = all.iter().min_by_key(|id| self.precedence(id)).cloned() else { return true };
        for other in all.iter().filter(|other| **other != first) {
            self.refuse_twin(other, &first);
        }
        first == *id
    }

    fn precedence(&self, id: &TargetId) -> (i64, Key, usize) {
        let config = self.configs.get(&id.config);
        let created = config.map_or(i64::MAX, |config| config.obj.meta.created_s);
        let place = config.and_then(|config| config.obj.brokers.iter().position(|broker| broker.name == id.name));
        (created, id.config.clone(), place.unwrap_or(usize::MAX))
    }

    fn refuse_twin(&mut self, id: &TargetId, first: &TargetId) {
        self.forget_node(id);
        let text = match id.config == first.config {
            true => format!("it is the same broker as {}: take one of them out of spec.messaging.brokers", first.name),
            false => format!(
                "it is the same broker as {} of RouterConfig {}, which has the same messaging.owner: take it out of one \
                 of them, or have one made anew with another owner",
                first.name, first.config
            ),
        };
        let (now, acks) = (self.now, self.acks);
        let Some(target) = self.target_mut(id) else { return };
        let incarnation = std::mem::take(&mut target.line.incarnation);
        target.reset();
        target.line.refused = Some(text.clone().into());
        (target.line.compared, target.line.known, target.session_mark) = (false, true, acks);
        target.line.turn(TargetState::Unreachable, text.into(), now);
        self.out.targets.push(TargetChange::Stop { target: id.clone(), incarnation });
        self.twins.entry(first.clone()).or_default().insert(id.clone());
        self.dirty_configs.insert(id.config.clone());
        self.mark_unplaced(id);
    }

    /// It is not known any more which broker this is: whoever was refused for it is tried again.
    pub(super) fn forget_node(&mut self, id: &TargetId) {
        if let Some(target) = self.target_mut(id) {
            let node = target.node.take();
            target.line.refused = None;
            let owner = self.configs.get(&id.config).map(|config| config.obj.owner.clone());
            self.unlist_node(id, owner, node);
        }
    }

    /// The same for one that is no part of the model any more.
    pub(super) fn unlist_node(&mut self, id: &TargetId, owner: Option<Arc<str>>, node: Option<Arc<str>>) {
        if let (Some(owner), Some(node)) = (owner, node)
            && let Some(same) = self.nodes.get_mut(&(owner.clone(), node.clone()))
        {
            same.remove(id);
            if same.is_empty() {
                self.nodes.remove(&(owner, node));
            }
        }
        self.twins.retain(|_, refused| {
            refused.remove(id);
            !refused.is_empty()
        });
        for twin in self.twins.remove(id).into_iter().flatten() {
            if let Some(target) = self.target_mut(&twin) {
                target.line.refused = None;
                self.dirty_configs.insert(twin.config.clone());
            }
        }
    }

    /// Whether an Address stands under another name for what a broker has in this slot: the broker may be one that the
    /// RouterConfig has under another name as well, or another RouterConfig of the same owner.
    pub(super) fn stands_elsewhere(&self, id: &TargetId, slot: &str) -> bool {
        self.stands_in_another_config(id, slot) || self.stands_beside(id, slot)
    }

    fn stands_beside(&self, id: &TargetId, slot: &str) -> bool {
        let Some((space, address)) = self.address_of_slot(slot, id) else { return false };
        let Some(winner) = self.standing_for(&space, &address) else { return false };
        let Some(config) = self.configs.get(&id.config) else { return false };
        let Some(here) = config.targets.get(&id.name) else { return false };
        let beside = |name: &Arc<str>| *name != id.name && config.targets.get(name).is_some_and(|t| may_be(here, t));
        match self.spaces.get(&space).filter(|space| space.obj.config == id.config) {
            Some(space) if space.obj.standard => winner.told.status.brokers.iter().any(beside),
            Some(space) => space.broker.as_ref().is_some_and(beside),
            None => false,
        }
    }

    /// The same, for other RouterConfigs alone.
    pub(super) fn stands_in_another_config(&self, id: &TargetId, slot: &str) -> bool {
        let Some(owner) = self.configs.get(&id.config).map(|config| &config.obj.owner) else { return false };
        let Some(here) = self.target(id) else { return false };
        let others = self.configs_of_owner.get(owner).into_iter().flatten().filter(|key| **key != id.config);
        others.into_iter().any(|key| {
            let Some(config) = self.configs.get(key) else { return false };
            let space = match config.obj.single {
                true => self.single_winner(key).map(|space| (space, slot)),
                false => slot.split_once('/').and_then(|(_, address)| Some((names::space_of(slot)?, address))),
            };
            let Some((space, address)) = space else { return false };
            self.spaces.get(&space).is_some_and(|space| space.obj.config == *key)
                && self.standing_for(&space, address).is_some()
                && config.targets.values().any(|there| may_be(here, there))
        })
    }

    /// The accepted Address of exactly this name.
    fn standing_for(&self, space: &Key, address: &str) -> Option<&AddressState> {
        let winner = self.winner(space, &names::canonical(address))?;
        (*winner.obj.address == *address && winner.accepted).then_some(winner)
    }
}

/// Whether two names may be those of one broker: as long as one of them was not asked, they may.
fn may_be(one: &Target, other: &Target) -> bool {
    match (&one.node, &other.node) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}
