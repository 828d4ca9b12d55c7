//! Changes as commands, in steps: what belongs together, and is told of together if it fails.

use std::fmt::Write as _;
use std::sync::Arc;

use super::command::{Command, Kind, MAX_PAYLOAD, word};
use crate::edge::render::{DIRECT, Layout, SNI, crt_line, entries, server};
use crate::edge::wanted::{Change, CrtLine, MapName, Server, Slot, Value, Wanted};

/// What is sent together, after everything before it has been answered or at once behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is for.
    pub slots: Vec<Slot>,
    /// To be sent in this order, without waiting in between.
    pub commands: Vec<Command>,
    /// To be sent if one of them is refused, to leave nothing half done.
    pub undo: Vec<Command>,
    /// Whether the last command may have to wait until nobody uses what it removes: it is sent again then, by itself,
    /// and nothing waits for it.
    pub removal: bool,
    /// Whether each command goes only when the one before holds: otherwise the rest is left, which does no harm.
    pub one_by_one: bool,
}

impl Step {
    fn of(slots: Vec<Slot>, commands: Vec<Command>) -> Self {
        Self { slots, commands, undo: Vec::new(), removal: false, one_by_one: false }
    }
}

/// Steps of a batch, in its order. Entries of one map that stand side by side become one command.
pub fn steps(changes: &[Change], wanted: &Wanted, layout: &Layout) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut whole: Vec<MapName> = Vec::new();
    let mut adds: Option<(MapName, String, Vec<Slot>)> = None;
    for change in changes {
        if let (Slot::Map(map, key), None, Some(Value::Text(value))) = (&change.slot, &change.before, &change.after)
            && !map.ordered()
        {
            if adds.as_ref().is_some_and(|(m, text, _)| m != map || text.len() > MAX_PAYLOAD) {
                flush(&mut adds, &mut steps, layout);
            }
            let (_, text, slots) = adds.get_or_insert_with(|| (*map, String::new(), Vec::new()));
            let _ = writeln!(text, "{key} {value}");
            slots.push(change.slot.clone());
            continue;
        }
        flush(&mut adds, &mut steps, layout);
        match &change.slot {
            Slot::Map(map, _) if map.ordered() => match steps.last_mut() {
                // All of its changes stand side by side.
                Some(last) if whole.last() == Some(map) => last.slots.push(change.slot.clone()),
                _ => {
                    whole.push(*map);
                    let slots = vec![change.slot.clone()];
                    steps.push(Step { slots, ..whole_map(*map, wanted, layout) });
                }
            },
            _ => steps.extend(step(change, layout)),
        }
    }
    flush(&mut adds, &mut steps, layout);
    steps
}

fn flush(adds: &mut Option<(MapName, String, Vec<Slot>)>, steps: &mut Vec<Step>, layout: &Layout) {
    if let Some((map, text, slots)) = adds.take() {
        let line = format!("add map {}", layout.map(map));
        steps.push(Step::of(slots, vec![Command::with_payload(Kind::SetMap, &line, &text)]));
    }
}

/// The mark in commands that stands for the version that `prepare map` answered: whoever sends puts the number there.
pub const VERSION: &str = "@VERSION";

/// A map written anew as a whole, in its order, in one transaction.
pub fn whole_map(map: MapName, wanted: &Wanted, layout: &Layout) -> Step {
    let path = layout.map(map);
    let mut commands = vec![Command::plain(Kind::PrepareMap, format!("prepare map {path}"))];
    let mut text = String::new();
    let line = format!("add map {VERSION} {path}");
    for (key, value) in entries(wanted, map) {
        if text.len() > MAX_PAYLOAD {
            commands.push(Command::with_payload(Kind::SetMap, &line, &text));
            text.clear();
        }
        let _ = writeln!(text, "{key} {value}");
    }
    if !text.is_empty() {
        commands.push(Command::with_payload(Kind::SetMap, &line, &text));
    }
    commands.push(Command::plain(Kind::CommitMap, format!("commit map {VERSION} {path}")));
    Step::of(Vec::new(), commands)
}

