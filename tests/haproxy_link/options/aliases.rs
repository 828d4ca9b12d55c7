//! Keys of other controllers go through the cases of the options that they mean: what the model decides of one is what it
//! decides of ours, so that all that the cases show with a real HAProxy holds for each of them. What `docs/options.md`
//! says to differ differs so, and in nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use waystation::edge::ids::Kind;
use waystation::edge::input::{Input, RouterConfig};
use waystation::edge::model::Model;
use waystation::edge::options::{Alias, Definition, Scope, TABLE};
use waystation::edge::wanted::{Slot, Value};
use waystation_kit::pki::Authority;

use super::cases::{Case, case};
use super::{Props, common, hosts, ingress, paths, served, services};
use crate::edge::Edge;
use crate::site::{self, Objects};

/// Words that others use for values.
const WORDS: &str = "true false on off h1 h2 h1-ssl h2-ssl grpc grpcs HTTP HTTPS GRPC GRPCS round_robin least_conn ip_hash \
                     $request_uri $remote_addr proxy proxy-v2 basic-auth basic random(2)";

/// What a note of the table means.
enum Differs {
    /// Nothing said is as this value of ours, not as theirs.
    Default(&'static str),
    /// This value of theirs is as that of ours.
    Is(&'static str, &'static str),
    /// These cannot be said: they are left out, or deny where the option protects.
    Not(&'static [&'static str]),
    /// This key of theirs means nothing.
    Unknown(&'static str),
    /// It is in how requests are served by our own option: shown by the cases themselves.
    Served,
}

use Differs::{Default as ByDefault, Is, Not, Served, Unknown};

/// By prefix and key: all that have a note.
const DIFFERS: &[(&str, Differs)] = &[
    ("haproxy-ingress.github.io/hsts", ByDefault("false")),
    ("haproxy-ingress.github.io/auth-tls-verify-client", Not(&["optional_no_ca"])),
    ("nginx.ingress.kubernetes.io/auth-tls-verify-client", Not(&["optional_no_ca"])),
    ("nginx.ingress.kubernetes.io/auth-tls-pass-certificate-to-upstream", Served),
    ("haproxy-ingress.github.io/ssl-redirect-code", ByDefault("308")),
    ("haproxy.org/ssl-redirect-code", ByDefault("308")),
    ("haproxy.org/request-redirect", Is("x.y", "https://x.y/")),
    ("haproxy-ingress.github.io/path-type", ByDefault("prefix")),
    ("nginx.ingress.kubernetes.io/use-regex", Is("true", "regex")),
    ("haproxy.org/path-rewrite", Not(&["/a/(.*) /b/\\1"])),
    ("nginx.ingress.kubernetes.io/default-backend", Served),
    ("nginx.ingress.kubernetes.io/auth-type", Not(&["digest"])),
    ("nginx.ingress.kubernetes.io/auth-url", Not(&["http://$host/", "https://auth.test/?u=${escaped}"])),
    ("nginx.ingress.kubernetes.io/auth-signin", Served),
    ("haproxy-ingress.github.io/auth-headers-succeed", Not(&["X-*", "*"])),
    ("nginx.ingress.kubernetes.io/limit-rps", Served),
    ("haproxy.org/rate-limit-period", Not(&["10s", "1h"])),
    ("nginx.ingress.kubernetes.io/limit-rpm", Served),
    ("haproxy-ingress.github.io/limit-connections", Served),
    ("nginx.ingress.kubernetes.io/limit-connections", Served),
    ("haproxy-ingress.github.io/proxy-body-size", Served),
    ("nginx.ingress.kubernetes.io/proxy-body-size", ByDefault("0")),
    ("haproxy.org/cors-allow-origin", Not(&["^https?://x\\.y$"])),
    ("nginx.ingress.kubernetes.io/cors-allow-credentials", ByDefault("false")),
    ("nginx.ingress.kubernetes.io/cors-max-age", ByDefault("86400")),
    ("haproxy-ingress.github.io/headers", Not(&["X-A: %[src]"])),
    ("haproxy.org/request-set-header", Not(&["X-A %[src]"])),
    ("haproxy.org/response-set-header", Not(&["X-A %[src]"])),
    ("haproxy.org/forwarded-for", ByDefault("replace")),
    ("nginx.ingress.kubernetes.io/proxy-read-timeout", Unknown("nginx.ingress.kubernetes.io/proxy-send-timeout")),
    ("haproxy-ingress.github.io/backend-protocol", Not(&["fcgi"])),
    ("nginx.ingress.kubernetes.io/backend-protocol", Not(&["AUTO_HTTP", "FCGI"])),
    ("nginx.ingress.kubernetes.io/proxy-ssl-secret", Served),
    ("haproxy-ingress.github.io/session-cookie-name", ByDefault("WAYSTATION")),
    ("nginx.ingress.kubernetes.io/session-cookie-name", ByDefault("WAYSTATION")),
    ("haproxy-ingress.github.io/balance-algorithm", ByDefault("roundrobin")),
    ("haproxy.org/load-balance", Not(&["hdr(x)", "url_param id", "rdp-cookie"])),
    ("nginx.ingress.kubernetes.io/load-balance", Is("ewma", "leastconn")),
    ("nginx.ingress.kubernetes.io/upstream-hash-by", Not(&["$cookie_x"])),
    ("haproxy-ingress.github.io/proxy-protocol", Not(&["v2-ssl", "v2-ssl-cn"])),
    ("haproxy.org/send-proxy-protocol", Not(&["proxy-v2-ssl", "proxy-v2-ssl-cn"])),
    ("haproxy.org/pod-maxconn", Served),
    ("haproxy.org/check", ByDefault("false")),
];

/// Values of ours for which a key of theirs, whose words are others, has none.
const UNSAID: &[(&str, &str)] = &[
    ("haproxy-ingress.github.io/session-cookie-same-site", "lax"),
    ("haproxy.org/auth-type", "none"),
    ("haproxy.org/cookie-persistence", "none"),
    ("haproxy.org/forwarded-for", "if-none replace"),
    ("haproxy.org/request-redirect", "/z"),
    ("haproxy.org/server-proto", "grpc grpcs https https-h2"),
    ("nginx.ingress.kubernetes.io/auth-type", "none"),
    ("nginx.ingress.kubernetes.io/backend-protocol", "h2c https-h2"),
    ("nginx.ingress.kubernetes.io/force-ssl-redirect", "false true"),
    ("nginx.ingress.kubernetes.io/load-balance", "first random uri"),
    ("nginx.ingress.kubernetes.io/upstream-hash-by", "first leastconn random roundrobin"),
    ("nginx.ingress.kubernetes.io/use-regex", "begin exact"),
];

/// What makes no difference in any case: they can say only what `auth-secret` alone says as well.
const IDLE: &[&str] = &["haproxy.org/auth-type", "nginx.ingress.kubernetes.io/auth-type"];

/// What is decided, and what is told of which object.
type Outcome = (BTreeMap<Slot, Value>, BTreeSet<String>);

/// Where an option is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Ingress,
    Service,
}

