//! Which Addresses a space's plan has room for, and what each takes of its brokers.
//!
//! Charged first is what was accepted before: by its status, or since a broker holds its queue. Then, in the order of
//! creation, whoever fits. Nothing that was accepted is ever put out for lack of room: it keeps what it has, and only
//! what it asks for in addition waits in line.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Model;
use super::address::Decision;
use super::placing::holds;
use super::state::{AddressState, Admitted, ConfigState, Refusal, Target, Want, Weight};
use crate::messaging::ids::{Key, Slot};
use crate::messaging::input::AddressType;
use crate::messaging::plans::{AddressPlan, Charge, Limit, Limits, SpacePlan};
use crate::messaging::reason;

use super::address::type_name;

/// Whether there is room.
enum Room {
    /// It is charged for.
    Has,
    /// It is in line, and the line has not been called yet.
    Unknown,
    /// There is none.
    None(Refusal),
}

impl ConfigState {
    pub(super) fn address_plan(&self, name: &str) -> Option<&AddressPlan> {
        self.obj.address_plans.iter().find(|plan| *plan.name == *name)
    }

    pub(super) fn space_plan(&self, name: &str) -> Option<&SpacePlan> {
        self.obj.space_plans.iter().find(|plan| *plan.name == *name)
    }

    /// Whether every broker was read or given up: until then one may hold what nobody knows of.
    pub(super) fn all_known(&self) -> bool {
        self.targets.values().all(|target| target.line.known)
    }
}

impl Model {
    /// Asks for room for an Address, where nothing else is against it, and turns the decision where there is none.
    pub(super) fn admit(&mut self, key: &Key, decision: Decision) -> Decision {
        let Some(address) = self.addresses.get(key) else { return decision };
        let accepted = address.accepted;
        if matches!(decision, Decision::Foreign | Decision::Pend(_)) {
            return decision;
        }
        // What it names may yet turn out to be refused: until then no other plan is taken, or it would depend on who is
        // looked at first which one it has.
        let hangs = accepted && matches!(decision, Decision::Wait((reason::CONFIGURING, _)));
        if hangs || matches!(decision, Decision::Refuse(_)) {
            self.leave_line(key);
            if accepted {
                self.recharge(key);
                self.weigh_where_told(key);
            } else {
                self.give_back(key);
            }
            return decision;
        }
        let refusal = match self.wanted_plan(address) {
            Ok(plan) => match self.ask(key, plan) {
                Room::Has => None,
                Room::Unknown => return Decision::Pend(None),
                Room::None(refusal) => Some(refusal),
            },
            Err(refusal) => {
                self.leave_line(key);
                self.recharge(key);
                Some(refusal)
            }
        };
        match (refusal, decision) {
            (None, decision) => decision,
            (Some(refusal), Decision::Hold(mut plan)) if accepted => {
                plan.turned = Some(refusal);
                Decision::Hold(plan)
            }
            (Some(_), decision) if accepted => decision,
            (Some(refusal), Decision::Wait((reason::CONFIGURING, _))) => Decision::Pend(Some(refusal)),
            (Some(refusal), _) => Decision::Refuse(refusal),
        }
    }

    /// The plan that an Address shall have; none where its RouterConfig has no plans.
    pub(super) fn wanted_plan(&self, address: &AddressState) -> Result<Option<Arc<str>>, Refusal> {
        let space = self.spaces.get(&Self::space_key(address));
        let wanted = &address.obj.plan;
        let Some((space, config)) = space.and_then(|s| Some((s, self.configs.get(&s.obj.config)?))) else {
            // Who could say what plans there are is gone: what is in force stays.
            return Ok(address.admitted.as_ref().map_or_else(|| wanted.clone(), |admitted| admitted.plan.clone()));
        };
        let name = &space.obj.config;
        let plans = &config.obj.address_plans;
        let allowed = |plan: &AddressPlan| {
            let by_space = space.plan.as_ref().map_or(&[][..], |plan| &plan.allowed);
            by_space.is_empty() || by_space.contains(&plan.name)
        };
        let kind = address.obj.kind;
        let remedy = || {
            let fit = plans.iter().filter(|plan| plan.types.contains(&kind) && allowed(plan));
            let fit: Vec<&str> = fit.map(|plan| &*plan.name).collect();
            match fit.is_empty() {
                true => format!("there is none for type {} in this space: have one added there", type_name(kind)),
                false => format!("name one of {}", fit.join(", ")),
            }
        };
        let refuse = |reason, text: String| Err((reason, text.into()));
        let Some(wanted) = wanted else {
            if plans.is_empty() {
                return Ok(None);
            }
            let text = format!("spec.plan is missing, and RouterConfig {name} has addressPlans: {}", remedy());
            return refuse(reason::PLAN_NOT_FOUND, text);
        };
        let Some(plan) = config.address_plan(wanted) else {
            let remedy = if plans.is_empty() { "it has none: remove spec.plan".to_owned() } else { remedy() };
            let text = format!("spec.plan names {wanted}, which RouterConfig {name} does not have: {remedy}");
            return refuse(reason::PLAN_NOT_FOUND, text);
        };
        if !plan.types.contains(&kind) {
            let text =
                format!("plan {wanted} of RouterConfig {name} is not for type {}: {}", type_name(kind), remedy());
            return refuse(reason::PLAN_NOT_ALLOWED, text);
        }
        if !allowed(plan) {
            let by = space.obj.plan.as_deref().unwrap_or_default();
            let text = format!(
                "plan {by} of AddressSpace {} does not allow address plan {wanted}: {}",
                space.obj.meta.key.name,
                remedy()
            );
            return refuse(reason::PLAN_NOT_ALLOWED, text);
        }
        Ok(Some(wanted.clone()))
    }

