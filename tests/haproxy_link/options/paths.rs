//! Options of paths.

use waystation::edge::address::MAX_NETWORKS;
use waystation::edge::input::PathType;

use super::FULL;
use super::cases::{Case, case, path_or_root as at, seen, status};
use crate::asking::{Ask, get};

/// "ann:open sesame"
const ANN: &str = "Basic YW5uOm9wZW4gc2VzYW1l";
/// "bob:open sesame"
const BOB: &str = "Basic Ym9iOm9wZW4gc2VzYW1l";
const CHALLENGE: &str = "/.well-known/acme-challenge/token";

fn away(status: u16, location: &'static str) -> impl Fn(&str) -> Vec<Ask> + Clone {
    move |p: &str| vec![get(at(p)).status(status).told(format!("location: {location}"))]
}

/// A path comes to the Service as that.
fn becomes(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Vec<Ask> + Clone {
    let ask = |(path, seen): &(&str, &str)| get(*path).status(200).seen(format!("GET {seen}"));
    move |_: &str| pairs.iter().map(ask).collect()
}

pub fn cases() -> Vec<Case> {
    [redirects(), paths(), guards(), external(), limits(), cors(), headers(), timeouts()]
        .into_iter()
        .flatten()
        .collect()
}

fn redirects() -> Vec<Case> {
    let to_tls = |status: u16| {
        move |p: &str| {
            let to = format!("location: https://HOST{p}/x?y=z");
            vec![
                get(format!("{p}/x?y=z")).status(status).told(to),
                get(CHALLENGE).status(200),
                get(at(p)).tls().status(200),
            ]
        }
    };
    vec![
        case("ssl-redirect")
            .tls()
            .plain(to_tls(308))
            .set("false", status(200))
            .changed("force", to_tls(308))
            .bad(&["2"]),
        case("ssl-redirect")
            .named("ssl-redirect-forced")
            .plain(status(200))
            .set("force", to_tls(308))
            .changed("true", status(200))
            .bad(&["perhaps"]),
        case("ssl-redirect-code")
            .tls()
            .plain(to_tls(308))
            .set("301", to_tls(301))
            .changed("302", to_tls(302))
            .bad(&["200"]),
        case("ssl-redirect-code")
            .named("ssl-redirect-code-others")
            .tls()
            .plain(to_tls(308))
            .set("303", to_tls(303))
            .changed("307", to_tls(307))
            .bad(&["x"]),
        case("app-root")
            .alone()
            .plain(|_| vec![get("/").status(200)])
            .set("/app", |_| vec![get("/").status(302).told("location: /app"), get("/x").status(200)])
            .changed("/other", |_| vec![get("/").status(302).told("location: /other")])
            .bad(&["app"]),
        case("permanent-redirect")
            .plain(status(200))
            .set("https://x.y/z", away(301, "https://x.y/z"))
            .changed("/z", away(301, "/z"))
            .bad(&["javascript:alert(1)", "//evil.test"]),
        case("permanent-redirect-code")
            .also("permanent-redirect", "/z")
            .plain(away(301, "/z"))
            .set("308", away(308, "/z"))
            .changed("301", away(301, "/z"))
            .bad(&["302"]),
        case("temporal-redirect")
            .plain(|p| vec![get(at(p)).status(200), get(CHALLENGE).status(200)])
            .set("https://x.y/z?a=b", |p| {
                vec![get(at(p)).status(302).told("location: https://x.y/z?a=b"), get(CHALLENGE).status(200)]
            })
            .changed("/z", away(302, "/z"))
            .bad(&["https://a b"]),
        case("temporal-redirect-code")
            .also("temporal-redirect", "/z")
            .plain(away(302, "/z"))
            .set("307", away(307, "/z"))
            .changed("303", away(303, "/z"))
            .bad(&["200"]),
    ]
}

fn paths() -> Vec<Case> {
    let answers = |pairs: &'static [(&'static str, u16)]| {
        move |_: &str| pairs.iter().map(|(path, status)| get(*path).status(*status)).collect()
    };
    vec![
        case("path-type")
            .at("/a", PathType::ImplementationSpecific)
            .plain(answers(&[("/a", 200), ("/a/", 200), ("/a/x", 200), ("/ab", 404)]))
            .set("begin", answers(&[("/a", 200), ("/a/x", 200), ("/ab", 200), ("/b", 404)]))
            .changed("exact", answers(&[("/a", 200), ("/a/", 404), ("/a/x", 404), ("/ab", 404)]))
            .bad(&["perhaps"]),
        case("path-type")
            .named("path-type-regex")
            .at("/a[0-9]+(/|$)", PathType::ImplementationSpecific)
            .plain(answers(&[("/a1", 404)]))
            .set("regex", answers(&[("/a1", 200), ("/a12/x", 200), ("/A1", 404), ("/a1x", 404), ("/x/a1", 404)]))
            .changed("exact", answers(&[("/a1", 404)]))
            .bad(&["glob"]),
        case("rewrite-target")
            .at("/p", PathType::ImplementationSpecific)
            .plain(becomes(&[("/p/q?a=b", "/p/q?a=b")]))
            .set("/x", becomes(&[("/p/q?a=b", "/x?a=b"), ("/p", "/x")]))
            .changed("/y/", becomes(&[("/p/q", "/y/")]))
            .bad(&["x"]),
        case("rewrite-target")
            .named("rewrite-target-regex")
            .also("path-type", "regex")
            .at("/p/(.*)/(z|y)", PathType::ImplementationSpecific)
            .plain(becomes(&[("/p/q/z", "/p/q/z")]))
            .set("/new/$2/$1", becomes(&[("/p/q/r/z?a=b", "/new/z/q/r?a=b"), ("/p/q/y", "/new/y/q")]))
            .changed("/$1", becomes(&[("/p/q/r/z", "/q/r"), ("/p/%20/z", "/%20")]))
            .bad(&["x y"]),
        case("rewrite-prefix")
            .at("/p", PathType::ImplementationSpecific)
            .plain(becomes(&[("/p/q", "/p/q")]))
            .set("/n", becomes(&[("/p/q?a=b", "/n/q?a=b"), ("/p", "/n"), ("/p/", "/n/")]))
            .changed("/", becomes(&[("/p/q", "/q"), ("/p", "/"), ("/p/", "/")]))
            .bad(&["x"]),
        case("upstream-vhost")
            .plain(|p| vec![get(at(p)).status(200).seen("host: HOST").not_seen("x-forwarded-host")])
            .set("in.side", |p| {
                vec![get(at(p)).with("X-Forwarded-Host", "eve").seen("host: in.side").seen("x-forwarded-host: HOST")]
            })
            .changed("In.Side2", |p| vec![get(at(p)).status(200).seen("host: in.side2")])
            .bad(&["a b"]),
        case("default-backend")
            .endpoints(0)
            .plain(status(503))
            .set("spare", seen("at 10.77.240.1:8080"))
            .changed("spare-too:http", seen("at 10.77.240.2:8080"))
            .bad(&["a/b"]),
    ]
}

