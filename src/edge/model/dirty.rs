//! What waits to be decided, by kind. Within a kind the order says nothing: none looks at another of its own.

use super::unit::Unit;
use crate::maps::Set;

/// Marked units.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    kinds: [Set<Unit>; 5],
}

impl Dirty {
    /// Marks a unit.
    pub fn insert(&mut self, unit: Unit) {
        let kind = match &unit {
            Unit::Ingress(_) => 0,
            Unit::Backend(_) => 1,
            Unit::Host(_) => 2,
            Unit::Route(_) => 3,
            Unit::Store(_) => 4,
        };
        self.kinds[kind].insert(unit);
    }

    /// All of the first kind that has any; deciding them marks only later ones.
    pub fn take_first(&mut self) -> Option<Set<Unit>> {
        self.kinds.iter_mut().find(|kind| !kind.is_empty()).map(std::mem::take)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.kinds.iter().map(Set::len).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Extend<Unit> for Dirty {
    fn extend<I: IntoIterator<Item = Unit>>(&mut self, units: I) {
        units.into_iter().for_each(|unit| self.insert(unit));
    }
}
