//! What a process holds against what it must hold: nobody needs to remember what was sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::show::{CrtListLine, Entries, ServerState};
use crate::edge::class::Class;
use crate::edge::model::{DEFAULT_CERTIFICATE, FRONT};
use crate::edge::order;
use crate::edge::render::{DIRECT, Layout, SNI};
use crate::edge::wanted::{Change, CrtLine, MapName, Server, Slot, Value, Wanted};

/// What a process says that it holds.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// `show map` of every map.
    pub maps: BTreeMap<MapName, Entries>,
    /// `show backend`.
    pub backends: Vec<Arc<str>>,
    /// `show servers state`.
    pub servers: Vec<ServerState>,
    /// `show ssl cert`.
    pub certificates: Vec<String>,
    /// `show ssl ca-file`.
    pub authorities: Vec<String>,
    /// `show ssl crt-list -n`.
    pub crt_list: Vec<CrtListLine>,
    /// Of `show stat`: see [`show::frontends`](super::show::frontends).
    pub frontends: Vec<(Arc<str>, bool)>,
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// To be carried out like any other changes.
    pub changes: Vec<Change>,
    /// Maps with an entry twice, or in another order: they are to be written as a whole.
    pub whole: Vec<MapName>,
    /// Lines of hosts that stand twice: their certificates and numbers, to be deleted.
    pub twice: Vec<(String, u64)>,
}

/// What must change in a process so that it holds what is wanted. Contents of certificates cannot be read: those in
/// `uncertain` are set again. Nor can limits of servers: those that have one are set again.
pub fn compare(held: &Held, wanted: &Wanted, uncertain: &BTreeSet<Arc<str>>, layout: &Layout) -> Difference {
    let mut found: BTreeMap<Slot, Value> = BTreeMap::new();
    let mut out = Difference::default();
    for (map, entries) in &held.maps {
        for (key, value) in entries {
            let twice = found.insert(Slot::Map(*map, key.clone()), Value::Text(value.clone())).is_some();
            if twice && !out.whole.contains(map) {
                out.whole.push(*map);
            }
        }
        if map.ordered() && !out.whole.contains(map) {
            let order = crate::edge::render::entries(wanted, *map);
            let same = entries.len() == order.len() && entries.iter().zip(&order).all(|(a, b)| a.0 == *b.0);
            if !same {
                out.whole.push(*map);
            }
        }
    }
    for name in &held.backends {
        // Its name says its class: behind namespace, Service and port.
        let class = name.splitn(4, ':').nth(3).and_then(Class::parse).unwrap_or(Class::DEFAULT);
        found.insert(Slot::Backend(name.clone()), Value::Backend(class));
    }
    for server in &held.servers {
        let slot = Slot::Server(server.backend.clone(), server.name.clone());
        match (wanted.get(&slot), server.address) {
            // On its way out, and wanted again: as if it were not there, since adding brings it back.
            (Some(_), _) if server.maintenance => {}
            // Its name says how it is spoken to; limits are told again.
            (Some(Value::Server(want)), Some(address)) if address == want.address && server.port == want.port => {
                let maxconn = if want.maxconn > 0 { u32::MAX } else { 0 };
                let is = Server { drain: server.drain, maxconn, ..(**want).clone() };
                found.insert(slot, Value::Server(Arc::new(is)));
            }
            (_, address) => {
                // Whether it takes anything counts also of one that goes: its address may be somebody else's by now.
                let drain = server.drain || server.maintenance || address.is_none();
                let address = address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
                let is = Server { address, port: server.port, drain, maxconn: 0, link: Arc::default() };
                found.insert(slot, Value::Server(Arc::new(is)));
            }
        }
    }
    let open = |name: &str| held.frontends.iter().find(|(held, _)| **held == *name).map(|(_, open)| *open);
    match (open(SNI), open(DIRECT)) {
        // One that was left out at the start cannot be had back: the longer way does as well.
        (Some(true), None) if wanted.get(&Slot::Front).is_none() => {}
        (Some(true), Some(false) | None) => {
            found.insert(Slot::Front, Value::Text(FRONT.into()));
        }
        // A process that was just started has both, and either answers: neither is what is wanted.
        (Some(true), Some(true)) => {
            found.insert(Slot::Front, Value::Text("both".into()));
        }
        _ => {}
    }
    let name_of = |path: &str, prefix: &str| -> Option<Arc<str>> {
        let rest = path.strip_prefix(layout.dir())?.strip_prefix(prefix)?;
        rest.strip_suffix(".pem").map(Arc::from)
    };
    let unknown = || Value::Sealed("".into());
    for path in &held.certificates {
        let Some(name) = name_of(path, "/certs/") else { continue };
        let slot = Slot::Certificate(name.clone());
        let value = wanted.get(&slot).filter(|_| !uncertain.contains(&name)).cloned().unwrap_or_else(unknown);
        found.insert(slot, value);
    }
    for path in &held.authorities {
        let Some(name) = name_of(path, "/authorities/") else { continue };
        // Its name says its contents.
        let slot = Slot::Authority(name);
        let value = wanted.get(&slot).cloned().unwrap_or_else(unknown);
        found.insert(slot, value);
    }
    let mut line_of: BTreeMap<Slot, &CrtListLine> = BTreeMap::new();
    for line in &held.crt_list {
        let authority = |path: &Arc<str>| name_of(path, "/authorities/").unwrap_or_else(|| path.clone());
        let client = line.client.as_ref().map(|(path, required)| (authority(path), *required));
        let Some(certificate) = name_of(&line.certificate, "/certs/") else { continue };
        let value = Value::CrtLine(Arc::new(CrtLine { certificate, client }));
        for host in &line.hosts {
            let slot = Slot::CrtList(host.as_str().into());
            if let Some(first) = line_of.get(&slot) {
                // The one that is wanted stays.
                let stays = wanted.get(&slot) == found.get(&slot);
                let goes = if stays { line } else { *first };
                out.twice.push((goes.certificate.clone(), goes.number));
                if stays {
                    continue;
                }
            }
            line_of.insert(slot.clone(), line);
            found.insert(slot, value.clone());
        }
    }
    out.changes = difference(found, wanted);
    out
}

