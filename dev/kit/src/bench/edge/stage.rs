//! What the scenarios of the edge play on: a control plane, what is to be served and those that answer for it, and who
//! serves it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::client::{in_parallel, request};
use super::super::say;
use super::data::{CLASS, CONFIG, Data, Write, namespaces};
use super::observer::Observer;
use super::subject::{Peer, Subject};
use super::watcher::BareWatcher;
use super::web::{Asker, Endpoints};
use crate::cluster::{AuditReader, Cluster, ClusterOptions};
use crate::edge::{Edge, NAMESPACE, SERVICE_ACCOUNT};
use crate::operator::binary;
use crate::process::eventually;
use crate::tools::repository;

/// How long anything at once may take; the largest run creates 80,000 objects on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(900);
/// How long a start may take, and as much more for each Ingress as makes a size of 17,000 take ten minutes.
const START: Duration = Duration::from_secs(60);
/// Sites that are asked for before all counts as served.
const PROBES: usize = 20;

/// See the module.
pub(super) struct EdgeStage {
    // In the order in which they end.
    pub subject: Subject,
    running: bool,
    _endpoints: Endpoints,
    pub bare: BareWatcher,
    /// For writes.
    pub client: kube::Client,
    pub audit: AuditReader,
    pub data: Data,
    cluster: Cluster,
}

