//! How a Service's port is reached: its class, its servers, and how these are spoken to.

use std::sync::Arc;

use super::Model;
use super::link;
use super::state::BackendDecision;
use super::unit::{Need, Outcome, Reason};
use super::words::Levels;
use crate::edge::class::{Balance, Class, Mode};
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::names;
use crate::edge::options::{Opt, Options, Scope, Value as Said};
use crate::edge::route::BackendId;
use crate::edge::sets::Few;
use crate::edge::wanted::{Link, MapName, Server, Slot, Value};

/// The cookie of affinity inside HAProxy; another name is put in its place on the way.
pub const COOKIE: &str = "WAYSTATION";

impl Model {
    /// Decides a backend.
    pub(super) fn decide_backend(&mut self, id: &Arc<BackendId>) -> Outcome {
        let mut out = Outcome::default();
        let decision = if self.indexes.backends.contains_key(id) { Some(self.backend_of(id, &mut out)) } else { None };
        let before = match decision {
            Some(ref decision) => self.decided.backends.insert(id.clone(), decision.clone()),
            None => self.decided.backends.remove(id),
        };
        if before != decision {
            self.changed(&Need::Backend(id.clone()));
        }
        out
    }

    fn backend_of(&self, id: &BackendId, out: &mut Outcome) -> BackendDecision {
        let refuse = || {
            let name = if id.tcp { names::REJECT } else { names::UNAVAILABLE };
            BackendDecision { name: name.into(), refused: true }
        };
        out.needs.insert(Need::Service(id.service.clone()));
        let Some((service, service_options)) = self.service(&id.service).cloned() else {
            self.tell_users(id, out, Reason::ServiceNotFound, &format!("Service {} is not there", id.service));
            return refuse();
        };
        for bad in &service_options.bad {
            let object = Object::new(Kind::Service, id.service.clone());
            out.tell_object(object, Reason::InvalidOption, bad.message.clone());
        }
        let levels = self.levels_of(id, &service_options, out);
        let own_address = levels.is(Opt::ServiceUpstream);
        let Ok(endpoints) = self.endpoints(&service, &id.port, own_address, out) else {
            if service.external_name.is_none() {
                self.tell_users(
                    id,
                    out,
                    Reason::PortNotFound,
                    &format!("Service {} has no TCP port {}", id.service, id.port),
                );
            }
            return refuse();
        };
        if levels.fails(Scope::Service) {
            return refuse();
        }
        let class = class_of(id, &levels);
        let Some(link) = self.link(id, &levels, class, out) else { return refuse() };
        let name = names::backend(&id.service, &id.port, class);
        let link = Arc::new(link);
        let mark = (*link != Link::default()).then(|| names::digest(format!("{link:?}").as_bytes()));
        let maxconn = levels.int(Opt::MaxconnServer).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let slot = Slot::Backend(name.clone());
        if let Some(words) = self.refusal(&slot, &Value::Backend(class)) {
            self.tell_users(id, out, Reason::Refused, &format!("Service {}: {words}", id.service));
            return refuse();
        }
        out.want(slot, Value::Backend(class));
        for ((address, port), drain) in endpoints {
            let server = Server { address, port, drain, maxconn, link: link.clone() };
            let slot = Slot::Server(name.clone(), names::server(address, port, mark));
            let value = Value::Server(Arc::new(server));
            match self.refusal(&slot, &value) {
                None => out.want(slot, value),
                Some(words) => {
                    let object = Object::new(Kind::Service, id.service.clone());
                    out.tell_object(object, Reason::Refused, format!("{address} port {port}: {words}"));
                }
            }
        }
        let text = |map, text: String| (Slot::Map(map, name.clone()), Value::Text(text.into()));
        if class.cookie
            && let Some(cookie) = link::cookie(&levels)
        {
            out.slots.push(text(MapName::Cookie, cookie));
        }
        if class.check {
            let path = levels.text(Opt::CheckPath).map_or("/", |p| p);
            out.slots.push(text(MapName::CheckPath, path.to_owned()));
            if let Some(host) = levels.text(Opt::CheckHost) {
                out.slots.push(text(MapName::CheckHost, host.to_string()));
            }
        }
        BackendDecision { name, refused: false }
    }

    /// Who says how the Service is reached: itself, Ingresses that lead to it (oldest first), the RouterConfig. Two
    /// Ingresses that differ are told, where the Service does not decide.
    fn levels_of(&self, id: &BackendId, service: &Arc<Options>, out: &mut Outcome) -> Levels {
        let mut levels = vec![service.clone()];
        let users = self.indexes.backends.get(id).into_iter().flat_map(Few::iter);
        let mut said: Vec<(Opt, &Said, &Key)> = Vec::new();
        for rank in users {
            let Some((_, options)) = self.objects.ingresses.get(&rank.key) else { continue };
            for (opt, value) in options.iter().filter(|(opt, _)| opt.definition().scope == Scope::Service) {
                if service.get(opt).is_some() {
                    continue;
                }
                match said.iter().find(|(o, ..)| *o == opt) {
                    None => said.push((opt, value, &rank.key)),
                    Some((_, first, winner)) if *first != value => {
                        let message = format!(
                            "{}: Ingress {winner} is older and says another value for Service {}",
                            opt.name(),
                            id.service.name
                        );
                        out.tell(&rank.key, Reason::OptionConflict, message);
                    }
                    Some(_) => {}
                }
            }
            levels.push(options.clone());
        }
        levels.extend(self.objects.config.as_ref().map(|(_, options)| options.clone()));
        Levels::new(levels)
    }

    /// Tells every Ingress that leads to it.
    fn tell_users(&self, id: &BackendId, out: &mut Outcome, reason: Reason, message: &str) {
        for rank in self.indexes.backends.get(id).into_iter().flat_map(Few::iter) {
            if rank.key.name.is_empty() {
                if let Some((config, _)) = &self.objects.config {
                    let object = Object::new(Kind::RouterConfig, config.meta.key.clone());
                    out.tell_object(object, reason, message);
                }
            } else {
                out.tell(&rank.key, reason, message);
            }
        }
    }

    /// The name of a backend, where it leads to one, and the unit that looks.
    pub(super) fn backend_decision(&self, id: &Arc<BackendId>, out: &mut Outcome) -> BackendDecision {
        out.needs.insert(Need::Backend(id.clone()));
        let missing = || BackendDecision { name: names::UNAVAILABLE.into(), refused: true };
        self.decided.backends.get(id).cloned().unwrap_or_else(missing)
    }
}

fn class_of(id: &BackendId, levels: &Levels) -> Class {
    let word = levels.word(Opt::Balance).unwrap_or("roundrobin");
    let balance = Balance::ALL.into_iter().find(|b| b.as_str() == word).unwrap_or(Balance::RoundRobin);
    if id.tcp {
        let balance = if balance == Balance::Uri { Balance::RoundRobin } else { balance };
        return Class { mode: Mode::Tcp, balance, cookie: false, check: false };
    }
    Class {
        mode: Mode::Http,
        balance,
        cookie: levels.word(Opt::Affinity) == Some("cookie"),
        check: levels.text(Opt::CheckPath).is_some(),
    }
}
