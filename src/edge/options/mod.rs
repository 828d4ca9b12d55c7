//! What tenants may say about hosts, paths and Services: one table, and how annotations are read by it.
//!
//! An option has a scope. *Host*: it is said by an Ingress about all its hosts, and counts if that Ingress may speak
//! for the host. *Path*: about the paths of an Ingress, or about all that leads to a Service. *Service*: about how a
//! Service is spoken to. Of several levels the first that says something counts: Service, Ingress, RouterConfig,
//! built-in default.

pub mod document;
mod parse;
mod read;
mod table;

use std::fmt;
use std::sync::Arc;

use super::address::Networks;
pub(crate) use parse::absolute;
pub use read::{Bad, Options, is_option};
pub use table::{Opt, TABLE};

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of a host.
    Host,
    /// A route.
    Path,
    /// A backend.
    Service,
}

/// Who has which keys. The order is that of precedence on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// Our own.
    Waystation,
    /// haproxy-ingress.
    HaproxyIngress,
    /// HAProxy Technologies' controller.
    Haproxy,
    /// ingress-nginx.
    Nginx,
}

impl Prefix {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Waystation, Self::HaproxyIngress, Self::Haproxy, Self::Nginx];

    /// With its slash.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waystation => "waystation.dev/",
            Self::HaproxyIngress => "haproxy-ingress.github.io/",
            Self::Haproxy => "haproxy.org/",
            Self::Nginx => "nginx.ingress.kubernetes.io/",
        }
    }
}

/// A value, parsed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A number, bytes, or milliseconds.
    Int(u64),
    /// One of a few words.
    Word(&'static str),
    /// Text that was found harmless where it goes.
    Text(Arc<str>),
    /// Networks.
    Networks(Arc<Networks>),
    /// Names and values of headers.
    Headers(Arc<[(Arc<str>, Arc<str>)]>),
    /// Several texts.
    List(Arc<[Arc<str>]>),
}

/// Reads a value; an error says what is wrong, for people.
pub type Parse = fn(&str) -> Result<Value, String>;

/// One option.
pub struct Definition {
    /// Which one.
    pub opt: Opt,
    /// Its key behind our prefix, and in `edge.options`.
    pub name: &'static str,
    /// What it is about.
    pub scope: Scope,
    /// Whether a bad value denies instead of being dropped.
    pub protects: bool,
    /// What may be written.
    pub values: &'static str,
    /// What counts where nothing is said.
    pub default: &'static str,
    /// What it does.
    pub does: &'static str,
    /// How a value is read.
    pub parse: Parse,
    /// Keys of others that mean the same.
    pub aliases: &'static [Alias],
}

/// Another controller's key.
pub struct Alias {
    /// Whose.
    pub prefix: Prefix,
    /// Its key behind that prefix.
    pub key: &'static str,
    /// Its value in our words; an error says why there are none.
    pub convert: fn(&str) -> Result<String, String>,
    /// What differs from there; empty: nothing that we know of.
    pub differs: &'static str,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Opt {
    /// Its row.
    pub fn definition(self) -> &'static Definition {
        // The macro that writes both keeps them in one order.
        &TABLE[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.definition().name
    }
}

#[cfg(test)]
mod tests;
