//! The operator as its users run it: the built binary, as a child process, with the rights of its ServiceAccount.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::process::{Port, Process, WorkFolder, eventually};
use crate::tools::repository;

/// The namespace in which the operator and its Lease live.
pub const NAMESPACE: &str = "waystation-system";
/// The ServiceAccount that the RBAC in `charts/waystation/rbac` is for.
pub const SERVICE_ACCOUNT: &str = "waystation";

/// What may differ between operators.
#[derive(Debug, Clone, Default)]
pub struct OperatorOptions {
    /// The binary; [`binary`] by default.
    pub binary: Option<PathBuf>,
    /// More arguments of `waystation operator`.
    pub arguments: Vec<String>,
    /// More environment, for example `RUST_LOG`.
    pub environment: Vec<(String, String)>,
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    port: Port,
    _folder: WorkFolder,
}

impl Operator {
    /// Starts one with the rights of this kubeconfig. It is running, not ready: see [`Operator::await_ready`].
    pub fn start(kubeconfig: &Path, options: &OperatorOptions) -> Result<Self> {
        let folder = WorkFolder::new("operator")?;
        let port = Port::claim()?;
        let program = match &options.binary {
            Some(binary) => binary.clone(),
            None => binary()?,
        };
        let mut environment: Vec<(&str, &OsStr)> = vec![("KUBECONFIG", kubeconfig.as_os_str())];
        environment.extend(options.environment.iter().map(|(name, value)| (name.as_str(), OsStr::new(value))));
        let arguments = arguments(port.number(), &options.arguments);
        let process = Process::spawn("waystation", &program, &arguments, &environment, &folder.join("operator.log"))?;
        Ok(Self { process, port, _folder: folder })
    }

    /// Waits until `/readyz` says yes.
    pub async fn await_ready(&mut self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            self.process.ensure_running()?;
            let answer = self.get("/readyz").await;
            match answer {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() > deadline => bail!(
                    "the operator was not ready within {within:?}: {answer:?}; the end of its log:\n{}",
                    self.process.log_tail(20)
                ),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate(Duration::from_secs(30)).await
    }

    /// Makes it stand still (`STOP`) or go on (`CONT`).
    pub fn signal(&mut self, signal: &str) -> Result<()> {
        self.process.signal(signal)
    }

    /// Fails with the end of its log when it runs no more.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.process.ensure_running()
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The port of its probes and metrics.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Everything it logged.
    #[must_use]
    pub fn logs(&self) -> String {
        self.process.log()
    }

    /// Where its log is, while it is not dropped.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.process.log_path()
    }

    /// What `/metrics` says.
    pub async fn metrics(&self) -> Result<String> {
        let (status, text) = self.get("/metrics").await?;
        ensure!(status == 200, "/metrics answered {status}: {text}");
        Ok(text)
    }

    /// The value of one metric, labels included (`name{label="value"}`); absent is 0.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?.unwrap_or_default())
    }

    /// Asks its HTTP server for a path: status and body. Answers within two seconds or not at all.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        tokio::time::timeout(Duration::from_secs(2), http_get(self.port(), path))
            .await
            .map_err(|_| anyhow!("no answer"))?
    }
}

/// Applies what a cluster needs before the operator: the kinds, its rights and, if `admission`, the policy that adds the
/// finalizer to new Addresses. Returns when the kinds are served.
pub async fn install(cluster: &Cluster, admission: bool) -> Result<()> {
    let root = repository();
    cluster.apply_dir(&root.join("charts/waystation/rbac")).await?;
    cluster.apply_dir(&root.join("crds")).await?;
    if admission {
        cluster.apply_dir(&root.join("charts/waystation/admission")).await?;
    }
    let kinds = ["routerconfigs", "addressspaces", "addresses"].map(|plural| format!("{plural}.waystation.dev"));
    cluster.await_crds(&kinds.each_ref().map(String::as_str)).await?;
    await_admission(cluster, admission).await
}

/// Waits until all kinds can be applied, also after a start of the API server, and until the policy adds the finalizer if
/// there is `admission`.
///
/// Established is not yet applicable: server-side apply learns of new kinds a moment later. And an API server that has a
/// mutating admission policy for a kind reads that kind's schema every five seconds; until then it refuses each creation
/// with 503, whatever the policy's `failurePolicy` says.
pub async fn await_admission(cluster: &Cluster, admission: bool) -> Result<()> {
    let arguments = ["apply", "--server-side", "--dry-run=server", "-o", "json", "-f", "-"];
    eventually(Duration::from_secs(30), "the kinds can be applied", || async {
        let text =
            crate::cluster::text_of(&cluster.kubectl_with(cluster.kubeconfig(), &arguments, Some(ONE_OF_EACH)).await?)?;
        ensure!(text.contains("waystation.dev/address\"") == admission, "the policy is not in force");
        Ok(())
    })
    .await
}

/// Never stored: for asking whether the kinds can be applied.
const ONE_OF_EACH: &str = r#"
{"apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig", "metadata": {"name": "probe", "namespace": "default"},
 "spec": {"messaging": {"brokers": {"external": {"hosts": [{"host": "127.0.0.1", "port": 5672}]}}}}}
---
{"apiVersion": "waystation.dev/v1alpha1", "kind": "AddressSpace", "metadata": {"name": "probe", "namespace": "default"},
 "spec": {"type": "brokered", "routerConfigRef": {"name": "probe"}}}
---
{"apiVersion": "waystation.dev/v1alpha1", "kind": "Address", "metadata": {"name": "probe", "namespace": "default"},
 "spec": {"type": "queue", "addressSpace": "probe"}}
"#;

/// The command line: the one place that knows it.
fn arguments(port: u16, more: &[String]) -> Vec<String> {
    let mut arguments =
        vec!["operator".to_owned(), format!("--listen=127.0.0.1:{port}"), format!("--namespace={NAMESPACE}")];
    arguments.extend_from_slice(more);
    arguments
}

/// The built binary: `WAYSTATION_BINARY`, or `cargo build` of this workspace, which does nothing when it is up to date.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WAYSTATION_BINARY") {
        return Ok(path.into());
    }
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "-q", "--bin", "waystation", "--message-format=json-render-diagnostics"])
        .current_dir(repository())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo could not be run")?;
    ensure!(output.status.success(), "the operator could not be built");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "waystation")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where the operator's binary is")
}

/// Asks an HTTP server at a port of 127.0.0.1: status and body.
pub async fn http_get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a head")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("an answer without a status")?;
    Ok((status, body.to_owned()))
}
