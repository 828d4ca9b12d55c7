//! Options that are about more than one Ingress, or that no request shows.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use waystation::edge::ids::Kind;
use waystation::edge::input::Input;
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
