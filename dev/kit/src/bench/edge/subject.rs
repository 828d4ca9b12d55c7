//! Who serves: the shipped binary with its supervisor and HAProxy, or another controller.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::process::{cpu, rss_mb};
use super::data::CLASS;
use super::observer::Observer;
use super::stage::{reloads, worker};
use crate::edge::Edge;
use crate::process::{Port, Process, WorkFolder};
use crate::tools::tools;

/// Another controller, by its name and the command that runs it: `--help` tells what that is given.
#[derive(Debug, Clone)]
pub struct Peer {
    /// For tables.
    pub name: String,
    command: String,
}

impl Peer {
    /// Reads `NAME=COMMAND`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, command)) if !name.is_empty() && !command.is_empty() => {
                Ok(Self { name: name.to_owned(), command: command.to_owned() })
            }
            _ => Err("not NAME=COMMAND".to_owned()),
        }
    }
}

#[derive(Debug)]
enum Controller {
    Ours(Box<Edge>),
    Theirs { peer: Peer, process: Option<Process>, kubeconfig: PathBuf, folder: WorkFolder, ports: [Port; 2] },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Subject {
    controller: Controller,
    socket: PathBuf,
    master: PathBuf,
}

/// What has been used up to a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub controller: Duration,
    pub haproxy: Duration,
    pub reloads: u64,
}

impl Subject {
    /// This program.
    pub fn waystation(edge: Edge) -> Self {
        let (socket, master) = (edge.folder().join("haproxy.sock"), edge.folder().join("master.sock"));
        Self { controller: Controller::Ours(Box::new(edge)), socket, master }
    }

    /// Another one.
    pub fn peer(peer: &Peer, kubeconfig: &Path) -> Result<Self> {
        let folder = WorkFolder::in_memory("peer")?;
        let (socket, master) = (folder.join("haproxy.sock"), folder.join("master.sock"));
        let ports = [Port::claim()?, Port::claim()?];
        let (peer, kubeconfig) = (peer.clone(), kubeconfig.to_owned());
        Ok(Self { controller: Controller::Theirs { peer, process: None, kubeconfig, folder, ports }, socket, master })
    }

    /// Starts it from nothing.
    pub fn start(&mut self) -> Result<()> {
        match &mut self.controller {
            Controller::Ours(edge) => {
                edge.start_supervisor()?;
                edge.start_agent(&[])
            }
            Controller::Theirs { peer, process, kubeconfig, folder, ports } => {
                let ports = ports.each_ref().map(|port| port.number().to_string());
                let environment: [(&str, &OsStr); 6] = [
                    ("KUBECONFIG", kubeconfig.as_os_str()),
                    ("BENCH_CLASS", CLASS.as_ref()),
                    ("BENCH_HTTP", ports[0].as_ref()),
                    ("BENCH_HTTPS", ports[1].as_ref()),
                    ("BENCH_HAPROXY", tools()?.haproxy().as_os_str()),
                    ("BENCH_FOLDER", folder.path().as_os_str()),
                ];
                let log = folder.join("peer.log");
                *process =
                    Some(Process::spawn(&peer.name, Path::new("sh"), &["-c", &peer.command], &environment, &log)?);
                Ok(())
            }
        }
    }

    /// Ends it, with HAProxy and its files.
    pub async fn stop(&mut self) -> Result<()> {
        match &mut self.controller {
            Controller::Ours(edge) => {
                if edge.agent_pid().is_ok() {
                    edge.terminate_agent().await?;
                    edge.terminate_supervisor().await?;
                }
                edge.clear_folder()
            }
            Controller::Theirs { process, folder, .. } => {
                // With its whole group: how it wants to end is not known.
                if process.take().is_some() {
                    *folder = WorkFolder::in_memory("peer")?;
                    self.socket = folder.join("haproxy.sock");
                    self.master = folder.join("master.sock");
                }
                Ok(())
            }
        }
    }

    /// Fails with the end of its log when it runs no more.
    pub fn ensure_running(&mut self) -> Result<()> {
        match &mut self.controller {
            Controller::Ours(edge) => edge.ensure_running(),
            Controller::Theirs { process, .. } => process.iter_mut().try_for_each(Process::ensure_running),
        }
    }

    /// HAProxy's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A port of 127.0.0.1 for plain HTTP.
    pub fn http(&self) -> u16 {
        match &self.controller {
            Controller::Ours(edge) => edge.http(),
            Controller::Theirs { ports, .. } => ports[0].number(),
        }
    }

    /// A port of 127.0.0.1 for TLS.
    pub fn https(&self) -> u16 {
        match &self.controller {
            Controller::Ours(edge) => edge.https(),
            Controller::Theirs { ports, .. } => ports[1].number(),
        }
    }

    /// The controller's processes: of a peer, all of its group but HAProxy's.
    fn processes(&self, worker: u32) -> Result<Vec<u32>> {
        match &self.controller {
            Controller::Ours(edge) => Ok(vec![edge.agent_pid()?]),
            Controller::Theirs { process, .. } => {
                let group = process.as_ref().context("it does not run")?.pid();
                let haproxy = stat(worker).context("HAProxy has ended")?.0;
                let numbers =
                    std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
                let of_group = |pid: &u32| stat(*pid).is_some_and(|(name, of)| of == group && name != haproxy);
                Ok(numbers.filter(of_group).collect())
            }
        }
    }

    /// Memory of the controller, and of HAProxy's worker, in MB.
    pub fn rss_mb(&self) -> Result<[f64; 2]> {
        let worker = worker(&mut Observer::connect(&self.socket)?)?;
        // One that has just ended has none.
        let all: f64 = self.processes(worker)?.into_iter().map(|pid| rss_mb(pid).unwrap_or_default()).sum();
        Ok([all, rss_mb(worker)?])
    }

    /// CPU time of both, and reloads, where a master tells how many there were.
    pub async fn used(&self) -> Result<Used> {
        let worker = worker(&mut Observer::connect(&self.socket)?)?;
        let controller = self.processes(worker)?.into_iter().map(|pid| cpu(pid).unwrap_or_default()).sum();
        let reloads = if self.master.exists() { reloads(&self.master).await? } else { 0 };
        Ok(Used { controller, haproxy: cpu(worker)?, reloads })
    }

    /// What it says of itself at `/metrics`; nothing, if it is not ours.
    pub async fn metrics(&self) -> Result<String> {
        match &self.controller {
            Controller::Ours(edge) => Ok(edge.get("/metrics").await.context("/metrics")?.1),
            Controller::Theirs { .. } => Ok(String::new()),
        }
    }

    /// The end of its log, for errors.
    pub fn last_words(&self) -> String {
        match &self.controller {
            Controller::Ours(edge) => edge.logs(60),
            Controller::Theirs { process, .. } => process.as_ref().map(|p| p.log_tail(60)).unwrap_or_default(),
        }
    }
}

/// A process's name and the number of its group.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, fields) = stat.split_once(" (")?.1.rsplit_once(") ")?;
    Some((name.to_owned(), fields.split(' ').nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_name_and_a_command() {
        let peer = Peer::parse("other=run --flag=1").unwrap();
        assert_eq!((peer.name.as_str(), peer.command.as_str()), ("other", "run --flag=1"));
        assert!(Peer::parse("other").is_err() && Peer::parse("=run").is_err());
    }

    #[test]
    fn a_process_has_a_name_and_a_group() {
        let (name, group) = stat(std::process::id()).unwrap();
        assert!(!name.is_empty() && group > 0);
    }
}
