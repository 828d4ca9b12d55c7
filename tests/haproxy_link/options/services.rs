//! Options of Services.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use waystation_kit::pki::Leaf;

use super::Props;
use super::cases::{Case, case, path_or_root as at, seen, status};
use crate::asking::get;

pub fn cases(props: &Props) -> Vec<Case> {
    [protocols(props), cookies(), others()].into_iter().flatten().collect()
}

fn protocols(props: &Props) -> Vec<Case> {
    let plain = |p: &str| vec![get(at(p)).status(200).seen("http 1").not_seen("tls ")];
    let grpc = |p: &str| {
        let call = get(at(p)).second().with("content-type", "application/grpc").with("te", "trailers");
        vec![
            get(at(p)).status(200).seen("http 2"),
            call.chunked(5).status(200).seen("5 bytes").trailer("grpc-status", "0"),
        ]
    };
    let shown = |leaf: &Leaf| {
        let der = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap();
        let line = format!("tls - http/1.1 {}", STANDARD.encode(der));
        move |p: &str| vec![get(at(p)).status(200).seen(line.clone())]
    };
    let secure = |option| case(option).also("secure-backends", "true");
    // A name that is in their certificate, and one that is not.
    let verified = |option, well: u16| {
        secure(option)
            .plain(status(200))
            .set("behind.test", status(well))
            .changed("elsewhere.test", status(503))
            .bad(&["a b"])
    };
    vec![
        case("backend-protocol")
            .plain(plain)
            .set("h2c", |p| vec![get(at(p)).status(200).seen("http 2").not_seen("tls ")])
            .changed("https", seen("tls - http/1.1 -"))
            .bad(&["fcgi"]),
        case("backend-protocol")
            .named("backend-protocol-grpc")
            .plain(plain)
            .set("grpc", grpc)
            .changed("grpcs", grpc)
            .bad(&["http/3"]),
        case("backend-protocol")
            .named("backend-protocol-h2")
            .plain(plain)
            .set("https-h2", |p| vec![get(at(p)).status(200).seen("tls - h2 -").seen("http 2")])
            .changed("http", plain)
            .bad(&[""]),
        case("secure-backends")
            .plain(plain)
            .set("true", seen("tls - http/1.1 -"))
            .changed("false", plain)
            .bad(&["perhaps"]),
        secure("secure-verify-ca-secret")
            .plain(seen("tls - http/1.1 -"))
            .set("ca", seen("tls - http/1.1 -"))
            .changed("other-ca", status(503))
            .bad(&["../x", "absent", "broken", "elsewhere/ca"]),
        secure("secure-crt-secret")
            .plain(seen("tls - http/1.1 -"))
            .set("ann", shown(&props.ann))
            .changed("ann-too", shown(&props.ann_too))
            .bad(&["../x", "absent", "broken", "elsewhere/ann"]),
        secure("secure-sni")
            .plain(seen("tls - http/1.1 -"))
            .set("behind.test", seen("tls behind.test http/1.1 -"))
            .changed("host", seen("tls HOST http/1.1 -"))
            .bad(&["a b"]),
        verified("secure-verify-hostname", 200).also("secure-verify-ca-secret", "ca"),
        // HAProxy verifies the name that it asks by: another one is not to be had beside it.
        verified("secure-verify-hostname", 200)
            .named("secure-verify-hostname-asked")
            .also("secure-verify-ca-secret", "ca")
            .also("secure-sni", "behind.test"),
        // And none without an authority.
        verified("secure-verify-hostname", 503).named("secure-verify-hostname-alone"),
        verified("secure-sni", 200).named("secure-sni-verified").also("secure-verify-ca-secret", "ca"),
        case("proxy-protocol")
            .plain(|p| vec![get(at(p)).status(200).not_seen("proxy")])
            .set("v1", |p| {
                vec![get(at(p)).from([127, 0, 0, 9]).status(200).seen("proxy v1 TCP4 127.0.0.9 127.0.0.1 …")]
            })
            .changed("v2", |p| vec![get(at(p)).from([127, 0, 0, 9]).status(200).seen("proxy v2 TCP4 127.0.0.9")])
            .bad(&["v3"]),
    ]
}

