//! An edge as its users run it: a folder, a supervisor with a HAProxy, and an agent with the rights of its ServiceAccount,
//! each a process of its own.
//!
//! Invariant: folder and ports stay through every kill and start; all ends when this is dropped (see [`crate::process`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::time::Instant;

use crate::haproxy::{Info, ask};
use crate::operator::http_get;
use crate::process::{Port, Process, WorkFolder, eventually, guard_group};
use crate::tools::tools;

/// The ServiceAccount that `charts/waystation/rbac/edge.yaml` is for.
pub const SERVICE_ACCOUNT: &str = "waystation-edge";
/// Where that is, and the Leases of edges.
pub const NAMESPACE: &str = "waystation-edge";

const SOON: Duration = Duration::from_secs(60);

/// An edge, running or not.
#[derive(Debug)]
pub struct Edge {
    supervisor: Option<Process>,
    /// One that an agent has started for itself.
    detached: Option<u32>,
    agent: Option<Process>,
    http: Port,
    https: Port,
    stats: Port,
    probes: Port,
    name: String,
    router_config: String,
    filter: &'static str,
    binary: PathBuf,
    kubeconfig: PathBuf,
    logs: WorkFolder,
    folder: WorkFolder,
}

impl Edge {
    /// One for that RouterConfig (`namespace/name`) that is ready to be started.
    pub fn prepare(name: &str, router_config: &str, binary: &Path, kubeconfig: &Path) -> Result<Self> {
        Ok(Self {
            supervisor: None,
            detached: None,
            agent: None,
            http: Port::claim()?,
            https: Port::claim()?,
            stats: Port::claim()?,
            probes: Port::claim()?,
            name: name.to_owned(),
            router_config: router_config.to_owned(),
            filter: "info,waystation=debug",
            binary: binary.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            logs: WorkFolder::new("edge-logs")?,
            folder: WorkFolder::new("edge")?,
        })
    }

    /// Its agent is called that from the next start on.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// As it is shipped, before its first start: its agent logs no more than by default, and its files are in memory.
    pub fn as_shipped(mut self) -> Result<Self> {
        self.filter = "info";
        self.folder = WorkFolder::in_memory("edge")?;
        Ok(self)
    }

    /// The number of the agent's process.
    pub fn agent_pid(&self) -> Result<u32> {
        Ok(self.agent.as_ref().context("no agent runs")?.pid())
    }

    /// Takes away all files, as on a machine that starts anew; neither supervisor nor agent runs.
    pub fn clear_folder(&self) -> Result<()> {
        ensure!(self.supervisor.is_none() && self.agent.is_none(), "the folder is in use");
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        Ok(())
    }

    /// A port of 127.0.0.1 for plain HTTP.
    #[must_use]
    pub fn http(&self) -> u16 {
        self.http.number()
    }

    /// A port of 127.0.0.1 for TLS.
    #[must_use]
    pub fn https(&self) -> u16 {
        self.https.number()
    }

    /// A port of 127.0.0.1 for HAProxy's exporter.
    #[must_use]
    pub fn stats(&self) -> u16 {
        self.stats.number()
    }

    /// The `listeners` of its RouterConfig, as YAML in one line.
    #[must_use]
    pub fn listeners(&self) -> String {
        let (http, https, stats) = (self.http(), self.https(), self.stats.number());
        format!("{{http: {http}, https: {https}, stats: {stats}, addresses: [\"127.0.0.1\"]}}")
    }

    /// The folder of HAProxy's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the supervisor, which waits for files.
    pub fn start_supervisor(&mut self) -> Result<()> {
        let folder = self.folder.path().display().to_string();
        let haproxy = tools()?.haproxy().display().to_string();
        let arguments = ["supervise", "--folder", &folder, "--haproxy", &haproxy, "--grace", "2s"];
        let log = self.logs.join("supervise.log");
        self.supervisor = Some(Process::spawn("waystation supervise", &self.binary, &arguments, &[], &log)?);
        Ok(())
    }

    /// Starts the agent; `more` are more arguments.
    pub fn start_agent(&mut self, more: &[&str]) -> Result<()> {
        let arguments = [
            // By this name the kit is told of its HAProxy, and an agent to start a supervisor of its own.
            "-u".to_owned(),
            "WAYSTATION_HAPROXY".to_owned(),
            self.binary.display().to_string(),
            "edge".to_owned(),
            format!("--router-config={}", self.router_config),
            format!("--folder={}", self.folder.path().display()),
            format!("--name={}", self.name),
            format!("--namespace={NAMESPACE}"),
            format!("--listen=127.0.0.1:{}", self.probes.number()),
        ];
        let arguments: Vec<String> = arguments.into_iter().chain(more.iter().map(ToString::to_string)).collect();
        let environment: [(&str, &OsStr); 2] =
            [("KUBECONFIG", self.kubeconfig.as_os_str()), ("RUST_LOG", self.filter.as_ref())];
        let log = self.logs.join("edge.log");
        self.agent = Some(Process::spawn("waystation edge", Path::new("env"), &arguments, &environment, &log)?);
        Ok(())
    }

    /// Starts both and waits until the agent is ready.
    pub async fn start(&mut self) -> Result<()> {
        self.start_supervisor()?;
        self.start_agent(&[])?;
        self.await_ready().await
    }