fn step(change: &Change, layout: &Layout) -> Option<Step> {
    let mut out = Step::of(vec![change.slot.clone()], Vec::new());
    let before = change.before.as_ref();
    match (&change.slot, &change.after) {
        // A file of the verifier: nothing of the process.
        (Slot::Users(_), _) => return None,
        (Slot::Authority(name), value) => {
            store("ca-file", &layout.authority(name), before.is_some(), value.as_ref(), &mut out)
        }
        (Slot::Certificate(name), value) => {
            store("cert", &layout.certificate(name), before.is_some(), value.as_ref(), &mut out)
        }
        (Slot::Backend(name), Some(Value::Backend(class))) => {
            out.commands.push(Command::plain(Kind::AddBackend, format!("add backend {name} from {class}")));
            out.commands.push(Command::plain(Kind::Publish, format!("publish backend {name}")));
        }
        (Slot::Backend(name), _) => {
            out.commands.push(Command::plain(Kind::Publish, format!("unpublish backend {name}")));
            out.commands.push(Command::plain(Kind::DelBackend, format!("del backend {name}")));
            out.removal = true;
        }
        (Slot::Server(backend, name), Some(Value::Server(after))) => {
            let old = match before {
                Some(Value::Server(before)) => Some(&**before),
                _ => None,
            };
            set_server(backend, name, old, after, layout, &mut out);
        }
        (Slot::Server(backend, name), _) => {
            out.commands.push(Command::plain(Kind::SetServer, format!("set server {backend}/{name} state maint")));
            out.commands.push(Command::plain(Kind::DelServer, format!("del server {backend}/{name}")));
            out.removal = true;
        }
        (Slot::Front, value) => {
            // The one that takes over comes first: no connection finds nobody.
            let (on, off) = if value.is_some() { (SNI, DIRECT) } else { (DIRECT, SNI) };
            out.commands.push(Command::plain(Kind::SwitchFrontend, format!("enable frontend {on}")));
            out.commands.push(Command::plain(Kind::SwitchFrontend, format!("disable frontend {off}")));
            out.one_by_one = true;
        }
        (Slot::CrtList(host), value) => crt_list(host, before, value.as_ref(), layout, &mut out),
        (Slot::Map(map, key), Some(Value::Text(text))) => {
            // Only one that is there comes here; a new one is added.
            let line = format!("set map {} {} {}", layout.map(*map), word(key), word(text));
            out.commands.push(Command::plain(Kind::SetMap, line));
        }
        (Slot::Map(map, key), _) => {
            out.commands.push(Command::plain(Kind::DelMap, format!("del map {} {}", layout.map(*map), word(key))));
            out.removal = true;
        }
    }
    Some(out)
}

fn store(what: &str, path: &str, there: bool, value: Option<&Value>, out: &mut Step) {
    match value {
        Some(Value::Sealed(pem)) => {
            if !there {
                out.commands.push(Command::plain(Kind::NewStore, format!("new ssl {what} {path}")));
            }
            out.commands.push(Command::with_payload(Kind::SetStore, &format!("set ssl {what} {path}"), pem));
            out.commands.push(Command::plain(Kind::CommitStore, format!("commit ssl {what} {path}")));
            out.undo.push(Command::plain(Kind::AbortStore, format!("abort ssl {what} {path}")));
            if !there {
                // An empty one would stay until all is compared.
                out.undo.push(Command::plain(Kind::DelStore, format!("del ssl {what} {path}")));
            }
        }
        _ => {
            out.commands.push(Command::plain(Kind::DelStore, format!("del ssl {what} {path}")));
            out.removal = true;
        }
    }
}

fn set_server(backend: &str, name: &str, before: Option<&Server>, after: &Server, layout: &Layout, out: &mut Step) {
    let at = format!("{backend}/{name}");
    let set = |text: String| Command::plain(Kind::SetServer, text);
    let weight = u8::from(!after.drain);
    match before {
        None => {
            out.commands
                .push(Command::plain(Kind::AddServer, format!("add server {at} {}", server(name, after, layout))));
            // One of that name may be there still, on its way out: it comes back.
            out.commands.push(set(format!("set server {at} weight {weight}")));
            out.commands.push(set(format!("set maxconn server {at} {}", after.maxconn)));
            if after.link.check.is_some() {
                out.commands.push(set(format!("enable health {at}")));
            }
            out.commands.push(set(format!("set server {at} state ready")));
        }
        Some(before) => {
            if before.drain != after.drain {
                out.commands.push(set(format!("set server {at} weight {weight}")));
                if !after.drain {
                    // Somebody may have drained it by its state.
                    out.commands.push(set(format!("set server {at} state ready")));
                }
            }
            if before.maxconn != after.maxconn {
                out.commands.push(set(format!("set maxconn server {at} {}", after.maxconn)));
            }
        }
    }
}

