//! What an Address's status must say, and when.

use std::sync::Arc;

use super::address::{Decision, Plan};
use super::routers::Routed;
use super::routes::RouteSay;
use super::state::{AddressState, Progress, Route};
use super::{Model, Timer};
use crate::messaging::ids::{Key, Kind};
use crate::messaging::output::{Status, Write};
use crate::messaging::reason;
use crate::messaging::status::{AddressStatus, Condition, TargetState};

/// What is to be said of an Address now.
enum Say {
    /// What was said before stays.
    Keep,
    /// The same, until this monotonic millisecond.
    KeepUntil(u64),
    /// It is in force.
    Ready,
    /// Accepted, and not in force: reason and message. `low`: a word about waiting.
    Unready { reason: &'static str, message: Arc<str>, low: bool },
    /// Not accepted.
    Refused(&'static str, Arc<str>),
}

impl Model {
    /// Says what the status of an Address must be now, and writes it if that is new.
    pub(super) fn verdict_address(&mut self, key: &Key, decision: Option<Decision>) {
        let Some(address) = self.addresses.get(key) else { return };
        if matches!(decision, Some(Decision::Foreign)) {
            return;
        }
        let deleting = address.obj.meta.deleting;
        let say = match &decision {
            None => self.say_of_deletion(address),
            Some(decision) => self.say(address, decision),
        };
        let told = address.told.latest();
        let finalizer = if deleting { address.told.latest_finalizer() && !address.released } else { true };
        let (mut wanted, mut low, mut wake) = (told.clone(), false, None);
        match say {
            Say::Keep => {}
            Say::KeepUntil(due) => wake = Some(due),
            Say::Ready => {
                wanted =
                    self.status(address, true, (reason::CONFIGURED, "".into()), (reason::ACCEPTED, "".into(), true));
                let effective = self.effective_of(address);
                (wanted.ttl, wanted.redelivery) = (effective.ttl, effective.redelivery);
            }
            Say::Unready { reason, message, low: behind } => {
                let accepted = match &told.accepted {
                    Some(before) if deleting => (before.reason, before.message.clone(), before.status),
                    None if deleting => (reason::TERMINATING, "".into(), false),
                    _ => (reason::ACCEPTED, "".into(), true),
                };
                wanted = self.status(address, false, (reason, message), accepted);
                low = behind;
            }
            Say::Refused(reason, message) => {
                wanted = self.status(address, false, (reason, message.clone()), (reason, message, false));
            }
        }
        if address.released && address.obj.meta.others.is_some() {
            // Nothing of it is left there.
            (wanted.brokers, wanted.leaving) = Default::default();
        }
        let (rows, later) = self.forwarder_rows(address);
        (wanted.forwarders, wake) = (rows, wake.into_iter().chain(later).min());
        let ready = wanted.ready.as_ref().is_some_and(|c| c.status);
        let became =
            ready && !told.ready.as_ref().is_some_and(|c| c.status && c.generation == address.obj.meta.generation);
        if became {
            self.out.ready_after_ms.push(self.now.mono_ms - address.since_ms);
        }
        let space = Self::space_key(address);
        let (uid, generation) = (address.obj.meta.uid.clone(), address.obj.meta.generation);
        let counted = address.ready;
        if let Some(due) = wake {
            self.wake_at(due, Timer::Address(key.clone()));
        }
        if counted != ready {
            if let Some(members) = self.members.get_mut(&space) {
                members.ready += if ready { 1 } else { -1 };
            }
            self.stale_spaces.insert(space.clone());
        }
        let Some(address) = self.addresses.get_mut(key) else { return };
        address.ready = ready;
        if wanted.ready.as_ref().is_some_and(|c| c.reason == reason::ROUTER_CONFIG_NOT_FOUND) {
            // As for a process that begins with this status: once it is looked after again, all of it is looked at.
            address.in_force = None;
        }
        let write = address.told.plan(wanted, finalizer, &mut self.seq);
        let settled = address.settled();
        if let Some(config) = address.route.as_ref().and_then(|route| self.configs.get_mut(&route.config)) {
            match settled {
                true => drop(config.routers.unsettled.remove(key)),
                false => drop(config.routers.unsettled.insert(key.clone())),
            }
        }
        if let Some((status, change)) = write {
            self.out.writes.push(Write {
                kind: Kind::Address,
                key: key.clone(),
                uid,
                generation,
                tenant: space,
                low,
                seq: self.seq,
                status: status.map(Status::Address),
                finalizer: change,
            });
        }
    }

    fn status(
        &self,
        address: &AddressState,
        ready: bool,
        why: (&'static str, Arc<str>),
        accepted: (&'static str, Arc<str>, bool),
    ) -> AddressStatus {
        let told = address.told.latest();
        let (now, generation) = (self.now.unix_s, address.obj.meta.generation);
        let condition = |before: &Option<Condition>, status, reason, message| {
            let since_s = before.as_ref().filter(|c| c.status == status).map_or(now, |c| c.since_s);
            Some(Condition { status, reason, message, generation, since_s })
        };
        AddressStatus {
            accepted: condition(&told.accepted, accepted.2, accepted.0, accepted.1),
            ready: condition(&told.ready, ready, why.0, why.1),
            address: Some(address.obj.address.clone()),
            plan: address.admitted.as_ref().and_then(|admitted| admitted.plan.clone()),
            // Also of one that is refused now: it tells the next process that there is something to keep.
            brokers: match address.holds.is_empty() {
                true => told.brokers.clone(),
                false => address.holds.iter().map(|id| id.name.clone()).collect(),
            },
            leaving: match address.holds.is_empty() {
                true => told.leaving.clone(),
                false => address.leaving.clone(),
            },
            configured: address.in_force.max(told.configured),
            ..told.clone()
        }
    }

    fn say(&self, address: &AddressState, decision: &Decision) -> Say {
        let now = self.now.mono_ms;
        let patience = address.since_ms + self.timing.configuring_ms;
        let told = address.told.latest();
        match decision {
            Decision::Foreign | Decision::Pend(None) => Say::Keep,
            Decision::Pend(Some(_)) if patience > now => Say::KeepUntil(patience),
            Decision::Pend(Some((reason, message))) => Say::Refused(reason, message.clone()),
            Decision::Refuse((reason, message)) => {
                let missing = [
                    reason::SPACE_NOT_FOUND,
                    reason::SPACE_NOT_ACCEPTED,
                    reason::TOPIC_NOT_FOUND,
                    reason::DEAD_LETTER_NOT_FOUND,
                ];
                // What it names may be on its way.
                if missing.contains(reason) && patience > now && told.accepted.as_ref().is_none_or(|c| c.status) {
                    return Say::KeepUntil(patience);
                }
                let keeps = !told.brokers.is_empty();
                Say::Refused(reason, if keeps { and_keeps(message) } else { message.clone() })
            }
            Decision::Wait((reason::ROUTER_CONFIG_NOT_FOUND, message)) => self.say_unled(address, message),
            Decision::Wait((reason, message)) => self.say_waiting(address, reason, message),
            Decision::Hold(plan) => match &plan.turned {
                Some((reason, message)) => Say::Refused(reason, and_keeps(message)),
                None => self.say_of_plan(address, plan),
            },
        }
    }

    fn say_of_plan(&self, address: &AddressState, plan: &Plan) -> Say {
        let now = self.now.mono_ms;
        let slot = &plan.slot;
        let unready = |reason, message: Arc<str>| Say::Unready { reason, message, low: false };
        let mut confirmed = true;
        for id in &plan.on {
            let progress = self.target(id).and_then(|t| t.slots.get(slot)).map(|s| &s.progress);
            if let Some(Progress::Refused(words)) = progress {
                return unready(reason::BROKER_REFUSED, format!("{id}: {words}").into());
            }
            if let Some((gate, words)) = self.refused_gate(id, slot) {
                return unready(reason::BROKER_REFUSED, format!("it needs {gate}, which {id} refuses: {words}").into());
            }
            // Restored: true by its status, and not looked at yet. Needed, Sent: being mended, which is the broker's
            // matter. Neither is news for the Address, and neither confirms anything.
            confirmed &= matches!(progress, Some(Progress::Acked(_)));
        }
        let routed = plan.route.as_ref().map(|route| self.route_say(route));
        match &routed {
            Some(RouteSay::Refused(words)) => return unready(reason::ROUTER_REFUSED, words.clone()),
            Some(RouteSay::Unsupported(words)) => {
                let words = format!("{words}: use a router that has, or another type");
                return unready(reason::NOT_SUPPORTED_BY_ROUTER, words.into());
            }
            Some(RouteSay::Failed(words)) if self.failed_for_good(address) => {
                return unready(reason::LINK_FAILED, words.clone());
            }
            // A router that was filled anew has not looked yet: what was said may still be so.
            Some(RouteSay::Held)
                if self.said(address, &[reason::LINK_FAILED])
                    && plan.route.as_ref().is_some_and(|route| !self.looked_at(route)) =>
            {
                return Say::Keep;
            }
            _ => {}
        }
        if address.in_force == Some(address.obj.meta.generation) {
            // Of an Address that is said to be Ready nothing but what its brokers keep to can be news.
            let said = address.told.latest().ready.as_ref();
            let said = said.is_some_and(|c| c.status && c.generation == address.obj.meta.generation);
            // Nor is a broker that has joined, until routers lead there as well.
            let joined = plan.on.iter().any(|id| !address.told.latest().brokers.contains(&id.name));
            confirmed &= (said && !joined) || matches!(routed, None | Some(RouteSay::Held));
            return if confirmed { Say::Ready } else { Say::Keep };
        }
        let outage = self.outage_of(plan, routed.as_ref());
        if let Some((reason, message)) = outage {
            let due = address.since_ms + self.timing.outage_ms;
            if due > now {
                return Say::KeepUntil(due);
            }
            // That it is being configured is no longer the whole truth; any other word stays.
            if self.said_waiting(address) && !self.said(address, &[reason::CONFIGURING]) {
                return Say::Keep;
            }
            return unready(reason, message);
        }
        let gated = plan.on.iter().any(|id| {
            let progress = self.target(id).and_then(|t| t.slots.get(slot)).map(|s| &s.progress);
            progress == Some(&Progress::Gated)
        });
        let message = if gated { "waits for what it names to be configured" } else { "is being configured" };
        self.say_waiting(address, reason::CONFIGURING, &message.into())
    }

    /// What keeps an Address from being configured that is not its own matter.
    fn outage_of(&self, plan: &Plan, routed: Option<&RouteSay>) -> Option<(&'static str, Arc<str>)> {
        let down = plan.on.iter().find(|id| self.target(id).is_none_or(|t| !t.line.connected()));
        if let Some(id) = down {
            return Some(Self::outage(id));
        }
        match routed? {
            RouteSay::CutOff(words) => Some((reason::BROKER_UNREACHABLE, words.clone())),
            RouteSay::NoRouter => {
                let config = plan.route.as_ref().map(|r| &r.config)?;
                let text =
                    format!("no router serves: see kubectl describe rcfg -n {} {}", config.namespace, config.name);
                Some((reason::NO_ROUTER_SERVING, text.into()))
            }
            _ => None,
        }
    }

    /// Whether a link that is not active is to be told of: a new one has a moment to become so.
    fn failed_for_good(&self, address: &AddressState) -> bool {
        let new = address.in_force != Some(address.obj.meta.generation);
        !new || address.since_ms + self.timing.configuring_ms <= self.now.mono_ms
    }

    /// That nobody looks after it: a RouterConfig that is replaced is there again in a moment.
    fn say_unled(&self, address: &AddressState, message: &Arc<str>) -> Say {
        let since_ms = self.spaces.get(&Self::space_key(address)).and_then(|space| space.unled_ms);
        let due = since_ms.unwrap_or(self.now.mono_ms).max(address.since_ms) + self.timing.outage_ms;
        if due > self.now.mono_ms {
            return Say::KeepUntil(due);
        }
        Say::Unready { reason: reason::ROUTER_CONFIG_NOT_FOUND, message: message.clone(), low: true }
    }

    /// A word about waiting, once, after a second.
    fn say_waiting(&self, address: &AddressState, reason: &'static str, message: &Arc<str>) -> Say {
        let due = address.since_ms + self.timing.configuring_ms;
        let in_force = address.in_force == Some(address.obj.meta.generation);
        if in_force && address.told.latest().ready.is_none() {
            // What it names left again before its first word: what it has is what was asked for.
            Say::Ready
        } else if due > self.now.mono_ms {
            Say::KeepUntil(due)
        } else if self.said_waiting(address) || in_force {
            Say::Keep
        } else {
            Say::Unready { reason, message: message.clone(), low: true }
        }
    }

    /// Whether this generation's status says already that it waits: one word for one wait.
    fn said_waiting(&self, address: &AddressState) -> bool {
        self.said(
            address,
            &[reason::CONFIGURING, reason::BROKER_UNREACHABLE, reason::WAITING_FOR_BROKER, reason::NO_ROUTER_SERVING],
        )
    }

    fn said(&self, address: &AddressState, words: &[&str]) -> bool {
        let said = address.told.latest().ready.as_ref();
        said.is_some_and(|c| !c.status && c.generation == address.obj.meta.generation && words.contains(&c.reason))
    }

    fn say_of_deletion(&self, address: &AddressState) -> Say {
        let now = self.now.mono_ms;
        if address.released {
            return match &address.obj.meta.others {
                Some(others) => Say::Unready { reason: reason::TERMINATING, message: only_held_by(others), low: false },
                None => Say::Keep,
            };
        }
        let due = address.since_ms + self.timing.configuring_ms;
        if due > now {
            return Say::KeepUntil(due);
        }
        let unready = |message: Arc<str>| Say::Unready { reason: reason::TERMINATING, message, low: false };
        let space = Self::space_key(address);
        let targets = address.holds.iter().filter_map(|id| Some((id, self.target(id)?)));
        let (mut down, mut connecting) = (None, false);
        for (id, target) in targets {
            let slot = self.slot_on(id, &space, &address.obj.address);
            if let Some(Progress::Refused(words)) = target.slots.get(&slot).map(|s| &s.progress) {
                return unready(format!("{id} refuses to remove it: {words}").into());
            }
            match target.line.state {
                TargetState::Unreachable => down = down.or(Some(id)),
                TargetState::Connecting => connecting = true,
                TargetState::Filling | TargetState::Serving => {}
            }
        }
        if let Some(text) = &address.waits {
            return unready(text.clone());
        }
        if let Some(route) = &address.route
            && let Some(words) = self.refusal_to_part(route)
        {
            return unready(words);
        }
        match (down, connecting) {
            (Some(id), _) => unready(
                format!(
                    "{id} does not answer, and what it stores must be removed first; to let go of it: \
                     kubectl annotate addr -n {} {} waystation.dev/force-delete=true",
                    address.obj.meta.key.namespace, address.obj.meta.key.name
                )
                .into(),
            ),
            (None, true) => Say::KeepUntil(now + self.timing.configuring_ms),
            (None, false) => Say::Keep,
        }
    }

    /// The words of a router that does not let go of a slot.
    fn refusal_to_part(&self, route: &Route) -> Option<Arc<str>> {
        let config = self.configs.get(&route.config)?;
        let state = config.routers.slots.get(&route.slot).filter(|s| !s.wanted)?;
        config.routers.targets.iter().find_map(|(name, router)| match state.at.get(router.place)? {
            Routed::Refused(words) => Some(format!("router {name} refuses to remove it: {words}").into()),
            _ => None,
        })
    }
}

/// What is said of an object that is deleted, and whose end is not ours to wait for.
pub(super) fn only_held_by(others: &str) -> Arc<str> {
    format!(
        "Waystation does not hold it any more, and others do, in metadata.finalizers: {others}; whoever put that there \
         takes it away"
    )
    .into()
}

/// What was accepted before and is refused now keeps what it has, and says so.
fn and_keeps(message: &Arc<str>) -> Arc<str> {
    const KEEPS: &str = "; what was in force before still is";
    if message.ends_with(KEEPS) { message.clone() } else { format!("{message}{KEEPS}").into() }
}
