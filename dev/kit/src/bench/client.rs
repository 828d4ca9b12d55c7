//! The bench's own client of the API server, and the twin kind on which it shows what the same requests cost alone.
//!
//! The twin has the schema, the rules, the columns and the admission policy of Address, in a group that the operator
//! does not watch.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::data::Planned;
use crate::cluster::Cluster;
use crate::tools::repository;

/// Connections for everything that is done in bulk.
pub(super) const CONNECTIONS: usize = 16;
const GROUP: &str = "waystation.dev";
const TWIN: &str = "bare.waystation.dev";

/// Addresses of the operator, or their twins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Ours,
    Twin,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => GROUP,
            Self::Twin => TWIN,
        }
    }
}

/// Requests on Addresses of one group.
#[derive(Clone)]
pub(super) struct Addresses {
    client: kube::Client,
    group: Group,
}

/// One request of any kind; the answer as JSON.
pub(super) async fn request(
    client: &kube::Client,
    method: Method,
    path: &str,
    content: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let builder = http::Request::builder().method(&method).uri(path).header("content-type", content);
    let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    client.request(builder.body(bytes)?).await.with_context(|| format!("{method} {path}"))
}

impl Addresses {
    pub fn new(client: &kube::Client, group: Group) -> Self {
        Self { client: client.clone(), group }
    }

    fn path(&self, namespace: &str, rest: &str) -> String {
        format!("/apis/{}/v1alpha1/namespaces/{namespace}/addresses{rest}", self.group.name())
    }

    fn object(&self, address: &Planned) -> Value {
        json!({
            "apiVersion": format!("{}/v1alpha1", self.group.name()),
            "kind": "Address",
            "metadata": { "namespace": address.namespace, "name": address.name },
        })
    }

    pub async fn create(&self, address: &Planned) -> Result<()> {
        let mut object = self.object(address);
        object["spec"] = address.spec.clone();
        let path = self.path(&address.namespace, "");
        request(&self.client, Method::POST, &path, "application/json", Some(&object)).await.map(drop)
    }

    /// Makes it Ready: a server-side apply, as the operator's.
    pub async fn apply_status(&self, address: &Planned) -> Result<()> {
        let mut object = self.object(address);
        object["status"] = address.status();
        let rest = format!("/{}/status?fieldManager=waystation&force=true", address.name);
        let path = self.path(&address.namespace, &rest);
        request(&self.client, Method::PATCH, &path, "application/apply-patch+yaml", Some(&object)).await.map(drop)
    }

    pub async fn delete(&self, address: &Planned) -> Result<()> {
        let path = self.path(&address.namespace, &format!("/{}", address.name));
        request(&self.client, Method::DELETE, &path, "application/json", None).await.map(drop)
    }

    /// Takes the finalizer off, so that a deletion ends. Without a finalizer there is nothing to do.
    pub async fn release(&self, address: &Planned) -> Result<()> {
        let path = self.path(&address.namespace, &format!("/{}", address.name));
        let finalizer = format!("{}/address", self.group.name());
        let patch = json!([
            { "op": "test", "path": "/metadata/finalizers/0", "value": finalizer },
            { "op": "remove", "path": "/metadata/finalizers/0" },
        ]);
        request(&self.client, Method::PATCH, &path, "application/json-patch+json", Some(&patch)).await.map(drop)
    }
}

/// Makes the twin kind known to the API server.
pub(super) async fn install_twin(cluster: &Cluster, policy: bool) -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).with_context(|| path.to_owned());
    let twin = |text: String| text.replace("waystation-address", "bare-address").replace(GROUP, TWIN);
    cluster.apply(&twin(read("crds/waystation.dev_addresses.yaml")?)).await?;
    if policy {
        cluster.apply(&twin(read("charts/waystation/admission/finalizer-policy.yaml")?)).await?;
    }
    cluster.await_crds(&[&format!("addresses.{TWIN}")]).await?;
    let client = cluster.admin_client().await?;
    let path = format!("/apis/{TWIN}/v1alpha1/namespaces/default/addresses?dryRun=All");
    let probe = json!({
        "apiVersion": format!("{TWIN}/v1alpha1"), "kind": "Address", "metadata": { "name": "probe" },
        "spec": { "addressSpace": "probe", "type": "queue" },
    });
    let within = std::time::Duration::from_secs(30);
    crate::process::eventually(within, "the twin kind can be created", || async {
        let answer = request(&client, Method::POST, &path, "application/json", Some(&probe)).await?;
        anyhow::ensure!(answer["metadata"]["finalizers"].is_array() == policy, "the policy is not in force");
        Ok(())
    })
    .await
}

/// Does `work` for every item, [`CONNECTIONS`] at a time. The first failure ends it.
pub(super) async fn in_parallel<T, F, Fut>(items: Vec<T>, work: F) -> Result<()>
where
    T: Send + 'static,
    F: Fn(T) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let queue = Arc::new(Mutex::new(VecDeque::from(items)));
    let mut workers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (queue, work) = (Arc::clone(&queue), work.clone());
        workers.spawn(async move {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(item) = next else { return Ok(()) };
                work(item).await?;
            }
        });
    }
    join(workers).await
}

/// Does `first` for every item and then `second`, each [`CONNECTIONS`] at a time: as a user and an operator do.
pub(super) async fn in_two_steps<F, S, A, B>(items: Vec<Planned>, first: F, second: S) -> Result<()>
where
    F: Fn(Planned) -> A + Clone + Send + 'static,
    S: Fn(Planned) -> B + Clone + Send + 'static,
    A: Future<Output = Result<()>> + Send + 'static,
    B: Future<Output = Result<()>> + Send + 'static,
{
    let (done, half_done) = mpsc::unbounded_channel::<Planned>();
    let half_done = Arc::new(tokio::sync::Mutex::new(half_done));
    let mut workers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (half_done, second) = (Arc::clone(&half_done), second.clone());
        workers.spawn(async move {
            loop {
                let next = half_done.lock().await.recv().await;
                let Some(item) = next else { return Ok(()) };
                second(item).await?;
            }
        });
    }
    in_parallel(items, move |item| {
        let (step, done) = (first(item.clone()), done.clone());
        async move {
            step.await?;
            done.send(item).map_err(|_| anyhow!("the second step has ended"))
        }
    })
    .await?;
    join(workers).await
}

async fn join(mut workers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}
