//! Forwarders of Addresses: links between the routers' addresses and remote hosts, over connectors of the space.
//!
//! A forwarder stands for itself: its Address is Ready without it. While its connector is down, that is the connector's
//! matter, and nothing is told of the forwarder: a remote host that goes away is one write, however many use it.

use std::sync::Arc;

use super::Model;
use super::remotes::RowSay;
use super::routes::{RouteClaim, RouteSay};
use super::state::{AddressState, Route};
use crate::messaging::broker::Class;
use crate::messaging::ids::Key;
use crate::messaging::input::AddressType;
use crate::messaging::reason;
use crate::messaging::remote::{ForwarderSpec, Row, connection, forward_slot, tap_slot};
use crate::messaging::router::{AutoLink, Direction, Entry};

const MISSING: &str = reason::CONNECTOR_NOT_FOUND;

impl Model {
    /// Makes the routers hold the forwarders of an Address; `open`: also those that bring something in.
    pub(super) fn hold_forwards(&mut self, key: &Key, open: bool) {
        let Some(address) = self.addresses.get(key) else { return };
        if address.obj.forwarders.is_empty() && address.forwards.is_empty() {
            return;
        }
        let told = &address.told.latest().forwarders;
        let wanted = address.obj.forwarders.iter().filter(|spec| open || spec.direction == Direction::Out);
        let wanted = wanted.filter_map(|spec| {
            let (route, entry) = self.forward(address, spec)?;
            Some((route, entry, told.iter().any(|row| row.name == spec.name && row.ready)))
        });
        let wanted: Vec<(Route, Entry, bool)> = wanted.collect();
        let (tenant, generation) = (Self::space_key(address), address.obj.meta.generation);
        let stale = address.forwards.iter().filter(|route| !wanted.iter().any(|(wanted, ..)| wanted == *route));
        let stale: Vec<Route> = stale.cloned().collect();
        for route in &stale {
            self.clear_route(route, Class::Change);
            self.disown_route(route);
        }
        let mut held = Vec::new();
        for (route, entry, in_force) in wanted {
            let claim = RouteClaim {
                tenant: tenant.clone(),
                holder: Some(key.clone()),
                entry: entry.into(),
                generation,
                in_force,
            };
            self.hold_route(&route, claim);
            held.push(route);
        }
        if let Some(address) = self.addresses.get_mut(key) {
            address.forwards = held;
        }
    }

    /// Has the routers let go of the forwarders of an Address that goes; whether there is none left that could be reached
    /// and has one.
    pub(super) fn clear_forwards(&mut self, key: &Key) -> bool {
        let Some(address) = self.addresses.get(key) else { return true };
        let mut gone = true;
        for route in address.forwards.clone() {
            gone &= self.clear_route(&route, Class::Change);
        }
        if gone && let Some(address) = self.addresses.get_mut(key) {
            address.forwards.clear();
        }
        gone
    }

    /// The same of an Address that is gone, or is let go of: nobody waits for it.
    pub(super) fn drop_forwards(&mut self, key: &Key) {
        self.clear_forwards(key);
        let Some(address) = self.addresses.get_mut(key) else { return };
        for route in std::mem::take(&mut address.forwards) {
            self.disown_route(&route);
        }
    }

    /// What a forwarder is on the routers; none while it cannot be.
    fn forward(&self, address: &AddressState, spec: &ForwarderSpec) -> Option<(Route, Entry)> {
        let space_key = Self::space_key(address);
        let space = self.spaces.get(&space_key).filter(|space| space.obj.standard)?;
        let route = address.route.as_ref()?;
        space.remotes.get(&spec.connector).filter(|remote| remote.held)?;
        let remote = connection(&space_key, &spec.connector);
        let external = Some(spec.remote.clone());
        let link = AutoLink { direction: spec.direction, broker: remote.clone(), external };
        let (slot, entry) = match address.obj.kind {
            AddressType::Queue => {
                (forward_slot(spec.direction, &remote, &spec.remote, &route.slot), Entry::Forward(link))
            }
            AddressType::Subscription if spec.direction == Direction::Out => {
                let Entry::LinkRoute { broker, .. } = &*self.route_state(route)?.entry else { return None };
                let external = Some(route.slot.clone());
                let from = AutoLink { direction: Direction::In, broker: broker.clone(), external };
                (tap_slot(&remote, &spec.remote, &route.slot), Entry::Tap { from, to: link })
            }
            _ => return None,
        };
        Some((Route { config: route.config.clone(), slot }, entry))
    }