fn difference(found: BTreeMap<Slot, Value>, wanted: &Wanted) -> Vec<Change> {
    let mut changes = Vec::new();
    for (slot, after) in wanted.slots() {
        // The verifier's files are compared by whoever writes them.
        if matches!(slot, Slot::Users(_)) {
            continue;
        }
        let before = found.get(slot);
        if before != Some(after) {
            changes.push(Change { slot: slot.clone(), before: before.cloned(), after: Some(after.clone()) });
        }
    }
    for (slot, before) in found {
        let fixed = matches!(&slot, Slot::Certificate(name) if &**name == DEFAULT_CERTIFICATE);
        if wanted.get(&slot).is_none() && !fixed {
            changes.push(Change { slot, before: Some(before), after: None });
        }
    }
    order::ordered(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::model::tests::support::*;

    const AT: &str = "/d";

    fn world() -> World {
        let mut world = World::plain();
        world.secret(tls_secret("a/cert", "ONE")).secret(ca_secret("a/ca", "CA"));
        world.ingress(
            ing("a/one", 1)
                .path("h.com", "/", "web:80")
                .specific("h.com", "/x.*", "api:80")
                .specific("h.com", "/long.*", "api:80")
                .tls(&["h.com"], "cert")
                .say(&[
                    ("path-type", "regex"),
                    ("auth-tls-secret", "ca"),
                    ("affinity", "cookie"),
                    ("maxconn-server", "3"),
                ]),
        );
        world
    }

    /// What a process says that holds all that is wanted.
    fn held(world: &World) -> Held {
        let layout = Layout::new(AT);
        let wanted = world.model.wanted();
        let mut out = Held::default();
        for map in MapName::ALL {
            let entries = crate::edge::render::entries(wanted, *map);
            out.maps.insert(*map, entries.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect());
        }
        for (slot, value) in wanted.slots() {
            match (slot, value) {
                (Slot::Backend(name), _) => out.backends.push(name.clone()),
                (Slot::Server(backend, name), Value::Server(server)) => out.servers.push(ServerState {
                    backend: backend.clone(),
                    name: name.clone(),
                    address: Some(server.address),
                    port: server.port,
                    maintenance: false,
                    drain: server.drain,
                }),
                (Slot::Certificate(name), _) => out.certificates.push(layout.certificate(name)),
                (Slot::Authority(name), _) => out.authorities.push(layout.authority(name)),
                (Slot::CrtList(host), Value::CrtLine(line)) => out.crt_list.push(CrtListLine {
                    certificate: layout.certificate(&line.certificate),
                    number: 1,
                    client: line.client.clone().map(|(a, r)| (layout.authority(&a).into(), r)),
                    hosts: vec![host.to_string()],
                }),
                _ => {}
            }
        }
        let looks = wanted.get(&Slot::Front).is_some();
        out.frontends = vec![(SNI.into(), looks), (DIRECT.into(), !looks)];
        out
    }

    fn differs(world: &World, held: &Held) -> Difference {
        compare(held, world.model.wanted(), &BTreeSet::new(), &Layout::new(AT))
    }

    #[test]
    fn what_is_held_already_needs_no_more_than_its_limits() {
        let world = world();
        let found = differs(&world, &held(&world));
        let slots: Vec<&str> = found.changes.iter().map(|c| c.slot.kind()).collect();
        assert_eq!((slots, found.whole.len(), found.twice.len()), (vec!["server", "server"], 0, 0));
        let steps = super::super::carry::steps(&found.changes, world.model.wanted(), &Layout::new(AT));
        assert!(steps.iter().flat_map(|s| &s.commands).all(|c| c.text.starts_with("set maxconn server ")));
    }

    #[test]
    fn a_port_that_is_called_like_a_class_is_none() {
        let mut world = World::plain();
        world.put(crate::edge::input::Input::Service(svc("a/web", &[("tcp-first", 80)]).into()));
        world.ingress(ing("a/one", 1).path("h.com", "/", "web:tcp-first"));
        assert_eq!(differs(&world, &held(&world)), Difference::default());
    }

    #[test]
    fn an_empty_process_gets_everything_and_what_is_foreign_goes() {
        let world = world();
        let found = differs(&world, &Held::default());
        let after: BTreeMap<Slot, Value> = found.changes.into_iter().map(|c| (c.slot, c.after.unwrap())).collect();
        let expected: BTreeMap<Slot, Value> =
            world.held.clone().into_iter().filter(|(s, _)| !matches!(s, Slot::Users(_))).collect();
        assert_eq!(after, expected);
        let nothing = World::plain();
        let found = differs(&nothing, &held(&world));
        assert_eq!(found.changes.len(), expected.len());
        assert!(found.changes.iter().all(|c| c.after.is_none()));
    }

    #[test]
    fn an_address_that_has_moved_leaves_before_it_comes_also_where_only_the_process_remembers() {
        let world = world();
        let mut other = held(&world);
        // What was of somebody else when the process was last told anything, and takes requests.
        let moved = ServerState { backend: "b:old:80".into(), ..other.servers[0].clone() };
        let (place, port) = (moved.address, moved.port);
        other.servers[0] = moved;
        other.backends.push("b:old:80".into());
        let at = |change: &Change| match change.after.as_ref().or(change.before.as_ref()) {
            Some(Value::Server(server)) => Some(server.address) == place && server.port == port,
            _ => false,
        };
        let found = differs(&world, &other);
        let order: Vec<bool> = found.changes.iter().filter(|c| at(c)).map(|c| c.after.is_some()).collect();
        assert_eq!(order, [false, true]);
    }

    #[test]
    fn differences_are_found_one_by_one() {
        let world = world();
        let mut other = held(&world);
        other.frontends = vec![(SNI.into(), true), (DIRECT.into(), true)];
        other.servers[0].drain = true;
        other.servers[1].maintenance = true;
        other.maps.get_mut(&MapName::Hosts).unwrap()[0].1 = "stale".into();
        other.maps.get_mut(&MapName::Regex).unwrap().reverse();
        let line = other.crt_list[0].clone();
        other.crt_list.push(CrtListLine { number: 2, client: None, ..line });
        let found = differs(&world, &other);
        assert!(found.changes.iter().any(|c| c.slot == Slot::Front && c.after.is_none()));
        // What was left out at the start cannot be had back: who looks into TLS goes on.
        other.frontends.pop();
        assert!(!differs(&world, &other).changes.iter().any(|c| c.slot == Slot::Front));
        let drained = found.changes.iter().find(|c| matches!(&c.before, Some(Value::Server(s)) if s.drain)).unwrap();
        assert!(matches!(&drained.after, Some(Value::Server(s)) if !s.drain));
        let back = found.changes.iter().find(|c| c.slot.kind() == "server" && c.before.is_none()).unwrap();
        assert!(matches!(&back.after, Some(Value::Server(_))));
        assert!(
            found.changes.iter().any(|c| c.slot == Slot::Map(MapName::Hosts, "h.com".into()) && c.before.is_some())
        );
        assert_eq!((found.whole, found.twice), (vec![MapName::Regex], vec![("/d/certs/a_cert.pem".to_owned(), 2)]));
        other.crt_list.reverse();
        assert_eq!(differs(&world, &other).twice, [("/d/certs/a_cert.pem".to_owned(), 2)]);
        // A certificate whose contents are not known is set again.
        let found = compare(&held(&world), world.model.wanted(), &[Arc::from("a_cert")].into(), &Layout::new(AT));
        assert!(found.changes.iter().any(|c| c.slot == Slot::Certificate("a_cert".into())));
    }
}
