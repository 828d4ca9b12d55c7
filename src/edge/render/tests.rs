//! What files say. That HAProxy serves what they say is tested with HAProxy.

use std::sync::Arc;

use super::*;
use crate::edge::input::{Input, Listeners};
use crate::edge::model::tests::support::*;

const AT: &str = "/run/ws";

fn world() -> World {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE")).secret(ca_secret("a/ca", "CA1"));
    world.ingress(
        ing("a/one", 1)
            .path("h.com", "/", "web:80")
            .specific("h.com", "/x(/|$)(.*)", "api:http")
            .tls(&["h.com"], "cert")
            .say(&[
                ("path-type", "regex"),
                ("rewrite-target", "/$2"),
                ("auth-tls-secret", "ca"),
                ("affinity", "cookie"),
            ]),
    );
    world
}

fn all(world: &World) -> Vec<File> {
    files(&fixed_of(&config_of(world)), world.model.wanted(), &Layout::new(AT))
}

fn fixed_of(config: &crate::edge::input::RouterConfig) -> FixedPart {
    FixedPart::of(config, &Layout::new(AT))
}

fn config_of(world: &World) -> Arc<crate::edge::input::RouterConfig> {
    world.model.configured().unwrap().clone()
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    &files.iter().find(|f| f.path == format!("{AT}/{path}")).unwrap_or_else(|| panic!("no {path}")).contents
}

#[test]
fn what_is_wanted_is_in_the_file_of_its_slot() {
    let world = world();
    let files = all(&world);
    assert_eq!(text(&files, "maps/hosts.map"), "h.com -r\n");
    assert_eq!(text(&files, "maps/prefix.map"), "h.com/ a:web:80:http-roundrobin-cookie|smz|p:h.com/\n");
    let authority =
        world.held.keys().find_map(|s| if let Slot::Authority(name) = s { Some(name.clone()) } else { None }).unwrap();
    let line = format!(
        "{AT}/certs/a_cert.pem [alpn h2,http/1.1 ca-file {AT}/authorities/{authority}.pem verify required] h.com\n"
    );
    assert_eq!(text(&files, "certs.list"), line);
    let backend = "a:web:80:http-roundrobin-cookie";
    let shard = text(&files, &format!("backends/{:04}.cfg", shard_of(backend)));
    let servers: Vec<String> = world.servers(backend);
    let server = format!("  server {0} 10.0.0.1:8080 weight 1 cookie {0}\n", servers[0]);
    assert!(shard.contains(&format!("backend {backend} from http-roundrobin-cookie\n{server}")), "{shard}");
    for slot in world.held.keys() {
        let file = files.iter().find(|f| f.path == file_of(slot, &Layout::new(AT))).unwrap();
        assert_eq!(
            contents(slot, &fixed_of(&config_of(&world)), world.model.wanted(), &Layout::new(AT)).unwrap(),
            file.contents,
            "{slot:?}"
        );
    }
    assert_eq!(
        contents(&Slot::Users("absent".into()), &fixed_of(&config_of(&world)), world.model.wanted(), &Layout::new(AT)),
        None
    );
    for number in 0..SHARDS {
        let alone = super::shard(world.model.wanted(), number, &Layout::new(AT));
        let path = Layout::new(AT).shard(number);
        let written = files.iter().find(|file| file.path == path).map(|file| file.contents.as_str());
        assert_eq!(written, Some(alone.as_str()).filter(|text| number == 0 || !text.is_empty()), "{path}");
    }
}

#[test]
fn of_patterns_the_longest_comes_first() {
    let mut world = World::plain();
    let say = [("path-type", "regex")];
    world.ingress(
        ing("a/one", 1)
            .specific("h.com", "/.*", "web:80")
            .specific("h.com", "/abc.*", "web:80")
            .specific("h.com", "/b.*", "web:80")
            .say(&say),
    );
    let files = all(&world);
    let keys: Vec<&str> = text(&files, "maps/regex.map").lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(keys, [r"^h\.com(?:/abc.*)", r"^h\.com(?:/b.*)", r"^h\.com(?:/.*)"]);
}