/// More than a list may have, of clients who may all come: what is not taken denies, and is not cut short.
fn too_many_networks() -> &'static str {
    let all: Vec<String> = (0..=MAX_NETWORKS).map(|n| format!("127.0.{}.{}", n / 250, n % 250 + 1)).collect();
    Box::leak(all.join(",").into())
}

fn guards() -> Vec<Case> {
    // Two clients.
    let may = |first: u16, second: u16| {
        move |p: &str| vec![get(at(p)).status(first), get(at(p)).from([127, 0, 0, 2]).status(second)]
    };
    let login = |ann: u16, bob: u16| {
        move |p: &str| {
            vec![
                get(at(p)).status(401),
                get(at(p)).with("Authorization", ANN).status(ann),
                get(at(p)).with("Authorization", BOB).status(bob),
                get(at(p)).with("Authorization", "Basic !").status(401),
            ]
        }
    };
    let realm = |realm: &'static str| {
        move |p: &str| vec![get(at(p)).status(401).told(format!("www-authenticate: Basic realm=\"{realm}\""))]
    };
    vec![
        case("allow-list")
            .plain(may(200, 200))
            .set("127.0.0.2", may(403, 200))
            .changed("127.0.0.0/8, !127.0.0.2", may(200, 403))
            .bad(&["10.0.0.0/99", "", too_many_networks()]),
        case("deny-list")
            .plain(may(200, 200))
            .set("127.0.0.2/32", may(200, 403))
            .changed("127.0.0.0/8, !127.0.0.2", may(403, 200))
            .bad(&["everyone", "", too_many_networks()]),
        case("auth-type")
            .also("auth-secret", "users")
            .plain(login(200, 401))
            .set("basic", login(200, 401))
            .changed("none", status(200))
            .bad(&["digest"]),
        case("auth-secret").plain(status(200)).set("users", login(200, 401)).changed("others", login(401, 200)).bad(&[
            "../x",
            "absent",
            "broken",
            "elsewhere/users",
        ]),
        case("auth-realm")
            .also("auth-secret", "users")
            .plain(realm("Authentication required"))
            .set("Staff only", realm("Staff only"))
            .changed("It's 5 o'clock", realm("It's 5 o'clock"))
            .bad(&["a\"b"]),
    ]
}

