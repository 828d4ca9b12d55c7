//! What HAProxy must hold: one slot for each thing that is made, changed and acknowledged by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use super::class::Class;
use crate::maps::Fixed;

macro_rules! maps {
    ($($(#[doc = $doc:literal])* $name:ident = $file:literal,)*) => {
        /// The maps that every request is looked up in. What their keys and values are is said at each; `rid` is the
        /// name of a route that has options.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum MapName { $($(#[doc = $doc])* $name,)* }

        impl MapName {
            /// Every map.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name: the file is `<name>.map`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $file,)* }
            }
        }
    };
}

maps! {
    /// Host, `*.` and host, or `*` → `-` and flags: `e` has exact paths, `r` regular expressions, `h` HSTS.
    Hosts = "hosts",
    /// `host/path` → `backend`, or `backend|flags|rid`.
    Exact = "exact",
    /// `host/path/` (by element) or `host/path` (by letter) → the same.
    Prefix = "prefix",
    /// Regular expression of `host/path` → the same; longest first.
    Regex = "regex",
    /// SNI, or `*.` and its rest → backend of mode tcp.
    Passthrough = "passthrough",
    /// Host without routes → host that is to be asked instead.
    Www = "www",
    /// Key of a host → value of Strict-Transport-Security.
    Hsts = "hsts",
    /// rid → code of the redirect to TLS.
    SslCode = "ssl-code",
    /// rid → `code|location`.
    Redirect = "redirect",
    /// rid → path that `/` is redirected to.
    AppRoot = "app-root",
    /// rid → number of bytes that are cut off the path.
    RewriteCut = "rewrite-cut",
    /// rid → what is put before the path.
    RewriteTo = "rewrite-to",
    /// Regular expression of `rid|path` → path, with `\1`.
    RewriteRegex = "rewrite-regex",
    /// rid → list of networks that may come.
    AllowList = "allow-list",
    /// rid → list of networks that may not.
    DenyList = "deny-list",
    /// `list|4` or `list|6` and hexadecimal digits → `y` or `n`; the longest counts.
    Networks = "networks",
    /// rid → `users|realm`.
    BasicAuth = "basic-auth",
    /// rid → how to ask whether a request is let through.
    ExternalAuth = "external-auth",
    /// rid → requests a second (or minute).
    RateSecond = "rate-second",
    /// rid → requests a minute.
    RateMinute = "rate-minute",
    /// rid → requests at a time of one address.
    Concurrent = "concurrent",
    /// rid → list of networks that are not limited.
    LimitExempt = "limit-exempt",
    /// rid → bytes.
    BodySize = "body-size",
    /// `rid|origin`, `rid|*` → `y`.
    CorsOrigin = "cors-origin",
    /// rid → header.
    CorsMethods = "cors-methods",
    /// rid → header.
    CorsHeaders = "cors-headers",
    /// rid → header.
    CorsExpose = "cors-expose",
    /// rid → `true`.
    CorsCredentials = "cors-credentials",
    /// rid → seconds.
    CorsMaxAge = "cors-max-age",
    /// rid → headers to set, encoded.
    RequestSet = "request-set",
    /// rid → headers to add, encoded.
    RequestAdd = "request-add",
    /// rid → headers to delete, encoded.
    RequestDel = "request-del",
    /// rid → headers to set, encoded.
    ResponseSet = "response-set",
    /// rid → headers to add, encoded.
    ResponseAdd = "response-add",
    /// rid → headers to delete, encoded.
    ResponseDel = "response-del",
    /// rid → Host.
    UpstreamHost = "upstream-host",
    /// rid → backend that takes over while the route's own has no server.
    Fallback = "fallback",
    /// rid → alternatives in order.
    Choose = "choose",
    /// rid → milliseconds.
    TimeoutConnect = "timeout-connect",
    /// rid → milliseconds.
    TimeoutServer = "timeout-server",
    /// rid → milliseconds.
    TimeoutTunnel = "timeout-tunnel",
    /// rid → milliseconds.
    TimeoutQueue = "timeout-queue",
    /// Backend → name of its cookie and what follows its value.
    Cookie = "cookie",
    /// Backend → path that is asked.
    CheckPath = "check-path",
    /// Backend → Host that is asked.
    CheckHost = "check-host",
}

impl MapName {
    /// Those whose entries decide where a request goes; all others only say something about a route.
    pub fn routes(self) -> bool {
        matches!(self, Self::Exact | Self::Prefix | Self::Regex | Self::Passthrough | Self::Hosts | Self::Www)
    }

    /// Those whose order counts: they are written as a whole, longest pattern first.
    pub fn ordered(self) -> bool {
        matches!(self, Self::Regex | Self::RewriteRegex)
    }
}

impl fmt::Display for MapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that HAProxy holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// A CA, by name: never changed, since its name says its contents.
    Authority(Arc<str>),
    /// A certificate with its key, by name.
    Certificate(Arc<str>),
    /// Users of basic authentication, by name: a file of the verifier.
    Users(Arc<str>),
    /// A backend.
    Backend(Arc<str>),
    /// A server of a backend.
    Server(Arc<str>, Arc<str>),
    /// Whether TLS is looked into before it ends, for hosts that are passed through. It costs a hop, so it is held only
    /// while there is one.
    Front,
    /// The line of a host in the list of certificates.
    CrtList(Arc<str>),
    /// A map's entry.
    Map(MapName, Arc<str>),
}

