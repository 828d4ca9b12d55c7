//! Helm as people run it, against a cluster of the kit.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::Result;
use serde_json::Value;
use waystation_kit::cluster::{Cluster, text_of};
use waystation_kit::process::WorkFolder;
use waystation_kit::tools::{repository, tools};

/// The operator's chart.
pub fn chart() -> PathBuf {
    repository().join("charts/waystation")
}

/// The chart with the kinds.
pub fn crds() -> PathBuf {
    repository().join("charts/waystation-crds")
}

/// Helm with folders of its own, so that nothing of this machine is read or written.
pub struct Helm {
    folder: WorkFolder,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// One that has no cluster.
    pub fn offline() -> Result<Self> {
        Ok(Self { folder: WorkFolder::new("helm")?, kubeconfig: None })
    }

    /// One for this cluster, with all rights.
    pub fn for_cluster(cluster: &Cluster) -> Result<Self> {
        Ok(Self { folder: WorkFolder::new("helm")?, kubeconfig: Some(cluster.kubeconfig().to_owned()) })
    }

    /// The command, to be started.
    pub fn command(&self, arguments: &[&str]) -> Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(tools()?.program("helm"));
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        for (name, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data"), ("HOME", "home")]
        {
            command.env(name, self.folder.join(folder));
        }
        let nowhere = self.folder.join("no-kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_deref().unwrap_or(&nowhere));
        Ok(command)
    }

    pub async fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments)?.output().await?)
    }

    /// What it printed; an exit status other than 0 is an error with what it said.
    pub async fn text(&self, arguments: &[&str]) -> Result<String> {
        text_of(&self.run(arguments).await?)
    }

    /// The objects of `helm template NAME CHART -n NAMESPACE …`.
    pub async fn template(&self, name: &str, chart: &Path, namespace: &str, more: &[&str]) -> Result<Vec<Value>> {
        let chart = chart.to_string_lossy();
        let mut arguments = vec!["template", name, &*chart, "--namespace", namespace];
        arguments.extend_from_slice(more);
        documents(&self.text(&arguments).await?)
    }
}

/// The documents of a YAML text that are not empty.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in text.split("\n---\n") {
        let document = document.trim_start_matches("---\n");
        if document.lines().any(|line| !line.is_empty() && !line.starts_with('#')) {
            all.push(serde_saphyr::from_str::<Value>(document)?);
        }
    }
    Ok(all)
}

/// `kind namespace/name`.
pub fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// The one object of that kind and name.
pub fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or(&Value::Null)
}
