//! Which objects RouterConfigs and AddressSpaces name, told to whoever follows those objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::messaging::ids::{Key, Kind};

/// Which objects of one kind are referenced by whom. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct References(Arc<Referenced>);

#[derive(Debug, Default)]
struct Referenced {
    by_owner: Mutex<BTreeMap<(Kind, Key), BTreeSet<Key>>>,
    /// No longer named by somebody who named them, at least for a moment: whoever heard of them may have
    /// forgotten them since.
    dropped: Mutex<BTreeSet<Key>>,
    moved: Notify,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl References {
    /// A RouterConfig names these objects now, and no others.
    pub fn set(&self, config: &Key, objects: impl IntoIterator<Item = Key>) {
        self.set_of(Kind::RouterConfig, config, objects);
    }

    /// An object of that kind names these objects now, and no others.
    pub fn set_of(&self, kind: Kind, owner: &Key, objects: impl IntoIterator<Item = Key>) {
        let objects: BTreeSet<Key> = objects.into_iter().collect();
        let changed = {
            let mut all = lock(&self.0.by_owner);
            let owner = (kind, owner.clone());
            let before = if objects.is_empty() { all.remove(&owner) } else { all.insert(owner, objects.clone()) };
            let before = before.unwrap_or_default();
            lock(&self.0.dropped).extend(before.difference(&objects).cloned());
            before != objects
        };
        if changed {
            self.0.moved.notify_one();
        }
    }

    /// All that are named.
    pub(super) fn all(&self) -> BTreeSet<Key> {
        lock(&self.0.by_owner).values().flatten().cloned().collect()
    }

    /// Those that were not named any more for a moment since this was last asked.
    pub(super) fn take_dropped(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *lock(&self.0.dropped))
    }

    /// Waits until something moved. For one who follows.
    pub(super) fn moved(&self) -> Notified<'_> {
        self.0.moved.notified()
    }
}
