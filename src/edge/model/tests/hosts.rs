//! Certificates, who speaks for a host, and what is asked of its clients.

use super::support::*;
use crate::edge::ids::Kind;
use crate::edge::input::Input;
use crate::edge::model::Reason;
use crate::edge::model::unit::Unit;
use crate::edge::wanted::{CrtLine, MapName, Slot, Value};

fn line(world: &World, host: &str) -> Option<CrtLine> {
    match world.held.get(&Slot::CrtList(host.into())) {
        Some(Value::CrtLine(line)) => Some((**line).clone()),
        _ => None,
    }
}

fn certificate(world: &World, host: &str) -> Option<String> {
    line(world, host).map(|line| line.certificate.to_string())
}

fn holds_certificate(world: &World, name: &str) -> bool {
    world.held.contains_key(&Slot::Certificate(name.into()))
}

#[test]
fn a_certificate_is_there_as_long_as_a_host_names_it() {
    let mut world = World::plain();
    world.ingress(
        ing("a/one", 1).path("h.com", "/", "web:80").path("i.com", "/", "web:80").tls(&["h.com", "i.com"], "cert"),
    );
    assert_eq!((certificate(&world, "h.com"), world.told("a/one")), (None, vec![Reason::SecretNotFound]));
    assert_eq!(world.flags("h.com", "/"), "s", "there is TLS, by the default certificate");
    world.secret(tls_secret("a/cert", "ONE"));
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("a_cert"));
    assert!(world.problems().is_empty());
    world.secret(tls_secret("a/cert", "TWO"));
    let slots: Vec<&Slot> = world.last.changes.iter().map(|c| &c.slot).collect();
    assert_eq!(slots, [&Slot::Certificate("a_cert".into())], "a rotation is one change");
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
    assert!(certificate(&world, "i.com").is_none() && holds_certificate(&world, "a_cert"));
    world.gone(Kind::Secret, "a/cert");
    assert_eq!((certificate(&world, "h.com"), world.events()), (None, vec![("a/one".into(), Reason::SecretNotFound)]));
    assert!(!holds_certificate(&world, "a_cert"));
    world.gone(Kind::Ingress, "a/one");
    assert_eq!(world.last.secrets, [(key("a/cert"), false)]);
}

#[test]
fn a_secret_that_cannot_be_read_is_as_good_as_missing_and_what_was_known_of_one_stays() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
    world.put(Input::Unreadable(key("a/cert")));
    assert_eq!((certificate(&world, "h.com"), world.told("a/one")), (None, vec![Reason::SecretUnreadable]));
    world.secret(tls_secret("a/cert", "ONE"));
    assert!(certificate(&world, "h.com").is_some() && world.problems().is_empty());
    world.put(Input::Unreadable(key("a/cert")));
    assert!(certificate(&world, "h.com").is_some() && world.problems().is_empty());
    // Of one that nobody refers to nothing is kept.
    world.put(Input::Unreadable(key("a/other")));
    assert!(!world.model.secrets().any(|key| &*key.name == "other"));
}

#[test]
fn bad_pem_is_the_default_certificate_and_none_of_it_is_told() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
    let bad = secret("a/cert", &[("tls.crt", "\n\nshutdown sessions\n"), ("tls.key", "hunter2")]);
    world.secret(bad.clone());
    assert_eq!((certificate(&world, "h.com"), world.told("a/one")), (None, vec![Reason::InvalidSecret]));
    let told: Vec<&str> = world.last.events.iter().map(|e| &*e.message).collect();
    assert!(told.iter().all(|m| !m.contains("hunter2") && !m.contains("shutdown")), "{told:?}");
    assert!(!format!("{bad:?}").contains("hunter2"));
}

