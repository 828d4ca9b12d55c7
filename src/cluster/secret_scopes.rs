//! How referenced Secrets are watched: their metadata only, with as few watches and as few rights as can be.
//!
//! Up to [`BY_NAME`] of a namespace are watched one by one, above that the namespace is. Where that would still be many
//! watches, one of all Secrets does, if we have the right to it: the rights may as well be those of a few namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kube::core::PartialObjectMeta;

use super::meter::Meter;
use super::watch::{Options, Watch};
use crate::engine::jitter::Jitter;
use crate::messaging::ids::Key;

/// Secrets of one namespace that are watched one by one.
pub const BY_NAME: usize = 24;

/// What is watched by one watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// One Secret.
    Name(Key),
    /// Those of a namespace.
    Namespace(Arc<str>),
    /// Those of the cluster.
    All,
}

/// The watches that cover these Secrets; `watched` are those that there are, so that it does not go to and fro at the
/// limit.
pub(super) fn scopes<'a, V: 'a>(
    referenced: impl Iterator<Item = &'a Key> + Clone,
    watched: &BTreeMap<Scope, V>,
) -> BTreeSet<Scope> {
    let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for key in referenced.clone() {
        *counts.entry(&key.namespace).or_default() += 1;
    }
    let wide = |namespace: &Arc<str>| {
        let count = counts.get(namespace).copied().unwrap_or_default();
        let is_wide = || watched.contains_key(&Scope::Namespace(Arc::clone(namespace)));
        count > BY_NAME || (count > BY_NAME / 2 && is_wide())
    };
    let scope = |key: &Key| match wide(&key.namespace) {
        true => Scope::Namespace(Arc::clone(&key.namespace)),
        false => Scope::Name(key.clone()),
    };
    referenced.map(scope).collect()
}

impl Scope {
    /// Whether it sees that Secret.
    pub(super) fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Name(name) => name == key,
            Self::Namespace(namespace) => *namespace == key.namespace,
            Self::All => true,
        }
    }

    /// Watches it.
    pub(super) fn watch(
        &self,
        client: &Client,
        options: &Options,
        jitter: &Jitter,
        meter: &Arc<dyn Meter>,
    ) -> Watch<PartialObjectMeta<Secret>> {
        let api = match self {
            Self::Name(key) => Api::namespaced(client.clone(), &key.namespace),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
            Self::All => Api::all(client.clone()),
        };
        let watch = Watch::new(api, "Secret", options.clone(), jitter.fork(), Arc::clone(meter));
        match self {
            Self::Name(key) => watch.fields(format!("metadata.name={}", key.name)),
            Self::Namespace(_) | Self::All => watch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(namespace: &str, count: usize) -> Vec<Key> {
        (0..count).map(|n| Key::new(namespace, format!("s{n}"))).collect()
    }

    #[test]
    fn each_namespace_is_watched_by_itself_and_not_to_and_fro() {
        let nothing: BTreeMap<Scope, ()> = BTreeMap::new();
        let all = [keys("few", BY_NAME), keys("many", BY_NAME + 1)].concat();
        let wanted = scopes(all.iter(), &nothing);
        assert_eq!(wanted.len(), BY_NAME + 1);
        assert!(wanted.contains(&Scope::Namespace("many".into())) && wanted.iter().all(|scope| *scope != Scope::All));
        let watched: BTreeMap<Scope, ()> = wanted.into_iter().map(|scope| (scope, ())).collect();
        let fewer = keys("many", BY_NAME - 1);
        assert_eq!(scopes(fewer.iter(), &watched), [Scope::Namespace("many".into())].into());
        assert_eq!(scopes(fewer.iter(), &nothing).len(), BY_NAME - 1);
    }
}
