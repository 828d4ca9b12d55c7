//! Several edges in one cluster: those of one RouterConfig are alike, and those of others are strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use waystation_kit::edge::Edge;
use waystation_kit::haproxy::Row;
use waystation_kit::process::{eventually, inside_own_network};

use crate::edge::{PATIENCE, World, all_of, endpoint};
use crate::traffic::get;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_of_one_router_config_are_alike_and_others_are_strangers() -> Result<()> {
    if !inside_own_network("several::edges_of_one_router_config_are_alike_and_others_are_strangers").await? {
        return Ok(());
    }
    let world = World::start().await?;
    let _servers = (endpoint("one", "10.77.0.1").await?, endpoint("two", "10.77.0.2").await?);
    alike(&world).await.context("one RouterConfig")?;
    strangers(&world).await.context("two classes")?;
    rivals(&world).await.context("one class, two RouterConfigs")
}

/// What a HAProxy holds, by what was asked for.
async fn held(edge: &Edge) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let folder = edge.folder();
    let here = folder.display().to_string();
    let lines = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().map(|line| line.replace(&here, "FOLDER")).filter(|line| !line.is_empty());
        lines.collect()
    };
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("maps"))? {
        let path = entry?.path();
        let map = edge.ask(&format!("show map {}", path.display())).await?;
        // What comes first is where it lies in memory.
        let entries = map.lines().filter_map(|line| line.split_once(' ')).map(|(_, entry)| entry.to_owned()).collect();
        all.insert(path.strip_prefix(folder)?.display().to_string(), entries);
    }
    let rows = Row::parse(&edge.ask("show stat -1 6 -1").await?);
    let row = |row: &Row| {
        let columns = ["addr", "status", "weight"].map(|column| row.get(column));
        format!("{} {}", row.name(), columns.join(" "))
    };
    all.insert("backends and servers".to_owned(), rows.iter().map(row).collect());
    for asked in ["show ssl cert", "show ssl ca-file", &format!("show ssl crt-list {here}/certs.list")] {
        all.insert(asked.replace(&here, "FOLDER"), lines(&edge.ask(asked).await?));
    }
    Ok(all)
}

/// All files that HAProxy is started from, but for keys.
fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut paths = vec![folder.join("haproxy.cfg"), folder.join("certs.list")];
    for part in ["backends", "maps"] {
        for entry in std::fs::read_dir(folder.join(part))? {
            paths.push(entry?.path());
        }
    }
    let here = folder.display().to_string();
    let read = |path: std::path::PathBuf| {
        let name = path.strip_prefix(folder)?.display().to_string();
        Ok((name, std::fs::read_to_string(&path)?.replace(&here, "FOLDER")))
    };
    paths.into_iter().map(read).collect()
}

async fn same(ours: &Edge, theirs: &Edge) -> Result<()> {
    eventually(PATIENCE, "both hold the same", || async {
        let (a, b) = (held(ours).await?, held(theirs).await?);
        ensure!(a.keys().eq(b.keys()), "{:?} {:?}", a.keys(), b.keys());
        for (asked, a) in &a {
            let differs: Vec<&String> = a.symmetric_difference(&b[asked]).collect();
            ensure!(differs.is_empty(), "{asked}: {differs:?}");
        }
        let (a, b) = (files(ours.folder())?, files(theirs.folder())?);
        ensure!(a.keys().eq(b.keys()), "{:?} {:?}", a.keys(), b.keys());
        for (name, text) in &a {
            ensure!(b[name] == *text, "{name} differs:\n{text}\n{}", b[name]);
        }
        Ok(())
    })
    .await
}

/// One that was there all along, and one that comes, dies and comes back.
async fn alike(world: &World) -> Result<()> {
    let leaf = world.authority.server("shop", &["shop.example"])?;
    world.service("web", &["10.77.0.1"]).await?;
    world.certificate("cert", &leaf).await?;
    world.secret("users", "Opaque", &[("auth", "ann::open sesame\n")]).await?;
    let shop = |more: &str| {
        format!(
            "{{ingressClassName: waystation, tls: [{{hosts: [shop.example], secretName: cert}}], rules: [{}{more}]}}",
            all_of("shop.example", "web")
        )
    };
    world.ingress("shop", &shop(""), &[("waystation.dev/hsts", "true")]).await?;
    world.answers_tls("shop.example", "one", &leaf).await?;

    let mut twin = World::prepare(&world.cluster, "main").await?;
    twin.rename("twin");
    twin.start().await?;
    same(&world.edge, &twin).await.context("one that comes later")?;

    // Changes that both see.
    world.endpoints("web", &["10.77.0.2", "10.77.0.1"]).await?;
    world.service("api", &["10.77.0.2"]).await?;
    let options = [("waystation.dev/auth-type", "basic"), ("waystation.dev/auth-secret", "users")];
    let spec = format!("{{ingressClassName: waystation, rules: [{}]}}", all_of("auth.example", "api"));
    world.ingress("auth", &spec, &options).await?;
    world.ingress("shop", &shop(&format!(", {}", all_of("\"*.shop.example\"", "api"))), &[]).await?;
    world.answers("auth.example", "/", 401, "").await?;
    world.answers("any.shop.example", "/", 200, "two").await?;
    same(&world.edge, &twin).await.context("after changes")?;

    // Changes that the other one misses.
    twin.kill_agent();
    world.endpoints("web", &["10.77.0.2"]).await?;
    world.delete("ingress", "auth").await?;
    world.service("late", &["10.77.0.1"]).await?;
    let spec = format!("{{ingressClassName: waystation, rules: [{}]}}", all_of("late.example", "late"));
    world.ingress("late", &spec, &[]).await?;
    eventually(PATIENCE, "the first one serves what came", || async {
        let map = held(&world.edge).await?;
        ensure!(map.values().flatten().any(|line| line.contains("late.example")));
        Ok(())
    })
    .await?;
    twin.kill_haproxy().await?;
    twin.start_agent(&[])?;
    twin.await_ready().await?;
    same(&world.edge, &twin).await.context("after an absence")?;
    twin.terminate_agent().await?;
    twin.terminate_supervisor().await
}