fn external() -> Vec<Case> {
    const OK: &str = "http://10.77.241.1:8080/ok?a=b";
    const NO: &str = "http://10.77.241.1:8080/status/401";
    let method =
        |method: &'static str| move |p: &str| vec![get(at(p)).status(200).seen(format!("x-method-was: {method}"))];
    let token = |token: &'static str, other: &'static str| {
        move |p: &str| {
            let ask = get(at(p)).with("X-Token", "t").with("X-Other", "o").status(200);
            vec![ask.seen(format!("x-token-was: {token}")).seen(format!("x-other-was: {other}"))]
        }
    };
    let heard = |seen: [&'static str; 2]| {
        move |p: &str| {
            let ask = get(at(p)).with("X-Token", "t").with("X-Token-Was", "eve").status(200);
            vec![seen.iter().fold(ask, |ask, line| ask.seen(*line))]
        }
    };
    let sign_in = |location: &'static str| {
        move |p: &str| {
            let path = if p.is_empty() { "" } else { "%2Fsecond" };
            let told = format!("location: {location}rd=http%3A%2F%2FHOST{path}%2Fx%3Fc%3Dd");
            vec![get(format!("{p}/x?c=d")).status(302).told(told)]
        }
    };
    vec![
        case("auth-url")
            .plain(status(200))
            .set(OK, |p| {
                vec![
                    get(at(p)).status(200),
                    get(at(p)).second().status(200),
                    get(at(p)).long(9).status(200).seen("9 bytes"),
                ]
            })
            .changed("http://10.77.241.1:8080/status/403", status(403))
            .bad(&["ftp://x/", "http://127.0.0.1:8080/ok", "http://nowhere.test/", "/ok"]),
        case("auth-url")
            .named("auth-url-refused")
            .plain(status(200))
            .set(NO, |p| vec![get(at(p)).status(401).told("www-authenticate: Custom realm=\"r\"")])
            .changed("http://10.77.241.1:8080/status/500", status(503))
            .bad(&["http://169.254.169.254/latest"]),
        case("auth-url")
            .named("auth-url-unreachable")
            .plain(status(200))
            .set("http://10.77.241.1:9/", status(503))
            .changed("http://auth.test:8080/ok", status(200))
            .bad(&["http://user:pw@host/"]),
        case("auth-method")
            .also("auth-url", OK)
            .also("auth-response-headers", "X-Method-Was")
            .plain(method("GET"))
            .set("POST", method("POST"))
            .changed("HEAD", method("HEAD"))
            .bad(&["PUT"]),
        case("auth-signin")
            .also("auth-url", NO)
            .plain(status(401))
            .set("https://sign.in/start", sign_in("https://sign.in/start?"))
            .changed("/start?a=b", sign_in("/start?a=b&"))
            .bad(&["javascript:x"]),
        case("auth-request-headers")
            .also("auth-url", OK)
            .also("auth-response-headers", "X-Token-Was,X-Other-Was")
            .plain(token("t", "o"))
            .set("X-Token", token("t", "-"))
            .changed("X-Other", token("-", "o"))
            .bad(&[","]),
        case("auth-response-headers")
            .also("auth-url", OK)
            .plain(heard(["x-token-was: eve", "GET …"]))
            .set("X-Token-Was, X-Path-Was", heard(["x-token-was: t", "x-path-was: /ok?a=b"]))
            .changed("X-Path-Was", heard(["x-token-was: eve", "x-path-was: /ok?a=b"]))
            .bad(&["Host"]),
    ]
}

