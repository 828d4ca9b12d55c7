//! Where a Service leads, as its EndpointSlices say, and which routers that are.
//!
//! A router's name is that of its Pod, so that it stays the same when the Pod moves, else its address. Whether an
//! endpoint is ready does not matter: a router becomes ready by being configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ids::Key;
use super::input::Router;
use super::reason;

/// As many routers as a RouterConfig may have.
pub const MOST: usize = 64;

/// A Service whose endpoints are routers.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRef {
    /// The Service.
    pub service: Key,
    /// Where they listen.
    pub port: PortRef,
}

/// A port of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    /// The one that the Service calls so.
    Name(Arc<str>),
    /// This one, as the Pods number it.
    Number(u16),
}

/// What the EndpointSlices of a Service say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// How many there are.
    pub slices: usize,
    /// All endpoints of all of them, in any order.
    pub all: Vec<Endpoint>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its Pod, where it is one.
    pub pod: Option<Arc<str>>,
    /// 0 for IPv4, 1 for IPv6, 2 for a DNS name: of a Pod with several the lowest is used.
    pub family: u8,
    /// Address or DNS name.
    pub host: Arc<str>,
    /// The ports of its slice.
    pub ports: Arc<[Port]>,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The Service's name for it; empty where it has none.
    pub name: Arc<str>,
    /// None: every number.
    pub number: Option<u16>,
}

