//! Everything that a scenario plays on: control plane, broker, operator, data set, observers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::client::{Addresses, Group, in_parallel, install_twin, request};
use super::data::{CONFIG, DataSet, Numbers, Planned, Shape, Space, address, plan};
use super::routers::Router;
use super::watcher::{Watcher, What};
use super::{Arguments, Broker, say};
use crate::artemis::{Artemis, ArtemisOptions, Login};
use crate::cluster::{AuditEntry, AuditMark, AuditReader, Cluster, ClusterOptions};
use crate::operator::{NAMESPACE, Operator, OperatorOptions, SERVICE_ACCOUNT, install};
use crate::process::{Port, Process, WorkFolder, eventually};

/// How long anything in bulk may take; the largest run creates 10,000 addresses on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(900);
const SPACE_KIND: &str = "/apis/waystation.dev/v1alpha1";

/// A broker that runs.
#[derive(Debug)]
enum Peer {
    Standin { _process: Process, port: Port, _folder: WorkFolder },
    Artemis(Box<Artemis>),
}

/// See the module.
pub(super) struct Stage {
    // In the order in which they end.
    pub operator: Operator,
    peer: Option<Peer>,
    pub routers: Vec<Router>,
    shape: Shape,
    pub client: kube::Client,
    pub ours: Addresses,
    pub twins: Addresses,
    pub watcher: Watcher,
    pub audit: AuditReader,
    pub numbers: Numbers,
    data: DataSet,
    filled: bool,
    twins_there: bool,
    policy: bool,
    made: usize,
    kubeconfig: PathBuf,
    _cluster: Cluster,
}

impl Stage {
    /// Sets it for `size` addresses, none of which is created yet.
    pub async fn set(arguments: &Arguments, size: usize, spaces: usize, routers: usize) -> Result<Self> {
        say(&format!("{size} addresses: a control plane, a broker, {routers} routers, the operator"));
        let policy = !arguments.without_policy;
        let cluster = Cluster::start(ClusterOptions::default()).await?;
        install(&cluster, policy).await?;
        install_twin(&cluster, policy).await?;
        let client = cluster.admin_client().await?;
        let peer = match arguments.broker {
            Broker::None => None,
            broker => Some(start_broker(broker, size).await?),
        };
        let names = (1..=routers).map(|number| format!("r{number}"));
        let routers = names.map(|name| async move { Router::start(&name).await });
        let routers = futures::future::try_join_all(routers).await?;
        let shape = Shape { spaces, standard: !routers.is_empty(), broker: peer.is_some() };
        let mut data = plan(size, shape);
        // Two more, for those who come behind another's bulk.
        data.spaces.extend(
            ["bench-bulk", "bench-other"]
                .map(|namespace| Space { namespace: namespace.to_owned(), name: "orders".to_owned() }),
        );
        create_spaces(&client, &data.spaces, messaging(peer.as_ref(), &routers), shape).await?;
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        let operator = start_operator(&kubeconfig).await?;
        let stage = Self {
            operator,
            peer,
            routers,
            shape,
            ours: Addresses::new(&client, Group::Ours),
            twins: Addresses::new(&client, Group::Twin),
            watcher: Watcher::start(client.clone(), Group::Ours).await?,
            audit: cluster.audit().await?,
            client,
            numbers: Numbers::seeded(),
            data,
            filled: false,
            twins_there: false,
            policy,
            made: 0,
            kubeconfig,
            _cluster: cluster,
        };
        stage.await_spaces().await?;
        Ok(stage)
    }

    /// Addresses that there are once it is filled.
    pub fn size(&self) -> usize {
        self.data.addresses.len()
    }

    pub fn addresses(&self) -> Vec<Planned> {
        self.data.addresses.clone()
    }

    /// Spaces that its addresses are in.
    pub fn spaces(&self) -> usize {
        self.data.spaces.len() - 2
    }

    /// The path of one of them.
    pub fn a_space(&self) -> String {
        let space = &self.data.spaces[0];
        format!("{SPACE_KIND}/namespaces/{}/addressspaces/{}", space.namespace, space.name)
    }

    /// The broker's port, where there is a broker.
    pub fn broker_port(&self) -> Option<u16> {
        self.peer.as_ref().map(Peer::port)
    }

