//! Backends and their servers.

use std::collections::BTreeMap;

use super::Worker;

/// A backend.
#[derive(Clone, Debug, Default)]
pub struct Backend {
    /// The `defaults` that it was made from.
    pub class: String,
    /// Requests may be led to it.
    pub published: bool,
    /// The configuration itself leads to it.
    pub fixed: bool,
    /// By name.
    pub servers: BTreeMap<String, Server>,
}

/// Whether a server takes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// Nothing: as those are that were just made.
    #[default]
    Maintenance,
    /// It does.
    Ready,
    /// Nothing new.
    Drain,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Where it is: an address, or a socket.
    pub address: String,
    /// Its port; 0: none.
    pub port: u16,
    /// 0: nothing new goes there.
    pub weight: u32,
    /// Connections at a time; 0: any number.
    pub maxconn: u32,
    /// By the administrator.
    pub admin: Admin,
    /// It may be asked whether it is well.
    pub check: bool,
    /// What else was said of it.
    pub keywords: String,
    /// Stores that it refers to.
    pub stores: Vec<String>,
    /// What goes on there, which keeps it from being removed.
    pub sessions: u32,
}

impl Server {
    /// Whether new requests go there.
    pub fn takes(&self) -> bool {
        self.admin == Admin::Ready && self.weight > 0
    }
}

const NO_BACKEND: &str = "No such backend.";
const NO_SERVER: &str = "No such server.";

impl Worker {
    pub(super) fn add_backend(&mut self, name: &str, class: &str) -> String {
        if self.backends.contains_key(name) {
            return format!("Error during backend creation : name is already used by other proxy 'backend {name}'.");
        }
        if !self.classes.contains(class) {
            return format!("Cannot find default proxy '{class}'.");
        }
        if name.contains('/') || self.refuses(name) {
            return "Invalid character '/' in backend name.".to_owned();
        }
        self.backends.insert(name.to_owned(), Backend { class: class.to_owned(), ..Backend::default() });
        "New backend registered.".to_owned()
    }

    pub(super) fn publish(&mut self, name: &str, published: bool) -> String {
        let Some(backend) = self.backends.get_mut(name) else { return NO_BACKEND.to_owned() };
        backend.published = published;
        if published { "Backend published." } else { "Backend unpublished." }.to_owned()
    }

    pub(super) fn del_backend(&mut self, name: &str) -> String {
        let why = match self.backends.get(name) {
            None => NO_BACKEND,
            Some(backend) if backend.fixed => {
                "This proxy cannot be removed at runtime due to other configuration elements pointing to it."
            }
            Some(backend) if backend.published => "Backend must be unpublished prior to its deletion.",
            Some(backend) if !backend.servers.is_empty() => "Only a backend without server can be deleted.",
            Some(_) => {
                self.backends.remove(name);
                "Backend deleted."
            }
        };
        why.to_owned()
    }

    pub(super) fn add_server(&mut self, at: &str, address: &str, keywords: &[&str]) -> String {
        let (backend, name) = at.split_once('/').unwrap_or((at, ""));
        if !self.backends.contains_key(backend) {
            return NO_BACKEND.to_owned();
        }
        if self.refuses(at) {
            return "out of memory.".to_owned();
        }
        let server = match self.read_server(address, keywords) {
            Ok(server) => server,
            Err(why) => return why,
        };
        let Some(backend) = self.backends.get_mut(backend) else { return NO_BACKEND.to_owned() };
        if backend.servers.contains_key(name) {
            return "Already exists a server with the same name in backend.".to_owned();
        }
        backend.servers.insert(name.to_owned(), server);
        "New server registered.".to_owned()
    }

