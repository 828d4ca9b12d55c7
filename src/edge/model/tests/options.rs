//! What options become: set, changed, removed, invalid, and said by two.

use super::support::*;
use crate::edge::ids::Kind;
use crate::edge::input::Input;
use crate::edge::model::Reason;
use crate::edge::wanted::{MapName, Proxy, Server, Slot, Sni, Value};

fn with(pairs: &[(&str, &str)]) -> Ing {
    ing("a/one", 1).path("h.com", "/p", "web:80").say(pairs)
}

const ID: &str = "p:h.com/p";

/// Flags of the route, and what is said about it in maps.
fn says(pairs: &[(&str, &str)]) -> (String, Vec<(MapName, String)>) {
    let mut world = World::plain();
    world.ingress(with(pairs));
    let said = world.held.iter().filter_map(|(slot, value)| match (slot, value) {
        (Slot::Map(map, key), Value::Text(text)) if **key == *ID => Some((*map, text.to_string())),
        _ => None,
    });
    (world.flags("h.com", "/p"), said.collect())
}

#[test]
fn what_is_said_about_a_route() {
    use MapName::*;
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [(MapName, &'a str)]);
    let cases: &[Case<'_>] = &[
        (&[], "", &[]),
        (&[("ssl-redirect", "true")], "", &[]),
        (&[("ssl-redirect", "force")], "s", &[]),
        (&[("ssl-redirect", "force"), ("ssl-redirect-code", "301")], "sS", &[(SslCode, "301")]),
        (&[("permanent-redirect", "https://x.y/z")], "r", &[(Redirect, "301|https://x.y/z")]),
        (&[("temporal-redirect", "/z"), ("temporal-redirect-code", "307")], "r", &[(Redirect, "307|/z")]),
        (&[("app-root", "/app")], "R", &[(AppRoot, "/app")]),
        (&[("rewrite-target", "/x")], "z", &[(RewriteTo, "/x")]),
        (&[("rewrite-prefix", "/x/")], "z", &[(RewriteCut, "2"), (RewriteTo, "/x")]),
        (&[("rewrite-prefix", "/")], "z", &[(RewriteCut, "2")]),
        (&[("upstream-vhost", "In.Side")], "u", &[(UpstreamHost, "in.side")]),
        (&[("limit-rps", "5")], "l", &[(RateSecond, "5")]),
        (&[("limit-rps", "5"), ("limit-period", "1m"), ("limit-rpm", "3")], "l", &[(RateMinute, "3")]),
        (&[("limit-connections", "7")], "l", &[(Concurrent, "7")]),
        (&[("body-size", "1k")], "b", &[(BodySize, "1024")]),
        (&[("body-size", "0")], "", &[]),
        (&[("request-set-headers", "X-A: 1")], "q", &[(RequestSet, "A3gtYQExAAA=")]),
        (&[("response-del-headers", "X-A")], "p", &[(ResponseDel, "A3gtYQA=")]),
        (&[("forwarded-for", "append")], "A", &[]),
        (&[("forwarded-for", "never")], "N", &[]),
        (
            &[("timeout-server", "2s"), ("timeout-connect", "1s")],
            "t",
            &[(TimeoutConnect, "1000"), (TimeoutServer, "2000")],
        ),
        (&[("default-backend", "api")], "F", &[(Fallback, "a:api:80")]),
        (&[("default-backend", "absent")], "", &[]),
    ];
    for (pairs, flags, entries) in cases {
        let entries: Vec<(MapName, String)> = entries.iter().map(|(map, text)| (*map, (*text).to_owned())).collect();
        assert_eq!(says(pairs), ((*flags).to_owned(), entries), "{pairs:?}");
    }
}

#[test]
fn what_is_removed_leaves_nothing() {
    let mut world = World::plain();
    world.ingress(with(&[]));
    let before = world.held.clone();
    let all = [
        ("allow-list", "10.0.0.0/8"),
        ("limit-rps", "5"),
        ("limit-whitelist", "10.0.0.0/9"),
        ("cors-enable", "true"),
        ("request-set-headers", "X-A: 1"),
        ("rewrite-target", "/x"),
        ("affinity", "cookie"),
        ("health-check-path", "/up"),
        ("timeout-server", "1s"),
    ];
    world.ingress(with(&all));
    assert!(world.held.len() > before.len() + 10);
    world.ingress(with(&[]));
    assert_eq!(world.held, before);
}

#[test]
fn a_service_says_more_than_an_ingress_and_that_more_than_the_router_config() {
    let mut config = config();
    config.options = annotations(&[("timeout-server", "1s"), ("balance", "leastconn"), ("no-such", "x")]);
    let mut world = World::new(config);
    world.put(Input::Service(svc("a/web", &[("http", 80)]).into()));
    world.ingress(with(&[]));
    assert_eq!(world.text(MapName::TimeoutServer, ID), Some("1000"));
    assert_eq!(world.to("h.com", "/p"), "a:web:80:http-leastconn");
    world.ingress(with(&[("timeout-server", "2s"), ("balance", "random")]));
    assert_eq!(world.text(MapName::TimeoutServer, ID), Some("2000"));
    assert_eq!(world.to("h.com", "/p"), "a:web:80:http-random");
    let mut service = svc("a/web", &[("http", 80)]);
    service.annotations =
        annotations(&[("waystation.dev/timeout-server", "3s"), ("haproxy.org/load-balance", "source")]);
    world.put(Input::Service(service.into()));
    assert_eq!(world.text(MapName::TimeoutServer, ID), Some("3000"));
    assert_eq!(world.to("h.com", "/p"), "a:web:80:http-source");
    assert!(world.problems().is_empty(), "who decides is no conflict: {:?}", world.problems());
}

#[test]
fn of_two_ingresses_the_older_says_how_a_service_is_reached() {
    let mut world = World::plain();
    world.ingress(ing("a/new", 2).path("i.com", "/", "web:80").say(&[("balance", "random"), ("maxconn-server", "9")]));
    world.ingress(ing("a/old", 1).path("h.com", "/", "web:80").say(&[("balance", "leastconn")]));
    assert_eq!(
        (world.to("h.com", "/"), world.to("i.com", "/")),
        ("a:web:80:http-leastconn".into(), "a:web:80:http-leastconn".into())
    );
    assert_eq!(world.told("a/new"), [Reason::OptionConflict]);
    let server =
        |world: &World, backend: &str| world.model.wanted().servers(backend).map(|(_, s)| (**s).clone()).next();
    assert_eq!(server(&world, "a:web:80:http-leastconn").unwrap().maxconn, 9, "what only one says holds");
    world.ingress(ing("a/new", 2).path("i.com", "/", "web:80").say(&[("balance", "leastconn")]));
    assert!(world.problems().is_empty());
}

#[test]
fn lists_of_networks_are_shared_and_two_of_them_both_hold() {
    let mut world = World::plain();
    world.ingress(
        ing("a/one", 1)
            .path("h.com", "/p", "web:80")
            .path("h.com", "/q", "web:80")
            .say(&[("allow-list", "10.0.0.0/8,!10.1.0.0/16")]),
    );
    let name = world.text(MapName::AllowList, ID).unwrap().to_owned();
    assert_eq!(world.text(MapName::AllowList, "p:h.com/q"), Some(&*name));
    assert_eq!(world.flags("h.com", "/p"), "i");
    let keys: Vec<(String, String)> =
        world.model.wanted().map(MapName::Networks).map(|(k, v)| (k.to_string(), v.to_string())).collect();
    assert_eq!(keys, [(format!("{name}|40A"), "y".to_owned()), (format!("{name}|40A01"), "n".to_owned())]);
    let mut service = svc("a/web", &[("http", 80)]);
    service.annotations = annotations(&[("nginx.ingress.kubernetes.io/whitelist-source-range", "10.2.0.0/16,1.2.3.4")]);
    world.put(Input::Service(service.clone().into()));
    let name = world.text(MapName::AllowList, ID).unwrap().to_owned();
    let inside: Vec<String> =
        world.model.wanted().map(MapName::Networks).filter(|(_, v)| ***v == *"y").map(|(k, _)| k.to_string()).collect();
    assert_eq!(inside, [format!("{name}|40A02")]);
    // Deny lists add up.
    service.annotations = annotations(&[("waystation.dev/deny-list", "1.0.0.0/8")]);
    world.put(Input::Service(service.into())).ingress(with(&[("deny-list", "2.0.0.0/8")]));
    assert_eq!(world.model.wanted().map(MapName::Networks).count(), 2);
    assert_eq!(world.flags("h.com", "/p"), "d");
}

#[test]
fn a_protection_that_cannot_be_read_denies_and_any_other_option_is_dropped() {
    let mut world = World::plain();
    for bad in [
        ("allow-list", "10.0.0.0/40"),
        ("deny-list", "everyone"),
        ("auth-type", "digest"),
        ("auth-secret", "../../x"),
        ("auth-secret", "absent"),
        ("auth-secret", "b/users"),
        ("auth-type", "basic"),
        ("auth-url", "ftp://x/"),
        ("auth-url", "http://127.0.0.1/"),
        ("auth-url", "http://[::1]:80/"),
        ("auth-url", "http://169.254.169.254/latest"),
        ("auth-url", "http://not-resolved.example/"),
    ] {
        world.ingress(with(&[bad, ("timeout-server", "1s")]));
        assert_eq!(world.look("h.com", "/p"), "_503", "{bad:?}");
        assert!(world.text(MapName::TimeoutServer, ID).is_none());
    }
    for dropped in [("timeout-server", "soon"), ("limit-rps", "many"), ("cors-max-age", "x"), ("unheard-of", "x")] {
        world.ingress(with(&[dropped]));
        assert_eq!(world.look("h.com", "/p"), "a:web:80", "{dropped:?}");
        assert_eq!(world.told("a/one").len(), 1);
    }
    // A redirect to TLS does no harm before a refusal.
    world.ingress(with(&[("allow-list", "x"), ("ssl-redirect", "force")]));
    assert_eq!(world.look("h.com", "/p"), format!("_503|s|{ID}"));
    // One level that cannot be read denies although another can.
    let mut service = svc("a/web", &[("http", 80)]);
    service.annotations = annotations(&[("waystation.dev/allow-list", "10.0.0.0/8")]);
    world.put(Input::Service(service.into())).ingress(with(&[("allow-list", "x")]));
    assert_eq!(world.to("h.com", "/p"), "_503");
}

#[test]
fn basic_authentication_waits_for_its_users() {
    let mut world = World::plain();
    world.ingress(with(&[("auth-secret", "users"), ("auth-realm", "Staff only")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::SecretNotFound]));
    world.secret(secret("a/users", &[("auth", "ann:$2y$10$abc")]));
    assert_eq!(world.text(MapName::BasicAuth, ID), Some("a_users|Staff only"));
    assert_eq!(world.flags("h.com", "/p"), "a");
    assert_eq!(world.held[&Slot::Users("a_users".into())], Value::Sealed("ann:$2y$10$abc\n".into()));
    world.secret(secret("a/users", &[("auth", "ann:hunter2")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::InvalidSecret]));
    assert!(!format!("{:?}", world.last).contains("hunter2"));
    world.ingress(with(&[("auth-secret", "users"), ("auth-type", "none")]));
    assert_eq!(world.look("h.com", "/p"), "a:web:80");
    assert!(!world.held.contains_key(&Slot::Users("a_users".into())));
}

#[test]
fn what_verifies_endpoints_must_be_read_and_a_newer_ingress_stops_no_older_one() {
    let mut world = World::plain();
    world.secret(ca_secret("a/ca", "CA1"));
    let bad = [("backend-protocol", "https"), ("secure-verify-ca-secret", "../x")];
    world.ingress(with(&bad));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::InvalidOption]));
    world.ingress(with(&[("backend-protocol", "https"), ("secure-verify-ca-secret", "ca")]));
    assert_eq!(world.to("h.com", "/p"), "a:web:80");
    world.ingress(ing("a/newer", 2).path("i.com", "/", "web:80").say(&bad));
    assert_eq!((world.to("h.com", "/p"), world.told("a/newer")), ("a:web:80".into(), vec![Reason::InvalidOption]));
    world.ingress(ing("a/newer", 0).path("i.com", "/", "web:80").say(&bad));
    assert_eq!((world.to("h.com", "/p"), world.to("i.com", "/")), ("_503".into(), "_503".into()));
}

