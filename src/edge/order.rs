//! In which order changes are carried out, so that at every moment in between what is served was wanted before or
//! is wanted now, and never less protected than both.
//!
//! 1. Stores: CAs, certificates, users. Nothing refers to new ones yet.
//! 2. Backends that come.
//! 3. Servers that come or change; and those that leave a Service, or drain, while their address comes to another one: it
//!    must not serve two, so it leaves first; but not before what comes to the Service that it leaves, as far as that is free to
//!    come. Of two Services that swap their addresses none can be served on.
//! 4. The look into TLS, before the first host that is passed through. What is said about routes, where it comes or
//!    changes; then routes that come or change, and their hosts, which come before others go, since one may take over from
//!    a wider or narrower one; then routes that go, also where one of another type takes over. (A host that is there takes
//!    requests from wider ones, so it comes after its routes and goes before them, and before routes of wider ones come,
//!    which it keeps its requests from.)
//! 5. Certificates of hosts, that come or change.
//! 6. What is said about routes, where it goes: nothing refers to it any more.
//! 7. Certificates of hosts that go; servers that go or drain (theirs came in 3); backends; stores.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::wanted::{Change, MapName, Slot, Value};
use crate::maps::Map;

/// Sorts changes; within a step the order is that of their slots.
pub fn ordered(changes: Vec<Change>) -> Vec<Change> {
    let coming = coming(&changes);
    let steps: Vec<(u8, usize)> = changes.iter().map(|change| (step(change, moves(change, &coming)), 0)).collect();
    let mut stepped: Vec<((u8, usize), Change)> = steps.into_iter().zip(changes).collect();
    take_turns(&mut stepped);
    stepped.sort_by(|a, b| (a.0, &a.1.slot).cmp(&(b.0, &b.1.slot)));
    stepped.into_iter().map(|(_, change)| change).collect()
}

/// Gives servers that come, and those that move, their turns.
fn take_turns(stepped: &mut [((u8, usize), Change)]) {
    let is_gone = |change: &Change| takes(change.after.as_ref()).is_none();
    let at = |change: &Change| takes(change.after.as_ref()).or_else(|| takes(change.before.as_ref()));
    let servers = || stepped.iter().enumerate().filter(|(_, (step, _))| step.0 == SERVERS);
    let moving: BTreeSet<Place> =
        servers().filter(|(_, (_, change))| is_gone(change)).filter_map(|(_, (_, change))| at(change)).collect();
    if moving.is_empty() {
        return;
    }
    // Those that are free to come have the first turn, which all have.
    let waits = |change: &Change| at(change).is_some_and(|address| moving.contains(&address));
    let mut rest: Vec<usize> =
        servers().filter(|(_, (_, change))| is_gone(change) || waits(change)).map(|(index, _)| index).collect();
    let mut turn = 0;
    while !rest.is_empty() {
        turn += 1;
        let of = |index: &usize| stepped.get(*index).map(|(_, change)| change);
        let all = || rest.iter().filter_map(|index| of(index).map(|change| (*index, change)));
        let occupied: BTreeSet<_> = all().filter(|(_, change)| is_gone(change)).filter_map(|(_, c)| at(c)).collect();
        let awaiting: BTreeSet<&str> =
            all().filter(|(_, change)| !is_gone(change)).filter_map(|(_, change)| service(&change.slot)).collect();
        let may = |change: &Change| match is_gone(change) {
            true => service(&change.slot).is_none_or(|service| !awaiting.contains(service)),
            false => at(change).is_none_or(|address| !occupied.contains(&address)),
        };
        let mut now: BTreeSet<usize> = all().filter(|(_, change)| may(change)).map(|(index, _)| index).collect();
        if now.is_empty() {
            now = all().filter(|(_, change)| is_gone(change)).map(|(index, _)| index).collect();
        }
        rest.retain(|index| !now.contains(index));
        for index in now {
            if let Some((step, _)) = stepped.get_mut(index) {
                step.1 = turn;
            }
        }
    }
}

/// The step of servers that come, and of those that leave for another Service.
const SERVERS: u8 = 4;

