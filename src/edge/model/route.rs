//! Where a route leads: of those who claim it the oldest has it; others are told.

use std::sync::Arc;

use super::Model;
use super::state::{ClaimsOf, HostDecision};
use super::unit::{Need, Outcome, Reason};
use super::words::Levels;
use crate::edge::ids::{Kind, Object};
use crate::edge::names;
use crate::edge::options::{Options, Scope};
use crate::edge::route::{Claim, PathKind, RouteKey};
use crate::edge::wanted::{MapName, Slot, Value};

/// The claims that have a route.
pub(super) struct Winners<'a> {
    /// What takes all that nothing else takes.
    pub base: Option<&'a Arc<Claim>>,
    /// What takes requests that are like this, the most particular first.
    pub conditional: Vec<&'a Arc<Claim>>,
    /// What takes a share.
    pub canary: Option<&'a Arc<Claim>>,
}

impl Model {
    /// Decides a route.
    pub(super) fn decide_route(&mut self, key: &RouteKey) -> Outcome {
        let mut out = Outcome::default();
        let Some(claims) = self.indexes.routes.get(key) else { return out };
        let winners = winners(key, claims, &mut out);
        out.needs.insert(Need::Host(key.host.clone()));
        let host = self.decided.hosts.get(&key.host).cloned().unwrap_or_default();
        if winners.base.is_none() && winners.conditional.is_empty() {
            return out;
        }
        let value = self.route_value(key, &host, &winners, &mut out);
        let (map, text) = place(key);
        out.want(Slot::Map(map, text.into()), Value::Text(value));
        let refusal = out.slots.iter().find_map(|(slot, value)| self.refusal(slot, value)).cloned();
        if let (Some(words), Some(claim)) = (refusal, winners.base.or(winners.conditional.first().copied())) {
            // A pattern that HAProxy cannot compile, say: half of what is said about a route is worse than none.
            (out.slots, out.stores, out.lists) = Default::default();
            out.tell_object(claim.object.clone(), Reason::Refused, format!("{}: {words}", describe(key)));
        }
        out
    }

    /// What HAProxy said of that value, if it refused it.
    pub(super) fn refusal(&self, slot: &Slot, value: &Value) -> Option<&Arc<str>> {
        if self.refused.is_empty() {
            return None;
        }
        let refusal = self.refused.get(slot).filter(|(fingerprint, _)| *fingerprint == value.fingerprint());
        refusal.map(|(_, words)| words)
    }

    /// `backend|flags|rid`, without the end where that is empty; what the flags say more about goes into `out`.
    fn route_value(&self, key: &RouteKey, host: &HostDecision, winners: &Winners<'_>, out: &mut Outcome) -> Arc<str> {
        let id = key.id();
        let base = match winners.base {
            Some(claim) => self.claim_value(key, host, claim, &id, out),
            None => names::NOT_FOUND.into(),
        };
        match self.alternatives(key, host, winners, &base, &id, out) {
            None => base,
            Some(list) => {
                let slot = Slot::Map(MapName::Choose, id.as_str().into());
                out.want(slot, Value::Text(list.into()));
                with_flag(&base, 'w', &id).into()
            }
        }
    }

    /// What a route leads to if that claim takes it.
    pub(super) fn claim_value(
        &self,
        key: &RouteKey,
        host: &HostDecision,
        claim: &Claim,
        id: &str,
        out: &mut Outcome,
    ) -> Arc<str> {
        let Some(target) = claim.targets.first() else { return names::UNAVAILABLE.into() };
        let backend = self.backend_decision(&target.backend, out);
        let levels = self.route_levels(claim, out);
        let mut flags = String::new();
        if !claim.challenge {
            // Also where all else is refused: a redirect does no harm.
            self.redirects(host, &levels, id, &mut flags, out);
            if let Some((required, told)) = host.client {
                flags.push(if required { 'm' } else { 'o' });
                flags.push_str(if told { "k" } else { "" });
            }
        }
        let name = if !claim.challenge && (host.deny || levels.fails(Scope::Path)) {
            names::UNAVAILABLE.into()
        } else if claim.challenge {
            backend.name
        } else {
            match self.route_flags(key, claim, &levels, id, &mut flags, out) {
                Ok(()) => backend.name,
                Err(refusal) => refusal.into(),
            }
        };
        if flags.is_empty() { name } else { format!("{name}|{flags}|{id}").into() }
    }

