//! What needs a reload: it is done where the process runs on something else, once; and what is refused is taken back.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Result, ensure};
use waystation::drive::haproxy::actor::{Report, State};
use waystation::edge::input::Input;
use waystation_kit::process::Port;

use crate::edge::{Edge, soon};
use crate::faults::hosts;
use crate::traffic::{Load, Server, get, get_tls};

fn reloads(edge: &Edge) -> Vec<Vec<&'static str>> {
    let told = edge.driver.iter().flat_map(|driver| &driver.told);
    let fields = |report: &Report| match report {
        Report::Reloaded(fields) => Some(fields.clone()),
        _ => None,
    };
    told.filter_map(fields).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_nobody_drove_is_loaded_by_one_reload() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| hosts(edge, one.port, 0..20).unwrap()).await?;
    let began = edge.haproxy.info().await?.pid;
    edge.finish().await?;
    // Nothing has changed: nothing is done.
    edge.drive();
    edge.in_force().await?;
    ensure!(reloads(&edge).is_empty() && edge.haproxy.info().await?.pid == began, "{:?}", reloads(&edge));
    edge.finish().await?;
    // The fixed part, and a certificate that no process has seen.
    let stats = Port::claim()?;
    edge.config.listeners.stats = stats.number();
    let leaf = edge.authority.server("h1.com", &["h1.com"])?;
    edge.certificate("n_late", Some(&leaf)).crt_line("h1.com", Some("n_late"));
    let load = Load::start(edge.haproxy.http(), "h1.com");
    load.go_on(20).await?;
    edge.drive();
    edge.in_force().await?;
    ensure!(reloads(&edge) == [["outdated"]], "{:?}", reloads(&edge));
    let loaded = edge.haproxy.info().await?.pid;
    ensure!(loaded != began && get(stats.number(), "any", "/healthz").await?.0 == 200);
    ensure!(get_tls(edge.haproxy.https(), &edge.authority.certificate(), "h1.com").await?.0 == 200);
    load.go_on(20).await?;
    load.end().await?;
    ensure!(edge.compare().await? == (0, 0));
    edge.settle().await?;
    edge.finish().await?;
    edge.files_are_the_process().await?;
    // The next one finds what it wants.
    edge.drive();
    edge.in_force().await?;
    ensure!(reloads(&edge).is_empty() && edge.haproxy.info().await?.pid == loaded, "{:?}", reloads(&edge));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_another_version_is_reloaded_even_if_it_cannot_be_read() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| hosts(edge, one.port, 0..5).unwrap()).await?;
    edge.finish().await?;
    // One from before there were marks, and one that knows one map less.
    for unknown in ["description waystation-", "/body-size.map"] {
        edge.haproxy.stop().await?;
        let path = edge.layout().config();
        let text = std::fs::read_to_string(&path)?;
        let other: String = text.lines().filter(|l| !l.contains(unknown)).map(|l| format!("{l}\n")).collect();
        ensure!(other.len() < text.len());
        std::fs::write(&path, other.replace("  description waystation-", "  description waystation-0"))?;
        edge.haproxy.start().await?;
        edge.drive();
        edge.in_force().await?;
        ensure!(reloads(&edge) == [["outdated"]], "{unknown}: {:?}", reloads(&edge));
        ensure!(std::fs::read_to_string(&path)? == text);
        ensure!(get(edge.haproxy.http(), "h4.com", "/").await?.0 == 200);
        ensure!(edge.compare().await? == (0, 0));
        edge.finish().await?;
    }
    Ok(())
}