    pub fn router_ports(&self) -> Vec<u16> {
        self.routers.iter().map(Router::port).collect()
    }

    /// Creates all addresses and waits until they are Ready, unless that is done.
    pub async fn fill(&mut self) -> Result<()> {
        if self.filled {
            return Ok(());
        }
        say(&format!("creating {} addresses", self.size()));
        let mark = self.watcher.mark();
        let api = self.ours.clone();
        in_parallel(self.addresses(), move |address| create(api.clone(), address)).await?;
        let keys = self.data.addresses.iter().map(Planned::key);
        self.watcher.all(mark, keys, What::Ready, LONG).await?;
        self.filled = true;
        self.quiet().await
    }

    /// Tells that all addresses were created, or deleted, by a scenario.
    pub fn set_filled(&mut self, filled: bool) {
        self.filled = filled;
    }

    /// Whether the twins of all addresses were created.
    pub fn has_twins(&self) -> bool {
        self.twins_there
    }

    /// Tells that they were.
    pub fn set_twins(&mut self) {
        self.twins_there = true;
    }

    /// Whether the admission policy is in force.
    pub fn policy(&self) -> bool {
        self.policy
    }

    /// Two addresses that are not there yet, a queue and an anycast, in one of the usual spaces.
    pub fn two(&mut self) -> [Planned; 2] {
        let usual = self.data.spaces.len() - 2;
        let space = self.numbers.below(usual);
        self.two_in(space)
    }

    /// The same in the space that the bulk is in, or in one beside it.
    pub fn two_behind(&mut self, same: bool) -> [Planned; 2] {
        self.two_in(self.data.spaces.len() - if same { 2 } else { 1 })
    }

    fn two_in(&mut self, space: usize) -> [Planned; 2] {
        let space = self.data.spaces[space].clone();
        self.made += 1;
        let shape = self.shape;
        [0, 1].map(|turn| address(&space, &format!("new-{:05}-{turn}", self.made), turn, &mut self.numbers, shape))
    }

    /// Many addresses that are not there yet, all in the space for bulks.
    pub fn bulk(&mut self, count: usize) -> Vec<Planned> {
        let space = self.data.spaces[self.data.spaces.len() - 2].clone();
        self.made += 1;
        let name = format!("bulk-{:03}", self.made);
        let shape = self.shape;
        (0..count).map(|i| address(&space, &format!("{name}-{i:05}"), i, &mut self.numbers, shape)).collect()
    }

    /// Waits until the operator has written nothing but its Lease for three seconds: counts of spaces follow by up to
    /// two.
    pub async fn quiet(&self) -> Result<()> {
        eventually(Duration::from_secs(120), "the operator has nothing left to write", || async {
            let mark = self.audit.mark().await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let writes = self.audit.count(mark, |entry| is_operators(entry) && is_write(entry)).await?;
            ensure!(writes == 0, "{writes} writes in three seconds");
            Ok(())
        })
        .await
    }

    /// What the operator asked the API server for since the mark.
    pub async fn requests(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        Ok(self.audit.since(mark).await?.into_iter().filter(is_operators).collect())
    }

    /// Starts the operator again, after it has ended; it is running, not ready.
    pub fn restart(&mut self) -> Result<()> {
        self.operator = Operator::start(&self.kubeconfig, &OperatorOptions::default())?;
        Ok(())
    }

    /// The end of the operator's log, for errors.
    pub fn last_words(&self) -> String {
        let log = self.operator.logs();
        let lines: Vec<&str> = log.lines().collect();
        format!("the end of the operator's log:\n{}\n", lines[lines.len().saturating_sub(10)..].join("\n"))
    }

    async fn await_spaces(&self) -> Result<()> {
        eventually(Duration::from_secs(120), "all spaces are Ready", || async {
            let path = format!("{SPACE_KIND}/addressspaces");
            let list = request(&self.client, Method::GET, &path, "application/json", None).await?;
            let items = list["items"].as_array().context("a list without items")?;
            let ready = items.iter().filter(|space| is_ready(space)).count();
            ensure!(ready == self.data.spaces.len(), "{ready} of {}", self.data.spaces.len());
            Ok(())
        })
        .await?;
        self.quiet().await
    }
}

