//! A Kubernetes control plane of one's own: etcd, kube-apiserver and kube-controller-manager on free ports of loopback.
//!
//! RBAC authorization is on and every ServiceAccount has a real token, so that what runs under one can do what its roles
//! allow and nothing more. There is no kubelet and no scheduler: Pods stay Pending. Several clusters can run at a time;
//! each ends when it is dropped (see [`crate::process`]).

mod audit;
mod files;
mod programs;
mod table;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::AsyncWriteExt;

pub use audit::{AuditEntry, AuditMark, AuditReader};
use files::Files;
use programs::Programs;
pub use table::cells;

use crate::process::{WorkFolder, eventually};
use crate::tools::tools;

/// How long a control plane may take to come up on a machine that is busy with other things.
const START: Duration = Duration::from_secs(90);

/// What may differ between clusters.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Whether the API server writes an audit log, which [`Cluster::audit`] reads. On by default.
    pub audit: bool,
    /// Whether the controller manager runs: garbage collection, namespace deletion, default ServiceAccounts. On by
    /// default.
    pub controller_manager: bool,
    /// More flags for the API server.
    pub apiserver_flags: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { audit: true, controller_manager: true, apiserver_flags: Vec::new() }
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct Cluster {
    // Before the folder: programs end before their files go.
    programs: Programs,
    files: Files,
    options: ClusterOptions,
    snapshots: u32,
    folder: WorkFolder,
}

/// A copy of etcd's data, to go back to with [`Cluster::restore`].
#[derive(Debug, Clone)]
pub struct EtcdSnapshot {
    path: PathBuf,
}

