//! Objects that come, change and go within one batch: nothing stays that is not there, and nothing is missing that is.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{Ingress, Input, PathType, RouterConfig, Secret, Service};
use waystation_kit::process::inside_own_network;

use crate::edge::Edge;
use crate::site::{self, Site, meta};
use crate::traffic::{Load, Server};

const HOST: &str = "batch.test";

/// An object in two versions.
struct Object {
    kind: Kind,
    name: &'static str,
    /// By the second in which it was made: another second is another object.
    make: Box<dyn Fn(i64, bool) -> Input>,
}

/// What happens to an object in one batch.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It is made, in its first version or its second one.
    Make(bool),
    /// It is another object of the same name, in its second version.
    MakeAnother,
    Update,
    Delete,
}

use Step::{Delete, Make, MakeAnother, Update};

/// Whether it is there before, what happens, and whether it is there then.
const SEQUENCES: &[(bool, &[Step], bool)] = &[
    (false, &[Make(false), Delete], false),
    (false, &[Make(false), Update, Delete], false),
    (false, &[Make(false), Delete, MakeAnother], true),
    (false, &[Make(false), Update, Delete, MakeAnother, Delete], false),
    (true, &[Delete, MakeAnother], true),
    (true, &[Delete, Make(false)], true),
    (true, &[Delete, MakeAnother, Delete], false),
    (true, &[Update, Delete], false),
    (true, &[Update, Delete, Make(false)], true),
    (true, &[Update, Make(false)], true),
];

/// Of every kind, all about one host.
fn objects(edge: &Edge) -> Result<Vec<Object>> {
    let leaves = [edge.authority.server("first", &[HOST])?, edge.authority.server("second", &[HOST])?];
    let authority = edge.authority.certificate();
    let object = |kind, name, make: Box<dyn Fn(i64, bool) -> Input>| Object { kind, name, make };
    let config = edge.config.clone();
    Ok(vec![
        object(
            Kind::IngressClass,
            "batch",
            // The second leads nowhere: whoever is of this class is served no more.
            Box::new(|_, second| {
                let elsewhere = Key::new("edge", if second { "another" } else { "main" });
                Input::IngressClass(site::class("batch", Some(elsewhere)).into())
            }),
        ),
        object(
            Kind::RouterConfig,
            "main",
            Box::new(move |_, second| {
                let options = if second { [("timeout-connect", "9s")] } else { [("hsts", "true")] };
                let options = options.map(|(name, value)| (name.into(), value.into())).into();
                Input::RouterConfig(RouterConfig { options, any_owner: second, ..config.clone() }.into())
            }),
        ),
        object(
            Kind::Ingress,
            "batch",
            Box::new(|created, second| {
                let mut ingress = Ingress { meta: meta("batch", created), ..site::ingress("batch", 1, HOST, "batch") };
                ingress.class = Some("batch".into());
                ingress.tls = vec![site::tls(HOST, Some("cert"))];
                let said = [("auth-secret", "users"), ("auth-tls-secret", "ca"), ("allow-list", "127.0.0.0/8")];
                let more = if second { ("timeout-server", "7s") } else { ("limit-rps", "100000") };
                ingress.annotations = site::annotations(said.into_iter().chain([more]));
                if second {
                    ingress.rules[0].paths.push(site::path("/more", PathType::Exact, "steady"));
                }
                Input::Ingress(ingress.into())
            }),
        ),
        object(
            Kind::Service,
            "batch",
            Box::new(|created, second| {
                let said = if second { [("balance", "leastconn")] } else { [("affinity", "cookie")] };
                let annotations = site::annotations(said);
                Input::Service(Service { meta: meta("batch", created), annotations, ..site::service("batch") }.into())
            }),
        ),
        object(
            Kind::EndpointSlice,
            "batch-1",
            Box::new(|_, second| {
                let at: &[&str] = if second { &["10.77.1.2", "!10.77.1.3"] } else { &["10.77.1.1", "10.77.1.2"] };
                Input::EndpointSlice(site::slice("batch", 8080, at).into())
            }),
        ),
        object(
            Kind::Secret,
            "cert",
            Box::new(move |created, second| {
                let secret = site::certificate("cert", &leaves[usize::from(second)]);
                Input::Secret(Secret { meta: meta("cert", created), ..secret }.into())
            }),
        ),
        object(
            Kind::Secret,
            "users",
            Box::new(|created, second| {
                let users = if second { "bob::other\n" } else { "ann::open sesame\n" };
                let secret = site::secret("users", &[("auth", users)]);
                Input::Secret(Secret { meta: meta("users", created), ..secret }.into())
            }),
        ),
        object(
            Kind::Secret,
            "ca",
            Box::new(move |created, second| {
                let twice = if second { format!("{authority}{authority}") } else { authority.clone() };
                Input::Secret(Secret { meta: meta("ca", created), ..site::secret("ca", &[("ca.crt", &twice)]) }.into())
            }),
        ),
    ])
}