impl Peer {
    fn port(&self) -> u16 {
        match self {
            Self::Standin { port, .. } => port.number(),
            Self::Artemis(artemis) => artemis.port(),
        }
    }
}

async fn create(api: Addresses, address: Planned) -> Result<()> {
    api.create(&address).await
}

/// Whether the operator asked.
pub(super) fn is_operators(entry: &AuditEntry) -> bool {
    entry.user == format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}")
}

/// Whether it changed something, its Lease aside.
pub(super) fn is_write(entry: &AuditEntry) -> bool {
    entry.is_write() && entry.resource != "leases"
}

/// Whether an object's status says that it is Ready.
pub(super) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

async fn start_broker(broker: Broker, size: usize) -> Result<Peer> {
    if broker == Broker::Artemis {
        let heap_mib = if size > 2_000 { 1_500 } else { 512 };
        let options = ArtemisOptions { login: Login::Anonymous, fsync: true, heap_mib, ..ArtemisOptions::default() };
        return Ok(Peer::Artemis(Box::new(Artemis::start(options).await?)));
    }
    let (folder, port) = (WorkFolder::new("standin")?, Port::claim()?);
    let program = std::env::current_exe()?;
    let arguments = ["standin".to_owned(), format!("--port={}", port.number())];
    let process = Process::spawn("standin", &program, &arguments, &[], &folder.join("standin.log"))?;
    eventually(Duration::from_secs(10), "the stand-in listens", || async {
        Ok(tokio::net::TcpStream::connect(("127.0.0.1", port.number())).await.map(drop)?)
    })
    .await?;
    Ok(Peer::Standin { _process: process, port, _folder: folder })
}

async fn start_operator(kubeconfig: &Path) -> Result<Operator> {
    let mut operator = Operator::start(kubeconfig, &OperatorOptions::default())?;
    operator.await_ready(Duration::from_secs(60)).await?;
    Ok(operator)
}

/// `spec.messaging` with what there is.
fn messaging(peer: Option<&Peer>, routers: &[Router]) -> Value {
    let mut messaging = json!({});
    if let Some(peer) = peer {
        let hosts = json!([{ "name": "broker", "host": "127.0.0.1", "port": peer.port() }]);
        messaging["brokers"] = json!({ "external": { "hosts": hosts } });
    }
    if !routers.is_empty() {
        let rows: Vec<Value> = routers.iter().map(Router::row).collect();
        messaging["routers"] = json!({ "external": { "hosts": rows } });
    }
    messaging
}

/// The RouterConfig, and each space in a namespace of its own.
async fn create_spaces(client: &kube::Client, spaces: &[Space], messaging: Value, shape: Shape) -> Result<()> {
    let (namespace, name) = CONFIG;
    create_namespace(client, namespace).await?;
    let config = json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig", "metadata": { "name": name },
        "spec": {
            "allowedNamespaces": { "from": "All" },
            "messaging": messaging,
        },
    });
    let path = format!("{SPACE_KIND}/namespaces/{namespace}/routerconfigs");
    request(client, Method::POST, &path, "application/json", Some(&config)).await?;
    // A work list of the same form as addresses, for the sake of the workers.
    let spaces = spaces.iter().map(|space| Planned {
        namespace: space.namespace.clone(),
        name: space.name.clone(),
        stored: false,
        spec: json!({ "type": if shape.standard { "standard" } else { "brokered" }, "routerConfigRef": { "name": name, "namespace": namespace } }),
    });
    let client = client.clone();
    in_parallel(spaces.collect(), move |space| create_space(client.clone(), space)).await
}

async fn create_space(client: kube::Client, space: Planned) -> Result<()> {
    create_namespace(&client, &space.namespace).await?;
    let object = json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "AddressSpace",
        "metadata": { "name": space.name }, "spec": space.spec,
    });
    let path = format!("{SPACE_KIND}/namespaces/{}/addressspaces", space.namespace);
    request(&client, Method::POST, &path, "application/json", Some(&object)).await.map(drop)
}

async fn create_namespace(client: &kube::Client, name: &str) -> Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    request(client, Method::POST, "/api/v1/namespaces", "application/json", Some(&namespace)).await.map(drop)
}
