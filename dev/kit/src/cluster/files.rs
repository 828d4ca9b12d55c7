//! The files of one control plane: certificates, kubeconfigs, the audit policy.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::pki::{Authority, Leaf, key_pair};

/// What is logged: who asked for what, not what was said. The control plane's own requests are left out; they are no
/// part of what is tested and are most of the volume.
const AUDIT_POLICY: &str = r"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager]
- level: None
  userGroups: [system:serviceaccounts:kube-system]
- level: None
  nonResourceURLs: ['/readyz*', '/livez*', '/healthz*']
- level: Metadata
";

#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    admin: PathBuf,
}

/// The address of an API server on that port.
pub(super) fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

impl Files {
    /// Writes all files that do not change while the cluster lives.
    pub(super) fn write(folder: &Path, port: u16, audit: bool) -> Result<Self> {
        let authority = Authority::new("waystation test cluster")?;
        let files = Self { folder: folder.to_owned(), admin: folder.join("admin.kubeconfig") };
        write(&files.path("ca.crt"), &authority.certificate())?;
        let names =
            ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let server = authority.server("kube-apiserver", &names)?;
        write(&files.path("apiserver.crt"), &server.certificate)?;
        write(&files.path("apiserver.key"), &server.key)?;
        let (private, public) = key_pair()?;
        write(&files.path("accounts.key"), &private)?;
        write(&files.path("accounts.pub"), &public)?;
        let url = url(port);
        let admin = authority.client("admin", Some("system:masters"))?;
        files.certificate_kubeconfig("admin", &url, &admin)?;
        let manager = authority.client("system:kube-controller-manager", None)?;
        files.certificate_kubeconfig("controller-manager", &url, &manager)?;
        if audit {
            write(&files.path("audit-policy.yaml"), AUDIT_POLICY)?;
            write(&files.audit_log(), "")?;
        }
        Ok(files)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as a command line flag, `--flag=PATH`.
    pub(super) fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }

    pub(super) fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    pub(super) fn token_kubeconfig(&self, url: &str, namespace: &str, name: &str, token: &str) -> Result<PathBuf> {
        self.kubeconfig(&format!("{namespace}-{name}"), url, namespace, &json!({ "token": token }))
    }

    fn certificate_kubeconfig(&self, name: &str, url: &str, leaf: &Leaf) -> Result<PathBuf> {
        let (certificate, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        write(&certificate, &leaf.certificate)?;
        write(&key, &leaf.key)?;
        self.kubeconfig(name, url, "default", &json!({ "client-certificate": certificate, "client-key": key }))
    }

    // JSON is YAML: nothing has to be escaped by hand.
    fn kubeconfig(&self, name: &str, url: &str, namespace: &str, user: &serde_json::Value) -> Result<PathBuf> {
        let path = self.path(&format!("{name}.kubeconfig"));
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "waystation", "cluster": { "server": url, "certificate-authority": self.path("ca.crt") } }],
            "users": [{ "name": name, "user": user }],
            "contexts": [{ "name": "waystation", "context": { "cluster": "waystation", "user": name, "namespace": namespace } }],
            "current-context": "waystation",
        });
        write(&path, &serde_json::to_string_pretty(&kubeconfig)?)?;
        Ok(path)
    }
}

/// Writes a file that only its owner can read.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| path.display().to_string())?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