fn limits() -> Vec<Case> {
    let all = |times: usize| move |p: &str| vec![get(at(p)).anew().status(200).times(times)];
    let too_many = |p: &str| vec![get(at(p)).anew().status(200), get(at(p)).anew().status(429).once_in(200)];
    let size = |bytes: usize| {
        move |p: &str| {
            vec![
                get(at(p)).status(200),
                get(at(p)).second().status(200),
                get(at(p)).long(bytes).status(200).seen(format!("{bytes} bytes")),
                get(at(p)).second().long(bytes).status(200),
                get(at(p)).long(bytes + 1).status(413),
                get(at(p)).second().long(bytes + 1).status(413),
                get(at(p)).chunked(1).status(411),
                // Whether it comes with the headers or behind them.
                get(at(p)).second().chunked(bytes + 1).status(411).times(5),
                get(at(p)).second().chunked(bytes + 1).at_once().status(411),
            ]
        }
    };
    let any_size = |p: &str| vec![get(at(p)).long(3000).status(200), get(at(p)).second().chunked(3000).status(200)];
    vec![
        case("limit-rps").plain(all(20)).set("1", too_many).changed("1000000", all(20)).bad(&["many", "0"]),
        case("limit-period")
            .also("limit-rps", "100")
            .plain(all(20))
            .set("1m", too_many)
            .changed("1s", all(20))
            .bad(&["1h"]),
        case("limit-rpm").plain(all(20)).set("5", too_many).changed("1000000", all(20)).bad(&["-5"]),
        case("limit-whitelist")
            .also("limit-rpm", "5")
            .plain(too_many)
            .set("127.0.0.0/8", all(20))
            .changed("10.0.0.0/8", too_many)
            .bad(&["localhost"]),
        case("limit-connections")
            .plain(|p| vec![get(at(p)).beside_held().status(200)])
            .set("1", |p| {
                let other = get(at(p)).from([127, 0, 0, 3]).status(200);
                vec![get(at(p)).anew().status(200).times(5), get(at(p)).beside_held().status(429), other]
            })
            .changed("2", |p| vec![get(at(p)).beside_held().status(200)])
            .bad(&["0"]),
        case("body-size").plain(any_size).set("1k", size(1024)).changed("2k", size(2048)).bad(&["1x"]),
    ]
}