#[test]
fn the_fixed_part_depends_on_nothing_of_tenants() {
    let (empty, full) = (World::plain(), world());
    let text_of = fixed_of(&config_of(&empty)).config(false);
    assert_eq!(text_of, fixed_of(&config_of(&full)).config(false));
    assert!(!text_of.contains("MAP["));
    for map in MapName::ALL {
        assert!(text_of.contains(&format!("{AT}/maps/{map}.map")), "map {map} is looked up nowhere");
    }
    let mut other = (*config_of(&empty)).clone();
    other.listeners = Listeners {
        passthrough: false,
        stats: 9000,
        addresses: vec![ip("10.1.1.1"), ip("fd00::1")],
        ..Listeners::default()
    };
    let text_of = fixed_of(&other).config(false);
    assert!(
        text_of.contains("  bind 10.1.1.1:443 ssl crt-list ") && text_of.contains("  bind [fd00::1]:9000 v6only\n")
    );
    assert!(!text_of.contains("frontend _sni"));
    let binds: Vec<String> = fixed_of(&other).binds().iter().map(ToString::to_string).collect();
    assert_eq!(binds.join(" "), "10.1.1.1:80 10.1.1.1:443 10.1.1.1:9000 [fd00::1]:80 [fd00::1]:443 [fd00::1]:9000");
}

#[test]
fn while_a_host_is_passed_through_nothing_ends_tls_without_a_look() {
    let mut world = world();
    assert!(!text(&all(&world), "haproxy.cfg").contains("  disabled\n"));
    world.ingress(ing("a/pass", 1).path("p.com", "/", "web:80").say(&[("ssl-passthrough", "true")]));
    let files = all(&world);
    assert!(text(&files, "haproxy.cfg").contains("frontend _https from _client-http\n  disabled\n"));
    assert_eq!(
        contents(&Slot::Front, &fixed_of(&config_of(&world)), world.model.wanted(), &Layout::new(AT)).as_deref(),
        Some(text(&files, "haproxy.cfg"))
    );
}

#[test]
fn what_can_be_followed_at_run_time_needs_no_reload() {
    let before = config_of(&World::plain());
    let mut after = (*before).clone();
    after.options = annotations(&[("hsts", "true")]);
    after.default_certificate = Some(key("edge/x"));
    (after.any_owner, after.external_name) = (true, true);
    assert_eq!(reloads(&before, &after), [""; 0]);
    assert_eq!(fixed_of(&before), fixed_of(&after));
    let mut world = World::plain();
    world.put(Input::RouterConfig(after.into()));
    assert!(world.last.reload.is_empty());
}

#[test]
fn a_mark_tells_fixed_parts_apart_and_is_found_again_in_files_and_processes() {
    let layout = Layout::new(AT);
    let config = config_of(&World::plain());
    let fixed = fixed_of(&config);
    let mark = fixed.mark().unwrap();
    assert_eq!(FixedPart::of(&config, &Layout::new("/elsewhere")).mark(), Some(mark), "whatever the folder");
    let description = fixed.config(false).lines().find_map(|l| l.strip_prefix("  description ").map(str::to_owned));
    assert_eq!(mark_in(&description.unwrap()), Some(mark));
    assert_eq!(mark_in("our edge"), None);
    let mut other = (*config).clone();
    other.tuning.threads = Some(7);
    assert_ne!(fixed_of(&other).mark(), Some(mark));
    // Whether a host is passed through is followed at run time.
    let read = |front, edit: &dyn Fn(String) -> String| {
        let files = [edit(fixed.config(front)), fixed.lua().to_owned(), fixed.default_list().to_owned()];
        FixedPart::read(&files.map(Some), &layout)
    };
    for front in [false, true] {
        assert_eq!(read(front, &|text| text).as_ref(), Some(&fixed));
        assert_eq!(read(front, &|text| text).unwrap().config(true), fixed.config(true));
    }
    assert_eq!(read(false, &|text| text.replace("20d", "21d")), None, "edited by somebody");
    let before_marks =
        |text: String| text.lines().filter(|l| !l.contains("description")).map(|l| format!("{l}\n")).collect();
    assert_eq!(read(false, &before_marks).map(|old| old.mark()), Some(None));
    assert_eq!(FixedPart::read(&[Some(fixed.config(false)), None, None], &layout), None);
}
