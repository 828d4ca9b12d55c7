//! What is decided as one, what it looks at, and what comes of it.

use std::sync::Arc;

use crate::edge::address::Networks;
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::route::{BackendId, RouteKey};
use crate::edge::sets::Sorted;
use crate::edge::wanted::{Slot, Value};

/// What is decided as one. The order is that of deciding: each looks only at those before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Unit {
    /// What an Ingress claims.
    Ingress(Key),
    /// How a Service's port is reached.
    Backend(Arc<BackendId>),
    /// What holds for a host.
    Host(Arc<str>),
    /// Where a route leads.
    Route(Arc<RouteKey>),
    /// What several refer to.
    Store(StoreId),
}

/// Something that is there as long as a unit refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum StoreId {
    /// A certificate of a Secret.
    Certificate(Key),
    /// A CA of a Secret.
    Authority(Key),
    /// Users of a Secret.
    Users(Key),
    /// The look into TLS for hosts that are passed through.
    Front,
    /// A list of networks, by its name, which says its contents.
    Networks(Arc<str>),
}

/// What a unit looks at: when it changes, the unit is decided again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Need {
    /// An IngressClass; an empty name: whichever is the default.
    Class(Arc<str>),
    /// Labels of a namespace.
    Namespace(Arc<str>),
    /// A Service.
    Service(Key),
    /// Slices of a Service.
    Slices(Key),
    /// A Secret.
    Secret(Key),
    /// A name of DNS.
    Name(Arc<str>),
    /// What was decided of a backend.
    Backend(Arc<BackendId>),
    /// What was decided of a host.
    Host(Arc<str>),
}

/// Why something is told to an object: stable, for events and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Another, older object has the route.
    RouteConflict,
    /// The host is another namespace's.
    HostNotOwned,
    /// Two objects say an option differently.
    OptionConflict,
    /// An option's value cannot be read.
    InvalidOption,
    /// An option is not known.
    UnknownOption,
    /// A host name is none.
    InvalidHost,
    /// A path is none.
    InvalidPath,
    /// The backend is no Service.
    UnsupportedBackend,
    /// The Service is not there.
    ServiceNotFound,
    /// The Service has no such port.
    PortNotFound,
    /// The Secret is not there.
    SecretNotFound,
    /// The Secret cannot be read.
    SecretUnreadable,
    /// The Secret is not what it should be.
    InvalidSecret,
    /// A Secret or Service of another namespace.
    CrossNamespace,
    /// An address that nothing may be led to.
    AddressRefused,
    /// Names instead of addresses in a slice.
    NamesInSlice,
    /// ExternalName is switched off.
    ExternalNameOff,
    /// A name does not resolve.
    NameNotResolved,
    /// There is nothing that the canary could take a share of.
    CanaryWithoutRoute,
    /// The RouterConfig does not serve this namespace.
    NamespaceNotAllowed,
    /// The RouterConfig has passthrough switched off.
    PassthroughOff,
    /// HAProxy refused it.
    Refused,
}

impl Reason {
    /// CamelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RouteConflict => "RouteConflict",
            Self::HostNotOwned => "HostNotOwned",
            Self::OptionConflict => "OptionConflict",
            Self::InvalidOption => "InvalidOption",
            Self::UnknownOption => "UnknownOption",
            Self::InvalidHost => "InvalidHost",
            Self::InvalidPath => "InvalidPath",
            Self::UnsupportedBackend => "UnsupportedBackend",
            Self::ServiceNotFound => "ServiceNotFound",
            Self::PortNotFound => "PortNotFound",
            Self::SecretNotFound => "SecretNotFound",
            Self::SecretUnreadable => "SecretUnreadable",
            Self::InvalidSecret => "InvalidSecret",
            Self::CrossNamespace => "CrossNamespace",
            Self::AddressRefused => "AddressRefused",
            Self::NamesInSlice => "NamesInSlice",
            Self::ExternalNameOff => "ExternalNameOff",
            Self::NameNotResolved => "NameNotResolved",
            Self::CanaryWithoutRoute => "CanaryWithoutRoute",
            Self::NamespaceNotAllowed => "NamespaceNotAllowed",
            Self::PassthroughOff => "PassthroughOff",
            Self::Refused => "Refused",
        }
    }
}

/// Something that an object should be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The object concerned.
    pub object: Object,
    /// Why.
    pub reason: Reason,
    /// For people.
    pub message: Arc<str>,
}

/// What came of deciding a unit.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What it wants.
    pub slots: Vec<(Slot, Value)>,
    /// What is to be told.
    pub problems: Sorted<Problem>,
    /// What it looked at, also where that does not exist.
    pub needs: Sorted<Need>,
    /// What it refers to.
    pub stores: Sorted<StoreId>,
    /// Lists that it refers to, with their contents.
    pub lists: Vec<(Arc<str>, Arc<Networks>)>,
}

impl Outcome {
    /// Wants a slot.
    pub fn want(&mut self, slot: Slot, value: Value) {
        self.slots.push((slot, value));
    }

    /// Tells an Ingress.
    pub fn tell(&mut self, ingress: &Key, reason: Reason, message: impl Into<Arc<str>>) {
        self.tell_object(Object::new(Kind::Ingress, ingress.clone()), reason, message);
    }

    /// Tells any object.
    pub fn tell_object(&mut self, object: Object, reason: Reason, message: impl Into<Arc<str>>) {
        self.problems.insert(Problem { object, reason, message: message.into() });
    }
}

/// What is kept of an outcome.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub slots: Box<[Slot]>,
    /// In order.
    pub needs: Box<[Arc<Need>]>,
    /// What most units have nothing of.
    pub rare: Option<Box<Rare>>,
}

/// See [`Done`].
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub problems: Sorted<Problem>,
    pub stores: Sorted<StoreId>,
}

impl Done {
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.rare.iter().flat_map(|rare| &rare.problems)
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.needs.is_empty() && self.rare.is_none()
    }
}