fn cors() -> Vec<Case> {
    let preflight = |p: &str, origin: &'static str| {
        get(at(p)).method("OPTIONS").with("Origin", origin).with("Access-Control-Request-Method", "PUT")
    };
    // Of a preflight request, or of another.
    let told = move |line: &'static str, first: bool| {
        move |p: &str| {
            let other = get(at(p)).with("Origin", "https://a.b").status(200);
            let told = if first { preflight(p, "https://a.b").status(204).told(line) } else { other.told(line) };
            vec![told]
        }
    };
    let off = move |p: &str| {
        vec![
            preflight(p, "https://a.b").status(200).seen("OPTIONS …").not_told("access-control-allow-origin"),
            get(at(p)).with("Origin", "https://a.b").not_told("access-control-allow-origin"),
        ]
    };
    let origin = |allowed: &'static str, refused: &'static str| {
        move |p: &str| {
            vec![
                get(at(p))
                    .with("Origin", allowed)
                    .told(format!("access-control-allow-origin: {allowed}"))
                    .told("vary: Origin"),
                get(at(p)).with("Origin", refused).status(200).not_told("access-control-allow-origin"),
            ]
        }
    };
    let on = move |p: &str| {
        let other = get(at(p)).with("Origin", "https://a.b").status(200).told("access-control-allow-origin: *");
        let methods = "access-control-allow-methods: GET, PUT, POST, DELETE, PATCH, OPTIONS";
        let first = preflight(p, "https://a.b").status(204).told("access-control-allow-origin: *").told(methods);
        vec![other.not_told("access-control-allow-methods"), first.told("access-control-max-age: 86400")]
    };
    let with = |option| case(option).also("cors-enable", "true");
    const METHODS: &str = "access-control-allow-methods: GET, PUT, POST, DELETE, PATCH, OPTIONS";
    const HEADERS: &str = "access-control-allow-headers: DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,\
                           Cache-Control,Content-Type,Range,Authorization";
    let no =
        |name: &'static str| move |p: &str| vec![get(at(p)).with("Origin", "https://a.b").status(200).not_told(name)];
    vec![
        case("cors-enable").plain(off).set("true", on).changed("false", off).bad(&["perhaps"]),
        with("cors-allow-origin")
            .plain(told("access-control-allow-origin: *", false))
            .set("https://a.b, http://c.d:8080", origin("https://a.b", "https://c.d:8080"))
            .changed("https://*.a.b", origin("https://X.a.b", "https://a.b"))
            .bad(&["a.b"]),
        with("cors-allow-methods")
            .plain(told(METHODS, true))
            .set("GET", told("access-control-allow-methods: GET", true))
            .changed("GET, PUT", told("access-control-allow-methods: GET, PUT", true))
            .bad(&[""]),
        with("cors-allow-headers")
            .plain(told(HEADERS, true))
            .set("X-A, X-B", told("access-control-allow-headers: X-A, X-B", true))
            .changed("X-C", told("access-control-allow-headers: X-C", true))
            .bad(&["a\u{7}b"]),
        with("cors-allow-credentials")
            .plain(no("access-control-allow-credentials"))
            .set("true", told("access-control-allow-credentials: true", false))
            .changed("false", no("access-control-allow-credentials"))
            .bad(&["perhaps"]),
        with("cors-expose-headers")
            .plain(no("access-control-expose-headers"))
            .set("X-A, X-B", told("access-control-expose-headers: X-A, X-B", false))
            .changed("X-C", told("access-control-expose-headers: X-C", false))
            .bad(&[""]),
        with("cors-max-age")
            .plain(told("access-control-max-age: 86400", true))
            .set("60", told("access-control-max-age: 60", true))
            .changed("2m", told("access-control-max-age: 120", true))
            .bad(&["soon"]),
    ]
}

