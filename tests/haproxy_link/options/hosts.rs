//! Options of hosts.

use super::Props;
use super::cases::{Case, case, path_or_root as at};
use crate::asking::get;

pub fn cases(props: &Props) -> Vec<Case> {
    let hsts = |value: &'static str| {
        move |p: &str| {
            let told = get(at(p)).tls().status(200).told(format!("strict-transport-security: {value}"));
            vec![told, get(at(p)).status(308).not_told("strict-transport-security")]
        }
    };
    let with_hsts = |option| case(option).tls().also("hsts", "true").plain(hsts("max-age=15768000"));
    let no_hsts = |p: &str| vec![get(at(p)).tls().status(200).not_told("strict-transport-security")];
    let anyone = |p: &str| vec![get(at(p)).tls().status(200), get(at(p)).status(308)];
    let nobody = |p: &str| vec![get(at(p)).tls().status(503)];
    let (ann, bob) = (props.ann.clone(), props.bob.clone());
    // Who has a certificate of the one authority, and who of the other.
    let of = move |ours: bool| {
        let (good, bad) = if ours { (ann.clone(), bob.clone()) } else { (bob.clone(), ann.clone()) };
        move |p: &str| {
            vec![
                get(at(p)).tls().broken(),
                get(at(p)).client(&good).status(200).not_seen("x-ssl-client"),
                get(at(p)).client(&good).second().status(200),
                get(at(p)).client(&bad).broken(),
                // The name in TLS is not the host: nobody was asked for a certificate.
                get(at(p)).sni("elsewhere.opt.test").host("HOST").status(421),
                get(at(p)).status(308),
            ]
        }
    };
    let ann = props.ann.clone();
    let with_ann = move |seen: bool| {
        let ann = ann.clone();
        move |p: &str| {
            let ask =
                get(at(p)).client(&ann).with("X-SSL-Client-CN", "eve").status(200).not_seen("x-ssl-client-cn: eve");
            vec![match seen {
                true => ask
                    .seen("x-ssl-client-cn: ann")
                    .seen("x-ssl-client-dn: …")
                    .seen("x-ssl-client-sha1: …")
                    .seen("x-ssl-client-cert: …"),
                false => ask.not_seen("x-ssl-client"),
            }]
        }
    };
    let ann = props.ann.clone();
    let optional = move |p: &str| vec![get(at(p)).tls().status(200), get(at(p)).client(&ann).status(200)];
    vec![
        case("ssl-passthrough")
            .tls()
            .alone()
            .plain(|_| vec![get("/").tls().status(200).not_seen("tls "), get("/").status(308)])
            .set("true", |_| {
                vec![
                    get("/x").tls().status(200).seen("tls HOST http/1.1 -").seen("GET /x"),
                    get("/").second().status(200).seen("tls HOST h2 -"),
                    get("/x").status(308).told("location: https://HOST/x"),
                ]
            })
            .changed("false", |_| vec![get("/").tls().status(200).not_seen("tls ")])
            .bad(&["perhaps"]),
        case("hsts")
            .tls()
            .plain(no_hsts)
            .set("true", hsts("max-age=15768000"))
            .changed("false", no_hsts)
            .bad(&["perhaps"]),
        with_hsts("hsts-max-age").set("60", hsts("max-age=60")).changed("61", hsts("max-age=61")).bad(&["soon"]),
        with_hsts("hsts-include-subdomains")
            .set("true", hsts("max-age=15768000; includeSubDomains"))
            .changed("false", hsts("max-age=15768000"))
            .bad(&["2"]),
        with_hsts("hsts-preload")
            .set("true", hsts("max-age=15768000; preload"))
            .changed("false", hsts("max-age=15768000"))
            .bad(&["2"]),
        case("auth-tls-secret")
            .tls()
            .plain(anyone)
            .set("ca", of(true))
            .changed("other-ca", of(false))
            .bad(&["../x", "absent", "broken", "elsewhere/ca"])
            .denied(nobody),
        case("auth-tls-verify-client")
            .tls()
            .also("auth-tls-secret", "ca")
            .plain(|p| vec![get(at(p)).tls().broken()])
            .set("optional", optional)
            .changed("off", |p| vec![get(at(p)).tls().status(200)])
            .bad(&["optional_no_ca"])
            .denied(nobody),
        case("auth-tls-cert-header")
            .tls()
            .also("auth-tls-secret", "ca")
            .plain(with_ann(false))
            .set("true", with_ann(true))
            .changed("false", with_ann(false))
            .bad(&["perhaps"]),
        case("from-to-www-redirect")
            .alone()
            .plain(|_| vec![get("/x").host("www.HOST").status(404), get("/x").status(200)])
            .set("true", |_| {
                let away = get("/x?y=z").host("www.HOST").status(308).told("location: //HOST/x?y=z");
                vec![away, get("/x").status(200)]
            })
            .changed("false", |_| vec![get("/x").host("www.HOST").status(404)])
            .bad(&["perhaps"]),
    ]
}
