//! The model of one RouterConfig's edge.
//!
//! One task owns it. [`Model::apply`] takes in what happened and marks what depends on it; [`Model::settle`] decides
//! all that is marked, in the order Ingress, backend, host, route, store, each looking only at those before it. What is
//! decided of a unit follows from the objects alone and never from what was before: a model that lived through any
//! events is equal to one that was just built. What a unit looked at is remembered both ways, also where it does not
//! exist, so that nothing on the way of an event walks all objects.

mod alternatives;
mod apply;
mod authentication;
mod backend;
mod check;
mod dirty;
mod endpoints;
mod host;
mod ingress;
mod link;
mod route;
mod route_options;
mod show;
mod state;
mod store;
mod unit;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ids::{Key, Kind, Object};
use super::input::RouterConfig;
use super::sets::Sorted;
use super::wanted::{Change, Slot, Wanted};
use crate::maps::Map;
use dirty::Dirty;
pub use host::DEFAULT_CERTIFICATE;
pub use ingress::CONTROLLER;
pub use show::Sizes;
use state::{Decided, Indexes, Objects};
pub use store::FRONT;
use unit::{Done, Need, Outcome, Rare, Unit};
pub use unit::{Problem, Reason};

/// What HAProxy must hold for one RouterConfig, and what people must be told.
#[derive(Debug)]
pub struct Model {
    key: Key,
    synced: BTreeSet<Kind>,
    objects: Objects,
    indexes: Indexes,
    decided: Decided,
    dirty: Dirty,
    wanted: Wanted,
    /// What HAProxy refused: the value's fingerprint and its words.
    refused: Map<Slot, (u64, Arc<str>)>,
    /// Secrets and names that came to be referred to or ceased to be, with whether they were before.
    asked_touched: BTreeMap<Need, bool>,
    /// What HAProxy was last configured by.
    configured: Option<Arc<RouterConfig>>,
    generation: u64,
    in_force: u64,
}

/// Everything that came of settling.
#[derive(Debug, Default, PartialEq)]
pub struct Settled {
    /// The number of the last batch that changed something; 0: nothing is known well enough yet, and nothing may be done.
    pub generation: u64,
    /// Whether this is the first batch: HAProxy is to be brought to [`Model::wanted`], whatever it holds.
    pub first: bool,
    /// What to change, in this order; nothing in the first batch.
    pub changes: Vec<Change>,
    /// Fields of the RouterConfig that changed and need a reload. Whether HAProxy has them is for it to say: it may have
    /// been started from what was there before the first batch.
    pub reload: Vec<&'static str>,
    /// To be told, once.
    pub events: Vec<Event>,
    /// Ingresses whose status must name our addresses from now on (`true`), or no more.
    pub published: Vec<(Key, bool)>,
    /// Secrets to be watched from now on (`true`; each is answered by `Secret` or `Vanished`), or no more.
    pub secrets: Vec<(Key, bool)>,
    /// Names to be resolved from now on and again when their time ends (each is answered by `Resolved`), or no more.
    pub names: Vec<(Arc<str>, bool)>,
}

/// For people, on an object. For transitions only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub object: Object,
    /// Its uid; empty where the object is not there.
    pub uid: Arc<str>,
    /// Why.
    pub reason: Reason,
    /// For people.
    pub message: Arc<str>,
}

