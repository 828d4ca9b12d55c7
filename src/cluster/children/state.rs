//! What is wished, what is there, and what has to be done for the one to become the other. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::build::{ChildId, ChildKind, Observed, covers, wanted};
use super::carry::{Action, Outcome};
use crate::messaging::exposure::{Exposed, Exposure, service_name};
use crate::messaging::ids::Key;

type Report = BTreeMap<Arc<str>, Exposed>;

/// A space.
struct Wished {
    exposure: Exposure,
    /// By endpoint: the words of the last refusal.
    refused: BTreeMap<Arc<str>, Arc<str>>,
    /// The endpoints that something failed for.
    failed: BTreeSet<Arc<str>>,
    /// In vain, in a row.
    attempts: u32,
    /// Those wait before they are tried again; the others do not.
    waits: bool,
    told: Option<Report>,
}

/// See the module.
#[derive(Default)]
pub struct State {
    wishes: BTreeMap<Key, Wished>,
    children: BTreeMap<ChildId, Observed>,
    of_space: BTreeMap<Key, BTreeSet<ChildId>>,
    synced: BTreeSet<ChildKind>,
    /// To be looked at.
    dirty: BTreeSet<Key>,
    busy: BTreeSet<Key>,
    /// Since any of them became busy, a child was seen to go, or all were listed: an answer to them may be older.
    outdated: bool,
    /// To be told of.
    moved: BTreeSet<Key>,
}

impl State {
    pub fn wish(&mut self, exposure: Exposure) {
        let space = exposure.space.clone();
        match self.wishes.get_mut(&space) {
            Some(wished) if wished.exposure.uid == exposure.uid => {
                (wished.exposure, wished.attempts, wished.waits) = (exposure, 0, false);
                // Who wishes anew wants to hear what becomes of it, whatever that is.
                wished.told = None;
                wished.refused.clear();
                wished.failed.clear();
            }
            _ => {
                let fresh = Wished {
                    exposure,
                    refused: BTreeMap::new(),
                    failed: BTreeSet::new(),
                    attempts: 0,
                    waits: false,
                    told: None,
                };
                self.wishes.insert(space.clone(), fresh);
            }
        }
        self.dirty.insert(space);
    }

    pub fn forget(&mut self, space: &Key) {
        self.wishes.remove(space);
    }

    pub fn resign(&mut self) {
        self.wishes.clear();
        self.dirty.clear();
        self.busy.clear();
        self.outdated = false;
        self.moved.clear();
    }

    pub fn synced(&mut self, kind: ChildKind) {
        self.outdated |= !self.busy.is_empty();
        self.synced.insert(kind);
    }

    pub fn observed(&mut self, id: ChildId, now: Observed) {
        if self.children.get(&id).is_some_and(|known| known.uid == now.uid && known.version > now.version) {
            // Older than what was answered to us since.
            return;
        }
        self.unindex(&id);
        if let Some((space, _)) = &now.owner {
            self.of_space.entry(space.clone()).or_default().insert(id.clone());
            self.dirty.insert(space.clone());
        }
        self.children.insert(id, now);
    }

    pub fn gone(&mut self, id: &ChildId) {
        self.outdated |= !self.busy.is_empty();
        self.forget_child(id);
    }

    fn forget_child(&mut self, id: &ChildId) {
        self.unindex(id);
        self.children.remove(id);
    }

    fn unindex(&mut self, id: &ChildId) {
        let Some((space, _)) = self.children.get(id).and_then(|child| child.owner.as_ref()) else { return };
        self.dirty.insert(space.clone());
        if let Some(children) = self.of_space.get_mut(space) {
            children.remove(id);
            if children.is_empty() {
                self.of_space.remove(space);
            }
        }
    }

    /// It has waited long enough.
    pub fn again(&mut self, space: &Key) {
        if let Some(wished) = self.wishes.get_mut(space) {
            wished.waits = false;
            self.dirty.insert(space.clone());
        }
    }