    /// What the status says of the forwarders, and when that may change by itself.
    pub(super) fn forwarder_rows(&self, address: &AddressState) -> (Vec<Row>, Option<u64>) {
        let told = &address.told.latest().forwarders;
        if address.obj.meta.deleting {
            return (told.clone(), None);
        }
        let (mut rows, mut wake) = (Vec::new(), None::<u64>);
        for spec in &address.obj.forwarders {
            let before = told.iter().find(|row| row.name == spec.name);
            match self.say_of_forwarder(address, spec, before) {
                RowSay::Say(ready, reason, message) => {
                    rows.push(Row { name: spec.name.clone(), ready, reason, message, host: None });
                }
                RowSay::Keep => rows.extend(before.cloned()),
                RowSay::Until(due) => {
                    wake = wake.into_iter().chain([due]).min();
                    rows.extend(before.cloned());
                }
            }
        }
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        (rows, wake)
    }

    fn say_of_forwarder(&self, address: &AddressState, spec: &ForwarderSpec, before: Option<&Row>) -> RowSay {
        let name = &spec.connector;
        let (soon, outage) = (address.since_ms + self.timing.configuring_ms, address.since_ms + self.timing.outage_ms);
        let Some(space) = self.spaces.get(&Self::space_key(address)) else { return RowSay::Keep };
        let own = &space.obj.meta.key;
        if !space.obj.standard {
            let text = format!("AddressSpace {} is of type brokered, and has no routers that could forward", own.name);
            return RowSay::Say(false, reason::NO_ROUTERS, text.into());
        }
        if !space.obj.connectors.iter().any(|connector| connector.name == *name) {
            let text = format!("AddressSpace {} has no connector {name}: add it there, or name another", own.name);
            return self.later(soon, reason::CONNECTOR_NOT_FOUND, &text.into());
        }
        let see = format!("kubectl get aspace -n {} {} -o yaml", own.namespace, own.name);
        let was_ready = before.is_some_and(|row| row.ready);
        let refused = space.remotes.get(name).is_some_and(|remote| remote.trouble.is_some());
        let Some((route, _)) = self.forward(address, spec) else {
            return match refused && !was_ready {
                true => {
                    let text = format!("connector {name} is not made: see {see}");
                    self.later(soon, reason::CONNECTOR_NOT_READY, &text.into())
                }
                false => RowSay::Keep,
            };
        };
        match self.route_say(&route) {
            RouteSay::Held if before.is_some_and(|row| row.reason == reason::LINK_FAILED) && self.is_unseen(&route) => {
                RowSay::Keep
            }
            RouteSay::Held => RowSay::Say(true, reason::ACTIVE, "".into()),
            RouteSay::Refused(words) => RowSay::Say(false, reason::ROUTER_REFUSED, words),
            RouteSay::Unsupported(_) if before.is_some_and(|row| row.reason == reason::NOT_SUPPORTED_BY_ROUTER) => {
                RowSay::Keep
            }
            RouteSay::Unsupported(words) => RowSay::Say(false, reason::NOT_SUPPORTED_BY_ROUTER, words),
            RouteSay::Failed(words) if before.is_some() => RowSay::Say(false, reason::LINK_FAILED, words),
            RouteSay::Failed(words) => self.later(soon, reason::LINK_FAILED, &words),
            // That a connector was missing, or was waited for, is no news of one that is there.
            RouteSay::CutOff(_) if before.is_some_and(|row| ![MISSING, reason::CONNECTING].contains(&row.reason)) => {
                RowSay::Keep
            }
            RouteSay::Waiting | RouteSay::NoRouter if before.is_some_and(|row| row.reason != MISSING) => RowSay::Keep,
            RouteSay::Waiting => self.later(soon, reason::CONNECTING, &Arc::from("is being linked")),
            RouteSay::CutOff(words) => {
                let text = format!("{words}; see {see}");
                self.later(outage, reason::CONNECTOR_NOT_READY, &text.into())
            }
            RouteSay::NoRouter => self.later(outage, reason::NO_ROUTER_SERVING, &Arc::from("no router serves")),
        }
    }
}
