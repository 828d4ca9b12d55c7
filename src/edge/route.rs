//! Routes, whatever kind of object they were written in: a front end (Ingress; Gateway API and OpenShift's Route fit the
//! same) turns its objects into claims, and the model decides among claims.

use std::sync::Arc;

use super::ids::{Key, Object};
use super::input::Port;
use super::options::Options;

/// The key of all that no rule takes: behind every host.
pub const DEFAULT_HOST: &str = "!";

/// What a route is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// In the form of [`names::host`](super::names::host), or [`DEFAULT_HOST`].
    pub host: Arc<str>,
    /// How the path is compared.
    pub kind: PathKind,
    /// In the form of [`names::path`](super::names::path), by element without a slash at its end (except `/`), or a
    /// regular expression.
    pub path: Arc<str>,
}

/// How a path is compared, in the order in which they are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathKind {
    /// The whole path.
    Exact,
    /// By path element.
    Prefix,
    /// By letter.
    Begin,
    /// A regular expression that starts where the path starts.
    Regex,
}

/// Of two objects that want the same the lower one has it; of two claims of one object the first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank {
    /// The object's creation, seconds since 1970.
    pub created_s: i64,
    /// Namespace and name decide between objects of one second.
    pub key: Key,
}

/// What an object wants of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Whose it is.
    pub object: Object,
    /// What else a request must be like; empty: nothing. Sorted.
    pub conditions: Vec<Condition>,
    /// Where it goes, by weight; none: nowhere, and `problem` is told elsewhere.
    pub targets: Vec<Target>,
    /// What the object says.
    pub options: Arc<Options>,
    /// A share of what others claim, instead of a claim of its own.
    pub canary: bool,
    /// Whether it is for proving that a host is ours: it is not redirected, and guarded by nothing.
    pub challenge: bool,
}

/// What a request must be like besides host and path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// Its method.
    Method(Arc<str>),
    /// A header (lower case) with this value.
    Header(Arc<str>, Arc<str>),
    /// A cookie with this value.
    Cookie(Arc<str>, Arc<str>),
    /// A parameter of the query with this value.
    Query(Arc<str>, Arc<str>),
}

/// One of the places that requests go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A Service's port.
    pub backend: Arc<BackendId>,
    /// Its share, of the sum of all.
    pub weight: u32,
}

/// What a backend is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// The Service.
    pub service: Key,
    /// Its port.
    pub port: Port,
    /// For bytes instead of HTTP.
    pub tcp: bool,
}

impl RouteKey {
    /// The name of what is said about it in maps: readable, and distinct for distinct routes.
    pub fn id(&self) -> String {
        let (kind, path) = match self.kind {
            PathKind::Exact => ('e', self.path.to_string()),
            PathKind::Prefix => ('p', self.path.to_string()),
            PathKind::Begin => ('b', self.path.to_string()),
            // Blanks are not in it; what separates fields must not be either.
            PathKind::Regex => ('r', self.path.replace('%', "%25").replace('|', "%7C")),
        };
        format!("{kind}:{}{path}", self.host)
    }
}
