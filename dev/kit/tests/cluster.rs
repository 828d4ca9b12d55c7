//! The control plane is a real one: RBAC judges, controllers act, the audit log counts, etcd can go back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use waystation_kit::cluster::{Cluster, ClusterOptions, client_for};
use waystation_kit::process::eventually;

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_may_do_what_it_is_bound_to_and_the_audit_log_counts_it() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let version = cluster.kubectl_text(&["version"]).await?;
    ensure!(version.contains("Server Version: v1.37.2"), "{version}");
    cluster.kubectl_text(&["create", "serviceaccount", "reader"]).await?;
    let kubeconfig = cluster.service_account_kubeconfig("default", "reader").await?;
    let reader: Api<ConfigMap> = Api::namespaced(client_for(&kubeconfig).await?, "default");

    let audit = cluster.audit().await?;
    let mark = audit.mark().await?;
    let refused = reader.get_opt("kube-root-ca.crt").await.expect_err("it is bound to nothing");
    ensure!(refused.to_string().contains("forbidden"), "{refused}");

    cluster.kubectl_text(&["create", "role", "reader", "--verb=get,list", "--resource=configmaps"]).await?;
    cluster
        .kubectl_text(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"])
        .await?;
    eventually(Duration::from_secs(20), "the role is in force", || async { Ok(reader.get_opt("none").await?) }).await?;
    let refused = reader.create(&PostParams::default(), &map("mine")).await.expect_err("it may only read");
    ensure!(refused.to_string().contains("forbidden"), "{refused}");

    let entries = audit.since(mark).await?;
    let of_reader: Vec<_> =
        entries.iter().filter(|entry| entry.user == "system:serviceaccount:default:reader").collect();
    ensure!(of_reader.iter().filter(|entry| entry.is_write()).count() == 1, "{of_reader:?}");
    let created = of_reader.last().context("nothing is logged")?;
    ensure!((created.verb.as_str(), created.resource.as_str(), created.code) == ("create", "configmaps", 403));
    ensure!(entries.iter().any(|entry| entry.user == "admin" && entry.resource == "rolebindings"));
    ensure!(audit.count(audit.mark().await?, |_| true).await? == 0, "a mark is after everything");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_goes_back_to_a_snapshot_and_holds_what_nobody_can_decode() -> Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin_client().await?, "default");
    maps.create(&PostParams::default(), &map("before")).await?;
    let snapshot = cluster.etcd_snapshot().await?;
    maps.create(&PostParams::default(), &map("after")).await?;

    cluster.restore(&snapshot).await?;
    ensure!(maps.get_opt("before").await?.is_some(), "what was there at the snapshot is there");
    ensure!(maps.get_opt("after").await?.is_none(), "what came later is not");

    let key = "/registry/configmaps/default/broken";
    cluster.etcd_put(key, b"k8s\0nonsense").await?;
    ensure!(cluster.etcd_get(key).await? == b"k8s\0nonsense");
    ensure!(maps.get("broken").await.is_err(), "the API server cannot decode it");
    cluster.etcd_delete(key).await?;
    eventually(Duration::from_secs(10), "it is gone", || async {
        ensure!(maps.get_opt("broken").await?.is_none());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_delete_namespaces_and_the_api_server_comes_back_on_its_port() -> Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    cluster.kubectl_text(&["create", "namespace", "tenant"]).await?;
    cluster.kubectl_text(&["create", "configmap", "thing", "-n", "tenant"]).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.admin_client().await?);
    let url = cluster.url();
    cluster.stop_apiserver().await?;
    ensure!(namespaces.get("tenant").await.is_err(), "nobody answers");
    cluster.start_apiserver().await?;
    ensure!(cluster.url() == url);
    cluster.kubectl_text(&["delete", "namespace", "tenant", "--wait=false"]).await?;
    eventually(Duration::from_secs(60), "the namespace is gone", || async {
        ensure!(namespaces.get_opt("tenant").await?.is_none());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_says_what_the_api_server_says() -> Result<()> {
    let cluster =
        Cluster::start(ClusterOptions { audit: false, controller_manager: false, ..Default::default() }).await?;
    let text = cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: default}}").await?;
    ensure!(text.contains("serverside-applied"), "{text}");
    let error = cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: 'no good'}}").await;
    let error = error.expect_err("not a name").to_string();
    ensure!(error.contains("metadata.name"), "{error}");
    Ok(())
}
