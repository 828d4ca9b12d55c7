//! The seam between the router drive and a router: one connection that takes management requests. Implemented by
//! [`super::qpid`] over AMQP, and in memory by the simulation.

use std::fmt;
use std::net::IpAddr;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

pub use crate::drive::keep::LinkError;
use crate::messaging::router::Abilities;

/// A type of entities, by its name without the prefix of the router's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// How messages of an address go.
    Address,
    /// A link to a broker.
    AutoLink,
    /// Links that are passed through to a broker.
    LinkRoute,
    /// A connection that the router makes.
    Connector,
    /// What the router listens on.
    Listener,
    /// What may be used of it.
    Vhost,
}

impl Type {
    /// Its name, without the prefix.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "router.config.address",
            Self::AutoLink => "router.config.autoLink",
            Self::LinkRoute => "router.config.linkRoute",
            Self::Connector => "connector",
            Self::Listener => "listener",
            Self::Vhost => "vhost",
        }
    }

    /// Whether a question is answered with all entities, whatever page it asks for: another part of the router
    /// answers for these, and knows no pages.
    pub fn is_shown_whole(self) -> bool {
        matches!(self, Self::Connector | Self::Listener | Self::Vhost)
    }
}

/// What is asked.
#[derive(Clone, PartialEq)]
pub enum Operation {
    /// Make an entity of this name with these attributes.
    Create(String, Map<String, Value>),
    /// Show the entity of this name.
    Read(String),
    /// Take the entity of this name away.
    Delete(String),
    /// Show so many entities, beginning at this one, with these attributes.
    Query {
        /// The first of the page, from 0.
        offset: u32,
        /// The most that are shown.
        count: u32,
        /// What is shown of each, in this order.
        attributes: &'static [&'static str],
    },
}

/// One management request.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// What it is about.
    pub of: Type,
    /// What is asked.
    pub operation: Operation,
}

impl Request {
    /// Bounded name for metrics.
    pub fn label(&self) -> &'static str {
        match &self.operation {
            Operation::Create(..) => "CREATE",
            Operation::Read(_) => "READ",
            Operation::Delete(_) => "DELETE",
            Operation::Query { .. } => "QUERY",
        }
    }
}

impl fmt::Debug for Request {
    /// Without attributes: a connector has a password among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.label(), self.of.as_str())?;
        match &self.operation {
            Operation::Create(name, _) | Operation::Read(name) | Operation::Delete(name) => write!(f, " {name}"),
            Operation::Query { offset, count, .. } => write!(f, " {offset}+{count}"),
        }
    }
}

/// What a router answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a CREATE or DELETE: it is so now.
    Done,
    /// To a READ.
    Entity(Map<String, Value>),
    /// To a QUERY: of each entity the attributes asked for, in their order.
    Rows(Vec<Vec<Value>>),
}

/// Why a request brought nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// There is no such entity.
    #[error("not found")]
    NotFound,
    /// The router said no, in these words. The session goes on.
    #[error("{0}")]
    Refused(String),
    /// The session has ended; whether the request was carried out is unknown.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No answer in time; whether the request was or will be carried out is unknown. Drop the session.
    #[error("the router did not answer in time")]
    TimedOut,
}

impl CallError {
    /// Bounded name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotFound => "missing",
            Self::Refused(_) => "refused",
            Self::Lost(_) => "lost",
            Self::TimedOut => "timeout",
        }
    }
}

/// A router that can be connected to.
pub trait RouterLink: Send + Sync {
    /// Opens a session and learns what the router can do; bounded in time.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>>;
}

/// One session with a router. Dropping it closes the connection.
pub trait RouterSession: Send + Sync {
    /// What the router can do, as its schema says.
    fn abilities(&self) -> Abilities;

    /// The address at which the router was reached, where it has one.
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    /// One request; resolves with the router's answer or its refusal, within the session's deadline for requests.
    /// Requests about one type reach the router in the order of the calls and are carried out in that order, whether
    /// or not earlier futures were polled. Dropping the future abandons the answer.
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Answer, CallError>>;

    /// Resolves once the session has ended, with the reason; every further call says the same.
    fn lost(&self) -> BoxFuture<'_, String>;
}