/// One step of an object.
fn step(site: &mut Site, object: &Object, step: Step) {
    match step {
        Make(second) => site.put((object.make)(5, second)),
        MakeAnother => site.put((object.make)(6, true)),
        Update => site.put((object.make)(5, true)),
        Delete => drop(site.take(object.kind, object.name)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_and_goes_in_one_batch_leaves_nothing_and_loses_nothing() -> Result<()> {
    if !inside_own_network("batches::what_comes_and_goes_in_one_batch_leaves_nothing_and_loses_nothing").await? {
        return Ok(());
    }
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut edge = Edge::new()?;
    // What leaves need not stay for long: it is waited for many times.
    edge.limits.linger = Duration::from_millis(10);
    let mut site = Site::new(edge);
    let objects = objects(&site.edge)?;
    site.put(Input::Service(site::service("steady").into()));
    site.put(Input::EndpointSlice(site::slice("steady", 8080, &["10.77.2.1"]).into()));
    site.put(Input::Ingress(site::ingress("steady", 1, "steady.test", "steady").into()));
    objects.iter().for_each(|object| step(&mut site, object, Make(false)));
    site.begin().await?;
    let began = site.edge.haproxy.info().await?.pid;
    let whole = site.as_if_made_anew().await?;
    let load = Load::start(site.edge.haproxy.http(), "steady.test");

    // Each object alone, then all of them at once; decided as one, or each step by itself while the one before is
    // carried out.
    let everything: Vec<Vec<&Object>> =
        objects.iter().map(|object| vec![object]).chain([objects.iter().collect()]).collect();
    for chosen in &everything {
        for (there, steps, stays) in SEQUENCES {
            for together in [true, false] {
                let words = || {
                    let names: Vec<String> = chosen.iter().map(|o| format!("{} {}", o.kind.as_str(), o.name)).collect();
                    format!("{names:?}, there before: {there}, {steps:?}, together: {together}")
                };
                if !there {
                    chosen.iter().for_each(|object| step(&mut site, object, Delete));
                    site.in_force().await?;
                }
                for one in *steps {
                    chosen.iter().for_each(|object| step(&mut site, object, *one));
                    if !together {
                        site.settle();
                    }
                }
                site.in_force().await.with_context(words)?;
                let left = chosen.iter().all(|o| site.objects.contains_key(&(o.kind, o.name.into())) == *stays);
                ensure!(left, "{}", words());
                site.as_if_made_anew().await.with_context(words)?;
                objects.iter().for_each(|object| step(&mut site, object, Make(false)));
                site.in_force().await?;
            }
        }
    }
    load.go_on(10).await?;
    load.end().await.context("a request failed")?;
    site.undisturbed().await?;
    site::same("before and after", &whole, &site.as_if_made_anew().await?)?;
    ensure!(site.edge.haproxy.info().await?.pid == began, "another process");
    // Nothing of any of them is left when all are gone.
    objects.iter().for_each(|object| step(&mut site, object, Delete));
    site.in_force().await?;
    site.undisturbed().await?;
    site.as_if_made_anew().await?;
    let slots = site.model.wanted().slots().keys().map(|slot| format!("{slot:?}"));
    let ghosts: Vec<String> = slots.filter(|slot| slot.contains("batch")).collect();
    ensure!(ghosts.is_empty(), "{ghosts:?}");
    site.edge.finish().await?;
    site.edge.files_are_the_process().await
}