fn cookies() -> Vec<Case> {
    let sticks = |name: &'static str, attributes: &'static str| {
        move |p: &str| vec![get(at(p)).status(200).sticks(name, attributes)]
    };
    let spreads = |p: &str| vec![get(at(p)).status(200).endpoints(3).not_told("set-cookie")];
    let usual = sticks("WAYSTATION", "path=/; HttpOnly");
    let with = |option| case(option).also("affinity", "cookie").endpoints(3).plain(usual);
    vec![
        case("affinity").endpoints(3).plain(spreads).set("cookie", usual).changed("none", spreads).bad(&["source"]),
        with("session-cookie-name")
            .set("SRV", sticks("SRV", "path=/; HttpOnly"))
            .changed("SRV2", sticks("SRV2", "path=/; HttpOnly"))
            .bad(&["a=b"]),
        with("session-cookie-path")
            .set("/app", sticks("WAYSTATION", "path=/; HttpOnly; path=/app"))
            .changed("/", usual)
            .bad(&["app"]),
        with("session-cookie-domain")
            .set("opt.test", sticks("WAYSTATION", "path=/; HttpOnly; domain=opt.test"))
            .changed("b.test", sticks("WAYSTATION", "path=/; HttpOnly; domain=b.test"))
            .bad(&["a b"]),
        with("session-cookie-samesite")
            .set("lax", sticks("WAYSTATION", "path=/; HttpOnly; SameSite=Lax"))
            .changed("none", sticks("WAYSTATION", "path=/; HttpOnly; SameSite=None; Secure"))
            .bad(&["perhaps"]),
        with("session-cookie-secure")
            .set("true", sticks("WAYSTATION", "path=/; HttpOnly; Secure"))
            .changed("false", usual)
            .bad(&["perhaps"]),
        with("session-cookie-max-age")
            .set("60", sticks("WAYSTATION", "path=/; HttpOnly; Max-Age=60"))
            .changed("61", sticks("WAYSTATION", "path=/; HttpOnly; Max-Age=61"))
            .bad(&["soon"]),
    ]
}

/// The first of the paths is well, the other one is not.
fn tried(name: &str, well: &'static str, ill: &'static str) -> Case {
    case("health-check-path")
        .named(&format!("health-check-{name}"))
        .also("health-check-interval", "50ms")
        .plain(status(200))
        .set(ill, |p| vec![get(at(p)).status(503).soon()])
        .changed(well, |p| vec![get(at(p)).status(200).soon()])
        .bad(&["no path"])
}

fn others() -> Vec<Case> {
    let endpoints = |count| move |p: &str| vec![get(at(p)).status(200).endpoints(count)];
    let balanced = || case("balance").endpoints(3).plain(endpoints(3));
    let own = |p: &str| vec![get(at(p)).status(200).not_seen("at 10.77.230.1")];
    vec![
        balanced().set("source", endpoints(1)).changed("first", endpoints(1)).bad(&["hdr(Host)"]),
        balanced().named("balance-uri").set("uri", endpoints(1)).changed("roundrobin", endpoints(3)).bad(&["none"]),
        // Who has the fewest when nobody has any, and who is drawn, is anybody's guess.
        balanced().named("balance-random").set("leastconn", status(200)).changed("random", status(200)).bad(&[""]),
        case("service-upstream")
            .plain(own)
            .set("true", seen("at 10.77.230.1:80"))
            .changed("false", own)
            .bad(&["perhaps"]),
        case("maxconn-server")
            .also("timeout-queue", "100ms")
            .plain(|p| vec![get(at(p)).beside_held().status(200)])
            .set("1", |p| vec![get(at(p)).status(200), get(at(p)).beside_held().status(503)])
            .changed("2", |p| vec![get(at(p)).beside_held().status(200)])
            .bad(&["-1"]),
        tried("path", "/status/399", "/status/500"),
        // They are tried as they are asked otherwise.
        tried("tls", "/needs/sni-behind.test/http-1/proxy--", "/needs/sni--")
            .also("secure-backends", "true")
            .also("secure-verify-ca-secret", "ca")
            .also("secure-sni", "behind.test"),
        tried("tls-host", "/needs/sni--/http-1", "/needs/sni-localhost")
            .also("secure-backends", "true")
            .also("secure-sni", "host"),
        tried("h2c", "/needs/sni--/http-2", "/needs/http-1").also("backend-protocol", "h2c"),
        tried("grpcs", "/needs/sni--/http-2", "/needs/http-1").also("backend-protocol", "grpcs"),
        tried("proxied", "/needs/sni--/proxy-v2", "/needs/proxy--").also("proxy-protocol", "v2"),
        case("health-check-host")
            .also("health-check-interval", "50ms")
            .also("health-check-path", "/needs/host-up.test")
            .plain(|p| vec![get(at(p)).status(503).soon()])
            .set("up.test", |p| vec![get(at(p)).status(200).soon()])
            .changed("down.test", |p| vec![get(at(p)).status(503).soon()])
            .bad(&["a b"]),
    ]
}
