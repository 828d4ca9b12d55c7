//! Taking in what happened: objects are kept, and what looks at them is marked.

use std::sync::Arc;

use super::Model;
use super::state::Absent;
use super::unit::{Need, Unit};
use crate::edge::ids::{Key, Kind};
use crate::edge::input::{Annotations, EndpointSlice, Input, Service};
use crate::edge::options::Options;
use crate::edge::wanted::Slot;

impl Model {
    /// Takes an event in. Costs the object and what looks at it.
    pub fn apply(&mut self, input: Input) {
        match input {
            Input::RouterConfig(config) => {
                if config.meta.key == self.key && self.objects.config.as_ref().is_none_or(|(c, _)| *c != config) {
                    let options = Arc::new(Options::read_plain(&config.options));
                    self.objects.config = Some((config, options));
                    self.mark_all();
                }
            }
            Input::Ingress(ingress) => {
                let key = ingress.meta.key.clone();
                if self.objects.ingresses.get(&key).is_some_and(|(i, _)| *i == ingress) {
                    return;
                }
                let options = self.options(&ingress.annotations);
                self.objects.ingresses.insert(key.clone(), (ingress, options));
                self.mark_ingress(key);
            }
            Input::IngressClass(class) => {
                let name = class.name.clone();
                if self.objects.classes.insert(name.clone(), class.clone()).as_ref() != Some(&class) {
                    self.class_changed(name);
                }
            }
            Input::Service(service) => {
                let key = service.meta.key.clone();
                if self.objects.services.get(&key).is_some_and(|(s, _)| *s == service) {
                    return;
                }
                let options = self.service_options(&service);
                self.objects.services.insert(key.clone(), (service, options));
                self.changed(&Need::Service(key));
            }
            Input::EndpointSlice(slice) => self.slice(slice),
            Input::Secret(secret) => {
                let key = secret.meta.key.clone();
                let before = self.objects.secrets.insert(key.clone(), Ok(secret.clone()));
                if before != Some(Ok(secret)) {
                    self.changed(&Need::Secret(key));
                }
            }
            Input::Unreadable(key) => {
                let need = Need::Secret(key);
                if let (true, Need::Secret(key)) = (self.decided.needing.contains_key(&need), &need)
                    && !self.objects.secrets.get(key).is_some_and(Result::is_ok)
                    && self.objects.secrets.insert(key.clone(), Err(Absent::Unreadable))
                        != Some(Err(Absent::Unreadable))
                {
                    self.changed(&need);
                }
            }
            Input::Namespace(name, labels) => {
                if self.objects.namespaces.insert(name.clone(), labels.clone()).as_ref() != Some(&labels) {
                    self.changed(&Need::Namespace(name));
                }
            }
            Input::Vanished(kind, key) => self.vanished(kind, &key),
            Input::Synced(kind) => {
                self.synced.insert(kind);
            }
            Input::Resolved(name, addresses) => {
                let known = self.decided.needing.contains_key(&Need::Name(name.clone()));
                if known && self.objects.names.insert(name.clone(), addresses.clone()).as_ref() != Some(&addresses) {
                    self.changed(&Need::Name(name));
                }
            }
            Input::Refused(slot, fingerprint, words) => self.refused(slot, fingerprint, words),
            Input::InForce(generation) => self.in_force = self.in_force.max(generation.min(self.generation)),
        }
    }

    fn service_options(&self, service: &Arc<Service>) -> Arc<Options> {
        // Most Services say nothing, and those that do mostly say the same as before.
        match self.objects.services.get(&service.meta.key) {
            Some((before, options)) if before.annotations == service.annotations => options.clone(),
            _ => self.options(&service.annotations),
        }
    }

    fn options(&self, annotations: &Annotations) -> Arc<Options> {
        if annotations.is_empty() { self.objects.silence.clone() } else { Arc::new(Options::read(annotations)) }
    }

    fn mark_ingress(&mut self, key: Key) {
        self.dirty.insert(Unit::Ingress(key));
    }