#[test]
fn what_haproxy_refuses_is_the_default_certificate_until_the_secret_changes() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE"));
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
    let slot = Slot::Certificate("a_cert".into());
    let fingerprint = world.held[&slot].fingerprint();
    world.put(Input::Refused(slot.clone(), fingerprint ^ 1, "of another value".into()));
    assert!(holds_certificate(&world, "a_cert"));
    world.put(Input::Refused(slot.clone(), fingerprint, "inconsistencies between private key and certificate".into()));
    assert_eq!(certificate(&world, "h.com"), None);
    assert!(!holds_certificate(&world, "a_cert"));
    assert_eq!(world.events(), [("a/one".to_owned(), Reason::InvalidSecret)]);
    world.secret(tls_secret("a/cert", "TWO"));
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("a_cert"));
    assert!(world.problems().is_empty());
}

#[test]
fn a_line_that_haproxy_refuses_serves_the_default_and_denies_where_it_asked_clients() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE")).secret(ca_secret("a/ca", "CA"));
    let one = |pairs: &[(&str, &str)]| ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert").say(pairs);
    for (pairs, to) in [(&[][..], "a:web:80"), (&[("auth-tls-secret", "ca")], "_503")] {
        world.ingress(one(pairs));
        let slot = Slot::CrtList("h.com".into());
        let fingerprint = world.held[&slot].fingerprint();
        world.put(Input::Refused(slot, fingerprint, "no".into()));
        assert_eq!((line(&world, "h.com"), world.to("h.com", "/")), (None, to.to_owned()));
        assert_eq!(world.told("a/one"), [Reason::Refused]);
    }
}

#[test]
fn hosts_of_tls_may_be_wider_than_those_of_rules_or_not_named() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE"));
    world.ingress(ing("a/one", 1).path("x.h.com", "/", "web:80").tls(&["*.h.com"], "cert"));
    assert_eq!(certificate(&world, "x.h.com").as_deref(), Some("a_cert"));
    assert_eq!(certificate(&world, "*.h.com").as_deref(), Some("a_cert"));
    world.ingress(ing("a/one", 1).path("x.h.com", "/", "web:80").tls(&[], "cert"));
    assert_eq!(certificate(&world, "x.h.com").as_deref(), Some("a_cert"));
    assert_eq!(certificate(&world, "*.h.com"), None);
}

#[test]
fn certificates_and_options_of_a_host_are_those_of_its_owner() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE")).secret(tls_secret("b/cert", "TWO"));
    world.ingress(ing("a/one", 2).path("h.com", "/", "web:80").tls(&["h.com"], "cert"));
    world.ingress(ing("b/two", 3).path("h.com", "/b", "web:80").tls(&["h.com"], "cert").say(&[("hsts", "true")]));
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("a_cert"));
    assert_eq!(world.told("b/two"), [Reason::HostNotOwned]);
    assert_eq!(world.text(MapName::Hosts, "h.com"), Some("-"));
    assert_eq!(world.to("h.com", "/b"), "b:web:80", "paths are anybody's");
    // Only who names the host with a path or a certificate may own it, and the oldest does.
    world.ingress(ing("b/two", 1).path("h.com", "/b", "web:80").tls(&["h.com"], "cert").say(&[("hsts", "true")]));
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("b_cert"));
    assert_eq!(world.told("a/one"), [Reason::HostNotOwned]);
    assert_eq!(world.text(MapName::Hsts, "h.com"), Some("max-age=15768000"));
    let mut config = config();
    config.any_owner = true;
    world.put(Input::RouterConfig(config.into()));
    // Both are heard: the older names the certificate.
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("b_cert"));
    assert_eq!(world.told("a/one"), [Reason::OptionConflict]);
}

