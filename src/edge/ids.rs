//! Kinds and names of Kubernetes objects.

use std::fmt;

pub use crate::key::Key;

/// The kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// What is served and how.
    RouterConfig,
    /// Which Ingresses are ours.
    IngressClass,
    /// For `allowedNamespaces`.
    Namespace,
    /// Routes.
    Ingress,
    /// What routes lead to.
    Service,
    /// Where a Service is.
    EndpointSlice,
    /// Certificates, CAs, users.
    Secret,
}

impl Kind {
    /// Every kind: nothing is settled before each has been read.
    pub const ALL: [Self; 7] = [
        Self::RouterConfig,
        Self::IngressClass,
        Self::Namespace,
        Self::Ingress,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
    ];

    /// As in `kind:` of a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RouterConfig => "RouterConfig",
            Self::IngressClass => "IngressClass",
            Self::Namespace => "Namespace",
            Self::Ingress => "Ingress",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
        }
    }
}

/// An object of a kind: what events are told to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
}

impl Object {
    /// The object of that kind and name.
    pub fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.key)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
