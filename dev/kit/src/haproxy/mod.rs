//! A HAProxy of one's own: a real one of 3.4, master and worker, with a runtime socket and a master socket.
//!
//! The kit knows nothing of what is in its files: whoever has it started writes them into [`Haproxy::folder`], with the
//! ports that were claimed for it. `haproxy.cfg` must have `stats socket FOLDER/haproxy.sock level admin`.
//!
//! Invariant: ports and folder stay through [`Haproxy::stop`], [`Haproxy::kill`] and [`Haproxy::start`]; it ends when
//! this is dropped (see [`crate::process`]).

mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::process::{Port, Process, WorkFolder};
use crate::tools::tools;
pub use show::{Info, Row};

const START: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(60);

/// A HAProxy, running or not.
#[derive(Debug)]
pub struct Haproxy {
    process: Option<Process>,
    http: Port,
    https: Port,
    stats: Port,
    folder: WorkFolder,
}

impl Haproxy {
    /// One that is ready to be started once its files are there.
    pub fn prepare() -> Result<Self> {
        let folder = WorkFolder::new("haproxy")?;
        Ok(Self { process: None, http: Port::claim()?, https: Port::claim()?, stats: Port::claim()?, folder })
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
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

    /// A port of 127.0.0.1 for its exporter.
    #[must_use]
    pub fn stats(&self) -> u16 {
        self.stats.number()
    }

    /// The runtime socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("haproxy.sock")
    }

    /// The master's socket.
    #[must_use]
    pub fn master_socket(&self) -> PathBuf {
        self.folder.join("master.sock")
    }

    /// Starts it from `haproxy.cfg` and, where it exists, the folder `backends`; waits until the worker answers.
    pub async fn start(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("HAProxy runs already");
        }
        let mut arguments: Vec<String> = vec!["-W".into(), "-S".into()];
        arguments.push(format!("{},mode,600", self.master_socket().display()));
        for name in ["haproxy.cfg", "backends"] {
            let path = self.folder.join(name);
            if path.exists() {
                arguments.extend(["-f".into(), path.display().to_string()]);
            }
        }
        let mut process = Process::spawn("haproxy", tools()?.haproxy(), &arguments, &[], &self.log_path())?;
        let deadline = Instant::now() + START;
        let socket = self.folder.join("haproxy.sock");
        loop {
            process.ensure_running()?;
            // A socket of one that was killed is still there, and refuses.
            if ask(&socket, "show info").await.is_ok_and(|text| Info::parse(&text).is_some()) {
                self.process = Some(process);
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("HAProxy did not answer within {START:?}; the end of its log:\n{}", process.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether its files are good: what it says of them if not.
    pub async fn check(&self) -> Result<()> {
        let mut command = tokio::process::Command::new(tools()?.haproxy());
        command.arg("-c").arg("-f").arg(self.folder.join("haproxy.cfg"));
        if self.folder.join("backends").exists() {
            command.arg("-f").arg(self.folder.join("backends"));
        }
        let output = command.stdin(std::process::Stdio::null()).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// One question to the worker, without its final newline.
    pub async fn ask(&self, command: &str) -> Result<String> {
        ask(&self.socket(), command).await
    }

    /// One question to the master.
    pub async fn ask_master(&self, command: &str) -> Result<String> {
        ask(&self.master_socket(), command).await
    }

    /// `show info` of the worker.
    pub async fn info(&self) -> Result<Info> {
        Info::parse(&self.ask("show info").await?).context("no pid in `show info`")
    }

    /// `show stat` of everything, one row a proxy and server.
    pub async fn stat(&self) -> Result<Vec<Row>> {
        Ok(Row::parse(&self.ask("show stat").await?))
    }

    /// Has the files loaded anew, as somebody else would.
    pub async fn reload(&self) -> Result<()> {
        let answer = self.ask_master("reload").await?;
        ensure!(answer.starts_with("Success=1"), "{answer}");
        Ok(())
    }

    /// Kills the worker (SIGKILL), which takes the master with it; returns when both are gone.
    pub async fn kill_worker(&mut self) -> Result<()> {
        let pid = self.info().await?.pid;
        let status =
            std::process::Command::new("sh").args(["-c", r#"kill -s KILL "$0""#, &pid.to_string()]).status()?;
        ensure!(status.success(), "the worker could not be killed");
        let process = self.process.as_mut().context("HAProxy does not run")?;
        let deadline = Instant::now() + START;
        while process.ended().is_none() {
            ensure!(Instant::now() < deadline, "the master outlived its worker");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.process = None;
        Ok(())
    }

    /// Ends it in an orderly way.
    pub async fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.terminate(Duration::from_secs(60)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Kills master and worker.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Everything it logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("haproxy.log")
    }
}

/// One command on a connection of its own to a socket of either; the answer ends with the connection.
pub async fn ask(socket: &Path, command: &str) -> Result<String> {
    let talk = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{command}\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    tokio::time::timeout(ANSWER, talk).await.context("no answer in time")?.context("the socket of HAProxy")
}
