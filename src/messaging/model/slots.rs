//! Slots: from what is wanted of a broker to jobs, in an order that never names what is not there yet.

use std::sync::Arc;

use super::Model;
use super::state::{Progress, SlotState, Target, Want};
use crate::messaging::broker::{Class, Entry, Job, Wish, is_ground};
use crate::messaging::entry::{Effective, gates};
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::names;
use crate::messaging::status::TargetState;

/// What an Address wants of its slot.
pub(super) struct Claim {
    pub tenant: Key,
    pub holder: Key,
    pub entry: Arc<Entry>,
    pub effective: Effective,
    pub generation: i64,
    /// The status says that this generation is in force.
    pub in_force: bool,
}

impl Model {
    /// Makes the slot hold what its Address wants; nothing is sent when it does already.
    pub(super) fn hold(&mut self, id: &TargetId, slot: &Slot, claim: Claim) {
        let Claim { tenant, holder, entry, effective, generation, in_force } = claim;
        if let Some(ground) = &entry.ground {
            self.hold_ground(id, ground, &tenant);
        }
        let Some(target) = self.target_mut(id) else { return };
        if target.orphans.remove(slot).is_some() {
            self.stale_configs.insert(id.config.clone());
        }
        let Some(target) = self.target_mut(id) else { return };
        let Some(state) = target.slots.get_mut(slot) else {
            // In force by its status: whether it really is there, the comparison tells. Until then nothing is sent.
            let restored = in_force && !target.line.read_once;
            let progress = if restored { Progress::Restored } else { Progress::Needed };
            let state = SlotState {
                tenant,
                holder: Some(holder.clone()),
                entry,
                want: Want::Hold,
                progress,
                for_generation: generation,
                effective,
                seen: false,
                confirmed: false,
                unverified: false,
                had: restored || !target.line.read_once || target.contents.is_some(),
                replace: false,
                attempts: 0,
            };
            target.slots.insert(slot.clone(), state);
            self.held_by(&holder, id);
            if !restored {
                self.send(id, slot, Class::Change);
            }
            return;
        };
        let same = state.want == Want::Hold && state.entry == entry;
        let renewed = state.for_generation != generation || state.holder.as_ref() != Some(&holder);
        if matches!(state.want, Want::Drain | Want::Gone { only_if_empty: false })
            && state.entry.routing != entry.routing
        {
            // Its Address was seen to go: what is left of another type makes room.
            state.replace = true;
        }
        if state.want == Want::Drain {
            target.draining.over(slot);
        }
        (state.holder, state.tenant, state.for_generation) = (Some(holder.clone()), tenant, generation);
        (state.entry, state.effective, state.want) = (entry, effective, Want::Hold);
        state.confirmed &= same;
        let enough = same
            && match state.progress {
                Progress::Acked(_) | Progress::Sent(_) | Progress::Gated => true,
                Progress::Restored => in_force,
                Progress::Refused(_) => !renewed,
                Progress::Needed | Progress::NotEmpty => false,
            };
        self.held_by(&holder, id);
        if !enough {
            self.send(id, slot, Class::Change);
        }
    }

    /// Makes the settings that a space shares be there, before anything of the space is.
    fn hold_ground(&mut self, id: &TargetId, slot: &Slot, space: &Key) {
        let Some(target) = self.target_mut(id) else { return };
        let state = target.slots.entry(slot.clone()).or_insert_with(|| SlotState::ground(slot, space));
        let there = state.want == Want::Hold && state.progress != Progress::Needed;
        state.want = Want::Hold;
        if !there {
            self.send(id, slot, Class::Change);
        }
    }