    /// Fails with the ends of both logs when agent or supervisor runs no more.
    pub fn ensure_running(&mut self) -> Result<()> {
        [&mut self.agent, &mut self.supervisor].into_iter().flatten().try_for_each(Process::ensure_running)
    }

    /// Waits until the agent's `/readyz` says yes.
    pub async fn await_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(agent) = &mut self.agent {
                agent.ensure_running()?;
            }
            let answer = self.get("/readyz").await;
            match answer {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() > deadline => {
                    bail!("the edge was not ready within {SOON:?}: {answer:?}; {}", self.logs(40))
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Kills the agent (SIGKILL).
    pub fn kill_agent(&mut self) {
        self.agent = None;
    }

    /// Asks the agent to end (SIGTERM) and waits until it has.
    pub async fn terminate_agent(&mut self) -> Result<()> {
        let mut agent = self.agent.take().context("no agent runs")?;
        let status = agent.terminate(Duration::from_secs(30)).await?;
        ensure!(status.success(), "the agent ended with {status}: {}", agent.log_tail(20));
        Ok(())
    }

    /// Asks the supervisor to end (SIGTERM) and waits until it and HAProxy have.
    pub async fn terminate_supervisor(&mut self) -> Result<()> {
        let mut supervisor = self.supervisor.take().context("no supervisor runs")?;
        let status = supervisor.terminate(Duration::from_secs(30)).await?;
        ensure!(status.success(), "the supervisor ended with {status}: {}", supervisor.log_tail(20));
        Ok(())
    }

    /// Takes the supervisor that the agent has started for itself under guard; its number.
    pub async fn adopt_supervisor(&mut self) -> Result<u32> {
        let path = self.folder.join("supervise.lock");
        let pid = eventually(SOON, "a supervisor", || async {
            let pid = std::fs::read_to_string(&path)?.trim().parse()?;
            // The number may be of one that was before.
            ensure!(runs(pid), "the one that was is gone");
            Ok(pid)
        });
        let pid = pid.await?;
        guard_group(pid)?;
        self.detached = Some(pid);
        Ok(pid)
    }

    /// Asks that one to end (SIGTERM), and waits until it has.
    pub async fn terminate_detached(&mut self) -> Result<()> {
        let pid = self.detached.context("no supervisor was adopted")?;
        signal_by_number("TERM", &pid.to_string())?;
        let ended = eventually(SOON, "the end of the supervisor", || async {
            ensure!(!runs(pid), "it runs");
            Ok(())
        });
        ended.await?;
        self.detached = None;
        Ok(())
    }

    /// The supervisor alone gets this signal.
    pub fn signal_supervisor(&mut self, signal: &str) -> Result<()> {
        self.supervisor.as_mut().context("no supervisor runs")?.signal(signal)
    }

    /// Kills HAProxy's worker (SIGKILL), which takes the master with it.
    pub async fn kill_haproxy(&self) -> Result<u32> {
        let pid = self.info().await?.pid;
        signal_by_number("KILL", &pid.to_string())?;
        Ok(pid)
    }

    /// One question to HAProxy's worker.
    pub async fn ask(&self, command: &str) -> Result<String> {
        ask(&self.folder.join("haproxy.sock"), command).await
    }

    /// One question to HAProxy's master.
    pub async fn ask_master(&self, command: &str) -> Result<String> {
        // Without an end it waits for more.
        ask(&self.folder.join("master.sock"), &format!("{command};quit")).await
    }

    /// `show info` of the worker.
    pub async fn info(&self) -> Result<Info> {
        Info::parse(&self.ask("show info").await?).context("no pid in `show info`")
    }

    /// The value of one metric of the agent, labels included; one that is absent is an error.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let all = self.metrics(series).await?;
        all.get(series).copied().with_context(|| format!("there is no metric {series}, but {all:?}"))
    }

    /// All metrics of the agent whose names, labels included, begin like that.
    pub async fn metrics(&self, prefix: &str) -> Result<BTreeMap<String, f64>> {
        let (status, text) = self.get("/metrics").await?;
        ensure!(status == 200, "/metrics answers {status}");
        let series = text.lines().filter(|line| line.starts_with(prefix));
        series
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').with_context(|| format!("no metric: {line}"))?;
                Ok((name.to_owned(), value.parse()?))
            })
            .collect()
    }

    /// Asks the agent for a path: status and body.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let asked = http_get(self.probes.number(), path);
        tokio::time::timeout(Duration::from_secs(5), asked).await.map_err(|_| anyhow!("no answer"))?
    }

    /// The ends of both logs.
    #[must_use]
    pub fn logs(&self, lines: usize) -> String {
        let tail = |name: &str| {
            let text = std::fs::read_to_string(self.logs.join(name)).unwrap_or_default();
            let all: Vec<&str> = text.lines().collect();
            format!("{name}:\n{}\n", all[all.len().saturating_sub(lines)..].join("\n"))
        };
        tail("edge.log") + &tail("supervise.log")
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Some(pid) = self.detached {
            let _ = signal_by_number("KILL", &format!("-{pid}"));
        }
    }
}

/// One that has ended and that nobody has waited for runs no more.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// To a process, or to a group where the number is negative.
fn signal_by_number(signal: &str, number: &str) -> Result<()> {
    let kill = ["-c", r#"kill -s "$0" -- "$1""#, signal, number];
    ensure!(std::process::Command::new("sh").args(kill).status()?.success(), "{number} could not be signalled");
    Ok(())
}