impl Slot {
    /// A bounded word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Authority(_) => "authority",
            Self::Certificate(_) => "certificate",
            Self::Users(_) => "users",
            Self::Backend(_) => "backend",
            Self::Server(..) => "server",
            Self::Front => "front",
            Self::CrtList(_) => "crt-list",
            Self::Map(..) => "map",
        }
    }
}

/// What a slot holds.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// Of a map's entry.
    Text(Arc<str>),
    /// Of a CA or a certificate: clean PEM. Of users: lines `name:hash`. Never printed.
    Sealed(Arc<str>),
    /// Of a backend.
    Backend(Class),
    /// Of a server.
    Server(Arc<Server>),
    /// Of a host's line.
    CrtLine(Arc<CrtLine>),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Sealed(text) => write!(f, "sealed({} bytes)", text.len()),
            Self::Backend(class) => write!(f, "{class}"),
            Self::Server(server) => write!(f, "{server:?}"),
            Self::CrtLine(line) => write!(f, "{line:?}"),
        }
    }
}

impl Value {
    /// A number that differs where values differ.
    pub fn fingerprint(&self) -> u64 {
        Fixed.hash_one(self)
    }
}

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Where it is.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Nothing new goes there; what is there may end.
    pub drain: bool,
    /// Connections at a time; 0: any number. Changed in place.
    pub maxconn: u32,
    /// What cannot be changed in place: another value is another server.
    pub link: Arc<Link>,
}

/// How a server is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// By TLS.
    pub tls: Option<Tls>,
    /// HTTP/2 at once, without TLS.
    pub h2: bool,
    /// With the PROXY protocol.
    pub proxy: Proxy,
    /// Asked whether it is well.
    pub check: Option<Check>,
    /// Clients keep it by cookie.
    pub cookie: bool,
    /// Requests that may wait for it; 0: any number.
    pub maxqueue: u32,
}

/// The PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// None.
    #[default]
    No,
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// TLS towards a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Name of the CA that it must be signed by; none: it is not verified.
    pub authority: Option<Arc<str>>,
    /// Name of our certificate.
    pub certificate: Option<Arc<str>>,
    /// What we call it.
    pub sni: Sni,
    /// What it must be called in its certificate.
    pub verify_host: Option<Arc<str>>,
    /// HTTP/2 and nothing else.
    pub h2: bool,
}

/// SNI towards a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sni {
    /// None.
    #[default]
    No,
    /// The host that was asked for.
    Host,
    /// Always this.
    Name(Arc<str>),
}

/// Health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Milliseconds between two.
    pub interval_ms: u32,
    /// Successes until it is up.
    pub rise: u16,
    /// Failures until it is down.
    pub fall: u16,
}

/// A host's line in the list of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CrtLine {
    /// Name of the certificate.
    pub certificate: Arc<str>,
    /// Certificates of clients: name of the CA, and whether one is required.
    pub client: Option<(Arc<str>, bool)>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub slot: Slot,
    /// What was wanted before.
    pub before: Option<Value>,
    /// What is wanted now.
    pub after: Option<Value>,
}

/// Everything that HAProxy must hold, and what has changed since the last time it was asked.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    slots: BTreeMap<Slot, Value>,
    /// What changed slots held before the first change; `None`: nobody has begun to follow.
    before: Option<BTreeMap<Slot, Option<Value>>>,
}

impl Wanted {
    /// Every slot, in order.
    pub fn slots(&self) -> &BTreeMap<Slot, Value> {
        &self.slots
    }

    /// What a slot holds.
    pub fn get(&self, slot: &Slot) -> Option<&Value> {
        self.slots.get(slot)
    }

    /// Entries of a map, in order of their keys.
    pub fn map(&self, map: MapName) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let start = Slot::Map(map, "".into());
        self.slots.range(start..).map_while(move |(slot, value)| match (slot, value) {
            (Slot::Map(name, key), Value::Text(text)) if *name == map => Some((key, text)),
            _ => None,
        })
    }

    /// Servers of a backend, in order of their names.
    pub fn servers<'a>(&'a self, backend: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Server>)> {
        let backend: Arc<str> = backend.into();
        let start = Slot::Server(backend.clone(), "".into());
        self.slots.range(start..).map_while(move |(slot, value)| match (slot, value) {
            (Slot::Server(of, name), Value::Server(server)) if *of == backend => Some((name, server)),
            _ => None,
        })
    }

    /// Makes a slot hold `value`, or nothing.
    pub fn set(&mut self, slot: Slot, value: Option<Value>) {
        let held = self.slots.get(&slot);
        if held == value.as_ref() {
            return;
        }
        if let Some(before) = &mut self.before {
            before.entry(slot.clone()).or_insert_with(|| held.cloned());
        }
        match value {
            Some(value) => self.slots.insert(slot, value),
            None => self.slots.remove(&slot),
        };
    }

    /// What differs from the last time, in the order in which it is to be carried out (see [`order`](super::order)).
    /// The first time nothing: whoever begins to follow takes all that is there.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let touched = self.before.replace(BTreeMap::new()).unwrap_or_default();
        let changes = touched.into_iter().filter_map(|(slot, before)| {
            let after = self.slots.get(&slot).cloned();
            (before != after).then_some(Change { slot, before, after })
        });
        super::order::ordered(changes.collect())
    }
}
