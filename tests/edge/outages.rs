//! What is down, and what goes on meanwhile.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use waystation_kit::process::{eventually, inside_own_network};
use waystation_kit::tools::tools;

use crate::edge::{COMPARED, PATIENCE, World, all_of, endpoint, get_with};
use crate::traffic::{Load, get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_outlives_agent_haproxy_and_api_server() -> Result<()> {
    if !inside_own_network("outages::traffic_outlives_agent_haproxy_and_api_server").await? {
        return Ok(());
    }
    let mut world = World::start().await?;
    let _servers = (endpoint("one", "10.77.0.1").await?, endpoint("two", "10.77.0.2").await?);
    let leaf = world.authority.server("shop", &["shop.example"])?;
    world.service("web", &["10.77.0.1"]).await?;
    world.certificate("cert", &leaf).await?;
    world.secret("users", "Opaque", &[("auth", "ann::open sesame\n")]).await?;
    let spec = format!(
        "{{ingressClassName: waystation, tls: [{{hosts: [shop.example], secretName: cert}}], rules: [{}, {}]}}",
        all_of("shop.example", "web"),
        all_of("plain.example", "web")
    );
    world.ingress("shop", &spec, &[]).await?;
    let spec = format!("{{ingressClassName: waystation, rules: [{}]}}", all_of("auth.example", "web"));
    let options = [("waystation.dev/auth-type", "basic"), ("waystation.dev/auth-secret", "users")];
    world.ingress("auth", &spec, &options).await?;
    world.answers_tls("shop.example", "one", &leaf).await?;
    world.answers("plain.example", "/", 200, "one").await?;
    world.answers("auth.example", "/", 401, "").await?;
    keys_are_for_their_owner(&world)?;

    // HAProxy is killed: it is back from its files, whether an agent is there or not.
    haproxy_comes_back(&world).await.context("with an agent")?;
    world.answers_tls("shop.example", "one", &leaf).await?;
    world.edge.kill_agent();
    haproxy_comes_back(&world).await.context("without an agent")?;
    world.answers_tls("shop.example", "one", &leaf).await?;

    // Without an agent: traffic goes on, and users are known.
    let load = Load::start(world.edge.http(), "plain.example");
    load.go_on(100).await?;
    signs_in(&world).await?;
    // What has changed meanwhile is caught up with, and nothing else is commanded.
    world.endpoints("web", &["10.77.0.1", "10.77.0.2"]).await?;
    let uptime = world.edge.info().await?;
    world.edge.start_agent(COMPARED)?;
    world.edge.await_ready().await?;
    eventually(PATIENCE, "the endpoint that came meanwhile answers", || async {
        ensure!(get(world.edge.http(), "plain.example", "/").await?.1 == "two");
        Ok(())
    })
    .await?;
    load.go_on(100).await?;
    ensure!(world.edge.info().await?.pid == uptime.pid, "another process");
    let commands = world.commands().await?;
    // One server; that backends are published cannot be read; and of two frontends one is silenced that the files have.
    let expected = [
        ("add-server,result=ok", 1.0),
        ("publish-backend,result=ok", 1.0),
        ("set-server,result=ok", 3.0),
        ("switch-frontend,result=already", 1.0),
        ("switch-frontend,result=ok", 1.0),
    ];
    ensure!(commands == expected.map(|(name, count)| (name.to_owned(), count)).into(), "{commands:?}");

    // Without the API server: nothing changes; and it is followed again when it is back.
    world.cluster.stop_apiserver().await?;
    let before = state(&world).await?;
    // None, before there was one.
    let failures = async || {
        let all = world.edge.metrics("waystation_edge_watch_errors_total{kind=\"Ingress\"}").await?;
        anyhow::Ok(all.values().sum::<f64>())
    };
    let errors = failures().await?;
    eventually(PATIENCE, "the agent has noticed", || async {
        let now = failures().await?;
        ensure!(now > errors + 1.0, "{now} after {errors}");
        Ok(())
    })
    .await?;
    load.go_on(100).await?;
    ensure!(state(&world).await? == before, "something changed");
    ensure!(world.edge.get("/readyz").await?.0 == 200);
    let count = load.end().await.context("a request failed")?;
    ensure!(count > 300, "{count} requests");
    world.cluster.start_apiserver().await?;
    world.endpoints("web", &["10.77.0.2"]).await?;
    eventually(PATIENCE, "the API server is followed again", || async {
        for _ in 0..4 {
            ensure!(get(world.edge.http(), "plain.example", "/").await?.1 == "two");
        }
        Ok(())
    })
    .await?;
    world.no_reload().await?;
    ensure!(world.drift().await? == (0.0, 0.0), "{:?}", world.drift().await?);
    what_haproxy_does_not_load(&mut world).await.context("what HAProxy does not load")?;

    // The agent ends in order, and HAProxy goes on; the supervisor ends, and nothing is left.
    world.edge.terminate_agent().await?;
    ensure!(get(world.edge.http(), "plain.example", "/").await? == (200, "two".to_owned()));
    world.edge.terminate_supervisor().await?;
    ensure!(get(world.edge.http(), "plain.example", "/").await.is_err());

    // A supervisor that is killed takes HAProxy with it.
    world.edge.start_supervisor()?;
    world.answers("plain.example", "/", 200, "two").await?;
    world.edge.signal_supervisor("KILL")?;
    eventually(PATIENCE, "HAProxy ends with its supervisor", || async {
        ensure!(get(world.edge.http(), "plain.example", "/").await.is_err());
        Ok(())
    })
    .await?;
    on_a_single_machine(&mut world).await.context("on a single machine")
}

/// The agent starts the supervisor itself, which outlives it and is found again.
async fn on_a_single_machine(world: &mut World) -> Result<()> {
    let haproxy = tools()?.haproxy().display().to_string();
    let arguments = ["--haproxy", haproxy.as_str()];
    world.edge.start_agent(&arguments)?;
    let supervisor = world.edge.adopt_supervisor().await?;
    world.edge.await_ready().await?;
    world.answers("plain.example", "/", 200, "two").await?;
    world.edge.kill_agent();
    ensure!(get(world.edge.http(), "plain.example", "/").await? == (200, "two".to_owned()));
    let process = world.edge.info().await?.pid;
    world.edge.start_agent(&arguments)?;
    world.edge.await_ready().await?;
    ensure!(world.edge.adopt_supervisor().await? == supervisor, "another supervisor");
    ensure!(world.edge.info().await?.pid == process, "another HAProxy");
    world.edge.terminate_agent().await?;
    ensure!(get(world.edge.http(), "plain.example", "/").await? == (200, "two".to_owned()));
    world.edge.terminate_detached().await?;
    ensure!(get(world.edge.http(), "plain.example", "/").await.is_err());
    Ok(())
}

/// A RouterConfig that HAProxy refuses is told in its status and changes nothing; one that came while no agent was there is
/// loaded once.
async fn what_haproxy_does_not_load(world: &mut World) -> Result<()> {
    let pid = world.edge.info().await?.pid;
    let tuned = |timeout: &str| format!("{}, tuning: {{timeoutClient: {timeout}}}", world.edge.listeners());
    let (good, better) = (tuned("77s"), tuned("78s"));
    // Somebody else listens there.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let (stats, other) = (format!("stats: {}", world.edge.stats()), format!("stats: {}", taken.local_addr()?.port()));
    let bad = world.edge.listeners().replace(&stats, &other);
    world.router_config("main", "waystation", &bad, "192.0.2.10").await?;
    let condition = |what: &str| format!("jsonpath={{.status.conditions[?(@.type==\"Ready\")].{what}}}");
    let wait = async |reason: &str| {
        let reason = format!("--for={}={reason}", condition("reason"));
        let waited = world.cluster.kubectl_text(&["wait", &reason, "--timeout=60s", "-n", "edge", "rcfg/main"]).await;
        match waited {
            Ok(_) => anyhow::Ok(()),
            Err(error) => {
                let is = world.cluster.kubectl_text(&["get", "rcfg", "main", "-n", "edge", "-o", "yaml"]).await?;
                Err(error.context(format!("{reason}, but\n{is}\n{}", world.edge.logs(30))))
            }
        }
    };
    wait("Outdated").await?;
    let status =
        async |path: &str| world.cluster.kubectl_text(&["get", "rcfg", "main", "-n", "edge", "-o", path]).await;
    let told = eventually(PATIENCE, "HAProxy's words are told", || async {
        let told = status(&condition("message")).await?;
        ensure!(told.contains("edge.listeners.stats failed") && told.contains("Address already in use"), "{told}");
        Ok(told)
    });
    told.await?;
    ensure!(status(&condition("status")).await? == "False");
    let edges = status("jsonpath={.status.edges[*]}").await?;
    ensure!(edges.contains("Address already in use") && !edges.contains("Serving"), "{edges}");
    ensure!(world.edge.metric("waystation_edge_in_force").await? == 0.0);
    ensure!(world.edge.get("/readyz").await?.0 == 200);
    // HAProxy goes on as it was, is followed in all else, and comes back from its files.
    ensure!(world.edge.info().await?.pid == pid);
    world.endpoints("web", &["10.77.0.1"]).await?;
    haproxy_comes_back(world).await?;
    wait("Outdated").await?;
    world.router_config("main", "waystation", &good, "192.0.2.10").await?;
    wait("Serving").await?;
    let config = || std::fs::read_to_string(world.edge.folder().join("haproxy.cfg"));
    ensure!(config()?.contains("  timeout client 77000ms\n"));
    let by_reason = world.edge.metrics("waystation_edge_reloads_total").await?;
    ensure!(by_reason["waystation_edge_reloads_total{reason=\"edge.tuning.timeoutClient\"}"] == 1.0, "{by_reason:?}");
    for reason in ["Reloaded", "ReloadFailed"] {
        let events = world.events("edge", "main", reason).await?;
        ensure!(events.len() == 1, "{reason}: {events:?}");
    }
    // Without an agent.
    let pid = world.edge.info().await?.pid;
    world.edge.kill_agent();
    world.router_config("main", "waystation", &better, "192.0.2.10").await?;
    world.edge.start_agent(COMPARED)?;
    world.edge.await_ready().await?;
    ensure!(world.edge.info().await?.pid != pid, "nothing was loaded");
    ensure!(std::fs::read_to_string(world.edge.folder().join("haproxy.cfg"))?.contains("  timeout client 78000ms\n"));
    ensure!(world.edge.metric("waystation_edge_reloads_total{reason=\"outdated\"}").await? == 1.0);
    world.endpoints("web", &["10.77.0.2"]).await?;
    world.answers("plain.example", "/", 200, "two").await?;
    ensure!(world.drift().await? == (0.0, 0.0));
    Ok(())
}

async fn haproxy_comes_back(world: &World) -> Result<()> {
    let before = world.edge.kill_haproxy().await?;
    eventually(PATIENCE, "HAProxy is started again", || async {
        ensure!(world.edge.info().await?.pid != before);
        Ok(())
    })
    .await?;
    world.answers("plain.example", "/", 200, "one").await?;
    signs_in(world).await
}

async fn signs_in(world: &World) -> Result<()> {
    // "ann:open sesame"
    let login = "Authorization: Basic YW5uOm9wZW4gc2VzYW1l";
    let answer = get_with(world.edge.http(), "auth.example", login).await?;
    ensure!(answer.0 == 200, "{answer:?}");
    ensure!(get(world.edge.http(), "auth.example", "/").await?.0 == 401);
    Ok(())
}

/// Servers and maps, as HAProxy shows them.
async fn state(world: &World) -> Result<String> {
    let servers = world.edge.ask("show servers conn").await?;
    let names: Vec<&str> = servers.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let hosts = world.edge.folder().join("maps/hosts.map");
    let map = world.edge.ask(&format!("show map {}", hosts.display())).await?;
    let entries: Vec<&str> = map.lines().filter_map(|line| line.split_once(' ')).map(|(_, entry)| entry).collect();
    Ok(format!("{names:?} {entries:?}"))
}

fn keys_are_for_their_owner(world: &World) -> Result<()> {
    for folder in ["certs", "users"] {
        let folder = world.edge.folder().join(folder);
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let mode = entry.metadata()?.permissions().mode() & 0o777;
            ensure!(mode == 0o600, "{}: {mode:o}", entry.path().display());
        }
    }
    Ok(())
}