    /// The next space with something to do, and what; those without anything to do are told of.
    pub fn next(&mut self) -> Option<(Key, Vec<Action>)> {
        if self.synced.len() < ChildKind::ALL.len() {
            return None;
        }
        let ready = |space: &&Key| !self.busy.contains(*space);
        while let Some(space) = self.dirty.iter().find(ready).cloned() {
            self.dirty.remove(&space);
            let plan = match self.wishes.get(&space) {
                Some(wished) => {
                    let mut plan = self.plan(wished);
                    let stuck =
                        |endpoint: &Arc<str>| wished.refused.contains_key(endpoint) || wished.failed.contains(endpoint);
                    plan.retain(|action| !wished.waits || !stuck(action.endpoint()));
                    plan
                }
                None => Vec::new(),
            };
            self.moved.insert(space.clone());
            if !plan.is_empty() {
                self.busy.insert(space.clone());
                return Some((space, plan));
            }
        }
        None
    }

    fn all_wanted(exposure: &Exposure) -> BTreeMap<ChildId, (Arc<str>, Value)> {
        let services = exposure.services.iter();
        services
            .flat_map(|(endpoint, wish)| {
                let children = wanted(exposure, endpoint, wish).into_iter();
                children.map(|(id, body)| (id, (endpoint.clone(), body)))
            })
            .collect()
    }

    /// What of a space is ours and there.
    fn own(&self, exposure: &Exposure) -> impl Iterator<Item = (&ChildId, &Observed)> {
        let all = self.of_space.get(&exposure.space).into_iter().flatten();
        let uid = exposure.uid.clone();
        all.filter_map(|id| Some((id, self.children.get(id)?)))
            .filter(move |(_, child)| child.owner.as_ref().is_some_and(|(_, owner)| **owner == *uid))
    }

    fn plan(&self, wished: &Wished) -> Vec<Action> {
        let exposure = &wished.exposure;
        let wanted = Self::all_wanted(exposure);
        let mut plan = Vec::new();
        for (id, (endpoint, body)) in &wanted {
            let there = self.children.get(id);
            let ours = there.filter(|child| child.owner.as_ref().is_some_and(|(_, uid)| **uid == *exposure.uid));
            if ours.is_some_and(|child| covers(id.kind, &child.body, body)) {
                continue;
            }
            plan.push(Action::Apply {
                id: id.clone(),
                endpoint: endpoint.clone(),
                owner: exposure.uid.clone(),
                known: ours.map(|child| child.uid.clone()),
                body: body.clone(),
            });
        }
        for (id, child) in self.own(exposure) {
            let kept = wanted.contains_key(id)
                // Where it leads is not known yet: what is there stays.
                || exposure.services.get(&child.endpoint).is_some_and(|wish| {
                    id.kind == ChildKind::EndpointSlice && wish.to.is_none()
                });
            if !kept {
                plan.push(Action::Delete { id: id.clone(), endpoint: child.endpoint.clone(), uid: child.uid.clone() });
            }
        }
        plan
    }

    /// A plan was carried out as far as it went; how often that was in vain, if it is to be tried again.
    pub fn finished(&mut self, space: &Key, outcome: Outcome) -> Option<u32> {
        self.busy.remove(space);
        self.dirty.insert(space.clone());
        for (id, now) in outcome.seen {
            match now {
                // Perhaps it is gone since, and nobody will tell again: it is asked for once more.
                Some(_) if self.outdated && !self.children.contains_key(&id) => {}
                Some(child) => self.observed(id, child),
                None => self.forget_child(&id),
            }
        }
        self.outdated &= !self.busy.is_empty();
        let wished = self.wishes.get_mut(space)?;
        wished.refused.retain(|endpoint, _| !outcome.tried.contains(endpoint));
        wished.failed.retain(|endpoint| !outcome.tried.contains(endpoint));
        wished.refused.extend(outcome.refused);
        wished.failed.extend(outcome.failed);
        if wished.failed.is_empty() && wished.refused.is_empty() {
            wished.attempts = 0;
            return None;
        }
        if std::mem::replace(&mut wished.waits, true) {
            return None;
        }
        wished.attempts += 1;
        Some(wished.attempts - 1)
    }

