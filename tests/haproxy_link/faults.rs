//! What is left when something ends, and what is put right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use waystation::drive::haproxy::actor::{Order, Report, State};
use waystation::drive::haproxy::disk::{Disk, DiskError, Folder, Work};
use waystation::edge::render::File;
use waystation::edge::wanted::MapName;

use crate::edge::{Edge, soon};
use crate::traffic::{Load, Server, get, get_tls};

/// Hosts with a backend each, some with a certificate.
pub fn hosts(edge: &mut Edge, port: u16, numbers: std::ops::Range<usize>) -> Result<()> {
    for number in numbers {
        let (host, backend) = (format!("h{number}.com"), format!("n:s{number}:80"));
        edge.backend(&backend).server(&backend, port, false).route(&host, Some(&backend));
        if number % 10 == 0 {
            let leaf = edge.authority.server(&host, &[&host])?;
            let name = format!("n_c{number}");
            edge.certificate(&name, Some(&leaf)).crt_line(&host, Some(&name));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_haproxy_that_is_started_from_the_files_alone_serves_the_same() -> Result<()> {
    let (one, two) = (Server::start("one").await?, Server::start("two").await?);
    let mut edge = Edge::started(|_| {}).await?;
    hosts(&mut edge, one.port, 0..40)?;
    edge.settle().await?;
    for number in 0..20 {
        let backend = format!("n:s{number}:80");
        edge.server(&backend, two.port, false).no_server(&backend, one.port);
        edge.settle().await?;
    }
    edge.route("h30.com", None).map(MapName::Regex, "^r\\.com/.*", Some("n:s39:80"));
    edge.map(MapName::Hosts, "r.com", Some("-r"));
    edge.settle().await?;
    let driver = edge.finish().await?;
    ensure!(!driver.told.iter().any(|report| matches!(report, Report::Reloaded(_))), "{:?}", driver.told);
    edge.files_are_the_process().await?;
    // Nobody but its owner reads a key.
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(edge.layout().certificate("n_c0"))?.permissions());
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    let all = |edge: &Edge| {
        let (http, https, ca) = (edge.haproxy.http(), edge.haproxy.https(), edge.authority.certificate());
        async move {
            let mut answers = Vec::new();
            for number in 0..40 {
                answers.push(get(http, &format!("h{number}.com"), "/").await?);
            }
            answers.push(get(http, "r.com", "/x").await?);
            let (status, body, shown) = get_tls(https, &ca, "h10.com").await?;
            anyhow::Ok((answers, status, body, shown))
        }
    };
    let before = all(&edge).await?;
    ensure!(before.0[0].1 == "two" && before.0[39].1 == "one" && before.0[30].0 == 404 && before.0[40].0 == 200);
    edge.haproxy.kill();
    edge.haproxy.start().await?;
    ensure!(all(&edge).await? == before);
    // Whoever comes to drive it finds nothing to do, but that a start opens one frontend more than one that serves.
    edge.drive();
    edge.in_force().await?;
    let counts = edge.driver.as_ref().unwrap().counts.all();
    ensure!(counts.keys().all(|(kind, _)| ["publish-backend", "switch-frontend"].contains(kind)), "{counts:?}");
    ensure!(edge.compare().await? == (0, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_haproxy_is_filled_again_with_what_came_meanwhile() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| hosts(edge, one.port, 0..10).unwrap()).await?;
    for round in 1..=3 {
        // What is under way when it dies, and what comes while it is dead.
        hosts(&mut edge, one.port, round * 10..round * 10 + 5)?;
        edge.tell();
        edge.haproxy.kill_worker().await?;
        hosts(&mut edge, one.port, round * 10 + 5..round * 10 + 10)?;
        edge.tell();
        edge.until("it is gone", |report| matches!(report, Report::State(State::Unreachable(_)))).await?;
        edge.haproxy.start().await?;
        edge.in_force().await?;
        edge.serving().await.or_else(|_| anyhow::Ok(()))?;
        for number in 0..round * 10 + 10 {
            let answer = get(edge.haproxy.http(), &format!("h{number}.com"), "/").await?;
            ensure!(answer == (200, "one".to_owned()), "h{number}.com after round {round}: {answer:?}");
        }
        let host = format!("h{}.com", round * 10);
        ensure!(get_tls(edge.haproxy.https(), &edge.authority.certificate(), &host).await?.0 == 200);
    }
    ensure!(edge.compare().await? == (0, 0));
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_haproxy_that_cannot_start_from_a_spoilt_file_is_given_a_good_one() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| {
        edge.limits.reload = Duration::from_secs(3);
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    edge.haproxy.kill_worker().await?;
    edge.until("it is gone", |report| matches!(report, Report::State(State::Unreachable(_)))).await?;
    let list = edge.layout().crt_list();
    std::fs::write(&list, "spoilt\n")?;
    ensure!(edge.haproxy.check().await.is_err(), "it would start all the same");
    soon("the file is good again", || edge.haproxy.check()).await?;
    edge.haproxy.start().await?;
    edge.serving().await?;
    ensure!(get(edge.haproxy.http(), "h.com", "/").await? == (200, "one".to_owned()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_from_outside_loses_nothing() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| {
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    let began = edge.haproxy.info().await?.pid;
    for round in 0..3 {
        // Somebody reloads while changes are under way: the old process is the one that is commanded until the drive
        // notices.
        let master = edge.haproxy.master_socket();
        let reloading = tokio::spawn(async move { waystation_kit::haproxy::ask(&master, "reload").await });
        for number in round * 20..round * 20 + 20 {
            hosts(&mut edge, one.port, number..number + 1)?;
            edge.tell();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        ensure!(reloading.await??.starts_with("Success=1"));
        edge.in_force().await?;
    }
    ensure!(edge.haproxy.info().await?.pid != began);
    for number in 0..60 {
        // What was in force in the old process may be missing in the new one until the drive has looked.
        let (http, host) = (edge.haproxy.http(), format!("h{number}.com"));
        soon("every host is served", || async {
            let answer = get(http, &host, "/").await?;
            ensure!(answer.0 == 200, "{host}: {answer:?}");
            Ok(())
        })
        .await?;
    }
    let told = &edge.driver.as_ref().unwrap().told;
    ensure!(!told.iter().any(|report| matches!(report, Report::Reloaded(_))), "{told:?}");
    edge.compare().await?;
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_did_to_process_and_files_is_put_right() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| hosts(edge, one.port, 0..20).unwrap()).await?;
    let layout = edge.layout();
    // Files have followed when a comparison is done.
    ensure!(edge.compare().await? == (0, 0));
    let slot = format!("n:s3:80/127.0.0.1_{}", one.port);
    for command in [
        format!("del map {} h1.com", layout.map(MapName::Hosts)),
        format!("add map {} foreign.com -", layout.map(MapName::Hosts)),
        format!("set server {slot} state drain"),
        format!("add map {} h2.com/ n:s2:80", layout.map(MapName::Prefix)),
        format!("del ssl crt-list {} {}", layout.crt_list(), layout.certificate("n_c10")),
    ] {
        edge.haproxy.ask(&command).await?;
    }
    std::fs::write(layout.map(MapName::Hosts), "nonsense")?;
    std::fs::remove_file(layout.certificate("n_c0"))?;
    let (differences, files) = edge.compare().await?;
    ensure!(differences == 5 && files == 2, "{differences} differences, {files} files");
    soon("files are put right", || {
        let path = layout.certificate("n_c0");
        async move {
            ensure!(std::path::Path::new(&path).exists());
            Ok(())
        }
    })
    .await?;
    let again = edge.compare().await?;
    ensure!(again == (0, 0), "{again:?}; {:?}", edge.driver.as_ref().map(|driver| driver.counts.all()));
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_fixed_part_reloads_once_and_keeps_what_is_served() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| hosts(edge, one.port, 0..20).unwrap()).await?;
    let began = edge.haproxy.info().await?.pid;
    let load = Load::start(edge.haproxy.http(), "h1.com");
    load.go_on(20).await?;
    edge.tune(|config| config.tuning.timeout_client_ms = 40_000, vec!["edge.tuning.timeoutClient"]);
    let told = edge.until("a reload", |report| matches!(report, Report::Reloaded(_))).await?;
    ensure!(told == Report::Reloaded(vec!["edge.tuning.timeoutClient"]), "{told:?}");
    load.go_on(20).await?;
    load.end().await?;
    ensure!(edge.haproxy.info().await?.pid != began);
    ensure!(edge.compare().await? == (0, 0));
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_is_asked_for_while_nobody_answers_is_made_with_who_comes() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::new()?;
    hosts(&mut edge, one.port, 0..3)?;
    edge.drive();
    edge.until("nobody is there", |report| matches!(report, Report::State(State::Unreachable(_)))).await?;
    edge.order(Order::Compare);
    edge.begin().await?;
    let compared = |report: &Report| matches!(report, Report::Compared { .. });
    if !edge.driver.as_ref().is_some_and(|driver| driver.told.iter().any(compared)) {
        edge.until("a comparison", compared).await?;
    }
    edge.finish().await.map(drop)
}

/// A disk that is full when told so.
struct Full(AtomicBool);

impl Disk for Full {
    fn write(&self, files: Vec<File>, removed: Vec<String>) -> Work<()> {
        if self.0.load(Ordering::SeqCst) {
            let error = DiskError { path: "x".to_owned(), words: "No space left on device".to_owned() };
            return async move { Err(error) }.boxed();
        }
        Folder.write(files, removed)
    }

    fn read(&self, paths: Vec<String>) -> Work<Vec<Option<String>>> {
        Folder.read(paths)
    }

    fn list(&self, folder: String) -> Work<Vec<String>> {
        Folder.list(folder)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_stops_no_traffic() -> Result<()> {
    let one = Server::start("one").await?;
    let full = Arc::new(Full(AtomicBool::new(false)));
    let mut edge = Edge::new()?;
    edge.disk = full.clone();
    hosts(&mut edge, one.port, 0..5)?;
    edge.drive();
    edge.begin().await?;
    full.0.store(true, Ordering::SeqCst);
    hosts(&mut edge, one.port, 5..15)?;
    edge.settle().await?;
    ensure!(get(edge.haproxy.http(), "h14.com", "/").await?.0 == 200);
    edge.until("the disk is full", |report| matches!(report, Report::Files(Some(_)))).await?;
    // What was written is whole.
    edge.haproxy.check().await?;
    full.0.store(false, Ordering::SeqCst);
    edge.until("the disk has room", |report| matches!(report, Report::Files(None))).await?;
    edge.finish().await?;
    edge.files_are_the_process().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_far_behind_is_started_from_the_files_once() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::new()?;
    edge.limits.behind = 100;
    edge.drive();
    edge.begin().await?;
    edge.finish().await?;
    let began = edge.haproxy.info().await?.pid;
    hosts(&mut edge, one.port, 0..60)?;
    // One that comes to a process without any of that.
    edge.drive();
    edge.in_force().await?;
    let told = edge.driver.as_ref().unwrap().told.clone();
    let reloads = told.iter().filter(|report| **report == Report::Reloaded(vec!["behind"])).count();
    ensure!(reloads == 1, "{told:?}");
    ensure!(edge.haproxy.info().await?.pid != began);
    ensure!(get(edge.haproxy.http(), "h59.com", "/").await?.0 == 200);
    ensure!(get_tls(edge.haproxy.https(), &edge.authority.certificate(), "h50.com").await?.0 == 200);
    edge.compare().await?;
    edge.finish().await?;
    edge.files_are_the_process().await
}
