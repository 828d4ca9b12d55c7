//! Invariants of the model, for tests: everything that must hold between any two events.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Model;
use crate::edge::address;
use crate::edge::sets::Few;
use crate::edge::wanted::{MapName, Slot, Value};

impl Model {
    /// Checks every invariant; the first one broken, in words. Costs everything: for tests and simulations.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        if self.generation == 0 || !self.dirty.is_empty() {
            return Ok(());
        }
        self.check_owners()?;
        self.check_routes()?;
        self.check_servers()?;
        self.check_stores()?;
        self.check_needs()
    }

    /// Every slot is wanted by exactly one unit.
    fn check_owners(&self) -> Result<(), String> {
        let mut owned = BTreeSet::new();
        for (unit, done) in &self.decided.done {
            for slot in &done.slots {
                if !owned.insert(slot) {
                    return Err(format!("{slot:?}: wanted twice, also by {unit:?}"));
                }
                if self.wanted.get(slot).is_none() {
                    return Err(format!("{slot:?}: wanted by {unit:?}, and not held"));
                }
            }
        }
        match self.wanted.slots().keys().find(|slot| !owned.contains(slot)) {
            Some(slot) => Err(format!("{slot:?}: held for nobody")),
            None => Ok(()),
        }
    }

    /// Every route leads to a backend that is there; what is said about routes is said about one that is there.
    fn check_routes(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        let mut values: Vec<(Slot, String)> = Vec::new();
        for (slot, value) in self.wanted.slots() {
            let (Slot::Map(map, key), Value::Text(text)) = (slot, value) else { continue };
            // An entry without a value would take in the next line.
            if key.is_empty() || key.contains([' ', '\n']) || text.trim().is_empty() || text.contains('\n') {
                return Err(format!("{slot:?}: {text:?} does not fit in a line"));
            }
            match map {
                MapName::Exact | MapName::Prefix | MapName::Regex => values.push((slot.clone(), text.to_string())),
                MapName::Choose => {
                    let parts = text.split(';').filter_map(|entry| entry.split_once('>'));
                    values.extend(parts.map(|(_, value)| (slot.clone(), unescaped(value))));
                }
                MapName::Passthrough | MapName::Fallback => values.push((slot.clone(), text.to_string())),
                _ => {}
            }
        }
        for (slot, value) in &values {
            let mut parts = value.splitn(3, '|');
            let backend: Arc<str> = parts.next().unwrap_or_default().into();
            if !backend.starts_with('_') && self.wanted.get(&Slot::Backend(backend.clone())).is_none() {
                return Err(format!("{slot:?}: leads to {backend}, which is not there"));
            }
            if let (Some(flags), Some(id)) = (parts.next(), parts.next()) {
                if flags.is_empty() || id.is_empty() {
                    return Err(format!("{slot:?}: {value:?} says nothing"));
                }
                ids.insert(id.to_owned());
            }
        }
        for slot in self.wanted.slots().keys() {
            let Slot::Map(map, key) = slot else { continue };
            let id = match map {
                MapName::CorsOrigin => key.rsplit_once('|').map_or(&**key, |(id, _)| id),
                MapName::Cookie | MapName::CheckPath | MapName::CheckHost => {
                    if self.wanted.get(&Slot::Backend(key.clone())).is_none() {
                        return Err(format!("{slot:?}: says something of a backend that is not there"));
                    }
                    continue;
                }
                MapName::Hosts | MapName::Www | MapName::Hsts | MapName::Networks | MapName::RewriteRegex => continue,
                map if map.routes() => continue,
                _ => key,
            };
            if !ids.contains(id) {
                return Err(format!("{slot:?}: says something of a route that is not there"));
            }
        }
        Ok(())
    }

    fn check_servers(&self) -> Result<(), String> {
        for (slot, value) in self.wanted.slots() {
            let (Slot::Server(backend, _), Value::Server(server)) = (slot, value) else { continue };
            if self.wanted.get(&Slot::Backend(backend.clone())).is_none() {
                return Err(format!("{slot:?}: its backend is not there"));
            }
            if let Some(why) = address::refused(server.address) {
                return Err(format!("{slot:?}: leads to {why}"));
            }
            if let Some(tls) = &server.link.tls {
                let authority = tls.authority.iter().cloned().map(Slot::Authority);
                let certificate = tls.certificate.iter().cloned().map(Slot::Certificate);
                if let Some(missing) = authority.chain(certificate).find(|s| self.wanted.get(s).is_none()) {
                    return Err(format!("{slot:?}: needs {missing:?}"));
                }
            }
        }
        Ok(())
    }

    /// What is referred to is there, and what is there is referred to.
    fn check_stores(&self) -> Result<(), String> {
        let mut used: BTreeSet<Slot> = BTreeSet::new();
        let mut lists = BTreeSet::new();
        for (slot, value) in self.wanted.slots() {
            match (slot, value) {
                (Slot::CrtList(_), Value::CrtLine(line)) => {
                    if &*line.certificate != super::host::DEFAULT_CERTIFICATE {
                        used.insert(Slot::Certificate(line.certificate.clone()));
                    }
                    used.extend(line.client.iter().map(|(authority, _)| Slot::Authority(authority.clone())));
                }
                (Slot::Map(MapName::BasicAuth, _), Value::Text(text)) => {
                    used.insert(Slot::Users(text.split('|').next().unwrap_or_default().into()));
                }
                (Slot::Map(MapName::AllowList | MapName::DenyList | MapName::LimitExempt, _), Value::Text(text)) => {
                    lists.insert(text.clone());
                }
                (Slot::Server(..), Value::Server(server)) => {
                    let tls = server.link.tls.iter();
                    used.extend(tls.clone().flat_map(|t| t.authority.clone()).map(Slot::Authority));
                    used.extend(tls.flat_map(|t| t.certificate.clone()).map(Slot::Certificate));
                }
                _ => {}
            }
        }
        if let Some(missing) = used.iter().find(|slot| self.wanted.get(slot).is_none()) {
            return Err(format!("{missing:?}: referred to, and not there"));
        }
        let mut held = BTreeSet::new();
        for slot in self.wanted.slots().keys() {
            let kept = match slot {
                Slot::Certificate(name) if &**name == super::host::DEFAULT_CERTIFICATE => true,
                // A backend without endpoints keeps what its servers will need.
                Slot::Certificate(_) | Slot::Authority(_) => used.contains(slot) || self.is_store_used(slot),
                Slot::Users(_) => used.contains(slot),
                Slot::Front => self.wanted.map(MapName::Passthrough).next().is_some(),
                Slot::Map(MapName::Networks, key) => {
                    let list: Arc<str> = key.split('|').next().unwrap_or_default().into();
                    let kept = lists.contains(&list);
                    held.insert(list);
                    kept
                }
                _ => true,
            };
            if !kept {
                return Err(format!("{slot:?}: nothing refers to it"));
            }
        }
        match lists.iter().find(|list| !held.contains(*list)) {
            Some(list) => Err(format!("list {list}: referred to, and not there")),
            None => Ok(()),
        }
    }

    fn is_store_used(&self, slot: &Slot) -> bool {
        self.decided.users.keys().any(|id| {
            let unit = super::unit::Unit::Store(id.clone());
            self.decided.done.get(&unit).is_some_and(|done| done.slots.contains(slot))
        })
    }

    fn check_needs(&self) -> Result<(), String> {
        let mut count = 0;
        for (unit, done) in &self.decided.done {
            for need in &*done.needs {
                if !self.decided.needing.get(need).is_some_and(|units| units.contains(unit)) {
                    return Err(format!("{unit:?} looks at {need:?}, which does not know it"));
                }
                count += 1;
            }
        }
        let known: usize = self.decided.needing.values().map(Few::len).sum();
        if known != count {
            return Err(format!("{known} looks are known, {count} are taken"));
        }
        let problems: usize = self.decided.done.values().map(|done| done.problems().count()).sum();
        let counted: usize = self.decided.problems.values().sum();
        if problems != counted {
            return Err(format!("{counted} problems are counted, {problems} are told"));
        }
        let claimed: usize = self.decided.claims.values().map(|claims| claims.routes.len()).sum();
        let indexed: usize = self.indexes.routes.values().map(super::state::ClaimsOf::len).sum();
        if claimed != indexed {
            return Err(format!("{indexed} claims are indexed, {claimed} are made"));
        }
        if let Some(host) = self.decided.hosts.keys().find(|host| !self.indexes.hosts.contains_key(*host)) {
            return Err(format!("host {host}: decided, and nobody has it"));
        }
        match self.decided.backends.keys().find(|id| !self.indexes.backends.contains_key(*id)) {
            Some(id) => Err(format!("backend {id:?}: decided, and nobody leads there")),
            None => Ok(()),
        }
    }
}

/// Text of an alternative, without its percent signs.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