impl Model {
    /// The model of that RouterConfig, which knows nothing yet.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            synced: BTreeSet::new(),
            objects: Objects::default(),
            indexes: Indexes::default(),
            decided: Decided::default(),
            dirty: Dirty::default(),
            wanted: Wanted::default(),
            refused: Map::default(),
            asked_touched: BTreeMap::new(),
            configured: None,
            generation: 0,
            in_force: 0,
        }
    }

    /// What HAProxy must hold, as of the last time it settled.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The RouterConfig that the files are written by.
    pub fn configured(&self) -> Option<&Arc<RouterConfig>> {
        self.configured.as_ref()
    }

    /// Whether everything that was ever decided is in force: what readiness waits for.
    pub fn in_force(&self) -> bool {
        self.generation != 0 && self.in_force == self.generation
    }

    /// Decides all that is marked. Costs what is marked.
    pub fn settle(&mut self) -> Settled {
        let mut out = Settled::default();
        let Some((config, _)) = self.objects.config.clone() else { return out };
        if self.synced.len() < Kind::ALL.len() {
            return out;
        }
        while let Some(units) = self.dirty.take_first() {
            for unit in units {
                let outcome = match &unit {
                    Unit::Ingress(key) => self.decide_ingress(key),
                    Unit::Backend(id) => self.decide_backend(id),
                    Unit::Host(host) => self.decide_host(host),
                    Unit::Route(key) => self.decide_route(key),
                    Unit::Store(id) => self.decide_store(id),
                };
                self.take(unit, outcome);
            }
        }
        for (need, before) in std::mem::take(&mut self.asked_touched) {
            let now = self.decided.needing.contains_key(&need);
            if now != before {
                match need {
                    Need::Secret(key) => out.secrets.push((key, now)),
                    Need::Name(name) => out.names.push((name, now)),
                    _ => {}
                }
            }
        }
        self.forget(&out);
        let first = self.generation == 0;
        if first && self.waits() {
            return out;
        }
        out.first = first;
        out.changes = self.wanted.take_changes();
        if let Some(before) = self.configured.replace(config.clone()) {
            out.reload = super::render::reloads(&before, &config);
        }
        // What changes nothing needs nobody to carry it out.
        if first || !out.changes.is_empty() || !out.reload.is_empty() {
            self.generation += 1;
        }
        out.generation = self.generation;
        self.tell(first, &mut out);
        out
    }

    /// Of what is needed no more nothing is known any more, except Secrets that are there: the watch may have them all.
    fn forget(&mut self, out: &Settled) {
        for (key, _) in out.secrets.iter().filter(|(_, now)| !now) {
            if self.objects.secrets.get(key).is_some_and(Result::is_err) {
                self.objects.secrets.remove(key);
            }
        }
        for (name, _) in out.names.iter().filter(|(_, now)| !now) {
            self.objects.names.remove(name);
        }
    }

    /// Whether something that is referred to has not been answered for: until then nothing is begun.
    fn waits(&self) -> bool {
        self.decided.needing.keys().any(|need| match &**need {
            Need::Secret(key) => !self.objects.secrets.contains_key(key),
            Need::Name(name) => !self.objects.names.contains_key(name),
            _ => false,
        })
    }

    fn tell(&mut self, first: bool, out: &mut Settled) {
        for (problem, before) in std::mem::take(&mut self.decided.problems_touched) {
            // A start finds what was told before it.
            if !before && !first && self.decided.problems.contains_key(&problem) {
                let uid = self.uid(&problem.object);
                let Problem { object, reason, message } = problem;
                out.events.push(Event { object, uid, reason, message });
            }
        }
        for (key, before) in std::mem::take(&mut self.decided.served_touched) {
            let now = self.decided.served.contains(&key);
            if now != before && !key.name.is_empty() {
                out.published.push((key, now));
            }
        }
    }

    fn uid(&self, object: &Object) -> Arc<str> {
        let key = &object.key;
        let uid = match object.kind {
            Kind::Ingress => self.objects.ingresses.get(key).map(|(i, _)| &i.meta.uid),
            Kind::Service => self.objects.services.get(key).map(|(s, _)| &s.meta.uid),
            Kind::Secret => self.objects.secrets.get(key).and_then(|s| s.as_ref().ok()).map(|s| &s.meta.uid),
            Kind::RouterConfig => self.objects.config.as_ref().map(|(c, _)| &c.meta.uid),
            Kind::IngressClass | Kind::Namespace | Kind::EndpointSlice => None,
        };
        uid.cloned().unwrap_or_else(|| "".into())
    }

    /// Puts what came of a unit in the place of what came of it before.
    fn take(&mut self, unit: Unit, outcome: Outcome) {
        let Outcome { slots, problems, needs, stores, lists } = outcome;
        let (unit, before) = match self.decided.done.remove_entry(&unit) {
            Some(known) => known,
            None => (Arc::new(unit), Done::default()),
        };
        let names: Sorted<&Slot> = slots.iter().map(|(slot, _)| slot).collect();
        for slot in before.slots.iter().filter(|slot| !names.contains(slot)) {
            self.wanted.set(slot.clone(), None);
        }
        for need in before.needs.iter().filter(|need| !needs.contains(need)) {
            self.unneed(need, &unit);
        }
        let kept = |need: &Need| before.needs.iter().find(|n| ***n == *need).cloned();
        let new_needs = needs.into_members().map(|need| match kept(&need) {
            Some(need) => need,
            None => self.need(need, &unit),
        });
        let new_needs = new_needs.collect();
        for (name, contents) in lists {
            self.decided.lists.insert(name, contents);
        }
        let rare = before.rare.unwrap_or_default();
        for store in rare.stores.difference(&stores) {
            if let Some(users) = self.decided.users.get_mut(store) {
                users.remove(&unit);
                if users.is_empty() {
                    self.decided.users.remove(store);
                    self.dirty.insert(Unit::Store(store.clone()));
                }
            }
        }
        for store in stores.difference(&rare.stores) {
            let users = self.decided.users.entry(store.clone()).or_default();
            if users.is_empty() {
                self.dirty.insert(Unit::Store(store.clone()));
            }
            users.insert(unit.clone());
        }
        for problem in rare.problems.difference(&problems) {
            self.count_problem(problem, false);
        }
        for problem in problems.difference(&rare.problems) {
            self.count_problem(problem, true);
        }
        let rare = (!problems.is_empty() || !stores.is_empty()).then(|| Box::new(Rare { problems, stores }));
        let done = Done { slots: slots.iter().map(|(slot, _)| slot.clone()).collect(), needs: new_needs, rare };
        for (slot, value) in slots {
            self.wanted.set(slot, Some(value));
        }
        if !done.is_empty() {
            self.decided.done.insert(unit, done);
        }
    }

    fn count_problem(&mut self, problem: &Problem, more: bool) {
        let before = self.decided.problems.get(problem).copied().unwrap_or(0);
        self.decided.problems_touched.entry(problem.clone()).or_insert(before > 0);
        match if more { before + 1 } else { before.saturating_sub(1) } {
            0 => self.decided.problems.remove(problem),
            count => self.decided.problems.insert(problem.clone(), count),
        };
    }

    /// Remembers who looks at what.
    fn need(&mut self, need: Need, unit: &Arc<Unit>) -> Arc<Need> {
        let known = self.decided.needing.get_key_value(&need).map(|(known, _)| known.clone());
        let need = known.unwrap_or_else(|| Arc::new(need));
        let units = self.decided.needing.entry(need.clone()).or_default();
        if units.is_empty() && matches!(*need, Need::Secret(_) | Need::Name(_)) {
            self.asked_touched.entry((*need).clone()).or_insert(false);
        }
        units.insert(unit.clone());
        need
    }

    fn unneed(&mut self, need: &Need, unit: &Arc<Unit>) {
        let Some(units) = self.decided.needing.get_mut(need) else { return };
        units.remove(unit);
        if units.is_empty() {
            self.decided.needing.remove(need);
            if matches!(need, Need::Secret(_) | Need::Name(_)) {
                self.asked_touched.entry(need.clone()).or_insert(true);
            }
        }
    }

    /// Marks whoever looks at that.
    fn changed(&mut self, need: &Need) {
        if let Some(units) = self.decided.needing.get(need) {
            self.dirty.extend(units.iter().map(|unit| (**unit).clone()));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
