//! How clients reach a standard space: what its Services lead to, and what is told of them.
//!
//! A Service leads to the routers that serve. One that went away is taken out once that is shown; while no router serves,
//! what was there stays, since it may be this process that cannot see them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Model;
use super::routers::Router;
use super::services::Found;
use super::state::{ConfigState, SpaceState};
use crate::messaging::exposure::{
    EndpointSpec, EndpointStatus, Exposed, Exposure, Protocol, ServiceWish, leads_to, service_name,
};
use crate::messaging::ids::Key;
use crate::messaging::input::RouterConfig;
use crate::messaging::status::TargetState;

/// What came back of a space's Services.
pub(super) type Reports = BTreeMap<Arc<str>, Exposed>;

impl Model {
    /// Says which Services the space shall have, if that is new.
    pub(super) fn expose(&mut self, key: &Key) {
        let Some(space) = self.spaces.get(key).filter(|s| s.obj.standard && !s.foreign) else { return };
        // Also where nothing is wished: a process that died may have made something and told nobody.
        let Some(config) = self.configs.get(&space.obj.config) else { return };
        if !space.ever_accepted {
            return;
        }
        let before = space.exposure.as_ref();
        let services = space.obj.endpoints.iter().map(|endpoint| {
            let said = before.and_then(|before| before.services.get(&endpoint.name)?.to.as_ref());
            let wish = ServiceWish {
                protocol: endpoint.service,
                load_balancer: endpoint.load_balancer,
                to: destinations(config, endpoint.service, said.is_none()).or_else(|| said.cloned()),
            };
            (endpoint.name.clone(), wish)
        });
        let exposure = Exposure { space: key.clone(), uid: space.obj.meta.uid.clone(), services: services.collect() };
        if before == Some(&exposure) {
            return;
        }
        self.out.exposures.push((key.clone(), Some(exposure.clone())));
        if let Some(space) = self.spaces.get_mut(key) {
            // What is told stays until it is known what became of this.
            (space.exposure, space.exposed) = (Some(exposure), None);
        }
    }

    /// A space is gone: its Services go with it, by ownership.
    pub(super) fn expose_nothing(&mut self, space: &SpaceState) {
        if let Some(exposure) = &space.exposure {
            self.out.exposures.push((exposure.space.clone(), None));
        }
    }

    pub(super) fn apply_exposed(&mut self, space: Key, uid: &str, reports: Reports) {
        let Some(state) = self.spaces.get_mut(&space).filter(|s| *s.obj.meta.uid == *uid) else { return };
        if state.exposure.is_some() && state.exposed.as_ref() != Some(&reports) {
            state.exposed = Some(reports);
            self.stale_spaces.insert(space);
        }
    }

    /// What the status says of the endpoints; what is not known stays as it was told.
    pub(super) fn endpoint_rows(&self, space: &SpaceState) -> Vec<EndpointStatus> {
        if !space.obj.standard {
            return Vec::new();
        }
        let told = &space.told.latest().endpoints;
        let row = |name: &Arc<str>| told.iter().find(|row| row.name == *name).cloned();
        let (Some(config), true) = (self.configs.get(&space.obj.config), space.ever_accepted) else {
            return told.clone();
        };
        let wanted = space.obj.endpoints.iter().filter_map(|endpoint| {
            let report = space.exposed.as_ref().and_then(|reports| reports.get(&endpoint.name));
            match report {
                Some(report) => Some(told_of(space, config, endpoint, report)),
                None => row(&endpoint.name),
            }
        });
        let left = told.iter().filter(|row| {
            let asked = space.obj.endpoints.iter().any(|endpoint| endpoint.name == row.name);
            let there = space.exposed.as_ref().is_none_or(|reports| reports.contains_key(&row.name));
            !asked && there
        });
        let mut rows: Vec<EndpointStatus> = wanted.chain(left.cloned()).collect();
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        rows
    }
}

/// The port on which a router takes such clients: by default the one by which it is managed, if that speaks the same.
fn port(config: &RouterConfig, router: &Router, protocol: Protocol) -> Option<u16> {
    let (named, same) = match protocol {
        Protocol::Amqp => (config.listeners.amqp, config.router_tls_secret.is_none()),
        Protocol::Amqps => (config.listeners.amqps, config.router_tls_secret.is_some()),
    };
    named.or(same.then_some(router.spec.port))
}

fn address(router: &Router) -> Option<IpAddr> {
    router.spec.host.parse().ok().or(router.peer)
}

fn serves(router: &Router) -> bool {
    router.line.serving() || router.line.shown == Some(TargetState::Serving)
}

/// Where a Service leads: none while that is not known. The first time (`first`) it is waited for every router to be
/// known, since what a process before this one told is true until then.
fn destinations(config: &ConfigState, protocol: Protocol, first: bool) -> Option<BTreeMap<(bool, u16), Vec<IpAddr>>> {
    let routers = || config.routers.targets.values();
    let unknown = routers().any(|router| match router.line.shown {
        None => !router.line.serving(),
        // As it was told before this process, which has not reached it yet.
        Some(TargetState::Serving) => address(router).is_none(),
        Some(_) => false,
    });
    if config.found == Found::Unknown || !routers().any(serves) || (first && unknown) {
        return None;
    }
    let mut to: BTreeMap<(bool, u16), Vec<IpAddr>> = BTreeMap::new();
    for router in routers().filter(|router| serves(router)) {
        let Some(address) = address(router).filter(leads_to) else { continue };
        let Some(port) = port(&config.obj, router, protocol) else { continue };
        to.entry((address.is_ipv6(), port)).or_default().push(address);
    }
    for addresses in to.values_mut() {
        addresses.sort_unstable();
        addresses.dedup();
    }
    Some(to)
}

fn told_of(space: &SpaceState, config: &ConfigState, endpoint: &EndpointSpec, report: &Exposed) -> EndpointStatus {
    let meta = &space.obj.meta.key;
    let protocol = endpoint.service;
    let own: Option<Arc<str>> = match report {
        Exposed::Made => Some(format!("{}.{}.svc", service_name(&meta.name, &endpoint.name), meta.namespace).into()),
        Exposed::At(host) => Some(host.clone()),
        Exposed::Pending | Exposed::Refused(_) | Exposed::Leaving => None,
    };
    let host = own.map(|own| endpoint.host.clone().unwrap_or(own));
    let to = space.exposure.as_ref().and_then(|exposure| exposure.services.get(&endpoint.name)?.to.as_ref());
    let routers = || config.routers.targets.values();
    let message = match report {
        Exposed::Refused(words) => Some(words.to_string()),
        _ if routers().next().is_some() && routers().all(|router| port(&config.obj, router, protocol).is_none()) => {
            Some(format!(
                "RouterConfig {} names no listener for it: ask for spec.messaging.routers.listeners.{}",
                config.obj.meta.key,
                protocol.as_str()
            ))
        }
        _ if to.is_some_and(BTreeMap::is_empty) => Some(format!(
            "it leads nowhere: the routers of RouterConfig {} are at addresses that no Service can lead to, such as \
             loopback",
            config.obj.meta.key
        )),
        Exposed::Pending => Some("waits for a load balancer".to_owned()),
        _ => None,
    };
    EndpointStatus {
        name: endpoint.name.clone(),
        at: host.map(|host| (host, protocol.port())),
        ca_certificate: config.obj.listeners.ca_certificate.clone().filter(|_| protocol == Protocol::Amqps),
        message: message.map(Arc::from),
    }
}