    /// Takes the settings that a space shared away; whether there is nothing left to wait for.
    pub(super) fn clear_ground(&mut self, id: &TargetId, slot: &Slot, space: &Key) -> bool {
        let Some(target) = self.target_mut(id) else { return true };
        if target.line.state == TargetState::Unreachable {
            return true;
        }
        let state = target.slots.entry(slot.clone()).or_insert_with(|| SlotState::ground(slot, space));
        let gone = Want::Gone { only_if_empty: false };
        match (state.want == gone, &state.progress) {
            (true, Progress::Refused(_)) => true,
            (true, Progress::Sent(_)) => false,
            _ => {
                state.want = gone;
                self.send(id, slot, Class::Change);
                false
            }
        }
    }

    /// A broker stands for an Address from now on.
    fn held_by(&mut self, holder: &Key, id: &TargetId) {
        let Some(address) = self.addresses.get_mut(holder) else { return };
        (address.accepted, address.taken) = (true, false);
        if let Err(at) = address.holds.binary_search(id) {
            address.holds.insert(at, id.clone());
            let space = Self::space_key(address);
            *self.members.entry(space).or_default().on.entry(id.name.clone()).or_default() += 1;
        }
        self.note_standing(holder);
    }

    /// A broker holds nothing of an Address any more.
    pub(super) fn let_go(&mut self, holder: &Key, id: &TargetId) {
        let Some(address) = self.addresses.get_mut(holder) else { return };
        let Ok(at) = address.holds.binary_search(id) else { return };
        address.holds.remove(at);
        match address.leaving.iter().position(|(name, _)| *name == id.name) {
            // It has moved away from there.
            Some(at) => drop(address.leaving.remove(at)),
            None => address.in_force = None,
        }
        address.taken = address.obj.meta.deleting && address.holds.is_empty();
        let space = Self::space_key(address);
        let Some(members) = self.members.get_mut(&space) else { return };
        if let Some(count) = members.on.get_mut(&id.name) {
            *count -= 1;
            if *count == 0 {
                members.on.remove(&id.name);
            }
        }
    }

    /// No broker stands for an Address any more.
    pub(super) fn let_go_of_all(&mut self, holder: &Key) {
        let holds = self.addresses.get(holder).map(|a| a.holds.clone()).unwrap_or_default();
        for id in &holds {
            self.let_go(holder, id);
        }
    }

    /// Takes the slot away, for an Address (`holder`) that waits for the answer or for none.
    pub(super) fn take_away(&mut self, id: &TargetId, slot: &Slot, want: Want, class: Class, claim: Claim) {
        let Some(target) = self.target_mut(id) else { return };
        let orphan = target.orphans.remove(slot).is_some();
        let state = target.slots.entry(slot.clone()).or_insert_with(|| SlotState {
            tenant: claim.tenant,
            holder: Some(claim.holder.clone()),
            entry: claim.entry,
            want,
            progress: Progress::Needed,
            for_generation: claim.generation,
            effective: claim.effective,
            seen: false,
            confirmed: false,
            unverified: false,
            had: true,
            replace: false,
            attempts: 0,
        });
        let under_way = state.want == want
            && matches!(state.progress, Progress::Sent(_) | Progress::Refused(_) | Progress::NotEmpty);
        state.holder = Some(claim.holder.clone());
        state.want = want;
        self.held_by(&claim.holder, id);
        if !under_way {
            self.send(id, slot, class);
        }
        // Nothing that waited for it to be held will see that.
        self.open_gates(id, slot);
        if orphan {
            self.stale_configs.insert(id.config.clone());
        }
    }

    /// Drops a slot without a command.
    pub(super) fn forget(&mut self, id: &TargetId, slot: &Slot) {
        if let Some(target) = self.target_mut(id) {
            target.slots.remove(slot);
            target.orphans.remove(slot);
            target.fill.remove(slot);
            target.draining.over(slot);
        }
        self.open_gates(id, slot);
        self.serve_if_filled(id);
    }