/// What there is without any case.
struct Bench {
    config: RouterConfig,
    objects: Vec<Input>,
    cases: Vec<Case>,
}

impl Bench {
    fn new() -> Result<Self> {
        let edge = Edge::new()?;
        let (authority, other) = (Authority::new("one")?, Authority::new("other")?);
        let props = Props {
            ann: authority.client("ann", None)?,
            ann_too: authority.client("ann too", None)?,
            bob: other.client("bob", None)?,
        };
        let objects = common(&props, &authority.certificate(), &other.certificate());
        let cases = [hosts::cases(&props), paths::cases(), services::cases(&props), singles()];
        Ok(Self { config: edge.config.clone(), objects, cases: cases.into_iter().flatten().collect() })
    }

    /// A model of one case, whose own Ingress or Service says that.
    fn outcome(&self, case: &Case, by: By, said: &[(&str, &str)]) -> Outcome {
        let mut objects: Objects =
            self.objects.iter().chain(&served(case, 1)).map(|o| (site::place(o), o.clone())).collect();
        let also = case.also.iter().copied();
        let all: Vec<_> = also.chain(said.iter().copied().filter(|_| by == By::Ingress)).collect();
        let mut put = |input: Input| objects.insert(site::place(&input), input);
        put(Input::Ingress(ingress(case, &case.name, 2, &case.root, &all).into()));
        if case.option.starts_with("canary") {
            // Of which it takes a share.
            let mut main = ingress(case, "main", 1, &case.root, &[]);
            main.rules[0].paths = vec![site::path(&case.root, case.kind, "spare")];
            put(Input::Ingress(main.into()));
        }
        if by == By::Service {
            let mut service = site::service(&case.name);
            service.cluster_ip = Some("10.77.230.1".parse().unwrap());
            service.annotations = site::annotations(said.iter().copied());
            put(Input::Service(service.into()));
        }
        let mut model = Model::new(self.config.meta.key.clone());
        model.apply(Input::RouterConfig(Arc::new(self.config.clone())));
        Kind::ALL.into_iter().for_each(|kind| model.apply(Input::Synced(kind)));
        objects.iter().filter(|((kind, _), _)| *kind != Kind::Secret).for_each(|(_, o)| model.apply(o.clone()));
        let names = [("auth.test".into(), ["10.77.241.2".parse().unwrap()].into())].into();
        site::settled(&mut model, &objects, &names);
        // Words for people name the key.
        let told = model.problems().map(|p| format!("{:?} {} {:?}", p.object.kind, p.object.key, p.reason)).collect();
        (model.wanted().slots().clone(), told)
    }