#[test]
fn clients_need_a_certificate_and_the_stricter_of_two_words_counts() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE")).secret(ca_secret("a/ca", "CA1"));
    let one = |pairs: &[(&str, &str)]| ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert").say(pairs);
    world.ingress(one(&[("auth-tls-secret", "ca"), ("auth-tls-verify-client", "optional")]));
    let client = |world: &World| line(world, "h.com").unwrap().client;
    assert!(!client(&world).unwrap().1);
    assert_eq!(world.flags("h.com", "/"), "so");
    world.ingress(
        ing("a/two", 2)
            .path("h.com", "/x", "web:80")
            .say(&[("auth-tls-secret", "ca"), ("auth-tls-verify-client", "on")]),
    );
    assert!(client(&world).unwrap().1);
    assert_eq!((world.flags("h.com", "/"), world.flags("h.com", "/x")), ("sm".into(), "sm".into()));
    // Another CA is another name: what is made with one never changes under it.
    let before = client(&world).unwrap().0;
    world.secret(ca_secret("a/ca", "CA2"));
    let after = client(&world).unwrap().0;
    assert!(before != after && before.starts_with("a_ca_") && after.starts_with("a_ca_"));
    assert!(!world.held.contains_key(&Slot::Authority(before)));
    // Without a certificate of its own the host has a line all the same.
    world.gone(Kind::Secret, "a/cert");
    assert_eq!(certificate(&world, "h.com").as_deref(), Some("_default"));
    // A missing CA: nobody may come.
    world.gone(Kind::Secret, "a/ca");
    assert_eq!((world.to("h.com", "/"), world.to("h.com", "/x")), ("_503".into(), "_503".into()));
    assert!(world.told("a/one").contains(&Reason::SecretNotFound));
    world.gone(Kind::Ingress, "a/two").ingress(one(&[("auth-tls-secret", "ca"), ("auth-tls-verify-client", "off")]));
    assert_eq!(world.to("h.com", "/"), "a:web:80");
    for bad in [
        &[("auth-tls-verify-client", "perhaps")][..],
        &[("auth-tls-verify-client", "on")],
        &[("auth-tls-secret", "b/ca")],
    ] {
        world.ingress(one(bad));
        assert_eq!(world.to("h.com", "/"), "_503", "{bad:?}");
    }
}

#[test]
fn what_no_line_can_name_is_not_held() {
    let mut world = World::plain();
    world.secret(tls_secret("a/cert", "ONE")).secret(ca_secret("a/ca", "CA"));
    world.ingress(ing("a/one", 1).path("", "/", "web:80").tls(&[], "cert").say(&[("auth-tls-secret", "ca")]));
    assert_eq!(world.to("*", "/"), "_503", "nobody can be asked for a certificate without a host");
    let is_store = |slot: &Slot| matches!(slot, Slot::Authority(_) | Slot::Certificate(_));
    assert!(!world.held.keys().any(is_store), "{:?}", world.held);
}

#[test]
fn passthrough_leads_tls_to_the_service_of_the_root() {
    let mut world = World::plain();
    let with =
        |pairs: &[(&str, &str)]| ing("a/one", 1).path("h.com", "/", "web:80").path("h.com", "/x", "api:80").say(pairs);
    world.ingress(with(&[("ssl-passthrough", "true")]));
    assert_eq!(world.text(MapName::Passthrough, "h.com"), Some("a:web:80:tcp-roundrobin"));
    assert_eq!(world.servers("a:web:80:tcp-roundrobin"), ["10.0.0.1_8080"]);
    assert_eq!(world.flags("h.com", "/"), "s", "plain HTTP is redirected");
    world.gone(Kind::Service, "a/web");
    assert_eq!(world.text(MapName::Passthrough, "h.com"), Some("_reject"));
    world.ingress(with(&[]));
    assert_eq!(world.text(MapName::Passthrough, "h.com"), None);
    let mut config = config();
    config.listeners.passthrough = false;
    world.put(Input::RouterConfig(config.into())).ingress(with(&[("ssl-passthrough", "true")]));
    assert_eq!(world.last.reload, [""; 0]);
    assert!(world.told("a/one").contains(&Reason::PassthroughOff));
}