    /// Who says something about a route: the Service that it leads to, the claim, the RouterConfig.
    fn route_levels(&self, claim: &Claim, out: &mut Outcome) -> Levels {
        let mut levels: Vec<Arc<Options>> = Vec::with_capacity(3);
        if let Some(target) = claim.targets.first() {
            let service = &target.backend.service;
            out.needs.insert(Need::Service(service.clone()));
            levels.extend(self.service(service).map(|(_, options)| options.clone()).filter(|o| !o.is_empty()));
        }
        levels.push(claim.options.clone());
        levels.extend(self.objects.config.as_ref().map(|(_, options)| options.clone()));
        Levels::new(levels)
    }
}

/// Adds a flag to a value.
fn with_flag(value: &str, flag: char, id: &str) -> String {
    match value.split_once('|') {
        None => format!("{value}|{flag}|{id}"),
        Some((backend, rest)) => format!("{backend}|{flag}{rest}"),
    }
}

/// The map and the key of a route.
pub(super) fn place(key: &RouteKey) -> (MapName, String) {
    let (host, path) = (&key.host, &key.path);
    match key.kind {
        PathKind::Exact => (MapName::Exact, format!("{host}{path}")),
        PathKind::Prefix if &**path == "/" => (MapName::Prefix, format!("{host}/")),
        PathKind::Prefix => (MapName::Prefix, format!("{host}{path}/")),
        PathKind::Begin => (MapName::Prefix, format!("{host}{path}")),
        PathKind::Regex => (MapName::Regex, format!("^{}(?:{path})", names::literal(host))),
    }
}

/// Of several who want the same the oldest has it.
fn winners<'a>(key: &RouteKey, claims: &'a ClaimsOf, out: &mut Outcome) -> Winners<'a> {
    let mut winners = Winners { base: None, conditional: Vec::new(), canary: None };
    for claim in claims.values() {
        let holder = if claim.canary {
            winners.canary.get_or_insert(claim)
        } else if claim.conditions.is_empty() {
            winners.base.get_or_insert(claim)
        } else {
            match winners.conditional.iter().find(|c| c.conditions == claim.conditions) {
                Some(holder) => holder,
                None => {
                    winners.conditional.push(claim);
                    continue;
                }
            }
        };
        if !Arc::ptr_eq(holder, claim) {
            tell_conflict(key, holder, claim, out);
        }
    }
    if let (Some(canary), None) = (winners.canary, winners.base) {
        let message = format!("{}: no other Ingress has this path, of which a share could be taken", describe(key));
        out.tell_object(canary.object.clone(), Reason::CanaryWithoutRoute, message);
    }
    // The more that is asked of a request the earlier it is tried; then by age.
    winners.conditional.sort_by_key(|claim| std::cmp::Reverse(claim.conditions.len()));
    winners
}

fn tell_conflict(key: &RouteKey, holder: &Claim, claim: &Claim, out: &mut Outcome) {
    // The same object twice, to the same place: nothing is lost. An Ingress that names its default backend both ways.
    if holder.object == claim.object && holder.targets == claim.targets {
        return;
    }
    // The RouterConfig's own default gives way to everything.
    if claim.object.kind == Kind::RouterConfig {
        return;
    }
    let holder = if holder.object == claim.object { "an earlier rule".to_owned() } else { holder.object.to_string() };
    let message = format!("{} is served by {holder}, which came first", describe(key));
    out.tell_object(Object::clone(&claim.object), Reason::RouteConflict, message);
}

fn describe(key: &RouteKey) -> String {
    match &*key.host {
        "!" => "the default backend".to_owned(),
        "*" => format!("{} of every host", key.path),
        host => format!("{host}{}", key.path),
    }
}