    /// The first case of an option.
    fn case(&self, row: &Definition) -> Result<&Case> {
        self.cases.iter().find(|case| case.option == row.name).with_context(|| format!("no case of {}", row.name))
    }
}

/// Options whose traffic is shown by tests of their own.
fn singles() -> Vec<Case> {
    let none = |_: &str| Vec::new();
    let with = |option, set, changed, bad: &[&'static str]| case(option).set(set, none).changed(changed, none).bad(bad);
    let canary = |option, set, changed, bad| with(option, set, changed, bad).also("canary", "true");
    let checked = |option, set, changed| with(option, set, changed, &["x"]).also("health-check", "true");
    vec![
        with("canary", "true", "false", &["perhaps"]).also("canary-weight", "10"),
        canary("canary-weight", "10", "20", &["-1"]),
        canary("canary-weight-total", "1000", "200", &["0"]).also("canary-weight", "10"),
        canary("canary-by-header", "X-Canary", "X-Other", &["a b"]),
        canary("canary-by-header-value", "yes", "maybe", &["\u{7}"]).also("canary-by-header", "X-Canary"),
        canary("canary-by-cookie", "canary", "other", &["a=b"]),
        with("maxqueue-server", "3", "4", &["-1"]),
        with("health-check", "true", "false", &["perhaps"]),
        checked("health-check-interval", "1s", "3s"),
        checked("health-check-rise-count", "4", "5"),
        checked("health-check-fall-count", "4", "5"),
    ]
}

fn key_of(alias: &Alias) -> String {
    format!("{}{}", alias.prefix.as_str(), alias.key)
}

/// Every alias with the option that it means.
fn aliases() -> impl Iterator<Item = (&'static Definition, &'static Alias)> {
    TABLE.iter().flat_map(|row| row.aliases.iter().map(move |alias| (row, alias)))
}

/// A key and its value, in our words: it may mean several options. What cannot be converted stays: it is wrong in both.
fn ours(key: &str, value: &str) -> Vec<(&'static str, String)> {
    let all = aliases().filter(|(_, alias)| key_of(alias) == key);
    all.map(|(row, alias)| (row.name, (alias.convert)(value.trim()).unwrap_or_else(|_| value.to_owned())))
        // Of some values it has nothing to say.
        .filter(|(_, converted)| !converted.is_empty() || value.trim().is_empty())
        .collect()
}

/// A value in the words of an alias.
fn spelt<'a>(alias: &Alias, value: &'a str) -> Option<&'a str> {
    let mut words = [value].into_iter().chain(WORDS.split_whitespace());
    words.find(|word| (alias.convert)(word).as_deref() == Ok(value))
}

