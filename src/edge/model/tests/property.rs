//! A model that lived through any events equals one that was just built from what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::support::*;
use crate::edge::ids::{Key, Kind};
use crate::edge::input::*;
use crate::edge::model::{Model, Problem};

/// What is there, by kind and name.
#[derive(Clone, Debug, Default)]
struct Cluster {
    objects: BTreeMap<(Kind, Key), Input>,
    names: BTreeMap<Arc<str>, Arc<[std::net::IpAddr]>>,
}

#[derive(Clone, Debug)]
enum Op {
    Put(Input),
    Gone(Kind, Key),
    Resolved(&'static str, Vec<&'static str>),
    Settle,
}

const HOSTS: [&str; 5] = ["h.com", "www.h.com", "*.h.com", "", "x.h.com"];
const PATHS: [&str; 5] = ["/", "/a", "/a/", "/a/b", "/.well-known/acme-challenge/t"];
const SERVICES: [&str; 4] = ["web:80", "api:http", "web:81", "none:80"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const OPTIONS: &[(&str, &str)] = &[
    ("allow-list", "10.0.0.0/8"),
    ("allow-list", "10.1.0.0/16,!10.1.1.0/24"),
    ("allow-list", "bad"),
    ("deny-list", "1.2.3.4"),
    ("auth-secret", "users"),
    ("auth-secret", "tls"),
    ("auth-url", "http://auth.example/x"),
    ("auth-url", "http://10.9.9.9/x"),
    ("auth-tls-secret", "tls"),
    ("auth-tls-verify-client", "optional"),
    ("ssl-passthrough", "true"),
    ("ssl-redirect", "false"),
    ("ssl-redirect-code", "301"),
    ("hsts", "true"),
    ("from-to-www-redirect", "true"),
    ("balance", "leastconn"),
    ("balance", "random"),
    ("affinity", "cookie"),
    ("session-cookie-name", "X"),
    ("backend-protocol", "https"),
    ("secure-verify-ca-secret", "tls"),
    ("secure-crt-secret", "tls"),
    ("health-check-path", "/up"),
    ("service-upstream", "true"),
    ("canary", "true"),
    ("canary-weight", "30"),
    ("canary-by-header", "X-C"),
    ("cors-enable", "true"),
    ("limit-rps", "5"),
    ("limit-whitelist", "10.0.0.0/8"),
    ("rewrite-target", "/$1"),
    ("rewrite-prefix", "/z"),
    ("path-type", "begin"),
    ("path-type", "regex"),
    ("default-backend", "api:80"),
    ("timeout-server", "3s"),
    ("no-such", "x"),
];

fn options() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    proptest::collection::vec(proptest::sample::select(OPTIONS), 0..4)
}

fn namespace() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMESPACES[..])
}

fn ingress() -> impl Strategy<Value = Input> {
    let path = (0..5_usize, 0..5_usize, 0..3_u8, 0..4_usize);
    let tls = proptest::option::of((0..5_usize, proptest::sample::select(&["tls", "tls2", ""][..])));
    let class = proptest::sample::select(
        &[Some("waystation"), Some("waystation"), Some("waystation"), Some("other"), None][..],
    );
    let paths = proptest::collection::vec(path, 0..4);
    let default = proptest::option::weighted(0.2, 0..4_usize);
    (namespace(), 0..3_u8, 0..3_i64, paths, tls, class, options(), default).prop_map(
        |(namespace, number, created, paths, tls, class, options, default)| {
            let mut out = ing(&format!("{namespace}/i{number}"), created).class(class, None).say(&options);
            for (host, path, kind, service) in paths {
                let kind = [PathType::Exact, PathType::Prefix, PathType::ImplementationSpecific][usize::from(kind)];
                out = out.path_of(HOSTS[host], kind, PATHS[path], SERVICES[service]);
            }
            if let Some((host, secret)) = tls {
                out = out.tls(&[HOSTS[host]][usize::from(HOSTS[host].is_empty())..], secret);
            }
            if let Some(service) = default {
                out = out.default(SERVICES[service]);
            }
            Input::Ingress(out.0.into())
        },
    )
}