impl EdgeStage {
    /// Sets it for `size` Ingresses, all of which are there; nobody serves them yet.
    pub async fn set(size: usize) -> Result<Self> {
        say(&format!("{size} ingresses: a control plane, endpoints"));
        // Nothing here is kept by a controller: thousands of namespaces would only be given accounts.
        let options = ClusterOptions { controller_manager: false, ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await?;
        cluster.apply_dir(&repository().join("charts/waystation/rbac")).await?;
        cluster.apply_dir(&repository().join("crds")).await?;
        cluster.await_crds(&["routerconfigs.waystation.dev"]).await?;
        let account = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        let (namespace, name) = CONFIG;
        let edge = Edge::prepare("bench", &format!("{namespace}/{name}"), &binary()?, &account)?.as_shipped()?;
        cluster.kubectl_text(&["create", "namespace", namespace]).await?;
        configure(&cluster, &edge.listeners()).await?;
        let client = cluster.admin_client().await?;
        let data = Data::plan(size)?;
        create(&client, &data).await?;
        Ok(Self {
            subject: Subject::waystation(edge),
            running: false,
            _endpoints: Endpoints::start().await?,
            bare: BareWatcher::start(cluster.admin_client().await?).await?,
            client,
            audit: cluster.audit().await?,
            data,
            cluster,
        })
    }

    /// From now on, another one serves; what has been changed stays so.
    pub async fn play(&mut self, peer: &Peer) -> Result<()> {
        say(&format!("{}: another controller", peer.name));
        self.stop().await?;
        self.subject = Subject::peer(peer, self.cluster.kubeconfig())?;
        Ok(())
    }

    /// Ingresses that were there from the beginning.
    pub fn size(&self) -> usize {
        self.data.planned()
    }

    /// Starts who serves from nothing, and says how long it took until all was served.
    pub async fn start(&mut self) -> Result<Duration> {
        self.stop().await?;
        let began = Instant::now();
        self.subject.start()?;
        self.running = true;
        let at = self.complete().await?;
        Ok(at - began)
    }

    /// Starts it unless it runs.
    pub async fn ensure_running(&mut self) -> Result<()> {
        if self.running {
            return Ok(());
        }
        say("starting who serves");
        self.start().await?;
        self.quiet().await
    }

    /// Ends it, with HAProxy and all that it had.
    pub async fn stop(&mut self) -> Result<()> {
        self.running = false;
        self.subject.stop().await
    }

    /// Waits until every endpoint takes requests and the last of the sites answer, and says when.
    pub async fn complete(&mut self) -> Result<Instant> {
        let within = START + Duration::from_millis(30 * self.size() as u64);
        let deadline = Instant::now() + within;
        let wanted: BTreeSet<String> =
            self.data.sites.iter().flat_map(|site| &site.addresses).map(ToString::to_string).collect();
        loop {
            self.subject.ensure_running()?;
            let probed = self.probe(&wanted);
            match probed {
                Ok(()) => return Ok(Instant::now()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context(format!("not complete within {within:?}")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    fn probe(&self, wanted: &BTreeSet<String>) -> Result<()> {
        let mut observer = Observer::connect(self.subject.socket())?;
        let servers = observer.servers(None)?;
        let ours = servers.into_values().flatten().filter(|address| address.starts_with("10.77."));
        let all: BTreeSet<String> = ours.collect();
        ensure!(all == *wanted, "{} of {} endpoints", all.len(), wanted.len());
        let step = (self.size() / PROBES).max(1);
        // The endpoints answer on other threads.
        let asked = || {
            let mut asker = Asker::new(self.subject.http());
            for site in self.data.sites.iter().step_by(step).chain(self.data.sites.last()) {
                for host in &site.hosts {
                    let (status, _) = asker.get(host, "/")?;
                    ensure!(if site.tls { status / 100 == 3 } else { status == 200 }, "{host}: {status}");
                }
            }
            Ok(())
        };
        tokio::task::block_in_place(asked)
    }

    /// Waits until nobody has written anything for two seconds, Leases aside.
    pub async fn quiet(&self) -> Result<()> {
        eventually(LONG, "nobody writes any more", || async {
            let mark = self.audit.mark().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let writes = self.audit.count(mark, |entry| entry.is_write() && entry.resource != "leases").await?;
            ensure!(writes == 0, "{writes} writes in two seconds");
            Ok(())
        })
        .await
    }

    /// Writes; the version that came of it.
    pub async fn write(&self, write: &Write) -> Result<String> {
        self::write(&self.client, write).await
    }

    /// The end of the log of who serves, for errors.
    pub fn last_words(&self) -> String {
        self.subject.last_words()
    }
}

/// One write; the version that came of it.
pub(super) async fn write(client: &kube::Client, write: &Write) -> Result<String> {
    let Write { method, path, content, body } = write;
    let answer: Value = request(client, method.clone(), path, content, body.as_ref()).await?;
    Ok(answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

async fn configure(cluster: &Cluster, listeners: &str) -> Result<()> {
    let (namespace, name) = CONFIG;
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": CLASS },
        "spec": { "controller": "waystation.dev/edge" },
    });
    cluster.apply(&class.to_string()).await?;
    let config = format!(
        "{{apiVersion: waystation.dev/v1alpha1, kind: RouterConfig, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {{edge: {{ingressClassName: {CLASS}, listeners: {listeners}, publish: {{addresses: [192.0.2.10]}}}}}}}}"
    );
    // Established is not yet applicable.
    eventually(Duration::from_secs(60), "a RouterConfig", || async { cluster.apply(&config).await.map(drop) }).await
}

async fn create(client: &kube::Client, data: &Data) -> Result<()> {
    let began = Instant::now();
    let mut writes: Vec<Write> = Vec::new();
    for site in &data.sites {
        writes.extend(site.create_endpoints());
        if site.tls {
            writes.push(site.create_secret(&data.certificate(site, "first")?));
        }
        writes.push(site.create_ingress());
    }
    let count = writes.len() + data.namespaces;
    for writes in [namespaces(data.namespaces), writes] {
        let client = client.clone();
        let one = move |write: Write| {
            let client = client.clone();
            async move { self::write(&client, &write).await.map(drop) }
        };
        in_parallel(writes, one).await?;
    }
    say(&format!("{count} objects in {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// Reloads that HAProxy's master has seen.
pub(super) async fn reloads(master: &Path) -> Result<u64> {
    let answer = crate::haproxy::ask(master, "show proc;quit").await?;
    let line = answer.lines().find(|line| line.split_whitespace().nth(1) == Some("master"));
    match line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok()) {
        Some(count) => Ok(count),
        None => bail!("no master in: {answer}"),
    }
}

/// The number of HAProxy's worker.
pub(super) fn worker(observer: &mut Observer) -> Result<u32> {
    let answer = observer.ask("show info")?;
    crate::haproxy::Info::parse(&answer).map(|info| info.pid).context("no pid in `show info`")
}