    /// What follows a server's name, in a file and in a command.
    pub(super) fn read_server(&self, address: &str, keywords: &[&str]) -> Result<Server, String> {
        let (ip, port) = match address.strip_prefix("unix@") {
            Some(path) => (path, 0),
            None => {
                let (ip, port) = address.rsplit_once(':').ok_or("invalid address.")?;
                (ip.trim_matches(['[', ']']), port.parse().map_err(|_| "invalid port.")?)
            }
        };
        let mut server = Server { address: ip.to_owned(), port, weight: 1, ..Server::default() };
        let mut rest: Vec<&str> = Vec::new();
        let mut words = keywords.iter();
        while let Some(word) = words.next() {
            let mut next = || words.next().copied().ok_or_else(|| format!("'{word}' : missing value."));
            match *word {
                "weight" => server.weight = next()?.parse().map_err(|_| "invalid weight.")?,
                "maxconn" => server.maxconn = next()?.parse().map_err(|_| "invalid maxconn.")?,
                "ca-file" | "crt" => {
                    let path = next()?;
                    let there = if *word == "crt" { &self.certificates } else { &self.authorities };
                    if there.get(path).is_none_or(String::is_empty) {
                        return Err(match *word {
                            "crt" => format!("unable to stat SSL certificate '{path}'."),
                            _ => format!("'{word}' : unable to load {path}."),
                        });
                    }
                    server.stores.push(path.to_owned());
                    rest.extend([word, path]);
                }
                "check" | "check-ssl" | "check-send-proxy" | "ssl" | "send-proxy" | "send-proxy-v2" | "no-sni-auto"
                | "no-check-sni-auto" => {
                    server.check |= *word == "check";
                    rest.push(word);
                }
                "maxqueue" | "cookie" | "inter" | "rise" | "fall" | "proto" | "alpn" | "verify" | "verifyhost"
                | "sni" | "check-sni" => {
                    rest.extend([word, next()?]);
                }
                _ => return Err(format!("unknown keyword '{word}'.")),
            }
        }
        server.keywords = rest.join(" ");
        Ok(server)
    }

    fn server(&mut self, at: &str) -> Result<&mut Server, String> {
        let (backend, name) = at.split_once('/').unwrap_or((at, ""));
        let backend = self.backends.get_mut(backend).ok_or(NO_BACKEND)?;
        backend.servers.get_mut(name).ok_or_else(|| NO_SERVER.to_owned())
    }

    pub(super) fn set_server(&mut self, at: &str, what: &str, value: &str) -> String {
        let server = match self.server(at) {
            Ok(server) => server,
            Err(why) => return why,
        };
        match (what, value) {
            ("state", "ready") => server.admin = Admin::Ready,
            ("state", "drain") => server.admin = Admin::Drain,
            ("state", "maint") => server.admin = Admin::Maintenance,
            ("weight", number) => match number.parse() {
                Ok(number) => server.weight = number,
                Err(_) => return "Empty weight string empty or preceded by garbage".to_owned(),
            },
            ("maxconn", number) => match number.parse() {
                Ok(number) => server.maxconn = number,
                Err(_) => return "maxconn string empty or preceded by garbage".to_owned(),
            },
            _ => return "'set server <srv>' only supports 'agent', 'health', 'state', 'weight', 'addr'.".to_owned(),
        }
        String::new()
    }

    pub(super) fn enable_health(&mut self, at: &str) -> String {
        match self.server(at) {
            Ok(server) if server.check => String::new(),
            Ok(_) => "Health check was not configured on this server, cannot enable.".to_owned(),
            Err(why) => why,
        }
    }

    pub(super) fn del_server(&mut self, at: &str) -> String {
        match self.server(at) {
            Ok(server) if server.admin != Admin::Maintenance => {
                return "Only servers in maintenance mode can be deleted.".to_owned();
            }
            Ok(server) if server.sessions > 0 => {
                return "Server still has connections attached to it, cannot remove it.".to_owned();
            }
            Ok(_) => {}
            Err(why) => return why,
        }
        let (backend, name) = at.split_once('/').unwrap_or((at, ""));
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.servers.remove(name);
        }
        "Server deleted.".to_owned()
    }
}