    /// What waits for a refused slot does not hold up its target, and has something to tell.
    pub(super) fn excuse(&mut self, id: &TargetId, gate: &Slot) {
        let Some(target) = self.target_mut(id) else { return };
        let Some(waiting) = target.gates.get(gate) else { return };
        let mut holders = Vec::new();
        for slot in waiting {
            target.fill.remove(slot);
            holders.extend(target.slots.get(slot).and_then(|s| s.holder.clone()));
        }
        self.dirty_addresses.extend(holders);
    }

    /// The refused slot that this one waits for, and the broker's words.
    pub(super) fn refused_gate(&self, id: &TargetId, slot: &Slot) -> Option<(Slot, Arc<str>)> {
        let target = self.target(id)?;
        let state = target.slots.get(slot).filter(|s| s.progress == Progress::Gated)?;
        gates(slot, &state.entry).find_map(|gate| match &target.slots.get(gate)?.progress {
            Progress::Refused(words) => Some((gate.clone(), words.clone())),
            _ => None,
        })
    }

    /// Sends what the slot wants, unless it must wait for another one, or for its target's drive to be started: then it
    /// goes when one runs.
    pub(super) fn send(&mut self, id: &TargetId, slot: &Slot, class: Class) {
        let Some(target) = self.target_mut(id) else { return };
        if !target.line.started() {
            if let Some(state) = target.slots.get_mut(slot) {
                state.progress = Progress::Needed;
            }
            return;
        }
        let Some(state) = target.slots.get(slot) else { return };
        let closed: Vec<Slot> = match state.want {
            Want::Hold => gates(slot, &state.entry).filter(|gate| !target.open(gate)).cloned().collect(),
            _ => Vec::new(),
        };
        let (entry, want, replace, tenant) = (state.entry.clone(), state.want, state.replace, state.tenant.clone());
        if !closed.is_empty() {
            for gate in closed {
                target.gates.entry(gate).or_default().insert(slot.clone());
            }
            if let Some(state) = target.slots.get_mut(slot) {
                state.progress = Progress::Gated;
            }
            return;
        }
        let wish = match want {
            Want::Hold => Wish::Hold { entry, replace },
            Want::Drain => Wish::Gone { entry, only_if_empty: true },
            Want::Gone { only_if_empty } => Wish::Gone { entry, only_if_empty },
        };
        self.generation += 1;
        let generation = self.generation;
        if let Some(state) = self.target_mut(id).and_then(|t| t.slots.get_mut(slot)) {
            state.progress = Progress::Sent(generation);
        }
        self.out.jobs.push((id.clone(), Job { slot: slot.clone(), generation, tenant, class, wish }));
    }

    /// Sends what was wanted of a target before its drive ran.
    pub(super) fn send_needed(&mut self, id: &TargetId) {
        let Some(target) = self.target(id) else { return };
        let needed = target.slots.iter().filter(|(_, state)| state.progress == Progress::Needed);
        let mut needed: Vec<Slot> = needed.map(|(slot, _)| slot.clone()).collect();
        needed.sort_unstable();
        for slot in needed {
            self.send(id, &slot, Class::Change);
        }
    }

    /// Has the settings of a slot compared that is right by its names.
    pub(super) fn send_verify(&mut self, id: &TargetId, slot: &Slot) {
        self.generation += 1;
        let generation = self.generation;
        let Some(state) = self.target(id).and_then(|t| t.slots.get(slot)) else { return };
        let wish = Wish::Verify { entry: state.entry.clone() };
        let job = Job { slot: slot.clone(), generation, tenant: state.tenant.clone(), class: Class::Repair, wish };
        self.out.jobs.push((id.clone(), job));
    }

    /// Whether the slot waits for another one.
    pub(super) fn gated(&self, id: &TargetId, slot: &Slot) -> bool {
        let Some(target) = self.target(id) else { return false };
        let Some(state) = target.slots.get(slot).filter(|s| s.want == Want::Hold) else { return false };
        gates(slot, &state.entry).any(|gate| !target.open(gate))
    }

