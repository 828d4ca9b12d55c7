//! Routers: connections as they come and go, and what a router holds against what it must hold. A router keeps
//! nothing, so that it is filled whenever it is new, and serves once that is done.

use std::sync::Arc;

use super::routers::{RouteState, Routed, Router};
use super::state::Route;
use super::{Model, Timer};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::input::{self, Readiness};
use crate::messaging::names;
use crate::messaging::remote::is_remote;
use crate::messaging::router::{self, Entry, Job, RouterLink, Wish, connector_slot, fence_slot, readiness_slot};
use crate::messaging::status::TargetState;

impl Model {
    pub(super) fn apply_router(&mut self, id: &TargetId, incarnation: u64, link: RouterLink) {
        let (now, acks) = (self.now, self.acks);
        let Some(router) = self.router_mut(id).filter(|r| r.line.incarnation == incarnation) else { return };
        match link {
            RouterLink::Outcome(outcome) => {
                self.apply_route_outcome(id, outcome);
                return;
            }
            RouterLink::Connected { abilities, serving, peer } => {
                router.peer = peer;
                let changed = router.abilities.replace(abilities) != Some(abilities);
                let line = &mut router.line;
                (line.reading, line.compared, line.read_mark) = (true, false, acks);
                router.contents = None;
                router.fill.clear();
                router.gone.clear();
                router.connectors.clear();
                router.renewals.clear();
                let troubled = std::mem::take(&mut router.trouble);
                router.looked = false;
                router.unseen.extend(troubled.keys().cloned());
                if serving {
                    router.readiness = Routed::Acked(acks);
                    router.line.turn(TargetState::Serving, "".into(), now);
                } else {
                    router.readiness = Routed::Needed;
                    router.line.turn(TargetState::Filling, "reading what the router holds".into(), now);
                }
                self.mark_holders(&id.config, troubled.keys());
                if changed {
                    self.send_untold(id);
                }
                self.router_turned(id);
            }
            RouterLink::Reading => {
                router.line.begin_read(acks, now.mono_ms);
                router.gone.clear();
            }
            RouterLink::Contents(contents) => {
                router.line.end_read(now.mono_ms);
                router.contents = Some(contents);
                self.to_compare.insert(id.clone());
            }
            RouterLink::Unreadable(words) | RouterLink::Down(words) => {
                router.line.turn(TargetState::Unreachable, words, now);
                let line = &mut router.line;
                (line.reading, line.compared, line.resync_ms) = (false, false, None);
                router.contents = None;
                router.readiness = Routed::Needed;
                self.forget_routes(&id.config);
                self.router_turned(id);
            }
            RouterLink::Links(links) => {
                for (slot, words) in &links {
                    match words {
                        Some(words) => router.trouble.insert(slot.clone(), words.clone()),
                        None => router.trouble.remove(slot),
                    };
                }
                self.mark_holders(&id.config, links.iter().map(|(slot, _)| slot));
                return;
            }
            RouterLink::Looked => {
                router.looked = true;
                let unseen = std::mem::take(&mut router.unseen);
                self.mark_holders(&id.config, unseen.iter());
                self.router_turned(id);
            }
            RouterLink::Connector(broker, words) => {
                let down = words.is_some();
                let before = router.connectors.insert(broker.clone(), words);
                if is_remote(&broker) {
                    // It may turn often, and is nobody else's matter.
                    self.remote_turned(&broker);
                    if down && !matches!(before, Some(Some(_))) {
                        self.renew_connector(id, &broker);
                    }
                    return;
                }
                // What waits for it, or is told of its links, is judged anew.
                self.router_turned(id);
                if down && !matches!(before, Some(Some(_))) {
                    self.renew_connector(id, &broker);
                }
            }
        }
        self.dirty_configs.insert(id.config.clone());
    }

    /// A connector that is down may be so for a login that has changed since it was made: the drive makes it anew where
    /// that is so.
    pub(super) fn renew_connector(&mut self, id: &TargetId, broker: &str) {
        let slot = connector_slot(broker);
        let Some(routers) = self.routers_mut(&id.config) else { return };
        let Some(place) = routers.targets.get(&id.name).map(|r| r.place) else { return };
        let Some(state) = routers.slots.get_mut(&slot) else { return };
        match state.at.get_mut(place) {
            Some(at @ Routed::Acked(_)) => {
                *at = Routed::Needed;
                self.send_route(&Route { config: id.config.clone(), slot }, Class::Change);
            }
            Some(Routed::Sent(_)) => {
                if let Some(router) = routers.targets.get_mut(&id.name) {
                    router.renewals.insert(slot);
                }
            }
            _ => {}
        }
    }

