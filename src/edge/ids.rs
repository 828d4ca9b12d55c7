//! Names of Kubernetes objects.

use std::fmt;
use std::sync::Arc;

/// A namespaced Kubernetes object's name; cluster-scoped ones have an empty namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

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