    /// After a comparison: everything whose gates turned out to be open goes.
    pub(super) fn open_all_gates(&mut self, id: &TargetId) {
        let Some(target) = self.target(id) else { return };
        let open: Vec<Slot> = target.gates.keys().filter(|gate| target.open(gate)).cloned().collect();
        for gate in open {
            self.open_gates(id, &gate);
        }
    }

    /// On a new connection: the settings of every space are looked at before anything else, since everything else
    /// waits for them.
    pub(super) fn hold_grounds(&mut self, id: &TargetId) {
        let Some(target) = self.target_mut(id) else { return };
        let wanted = target.slots.iter_mut().filter(|(slot, s)| is_ground(slot) && s.want == Want::Hold);
        let mut grounds: Vec<Slot> = Vec::new();
        for (slot, state) in wanted {
            if !matches!(state.progress, Progress::Sent(_)) {
                state.progress = Progress::Needed;
                grounds.push(slot.clone());
            }
        }
        grounds.sort_unstable();
        for slot in grounds {
            self.send(id, &slot, Class::Change);
        }
    }

    /// The slot is held now: what waited for it goes.
    pub(super) fn open_gates(&mut self, id: &TargetId, slot: &Slot) {
        let Some(waiting) = self.target_mut(id).and_then(|t| t.gates.remove(slot)) else { return };
        for slot in waiting {
            let target = self.target(id);
            let state = target.and_then(|t| t.slots.get(&slot));
            if let Some(state) = state.filter(|s| s.progress == Progress::Gated) {
                let fill = target.is_some_and(|t| t.fill.contains(&slot));
                let class = if fill { Class::Repair } else { Class::Change };
                debug_assert_eq!(state.want, Want::Hold);
                self.send(id, &slot, class);
            }
        }
    }

    /// Marks the Addresses that claim the name of a slot which has gone.
    pub(super) fn mark_slot_claimants(&mut self, slot: &str, id: &TargetId) {
        if let Some((space, address)) = self.address_of_slot(slot, id) {
            self.mark_claimants(&space, &names::canonical(&address));
        }
    }

    /// Whether an Address that was accepted once has exactly this name on this broker. What a broker holds for a space
    /// that has since moved to another one, or of an Address that is elsewhere, stands for nobody.
    pub(super) fn claimed(&self, id: &TargetId, slot: &str) -> bool {
        let Some((space, address)) = self.address_of_slot(slot, id) else { return false };
        let Some(winner) = self.winner(&space, &names::canonical(&address)) else { return false };
        let elsewhere = match self.spaces.get(&space).is_some_and(|s| s.obj.standard) {
            true => !winner.told.status.brokers.contains(&id.name),
            false => self.target_of_space(&space).is_some_and(|at| at != *id),
        };
        *winner.obj.address == *address && winner.accepted && !elsewhere
    }

    /// Whether any Address has this broker-side name.
    pub(super) fn claimable(&self, id: &TargetId, slot: &str) -> bool {
        self.address_of_slot(slot, id)
            .is_some_and(|(space, address)| self.winner(&space, &names::canonical(&address)).is_some())
    }

    /// The space and the address that a broker-side name stands for.
    pub(super) fn address_of_slot(&self, slot: &str, id: &TargetId) -> Option<(Key, String)> {
        if self.configs.get(&id.config).is_some_and(|c| c.obj.single) {
            return Some((self.single_winner(&id.config)?, slot.to_string()));
        }
        let (_, address) = slot.split_once('/')?;
        Some((names::space_of(slot)?, address.to_owned()))
    }
}

impl Target {
    /// Whether what waits for `gate` may go: it is held, as far as this connection has shown, or nothing of ours will
    /// ever hold it. What was held on an earlier connection may be lost.
    fn open(&self, gate: &Slot) -> bool {
        match self.slots.get(gate) {
            None => true,
            Some(state) if state.want != Want::Hold => true,
            Some(state) => {
                matches!(state.progress, Progress::Acked(at) if self.line.compared || at > self.session_mark)
            }
        }
    }
}
