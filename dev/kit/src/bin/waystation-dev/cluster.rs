//! `waystation-dev cluster`: a control plane (and, if asked for, a broker) that outlives the command.
//!
//! `up` starts this program again as a process of its own (`hold`), which owns everything and ends it all when it is told
//! to. `down` tells it, after checking by the start time that the process with that number is still the same.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use waystation_kit::artemis::{Artemis, ArtemisOptions, Login};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::tools::{repository, tools};

#[derive(Subcommand)]
pub enum Command {
    /// Start it, or say that it runs already
    Up {
        /// An Artemis broker beside it
        #[arg(long)]
        broker: bool,
    },
    /// Stop it and remove what it left
    Down,
    /// Print the shell commands that make kubectl use it: eval "$(dev/cluster env)"
    Env,
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        broker: bool,
    },
}

/// What is known of a cluster that is up: `.cluster/state.json`.
#[derive(Serialize, Deserialize)]
struct State {
    pid: u32,
    /// The kernel's start time of the process: its number alone may be another's by now.
    started: u64,
    kubeconfig: PathBuf,
    broker: Option<BrokerState>,
}

#[derive(Serialize, Deserialize)]
struct BrokerState {
    port: u16,
    user: String,
    password: String,
}

pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Up { broker } => up(broker).await,
        Command::Down => down().await,
        Command::Env => env(),
        Command::Hold { broker } => hold(broker).await,
    }
}

async fn up(broker: bool) -> Result<()> {
    if let Some(state) = running()? {
        eprintln!("cluster: up already (process {})", state.pid);
        return explain(&state);
    }
    tools()?;
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    let _ = std::fs::remove_file(state_file());
    let log = File::create(folder.join("log"))?;
    // A session of its own: neither Ctrl-C here nor the end of this terminal reaches it.
    let mut holder = Program::new("setsid")
        .arg(std::env::current_exe()?)
        .args(["cluster", "hold"])
        .args(broker.then_some("--broker"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("setsid could not be run")?;
    eprintln!("cluster: starting");
    loop {
        if let Some(state) = running()? {
            return explain(&state);
        }
        if let Some(status) = holder.try_wait()? {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            bail!("the cluster did not start ({status}):\n{}", log.trim_end());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn explain(state: &State) -> Result<()> {
    eprintln!("cluster: up. KUBECONFIG={}", state.kubeconfig.display());
    if let Some(broker) = &state.broker {
        eprintln!("broker:  up. amqp://127.0.0.1:{}, user {}", broker.port, broker.user);
    }
    eprintln!("\n  eval \"$(dev/cluster env)\"    makes kubectl use it\n  dev/cluster down             stops it");
    Ok(())
}

async fn down() -> Result<()> {
    let Some(state) = running()? else {
        let _ = std::fs::remove_file(state_file());
        eprintln!("cluster: not up");
        return Ok(());
    };
    let status = Program::new("sh").args(["-c", r#"kill -s TERM "$0""#, &state.pid.to_string()]).status()?;
    ensure!(status.success(), "process {} could not be told to end", state.pid);
    while start_time(state.pid) == Some(state.started) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _ = std::fs::remove_dir_all(folder());
    eprintln!("cluster: down");
    Ok(())
}

fn env() -> Result<()> {
    let state = running()?.context("no cluster is up: dev/cluster up")?;
    println!("export KUBECONFIG='{}'", state.kubeconfig.display());
    println!("export PATH='{}':\"$PATH\"", tools()?.programs().display());
    if let Some(broker) = state.broker {
        println!("export WAYSTATION_BROKER_PORT={}", broker.port);
        println!("export WAYSTATION_BROKER_USER='{}'", broker.user);
        println!("export WAYSTATION_BROKER_PASSWORD='{}'", broker.password);
    }
    Ok(())
}

/// Owns everything until SIGTERM.
async fn hold(broker: bool) -> Result<()> {
    let (mut term, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let broker = if broker { Some(Artemis::start(ArtemisOptions::default()).await?) } else { None };
    let pid = std::process::id();
    let state = State {
        pid,
        started: start_time(pid).context("no start time")?,
        kubeconfig: cluster.kubeconfig().to_owned(),
        broker: broker.as_ref().and_then(|broker| match broker.login() {
            Login::Anonymous => None,
            Login::Password { user, password } => {
                Some(BrokerState { port: broker.port(), user: user.clone(), password: password.clone() })
            }
        }),
    };
    // Whole or not at all, for whoever waits for it.
    let partial = folder().join("state.part");
    std::fs::write(&partial, serde_json::to_vec_pretty(&state)?)?;
    std::fs::rename(&partial, state_file())?;
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = hangup.recv() => {}
        }
    }
    drop((cluster, broker));
    Ok(())
}

fn folder() -> PathBuf {
    repository().join(".cluster")
}

fn state_file() -> PathBuf {
    folder().join("state.json")
}

fn running() -> Result<Option<State>> {
    let text = match std::fs::read(state_file()) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let state: State = serde_json::from_slice(&text).context(".cluster/state.json")?;
    Ok((start_time(state.pid) == Some(state.started)).then_some(state))
}

/// Field 22 of /proc/PID/stat; a zombie counts as gone.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}
