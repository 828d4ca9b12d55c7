//! The three programs of a control plane: their flags, their start and their end.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::files::Files;
use crate::process::{Port, Process, eventually};
use crate::tools::tools;

const STOP: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Programs {
    // In the order in which they are dropped: clients before servers.
    manager: Option<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
    etcd_port: Port,
    etcd_peer_port: Port,
    apiserver_port: Port,
    manager_port: Port,
}

impl Programs {
    /// Claims the ports; nothing runs yet.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            manager: None,
            apiserver: None,
            etcd: None,
            etcd_port: Port::claim()?,
            etcd_peer_port: Port::claim()?,
            apiserver_port: Port::claim()?,
            manager_port: Port::claim()?,
        })
    }

    pub(super) fn apiserver_port(&self) -> u16 {
        self.apiserver_port.number()
    }

    pub(super) fn processes(&self) -> Vec<(&'static str, u32)> {
        let named =
            [("etcd", &self.etcd), ("kube-apiserver", &self.apiserver), ("kube-controller-manager", &self.manager)];
        named.into_iter().filter_map(|(name, process)| Some((name, process.as_ref()?.pid()))).collect()
    }

    /// Fails with the end of the log of a program that has ended by itself.
    pub(super) fn ensure_running(&mut self) -> Result<()> {
        [&mut self.etcd, &mut self.apiserver, &mut self.manager]
            .into_iter()
            .flatten()
            .try_for_each(Process::ensure_running)
    }

    pub(super) async fn start_etcd(&mut self, files: &Files) -> Result<()> {
        let client = self.etcd_url();
        let peer = format!("http://127.0.0.1:{}", self.etcd_peer_port.number());
        let flags = [
            "--name=waystation".to_owned(),
            files.flag("data-dir", "etcd"),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=waystation={peer}"),
            // A killed process loses nothing by this, only a machine that loses its power would.
            "--unsafe-no-fsync".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let process = Process::spawn("etcd", &tools()?.program("etcd"), &flags, &[], &files.path("etcd.log"))?;
        let process = self.etcd.insert(process);
        let port = self.etcd_port.number();
        let listening =
            eventually(
                STOP,
                "etcd listens",
                || async move { Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?) },
            )
            .await;
        process.ensure_running()?;
        listening
    }

    pub(super) fn start_apiserver(&mut self, files: &Files, more: &[String], audit: bool) -> Result<()> {
        let mut flags = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.apiserver_port.number()),
            files.flag("client-ca-file", "ca.crt"),
            files.flag("tls-cert-file", "apiserver.crt"),
            files.flag("tls-private-key-file", "apiserver.key"),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            files.flag("service-account-key-file", "accounts.pub"),
            files.flag("service-account-signing-key-file", "accounts.key"),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // A loopback address is refused as an endpoint of the Service "kubernetes"; nothing here needs it.
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if audit {
            flags.extend([
                files.flag("audit-policy-file", "audit-policy.yaml"),
                files.flag("audit-log-path", "audit.log"),
                // Readers keep their place in the file, so it must not be rotated.
                "--audit-log-maxsize=100000".to_owned(),
            ]);
        }
        flags.extend_from_slice(more);
        let program = tools()?.program("kube-apiserver");
        self.apiserver = Some(Process::spawn("kube-apiserver", &program, &flags, &[], &files.path("apiserver.log"))?);
        Ok(())
    }

    pub(super) fn start_controller_manager(&mut self, files: &Files) -> Result<()> {
        let flags = [
            files.flag("kubeconfig", "controller-manager.kubeconfig"),
            files.flag("root-ca-file", "ca.crt"),
            files.flag("service-account-private-key-file", "accounts.key"),
            // Each controller has the rights of its own ServiceAccount; the user of the kubeconfig has nearly none.
            "--use-service-account-credentials=true".to_owned(),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.manager_port.number()),
            // Namespaces are deleted by this one; the defaults are for sharing an API server with a thousand others.
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        let (program, log) = (tools()?.program("kube-controller-manager"), files.path("controller-manager.log"));
        self.manager = Some(Process::spawn("kube-controller-manager", &program, &flags, &[], &log)?);
        Ok(())
    }

    pub(super) async fn stop_apiserver(&mut self) -> Result<()> {
        if let Some(mut manager) = self.manager.take() {
            manager.terminate(STOP).await?;
        }
        if let Some(mut apiserver) = self.apiserver.take() {
            // It would wait for open watches to end; what a client sees is the same.
            apiserver.kill();
        }
        Ok(())
    }

    pub(super) fn kill_apiserver(&mut self) {
        self.manager = None;
        self.apiserver = None;
    }

    pub(super) fn signal_apiserver(&mut self, signal: &str) -> Result<()> {
        self.apiserver.as_mut().context("the API server does not run")?.signal(signal)
    }

    /// Copies etcd's data while etcd stands still: what a crash would leave at this moment, which it can start from.
    pub(super) async fn copy_etcd(&mut self, files: &Files, to: &Path) -> Result<()> {
        let etcd = self.etcd.as_mut().context("etcd does not run")?;
        etcd.signal("STOP")?;
        let copied = copy_folder(&files.path("etcd"), to).await;
        etcd.signal("CONT")?;
        copied
    }

    pub(super) async fn restore_etcd(&mut self, files: &Files, from: &Path) -> Result<()> {
        if let Some(mut etcd) = self.etcd.take() {
            etcd.kill();
        }
        tokio::fs::remove_dir_all(files.path("etcd")).await?;
        copy_folder(from, &files.path("etcd")).await?;
        self.start_etcd(files).await
    }

    pub(super) async fn etcd_kv(&self, verb: &str, key: &str, value: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut child = Command::new(tools()?.program("etcd-kv"))
            .args([&self.etcd_url(), verb, key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let (Some(mut pipe), Some(value)) = (child.stdin.take(), value) {
            pipe.write_all(value).await?;
        }
        let output = child.wait_with_output().await?;
        ensure!(
            output.status.success(),
            "etcd-kv {verb} {key}: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(output.stdout)
    }

    fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port.number())
    }
}

async fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().await?;
    ensure!(status.success(), "{} could not be copied to {}", from.display(), to.display());
    Ok(())
}
