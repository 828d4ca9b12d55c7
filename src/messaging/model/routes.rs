//! What the routers of a RouterConfig hold: each slot is wanted once for all of them, and sent to each.

use std::sync::Arc;

use super::fill::last_name;
use super::routers::{RouteState, Routed, Router, Routers};
use super::state::Route;
use super::target::backoff;
use super::{Known, Model, Timer};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::remote::in_words;
use crate::messaging::router::{
    self, Connector, Done, Entry, Job, Outcome, Wish, connector_of, connector_slot, readiness_slot,
};

/// What an Address wants of its routers.
pub(super) struct RouteClaim {
    pub tenant: Key,
    pub holder: Option<Key>,
    pub entry: Arc<Entry>,
    pub generation: i64,
    /// The status says that this generation is in force.
    pub in_force: bool,
}

/// How far the serving routers are with a slot, the worst of them first.
#[derive(Debug, PartialEq)]
pub(super) enum RouteSay {
    /// A router refused it, with its words.
    Refused(Arc<str>),
    /// A router is of a kind that cannot do it.
    Unsupported(Arc<str>),
    /// Not all of them have answered.
    Waiting,
    /// All have it; a router has no connection to a broker.
    CutOff(Arc<str>),
    /// All have it; a link of it is not active.
    Failed(Arc<str>),
    /// No router serves.
    NoRouter,
    /// All have it.
    Held,
}

impl Model {
    pub(super) fn router_mut(&mut self, id: &TargetId) -> Option<&mut Router> {
        self.configs.get_mut(&id.config)?.routers.targets.get_mut(&id.name)
    }

    pub(super) fn routers_mut(&mut self, config: &Key) -> Option<&mut Routers> {
        self.configs.get_mut(config).map(|c| &mut c.routers)
    }

    pub(super) fn route_state(&self, route: &Route) -> Option<&RouteState> {
        self.configs.get(&route.config)?.routers.slots.get(&route.slot)
    }

    /// Makes the routers hold what is claimed; nothing is sent to those that do already.
    pub(super) fn hold_route(&mut self, route: &Route, claim: RouteClaim) {
        let RouteClaim { tenant, holder, entry, generation, in_force } = claim;
        let Some(routers) = self.routers_mut(&route.config) else { return };
        let mut class = if in_force { Class::Repair } else { Class::Change };
        if let Some(state) = routers.slots.get_mut(&route.slot) {
            let entry = if state.wanted { after(&state.entry, entry) } else { entry };
            let same = state.wanted && state.entry == entry;
            let renewed = state.for_generation != generation || state.holder != holder;
            for at in &mut state.at {
                match at {
                    Routed::Refused(_) if renewed => *at = Routed::Needed,
                    _ if !same => *at = Routed::Needed,
                    _ => {}
                }
            }
            (state.tenant, state.holder, state.entry) = (tenant, holder, entry);
            (state.wanted, state.for_generation) = (true, generation);
        } else {
            let mut at = vec![Routed::Gone; routers.width()];
            for router in routers.targets.values_mut() {
                let stale = router.stale.remove(&route.slot);
                if stale {
                    class = Class::Change;
                }
                if let Some(at) = at.get_mut(router.place) {
                    *at = match in_force && !router.line.read_once && !stale {
                        true => Routed::Restored,
                        false => Routed::Needed,
                    };
                }
            }
            let state = RouteState { tenant, holder, entry, wanted: true, for_generation: generation, at, attempts: 0 };
            routers.slots.insert(route.slot.clone(), state);
        }
        routers.leaving.remove(&route.slot);
        self.send_route(route, class);
    }

    /// Takes a slot that routers may have from before this process for an Address that goes.
    pub(super) fn adopt_route(&mut self, holder: &Key, route: &Route, tenant: Key, generation: i64) {
        // What it is there does not matter: it goes.
        let entry = self.plain[0].clone();
        let Some(routers) = self.routers_mut(&route.config) else { return };
        if routers.slots.contains_key(&route.slot) {
            return;
        }
        let mut at = vec![Routed::Gone; routers.width()];
        for router in routers.targets.values() {
            if let Some(at) = at.get_mut(router.place) {
                *at = Routed::Needed;
            }
        }
        let held_by = Some(holder.clone());
        let state =
            RouteState { tenant, holder: held_by, entry, wanted: true, for_generation: generation, at, attempts: 0 };
        routers.slots.insert(route.slot.clone(), state);
        if let Some(address) = self.addresses.get_mut(holder) {
            address.route = Some(route.clone());
            self.note_standing(holder);
        }
    }