/// The fixed part is this again: what is refused is there only while it is tried.
async fn as_before(edge: &Edge, before: &str) -> Result<()> {
    let path = edge.layout().config();
    soon("what is refused is in no file", || async {
        ensure!(std::fs::read_to_string(&path)? == before);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_is_refused_is_taken_back_told_and_tried_again() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::new()?;
    (edge.limits.reload, edge.limits.reload_longest) = (Duration::from_millis(200), Duration::from_millis(400));
    hosts(&mut edge, one.port, 0..20)?;
    edge.drive();
    edge.begin().await?;
    let (http, began) = (edge.haproxy.http(), edge.haproxy.info().await?.pid);
    let before = std::fs::read_to_string(edge.layout().config())?;
    let load = Load::start(http, "h1.com");
    edge.tune(|config| config.tuning.threads = Some(60_000), vec!["edge.tuning.threads"]);
    let told = edge.until("a refusal", |report| matches!(report, Report::ReloadFailed(_))).await?;
    let words = format!("{told:?}");
    ensure!(words.contains("nbthread") && !words.contains("NOTICE") && words.len() < 800, "{words}");
    as_before(&edge, &before).await?;
    let told = edge.until("its state", |report| matches!(report, Report::State(State::Outdated(_)))).await?;
    let words = format!("{told:?}");
    ensure!(words.contains("edge.tuning.threads") && words.contains("nbthread"), "{words}");
    // Everything else is followed, and nothing is told to be in force.
    let told_before = edge.driver.as_ref().unwrap().told.len();
    hosts(&mut edge, one.port, 20..30)?;
    edge.tell();
    soon("it is followed", || async {
        ensure!(get(http, "h29.com", "/").await?.0 == 200);
        Ok(())
    })
    .await?;
    edge.until("another try", |report| matches!(report, Report::ReloadFailed(_))).await?;
    load.go_on(20).await?;
    load.end().await?;
    ensure!(edge.haproxy.info().await?.pid == began);
    // It starts from the files, and what is wanted is still wanted.
    edge.haproxy.stop().await?;
    // While another try is under way its files are there: whoever keeps HAProxy running starts it again.
    let mut starts = 1;
    while let Err(error) = edge.haproxy.start().await {
        starts += 1;
        ensure!(starts < 20, "{error:?}");
    }
    for host in ["h0.com", "h29.com"] {
        ensure!(get(http, host, "/").await? == (200, "one".to_owned()), "{host}");
    }
    edge.until("another try", |report| matches!(report, Report::ReloadFailed(_))).await?;
    let told = &edge.driver.as_ref().unwrap().told[told_before..];
    ensure!(!told.iter().any(|report| matches!(report, Report::Model(Input::InForce(_)))), "{told:?}");
    // A drive that comes now leaves the files as they are until it knows better.
    edge.finish().await?;
    edge.drive();
    edge.until("another try", |report| matches!(report, Report::ReloadFailed(_))).await?;
    as_before(&edge, &before).await?;
    edge.tune(|config| config.tuning.threads = Some(3), vec!["edge.tuning.threads"]);
    edge.until("a reload", |report| matches!(report, Report::Reloaded(_))).await?;
    edge.in_force().await?;
    edge.serving().await?;
    ensure!(reloads(&edge) == [["edge.tuning.threads"]], "{:?}", reloads(&edge));
    ensure!(edge.haproxy.info().await?.all["Nbthread"] == "3");
    ensure!(edge.compare().await? == (0, 0));
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn where_somebody_else_listens_haproxy_is_not_asked_to_and_no_request_fails() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::new()?;
    (edge.limits.reload, edge.limits.reload_longest) = (Duration::from_millis(200), Duration::from_millis(400));
    hosts(&mut edge, one.port, 0..5)?;
    edge.drive();
    edge.begin().await?;
    let load = Load::start(edge.haproxy.http(), "h1.com");
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let port = taken.local_addr()?.port();
    edge.tune(|config| config.listeners.stats = port, vec!["edge.listeners.stats"]);
    for _ in 0..3 {
        let told = edge.until("a refusal", |report| matches!(report, Report::ReloadFailed(_))).await?;
        ensure!(format!("{told:?}").contains(&format!("127.0.0.1:{port}: Address already in use")), "{told:?}");
        load.go_on(20).await?;
    }
    ensure!(edge.haproxy.ask_master("show proc;quit").await?.contains("master          0 "));
    drop(taken);
    edge.until("a reload", |report| matches!(report, Report::Reloaded(_))).await?;
    edge.in_force().await?;
    load.go_on(20).await?;
    load.end().await?;
    ensure!(get(port, "any", "/healthz").await?.0 == 200);
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_process_from_starting_is_replaced_by_what_is_wanted_instead() -> Result<()> {
    let one = Server::start("one").await?;
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let mut edge = Edge::new()?;
    hosts(&mut edge, one.port, 0..5)?;
    let stats = edge.config.listeners.stats;
    edge.config.listeners.stats = taken.local_addr()?.port();
    edge.drive();
    edge.until("nobody is there", |report| matches!(report, Report::State(State::Unreachable(_)))).await?;
    edge.tune(|config| config.listeners.stats = stats, vec!["edge.listeners.stats"]);
    let path = edge.layout().config();
    soon("the files are corrected", || async {
        ensure!(std::fs::read_to_string(&path)?.contains(&format!(":{stats}\n")));
        Ok(())
    })
    .await?;
    edge.begin().await?;
    ensure!(reloads(&edge).is_empty() && get(edge.haproxy.http(), "h4.com", "/").await?.0 == 200);
    Ok(())
}