/// Versions of what the first edge writes: whoever touches it changes them.
async fn versions(world: &World) -> Result<Vec<String>> {
    let mut versions = Vec::new();
    for (namespace, object) in [("shop", "ingress/shop"), ("shop", "ingress/late"), ("edge", "rcfg/main")] {
        let arguments = ["get", object, "-n", namespace, "-o", "jsonpath={.metadata.resourceVersion}"];
        versions.push(world.cluster.kubectl_text(&arguments).await?);
    }
    Ok(versions)
}

async fn published(world: &World, ingress: &str, address: &str) -> Result<()> {
    let wanted = format!("--for=jsonpath={{.status.loadBalancer.ingress[0].ip}}={address}");
    let arguments = ["wait", &wanted, "--timeout=90s", "-n", "shop", ingress];
    world.cluster.kubectl_text(&arguments).await.map(drop)
}

/// Another RouterConfig with another class, and a lot going on there.
async fn strangers(world: &World) -> Result<()> {
    published(world, "ingress/late", "192.0.2.10").await?;
    let edges = ["wait", "--for=jsonpath={.status.edgesSummary}=1/1", "--timeout=90s", "-n", "edge", "rcfg/main"];
    world.cluster.kubectl_text(&edges).await?;
    let (before, holds, written) = (versions(world).await?, held(&world.edge).await?, files(world.edge.folder())?);

    world.class("second").await?;
    let mut second = World::prepare(&world.cluster, "second").await?;
    world.router_config("second", "second", &second.listeners(), "192.0.2.20").await?;
    second.start().await?;
    let spec = |service: &str| format!("{{ingressClassName: second, rules: [{}]}}", all_of("second.example", service));
    for round in 0..3 {
        world.service("theirs", &["10.77.0.1"]).await?;
        world.ingress("second", &spec("theirs"), &[]).await?;
        published(world, "ingress/second", "192.0.2.20").await?;
        eventually(PATIENCE, "the second edge serves its own", || async {
            let answer = get(second.http(), "second.example", "/").await?;
            ensure!(answer == (200, "one".to_owned()), "round {round}: {answer:?}");
            Ok(())
        })
        .await?;
        world.delete("ingress", "second").await?;
        world.delete("service", "theirs").await?;
    }
    // What is wrong with theirs is told by theirs alone.
    world.ingress("second", &spec("nowhere"), &[]).await?;
    eventually(PATIENCE, "it is told", || async {
        ensure!(!world.events("shop", "second", "ServiceNotFound").await?.is_empty());
        Ok(())
    })
    .await?;
    published(world, "ingress/second", "192.0.2.20").await?;
    ensure!(world.events("shop", "second", "ServiceNotFound").await?.len() == 1);

    ensure!(versions(world).await? == before, "somebody wrote what is the first one's");
    ensure!(held(&world.edge).await? == holds, "the first HAProxy was told something");
    ensure!(files(world.edge.folder())? == written, "files of the first one have changed");
    let theirs = held(&second).await?;
    let strange = theirs.values().flatten().find(|line| line.contains("shop.example") || line.contains("late.example"));
    ensure!(strange.is_none(), "{strange:?}");
    world.delete("ingress", "second").await?;
    second.terminate_agent().await?;
    second.terminate_supervisor().await
}

/// Another RouterConfig with the same class and another address: a mistake, which people are told.
async fn rivals(world: &World) -> Result<()> {
    let mut rival = World::prepare(&world.cluster, "rival").await?;
    world.router_config("rival", "waystation", &rival.listeners(), "192.0.2.30").await?;
    rival.start().await?;
    let told = eventually(PATIENCE, "the contest is told", || async {
        let notes = world.events("shop", "shop", "StatusContested").await?;
        ensure!(!notes.is_empty());
        Ok(notes)
    })
    .await?;
    let names =
        told.iter().all(|note| note.contains("waystation-edge-") && note.contains("spec.edge.ingressClassName"));
    ensure!(names, "{told:?}");
    // Once the mistake is mended, the first one's stands.
    world.cluster.kubectl_text(&["delete", "rcfg", "rival", "-n", "edge"]).await?;
    rival.terminate_agent().await?;
    published(world, "ingress/shop", "192.0.2.10").await?;
    rival.terminate_supervisor().await
}