#[test]
fn nothing_of_other_namespaces_is_used() {
    let mut world = World::plain();
    // Of the same name in both: none of them is meant.
    for namespace in ["a", "b"] {
        world.secret(secret(&format!("{namespace}/users"), &[("auth", "ann:{SHA}x")]));
        world.secret(ca_secret(&format!("{namespace}/ca"), "CA1"));
    }
    world.ingress(with(&[("auth-secret", "b/users")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::CrossNamespace]));
    world.ingress(with(&[("auth-secret", "a/users")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("a:web:80".into(), vec![]));
    world.ingress(with(&[("auth-tls-secret", "b/ca")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::CrossNamespace]));
    world.ingress(with(&[("backend-protocol", "https"), ("secure-verify-ca-secret", "b/ca")]));
    assert_eq!(
        (world.to("h.com", "/p"), world.problems()),
        ("_503".into(), vec![("a/web".into(), Reason::CrossNamespace)])
    );
    assert!(!world.model.secrets().any(|key| &*key.namespace == "b"));
}

#[test]
fn another_service_is_asked_where_its_name_leads() {
    let mut world = World::plain();
    let say = [
        ("auth-url", "https://auth.example.com/check?a=b"),
        ("auth-signin", "https://auth.example.com/start"),
        ("auth-response-headers", "X-User, X-Mail"),
    ];
    world.ingress(with(&say));
    assert_eq!(
        (world.to("h.com", "/p"), world.last.names.clone()),
        ("_503".into(), vec![("auth.example.com".into(), true)])
    );
    assert!(world.problems().is_empty(), "it may still resolve");
    world.put(Input::Resolved(
        "auth.example.com".into(),
        [ip("10.3.0.2"), ip("10.3.0.1"), ip("169.254.169.254")].into(),
    ));
    let value = "GET|https|10.3.0.1:443|auth.example.com|/check?a=b|https://auth.example.com/start||x-user,x-mail";
    assert_eq!(world.text(MapName::ExternalAuth, ID), Some(value));
    assert_eq!(world.told("a/one"), [Reason::AddressRefused]);
    world.put(Input::Resolved("auth.example.com".into(), [].into()));
    assert_eq!((world.to("h.com", "/p"), world.told("a/one")), ("_503".into(), vec![Reason::NameNotResolved]));
}

#[test]
fn the_path_of_challenges_is_free_of_redirects_and_guards() {
    let mut world = World::plain();
    world.ingress(
        with(&[("ssl-redirect", "force"), ("auth-secret", "absent")]).path("h.com", "/", "web:80").tls(&["h.com"], ""),
    );
    world.ingress(
        ing("a/solver", 2)
            .specific("h.com", "/.well-known/acme-challenge/token", "api:80")
            .say(&[("allow-list", "10.0.0.0/8")]),
    );
    assert_eq!(world.look("h.com", "/.well-known/acme-challenge/token"), "a:api:80");
    assert_eq!(world.to("h.com", "/.well-known/acme-challenge/other"), "_503");
}

#[test]
fn cors() {
    let mut world = World::plain();
    world.ingress(with(&[
        ("cors-enable", "true"),
        ("cors-allow-origin", "https://A.b, https://*.c.d:8443"),
        ("cors-allow-credentials", "true"),
    ]));
    assert_eq!(world.flags("h.com", "/p"), "c");
    assert_eq!(world.text(MapName::CorsOrigin, "p:h.com/p|https://a.b"), Some("y"));
    assert_eq!(world.text(MapName::CorsOrigin, "p:h.com/p|https://*.c.d:8443"), Some("y"));
    assert_eq!(world.text(MapName::CorsCredentials, ID), Some("true"));
    assert_eq!(world.text(MapName::CorsMaxAge, ID), Some("86400"));
    assert_eq!(world.text(MapName::CorsMethods, ID), Some("GET, PUT, POST, DELETE, PATCH, OPTIONS"));
}

#[test]
fn regular_expressions_come_by_option_or_with_a_group_that_is_referred_to() {
    let mut world = World::plain();
    let nginx = ("nginx.ingress.kubernetes.io/rewrite-target", "/$2");
    world.ingress(
        ing("a/one", 1).specific("h.com", "/foo(/|$)(.*)", "web:80").path("h.com", "/", "api:80").say(&[nginx]),
    );
    assert_eq!(world.text(MapName::Hosts, "h.com"), Some("-r"));
    let id = "r:h.com/foo(/%7C$)(.*)";
    assert_eq!(world.text(MapName::Regex, r"^h\.com(?:/foo(/|$)(.*))"), Some(format!("a:web:80|Z|{id}").as_str()));
    let pattern = r"^r\:h\.com/foo\(/\%7C\$\)\(\.\*\)\|(?:/foo(/|$)(.*)).*$";
    assert_eq!(world.text(MapName::RewriteRegex, pattern), Some(r"/\2"));
    // A path of type Prefix is none.
    assert_eq!(world.to("h.com", "/x"), "a:api:80");
    // What HAProxy cannot compile is told to its owner and wanted no more.
    let slot = Slot::Map(MapName::Regex, r"^h\.com(?:/foo(/|$)(.*))".into());
    let fingerprint = world.held[&slot].fingerprint();
    world.put(Input::Refused(slot.clone(), fingerprint, "regex is invalid".into()));
    assert_eq!(world.events(), [("a/one".to_owned(), Reason::Refused)]);
    assert!(!world.held.contains_key(&slot) && world.text(MapName::RewriteRegex, pattern).is_none());
    world.ingress(ing("a/one", 1).specific("h.com", "/(a+)+", "web:80").say(&[("path-type", "regex")]));
    assert_eq!(world.told("a/one"), [Reason::InvalidPath]);
}

#[test]
fn a_canary_takes_a_share_of_what_another_claims() {
    let mut world = World::plain();
    let canary = |pairs: &[(&str, &str)]| {
        ing("a/canary", 2).path("h.com", "/p", "api:80").say(&[("canary", "true"), ("timeout-server", "9s")]).say(pairs)
    };
    world.ingress(canary(&[("canary-weight", "20")]));
    assert_eq!((world.to("h.com", "/p"), world.told("a/canary")), ("_404".into(), vec![Reason::CanaryWithoutRoute]));
    world.ingress(with(&[]));
    assert_eq!((world.look("h.com", "/p"), world.told("a/canary")), (format!("a:web:80|w|{ID}"), vec![]));
    assert_eq!(world.text(MapName::Choose, ID), Some("w,80>a:web:80;w,20>a:api:80"));
    world.ingress(canary(&[("canary-by-header", "X-Canary"), ("canary-by-cookie", "cc")]));
    let header = "h,x-canary,always>a:api:80;h,x-canary,never>a:web:80";
    let cookie = "c,cc,always>a:api:80;c,cc,never>a:web:80";
    assert_eq!(world.text(MapName::Choose, ID), Some(format!("{header};{cookie}").as_str()));
    world.ingress(canary(&[("canary-by-header", "X-Canary"), ("canary-by-header-value", "a;b c")]));
    assert_eq!(world.text(MapName::Choose, ID), Some("h,x-canary,a%3Bb%20c>a:api:80"));
    // Options are those of the route, also on the way to the canary.
    world.ingress(with(&[("body-size", "1k")]));
    assert_eq!(world.look("h.com", "/p"), format!("a:web:80|wb|{ID}"));
    assert_eq!(world.text(MapName::Choose, ID), Some("h,x-canary,a%3Bb%20c>a:api:80|b|p:h.com/p"));
    // What is refused is refused to the canary as well.
    world.ingress(with(&[("allow-list", "x")]));
    assert_eq!(world.text(MapName::Choose, ID), Some("h,x-canary,a%3Bb%20c>_503"));
    world.ingress(with(&[])).gone(Kind::Ingress, "a/canary");
    assert_eq!(world.look("h.com", "/p"), "a:web:80");
}

#[test]
fn how_endpoints_are_spoken_to() {
    let mut world = World::plain();
    world.secret(ca_secret("a/ca", "CA1")).secret(tls_secret("a/client", "ONE"));
    let server = |world: &World| -> Server {
        (**world.model.wanted().servers(&world.to("h.com", "/p")).next().unwrap().1).clone()
    };
    world.ingress(with(&[("backend-protocol", "grpc"), ("proxy-protocol", "v2"), ("maxqueue-server", "3")]));
    let plain = server(&world);
    assert!(plain.link.h2 && plain.link.proxy == Proxy::V2 && plain.link.maxqueue == 3 && plain.link.tls.is_none());
    let tls = [
        ("backend-protocol", "https"),
        ("secure-verify-ca-secret", "ca"),
        ("secure-crt-secret", "client"),
        ("secure-sni", "db.internal"),
    ];
    world.ingress(with(&tls));
    let tls = server(&world).link.tls.clone().unwrap();
    assert!(tls.authority.unwrap().starts_with("a_ca_"));
    assert_eq!((tls.certificate.as_deref(), tls.sni), (Some("a_client"), Sni::Name("db.internal".into())));
    assert_eq!(tls.verify_host.as_deref(), Some("db.internal"));
    world.gone(Kind::Secret, "a/ca");
    assert_eq!(
        (world.to("h.com", "/p"), world.problems()),
        ("_503".into(), vec![("a/web".to_owned(), Reason::SecretNotFound)])
    );
    world.ingress(with(&[("affinity", "cookie"), ("session-cookie-name", "SRV"), ("session-cookie-samesite", "none")]));
    let name = world.to("h.com", "/p");
    assert_eq!(world.text(MapName::Cookie, &name), Some("SRV|; SameSite=None; Secure"));
    world.ingress(with(&[
        ("haproxy.org/cookie-persistence", "SRV"),
        ("health-check-path", "/up"),
        ("health-check-host", "up.h"),
    ]));
    let name = world.to("h.com", "/p");
    assert_eq!(name, "a:web:80:http-roundrobin-cookie-check");
    assert_eq!(
        (world.text(MapName::CheckPath, &name), world.text(MapName::CheckHost, &name)),
        (Some("/up"), Some("up.h"))
    );
    assert!(server(&world).link.check.is_some() && server(&world).link.cookie);
}