    /// Has the slot taken away from every router; whether there is none left that could be reached and has it.
    pub(super) fn clear_route(&mut self, route: &Route, class: Class) -> bool {
        let Some(routers) = self.routers_mut(&route.config) else { return true };
        let Some(state) = routers.slots.get_mut(&route.slot) else { return true };
        if std::mem::replace(&mut state.wanted, false) {
            for at in state.at.iter_mut().filter(|at| **at != Routed::Gone) {
                *at = Routed::Needed;
            }
            routers.leaving.insert(route.slot.clone());
        }
        self.send_route(route, class);
        self.forget_route(route)
    }

    /// A slot stands for nobody any more.
    pub(super) fn disown_route(&mut self, route: &Route) {
        if let Some(state) = self.routers_mut(&route.config).and_then(|r| r.slots.get_mut(&route.slot)) {
            state.holder = None;
        }
    }

    /// Drops a slot that is to go once no router can be reached that has it; whether it is dropped. A router that is
    /// down keeps nothing, or is compared when it is back.
    fn forget_route(&mut self, route: &Route) -> bool {
        let Some(routers) = self.routers_mut(&route.config) else { return true };
        let Some(state) = routers.slots.get(&route.slot) else { return true };
        let left = routers.targets.values().any(|r| r.line.connected() && state.at.get(r.place) != Some(&Routed::Gone));
        if state.wanted || left {
            return false;
        }
        for router in routers.targets.values_mut() {
            if matches!(state.at.get(router.place), Some(Routed::Sent(_))) {
                router.stale.insert(route.slot.clone());
            }
        }
        let holder = routers.slots.remove(&route.slot).and_then(|state| state.holder);
        routers.leaving.remove(&route.slot);
        self.remote_moved(&route.slot);
        match holder.and_then(|holder| self.addresses.get_mut(&holder)) {
            Some(address) if address.route.as_ref() == Some(route) => address.route = None,
            Some(address) => address.forwards.retain(|forward| forward != route),
            // An Address of the same name may have waited for it to go.
            None => {
                let id = TargetId::router(route.config.clone(), "".into());
                self.mark_slot_claimants(last_name(&route.slot), &id);
            }
        }
        true
    }

    /// After a router went down: what waited only for its answer waits no more.
    pub(super) fn forget_routes(&mut self, config: &Key) {
        let Some(routers) = self.routers_mut(config) else { return };
        for slot in routers.leaving.clone() {
            let route = Route { config: config.clone(), slot };
            let holder = self.route_state(&route).and_then(|state| state.holder.clone());
            if self.forget_route(&route) {
                self.dirty_addresses.extend(holder);
            }
        }
    }

    /// Sends a slot to every router that needs it and can be told. Repairs are for routers that have been compared: until
    /// then they may have it.
    pub(super) fn send_route(&mut self, route: &Route, class: Class) {
        let Some(routers) = self.configs.get_mut(&route.config).map(|c| &mut c.routers) else { return };
        let Some(state) = routers.slots.get_mut(&route.slot) else { return };
        for (name, router) in &mut routers.targets {
            let Some(at) = state.at.get_mut(router.place).filter(|at| **at == Routed::Needed) else { continue };
            let told = router.line.started() && (class == Class::Change || router.line.compared);
            let Some(abilities) = router.abilities.filter(|_| told) else { continue };
            let wish = match (state.wanted, state.entry.lacks(abilities)) {
                (true, Some(what)) => {
                    *at = Routed::Unsupported(what);
                    router.objections.insert(route.slot.clone());
                    // Nobody answers.
                    router.fill.remove(&route.slot);
                    continue;
                }
                (true, None) => Wish::Hold(state.entry.clone()),
                (false, _) => Wish::Gone,
            };
            self.generation += 1;
            *at = Routed::Sent(self.generation);
            let job = Job {
                slot: route.slot.clone(),
                generation: self.generation,
                tenant: state.tenant.clone(),
                class,
                wish,
            };
            self.out.router_jobs.push((TargetId::router(route.config.clone(), name.clone()), job));
        }
    }