/// Backends that go, and servers that go with them: a request that chose one before the routes changed may only now come
/// to it. Not those whose address comes to somebody else.
pub fn abandoned(changes: &[Change]) -> BTreeSet<Slot> {
    let coming = coming(changes);
    let abandoned = |slot: &Slot| match slot {
        Slot::Backend(name) | Slot::Server(name, _) => coming.gone.contains(&**name),
        _ => false,
    };
    let all = changes.iter().filter(|change| change.after.is_none() && abandoned(&change.slot));
    all.filter(|change| !moves(change, &coming)).map(|change| change.slot.clone()).collect()
}

/// What a batch brings, and takes away as a whole.
#[derive(Default)]
struct Coming<'a> {
    /// Which Services an address comes to.
    to: Map<Place, Vec<&'a str>>,
    /// Backends that go.
    gone: BTreeSet<&'a str>,
}

fn coming(changes: &[Change]) -> Coming<'_> {
    let mut coming = Coming::default();
    for change in changes {
        if let (Some(address), Some(service)) = (takes(change.after.as_ref()), service(&change.slot)) {
            coming.to.entry(address).or_default().push(service);
        }
        if let (Slot::Backend(name), None) = (&change.slot, &change.after) {
            coming.gone.insert(name);
        }
    }
    coming
}

/// Whether it takes nothing new any more and its address comes to another Service. Another server of the same Service at the same address is how a change of
/// how it is spoken to looks; and that a backend goes since routes lead to another one of its namespace does not say that
/// its addresses are not those of its Service any more: it goes after them.
fn moves(change: &Change, coming: &Coming<'_>) -> bool {
    if takes(change.after.as_ref()).is_some() {
        return false;
    }
    let (Slot::Server(backend, _), Some(from)) = (&change.slot, service(&change.slot)) else { return false };
    let Some(to) = takes(change.before.as_ref()).and_then(|address| coming.to.get(&address)) else { return false };
    let own = namespace(&change.slot);
    let foreign = |to: &&str| to.split_once(':').map(|(namespace, _)| namespace) != own;
    !to.contains(&from) && (!coming.gone.contains(&**backend) || to.iter().any(foreign))
}

/// Address and port.
pub type Place = (IpAddr, u16);

/// Where a server is that takes new requests.
pub fn takes(value: Option<&Value>) -> Option<Place> {
    match value {
        Some(Value::Server(server)) if !server.drain => Some((server.address, server.port)),
        _ => None,
    }
}

/// The step of hosts without a wildcard; their routes come right before it.
const HOSTS: u8 = 11;

/// How much the host takes that a key is, or begins with: itself, all of one domain, all.
fn width(key: &str) -> u8 {
    match key.strip_prefix('*') {
        Some(rest) if rest.starts_with('.') => 1,
        Some(_) => 2,
        None => u8::from(key.starts_with('!')) * 2,
    }
}

fn step(change: &Change, moves: bool) -> u8 {
    let goes = change.after.is_none();
    match &change.slot {
        Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_) if !goes => 1,
        Slot::Backend(_) if !goes => 3,
        Slot::Server(..) if moves || takes(change.after.as_ref()).is_some() => SERVERS,
        // Gone, or draining from now on.
        Slot::Server(..) => 31,
        Slot::Map(map, key) => match (map, goes) {
            // Narrower ones first: a wider one that comes must not take what is not its own; wider ones go first.
            (MapName::Hosts | MapName::Www | MapName::Passthrough, false) => HOSTS + 2 * width(key),
            (MapName::Hosts | MapName::Www | MapName::Passthrough, true) => 17,
            // One whose order counts is written as a whole, behind the others that may take over from it.
            (map, _) if map.ordered() && map.routes() => HOSTS - 1,
            (map, true) if map.routes() => 18,
            (map, false) if map.routes() => HOSTS - 1 + 2 * width(key),
            (_, false) => 9,
            (_, true) => 21,
        },
        Slot::Front if !goes => 8,
        Slot::Front => 30,
        Slot::CrtList(_) if !goes => 20,
        Slot::CrtList(_) => 30,
        Slot::Backend(_) => 32,
        Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_) => 33,
    }
}

/// The namespace whose turn a change takes, where it belongs to one: the part of a backend's name.
pub fn namespace(slot: &Slot) -> Option<&str> {
    match slot {
        Slot::Backend(name) | Slot::Server(name, _) => name.split_once(':').map(|(namespace, _)| namespace),
        Slot::Authority(name) | Slot::Certificate(name) | Slot::Users(name) => {
            name.split_once('_').map(|(namespace, _)| namespace)
        }
        Slot::CrtList(_) | Slot::Front | Slot::Map(..) => None,
    }
}