    /// After a change of the RouterConfig: everything looks at it.
    fn mark_all(&mut self) {
        self.dirty.extend(self.objects.ingresses.keys().cloned().map(Unit::Ingress));
        self.dirty.extend(self.indexes.hosts.keys().cloned().map(Unit::Host));
        self.dirty.extend(self.decided.done.keys().map(|unit| (**unit).clone()));
        // Its own default backend and certificate.
        self.dirty.insert(Unit::Ingress(Key::new("", "")));
        self.dirty.insert(Unit::Host("!".into()));
    }

    fn class_changed(&mut self, name: Arc<str>) {
        self.changed(&Need::Class(name));
        self.changed(&Need::Class("".into()));
    }

    fn slice(&mut self, slice: Arc<EndpointSlice>) {
        let key = slice.key.clone();
        let service = Key::new(key.namespace.clone(), slice.service.clone());
        match self.objects.slices.insert(key.clone(), slice.clone()) {
            Some(before) if before == slice => return,
            Some(before) if before.service != slice.service => self.leave(&before),
            _ => {}
        }
        self.objects.slices_of.entry(service.clone()).or_default().insert(key.name);
        self.changed(&Need::Slices(service));
    }

    fn leave(&mut self, slice: &EndpointSlice) {
        let service = Key::new(slice.key.namespace.clone(), slice.service.clone());
        if let Some(names) = self.objects.slices_of.get_mut(&service) {
            names.remove(&slice.key.name);
            if names.is_empty() {
                self.objects.slices_of.remove(&service);
            }
        }
        self.changed(&Need::Slices(service));
    }

    fn vanished(&mut self, kind: Kind, key: &Key) {
        match kind {
            // What is served goes on: unknown is not empty.
            Kind::RouterConfig => {}
            Kind::IngressClass => {
                if self.objects.classes.remove(&key.name).is_some() {
                    self.class_changed(key.name.clone());
                }
            }
            Kind::Namespace => {
                if self.objects.namespaces.remove(&key.name).is_some() {
                    self.changed(&Need::Namespace(key.name.clone()));
                }
            }
            Kind::Ingress => {
                if self.objects.ingresses.remove(key).is_some() {
                    self.mark_ingress(key.clone());
                }
            }
            Kind::Service => {
                if self.objects.services.remove(key).is_some() {
                    self.changed(&Need::Service(key.clone()));
                }
            }
            Kind::EndpointSlice => {
                if let Some(slice) = self.objects.slices.remove(key) {
                    self.leave(&slice);
                }
            }
            Kind::Secret => {
                let need = Need::Secret(key.clone());
                let asked = self.decided.needing.contains_key(&need);
                // What nobody refers to is not kept.
                let before = if asked {
                    self.objects.secrets.insert(key.clone(), Err(Absent::Missing))
                } else {
                    self.objects.secrets.remove(key)
                };
                if before != Some(Err(Absent::Missing)) {
                    self.changed(&need);
                }
            }
        }
    }

    /// What HAProxy does not take is told to whom it concerns, and no more wanted while it is the same.
    fn refused(&mut self, slot: Slot, fingerprint: u64, words: Arc<str>) {
        let current = self.wanted.get(&slot).map(super::super::wanted::Value::fingerprint);
        if current != Some(fingerprint) {
            return;
        }
        self.refused.insert(slot.clone(), (fingerprint, words));
        // Rare enough to be looked for.
        let holders: Vec<Unit> = self
            .decided
            .done
            .iter()
            .filter(|(_, done)| done.slots.contains(&slot))
            .map(|(unit, _)| (**unit).clone())
            .collect();
        for unit in holders {
            if let Unit::Store(store) = &unit {
                let users = self.decided.users.get(store).cloned().unwrap_or_default();
                self.dirty.extend(users.iter().map(|unit| (**unit).clone()));
            }
            self.dirty.insert(unit);
        }
    }
}
