//! Options that are about more than one Ingress, or that no request shows.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use waystation::edge::ids::Kind;
use waystation::edge::input::{Input, PathType};
use waystation_kit::process::inside_own_network;

use super::World;
use crate::asking::{at_of, get};
use crate::edge::soon;
use crate::site;

const HOST: &str = "canary.opt.test";

/// Puts the Ingress that takes a share, which says that.
fn canary(world: &mut World, said: &[(&str, &str)]) {
    let mut ingress = site::ingress("canary", 2, HOST, "spare-too");
    ingress.annotations = site::annotations([("canary", "true")].into_iter().chain(said.iter().copied()));
    world.site.put(Input::Ingress(ingress.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_takes_its_share_by_weight_header_and_cookie() -> Result<()> {
    if !inside_own_network("options::singles::a_canary_takes_its_share_by_weight_header_and_cookie").await? {
        return Ok(());
    }
    let mut world = World::new().await?;
    let mut base = site::ingress("base", 1, HOST, "spare");
    base.annotations = site::annotations([("response-set-headers", "X-Base: yes")]);
    world.site.put(Input::Ingress(base.into()));
    world.site.begin().await?;
    let before = world.site.as_if_made_anew().await?;
    // How many of a hundred requests come to the canary; what is said of the route holds for all of them.
    let share = async |world: &World| {
        let mut share = 0;
        for _ in 0..100 {
            let answer = get("/").send(&world.edges, HOST).await?;
            ensure!(answer.get("x-base") == Some("yes"), "{:?}", answer.headers);
            share += usize::from(at_of(&answer)? == "10.77.240.2:8080");
        }
        anyhow::Ok(share)
    };
    let goes = async |world: &World, header: Option<(&str, &str)>, to_canary: bool| {
        let at = if to_canary { "at 10.77.240.2:8080" } else { "at 10.77.240.1:8080" };
        let ask = header.into_iter().fold(get("/"), |ask, (name, value)| ask.with(name, value));
        ask.seen(at).told("x-base: yes").times(5).check(&world.edges, HOST).await
    };
    ensure!(share(&world).await? == 0);

    // By weight. A hundred drawn with a chance of a half are hardly ever fewer than ten or more than ninety.
    for (said, least, most) in [
        (&[][..], 0, 0),
        (&[("canary-weight", "50")], 10, 90),
        (&[("canary-weight", "100")], 100, 100),
        (&[("canary-weight", "0")], 0, 0),
        (&[("canary-weight", "100"), ("canary-weight-total", "200")], 10, 90),
        (&[("canary-weight", "200"), ("canary-weight-total", "200")], 100, 100),
        (&[("canary-weight", "half"), ("canary-weight-total", "0")], 0, 0),
    ] {
        canary(&mut world, said);
        world.site.in_force().await?;
        let share = share(&world).await?;
        ensure!((least..=most).contains(&share), "{said:?}: {share} of 100");
    }

    // By header and cookie, whatever the weight.
    let named = [("canary-by-header", "X-Canary"), ("canary-by-cookie", "ring"), ("canary-weight", "100")];
    canary(&mut world, &named[..2]);
    world.site.in_force().await?;
    for (header, to_canary) in [
        (None, false),
        (Some(("X-Canary", "always")), true),
        (Some(("X-Canary", "perhaps")), false),
        (Some(("Cookie", "a=b; ring=always; c=d")), true),
        (Some(("Cookie", "ring=alwaysnot")), false),
        (Some(("Cookie", "bring=always")), false),
    ] {
        goes(&world, header, to_canary).await?;
    }
    canary(&mut world, &named);
    world.site.in_force().await?;
    for (header, to_canary) in
        [(None, true), (Some(("X-Canary", "never")), false), (Some(("Cookie", "ring=never")), false)]
    {
        goes(&world, header, to_canary).await?;
    }
    canary(&mut world, &[named[0], ("canary-by-header-value", "blue, or; green")]);
    world.site.in_force().await?;
    for (value, to_canary) in [("blue, or; green", true), ("always", false), ("blue", false)] {
        goes(&world, Some(("X-Canary", value)), to_canary).await?;
    }
    // What cannot be read is none.
    canary(&mut world, &[("canary-by-header", "a b"), ("canary-by-cookie", "a;b")]);
    world.site.in_force().await?;
    goes(&world, Some(("X-Canary", "always")), false).await?;
    // What guards the route guards its canary; and one that says nothing of being one is the younger of two.
    canary(&mut world, &named);
    let mut base = site::ingress("base", 1, HOST, "spare");
    base.annotations = site::annotations([("deny-list", "127.0.0.0/8")]);
    world.site.put(Input::Ingress(base.clone().into()));
    world.site.in_force().await?;
    get("/").with("X-Canary", "always").status(403).check(&world.edges, HOST).await?;
    base.annotations = site::annotations([("response-set-headers", "X-Base: yes")]);
    world.site.put(Input::Ingress(base.into()));
    let mut rival = site::ingress("canary", 2, HOST, "spare-too");
    rival.annotations = site::annotations([("canary", "false"), ("canary-weight", "100")]);
    world.site.put(Input::Ingress(rival.into()));
    world.site.in_force().await?;
    goes(&world, None, false).await?;
    world.site.take(Kind::Ingress, "canary");
    world.site.in_force().await?;
    world.site.undisturbed().await?;
    site::same("before and after", &before, &world.site.as_if_made_anew().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_proves_a_host_by_http_is_reached_whatever_guards_and_redirects_the_rest() -> Result<()> {
    const TEST: &str = "options::singles::who_proves_a_host_by_http_is_reached_whatever_guards_and_redirects_the_rest";
    const HOST: &str = "proof.opt.test";
    const TOKEN: &str = "/.well-known/acme-challenge/token";
    if !inside_own_network(TEST).await? {
        return Ok(());
    }
    let mut world = World::new().await?;
    // As a solver makes it: a path of its own, and nothing said.
    let mut solver = site::ingress("solver", 2, HOST, "spare-too");
    solver.rules[0].paths = vec![site::path(TOKEN, PathType::ImplementationSpecific, "spare-too")];
    world.site.put(Input::Ingress(solver.into()));
    let mut rest = site::ingress("rest", 1, HOST, "spare");
    rest.tls = vec![site::tls(HOST, None)];
    world.site.put(Input::Ingress(rest.clone().into()));
    world.site.begin().await?;
    let before = world.site.as_if_made_anew().await?;
    let (found, plain) = (get(TOKEN).status(200).seen("at 10.77.240.2:8080"), world.site.edge.config.clone());
    for (said, status) in [
        (&[][..], 308),
        (&[("ssl-redirect", "force"), ("ssl-redirect-code", "301")], 301),
        (&[("ssl-redirect", "false"), ("temporal-redirect", "https://x.y/")], 302),
        (&[("ssl-redirect", "false"), ("permanent-redirect", "/z")], 301),
        (&[("ssl-redirect", "false"), ("auth-secret", "users")], 401),
        (&[("ssl-redirect", "false"), ("auth-secret", "absent")], 503),
        (&[("ssl-redirect", "false"), ("auth-url", "http://10.77.241.1:8080/status/403")], 403),
        (&[("ssl-redirect", "false"), ("allow-list", "192.0.2.0/24")], 403),
        (&[("ssl-redirect", "false"), ("deny-list", "127.0.0.0/8")], 403),
        (&[("ssl-redirect", "false"), ("deny-list", "everyone")], 503),
        (&[("ssl-redirect", "false"), ("auth-tls-secret", "ca")], 403),
        (&[("ssl-redirect", "false"), ("auth-tls-secret", "absent")], 503),
        (&[("ssl-passthrough", "true")], 308),
    ] {
        // Of the path beside it; then of all, the solver's as well.
        for of_all in [false, true] {
            let mut config = plain.clone();
            rest.annotations = site::annotations(if of_all { &[] } else { said }.iter().copied());
            if of_all {
                let more = said.iter().map(|(name, value)| ((*name).into(), (*value).into()));
                config.options = plain.options.iter().cloned().chain(more).collect();
            }
            world.site.put(Input::RouterConfig(config.into()));
            world.site.put(Input::Ingress(rest.clone().into()));
            world.site.in_force().await?;
            let step = || format!("{said:?}, of all: {of_all}");
            found.clone().check(&world.edges, HOST).await.with_context(step)?;
            get("/x").status(status).check(&world.edges, HOST).await.with_context(step)?;
        }
    }
    world.site.put(Input::RouterConfig(plain.into()));
    rest.annotations = site::annotations([]);
    world.site.put(Input::Ingress(rest.into()));
    world.site.in_force().await?;
    world.site.undisturbed().await?;
    site::same("before and after", &before, &world.site.as_if_made_anew().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_tried_and_queued_for_as_said() -> Result<()> {
    if !inside_own_network("options::singles::endpoints_are_tried_and_queued_for_as_said").await? {
        return Ok(());
    }
    let mut world = World::new().await?;
    // One endpoint answers, at the other nobody listens.
    let mut slice = site::slice("tried", 8080, &["10.77.1.1"]);
    world.site.put(Input::EndpointSlice(slice.clone().into()));
    (slice.key.name, slice.ports[0].1) = ("tried-2".into(), 9);
    world.site.put(Input::EndpointSlice(slice.into()));
    world.site.put(Input::Service(site::service("tried").into()));
    let say = |world: &mut World, said: &[(&'static str, &'static str)]| {
        let mut ingress = site::ingress("tried", 1, "tried.opt.test", "tried");
        ingress.annotations = site::annotations(said.iter().copied());
        world.site.put(Input::Ingress(ingress.into()));
    };
    say(&mut world, &[]);
    world.site.begin().await?;
    let before = world.site.as_if_made_anew().await?;
    // Columns of one of the two servers.
    let row = async |world: &World, port: &str, columns: [&str; 3]| {
        let rows = world.site.edge.haproxy.stat().await?;
        let found = rows.iter().find(|row| row.get("addr") == format!("10.77.1.1:{port}"));
        let row = found.ok_or_else(|| anyhow::anyhow!("no server at port {port}"))?;
        anyhow::Ok(columns.map(|column| row.get(column).to_owned()))
    };
    ensure!(row(&world, "9", ["status", "check_rise", "qlimit"]).await? == ["no check", "", ""]);
    for (said, rise, fall) in [
        (&[("health-check", "true"), ("health-check-interval", "20ms")][..], "2", "3"),
        (&[("health-check", "true"), ("health-check-interval", "30ms"), ("health-check-rise-count", "4")], "4", "3"),
        (&[("health-check", "true"), ("health-check-interval", "40ms"), ("health-check-fall-count", "5")], "2", "5"),
    ] {
        say(&mut world, said);
        world.site.in_force().await?;
        soon("who does not listen is down, and the other is up", || async {
            let dead = row(&world, "9", ["status", "check_rise", "check_fall"]).await?;
            ensure!(dead == ["DOWN", rise, fall], "{said:?}: {dead:?}");
            let well = row(&world, "8080", ["status", "check_rise", "check_fall"]).await?;
            ensure!(well == ["UP", rise, fall], "{said:?}: {well:?}");
            Ok(())
        })
        .await?;
        get("/").status(200).times(4).check(&world.edges, "tried.opt.test").await?;
    }
    for said in [
        &[("health-check", "perhaps")][..],
        &[("health-check", "false"), ("health-check-rise-count", "0"), ("health-check-fall-count", "x")],
    ] {
        say(&mut world, said);
        world.site.in_force().await?;
        soon("nobody is tried", || async {
            let dead = row(&world, "9", ["status", "check_rise", "qlimit"]).await?;
            ensure!(dead[0] == "no check", "{said:?}: {dead:?}");
            Ok(())
        })
        .await?;
    }
    // Each interval asks again: more often than once an hour, which is what the RouterConfig says here.
    say(&mut world, &[("health-check-path", "/well"), ("health-check-interval", "10ms")]);
    world.site.in_force().await?;
    let asked = world.edges.reflector.counts.requests.load(Ordering::SeqCst);
    soon("it is asked again and again", || async {
        let now = world.edges.reflector.counts.requests.load(Ordering::SeqCst);
        ensure!(now > asked + 5, "{now} after {asked}");
        Ok(())
    })
    .await?;
    say(&mut world, &[("health-check-path", "/well"), ("health-check-interval", "soon")]);
    world.site.in_force().await?;
    soon("the other interval holds", || async {
        let well = row(&world, "8080", ["status", "check_rise", "qlimit"]).await?;
        ensure!(well[0].starts_with("UP"), "{well:?}");
        Ok(())
    })
    .await?;

    for (said, limit) in [("7", "7"), ("8", "8"), ("-1", ""), ("0", "")] {
        say(&mut world, &[("maxqueue-server", said)]);
        world.site.in_force().await?;
        soon("so many may wait", || async {
            let found = row(&world, "8080", ["qlimit", "status", "check_rise"]).await?;
            ensure!(found[0] == limit, "{said}: {found:?}");
            Ok(())
        })
        .await?;
    }
    say(&mut world, &[]);
    world.site.in_force().await?;
    world.site.undisturbed().await?;
    site::same("before and after", &before, &world.site.as_if_made_anew().await?)
}