    /// What is new of each space.
    pub fn reports(&mut self) -> Vec<(Key, Arc<str>, Report)> {
        let mut news = Vec::new();
        for space in std::mem::take(&mut self.moved) {
            let Some(wished) = self.wishes.get(&space) else { continue };
            let report = self.report(wished);
            let uid = wished.exposure.uid.clone();
            let new = wished.told.as_ref() != Some(&report);
            // The wish stays where nothing is wished and nothing is there: what an unanswered request has made shows later.
            if let Some(wished) = self.wishes.get_mut(&space) {
                wished.told = Some(report.clone());
            }
            if new {
                news.push((space, uid, report));
            }
        }
        news
    }

    fn report(&self, wished: &Wished) -> Report {
        let exposure = &wished.exposure;
        let mut report = Report::new();
        for (_, child) in self.own(exposure) {
            if !exposure.services.contains_key(&child.endpoint) {
                report.insert(child.endpoint.clone(), Exposed::Leaving);
            }
        }
        for (endpoint, wish) in &exposure.services {
            let name = service_name(&exposure.space.name, endpoint);
            let id = ChildId { key: Key::new(exposure.space.namespace.clone(), name), kind: ChildKind::Service };
            let there = self.children.get(&id).filter(|child| {
                child.owner.as_ref().is_some_and(|(_, uid)| **uid == *exposure.uid)
                    && wanted(exposure, endpoint, wish).get(&id).is_some_and(|body| covers(id.kind, &child.body, body))
            });
            let state = match (wished.refused.get(endpoint), there) {
                (Some(words), _) => Exposed::Refused(words.clone()),
                (None, None) => continue,
                (None, Some(_)) if !wish.load_balancer => Exposed::Made,
                (None, Some(child)) => child.ingress.clone().map_or(Exposed::Pending, Exposed::At),
            };
            report.insert(endpoint.clone(), state);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messaging::exposure::{Protocol, ServiceWish};

    /// The Services that are to be made now, with what their making brings.
    fn makes(state: &mut State) -> Outcome {
        let (_, plan) = state.next().unwrap();
        let made = plan.into_iter().map(|action| match action {
            Action::Apply { id, endpoint, owner, body, .. } => {
                let owner = Some((Key::new(id.key.namespace.clone(), "shop"), owner.to_string()));
                let now = Observed { uid: "child".into(), version: 5, owner, endpoint, body, ingress: None };
                (id, Some(now))
            }
            other => panic!("{other:?}"),
        });
        Outcome { seen: made.collect(), ..Outcome::default() }
    }

    fn exposure(endpoints: &[&str]) -> Exposure {
        let wish = ServiceWish { protocol: Protocol::Amqp, load_balancer: false, to: None };
        let services = endpoints.iter().map(|name| ((*name).into(), wish.clone())).collect();
        Exposure { space: Key::new("team", "shop"), uid: "uid".into(), services }
    }

    #[test]
    fn what_an_unanswered_request_has_made_goes_when_it_shows_and_is_wished_no_more() {
        let mut state = State::default();
        ChildKind::ALL.into_iter().for_each(|kind| state.synced(kind));
        state.wish(exposure(&["in"]));
        let made = makes(&mut state);
        let unanswered = Outcome { failed: ["in".into()].into(), ..Outcome::default() };
        state.finished(&Key::new("team", "shop"), unanswered);
        state.wish(exposure(&[]));
        assert!(state.next().is_none());
        state.reports();
        let [(id, Some(there))] = &made.seen[..] else { panic!("{made:?}") };
        state.observed(id.clone(), there.clone());
        let (_, plan) = state.next().unwrap();
        assert!(matches!(&plan[..], [Action::Delete { id: gone, .. }] if gone == id), "{plan:?}");
    }

    #[test]
    fn what_was_deleted_before_the_answer_to_its_making_was_taken_in_is_made_again() {
        let mut state = State::default();
        ChildKind::ALL.into_iter().for_each(|kind| state.synced(kind));
        state.wish(exposure(&["in"]));
        let outcome = makes(&mut state);
        let [(id, Some(made))] = &outcome.seen[..] else { panic!("{outcome:?}") };
        // The watch is quicker than what else there was to do.
        state.observed(id.clone(), made.clone());
        state.gone(id);
        state.finished(&Key::new("team", "shop"), outcome);
        let again = makes(&mut state);
        state.finished(&Key::new("team", "shop"), again);
        assert!(state.next().is_none());
    }
}