/// A new line comes before the old one goes. The old one is found by its line number, which whoever sends must look up
/// where the certificate has several lines: [`LINE`] stands for it.
fn crt_list(host: &str, before: Option<&Value>, after: Option<&Value>, layout: &Layout, out: &mut Step) {
    let list = layout.crt_list();
    if let Some(Value::CrtLine(line)) = after {
        let text = crt_line(host, line, layout);
        out.commands.push(Command::with_payload(Kind::AddCrtList, &format!("add ssl crt-list {list}"), &text));
    }
    if let Some(Value::CrtLine(line)) = before {
        let path = layout.certificate(&line.certificate);
        out.commands.push(Command::plain(Kind::DelCrtList, format!("del ssl crt-list {list} {path}:{LINE}")));
        out.removal = after.is_none();
    }
}

/// Stands for the number of the line that is meant: see [`line_of`].
pub const LINE: &str = "@LINE";

/// The number of a host's line among those that `show ssl crt-list -n` lists.
pub fn line_of(lines: &[super::show::CrtListLine], host: &str, before: &CrtLine, layout: &Layout) -> Option<u64> {
    let path = layout.certificate(&before.certificate);
    let client: Option<(Arc<str>, bool)> = before.client.clone().map(|(a, r)| (layout.authority(&a).into(), r));
    let found = lines.iter().find(|line| line.hosts == [host] && line.certificate == path && line.client == client);
    found.map(|line| line.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::ids::Kind as ObjectKind;
    use crate::edge::model::tests::support::*;

    fn texts(steps: &[Step]) -> Vec<String> {
        steps
            .iter()
            .flat_map(|s| &s.commands)
            .map(|c| c.text.trim_end().replace("\n", "|").replace("%WAYSTATION%", "E"))
            .collect()
    }

    fn sent(world: &World) -> Vec<String> {
        texts(&steps(&world.last.changes, world.model.wanted(), &Layout::new("/d")))
    }

    #[test]
    fn a_new_ingress_and_its_end() {
        let mut world = World::plain();
        world.secret(tls_secret("a/cert", "ONE"));
        world.ingress(
            ing("a/one", 1)
                .path("h.com", "/a;b c", "web:80")
                .exact("h.com", "/", "web:80")
                .say(&[("maxconn-server", "7")]),
        );
        let new = [
            "add backend a:web:80 from http-roundrobin",
            "publish backend a:web:80",
            "add server a:web:80/10.0.0.1_8080 10.0.0.1:8080 weight 1 maxconn 7",
            "set server a:web:80/10.0.0.1_8080 weight 1",
            "set maxconn server a:web:80/10.0.0.1_8080 7",
            "set server a:web:80/10.0.0.1_8080 state ready",
            "add map /d/maps/exact.map <<E|h.com/ a:web:80|E",
            "add map /d/maps/prefix.map <<E|h.com/a;b%20c/ a:web:80|E",
            "add map /d/maps/hosts.map <<E|h.com -e|E",
        ];
        assert_eq!(sent(&world), new);
        world.ingress(
            ing("a/one", 1)
                .path("h.com", "/a;b c", "web:80")
                .say(&[("upstream-vhost", "x.y"), ("maxconn-server", "9")]),
        );
        let changed = [
            "set maxconn server a:web:80/10.0.0.1_8080 9",
            "add map /d/maps/upstream-host.map <<E|p:h.com/a;b%20c x.y|E",
            "set map /d/maps/prefix.map h.com/a\\;b%20c/ a:web:80|u|p:h.com/a\\;b%20c",
            "set map /d/maps/hosts.map h.com -",
            "del map /d/maps/exact.map h.com/",
        ];
        assert_eq!(sent(&world), changed);
        world.gone(ObjectKind::Ingress, "a/one");
        let gone = [
            "del map /d/maps/hosts.map h.com",
            "del map /d/maps/prefix.map h.com/a\\;b%20c/",
            "del map /d/maps/upstream-host.map p:h.com/a\\;b%20c",
            "set server a:web:80/10.0.0.1_8080 state maint",
            "del server a:web:80/10.0.0.1_8080",
            "unpublish backend a:web:80",
            "del backend a:web:80",
        ];
        assert_eq!(sent(&world), gone);
    }

    #[test]
    fn certificates_and_lines_of_hosts() {
        let mut world = World::plain();
        world.secret(tls_secret("a/cert", "ONE")).secret(tls_secret("a/other", "TWO"));
        world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
        let steps_now = steps(&world.last.changes, world.model.wanted(), &Layout::new("/d"));
        let certificate = &steps_now[0];
        let lines: Vec<&str> = certificate.commands.iter().map(|c| c.text.lines().next().unwrap()).collect();
        assert_eq!(
            lines,
            [
                "new ssl cert /d/certs/a_cert.pem",
                "set ssl cert /d/certs/a_cert.pem <<%WAYSTATION%",
                "commit ssl cert /d/certs/a_cert.pem"
            ]
        );
        let undo: Vec<&str> = certificate.undo.iter().map(|command| command.text.trim()).collect();
        assert_eq!(undo, ["abort ssl cert /d/certs/a_cert.pem", "del ssl cert /d/certs/a_cert.pem"]);
        assert!(
            sent(&world).contains(
                &"add ssl crt-list /d/certs.list <<E|/d/certs/a_cert.pem [alpn h2,http/1.1] h.com|E".to_owned()
            )
        );
        world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "other"));
        let all = sent(&world);
        let of_list: Vec<&String> = all.iter().filter(|l| l.contains("crt-list")).collect();
        assert_eq!(of_list[0], "add ssl crt-list /d/certs.list <<E|/d/certs/a_other.pem [alpn h2,http/1.1] h.com|E");
        assert_eq!(of_list[1], "del ssl crt-list /d/certs.list /d/certs/a_cert.pem:@LINE");
        assert_eq!(all.last().unwrap(), "del ssl cert /d/certs/a_cert.pem");
    }

    #[test]
    fn maps_whose_order_counts_are_written_as_a_whole() {
        let mut world = World::plain();
        let say = [("path-type", "regex")];
        world.ingress(
            ing("a/one", 1).specific("h.com", "/a.*", "web:80").specific("h.com", "/long.*", "web:80").say(&say),
        );
        let all = sent(&world);
        let expected =
            "add map @VERSION /d/maps/regex.map <<E|^h\\.com(?:/long.*) a:web:80|^h\\.com(?:/a.*) a:web:80|E";
        let at = all.iter().position(|l| l == "prepare map /d/maps/regex.map").unwrap();
        assert_eq!(all[at + 1..at + 3], [expected, "commit map @VERSION /d/maps/regex.map"]);
        assert_eq!(all.iter().filter(|l| l.starts_with("prepare")).count(), 1);
    }

    #[test]
    fn tls_is_looked_into_from_the_first_host_that_is_passed_through_to_the_last() {
        let mut world = World::plain();
        let pass = |name: &str, host: &str| ing(name, 1).path(host, "/", "web:80").say(&[("ssl-passthrough", "true")]);
        world.ingress(pass("a/one", "h.com"));
        let all = sent(&world);
        let at = |text: &str| all.iter().position(|l| l == text).unwrap();
        let on = at("enable frontend _sni");
        assert_eq!(all[on + 1], "disable frontend _https");
        assert!(on < at("add map /d/maps/passthrough.map <<E|h.com a:web:80:tcp-roundrobin|E"));
        world.ingress(pass("a/two", "i.com"));
        assert!(!sent(&world).iter().any(|l| l.contains("frontend")));
        world.gone(ObjectKind::Ingress, "a/one").gone(ObjectKind::Ingress, "a/two");
        let all = sent(&world);
        let at = |text: &str| all.iter().position(|l| l == text).unwrap();
        assert!(at("del map /d/maps/passthrough.map i.com") < at("enable frontend _https"));
        assert_eq!(at("disable frontend _sni"), at("enable frontend _https") + 1);
        let steps = steps(&world.last.changes, world.model.wanted(), &Layout::new("/d"));
        assert!(steps.iter().all(|s| s.one_by_one == (s.slots == [Slot::Front])));
    }

    #[test]
    fn payloads_stay_short() {
        let mut world = World::plain();
        let mut ingress = ing("a/one", 1);
        for i in 0..5000 {
            ingress = ingress.path("h.com", &format!("/a-path-of-some-length/{i}"), "web:80");
        }
        world.ingress(ingress);
        let all = steps(&world.last.changes, world.model.wanted(), &Layout::new("/d"));
        let adds: Vec<usize> =
            all.iter().flat_map(|s| &s.commands).filter(|c| c.kind == Kind::SetMap).map(|c| c.text.len()).collect();
        assert!(adds.len() >= 3 && adds.iter().all(|l| *l < MAX_PAYLOAD + 2048), "{adds:?}");
        assert_eq!(all.iter().map(|s| s.slots.len()).sum::<usize>(), world.last.changes.len());
    }
}