    /// What an Address of a plan takes.
    fn charge_of(&self, address: &AddressState, plan: Option<&Arc<str>>) -> Charge {
        let space = self.spaces.get(&Self::space_key(address));
        let config = space.and_then(|s| self.configs.get(&s.obj.config));
        // A plan that is gone costs nothing any more.
        let plan = config.and_then(|c| c.address_plan(plan?));
        Charge::of(plan, address.obj.kind, space.is_some_and(|s| s.obj.standard))
    }

    /// How much a space may have, and what its plan is called; none where there are no such plans.
    pub(super) fn limits(&self, space: &Key) -> Option<(Arc<str>, Limits)> {
        let space = self.spaces.get(space)?;
        let config = self.configs.get(&space.obj.config).filter(|c| !c.obj.space_plans.is_empty())?;
        let name = space.obj.plan.clone().unwrap_or_default();
        // Without a plan it is not accepted: nothing is added to what it has.
        Some(config.space_plan(&name).map_or((name.clone(), Limits::NOTHING), |plan| (name.clone(), plan.limits)))
    }

    /// What a space says that has more than its plan allows; its numbers do not move with each Address.
    pub(super) fn overdrawn(&self, space: &Key) -> Option<String> {
        let (plan, limits) = self.limits(space)?;
        let most = limits.overdrawn(self.members.get(space)?.quota.charged)?;
        Some(format!("plan {plan} has room for {most}, and more is in use: it stays, and nothing is added to it"))
    }

    /// Has an Address charged for `plan`, or puts it in line.
    fn ask(&mut self, key: &Key, plan: Option<Arc<str>>) -> Room {
        self.recharge(key);
        let Some(address) = self.addresses.get(key) else { return Room::Unknown };
        if address.admitted.as_ref().is_some_and(|admitted| admitted.plan == plan) {
            self.leave_line(key);
            return Room::Has;
        }
        let space = Self::space_key(address);
        let wanted = self.charge_of(address, plan.as_ref());
        let has = address.admitted.as_ref().map(|admitted| admitted.charge).unwrap_or_default();
        let more = wanted.minus(has);
        let limits = self.limits(&space);
        let gives_back = Limits::NOTHING.fits(Charge::default(), more);
        let found = address.admitted.is_none() && self.found(address);
        let Some((name, limits)) = limits.filter(|_| !gives_back && !found) else {
            self.leave_line(key);
            self.charge(key, Some(Admitted { plan, charge: wanted }));
            return Room::Has;
        };
        let created = address.obj.meta.created_s;
        let known = self.spaces.get(&space).and_then(|s| self.configs.get(&s.obj.config)).is_none_or(|c| c.all_known());
        if address.in_line != Some(more) {
            self.leave_line(key);
            let quota = &mut self.members.entry(space.clone()).or_default().quota;
            quota.line.entry(more).or_default().insert((created, key.clone()));
            if let Some(address) = self.addresses.get_mut(key) {
                address.in_line = Some(more);
            }
        }
        let quota = &mut self.members.entry(space.clone()).or_default().quota;
        let charged = quota.charged;
        if !known || limits.fits(charged, more) {
            quota.untold.insert(key.clone());
            self.to_admit.insert(space);
            return Room::Unknown;
        }
        quota.untold.remove(key);
        quota.told.entry(more).or_default().extend(limits.exceeded(charged, more).map(|exceeded| exceeded.limit()));
        match self.addresses.get(key) {
            Some(address) => Room::None((reason::QUOTA_EXCEEDED, no_room(address, &name, &limits, charged, more))),
            None => Room::Unknown,
        }
    }

