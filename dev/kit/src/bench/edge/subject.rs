//! Who serves: the shipped binary with its supervisor and HAProxy, or another controller.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::process::{cpu, rss_mb};
use super::observer::Observer;
use super::stage::{reloads, worker};
use crate::edge::Edge;

/// See the module.
#[derive(Debug)]
pub(super) struct Subject {
    edge: Edge,
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
        Self { edge, socket, master }
    }

    /// Starts it from nothing.
    pub fn start(&mut self) -> Result<()> {
        self.edge.start_supervisor()?;
        self.edge.start_agent(&[])
    }

    /// Ends it, with HAProxy and its files.
    pub async fn stop(&mut self) -> Result<()> {
        if self.edge.agent_pid().is_ok() {
            self.edge.terminate_agent().await?;
            self.edge.terminate_supervisor().await?;
        }
        self.edge.clear_folder()
    }

    /// Fails with the end of its log when it runs no more.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.edge.ensure_running()
    }

    /// HAProxy's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A port of 127.0.0.1 for plain HTTP.
    pub fn http(&self) -> u16 {
        self.edge.http()
    }

    /// A port of 127.0.0.1 for TLS.
    pub fn https(&self) -> u16 {
        self.edge.https()
    }

    /// Memory of the controller, and of HAProxy's worker, in MB.
    pub fn rss_mb(&self) -> Result<[f64; 2]> {
        let worker = worker(&mut Observer::connect(&self.socket)?)?;
        Ok([rss_mb(self.edge.agent_pid()?)?, rss_mb(worker)?])
    }

    /// CPU time of both, and reloads.
    pub async fn used(&self) -> Result<Used> {
        let worker = worker(&mut Observer::connect(&self.socket)?)?;
        let controller = cpu(self.edge.agent_pid()?)?;
        Ok(Used { controller, haproxy: cpu(worker)?, reloads: reloads(&self.master).await? })
    }

    /// What it says at `/metrics`; nothing, if it is not ours.
    pub async fn metrics(&self) -> Result<String> {
        Ok(self.edge.get("/metrics").await.context("/metrics")?.1)
    }

    /// The end of its log, for errors.
    pub fn last_words(&self) -> String {
        self.edge.logs(60)
    }
}
