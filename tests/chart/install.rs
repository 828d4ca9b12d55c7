//! Installed on a real API server. Pods do not run there: this plays the kubelet and starts what the Pods would, with their
//! ServiceAccount, arguments and environment.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use waystation_kit::cluster::{AuditMark, Cluster, ClusterOptions, text_of};
use waystation_kit::operator::{await_admission, http_get};
use waystation_kit::process::{Port, Process, WorkFolder, eventually};

use super::helm::{self, Helm};

const PATIENCE: Duration = Duration::from_secs(120);
const BINARY: &str = env!("CARGO_BIN_EXE_waystation");
const KINDS: [&str; 3] = ["addresses.waystation.dev", "addressspaces.waystation.dev", "routerconfigs.waystation.dev"];

struct World {
    cluster: Cluster,
    helm: Helm,
}

impl World {
    /// A cluster with the kinds.
    async fn start() -> Self {
        let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
        let helm = Helm::for_cluster(&cluster).unwrap();
        let world = Self { cluster, helm };
        world.chart(&["install", "kinds"], &helm::crds(), &["--namespace=kinds", "--create-namespace"]).await;
        world.cluster.await_crds(&KINDS).await.unwrap();
        world
    }

    async fn chart(&self, verb: &[&str], chart: &Path, more: &[&str]) -> String {
        let chart = chart.to_string_lossy();
        let arguments = [verb, &[&*chart], more].concat();
        self.helm.text(&arguments).await.unwrap()
    }

    /// A namespace that takes restricted Pods only, as the charts say theirs are.
    async fn restricted(&self, namespace: &str) {
        self.kubectl(&["create", "namespace", namespace]).await;
        let label = "pod-security.kubernetes.io/enforce=restricted";
        self.kubectl(&["label", "namespace", namespace, label]).await;
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl_text(arguments).await.unwrap()
    }

    async fn get(&self, namespace: &str, what: &str) -> Result<Value> {
        let text = self.cluster.kubectl_text(&["get", "-n", namespace, "-o", "json", what]).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Who has finalizers, in that namespace.
    async fn finalizers(&self, namespace: &str) -> Result<Vec<String>> {
        let all = self.get(namespace, "routerconfigs,addressspaces,addresses").await?;
        let held = all["items"].as_array().context("no list")?.iter();
        let held = held.filter(|object| object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty()));
        let mut kinds = held.filter_map(|object| object["kind"].as_str().map(str::to_owned)).collect::<Vec<_>>();
        kinds.sort();
        Ok(kinds)
    }

    /// What the first container of a Deployment or Job would be, started.
    async fn start_pod(&self, owner: &Value, port: Option<&Port>) -> Result<Running> {
        let pod = &owner["spec"]["template"]["spec"];
        let namespace = owner["metadata"]["namespace"].as_str().context("no namespace")?;
        let account = pod["serviceAccountName"].as_str().context("no account")?;
        let kubeconfig = self.cluster.service_account_kubeconfig(namespace, account).await?;
        let container = &pod["containers"][0];
        let mut arguments = Vec::new();
        for argument in container["args"].as_array().context("no arguments")? {
            let argument = argument.as_str().context("not a text")?;
            // Where nothing else listens; the rest is as the chart says.
            arguments.push(match (argument.starts_with("--listen="), port) {
                (true, Some(port)) => format!("--listen=127.0.0.1:{}", port.number()),
                _ => argument.to_owned(),
            });
        }
        let mut environment: Vec<(&str, &OsStr)> = vec![("KUBECONFIG", kubeconfig.as_os_str())];
        for variable in container["env"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().context("not a text");
            environment.push((text("name")?, OsStr::new(text("value")?)));
        }
        let folder = WorkFolder::new("pod")?;
        let log = folder.join("pod.log");
        let process = Process::spawn("pod", BINARY.as_ref(), &arguments, &environment, &log)?;
        Ok(Running { process, _folder: folder })
    }

    /// The operator of a release, ready.
    async fn start_operator(&self, namespace: &str) -> Running {
        let port = Port::claim().unwrap();
        let deployment = self.get(namespace, "deployment/waystation").await.unwrap();
        let mut running = self.start_pod(&deployment, Some(&port)).await.unwrap();
        let ready = eventually(PATIENCE, "the operator is ready", || async {
            let (status, text) = http_get(port.number(), "/readyz").await?;
            ensure!(status == 200, "{text}");
            Ok(())
        });
        let ready = ready.await;
        running.process.ensure_running().unwrap();
        ready.unwrap();
        running
    }