    /// Lets in who waits and fits, the oldest first, as far as the room goes.
    pub(super) fn admit_waiting(&mut self, space: &Key) {
        let config = self.spaces.get(space).and_then(|s| self.configs.get(&s.obj.config));
        if config.is_some_and(|c| !c.all_known()) {
            // Called again once they are.
            return;
        }
        let limits = self.limits(space).map(|(_, limits)| limits).unwrap_or_default();
        loop {
            let Some(quota) = self.members.get(space).map(|members| &members.quota) else { return };
            let fits = quota.line.iter().filter(|(more, _)| limits.fits(quota.charged, **more));
            let Some((_, key)) = fits.filter_map(|(_, line)| line.first()).min().cloned() else { break };
            self.let_in(&key);
        }
        let Some(members) = self.members.get_mut(space) else { return };
        let quota = &mut members.quota;
        self.dirty_addresses.extend(std::mem::take(&mut quota.untold));
        // Whoever was told of a limit that has room now lacks another one.
        quota.told.retain(|more, told| {
            let Some(line) = quota.line.get(more) else { return false };
            let lacking: BTreeSet<Limit> =
                limits.exceeded(quota.charged, *more).map(|exceeded| exceeded.limit()).collect();
            if !told.is_subset(&lacking) {
                self.dirty_addresses.extend(line.iter().map(|(_, key)| key.clone()));
                *told = lacking;
            }
            true
        });
    }

    /// Charges the space for what an Address in line asks for.
    fn let_in(&mut self, key: &Key) {
        self.leave_line(key);
        let Some(address) = self.addresses.get(key) else { return };
        let plan = address.obj.plan.clone();
        let charge = self.charge_of(address, plan.as_ref());
        self.charge(key, Some(Admitted { plan, charge }));
        self.dirty_addresses.insert(key.clone());
    }

    /// A space was looked at. With `other` terms whoever waits is judged anew, else whoever was not told yet.
    pub(super) fn call_the_line(&mut self, space: &Key, other: bool) {
        let Some(members) = self.members.get(space).filter(|m| !m.quota.line.is_empty()) else { return };
        if !other {
            if !members.quota.untold.is_empty() {
                self.to_admit.insert(space.clone());
            }
            return;
        }
        let waiting = members.quota.line.values().flatten().map(|(_, key)| key.clone());
        self.dirty_addresses.extend(waiting);
        self.to_admit.insert(space.clone());
    }

    /// A broker was read, or given up: what it holds of those who wait was accepted once, and the others may be judged.
    pub(super) fn call_the_lines(&mut self, config: &Key, broker: &Arc<str>) {
        let Some(state) = self.configs.get(config) else { return };
        let contents = state.targets.get(broker).and_then(|target| target.contents.clone());
        let mut found = Vec::new();
        for space in self.spaces_of_config.get(config).into_iter().flatten() {
            let Some(members) = self.members.get(space).filter(|m| !m.quota.line.is_empty()) else { continue };
            self.to_admit.insert(space.clone());
            let Some(contents) = &contents else { continue };
            for (_, key) in members.quota.line.values().flatten() {
                let there =
                    |a: &&AddressState| a.admitted.is_none() && holds(contents, &Self::slot_in(state, a), a.obj.kind);
                found.extend(self.addresses.get(key).filter(there).map(|_| key.clone()));
            }
        }
        for key in found {
            self.let_in(&key);
        }
    }

    /// Whether a broker holds the queue of an Address, from an Address that had it before, or from before this process.
    fn found(&self, address: &AddressState) -> bool {
        let Some(space) = self.spaces.get(&Self::space_key(address)) else { return false };
        let Some(config) = self.configs.get(&space.obj.config) else { return false };
        let slot = Self::slot_in(config, address);
        config.targets.values().any(|target| left_at(target, &slot, address.obj.kind))
    }

    pub(super) fn leave_line(&mut self, key: &Key) {
        let Some(address) = self.addresses.get_mut(key) else { return };
        let Some(more) = address.in_line.take() else { return };
        let (space, created) = (Self::space_key(address), address.obj.meta.created_s);
        let Some(members) = self.members.get_mut(&space) else { return };
        members.quota.untold.remove(key);
        if let Some(line) = members.quota.line.get_mut(&more) {
            line.remove(&(created, key.clone()));
            if line.is_empty() {
                members.quota.line.remove(&more);
            }
        }
    }

