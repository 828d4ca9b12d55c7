//! Nothing outlives the process that started it, however that process ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::process::{Port, Process, WorkFolder, eventually};

const HOLD: &str = "WAYSTATION_KIT_HOLD";

/// Not a test of its own: the others run it as the process that is interrupted or killed.
#[tokio::test]
#[ignore = "run by the other tests"]
async fn holder() -> Result<()> {
    match std::env::var(HOLD).as_deref() {
        Ok("sleep") => {
            let folder = WorkFolder::new("holder")?;
            let log = folder.join("sleep.log");
            let process = Process::spawn("sleep", Path::new("sleep"), &["1000"], &[], &log)?;
            println!("held {} {}", process.pid(), folder.path().display());
            std::future::pending::<()>().await;
        }
        Ok("everything") => {
            let cluster = Cluster::start(ClusterOptions::default()).await?;
            let broker = Artemis::start(ArtemisOptions::default()).await?;
            let pids = cluster.processes().into_iter().map(|(_, pid)| pid).chain(broker.pid());
            for pid in pids {
                println!("held {pid} {}", cluster.folder().display());
            }
            println!("all");
            std::future::pending::<()>().await;
        }
        _ => {}
    }
    Ok(())
}

/// Starts [`holder`] and returns it with what it holds.
fn hold(what: &str) -> Result<(Child, Vec<(u32, PathBuf)>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["holder", "--exact", "--ignored", "--nocapture"])
        .env(HOLD, what)
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut held = Vec::new();
    for line in lines {
        let line = line?;
        // The test runner writes the test's name before its first line.
        if let Some((_, told)) = line.split_once("held ") {
            let (pid, folder) = told.split_once(' ').context("a strange line")?;
            held.push((pid.parse()?, PathBuf::from(folder)));
        }
        if line == "all" || (what == "sleep" && !held.is_empty()) {
            return Ok((child, held));
        }
    }
    anyhow::bail!("the holder ended: {:?}", child.wait()?)
}

fn runs(pid: u32) -> bool {
    // The state comes after the name, which is in brackets. A zombie runs no more.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

async fn ends_with(what: &str, signal: &str, within: Duration) -> Result<()> {
    let (mut holder, held) = hold(what)?;
    for (pid, folder) in &held {
        ensure!(runs(*pid) && folder.is_dir(), "{pid} should run and {folder:?} should be there");
    }
    Command::new("sh").args(["-c", r#"kill -s "$0" "$1""#, signal, &holder.id().to_string()]).status()?;
    holder.wait()?;
    eventually(within, "everything is gone", || async {
        for (pid, folder) in &held {
            ensure!(!runs(*pid), "process {pid} is left");
            ensure!(!folder.exists(), "{} is left", folder.display());
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_interrupted() -> Result<()> {
    ends_with("sleep", "INT", Duration::from_secs(20)).await
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_terminated() -> Result<()> {
    ends_with("sleep", "TERM", Duration::from_secs(20)).await
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_hung_up() -> Result<()> {
    ends_with("sleep", "HUP", Duration::from_secs(20)).await
}

#[tokio::test]
async fn a_cluster_and_a_broker_end_when_their_owner_is_killed() -> Result<()> {
    ends_with("everything", "KILL", Duration::from_secs(30)).await
}

#[tokio::test]
async fn dropping_ends_the_process_and_removes_the_folder() -> Result<()> {
    let folder = WorkFolder::new("dropped")?;
    let process = Process::spawn("sleep", Path::new("sleep"), &["1000"], &[], &folder.join("log"))?;
    let (pid, path) = (process.pid(), folder.path().to_owned());
    ensure!(runs(pid) && path.is_dir());
    drop(process);
    drop(folder);
    ensure!(!runs(pid) && !path.exists());
    Ok(())
}

#[tokio::test]
async fn terminate_reports_the_status_and_a_failure_shows_the_log() -> Result<()> {
    let folder = WorkFolder::new("terminated")?;
    let script = ["-c", "echo the last words; exit 3"];
    let mut process = Process::spawn("talker", Path::new("sh"), &script, &[], &folder.join("log"))?;
    eventually(Duration::from_secs(10), "it ends", || {
        let ended = process.ended();
        async move { ended.context("it runs") }
    })
    .await?;
    let error = process.ensure_running().expect_err("it has ended").to_string();
    ensure!(error.contains("the last words") && error.contains('3'), "{error}");
    Ok(())
}

#[test]
fn ports_are_distinct_while_they_are_held() -> Result<()> {
    let ports = (0..200).map(|_| Port::claim()).collect::<Result<Vec<_>>>()?;
    let distinct: std::collections::BTreeSet<_> = ports.iter().map(Port::number).collect();
    ensure!(distinct.len() == 200);
    Ok(())
}