    /// Takes in a router's answer.
    pub(super) fn apply_route_outcome(&mut self, id: &TargetId, outcome: Outcome) {
        self.acks += 1;
        let mark = self.acks;
        if outcome.slot == readiness_slot() {
            self.apply_readiness(id, &outcome);
            return;
        }
        let (now, timing) = (self.now.mono_ms, self.timing.clone());
        let Some(routers) = self.routers_mut(&id.config) else { return };
        let Some(router) = routers.targets.get_mut(&id.name) else { return };
        router.stale.remove(&outcome.slot);
        let Some(state) = routers.slots.get_mut(&outcome.slot) else { return };
        let Some(at) = state.at.get_mut(router.place).filter(|at| **at == Routed::Sent(outcome.generation)) else {
            return;
        };
        let slot = outcome.slot;
        let (mut again, mut renew) = (None, false);
        match outcome.result {
            Ok(Done::Held { trouble }) => {
                (*at, state.attempts) = (Routed::Acked(mark), 0);
                renew = router.renewals.remove(&slot);
                match trouble {
                    Some(words) => router.trouble.insert(slot.clone(), words),
                    None => router.trouble.remove(&slot),
                };
            }
            Ok(Done::Gone) => {
                *at = Routed::Gone;
                router.trouble.remove(&slot);
                router.renewals.remove(&slot);
                if let Some(connection) = connector_of(&slot) {
                    router.connectors.remove(connection);
                }
                if router.line.reading {
                    router.gone.insert(slot.clone());
                }
            }
            Err(words) => {
                *at = Routed::Refused(words.into());
                router.objections.insert(slot.clone());
                again = Some(now + backoff(timing.retry_ms, timing.retry_cap_ms, state.attempts));
                state.attempts += 1;
            }
        }
        router.fill.remove(&slot);
        let holder = state.holder.clone();
        self.dirty_addresses.extend(holder);
        self.remote_moved(&slot);
        let route = Route { config: id.config.clone(), slot };
        self.forget_route(&route);
        if let Some(broker) = connector_of(&route.slot).filter(|_| renew) {
            self.renew_connector(id, broker);
        }
        if let Some(at) = again {
            self.wake_at(at, Timer::Slot(id.clone(), route.slot));
        }
        self.router_filled(id);
    }

    /// Sends a slot again that a router refused.
    pub(super) fn retry_route(&mut self, id: &TargetId, slot: &Slot) {
        if *slot == readiness_slot() {
            self.router_filled(id);
            return;
        }
        let Some(routers) = self.routers_mut(&id.config) else { return };
        let (Some(router), Some(state)) = (routers.targets.get(&id.name), routers.slots.get_mut(slot)) else { return };
        if let Some(at) = state.at.get_mut(router.place).filter(|at| matches!(at, Routed::Refused(_))) {
            *at = Routed::Needed;
            self.send_route(&Route { config: id.config.clone(), slot: slot.clone() }, Class::Repair);
        }
    }

    /// How far the serving routers are.
    pub(super) fn route_say(&self, route: &Route) -> RouteSay {
        let Some(routers) = self.configs.get(&route.config).map(|c| &c.routers) else { return RouteSay::NoRouter };
        let Some(state) = routers.slots.get(&route.slot).filter(|s| s.wanted) else { return RouteSay::Waiting };
        let mut say = RouteSay::NoRouter;
        let mut worse = |new: RouteSay| {
            if say.rank() > new.rank() {
                say = new;
            }
        };
        for (name, router) in routers.targets.iter().filter(|(_, r)| r.line.serving()) {
            match state.at.get(router.place) {
                Some(Routed::Acked(_)) => worse(match router.way_to(&state.entry) {
                    Way::Unknown => RouteSay::Waiting,
                    Way::CutOff(broker, why) => RouteSay::CutOff(
                        format!("router {name} has no connection to {}: {why}", in_words(broker)).into(),
                    ),
                    Way::Open => match router.trouble.get(&route.slot) {
                        None => RouteSay::Held,
                        Some(words) => RouteSay::Failed(format!("router {name}: {words}").into()),
                    },
                }),
                Some(Routed::Refused(words)) => {
                    worse(RouteSay::Refused(format!("router {name}: {words}").into()));
                }
                Some(Routed::Unsupported(what)) => {
                    worse(RouteSay::Unsupported(format!("router {name} has no {what}").into()));
                }
                _ => worse(RouteSay::Waiting),
            }
        }
        say
    }

    /// Whether every router that serves has looked at its links.
    pub(super) fn looked_at(&self, route: &Route) -> bool {
        self.serving(route).all(|router| router.looked)
    }

    /// Whether a router that serves had trouble with a link of it before it was connected anew, and has not looked since.
    pub(super) fn is_unseen(&self, route: &Route) -> bool {
        self.serving(route).any(|router| router.unseen.contains(&route.slot))
    }