    /// Charges for the plan in force what it costs now.
    pub(super) fn recharge(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key) else { return };
        let Some(admitted) = &address.admitted else { return };
        let charge = self.charge_of(address, admitted.plan.as_ref());
        if charge != admitted.charge {
            let plan = admitted.plan.clone();
            self.charge(key, Some(Admitted { plan, charge }));
        }
    }

    /// An Address takes no room any more, and waits for none.
    pub(super) fn give_back(&mut self, key: &Key) {
        self.leave_line(key);
        self.charge(key, None);
        self.weigh(key, Vec::new());
    }

    fn charge(&mut self, key: &Key, admitted: Option<Admitted>) {
        let Some(address) = self.addresses.get_mut(key) else { return };
        let space = Self::space_key(address);
        let before = std::mem::replace(&mut address.admitted, admitted);
        let amount = |admitted: &Option<Admitted>| admitted.as_ref().map(|a| a.charge).unwrap_or_default();
        let more = amount(&address.admitted).minus(amount(&before));
        let brokers = address.weighs.as_ref().map(|weight| weight.brokers.clone()).unwrap_or_default();
        let overdrawn = self.overdrawn(&space).is_some();
        let Some(members) = self.members.get_mut(&space) else { return };
        members.quota.charged = members.quota.charged.plus(more);
        if overdrawn != self.overdrawn(&space).is_some() {
            self.stale_spaces.insert(space.clone());
        }
        let Some(members) = self.members.get(&space) else { return };
        let freed = more.addresses < 0 || more.router < 0 || more.broker < 0;
        if freed && !members.quota.line.is_empty() {
            self.to_admit.insert(space);
        }
        self.weigh(key, brokers);
    }

    /// Counts what an Address takes of the credit of `brokers`: each gives the same share.
    pub(super) fn weigh(&mut self, key: &Key, brokers: Vec<Arc<str>>) {
        let Some(address) = self.addresses.get(key) else { return };
        let config = self.spaces.get(&Self::space_key(address)).map(|space| space.obj.config.clone());
        let credit = address.admitted.as_ref().map_or(0, |admitted| admitted.charge.broker);
        let weight = match config {
            Some(config) if !brokers.is_empty() && credit > 0 => {
                let each = credit / brokers.len() as i64;
                Some(Weight { config, brokers, each })
            }
            _ => None,
        };
        if address.weighs == weight {
            return;
        }
        let before = self.addresses.get_mut(key).and_then(|a| std::mem::replace(&mut a.weighs, weight.clone()));
        for (weight, counts) in [(before, false), (weight, true)] {
            let Some(Weight { config, brokers, each }) = weight else { continue };
            let Some(config) = self.configs.get_mut(&config) else { continue };
            for name in &brokers {
                let Some(target) = config.targets.get_mut(name) else { continue };
                target.used -= target.weights.remove(key).unwrap_or_default();
                if counts {
                    target.weights.insert(key.clone(), each);
                    target.used += each;
                }
            }
        }
    }

    /// What is refused now and was accepted before still takes credit where its status says that it is.
    fn weigh_where_told(&mut self, key: &Key) {
        let Some(address) = self.addresses.get(key).filter(|a| a.weighs.is_none()) else { return };
        let config = self.spaces.get(&Self::space_key(address)).and_then(|s| self.configs.get(&s.obj.config));
        let Some(config) = config else { return };
        let brokers = self.told_brokers(address, config);
        self.weigh(key, brokers);
    }
}

/// Whether a broker holds a queue that no Address stands for now.
pub(super) fn left_at(target: &Target, slot: &Slot, kind: AddressType) -> bool {
    let left = target.slots.get(slot).filter(|state| state.holder.is_none());
    let left = left.is_some_and(|state| state.want == Want::Hold || target.orphans.contains_key(slot));
    left || target.contents.as_ref().is_some_and(|contents| holds(contents, slot, kind))
}

/// Which limit has no room. As long as the same one lacks it, the words stay the same, whoever else comes and goes.
fn no_room(address: &AddressState, plan: &str, limits: &Limits, charged: Charge, more: Charge) -> Arc<str> {
    let told = address.told.latest().accepted.as_ref().filter(|told| told.reason == reason::QUOTA_EXCEEDED);
    let mut first: Option<Arc<str>> = None;
    for exceeded in limits.exceeded(charged, more) {
        let head = exceeded.head(plan, &address.obj.space);
        if let Some(told) = told.filter(|told| told.message.starts_with(&head)) {
            return told.message.clone();
        }
        first.get_or_insert_with(|| format!("{head}{}", exceeded.tail()).into());
    }
    first.unwrap_or_default()
}
