//! Classes of backends: what cannot be changed at run time, as named `defaults` sections that exist from the start.

use std::fmt;

/// What a backend is made `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// HTTP, or bytes.
    pub mode: Mode,
    /// How a server is chosen.
    pub balance: Balance,
    /// Whether clients keep their server by cookie. Not for bytes.
    pub cookie: bool,
    /// Whether servers are asked by HTTP whether they are well. Not for bytes.
    pub check: bool,
}

/// What a backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// HTTP of any version.
    Http,
    /// Bytes: TLS that is passed through.
    Tcp,
}

/// How a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Balance {
    /// In turn.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConn,
    /// The better one of two taken at random.
    Random,
    /// By the client's address.
    Source,
    /// By path and query.
    Uri,
    /// The first that has room.
    First,
}

impl Balance {
    /// Every one.
    pub const ALL: [Self; 6] = [Self::RoundRobin, Self::LeastConn, Self::Random, Self::Source, Self::Uri, Self::First];

    /// The value of the option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::LeastConn => "leastconn",
            Self::Random => "random",
            Self::Source => "source",
            Self::Uri => "uri",
            Self::First => "first",
        }
    }

    /// HAProxy's words. Hashes are consistent: others take no servers at run time.
    pub fn directive(self) -> &'static str {
        match self {
            Self::RoundRobin => "balance roundrobin",
            Self::LeastConn => "balance leastconn",
            Self::Random => "balance random(2)",
            Self::Source => "balance source\n  hash-type consistent",
            Self::Uri => "balance uri whole\n  hash-type consistent",
            Self::First => "balance first",
        }
    }
}

impl Class {
    /// HTTP in turn.
    pub const DEFAULT: Self = Self { mode: Mode::Http, balance: Balance::RoundRobin, cookie: false, check: false };

    /// Every class there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let http = Balance::ALL.into_iter().flat_map(|balance| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(cookie, check)| Self {
                mode: Mode::Http,
                balance,
                cookie,
                check,
            })
        });
        let tcp = Balance::ALL.into_iter().filter(|b| *b != Balance::Uri);
        http.chain(tcp.map(|balance| Self { mode: Mode::Tcp, balance, cookie: false, check: false }))
    }

    /// Reads the name of a section.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|class| class.to_string() == name)
    }

    /// What distinguishes the name of a backend of this class from one of the default class.
    pub fn suffix(self) -> String {
        if self == Self::DEFAULT { String::new() } else { format!(":{self}") }
    }
}

impl fmt::Display for Class {
    /// The name of its section.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Http => "http",
            Mode::Tcp => "tcp",
        };
        write!(f, "{mode}-{}", self.balance.as_str())?;
        f.write_str(if self.cookie { "-cookie" } else { "" })?;
        f.write_str(if self.check { "-check" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_read_back() {
        let names: std::collections::BTreeSet<String> = Class::all().map(|c| c.to_string()).collect();
        assert_eq!(names.len(), Class::all().count());
        for class in Class::all() {
            assert_eq!(Class::parse(&class.to_string()), Some(class));
        }
        assert!(names.contains("http-roundrobin") && names.contains("http-leastconn-cookie-check"));
        assert_eq!(Class::parse("http"), None);
    }
}