    fn mark_holders<'a>(&mut self, config: &Key, slots: impl Iterator<Item = &'a Slot>) {
        let Some(config) = self.configs.get(config) else { return };
        let holders = slots.filter_map(|slot| config.routers.slots.get(slot)?.holder.clone());
        self.dirty_addresses.extend(holders);
    }

    /// Sends what somebody waits for and a router could not be told before it was known what it can do. The rest
    /// follows when it has been read.
    fn send_untold(&mut self, id: &TargetId) {
        let Some(routers) = self.configs.get_mut(&id.config).map(|c| &mut c.routers) else { return };
        let Some(place) = routers.targets.get(&id.name).map(|r| r.place) else { return };
        let mut untold = Vec::new();
        for (slot, state) in &mut routers.slots {
            let Some(at) = state.at.get_mut(place) else { continue };
            if matches!(at, Routed::Unsupported(_)) {
                *at = Routed::Needed;
            }
            let address = state.holder.as_ref().and_then(|holder| self.addresses.get(holder));
            let waits = address.is_none_or(|a| a.in_force != Some(a.obj.meta.generation));
            if waits && *at == Routed::Needed {
                untold.push(slot.clone());
            }
        }
        untold.sort_unstable();
        for slot in untold {
            self.send_route(&Route { config: id.config.clone(), slot }, Class::Change);
        }
    }

    /// A router began or ceased to count: Addresses that wait for it, or for any, are judged anew, and no others.
    pub(super) fn router_turned(&mut self, id: &TargetId) {
        let addresses = &self.addresses;
        let Some(routers) = self.configs.get_mut(&id.config).map(|c| &mut c.routers) else { return };
        let Some(router) = routers.targets.get_mut(&id.name) else { return };
        let (slots, place) = (&routers.slots, router.place);
        let objects = |slot: &Slot| {
            matches!(slots.get(slot)?.at.get(place)?, Routed::Refused(_) | Routed::Unsupported(_)).then_some(())
        };
        router.objections.retain(|slot| objects(slot).is_some());
        let waits = |key: &Key| {
            let address = addresses.get(key)?;
            let here = address.route.as_ref().is_some_and(|route| route.config == id.config);
            (here && !address.settled()).then_some(())
        };
        routers.unsettled.retain(|key| waits(key).is_some());
        let told = router.objections.iter().chain(router.trouble.keys());
        self.dirty_addresses.extend(told.filter_map(|slot| slots.get(slot)?.holder.clone()));
        self.dirty_addresses.extend(routers.unsettled.iter().cloned());
        if let Some(spaces) = self.spaces_of_config.get(&id.config) {
            self.stale_spaces.extend(spaces.iter().cloned());
        }
    }

    /// Compares a router that was read, and sends what is missing, different or left over.
    pub(super) fn compare_router(&mut self, id: &TargetId) {
        let acks = self.acks;
        let (now, resync) = (self.now, self.timing.resync_ms);
        let Some(config) = self.configs.get_mut(&id.config) else { return };
        let wanted = config.obj.readiness.clone();
        let routers = &mut config.routers;
        let Some(router) = routers.targets.get_mut(&id.name) else { return };
        let readiness = readiness(&wanted, &router.spec);
        let Some(contents) = router.contents.take() else { return };
        (router.line.read_once, router.line.compared) = (true, true);
        let (place, mark) = (router.place, router.line.read_mark);
        let filling = router.line.state == TargetState::Filling;
        router.fill.clear();
        let (mut send, mut news) = (Vec::<Slot>::new(), Vec::<Key>::new());
        for (slot, state) in &mut routers.slots {
            let Some(at) = state.at.get_mut(place) else { continue };
            let found = contents.slots.get(slot);
            match at {
                Routed::Sent(_) => {
                    router.fill.insert(slot.clone());
                }
                Routed::Acked(at) if *at > mark => {}
                Routed::Unsupported(_) => {}
                _ if !state.wanted => match found {
                    Some(_) if !router.gone.contains(slot) => {
                        *at = Routed::Needed;
                        send.push(slot.clone());
                    }
                    _ => *at = Routed::Gone,
                },
                // With which login a connector was made is not to be read: only the drive knows, or nobody.
                _ if found == Some(&state.entry.fingerprint()) && !logs_in_anew(&state.entry, at) => {
                    let known = matches!(at, Routed::Acked(_) | Routed::Restored);
                    let address = state.holder.as_ref().and_then(|holder| self.addresses.get(holder));
                    if !known || address.is_some_and(|a| !a.ready) {
                        news.extend(state.holder.clone());
                    }
                    *at = Routed::Acked(acks);
                }
                _ => {
                    // A new router has nothing: that is no difference that anybody made.
                    if !filling && matches!(at, Routed::Acked(_) | Routed::Restored) {
                        router.line.repaired.push(slot.clone());
                    }
                    *at = Routed::Needed;
                    send.push(slot.clone());
                }
            }
        }
        let gone = std::mem::take(&mut router.gone);
        if filling {
            router.fill.extend(send.iter().cloned());
        } else {
            router.fill.clear();
            router.line.plan_resync(&id.name, resync, now);
            if contents.slots.get(&readiness_slot()) != Some(&readiness.fingerprint()) {
                router.readiness = Routed::Needed;
            }
        }
        self.dirty_addresses.extend(news);
        self.remove_leftovers(id, &contents, &gone, &mut send);
        send.sort_unstable();
        for slot in send {
            self.send_route(&Route { config: id.config.clone(), slot }, Class::Repair);
        }
        self.forget_routes(&id.config);
        self.router_filled(id);
        self.tell_repairs(id);
        self.dirty_configs.insert(id.config.clone());
    }

    /// What carries our owner and no Address stands for.
    fn remove_leftovers(
        &mut self,
        id: &TargetId,
        contents: &router::Contents,
        gone: &crate::maps::Set<Slot>,
        send: &mut Vec<Slot>,
    ) {
        let Some(config) = self.configs.get(&id.config) else { return };
        let known = |slot: &Slot| config.routers.slots.contains_key(slot) || gone.contains(slot);
        let spared = |slot: &Slot| match slot.strip_prefix('#') {
            Some(_) if *slot == fence_slot() => false,
            // Nobody can want what looks like nothing of ours.
            Some(ours) if ours.starts_with("stray/") => false,
            Some(_) if let Some(spared) = self.spares(&id.config, slot) => spared,
            Some(ours) => ours.strip_prefix("connector/").is_none_or(|broker| config.targets.contains_key(broker)),
            None => self.unreadable(config.obj.single, slot) || self.may_stand_for(id, slot),
        };
        let mut leftover: Vec<Slot> =
            contents.slots.keys().filter(|slot| !known(slot) && !spared(slot)).cloned().collect();
        leftover.sort_unstable();
        // What it is there does not matter: it goes.
        let entry = self.plain[0].clone();
        let Some(routers) = self.routers_mut(&id.config) else { return };
        let Some(place) = routers.targets.get(&id.name).map(|r| r.place) else { return };
        for slot in leftover {
            let mut at = vec![Routed::Gone; routers.width()];
            if let Some(at) = at.get_mut(place) {
                *at = Routed::Needed;
            }
            let state = RouteState {
                tenant: names::space_of(&slot).unwrap_or_else(|| id.config.clone()),
                holder: None,
                entry: entry.clone(),
                wanted: false,
                for_generation: 0,
                at,
                attempts: 0,
            };
            routers.slots.insert(slot.clone(), state);
            routers.leaving.insert(slot.clone());
            send.push(slot);
        }
    }

    /// Whether an Address that was accepted once, and of which nothing is wanted of routers, may stand for a slot: its
    /// space is not known.
    fn may_stand_for(&self, id: &TargetId, slot: &Slot) -> bool {
        let Some((space, name)) = self.address_of_slot(last_name(slot), id) else { return false };
        let winner = self.winner(&space, &names::canonical(&name));
        winner.is_some_and(|a| *a.obj.address == *name && a.accepted && !a.unrouted && a.route.is_none())
    }

    /// Whether an Address that cannot be read may stand for a slot.
    pub(super) fn unreadable(&self, single: bool, slot: &str) -> bool {
        match if single { None } else { names::space_of(slot) } {
            Some(space) => self.undecodable_in.contains_key(&space.namespace),
            None => !self.undecodable.is_empty(),
        }
    }

    /// Once a router holds all that it must, its readiness listener is made.
    pub(super) fn router_filled(&mut self, id: &TargetId) {
        let Some(config) = self.configs.get_mut(&id.config) else { return };
        let Some(router) = config.routers.targets.get_mut(&id.name) else { return };
        let entry = readiness(&config.obj.readiness, &router.spec);
        let settled = router.line.compared && router.contents.is_none() && !router.line.reading;
        if !router.line.connected() || !settled || !router.fill.is_empty() {
            return;
        }
        if !matches!(router.readiness, Routed::Needed | Routed::Refused(_)) {
            return;
        }
        self.generation += 1;
        let generation = self.generation;
        router.readiness = Routed::Sent(generation);
        let wish = Wish::Hold(Arc::new(entry));
        let job = Job { slot: readiness_slot(), generation, tenant: id.config.clone(), class: Class::Repair, wish };
        self.out.router_jobs.push((id.clone(), job));
    }

    /// The readiness listener is there, or cannot be made.
    pub(super) fn apply_readiness(&mut self, id: &TargetId, outcome: &router::Outcome) {
        let (now, resync, retry) = (self.now, self.timing.resync_ms, self.timing.retry_ms);
        let mark = self.acks;
        let Some(router) = self.router_mut(id) else { return };
        if router.readiness != Routed::Sent(outcome.generation) {
            return;
        }
        match &outcome.result {
            Ok(_) => {
                router.readiness = Routed::Acked(mark);
                router.line.rotating = false;
                router.line.turn(TargetState::Serving, "".into(), now);
                router.line.plan_resync(&id.name, resync, now);
                self.router_turned(id);
            }
            Err(words) => {
                router.readiness = Routed::Refused(words.as_str().into());
                if router.line.state == TargetState::Filling {
                    let text = format!("it is filled, and refuses the readiness listener: {words}");
                    router.line.turn(TargetState::Filling, text.into(), now);
                }
                self.wake_at(now.mono_ms + retry, Timer::Slot(id.clone(), readiness_slot()));
            }
        }
        self.tell_repairs(id);
        self.dirty_configs.insert(id.config.clone());
    }

    /// A router left the RouterConfig, or its drive stops for good: what it held is not looked at any more.
    pub(super) fn drop_router(&mut self, id: &TargetId) -> Option<Router> {
        let routers = self.routers_mut(&id.config)?;
        let router = routers.targets.remove(&id.name)?;
        let troubled = router.trouble.keys().filter_map(|slot| routers.slots.get(slot)?.holder.clone());
        let mut waiting: Vec<Key> = troubled.collect();
        for state in routers.slots.values_mut() {
            if let Some(at) = state.at.get_mut(router.place) {
                if !matches!(at, Routed::Acked(_) | Routed::Restored) {
                    waiting.extend(state.holder.clone());
                }
                *at = Routed::Gone;
            }
        }
        self.dirty_addresses.extend(waiting);
        self.forget_routes(&id.config);
        if let Some(spaces) = self.spaces_of_config.get(&id.config) {
            self.stale_spaces.extend(spaces.iter().cloned());
        }
        Some(router)
    }

    /// A router joined: everything that the others hold is wanted of it as well.
    pub(super) fn join_router(&mut self, config: &Key, router: Router) {
        let Some(routers) = self.routers_mut(config) else { return };
        for state in routers.slots.values_mut() {
            if state.at.len() <= router.place {
                state.at.resize(router.place + 1, Routed::Gone);
            }
            if let Some(at) = state.at.get_mut(router.place).filter(|_| state.wanted) {
                *at = Routed::Needed;
            }
        }
        routers.targets.insert(router.spec.name.clone(), router);
    }
}

/// The broker-side name in a router's: that of a subscription stands behind its topic's.
pub(super) fn last_name(slot: &Slot) -> &str {
    slot.rsplit("::").next().unwrap_or(slot)
}

/// Whether the login of a connector has changed, and this router has not said that it has the new one.
fn logs_in_anew(entry: &Entry, at: &Routed) -> bool {
    let changed = entry.connector().is_some_and(|connector| connector.relogin);
    changed && !matches!(at, Routed::Acked(_))
}

fn readiness(readiness: &Readiness, router: &input::Router) -> Entry {
    Entry::Readiness { host: readiness.host.clone(), port: router.readiness_port.unwrap_or(readiness.port) }
}
