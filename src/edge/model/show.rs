//! What people and metrics are shown of the model.

use std::sync::Arc;

use super::unit::{Need, Problem};
use super::{Model, Reason};
use crate::edge::ids::{Key, Object};
use crate::edge::input::Ingress;
use crate::edge::order;
use crate::edge::wanted::Slot;

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Ingresses that are served.
    pub ingresses: usize,
    /// Hosts.
    pub hosts: usize,
    /// Routes.
    pub routes: usize,
    /// Backends.
    pub backends: usize,
    /// Slots in all.
    pub slots: usize,
    /// Problems that stand.
    pub problems: usize,
}

impl Model {
    /// How much there is. Asked for after every event, so that nothing is walked over.
    pub fn sizes(&self) -> Sizes {
        // The RouterConfig's own, if it has a default backend.
        let own = usize::from(self.decided.served.contains(&Key::new("", "")));
        Sizes {
            ingresses: self.decided.served.len() - own,
            hosts: self.indexes.hosts.len(),
            routes: self.indexes.routes.len(),
            backends: self.indexes.backends.len(),
            slots: self.wanted.slots().len(),
            problems: self.decided.problems.len(),
        }
    }

    /// Everything that stands to be told, in order.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.decided.problems.keys()
    }

    /// What stands to be told to one object.
    pub fn problems_of<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = (Reason, &'a Arc<str>)> {
        self.decided.problems.keys().filter(move |p| p.object == *object).map(|p| (p.reason, &p.message))
    }

    /// Ingresses whose status must name our addresses.
    pub fn served(&self) -> impl Iterator<Item = &Key> {
        self.decided.served.iter().filter(|key| !key.name.is_empty())
    }

    /// An Ingress as it was handed in, for whoever writes its status.
    pub fn ingress(&self, key: &Key) -> Option<&Arc<Ingress>> {
        self.objects.ingresses.get(key).map(|(ingress, _)| ingress)
    }

    /// Secrets that are referred to.
    pub fn secrets(&self) -> impl Iterator<Item = &Key> {
        self.decided.needing.keys().filter_map(|need| match &**need {
            Need::Secret(key) => Some(key),
            _ => None,
        })
    }

    /// The namespace whose turn a slot takes, where it can be told; others go at once.
    pub fn tenant(slot: &Slot) -> Option<&str> {
        order::namespace(slot)
    }

    /// How many units wait to be decided.
    pub fn waiting(&self) -> usize {
        self.dirty.len()
    }
}