fn service() -> impl Strategy<Value = Input> {
    (namespace(), proptest::sample::select(&["web", "api"][..]), 0..3_u8, options()).prop_map(
        |(namespace, name, form, options)| {
            let mut out =
                svc(&format!("{namespace}/{name}"), &[("http", 80), ("other", 81)][..usize::from(form.clamp(1, 2))]);
            if form == 0 {
                (out.external_name, out.cluster_ip) = (Some("db.example".into()), None);
            }
            let own: Vec<(String, &str)> = options.iter().map(|(k, v)| (format!("waystation.dev/{k}"), *v)).collect();
            out.annotations = annotations(&own.iter().map(|(k, v)| (k.as_str(), *v)).collect::<Vec<_>>());
            Input::Service(out.into())
        },
    )
}

fn endpoints() -> impl Strategy<Value = Input> {
    const AT: [&str; 6] = ["10.0.0.1", "10.0.0.2=drain", "10.0.0.3=unready", "fd00::1", "127.0.0.1", "10.0.0.1=drain"];
    let at = proptest::sample::subsequence(&AT[..], 0..5);
    (namespace(), 0..2_u8, proptest::sample::select(&["web", "api"][..]), at, any::<bool>()).prop_map(
        |(namespace, number, service, at, other)| {
            let ports: &[(&str, u16)] = if other { &[("http", 8080), ("other", 9090)] } else { &[("http", 8081)] };
            Input::EndpointSlice(slice(&format!("{namespace}/s{number}"), service, ports, &at).into())
        },
    )
}

fn any_secret() -> impl Strategy<Value = Input> {
    let name = proptest::sample::select(&["tls", "tls2", "users"][..]);
    (namespace(), name, 0..4_u8).prop_map(|(namespace, name, form)| {
        let key = format!("{namespace}/{name}");
        let (cert, private) = (pem("CERTIFICATE", "ONE"), pem("PRIVATE KEY", &form.to_string()));
        let made = match form {
            0 => secret(&key, &[("tls.crt", "junk")]),
            1 => secret(&key, &[("auth", "ann:{SHA}x"), ("tls.crt", &cert), ("tls.key", &private), ("ca.crt", &cert)]),
            _ => secret(&key, &[("tls.crt", &cert), ("tls.key", &private), ("ca.crt", &pem("CERTIFICATE", "CA"))]),
        };
        Input::Secret(made.into())
    })
}

fn any_config() -> impl Strategy<Value = Input> {
    (any::<bool>(), any::<bool>(), any::<bool>(), options(), 0..3_u8).prop_map(
        |(any_owner, external, passthrough, options, form)| {
            let mut out = config();
            (out.any_owner, out.external_name, out.listeners.passthrough) = (any_owner, external, passthrough);
            out.options = annotations(&options);
            if form == 1 {
                (out.allowed, out.default_certificate) = (Allowed::Same, Some(key("edge/tls")));
            }
            if form == 2 {
                out.default_backend = Some(("web".into(), Port::Number(80)));
                let test = LabelTest::In(["yes".into()].into());
                out.allowed = Allowed::Selector(vec![Requirement { key: "edge".into(), test }]);
            }
            Input::RouterConfig(out.into())
        },
    )
}

fn other() -> impl Strategy<Value = Input> {
    let class = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(ours, here, default)| {
        let controller = if ours { "waystation.dev/edge" } else { "x" }.into();
        let parameters = here.then(|| key("edge/main"));
        Input::IngressClass(IngressClass { name: "other".into(), controller, parameters, default }.into())
    });
    let label = (namespace(), any::<bool>()).prop_map(|(namespace, yes)| {
        let value = if yes { "yes" } else { "no" };
        Input::Namespace(namespace.into(), Arc::new([("edge".to_owned(), value.to_owned())].into()))
    });
    prop_oneof![class, label]
}

fn op() -> impl Strategy<Value = Op> {
    let put = prop_oneof![
        6 => ingress(),
        3 => service(),
        4 => endpoints(),
        3 => any_secret(),
        1 => any_config(),
        1 => other(),
    ];
    let kind = proptest::sample::select(
        &[Kind::Ingress, Kind::Service, Kind::EndpointSlice, Kind::Secret, Kind::IngressClass][..],
    );
    let name = proptest::sample::select(&["i0", "i1", "i2", "web", "api", "s0", "s1", "tls", "tls2", "users"][..]);
    let gone = (kind, namespace(), name).prop_map(|(kind, namespace, name)| match kind {
        Kind::IngressClass => Op::Gone(kind, key("other")),
        _ => Op::Gone(kind, Key::new(namespace, name)),
    });
    let at = proptest::sample::subsequence(vec!["10.7.0.1", "10.7.0.2", "127.0.0.1"], 0..3);
    let resolved = (proptest::sample::select(&["db.example", "auth.example"][..]), at)
        .prop_map(|(name, at)| Op::Resolved(name, at));
    prop_oneof![6 => put.prop_map(Op::Put), 3 => gone, 1 => resolved, 4 => Just(Op::Settle)]
}

