//! Where a Service's port is.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Model;
use super::unit::{Need, Outcome, Reason};
use crate::edge::address;
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::input::{Port, Service, ServicePort};

/// Addresses and ports, with whether they only drain; or the reason why there can be none.
pub(super) type Endpoints = Result<BTreeMap<(IpAddr, u16), bool>, ()>;

/// The port of a Service, by number or name.
pub(super) fn port_of<'a>(service: &'a Service, port: &Port) -> Option<&'a ServicePort> {
    service.ports.iter().filter(|p| p.tcp).find(|p| match port {
        Port::Number(number) => p.port == *number,
        Port::Name(name) => p.name == *name,
    })
}

impl Model {
    /// Where the port is. Told to the Service: what cannot be.
    pub(super) fn endpoints(
        &self,
        service: &Arc<Service>,
        port: &Port,
        own_address: bool,
        out: &mut Outcome,
    ) -> Endpoints {
        let key = &service.meta.key;
        let object = Object::new(Kind::Service, key.clone());
        if let Some(name) = &service.external_name {
            return self.external(&object, name, port, out);
        }
        let Some(found) = port_of(service, port) else { return Err(()) };
        if let (true, Some(address)) = (own_address, service.cluster_ip) {
            return Ok(allowed([((address, found.port), false)].into(), &object, out));
        }
        out.needs.insert(Need::Slices(key.clone()));
        let mut ready = BTreeMap::new();
        let mut leaving = BTreeMap::new();
        for slice in self.slices(key) {
            if slice.fqdn {
                out.tell_object(
                    object.clone(),
                    Reason::NamesInSlice,
                    format!("EndpointSlice {} has names: only addresses are followed", slice.key),
                );
                continue;
            }
            let Some((_, number)) = slice.ports.iter().find(|(name, _)| *name == found.name) else { continue };
            for endpoint in &slice.endpoints {
                let Some(address) = endpoint.address else { continue };
                // Ready and terminating at once: the Service publishes whatever is there.
                if endpoint.ready {
                    ready.insert((address, *number), false);
                } else if endpoint.serving && endpoint.terminating {
                    leaving.insert((address, *number), true);
                }
            }
        }
        if ready.is_empty() {
            // As kube-proxy does: better one that is about to go than none.
            ready = leaving.into_keys().map(|at| (at, false)).collect();
        } else {
            for (at, drain) in leaving {
                ready.entry(at).or_insert(drain);
            }
        }
        Ok(allowed(one_family(ready, service.ipv6_first), &object, out))
    }

    fn slices(&self, key: &Key) -> impl Iterator<Item = &Arc<crate::edge::input::EndpointSlice>> {
        let names = self.objects.slices_of.get(key).into_iter().flatten();
        names.filter_map(|name| self.objects.slices.get(&Key::new(key.namespace.clone(), name.clone())))
    }

    fn external(&self, object: &Object, name: &Arc<str>, port: &Port, out: &mut Outcome) -> Endpoints {
        let allowed_here = self.objects.config.as_ref().is_some_and(|(config, _)| config.external_name);
        if !allowed_here {
            out.tell_object(
                object.clone(),
                Reason::ExternalNameOff,
                "Services of type ExternalName are not followed (edge.externalName)",
            );
            return Err(());
        }
        let number = match (port, self.service(&object.key).and_then(|(s, _)| port_of(s, port))) {
            (_, Some(found)) => found.port,
            (Port::Number(number), None) => *number,
            (Port::Name(_), None) => return Err(()),
        };
        let at =
            self.resolve(name, out).into_iter().map(|address| ((address, number), false)).collect::<BTreeMap<_, _>>();
        let at = allowed(one_family(at, false), object, out);
        let known = self.objects.names.contains_key(name) || name.parse::<IpAddr>().is_ok();
        if at.is_empty() && known {
            out.tell_object(
                object.clone(),
                Reason::NameNotResolved,
                format!("{name} leads to no address that may be used"),
            );
        }
        Ok(at)
    }

    /// Addresses of a name, or of an address written as one.
    pub(super) fn resolve(&self, name: &Arc<str>, out: &mut Outcome) -> Vec<IpAddr> {
        if let Ok(address) = name.parse() {
            return vec![address];
        }
        out.needs.insert(Need::Name(name.clone()));
        let mut addresses = self.objects.names.get(name).map_or(Vec::new(), |a| a.to_vec());
        addresses.sort_unstable();
        addresses
    }
}

/// Of two families that one counts which the Service names first: each pod is in both.
fn one_family(mut at: BTreeMap<(IpAddr, u16), bool>, ipv6_first: bool) -> BTreeMap<(IpAddr, u16), bool> {
    let serves = |v6: bool| at.iter().any(|((a, _), drain)| a.is_ipv6() == v6 && !drain);
    if serves(true) && serves(false) {
        at.retain(|(address, _), _| address.is_ipv6() == ipv6_first);
    }
    at
}

fn allowed(mut at: BTreeMap<(IpAddr, u16), bool>, object: &Object, out: &mut Outcome) -> BTreeMap<(IpAddr, u16), bool> {
    at.retain(|(ip, port), _| match address::refused(*ip) {
        _ if *port == 0 => false,
        None => true,
        Some(why) => {
            out.tell_object(object.clone(), Reason::AddressRefused, format!("{ip} is {why}: nothing is led there"));
            false
        }
    });
    at
}