#[test]
fn hsts_www_and_the_default_certificate() {
    let mut world = World::plain();
    let say = [("hsts", "true"), ("hsts-max-age", "60"), ("hsts-preload", "true"), ("from-to-www-redirect", "true")];
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").path("www.i.com", "/", "web:80").say(&say));
    assert_eq!(world.text(MapName::Hsts, "h.com"), Some("max-age=60; preload"));
    assert_eq!(world.text(MapName::Hosts, "h.com"), Some("-h"));
    assert_eq!(world.text(MapName::Www, "www.h.com"), Some("h.com"));
    assert_eq!(world.text(MapName::Www, "i.com"), Some("www.i.com"));
    let mut config = config();
    config.default_certificate = Some(key("edge/default"));
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.problems(), [("edge/main".to_owned(), Reason::SecretNotFound)]);
    world.secret(tls_secret("edge/default", "DEF"));
    assert!(holds_certificate(&world, "_default") && world.problems().is_empty());
}

#[test]
fn only_what_is_bound_at_the_start_needs_a_reload() {
    let mut world = World::plain();
    let mut config = config();
    config.options = annotations(&[("timeout-server", "9s"), ("hsts", "true")]);
    config.class_name = "waystation2".into();
    world.put(Input::RouterConfig(config.clone().into()));
    assert!(world.last.reload.is_empty());
    config.listeners.http = 8080;
    config.tuning.threads = Some(2);
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.last.reload, ["edge.listeners.http", "edge.tuning.threads"]);
}

#[test]
fn of_very_many_ingresses_of_a_host_those_who_say_nothing_of_it_are_not_gone_through_for_one() {
    let mut world = World::plain();
    let silent = |n: i64| ing(&format!("a/i{n}"), n).path("h.com", &format!("/p{n}"), "web:80");
    world.secret(tls_secret("a/cert", "ONE"));
    world.ingress(silent(0).path("h.com", "/", "web:80").tls(&["h.com"], "cert").say(&[("hsts", "true")]));
    for n in 1..200 {
        world.model.apply(Input::Ingress(silent(n).0.into()));
    }
    world.settle();
    // Which hosts are decided anew for a change.
    let decided = |world: &mut World, input: Input| {
        world.model.apply(input);
        let (mut hosts, mut marked) = (0, Vec::new());
        while let Some(units) = world.model.dirty.take_first() {
            for unit in units {
                match &unit {
                    Unit::Ingress(key) => drop(world.model.decide_ingress(key)),
                    Unit::Host(_) => hosts += 1,
                    _ => {}
                }
                marked.push(unit);
            }
        }
        // As if nobody had looked.
        world.model.dirty.extend(marked);
        world.settle();
        hosts
    };
    let put = |ingress: Ing| Input::Ingress(ingress.0.into());
    assert_eq!(decided(&mut world, put(silent(200))), 0, "one more");
    assert_eq!(decided(&mut world, put(silent(77).say(&[("allow-list", "10.0.0.0/8")]))), 0, "an option of paths");
    assert_eq!(decided(&mut world, put(silent(78).path("h.com", "/q", "api:80"))), 0, "one more path");
    assert_eq!(decided(&mut world, Input::Vanished(Kind::Ingress, key("a/i79"))), 0, "one less");
    assert_eq!(decided(&mut world, put(silent(80).exact("h.com", "/e", "api:80"))), 1, "the first exact path");
    assert_eq!(decided(&mut world, put(silent(81).say(&[("hsts-max-age", "5")]))), 1, "an option of hosts");
    assert_eq!(decided(&mut world, put(silent(81).say(&[("hsts-max-age", "x")]))), 1, "one that cannot be read");
    assert_eq!(decided(&mut world, put(silent(82).tls(&["h.com"], "other"))), 1, "a certificate");
    assert_eq!(decided(&mut world, put(silent(83).path("h.com", "/", "api:80"))), 1, "its root");
    assert_eq!(decided(&mut world, Input::Vanished(Kind::Ingress, key("a/i0"))), 1, "its oldest");
    assert_eq!(decided(&mut world, put(ing("b/old", -1).path("h.com", "/z", "web:80"))), 1, "another owner");
}