    /// A data plane, a space and an address of that installation; waits until the operator holds them.
    async fn objects(&self, namespace: &str, controller: &str) {
        self.kubectl(&["create", "namespace", namespace]).await;
        let yaml = format!(
            r#"
{{"apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig", "metadata": {{"name": "main", "namespace": "{namespace}"}},
 "spec": {{"controllerName": "{controller}", "messaging": {{"brokers": {{"external": {{"hosts": [{{"host": "127.0.0.1", "port": 1}}]}}}}}}}}}}
---
{{"apiVersion": "waystation.dev/v1alpha1", "kind": "AddressSpace", "metadata": {{"name": "shop", "namespace": "{namespace}"}},
 "spec": {{"type": "brokered", "routerConfigRef": {{"name": "main"}}}}}}
---
{{"apiVersion": "waystation.dev/v1alpha1", "kind": "Address", "metadata": {{"name": "orders", "namespace": "{namespace}"}},
 "spec": {{"type": "queue", "addressSpace": "shop"}}}}
"#
        );
        self.cluster.apply(&yaml).await.unwrap();
        eventually(PATIENCE, "the operator's finalizers", || async {
            let held = self.finalizers(namespace).await?;
            ensure!(held == ["Address", "AddressSpace", "RouterConfig"], "{held:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn waystation(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(BINARY);
        command.args(arguments).env("KUBECONFIG", self.cluster.kubeconfig()).kill_on_drop(true);
        command.output().await.unwrap()
    }

    /// The accounts of releases asked for nothing that their roles do not give.
    async fn nothing_was_forbidden(&self, since: &AuditMark) {
        let entries = self.cluster.audit().await.unwrap().since(*since).await.unwrap();
        let ours = entries.iter().filter(|entry| entry.user.starts_with("system:serviceaccount:waystation-system:"));
        let (forbidden, allowed): (Vec<_>, Vec<_>) = ours.partition(|entry| entry.code == 403);
        assert!(allowed.iter().any(|entry| entry.user.ends_with(":waystation-release") && entry.is_write()));
        assert!(forbidden.is_empty(), "{forbidden:?}");
    }

    async fn delete_namespace(&self, namespace: &str) {
        self.kubectl(&["delete", "namespace", namespace, "--timeout=120s"]).await;
    }
}

/// A process of a Pod.
struct Running {
    process: Process,
    _folder: WorkFolder,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_installed_upgraded_rolled_back_and_leaves_nothing_hanging() {
    let world = World::start().await;
    let began = world.cluster.audit().await.unwrap().mark().await.unwrap();
    world.restricted("waystation-system").await;
    let chart = helm::chart();
    let here = "--namespace=waystation-system";
    let notes = world.chart(&["install", "waystation"], &chart, &[here]).await;
    assert!(notes.contains("kubectl rollout status -n waystation-system deployment/waystation"), "{notes}");
    await_admission(&world.cluster, true).await.unwrap();

    // The controllers take it: there are Pods, and so they are restricted.
    let pods = |count: usize| {
        let world = &world;
        async move {
            eventually(PATIENCE, "Pods of the operator", || async {
                let pods = world.get("waystation-system", "pods").await?;
                let pods = pods["items"].as_array().context("no list")?;
                let live = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
                ensure!(live == count, "{live} of {count}");
                Ok(())
            })
            .await
            .unwrap();
        }
    };
    pods(2).await;

    let mut operator = world.start_operator("waystation-system").await;
    world.objects("team", "waystation").await;

    let upgrade = ["--set=replicas=3,operator.resyncInterval=5m", here];
    world.chart(&["upgrade", "waystation"], &chart, &upgrade).await;
    let arguments = |deployment: Value| deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    let deployment = world.get("waystation-system", "deployment/waystation").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert!(arguments(deployment).contains("--resync-interval=5m"));
    world.helm.text(&["rollback", "waystation", "1", here]).await.unwrap();
    let deployment = world.get("waystation-system", "deployment/waystation").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert!(arguments(deployment).contains("--resync-interval=10m"));

    // An uninstall with objects present: the hook stops the operator and takes its finalizers off.
    let uninstall = world.helm.command(&["uninstall", "waystation", here, "--timeout=4m"]).unwrap().output();
    let kubelet = async {
        let job = eventually(PATIENCE, "the hook's Job", || world.get("waystation-system", "job/waystation-release"));
        let job = job.await.unwrap();
        let mut hook = world.start_pod(&job, None).await.unwrap();
        eventually(PATIENCE, "the operator is stopped", || async {
            let deployment = world.get("waystation-system", "deployment/waystation").await?;
            ensure!(deployment["spec"]["replicas"] == 0, "{}", deployment["spec"]["replicas"]);
            Ok(())
        })
        .await
        .unwrap();
        operator.process.terminate(PATIENCE).await.unwrap();
        let ended = eventually(PATIENCE, "the hook ends", || {
            let ended = hook.process.ended();
            async move { ended.context("it runs") }
        });
        let ended = ended.await;
        assert!(ended.is_ok_and(|status| status.success()), "{}", hook.process.log());
        // What the kubelet would tell of it.
        let pods = world.get("waystation-system", "pods").await.unwrap();
        let pod = pods["items"].as_array().unwrap().iter();
        let pod =
            pod.map(|pod| pod["metadata"]["name"].as_str().unwrap()).find(|name| name.contains("release")).unwrap();
        let patch = r#"{"status":{"phase":"Succeeded"}}"#;
        world.kubectl(&["patch", "pod", "-n", "waystation-system", pod, "--subresource=status", "-p", patch]).await;
    };
    let (uninstalled, ()) = tokio::join!(uninstall, kubelet);
    text_of(&uninstalled.unwrap()).unwrap();

    assert_eq!(world.finalizers("team").await.unwrap(), Vec::<String>::new());
    world.delete_namespace("team").await;
    world.nothing_was_forbidden(&began).await;
    // Nothing outside of namespaces is left of it.
    let left =
        world.kubectl(&["get", "clusterroles,clusterrolebindings,mutatingadmissionpolicies", "-o", "name"]).await;
    assert!(!left.contains("waystation"), "{left}");
    world.delete_namespace("waystation-system").await;

    world.helm.text(&["uninstall", "kinds", "--namespace=kinds"]).await.unwrap();
    for kind in KINDS {
        world.kubectl(&["get", "crd", kind]).await;
    }
    // And they can be installed again over what was kept.
    world.chart(&["install", "kinds"], &helm::crds(), &["--namespace=kinds"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_leave_each_others_objects_alone() {
    let world = World::start().await;
    let chart = helm::chart();
    for release in ["one", "two"] {
        let namespace = format!("--namespace={release}");
        let name = format!("--set=controllerName={release}");
        world.chart(&["install", "waystation"], &chart, &[&namespace, "--create-namespace", &name]).await;
    }
    await_admission(&world.cluster, true).await.unwrap();
    let mut one = world.start_operator("one").await;
    let mut two = world.start_operator("two").await;
    world.objects("team-one", "one").await;
    world.objects("team-two", "two").await;

    let of_one = ["release-finalizers", "--controller-name=one", "--namespace=one"];
    let refused = world.waystation(&of_one).await;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("scale its Deployment to 0 first"), "{words}");
    assert_eq!(world.finalizers("team-one").await.unwrap().len(), 3, "nothing was released");

    one.process.terminate(PATIENCE).await.unwrap();
    let dry = text_of(&world.waystation(&[&of_one[..], &["--dry-run"]].concat()).await).unwrap();
    assert!(dry.contains("Address team-one/orders") && dry.contains("3 finalizers"), "{dry}");
    assert!(!dry.contains("team-two"), "{dry}");
    assert_eq!(world.finalizers("team-one").await.unwrap().len(), 3, "a dry run changes nothing");

    text_of(&world.waystation(&of_one).await).unwrap();
    assert_eq!(world.finalizers("team-one").await.unwrap(), Vec::<String>::new());
    assert_eq!(world.finalizers("team-two").await.unwrap().len(), 3);
    world.helm.text(&["uninstall", "waystation", "--namespace=one", "--no-hooks"]).await.unwrap();
    world.delete_namespace("team-one").await;

    // The other goes on as it was, with its rights.
    world.objects("team-more", "two").await;
    two.process.ensure_running().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_comes_with_one_value_and_its_pods_are_restricted() {
    let world = World::start().await;
    let more = ["--namespace=waystation-system", "--create-namespace", "--set=edge.enabled=true"];
    let notes = world.chart(&["install", "waystation"], &helm::chart(), &more).await;
    assert!(notes.contains("kubectl get rcfg -n waystation-system-edge waystation-edge"), "{notes}");
    // Its namespace takes no others.
    eventually(PATIENCE, "Pods of the edge", || async {
        let pods = world.get("waystation-system-edge", "pods").await?;
        let count = pods["items"].as_array().map_or(0, Vec::len);
        ensure!(count == 2, "{count}");
        Ok(())
    })
    .await
    .unwrap();
    let config = world.get("waystation-system-edge", "routerconfig/waystation-edge").await.unwrap();
    assert_eq!(config["spec"]["edge"]["publish"]["service"], "waystation-edge");
    let class = world.kubectl(&["get", "ingressclass", "waystation", "-o", "jsonpath={.spec.controller}"]).await;
    assert_eq!(class, "waystation.dev/edge");
}
