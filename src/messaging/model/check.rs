//! Invariants of the model, for tests: everything that must hold between any two events.

use std::collections::BTreeSet;

use super::Model;
use super::routers::Routed;
use super::state::{ConfigState, Progress, Want};
use crate::messaging::broker::is_ground;
use crate::messaging::ids::{Key, Slot, TargetId};
use crate::messaging::names;
use crate::messaging::plans::Charge;
use crate::messaging::remote::of_connection;
use crate::messaging::router::{connector_of, fence_slot};

impl Model {
    /// Checks every invariant; the first one broken, in words. Costs everything: for tests and simulations.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.check_indexes()?;
        self.check_counts()?;
        self.check_slots()?;
        self.check_routes()?;
        self.check_quotas()?;
        self.check_timers()
    }

    fn check_indexes(&self) -> Result<(), String> {
        let mut claims = 0;
        for (key, address) in &self.addresses {
            let space = Self::space_key(address);
            let members = self.members.get(&space).ok_or(format!("{key}: space {space} has no members"))?;
            let claimed = members.claims.get(&address.canonical).is_some_and(|c| c.all().any(|other| other == key));
            if !members.all.contains(key) || !claimed {
                return Err(format!("{key}: not indexed in {space}"));
            }
            claims += 1;
            for name in address.obj.dead_letter.iter().chain(&address.obj.expiry) {
                let users = members.dead_letter_users.get(&names::canonical(name));
                if !users.is_some_and(|u| u.contains(key)) {
                    return Err(format!("{key}: not indexed as a user of {name}"));
                }
            }
            if let Some(topic) = &address.obj.topic
                && !members.subscriptions.get(&names::canonical(topic)).is_some_and(|s| s.contains(key))
            {
                return Err(format!("{key}: not indexed as a subscription of {topic}"));
            }
        }
        for (key, space) in &self.spaces {
            for (name, remote) in &space.remotes {
                if let Some(left) = self.standing_under(key, name).difference(&remote.standing).next() {
                    return Err(format!("{left}: is not known to stand under connector {name}"));
                }
            }
        }
        let indexed: usize = self.members.values().flat_map(|m| m.claims.values()).map(|c| c.all().count()).sum();
        for claimants in self.members.values().flat_map(|members| members.claims.values()) {
            claimants.check(&self.addresses)?;
        }
        let all: usize = self.members.values().map(|m| m.all.len()).sum();
        if indexed != claims || all != claims {
            return Err(format!("{indexed} claims and {all} members for {claims} addresses"));
        }
        let named = self.configs.iter().filter_map(|(key, c)| Some((key, &c.obj.router_service.as_ref()?.service)));
        let missing = |(key, service): &(&Key, &Key)| {
            !self.configs_of_service.get(*service).is_some_and(|configs| configs.contains(*key))
        };
        let indexed: usize = self.configs_of_service.values().map(BTreeSet::len).sum();
        if indexed != named.clone().count() || named.clone().any(|pair| missing(&pair)) {
            return Err("RouterConfigs are not indexed by the Services that they name".to_owned());
        }
        for (config, spaces) in &self.spaces_of_config {
            for space in spaces {
                if self.spaces.get(space).is_none_or(|s| s.obj.config != *config) {
                    return Err(format!("{space}: indexed under RouterConfig {config}"));
                }
            }
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), String> {
        for (space, members) in &self.members {
            let ready = members.all.iter().filter(|k| self.addresses.get(*k).is_some_and(|a| a.ready)).count();
            if members.ready != ready as i64 {
                return Err(format!("{space}: counts {} ready, has {ready}", members.ready));
            }
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), String> {
        let mut held: BTreeSet<(TargetId, Slot)> = BTreeSet::new();
        for (config, state) in &self.configs {
            for (name, target) in &state.targets {
                let id = TargetId::broker(config.clone(), name.clone());
                for (slot, state) in &target.slots {
                    if let Some(holder) = &state.holder {
                        let address = self.addresses.get(holder).ok_or(format!("{slot}: holder {holder} is gone"))?;
                        if !address.holds.contains(&id) && !address.released {
                            return Err(format!("{slot}: {holder} does not know that it holds it"));
                        }
                        held.insert((id.clone(), slot.clone()));
                    }
                    if target.line.incarnation == 0 && matches!(state.progress, Progress::Sent(_)) {
                        return Err(format!("{slot}: sent to a drive that does not run"));
                    }
                    if matches!(state.progress, Progress::Sent(generation) if generation > self.generation) {
                        return Err(format!("{slot}: sent with a generation from the future"));
                    }
                    if matches!(state.progress, Progress::Sent(_)) && !target.line.started() {
                        return Err(format!("{slot}: sent to a drive that does not run"));
                    }
                    let orphan = state.holder.is_none()
                        && state.want == Want::Gone { only_if_empty: true }
                        && state.progress == Progress::NotEmpty;
                    if orphan && target.line.read_once && !target.orphans.contains_key(slot) {
                        return Err(format!("{slot}: an orphan that is not counted"));
                    }
                    if !is_ground(slot)
                        && state.holder.is_none()
                        && !matches!(state.want, Want::Gone { .. })
                        && !self.claimable(&id, slot)
                    {
                        return Err(format!("{slot}: held for nobody"));
                    }
                    if state.progress == Progress::Gated && !target.gates.values().any(|waiting| waiting.contains(slot))
                    {
                        return Err(format!("{slot}: waits for nothing"));
                    }
                }
                for slot in target.orphans.keys() {
                    if target.slots.get(slot).is_some_and(|s| s.holder.is_some() && s.want == Want::Hold) {
                        return Err(format!("{slot}: held and counted as an orphan"));
                    }
                }
            }
        }
        for (key, address) in &self.addresses {
            let space = Self::space_key(address);
            for id in &address.holds {
                let slot = self.slot_on(id, &space, &address.obj.address);
                if self.target(id).is_none() {
                    return Err(format!("{key}: holds a slot of a target that is gone"));
                }
                if !held.contains(&(id.clone(), slot.clone())) {
                    return Err(format!("{key}: does not hold {slot}, though it says so"));
                }
            }
        }
        Ok(())
    }

    /// Whether a slot of routers is wanted for a connector of a space.
    fn is_of_a_connector(&self, config: &ConfigState, slot: &Slot) -> bool {
        if *slot == fence_slot() {
            return config.obj.connectors.is_some();
        }
        let Some((space, name)) = connector_of(slot).and_then(of_connection) else { return false };
        self.spaces.get(&space).is_some_and(|s| {
            s.obj.config == config.obj.meta.key && s.remotes.get(name).is_some_and(|remote| remote.held)
        })
    }

    fn check_routes(&self) -> Result<(), String> {
        for (config, state) in &self.configs {
            let routers = &state.routers;
            for (slot, route) in &routers.slots {
                if route.at.len() < routers.width() {
                    return Err(format!("{slot}: has no place for every router"));
                }
                if route.wanted == routers.leaving.contains(slot) {
                    return Err(format!("{slot}: wanted and leaving do not agree"));
                }
                let Some(holder) = &route.holder else {
                    let ours = routers.connectors.contains(slot) || self.is_of_a_connector(state, slot);
                    let last = slot.rsplit("::").next().unwrap_or(slot);
                    let id = TargetId::router(config.clone(), "".into());
                    if route.wanted && !ours && !self.claimable(&id, last) {
                        return Err(format!("{slot}: routed for nobody"));
                    }
                    continue;
                };
                let address = self.addresses.get(holder).ok_or(format!("{slot}: holder {holder} is gone"))?;
                let mut known = address.route.iter().chain(&address.forwards);
                if !known.any(|route| route.slot == *slot) && !address.released {
                    return Err(format!("{slot}: {holder} does not know that it is routed"));
                }
            }
            for (slot, route) in &routers.slots {
                let Some(holder) = &route.holder else { continue };
                let waits = self.addresses.get(holder).is_some_and(|a| a.route.is_some() && !a.settled());
                if waits && !routers.unsettled.contains(holder) && !self.dirty_addresses.contains(holder) {
                    return Err(format!("{holder}: waits, and no router would find it"));
                }
                let objects = |place: usize| matches!(route.at[place], Routed::Refused(_) | Routed::Unsupported(_));
                let mut targets = routers.targets.values();
                if let Some(router) = targets.find(|r| objects(r.place) && !r.objections.contains(slot)) {
                    return Err(format!("{slot}: refused by router {}, which does not know", router.spec.name));
                }
            }
            for (name, router) in &routers.targets {
                let twins = routers.targets.values().filter(|other| other.place == router.place).count();
                if twins != 1 {
                    return Err(format!("router {name}: shares its place"));
                }
            }
            for (name, target) in &state.targets {
                for key in &target.placed {
                    if self.addresses.get(key).is_none_or(|a| !a.placed.contains(name)) {
                        return Err(format!("{key}: counted on {name}, and not placed there"));
                    }
                }
            }
        }
        for (key, address) in &self.addresses {
            if let Some((broker, _)) = address.leaving.iter().find(|(broker, _)| address.placed.contains(broker)) {
                return Err(format!("{key}: is on {broker} and leaves it"));
            }
            for route in &address.forwards {
                if self.route_state(route).is_none_or(|s| s.holder.as_ref() != Some(key)) {
                    return Err(format!("{key}: does not hold forwarder {}, though it says so", route.slot));
                }
            }
            if let Some(route) = &address.route
                && self.route_state(route).is_none_or(|s| s.holder.as_ref() != Some(key))
            {
                return Err(format!("{key}: does not hold route {}, though it says so", route.slot));
            }
        }
        for (space, members) in &self.members {
            let mut on = std::collections::BTreeMap::new();
            let holds = members.all.iter().filter_map(|key| self.addresses.get(key)).flat_map(|a| &a.holds);
            for id in holds {
                *on.entry(id.name.clone()).or_insert(0) += 1;
            }
            if on != members.on {
                return Err(format!("{space}: counts {:?} on its brokers, has {on:?}", members.on));
            }
        }
        Ok(())
    }

    fn check_quotas(&self) -> Result<(), String> {
        for (space, members) in &self.members {
            let quota = &members.quota;
            let all = || members.all.iter().filter_map(|key| Some((key, self.addresses.get(key)?)));
            let admitted = all().filter_map(|(_, a)| a.admitted.as_ref());
            let charged = admitted.fold(Charge::default(), |sum, admitted| sum.plus(admitted.charge));
            if charged != quota.charged {
                return Err(format!("{space}: is charged {:?}, has {charged:?}", quota.charged));
            }
            let mut waiting = 0;
            for (key, address) in all() {
                let Some(more) = address.in_line else { continue };
                waiting += 1;
                let there =
                    quota.line.get(&more).is_some_and(|l| l.contains(&(address.obj.meta.created_s, key.clone())));
                if !there || address.obj.meta.deleting {
                    return Err(format!("{key}: waits for room, and the line does not know it"));
                }
            }
            if waiting != quota.line.values().map(BTreeSet::len).sum::<usize>() {
                return Err(format!("{space}: somebody in line does not wait"));
            }
            let limits = self.limits(space).map(|(_, limits)| limits).unwrap_or_default();
            let config = self.spaces.get(space).and_then(|s| self.configs.get(&s.obj.config));
            let called = self.active() && config.is_some_and(|c| c.all_known()) && self.to_admit.is_empty();
            if called && quota.line.keys().any(|more| limits.fits(quota.charged, *more)) {
                return Err(format!("{space}: has room for somebody who waits for it"));
            }
        }
        for (config, state) in &self.configs {
            if let Some(key) = state.short.iter().find(|key| !self.addresses.contains_key(key)) {
                return Err(format!("{key}: waits for a broker, and is gone"));
            }
            for (name, target) in &state.targets {
                if target.used != target.weights.values().sum::<i64>() {
                    return Err(format!("{name}: the credits do not add up"));
                }
                for (key, each) in &target.weights {
                    let weighs = self.addresses.get(key).and_then(|a| a.weighs.as_ref());
                    let same =
                        weighs.is_some_and(|w| w.config == *config && w.brokers.contains(name) && w.each == *each);
                    if !same {
                        return Err(format!("{key}: takes {each} of {name}, and does not know"));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_timers(&self) -> Result<(), String> {
        use super::Timer;
        for (due, timer) in &self.timers {
            let known: Option<(&Key, Option<u64>)> = match timer {
                Timer::Config(key) => self.configs.get(key).map(|c| (key, c.timer_ms)),
                Timer::Space(key) => self.spaces.get(key).map(|s| (key, s.timer_ms)),
                Timer::Address(key) => self.addresses.get(key).map(|a| (key, a.timer_ms)),
                Timer::Slot(..) => continue,
            };
            match known {
                Some((_, Some(at))) if at == *due => {}
                other => return Err(format!("timer {timer:?} at {due}: the object knows {other:?}")),
            }
        }
        Ok(())
    }
}
