//! What comes, changes and goes is served so, without a reload; what is wrong is told.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use waystation_kit::process::{eventually, inside_own_network};

use crate::edge::{PATIENCE, World, all_of, endpoint, get_with};
use crate::traffic::{Load, get, get_tls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ingress_comes_is_scaled_and_certified_anew_and_goes_without_a_reload() -> Result<()> {
    if !inside_own_network("serving::an_ingress_comes_is_scaled_and_certified_anew_and_goes_without_a_reload").await? {
        return Ok(());
    }
    let world = World::start().await?;
    let _servers = (endpoint("one", "10.77.0.1").await?, endpoint("two", "10.77.0.2").await?);

    // Before anything is there: TLS with a certificate that was made up, and nothing behind it.
    let error = get_tls(world.edge.https(), &world.authority.certificate(), "shop.example").await.unwrap_err();
    ensure!(format!("{error:#}").to_lowercase().contains("unknownissuer"), "{error:#}");
    world.answers("shop.example", "/", 404, "").await?;

    comes(&world).await.context("comes")?;
    scaled(&world).await.context("scaled")?;
    certified_anew(&world).await.context("certified anew")?;
    what_is_wrong_is_told_once(&world).await.context("told")?;
    users(&world).await.context("users")?;
    classes(&world).await.context("classes")?;
    twins(&world).await.context("twins")?;

    // And goes.
    world.delete("ingress", "shop").await?;
    world.answers("shop.example", "/", 404, "").await?;
    world.no_reload().await?;
    let drift = world.drift().await?;
    ensure!(drift == (0.0, 0.0), "{drift:?}: {}", world.edge.logs(30));
    let commands = world.commands().await?;
    ensure!(
        commands.contains_key("add-server,result=ok") && commands.contains_key("set-map,result=ok"),
        "{commands:?}"
    );
    let good = ["ok", "busy", "already"].map(|result| format!(",result={result}"));
    let bad: Vec<_> = commands.iter().filter(|(name, _)| !good.iter().any(|good| name.ends_with(good))).collect();
    ensure!(bad.is_empty(), "{bad:?}");
    what_others_did_is_found(&world).await
}

async fn what_others_did_is_found(world: &World) -> Result<()> {
    world.answers("plain.example", "/", 404, "").await?;
    let map = world.edge.folder().join("maps/hosts.map");
    let hosts = world.edge.ask(&format!("show map {}", map.display())).await?;
    ensure!(hosts.contains(" auth.example "), "{hosts}");
    world.edge.ask(&format!("del map {} auth.example", map.display())).await?;
    eventually(PATIENCE, "it is put right", || async {
        ensure!(get(world.edge.http(), "auth.example", "/").await?.0 == 401);
        Ok(())
    })
    .await?;
    let drift = world.drift().await?;
    ensure!(drift == (1.0, 0.0), "{drift:?}");
    Ok(())
}

async fn comes(world: &World) -> Result<()> {
    let leaf = world.authority.server("shop", &["shop.example"])?;
    world.service("web", &["10.77.0.1"]).await?;
    world.certificate("cert", &leaf).await?;
    let spec = format!(
        "{{ingressClassName: waystation, tls: [{{hosts: [shop.example], secretName: cert}}], rules: [{}, {}]}}",
        all_of("shop.example", "web"),
        all_of("plain.example", "web")
    );
    world.ingress("shop", &spec, &[]).await?;
    world.answers_tls("shop.example", "one", &leaf).await?;
    world.answers("shop.example", "/", 308, "").await?;
    world.answers("plain.example", "/", 200, "one").await?;
    // Its status, and that of the RouterConfig.
    let address = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.10";
    world.cluster.kubectl_text(&["wait", address, "--timeout=60s", "-n", "shop", "ingress/shop"]).await?;
    let ready = ["wait", "--for=condition=Ready", "--timeout=60s", "-n", "edge", "rcfg/main"];
    world.cluster.kubectl_text(&ready).await?;
    let printed = world.cluster.kubectl_text(&["get", "rcfg", "main", "-n", "edge"]).await?;
    let row: Vec<&str> = printed.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    ensure!(row[..5] == ["main", "Edge", "True", "1/1", "Serving"], "{printed}");
    Ok(())
}

async fn scaled(world: &World) -> Result<()> {
    let load = Load::start(world.edge.http(), "plain.example");
    load.go_on(50).await?;
    world.endpoints("web", &["10.77.0.1", "10.77.0.2"]).await?;
    both_answer(world).await?;
    // The only endpoint is replaced, again and again.
    for address in ["10.77.0.2", "10.77.0.1", "10.77.0.2", "10.77.0.1"] {
        world.endpoints("web", &[address]).await?;
        world.answers("plain.example", "/", 200, if address.ends_with('2') { "two" } else { "one" }).await?;
        load.go_on(20).await?;
    }
    let count = load.end().await.context("a request failed")?;
    ensure!(count > 100, "{count} requests");
    // Nobody is left, and somebody comes back.
    world.endpoints("web", &[]).await?;
    world.answers("plain.example", "/", 503, "").await?;
    world.endpoints("web", &["10.77.0.1"]).await?;
    world.answers("plain.example", "/", 200, "one").await
}

async fn both_answer(world: &World) -> Result<()> {
    eventually(PATIENCE, "both endpoints answer", || async {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..8 {
            *seen.entry(get(world.edge.http(), "plain.example", "/").await?.1).or_default() += 1;
        }
        ensure!(seen.len() == 2, "{seen:?}");
        Ok(())
    })
    .await
}

async fn certified_anew(world: &World) -> Result<()> {
    let leaf = world.authority.server("shop again", &["shop.example"])?;
    world.certificate("cert", &leaf).await?;
    world.answers_tls("shop.example", "one", &leaf).await?;
    // It goes, and comes back.
    world.delete("secret", "cert").await?;
    eventually(PATIENCE, "the default certificate is shown", || async {
        ensure!(get_tls(world.edge.https(), &world.authority.certificate(), "shop.example").await.is_err());
        Ok(())
    })
    .await?;
    told(world, "shop", "shop", "SecretNotFound").await?;
    world.certificate("cert", &leaf).await?;
    world.answers_tls("shop.example", "one", &leaf).await
}

/// Waits for exactly one Event.
async fn told(world: &World, namespace: &str, object: &str, reason: &str) -> Result<String> {
    let what = format!("{reason} is told to {object}");
    let told = eventually(PATIENCE, &what, || async {
        let notes = world.events(namespace, object, reason).await?;
        ensure!(!notes.is_empty(), "nothing is told");
        Ok(notes)
    })
    .await?;
    ensure!(told.len() == 1, "{told:?}");
    Ok(told[0].clone())
}

async fn what_is_wrong_is_told_once(world: &World) -> Result<()> {
    let spec = |rules: &str| format!("{{ingressClassName: waystation, rules: [{rules}]}}");
    world.ingress("late", &spec(&all_of("plain.example", "web")), &[]).await?;
    let note = told(world, "shop", "late", "RouteConflict").await?;
    ensure!(note.contains("shop"), "{note}");
    world.ingress("lost", &spec(&all_of("lost.example", "nowhere")), &[]).await?;
    told(world, "shop", "lost", "ServiceNotFound").await?;
    world.answers("lost.example", "/", 503, "").await?;
    let odd = [("waystation.dev/timeout-server", "soon"), ("waystation.dev/hsts", "true")];
    world.ingress("odd", &spec(&all_of("odd.example", "web")), &odd).await?;
    let note = told(world, "shop", "odd", "InvalidOption").await?;
    ensure!(note.contains("timeout-server") && note.contains("soon"), "{note}");
    world.answers("odd.example", "/", 200, "one").await?;
    // What changes nothing about it tells nothing again; the Service that was missing comes.
    world.ingress("odd", &spec(&all_of("odd.example", "web")), &[odd[0]]).await?;
    world.service("nowhere", &["10.77.0.2"]).await?;
    world.answers("lost.example", "/", 200, "two").await?;
    for (object, reason) in [("late", "RouteConflict"), ("lost", "ServiceNotFound"), ("odd", "InvalidOption")] {
        told(world, "shop", object, reason).await?;
    }
    // When the winner goes, the next takes over.
    world.delete("ingress", "late").await
}

async fn users(world: &World) -> Result<()> {
    let options = [("waystation.dev/auth-type", "basic"), ("waystation.dev/auth-secret", "users")];
    let spec = format!("{{ingressClassName: waystation, rules: [{}]}}", all_of("auth.example", "web"));
    world.ingress("auth", &spec, &options).await?;
    // As long as the users are missing, nobody may come.
    world.answers("auth.example", "/", 503, "").await?;
    // bcrypt of "open sesame", and a wrong hash kind would be refused.
    let bcrypt = bcrypt::hash("open sesame", 6)?;
    world.secret("users", "Opaque", &[("auth", &format!("ann:{bcrypt}\n"))]).await?;
    world.answers("auth.example", "/", 401, "").await?;
    let with = |login: &str| {
        use base64::Engine;
        format!("Authorization: Basic {}", base64::engine::general_purpose::STANDARD.encode(login))
    };
    let port = world.edge.http();
    let right = get_with(port, "auth.example", &with("ann:open sesame")).await?;
    ensure!(right == (200, "one".to_owned()), "{right:?}");
    for wrong in ["ann:open", "bob:open sesame", "ann:"] {
        let answer = get_with(port, "auth.example", &with(wrong)).await?;
        ensure!(answer.0 == 401, "{wrong}: {answer:?}");
    }
    Ok(())
}

/// A second edge, for another RouterConfig with another class: neither touches what is the other's.
async fn classes(world: &World) -> Result<()> {
    world.class("second").await?;
    let mut second = World::prepare(&world.cluster, "second").await?;
    world.router_config("second", "second", &second.listeners(), "192.0.2.20").await?;
    second.start().await?;
    let spec = format!("{{ingressClassName: second, rules: [{}]}}", all_of("second.example", "web"));
    world.ingress("second", &spec, &[]).await?;
    eventually(PATIENCE, "the second edge serves its own", || async {
        let answer = get(second.http(), "second.example", "/").await?;
        ensure!(answer == (200, "one".to_owned()), "{answer:?}");
        Ok(())
    })
    .await?;
    let address = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.20";
    world.cluster.kubectl_text(&["wait", address, "--timeout=60s", "-n", "shop", "ingress/second"]).await?;
    ensure!(get(world.edge.http(), "second.example", "/").await?.0 == 404);
    ensure!(get(second.http(), "plain.example", "/").await?.0 == 404);
    let path = ["get", "ingress", "shop", "-n", "shop", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    let status = world.cluster.kubectl_text(&path).await?;
    ensure!(status == "192.0.2.10", "{status}");
    // It moves to the first one, with its status.
    let spec = format!("{{ingressClassName: waystation, rules: [{}]}}", all_of("second.example", "web"));
    world.ingress("second", &spec, &[]).await?;
    world.answers("second.example", "/", 200, "one").await?;
    let address = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.10";
    world.cluster.kubectl_text(&["wait", address, "--timeout=60s", "-n", "shop", "ingress/second"]).await?;
    second.terminate_agent().await?;
    second.terminate_supervisor().await
}

/// A second agent of the same RouterConfig, with a HAProxy of its own (on the same ports, as on another machine): both hold
/// the same, and the status names both as long as they are there.
async fn twins(world: &World) -> Result<()> {
    let summary = |text: &str| format!("--for=jsonpath={{.status.edgesSummary}}={text}");
    let mut twin = World::prepare(&world.cluster, "main").await?;
    twin.rename("twin");
    twin.start().await?;
    world.cluster.kubectl_text(&["wait", &summary("2/2"), "--timeout=60s", "-n", "edge", "rcfg/main"]).await?;
    eventually(PATIENCE, "both hold the same", || async {
        let (ours, theirs) = (files(world.edge.folder())?, files(twin.folder())?);
        for (name, text) in &ours {
            ensure!(theirs.get(name) == Some(text), "{name} differs");
        }
        ensure!(ours.len() == theirs.len());
        Ok(())
    })
    .await?;
    twin.terminate_agent().await?;
    world.cluster.kubectl_text(&["wait", &summary("1/1"), "--timeout=60s", "-n", "edge", "rcfg/main"]).await?;
    twin.terminate_supervisor().await
}

/// What HAProxy is started from, but for keys, which each makes up for itself where there are none. The folder is named
/// alike.
fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for part in ["backends", "maps"] {
        for entry in std::fs::read_dir(folder.join(part))? {
            let path = entry?.path();
            all.insert(path.strip_prefix(folder)?.display().to_string(), std::fs::read_to_string(path)?);
        }
    }
    for name in ["haproxy.cfg", "certs.list"] {
        all.insert(name.to_owned(), std::fs::read_to_string(folder.join(name))?);
    }
    let here = folder.display().to_string();
    Ok(all.into_iter().map(|(name, text)| (name, text.replace(&here, "FOLDER"))).collect())
}
