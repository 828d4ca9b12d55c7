//! What the model keeps: objects as they came, what they claim, and what was decided.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::unit::{Done, Need, Problem, StoreId, Unit};
use crate::edge::address::Networks;
use crate::edge::ids::Key;
use crate::edge::input::{EndpointSlice, Ingress, IngressClass, RouterConfig, Secret, Service};
use crate::edge::options::Options;
use crate::edge::route::{BackendId, Claim, PathKind, Rank, RouteKey};
use crate::edge::sets::{Few, Sorted};
use crate::maps::Map;

/// Objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// What most objects say: nothing.
    pub silence: Arc<Options>,
    pub config: Option<(Arc<RouterConfig>, Arc<Options>)>,
    pub classes: Map<Arc<str>, Arc<IngressClass>>,
    pub namespaces: Map<Arc<str>, Arc<BTreeMap<String, String>>>,
    pub ingresses: Map<Key, (Arc<Ingress>, Arc<Options>)>,
    pub services: Map<Key, (Arc<Service>, Arc<Options>)>,
    pub slices: Map<Key, Arc<EndpointSlice>>,
    /// Names of the slices of each Service.
    pub slices_of: Map<Key, Sorted<Arc<str>>>,
    /// Those that were looked for.
    pub secrets: Map<Key, Result<Arc<Secret>, Absent>>,
    pub names: Map<Arc<str>, Arc<[IpAddr]>>,
}

/// Why there are no contents of a Secret that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// It is not there.
    Missing,
    /// Nobody can say.
    Unreadable,
}

/// What one Ingress claims, as it stands in the indexes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Whether it is ours to serve.
    pub ours: bool,
    pub rank: Option<Arc<Rank>>,
    /// Whether it says anything that counts for its hosts as a whole.
    pub speaks: bool,
    /// With their places in the object.
    pub routes: Vec<(Arc<RouteKey>, u32)>,
    pub hosts: Sorted<Arc<str>>,
    pub backends: Sorted<Arc<BackendId>>,
}

/// Claims of one route, by rank. Nearly always one.
#[derive(Debug, Default)]
pub(super) struct ClaimsOf(Vec<(Arc<Rank>, u32, Arc<Claim>)>);

impl ClaimsOf {
    fn find(&self, rank: &Rank, index: u32) -> Result<usize, usize> {
        self.0.binary_search_by(|(r, i, _)| (&**r, *i).cmp(&(rank, index)))
    }

    /// A claim, at a place in an object of that rank.
    pub fn insert(&mut self, rank: Arc<Rank>, index: u32, claim: Arc<Claim>) {
        match self.find(&rank, index) {
            Ok(at) => self.0[at].2 = claim,
            Err(at) => {
                if self.0.len() < 4 {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (rank, index, claim));
            }
        }
    }

    pub fn remove(&mut self, rank: &Rank, index: u32) {
        if let Ok(at) = self.find(rank, index) {
            self.0.remove(at);
        }
    }

    /// The oldest first.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.0.iter().map(|(_, _, claim)| claim)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is claimed, by what is claimed.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    pub routes: Map<Arc<RouteKey>, ClaimsOf>,
    pub hosts: Map<Arc<str>, HostIndex>,
    /// Ingresses that lead to a backend, oldest first.
    pub backends: Map<Arc<BackendId>, Few<Arc<Rank>>>,
}

/// What is claimed of a host.
#[derive(Debug, Default)]
pub(super) struct HostIndex {
    /// Ingresses with a rule or a certificate for it, oldest first.
    pub ingresses: Few<Arc<Rank>>,
    pub routes: Few<Arc<RouteKey>>,
}

impl HostIndex {
    /// Whether it has exact paths, and regular expressions. Kinds stand in this order.
    pub fn kinds(&self) -> (bool, bool) {
        let is = |route: Option<&Arc<RouteKey>>, kind| route.is_some_and(|route| route.kind == kind);
        (is(self.routes.first(), PathKind::Exact), is(self.routes.last(), PathKind::Regex))
    }

    /// All that a decision about the host looks at, besides those who speak for it: as long as it is the same, one of
    /// very many who say nothing makes no difference.
    pub fn face(&self) -> Face {
        Face { first: self.ingresses.first().cloned(), kinds: self.kinds(), routed: !self.routes.is_empty() }
    }
}

/// See [`HostIndex::face`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Face {
    first: Option<Arc<Rank>>,
    kinds: (bool, bool),
    routed: bool,
}

/// What was decided of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackendDecision {
    /// Its name in HAProxy, or that of a fixed one that answers instead.
    pub name: Arc<str>,
    /// Whether that is a fixed one.
    pub refused: bool,
}

/// What was decided of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostDecision {
    /// The namespace that speaks for it; empty: any.
    pub owner: Arc<str>,
    /// Whether it has TLS.
    pub tls: bool,
    /// Whether nothing of it may be served, since its protection is missing.
    pub deny: bool,
    /// Whether clients are asked for a certificate: whether it is required, and told to the Service.
    pub client: Option<(bool, bool)>,
}

/// What came of deciding.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub claims: Map<Key, Claims>,
    pub backends: Map<Arc<BackendId>, BackendDecision>,
    pub hosts: Map<Arc<str>, HostDecision>,
    /// What came of each unit.
    pub done: Map<Arc<Unit>, Done>,
    /// Who looks at what.
    pub needing: Map<Arc<Need>, Few<Arc<Unit>>>,
    /// Who refers to a store.
    pub users: Map<StoreId, Few<Arc<Unit>>>,
    /// Contents of the lists that are referred to.
    pub lists: Map<Arc<str>, Arc<Networks>>,
    /// How many units say so.
    pub problems: BTreeMap<Problem, usize>,
    /// Problems whose count has changed, with whether they stood before.
    pub problems_touched: BTreeMap<Problem, bool>,
    /// Ingresses that are served.
    pub served: BTreeSet<Key>,
    /// Ingresses that came to be served or ceased to be, with whether they were before.
    pub served_touched: BTreeMap<Key, bool>,
}