/// Why no routers could be found, or not all of them: a reason and words for people.
pub type Trouble = (&'static str, Arc<str>);

impl ServiceRef {
    /// The routers among what the slices say, by name, and what is wrong with them.
    pub fn routers(&self, endpoints: &Endpoints) -> (Vec<Router>, Option<Trouble>) {
        let trouble = |reason, words: String| Some((reason, Arc::from(words)));
        let service = &self.service;
        if endpoints.slices == 0 {
            let words = format!(
                "Service {service} has no EndpointSlices: create it, with a selector or with EndpointSlices of your \
                 own, or correct spec.messaging.routers.external.serviceRef.name"
            );
            return (Vec::new(), trouble(reason::NO_ENDPOINTS, words));
        }
        if endpoints.all.is_empty() {
            let words = format!("Service {service} has no endpoints: start routers, or correct its selector");
            return (Vec::new(), trouble(reason::NO_ENDPOINTS, words));
        }
        let mut all: Vec<&Endpoint> = endpoints.all.iter().collect();
        all.sort_unstable();
        let mut routers: BTreeMap<Arc<str>, Router> = BTreeMap::new();
        for endpoint in all {
            let Some(port) = self.port_of(endpoint) else { continue };
            let name = endpoint.pod.clone().unwrap_or_else(|| address(&endpoint.host, port));
            let host = endpoint.host.clone();
            routers.entry(name.clone()).or_insert(Router { name, host, port, readiness_port: None });
        }
        if routers.is_empty() {
            let words = format!(
                "the EndpointSlices of Service {service} have no port {}, but {}: correct \
                 spec.messaging.routers.external.serviceRef.port",
                self.port,
                ports(endpoints)
            );
            return (Vec::new(), trouble(reason::PORT_NOT_FOUND, words));
        }
        let found = routers.len();
        let mut routers: Vec<Router> = routers.into_values().collect();
        routers.truncate(MOST);
        let words = || {
            format!(
                "Service {service} leads to {found} routers, of which only the first {MOST} are used: does its \
                 selector take more than routers?"
            )
        };
        (routers, if found > MOST { trouble(reason::TOO_MANY_ENDPOINTS, words()) } else { None })
    }

    fn port_of(&self, endpoint: &Endpoint) -> Option<u16> {
        endpoint.ports.iter().find_map(|port| match &self.port {
            PortRef::Name(name) => port.number.filter(|_| port.name == *name),
            PortRef::Number(wanted) => (port.number.unwrap_or(*wanted) == *wanted).then_some(*wanted),
        })
    }
}

impl std::fmt::Display for PortRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

fn address(host: &str, port: u16) -> Arc<str> {
    if host.contains(':') { format!("[{host}]:{port}").into() } else { format!("{host}:{port}").into() }
}

/// The ports that there are, for people.
fn ports(endpoints: &Endpoints) -> String {
    const SHOWN: usize = 8;
    let mut all: Vec<String> = endpoints
        .all
        .iter()
        .flat_map(|endpoint| endpoint.ports.iter())
        .map(|port| match port.number {
            Some(number) if port.name.is_empty() => format!("{number}"),
            Some(number) => format!("{} ({number})", port.name),
            None => port.name.to_string(),
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(SHOWN);
    if all.is_empty() { "none at all".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(pod: Option<&str>, host: &str, ports: &[(&str, u16)]) -> Endpoint {
        let family = u8::from(host.contains(':'));
        let ports = ports.iter().map(|(name, number)| Port { name: (*name).into(), number: Some(*number) }).collect();
        Endpoint { pod: pod.map(Arc::from), family, host: host.into(), ports }
    }

    fn found(port: PortRef, all: Vec<Endpoint>) -> (Vec<String>, Option<&'static str>, String) {
        let (routers, trouble) =
            ServiceRef { service: Key::new("infra", "routers"), port }.routers(&Endpoints { slices: 1, all });
        let rows = routers.iter().map(|r| format!("{} {} {}", r.name, r.host, r.port)).collect();
        let (reason, words) =
            trouble.map_or((None, String::new()), |(reason, words)| (Some(reason), words.to_string()));
        (rows, reason, words)
    }

    fn amqp() -> PortRef {
        PortRef::Name("amqp".into())
    }

    #[test]
    fn a_router_is_called_by_its_pod_else_by_its_address() {
        let ports = [("amqp", 5672), ("http", 80)];
        let all = vec![
            endpoint(Some("r-1"), "10.0.0.2", &ports),
            endpoint(None, "10.0.0.9", &ports),
            endpoint(None, "fd00::9", &ports),
            endpoint(Some("r-0"), "10.0.0.3", &ports),
        ];
        let (rows, reason, _) = found(amqp(), all);
        assert_eq!(
            rows,
            ["10.0.0.9:5672 10.0.0.9 5672", "[fd00::9]:5672 fd00::9 5672", "r-0 10.0.0.3 5672", "r-1 10.0.0.2 5672"]
        );
        assert_eq!(reason, None);
    }

    #[test]
    fn a_pod_with_two_addresses_is_one_router_whatever_the_order() {
        let ports = [("amqp", 5672)];
        let mut all = vec![endpoint(Some("r-0"), "fd00::1", &ports), endpoint(Some("r-0"), "10.0.0.1", &ports)];
        for _ in 0..2 {
            assert_eq!(found(amqp(), all.clone()).0, ["r-0 10.0.0.1 5672"]);
            all.reverse();
        }
    }

    #[test]
    fn a_port_is_found_by_name_or_by_number_and_by_slice() {
        let all = vec![
            endpoint(Some("old"), "10.0.0.1", &[("amqp", 5672)]),
            endpoint(Some("new"), "10.0.0.2", &[("amqp", 5673)]),
        ];
        assert_eq!(found(amqp(), all.clone()).0, ["new 10.0.0.2 5673", "old 10.0.0.1 5672"]);
        assert_eq!(found(PortRef::Number(5672), all).0, ["old 10.0.0.1 5672"]);
        let any = vec![Endpoint { ports: [Port { name: "".into(), number: None }].into(), ..endpoint(None, "h", &[]) }];
        assert_eq!(found(PortRef::Number(7), any.clone()).0, ["h:7 h 7"]);
        assert_eq!(found(amqp(), any).1, Some(reason::PORT_NOT_FOUND));
    }

    #[test]
    fn what_is_missing_is_said_with_what_there_is() {
        let reference = ServiceRef { service: Key::new("infra", "routers"), port: amqp() };
        let (routers, trouble) = reference.routers(&Endpoints::default());
        let (reason, words) = trouble.unwrap();
        assert!(routers.is_empty() && reason == reason::NO_ENDPOINTS);
        assert!(words.contains("Service infra/routers has no EndpointSlices: create it"), "{words}");
        let (_, reason, words) = found(amqp(), Vec::new());
        assert!(reason == Some(reason::NO_ENDPOINTS) && words.contains("no endpoints"), "{words}");
        let all = vec![endpoint(None, "10.0.0.1", &[("amqps", 5671), ("", 80)])];
        let (_, reason, words) = found(amqp(), all);
        assert!(reason == Some(reason::PORT_NOT_FOUND), "{words}");
        assert!(words.contains("have no port amqp, but 80, amqps (5671): correct"), "{words}");
    }

    #[test]
    fn more_than_there_may_be_are_told_and_left() {
        let all = (0..70).map(|n| endpoint(Some(&format!("r-{n:02}")), &format!("10.0.0.{n}"), &[("amqp", 1)]));
        let (rows, reason, words) = found(amqp(), all.collect());
        assert_eq!((rows.len(), reason), (MOST, Some(reason::TOO_MANY_ENDPOINTS)));
        assert!(words.contains("leads to 70 routers"), "{words}");
    }
}