fn name_of(input: &Input) -> (Kind, Key) {
    match input {
        Input::RouterConfig(o) => (Kind::RouterConfig, o.meta.key.clone()),
        Input::Ingress(o) => (Kind::Ingress, o.meta.key.clone()),
        Input::Service(o) => (Kind::Service, o.meta.key.clone()),
        Input::EndpointSlice(o) => (Kind::EndpointSlice, o.key.clone()),
        Input::Secret(o) => (Kind::Secret, o.meta.key.clone()),
        Input::IngressClass(o) => (Kind::IngressClass, Key::new("", o.name.clone())),
        Input::Namespace(name, _) => (Kind::Namespace, Key::new("", name.clone())),
        other => panic!("{other:?} is no object"),
    }
}

/// Settles until every question is answered from what is there.
fn settle(world: &mut World, cluster: &Cluster) {
    loop {
        world.settle();
        let names = world.last.names.clone();
        for (name, now) in &names {
            if *now {
                let at = cluster.names.get(name).cloned().unwrap_or_else(|| [].into());
                world.model.apply(Input::Resolved(name.clone(), at));
            }
        }
        if names.is_empty() {
            return;
        }
    }
}

fn fresh(cluster: &Cluster) -> World {
    let mut model = Model::new(key("edge/main"));
    let secrets = cluster.objects.values().filter_map(|input| match input {
        Input::Secret(secret) => Some((secret.meta.key.clone(), (**secret).clone())),
        _ => None,
    });
    let secrets = secrets.collect();
    for input in cluster.objects.values() {
        model.apply(input.clone());
    }
    for kind in Kind::ALL {
        model.apply(Input::Synced(kind));
    }
    let mut world = World { model, held: BTreeMap::new(), secrets, last: Default::default() };
    settle(&mut world, cluster);
    world
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut cluster = Cluster::default();
    cluster.objects.insert((Kind::RouterConfig, key("edge/main")), Input::RouterConfig(config().into()));
    let mut world = World::new(config());
    for op in ops {
        match op {
            Op::Put(input) => {
                cluster.objects.insert(name_of(&input), input.clone());
                if let Input::Secret(secret) = &input {
                    world.secrets.insert(secret.meta.key.clone(), (**secret).clone());
                }
                world.model.apply(input);
            }
            Op::Gone(kind, key) => {
                if cluster.objects.remove(&(kind, key.clone())).is_some() {
                    world.secrets.remove(&key);
                    world.model.apply(Input::Vanished(kind, key));
                }
            }
            Op::Resolved(name, at) => {
                let at: Arc<[_]> = at.into_iter().map(ip).collect();
                cluster.names.insert(name.into(), at.clone());
                world.model.apply(Input::Resolved(name.into(), at));
            }
            Op::Settle => settle(&mut world, &cluster),
        }
    }
    settle(&mut world, &cluster);
    let expected = fresh(&cluster);
    prop_assert_eq!(&world.held, &expected.held);
    let problems = |world: &World| world.model.problems().cloned().collect::<Vec<Problem>>();
    prop_assert_eq!(problems(&world), problems(&expected));
    let served = |world: &World| world.model.served().cloned().collect::<Vec<Key>>();
    prop_assert_eq!(served(&world), served(&expected));
    // Nothing is left of what was there when all is gone.
    for (kind, key) in cluster.objects.keys().filter(|(kind, _)| *kind != Kind::RouterConfig) {
        world.model.apply(Input::Vanished(*kind, key.clone()));
    }
    world.secrets.clear();
    world.model.apply(Input::RouterConfig(config().into()));
    settle(&mut world, &Cluster::default());
    prop_assert!(world.held.is_empty(), "left: {:?}", world.held);
    prop_assert_eq!(world.model.problems().count(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|c| c.parse().ok()).unwrap_or(96),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_model_that_lived_through_anything_is_as_one_that_was_just_built(ops in proptest::collection::vec(op(), 1..60)) {
        run(ops)?;
    }
}
