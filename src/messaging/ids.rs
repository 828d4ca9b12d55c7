//! Names of objects and of data planes.

use std::fmt;
use std::sync::Arc;

pub use crate::key::Key;

/// The kinds whose status and finalizer the model decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A data plane.
    RouterConfig,
    /// A tenant's addresses.
    AddressSpace,
    /// One address.
    Address,
}

impl Kind {
    /// The CamelCase name, as in `kind:` of a manifest; also the label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RouterConfig => "RouterConfig",
            Self::AddressSpace => "AddressSpace",
            Self::Address => "Address",
        }
    }
}

/// The two kinds of data planes of messaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plane {
    /// Keeps queues and their messages.
    Broker,
    /// Hands messages on, and keeps nothing.
    Router,
}

impl Plane {
    /// In words for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Router => "router",
        }
    }
}

/// One broker or router of one RouterConfig.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId {
    /// The RouterConfig.
    pub config: Key,
    /// Which kind it is.
    pub plane: Plane,
    /// Its name in that RouterConfig, unique in its kind.
    pub name: Arc<str>,
}

impl TargetId {
    /// A broker.
    pub fn broker(config: Key, name: Arc<str>) -> Self {
        Self { config, plane: Plane::Broker, name }
    }

    /// A router.
    pub fn router(config: Key, name: Arc<str>) -> Self {
        Self { config, plane: Plane::Router, name }
    }
}

impl fmt::Display for TargetId {
    /// `broker eu1`, as people call it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.plane.as_str(), self.name)
    }
}

impl fmt::Debug for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.config, self.name)
    }
}

/// What is kept together on a broker and acknowledged as one: the broker-side name of an Address, for example
/// `tenant.space/orders`. Queue names and address names of ours share this one name space.
pub type Slot = Arc<str>;

/// When it is, for a model that has no clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Monotonic milliseconds since the process started: for waiting.
    pub mono_ms: u64,
    /// Seconds since 1970: for `lastTransitionTime` and `since`.
    pub unix_s: i64,
}