/// Changes of a batch told apart by what they are, for metrics.
pub fn count(changes: &[Change]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for change in changes {
        *counts.entry(change.slot.kind()).or_insert(0) += 1;
    }
    counts
}

/// Joins batches that have not been carried out: the newest of a slot wins, and what is undone in between vanishes.
pub fn joined(batches: impl IntoIterator<Item = Vec<Change>>) -> Vec<Change> {
    let mut all: BTreeMap<Slot, Change> = BTreeMap::new();
    for change in batches.into_iter().flatten() {
        match all.entry(change.slot.clone()) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(change);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().after = change.after,
        }
    }
    ordered(all.into_values().filter(|c| c.before != c.after).collect())
}

/// The Service of a backend or a server: `namespace:service`.
pub fn service(slot: &Slot) -> Option<&str> {
    match slot {
        Slot::Backend(name) | Slot::Server(name, _) => {
            let first = name.find(':')?;
            let end = name[first + 1..].find(':').map_or(name.len(), |second| first + 1 + second);
            Some(&name[..end])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::edge::class::Class;
    use crate::edge::wanted::{Server, Wanted};

    fn server(address: &str, drain: bool) -> Option<Value> {
        let (address, port) = (address.parse().unwrap(), 80);
        Some(Value::Server(Arc::new(Server { address, port, drain, maxconn: 0, link: Default::default() })))
    }

    fn text(text: &str) -> Option<Value> {
        Some(Value::Text(text.into()))
    }

    fn slots(wanted: &mut Wanted) -> Vec<String> {
        wanted
            .take_changes()
            .iter()
            .map(|c| format!("{}{:?}", if c.after.is_some() { '+' } else { '-' }, c.slot))
            .collect()
    }

    #[test]
    fn what_takes_over_from_another_host_or_type_of_path_is_there_before_that_goes() {
        let map = |map, key: &str| Slot::Map(map, key.into());
        let mut wanted = Wanted::default();
        for (name, key) in [(MapName::Hosts, "*.h"), (MapName::Prefix, "*.h/"), (MapName::Exact, "x.h/a")] {
            wanted.set(map(name, key), text("b"));
        }
        wanted.take_changes();
        wanted.take_changes();
        for (name, key) in [(MapName::Hosts, "*.h"), (MapName::Prefix, "*.h/"), (MapName::Exact, "x.h/a")] {
            wanted.set(map(name, key), None);
        }
        for (name, key) in [(MapName::Hosts, "*"), (MapName::Hosts, "x.h"), (MapName::Prefix, "x.h/a/")] {
            wanted.set(map(name, key), text("b"));
        }
        let order = [
            "+Map(Prefix, \"x.h/a/\")",
            "+Map(Hosts, \"x.h\")",
            "+Map(Hosts, \"*\")",
            "-Map(Hosts, \"*.h\")",
            "-Map(Exact, \"x.h/a\")",
            "-Map(Prefix, \"*.h/\")",
        ];
        assert_eq!(slots(&mut wanted), order);
    }

    #[test]
    fn routes_of_a_wider_host_come_after_the_narrower_one_that_takes_its_requests() {
        let map = |map, key: &str| Slot::Map(map, key.into());
        let mut wanted = Wanted::default();
        wanted.take_changes();
        for (name, key) in [(MapName::Prefix, "*/"), (MapName::Exact, "x.h/a"), (MapName::Prefix, "*.h/a/")] {
            wanted.set(map(name, key), text("b"));
        }
        for key in ["*", "*.h", "x.h"] {
            wanted.set(map(MapName::Hosts, key), text("-"));
        }
        let order = [
            "+Map(Exact, \"x.h/a\")",
            "+Map(Hosts, \"x.h\")",
            "+Map(Prefix, \"*.h/a/\")",
            "+Map(Hosts, \"*.h\")",
            "+Map(Prefix, \"*/\")",
            "+Map(Hosts, \"*\")",
        ];
        assert_eq!(slots(&mut wanted), order);
    }

    #[test]
    fn another_service_of_the_same_servers_takes_over_before_the_first_one_goes() {
        let at = |backend: &str| Slot::Server(backend.into(), "s".into());
        for (to, moves) in [("n:b:80", false), ("o:b:80", true)] {
            let mut wanted = Wanted::default();
            wanted.take_changes();
            wanted.set(Slot::Backend("n:a:80".into()), Some(Value::Backend(Class::DEFAULT)));
            wanted.set(at("n:a:80"), server("10.0.0.1", false));
            wanted.take_changes();
            wanted.set(Slot::Backend("n:a:80".into()), None);
            wanted.set(at("n:a:80"), None);
            wanted.set(at(to), server("10.0.0.1", false));
            let changes = wanted.take_changes();
            let slots: Vec<&Slot> = changes.iter().map(|change| &change.slot).collect();
            let (first, second) = if moves { (at("n:a:80"), at(to)) } else { (at(to), at("n:a:80")) };
            assert_eq!(slots[..2], [&first, &second], "{to}");
            assert_eq!(abandoned(&changes).contains(&at("n:a:80")), !moves, "{to}");
        }
    }

    #[test]
    fn what_is_referred_to_comes_first_and_goes_last() {
        let all = [
            (Slot::Map(MapName::Hosts, "h".into()), text("h|")),
            (Slot::Map(MapName::Prefix, "h/".into()), text("b|a|r")),
            (Slot::Map(MapName::AllowList, "r".into()), text("l")),
            (Slot::Server("b".into(), "s".into()), server("10.0.0.1", false)),
            (Slot::Backend("b".into()), Some(Value::Backend(Class::DEFAULT))),
            (Slot::Users("u".into()), Some(Value::Sealed("x".into()))),
        ];
        let mut wanted = Wanted::default();
        wanted.take_changes();
        for (slot, value) in all.clone() {
            wanted.set(slot, value);
        }
        let come = [
            "+Users(\"u\")",
            "+Backend(\"b\")",
            "+Server(\"b\", \"s\")",
            "+Map(AllowList, \"r\")",
            "+Map(Prefix, \"h/\")",
            "+Map(Hosts, \"h\")",
        ];
        assert_eq!(slots(&mut wanted), come);
        for (slot, _) in all {
            wanted.set(slot, None);
        }
        let mut go = come.map(|s| s.replace('+', "-"));
        // In reverse, but a host goes before its routes and these before what is said of them.
        go.reverse();
        assert_eq!(slots(&mut wanted), go);
        assert!(wanted.slots().is_empty());
    }

    #[test]
    fn a_server_comes_before_the_one_that_it_replaces_drains() {
        let mut wanted = Wanted::default();
        wanted.take_changes();
        wanted.set(Slot::Server("b".into(), "z".into()), server("10.0.0.1", false));
        wanted.take_changes();
        wanted.set(Slot::Server("b".into(), "z".into()), server("10.0.0.1", true));
        wanted.set(Slot::Server("b".into(), "a".into()), server("10.0.0.2", false));
        assert_eq!(slots(&mut wanted), ["+Server(\"b\", \"a\")", "+Server(\"b\", \"z\")"]);
        wanted.set(Slot::Server("b".into(), "z".into()), None);
        wanted.set(Slot::Server("b".into(), "c".into()), server("10.0.0.3", false));
        assert_eq!(slots(&mut wanted), ["+Server(\"b\", \"c\")", "-Server(\"b\", \"z\")"]);
    }

    #[test]
    fn an_address_leaves_one_service_before_it_comes_to_another() {
        let mut wanted = Wanted::default();
        wanted.take_changes();
        let at = |backend: &str| Slot::Server(backend.into(), "s".into());
        wanted.set(at("n:z:80"), server("10.0.0.1", false));
        wanted.take_changes();
        wanted.set(at("n:z:80"), None);
        wanted.set(at("n:a:80"), server("10.0.0.1", false));
        assert_eq!(slots(&mut wanted), ["-Server(\"n:z:80\", \"s\")", "+Server(\"n:a:80\", \"s\")"]);
        // Also one that only drains.
        wanted.set(at("n:b:80"), server("10.0.0.1", false));
        wanted.set(at("n:a:80"), server("10.0.0.1", true));
        assert_eq!(slots(&mut wanted), ["+Server(\"n:a:80\", \"s\")", "+Server(\"n:b:80\", \"s\")"]);
        wanted.set(at("n:b:80"), None);
        wanted.set(at("n:a:80"), server("10.0.0.1", false));
        wanted.take_changes();
        // The same Service in another way: the new one is up before the old one goes.
        wanted.set(at("n:a:80"), None);
        wanted.set(at("n:a:80:tcp"), server("10.0.0.1", false));
        assert_eq!(slots(&mut wanted), ["+Server(\"n:a:80:tcp\", \"s\")", "-Server(\"n:a:80\", \"s\")"]);
    }

    /// Changes of servers, one letter a Service and one digit an address.
    fn moved(before: &str, after: &str) -> String {
        let mut wanted = Wanted::default();
        wanted.take_changes();
        let slot = |text: &str| Slot::Server(format!("n:{}:80", &text[..1]).into(), text[1..].into());
        let value = |text: &str| server(&format!("10.0.0.{}", &text[1..]), false);
        before.split(' ').for_each(|text| wanted.set(slot(text), value(text)));
        wanted.take_changes();
        before.split(' ').filter(|text| !after.contains(text)).for_each(|text| wanted.set(slot(text), None));
        after.split(' ').for_each(|text| wanted.set(slot(text), value(text)));
        let words = |change: &Change| match &change.slot {
            Slot::Server(backend, name) => {
                format!("{}{}{name}", if change.after.is_some() { '+' } else { '-' }, &backend[2..3])
            }
            other => panic!("{other:?}"),
        };
        wanted.take_changes().iter().map(words).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_loses_an_address_to_another_has_what_comes_instead_before() {
        assert_eq!(moved("a1 b2", "a3 b1"), "+a3 -a1 +b1 -b2");
        // One after the other, to the end of the chain.
        assert_eq!(moved("a1 b2 c3", "a4 b1 c2"), "+a4 -a1 +b1 -b2 +c2 -c3");
        // Of a swap one half or the other is missing for a moment, and never served by two.
        assert_eq!(moved("a1 b2", "a2 b1"), "-a1 -b2 +a2 +b1");
        assert_eq!(moved("a1 b2 c3", "a2 b1 c4"), "+c4 -a1 -b2 +a2 +b1 -c3");
        assert_eq!(moved("a1 a2 b3", "a2 b1 b3"), "-a1 +b1");
    }

    #[test]
    fn what_goes_with_its_backend_may_wait_but_for_what_another_namespace_gets() {
        let mut wanted = Wanted::default();
        wanted.take_changes();
        let at = |backend: &str, name: &str| Slot::Server(backend.into(), name.into());
        for backend in ["n:a:80", "o:b:80"] {
            wanted.set(Slot::Backend(backend.into()), Some(Value::Backend(Class::DEFAULT)));
        }
        wanted.set(at("n:a:80", "1"), server("10.0.0.1", false));
        wanted.set(at("n:a:80", "2"), server("10.0.0.2", false));
        wanted.set(at("o:b:80", "3"), server("10.0.0.3", false));
        wanted.take_changes();
        for slot in [Slot::Backend("n:a:80".into()), at("n:a:80", "1"), at("n:a:80", "2"), at("o:b:80", "3")] {
            wanted.set(slot, None);
        }
        wanted.set(at("o:b:80", "2"), server("10.0.0.2", false));
        wanted.set(at("n:a:80:tcp-leastconn", "1"), server("10.0.0.1", false));
        let later = abandoned(&wanted.take_changes());
        assert_eq!(later, [Slot::Backend("n:a:80".into()), at("n:a:80", "1")].into());
    }

    #[test]
    fn what_is_undone_before_it_was_carried_out_vanishes() {
        let mut wanted = Wanted::default();
        wanted.take_changes();
        let slot = Slot::Map(MapName::Hosts, "h".into());
        wanted.set(slot.clone(), text("a"));
        let first = wanted.take_changes();
        wanted.set(slot.clone(), text("b"));
        let second = wanted.take_changes();
        wanted.set(slot.clone(), None);
        let third = wanted.take_changes();
        assert_eq!(joined([first.clone(), second.clone(), third]), []);
        let both = joined([first, second]);
        assert_eq!(both, [Change { slot: slot.clone(), before: None, after: text("b") }]);
        wanted.set(slot.clone(), text("c"));
        wanted.set(slot, None);
        assert_eq!(wanted.take_changes(), []);
    }
}