fn headers() -> Vec<Case> {
    let seen = |lines: &'static [&'static str], not: &'static str| {
        move |p: &str| {
            let ask = get(at(p)).with("X-A", "of client").with("X-Z", "z").status(200).seen("x-z: z").not_seen(not);
            vec![lines.iter().fold(ask, |ask, line| ask.seen(*line))]
        }
    };
    let told = |lines: &'static [&'static str], not: &'static str| {
        move |p: &str| {
            let ask = get(at(p)).status(200).told("x-of-server-too: two").not_told(not);
            vec![lines.iter().fold(ask, |ask, line| ask.told(*line))]
        }
    };
    let own = seen(&["x-a: of client"], "x-b");
    let theirs = told(&["x-of-server: one"], "x-b");
    // What is said where something came, and where nothing did.
    let forwarded = |came: &'static [&'static str], not: &'static str, none: &'static str| {
        move |p: &str| {
            let ask = get(at(p)).with("X-Forwarded-For", "192.0.2.1").status(200).not_seen(not);
            vec![came.iter().fold(ask, |ask, line| ask.seen(*line)), get(at(p)).seen(none)]
        }
    };
    const CAME: &str = "x-forwarded-for: 192.0.2.1";
    const IS: &str = "x-forwarded-for: 127.0.0.1";
    vec![
        case("request-set-headers")
            .plain(own)
            .set("X-A: 1\nX-B: two words", seen(&["x-a: 1", "x-b: two words"], "x-a: of client"))
            .changed("X-A: 2;%3C\\", seen(&["x-a: 2;%3C\\"], "x-b"))
            .bad(&["Content-Length: 5", "X-A: %[src]"]),
        case("request-add-headers")
            .plain(own)
            .set("X-A: 1\nX-B: 2", seen(&["x-a: of client", "x-a: 1", "x-b: 2"], "x-c"))
            .changed("X-A: 2", seen(&["x-a: of client", "x-a: 2"], "x-b"))
            .bad(&["X-A"]),
        case("request-del-headers")
            .plain(own)
            .set("X-A, X-C", seen(&[], "x-a"))
            .changed("X-C", seen(&["x-a: of client"], "x-b"))
            .bad(&["Host", ","]),
        case("response-set-headers")
            .plain(theirs)
            .set("X-Of-Server: mine\nX-B: 2", told(&["x-of-server: mine", "x-b: 2"], "x-of-server: one"))
            .changed("X-C: 3", told(&["x-of-server: one", "x-c: 3"], "x-b"))
            .bad(&["Connection: close"]),
        case("response-add-headers")
            .plain(theirs)
            .set("X-Of-Server: mine", told(&["x-of-server: one", "x-of-server: mine"], "x-b"))
            .changed("X-C: 3", told(&["x-of-server: one", "x-c: 3"], "x-b"))
            .bad(&[" "]),
        case("response-del-headers")
            .plain(theirs)
            .set("X-Of-Server", told(&[], "x-of-server"))
            .changed("X-Other", theirs)
            .bad(&["Transfer-Encoding"]),
        case("forwarded-for")
            .plain(forwarded(&[IS], CAME, IS))
            .set("append", forwarded(&[CAME, IS], "x-forwarded-for: 10.", IS))
            .changed("if-none", forwarded(&[CAME], IS, IS))
            .bad(&["perhaps"]),
        case("forwarded-for")
            .named("forwarded-for-never")
            .plain(forwarded(&[IS], CAME, IS))
            .set("never", forwarded(&[CAME], IS, "GET …"))
            .changed("replace", forwarded(&[IS], CAME, IS))
            .bad(&["1"]),
    ]
}

/// Where nothing is said they are an hour, for which nobody waits here.
fn timeouts() -> Vec<Case> {
    let silent = |p: &str| vec![get(format!("{p}/silent")).status(504)];
    let queued = |p: &str| vec![get(at(p)).beside_held().status(503)];
    let tunnel = |p: &str| vec![get(at(p)).tunnel_ends()];
    vec![
        // At an endpoint that takes no connection.
        case("timeout-connect").port(FULL).set("50ms", status(503)).changed("60ms", status(503)).bad(&["soon"]),
        case("timeout-server").plain(status(200)).set("50ms", silent).changed("60ms", silent).bad(&["0"]),
        case("timeout-tunnel").plain(status(200)).set("50ms", tunnel).changed("60ms", tunnel).bad(&["1w"]),
        case("timeout-queue")
            .also("maxconn-server", "1")
            .plain(status(200))
            .set("50ms", queued)
            .changed("60ms", queued)
            .bad(&["s"]),
    ]
}