impl Cluster {
    /// Starts a control plane and waits until it serves: about five seconds.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let folder = WorkFolder::new("cluster")?;
        let programs = Programs::new()?;
        let files = Files::write(folder.path(), programs.apiserver_port(), options.audit)?;
        let mut cluster = Self { programs, files, options, snapshots: 0, folder };
        cluster.programs.start_etcd(&cluster.files).await?;
        cluster.start_apiserver().await?;
        if cluster.options.controller_manager {
            cluster.await_default_account().await?;
        }
        Ok(cluster)
    }

    /// A client with all rights. Exempt from API priority and fairness.
    pub async fn admin_client(&self) -> Result<kube::Client> {
        client_for(self.kubeconfig()).await
    }

    /// The kubeconfig with all rights.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.files.admin_kubeconfig()
    }

    /// Where the API server listens: `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        files::url(self.programs.apiserver_port())
    }

    /// The folder with the logs of the programs (`*.log`).
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The numbers of the processes that make up the cluster, by name.
    #[must_use]
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        self.programs.processes()
    }

    /// A kubeconfig with a fresh token of a ServiceAccount, which must exist. The token is valid for a day.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.kubectl_text(&["create", "token", name, "-n", namespace, "--duration=24h"]).await?;
        self.files.token_kubeconfig(&self.url(), namespace, name, token.trim())
    }

    /// Runs kubectl with all rights, as a person would.
    pub async fn kubectl(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Output> {
        self.kubectl_with(self.kubeconfig(), arguments, None).await
    }

    /// Runs kubectl and returns what it printed; an exit status other than 0 is an error with what it said.
    pub async fn kubectl_text(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        text_of(&self.kubectl(arguments).await?)
    }

    /// Runs kubectl with the rights of a kubeconfig and, if given, that text on its standard input.
    pub async fn kubectl_with(
        &self,
        kubeconfig: &Path,
        arguments: &[impl AsRef<OsStr>],
        input: Option<&str>,
    ) -> Result<Output> {
        let mut child = tokio::process::Command::new(tools()?.program("kubectl"))
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            // Its discovery cache would remember the kinds of another cluster on the same port.
            .env("KUBECACHEDIR", self.folder.join("kubectl-cache"))
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("kubectl could not be run")?;
        if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(text.as_bytes()).await?;
        }
        Ok(child.wait_with_output().await?)
    }

    /// `kubectl apply --server-side` of these documents.
    pub async fn apply(&self, yaml: &str) -> Result<String> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        text_of(&self.kubectl_with(self.kubeconfig(), &arguments, Some(yaml)).await?)
    }

    /// `kubectl apply --server-side` of a file or of every file in a folder, in one call.
    pub async fn apply_dir(&self, path: &Path) -> Result<String> {
        let path = path.to_str().context("the path is not UTF-8")?;
        self.kubectl_text(&["apply", "--server-side", "--force-conflicts", "-f", path]).await
    }

    /// Waits until each of these CustomResourceDefinitions (`addresses.waystation.dev`) is served.
    pub async fn await_crds(&self, names: &[&str]) -> Result<()> {
        let mut arguments =
            vec!["wait".to_owned(), "--for=condition=Established".to_owned(), "--timeout=60s".to_owned()];
        arguments.extend(names.iter().map(|name| format!("crd/{name}")));
        self.kubectl_text(&arguments).await.map(drop)
    }

    /// What the API server was asked and how it answered.
    pub async fn audit(&self) -> Result<AuditReader> {
        ensure!(self.options.audit, "this cluster was started without an audit log");
        Ok(AuditReader::new(self.admin_client().await?, self.files.audit_log()))
    }

    /// Keeps a copy of all that the cluster holds. Nothing is stopped for it.
    pub async fn etcd_snapshot(&mut self) -> Result<EtcdSnapshot> {
        self.snapshots += 1;
        let path = self.folder.join(&format!("snapshot-{}", self.snapshots));
        self.programs.copy_etcd(&self.files, &path).await?;
        Ok(EtcdSnapshot { path })
    }

    /// Goes back to a snapshot, as an administrator does who restores etcd: what happened since is lost, and resource
    /// versions start again from the older ones. The whole control plane is down meanwhile.
    pub async fn restore(&mut self, snapshot: &EtcdSnapshot) -> Result<()> {
        self.stop_apiserver().await?;
        self.programs.restore_etcd(&self.files, &snapshot.path).await?;
        self.start_apiserver().await
    }

    /// Writes a value into etcd past the API server, for example an object that nobody can decode. The key of a custom
    /// object is `/registry/GROUP/PLURAL/NAMESPACE/NAME`.
    pub async fn etcd_put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.programs.etcd_kv("put", key, Some(value)).await.map(drop)
    }

    /// Reads a value from etcd.
    pub async fn etcd_get(&self, key: &str) -> Result<Vec<u8>> {
        self.programs.etcd_kv("get", key, None).await
    }

    /// Removes a value from etcd past the API server.
    pub async fn etcd_delete(&self, key: &str) -> Result<()> {
        self.programs.etcd_kv("del", key, None).await.map(drop)
    }

    /// Stops the API server and the controller manager; etcd goes on.
    pub async fn stop_apiserver(&mut self) -> Result<()> {
        self.programs.stop_apiserver().await
    }

    /// Kills the API server, so that every connection is cut.
    pub fn kill_apiserver(&mut self) {
        self.programs.kill_apiserver();
    }

    /// Makes the API server stand still (`STOP`) or go on (`CONT`): connections stay, answers do not come.
    pub fn signal_apiserver(&mut self, signal: &str) -> Result<()> {
        self.programs.signal_apiserver(signal)
    }

    /// Starts the API server and the controller manager again on the same port, and waits until they serve.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        let flags = self.options.apiserver_flags.clone();
        self.programs.start_apiserver(&self.files, &flags, self.options.audit)?;
        let client = self.admin_client().await?;
        let programs = &mut self.programs;
        let deadline = tokio::time::Instant::now() + START;
        loop {
            programs.ensure_running()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await {
                Ok(Ok(_)) => break,
                _ if tokio::time::Instant::now() > deadline => bail!("the API server was not ready within {START:?}"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        if self.options.controller_manager {
            self.programs.start_controller_manager(&self.files)?;
        }
        Ok(())
    }

    async fn await_default_account(&mut self) -> Result<()> {
        use k8s_openapi::api::core::v1::ServiceAccount;
        let accounts: kube::Api<ServiceAccount> = kube::Api::namespaced(self.admin_client().await?, "default");
        let found = eventually(START, "the ServiceAccount of the default namespace", || async {
            Ok(accounts.get("default").await.map(drop)?)
        })
        .await;
        self.programs.ensure_running()?;
        found
    }
}

/// A client with the rights of a kubeconfig file.
pub async fn client_for(kubeconfig: &Path) -> Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// What a program printed; an exit status other than 0 is an error with what it said.
pub fn text_of(output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{}{}", text, String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(text)
}