    fn serving(&self, route: &Route) -> impl Iterator<Item = &Router> {
        let routers = self.configs.get(&route.config).into_iter().flat_map(|config| config.routers.targets.values());
        routers.filter(|router| router.line.serving())
    }

    /// Makes every router hold a connector to every broker, and none to others.
    pub(super) fn hold_connectors(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key).filter(|c| !c.routers.targets.is_empty()) else { return };
        let credentials = match &config.obj.broker_credentials_secret {
            None => None,
            Some(secret) => match self.secrets.get(secret) {
                Some(Known { last: Some(revision), .. }) => Some((secret.clone(), *revision)),
                // Not heard of yet, or never there: what is in use stays, and nothing new is made.
                _ => return,
            },
        };
        let connector = |broker: &crate::messaging::input::Broker| {
            let host = broker.router_host.as_ref().unwrap_or(&broker.host).clone();
            let port = broker.router_port.unwrap_or(broker.port);
            let ssl_profile = config.obj.broker_ssl_profile.clone();
            let (broker, credentials) = (broker.name.clone(), credentials.clone());
            Connector { broker, host, port, ssl_profile, credentials, relogin: false, remote: None }
        };
        let wanted: Vec<(Slot, Arc<Entry>)> = config
            .targets
            .values()
            .map(|t| (connector_slot(&t.broker.name), Arc::new(Entry::Connector(connector(&t.broker)))))
            .collect();
        let stale = |slot: &&Slot| !wanted.iter().any(|(name, _)| name == *slot);
        let stale: Vec<Slot> = config.routers.connectors.iter().filter(stale).cloned().collect();
        for slot in stale {
            let route = Route { config: key.clone(), slot };
            self.clear_route(&route, Class::Change);
            if let Some(routers) = self.routers_mut(key) {
                routers.connectors.remove(&route.slot);
            }
        }
        for (slot, entry) in wanted {
            let route = Route { config: key.clone(), slot };
            if let Some(routers) = self.routers_mut(key) {
                routers.connectors.insert(route.slot.clone());
            }
            // A router may have it from before this process: reading tells.
            let claim = RouteClaim { tenant: key.clone(), holder: None, entry, generation: 0, in_force: true };
            self.hold_route(&route, claim);
        }
    }
}

/// An entry that takes the place of another: with what the drive cannot see of a connector's past.
fn after(before: &Entry, entry: Arc<Entry>) -> Arc<Entry> {
    let (Some(was), Some(now)) = (before.connector(), entry.connector()) else { return entry };
    if !was.relogin && was.credentials == now.credentials {
        return entry;
    }
    let mut entry = Arc::unwrap_or_clone(entry);
    if let Entry::Connector(connector) | Entry::Remote { connector, .. } = &mut entry {
        connector.relogin = true;
    }
    entry.into()
}

impl RouteSay {
    /// Lower is worse.
    fn rank(&self) -> u8 {
        match self {
            Self::Refused(_) => 0,
            Self::Unsupported(_) => 1,
            Self::Waiting => 2,
            Self::CutOff(_) => 3,
            Self::Failed(_) => 4,
            Self::Held => 5,
            Self::NoRouter => 6,
        }
    }
}

impl Routers {
    /// How many places the routers have been given.
    pub(super) fn width(&self) -> usize {
        self.targets.values().map(|r| r.place + 1).max().unwrap_or(0)
    }
}

/// How a router's connectors to the brokers of an entry are.
enum Way<'a> {
    /// All are up, or it needs none.
    Open,
    /// This one is down, for this reason.
    CutOff(&'a Arc<str>, &'a Arc<str>),
    /// It was not told yet.
    Unknown,
}

impl Router {
    fn way_to<'a>(&'a self, entry: &'a Entry) -> Way<'a> {
        let one = |broker: &'a Arc<str>| match self.connectors.get(broker) {
            Some(None) => Way::Open,
            Some(Some(why)) => Way::CutOff(broker, why),
            None => Way::Unknown,
        };
        match entry {
            router::Entry::Address { links, .. } => {
                let ways = links.iter().map(|link| one(&link.broker));
                ways.fold(Way::Open, |worst, way| if matches!(worst, Way::Open) { way } else { worst })
            }
            router::Entry::LinkRoute { broker, .. } => one(broker),
            router::Entry::Forward(link) => one(&link.broker),
            router::Entry::Tap { from, to } => match one(&from.broker) {
                Way::Open => one(&to.broker),
                way => way,
            },
            _ => Way::Open,
        }
    }
}