fn same(what: &str, theirs: &Outcome, ours: &Outcome) -> Result<()> {
    let of = |a: &Outcome, b: &Outcome| {
        a.0.iter().filter(|(slot, value)| b.0.get(slot) != Some(value)).map(|(s, v)| format!("{s:?} {v:?}")).collect()
    };
    let (only_theirs, only_ours): (Vec<String>, Vec<String>) = (of(theirs, ours), of(ours, theirs));
    ensure!(only_theirs == only_ours, "{what}: theirs {only_theirs:#?}, ours {only_ours:#?}");
    ensure!(theirs.1 == ours.1, "{what}: told of theirs {:?}, of ours {:?}", theirs.1, ours.1);
    Ok(())
}

#[test]
fn every_alias_comes_to_what_our_own_key_comes_to() -> Result<()> {
    let bench = Bench::new()?;
    let (mut wrong, mut unsaid, mut shown) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (row, alias) in aliases() {
        let key = key_of(alias);
        for case in bench.cases.iter().filter(|case| case.option == row.name) {
            let places = if row.scope == Scope::Host { &[By::Ingress][..] } else { &[By::Ingress, By::Service] };
            for by in places {
                let plain = bench.outcome(case, *by, &[]);
                let good = [case.set.value, case.changed.value].map(|value| (spelt(alias, value), value, true));
                // Of what is wrong in our words, theirs may be right.
                let bad = case.bad.iter().map(|value| (Some(*value), *value, false));
                for (said, value, right) in good.into_iter().chain(bad) {
                    let Some(said) = said else {
                        unsaid.insert((key.clone(), value));
                        continue;
                    };
                    let own = ours(&key, said);
                    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    let (theirs, ours) = (bench.outcome(case, *by, &[(&key, said)]), bench.outcome(case, *by, &own));
                    let what = format!("{key}: {said:?} by {by:?} in {}", case.name);
                    wrong.extend(same(&what, &theirs, &ours).err().map(|error| error.to_string()));
                    if right && theirs.0 != plain.0 {
                        shown.insert(key.clone());
                    }
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let idle: BTreeSet<String> = aliases().map(|(_, alias)| key_of(alias)).filter(|key| !shown.contains(key)).collect();
    ensure!(idle.iter().eq(IDLE), "these make no difference in any case: {idle:?}");
    let known = UNSAID.iter().flat_map(|(key, values)| values.split(' ').map(|value| ((*key).to_owned(), value)));
    let known: BTreeSet<(String, &str)> = known.collect();
    ensure!(unsaid == known, "these cannot be said: {unsaid:#?}");
    Ok(())
}

#[test]
fn what_is_said_to_differ_differs_so() -> Result<()> {
    let bench = Bench::new()?;
    let noted: BTreeSet<String> = aliases().filter(|(_, a)| !a.differs.is_empty()).map(|(_, a)| key_of(a)).collect();
    let known: BTreeSet<String> = DIFFERS.iter().map(|(key, _)| (*key).to_owned()).collect();
    ensure!(noted == known, "of these not both say something: {:?}", noted.symmetric_difference(&known));
    for (key, differs) in DIFFERS {
        let find = |(_, alias): &(&Definition, &Alias)| key_of(alias) == *key && !alias.differs.is_empty();
        let (row, _) = aliases().find(find).with_context(|| (*key).to_owned())?;
        let case = bench.case(row)?;
        let outcome = |said: &[(&str, &str)]| bench.outcome(case, By::Ingress, said);
        let plain = outcome(&[]);
        match differs {
            ByDefault(value) => same(key, &plain, &outcome(&[(row.name, value)]))?,
            Is(theirs, ours) => same(key, &outcome(&[(key, theirs)]), &outcome(&[(row.name, ours)]))?,
            Not(values) => {
                for value in *values {
                    let said = outcome(&[(key, value)]);
                    let what = format!("{key}: {value:?}");
                    ensure!(said.1.len() > plain.1.len(), "{what} is not told of: {:?}", said.1);
                    ensure!(row.protects == (said.0 != plain.0), "{what}: protects {}", row.protects);
                    if row.protects {
                        same(&what, &said, &outcome(&[(row.name, "\u{7}")]))?;
                    }
                }
            }
            Unknown(other) => {
                let said = outcome(&[(other, "5")]);
                ensure!(said.0 == plain.0, "{other} makes a difference");
            }
            Served => {}
        }
    }
    Ok(())
}
