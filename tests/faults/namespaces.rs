//! The deletion of a tenant's namespace in one go ends, in whatever order its objects go.

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use waystation_kit::operator::Operator;
use waystation_kit::process::eventually;

use crate::observer::{Observer, send};
use crate::support::{CONFIG, Kind, SPACE, Tenant, World};

/// One address of each type, with stored messages and a reference of each kind; all Ready.
async fn furnish(tenant: &Tenant<'_>) -> Result<()> {
    for (name, spec) in [
        ("dead", json!({"type": "deadLetter"})),
        ("orders", json!({"type": "queue", "deadLetterAddress": "dead", "expiryAddress": "dead"})),
        ("news", json!({"type": "topic", "deadLetterAddress": "dead"})),
        ("archive", json!({"type": "subscription", "topic": "news"})),
        ("requests", json!({"type": "anycast"})),
        ("alerts", json!({"type": "multicast"})),
    ] {
        tenant.address(name, spec).await?;
    }
    tenant.ready(Kind::Address, &["dead", "orders", "news", "archive", "requests", "alerts"]).await?;
    for name in ["orders", "news", "dead"] {
        send(&tenant.world.broker, &tenant.name(name), &["stored"]).await?;
    }
    Ok(())
}

async fn delete(tenant: &Tenant<'_>) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    namespaces.delete(&tenant.namespace, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the namespace is gone. The API server looks at what is left only every ten seconds or so.
async fn ends(tenant: &Tenant<'_>) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    eventually(crate::support::SOON, &format!("namespace {} is gone", tenant.namespace), || async {
        match namespaces.get_opt(&tenant.namespace).await? {
            None => Ok(()),
            Some(left) => Err(anyhow!("{:?}", left.status)),
        }
    })
    .await
}

/// Waits until nothing of the tenant is left on the broker.
async fn nothing_is_left(tenant: &Tenant<'_>) -> Result<()> {
    let mut observer = Observer::of(&tenant.world.broker).await?;
    let left = observer.addresses(&tenant.name("")).await?;
    ensure!(left.is_empty(), "left over on the broker: {left:?}");
    let nobodys = observer.settings("nobodys").await?;
    for name in ["orders", "news", "dead", "nobody"] {
        let left = observer.settings(&tenant.name(name)).await?;
        ensure!(left == nobodys, "settings of {name} are left over: {left:?}");
    }
    let marks = observer.queues(&format!("_waystation/{}", tenant.name(""))).await?;
    ensure!(marks.is_empty(), "marks are left over: {marks:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_on_a_data_plane_of_another_goes() -> Result<()> {
    let world = World::shared().await?;
    let host = world.tenant("host").await?;
    host.router_config(CONFIG, &[("broker", &world.broker)], json!({})).await?;
    host.change(Kind::RouterConfig, CONFIG, json!({"spec": {"allowedNamespaces": {"from": "All"}}})).await?;
    let guest = world.tenant("guest").await?;
    let reference = json!({"name": CONFIG, "namespace": host.namespace});
    guest.create(Kind::AddressSpace, SPACE, json!({"type": "brokered", "routerConfigRef": reference})).await?;
    furnish(&guest).await?;
    delete(&guest).await?;
    ends(&guest).await?;
    nothing_is_left(&guest).await?;
    host.ready(Kind::RouterConfig, &[CONFIG]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_its_data_plane_and_its_secret_goes() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("all-in-one").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    furnish(&tenant).await?;
    delete(&tenant).await?;
    ends(&tenant).await?;
    nothing_is_left(&tenant).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_goes_whose_spaces_and_data_planes_never_were() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("never-was").await?;
    tenant.address("orders", json!({"type": "queue", "addressSpace": "nowhere"})).await?;
    tenant.reason(Kind::Address, "orders", "SpaceNotFound").await?;
    tenant.space("astray", "nowhere").await?;
    tenant.reason(Kind::AddressSpace, "astray", "RouterConfigNotFound").await?;
    tenant.address("bills", json!({"type": "queue", "addressSpace": "astray"})).await?;
    tenant.reason(Kind::Address, "bills", "SpaceNotAccepted").await?;
    delete(&tenant).await?;
    ends(&tenant).await
}

/// The operator is told to end, the namespace is deleted, and then an operator starts that finds what is left.
async fn without_operator(tenant: &Tenant<'_>, operator: &mut Operator) -> Result<Operator> {
    operator.terminate().await?;
    delete(tenant).await?;
    // All that nothing holds back is gone by then: the Secret for one.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    eventually(crate::support::SOON, "the Secrets are gone", || async {
        let left = secrets.list(&Default::default()).await?.items.len();
        ensure!(left == 0, "there are {left}");
        Ok(())
    })
    .await?;
    tenant.get(Kind::Address, "orders").await.context("an Address went without an operator")?;
    tenant.world.operator(&tenant.namespace, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_deleted_while_no_operator_runs_goes_when_one_does() -> Result<()> {
    let world = World::shared().await?;
    let (host, guest) = (world.tenant("late-host").await?, world.tenant("late").await?.driven_by("late"));
    let mut operator = world.operator("late", &[]).await?;
    let host = host.driven_by("late");
    host.router_config(CONFIG, &[("broker", &world.broker)], json!({})).await?;
    host.change(Kind::RouterConfig, CONFIG, json!({"spec": {"allowedNamespaces": {"from": "All"}}})).await?;
    let reference = json!({"name": CONFIG, "namespace": host.namespace});
    guest.create(Kind::AddressSpace, SPACE, json!({"type": "brokered", "routerConfigRef": reference})).await?;
    furnish(&guest).await?;
    let _operator = without_operator(&guest, &mut operator).await?;
    ends(&guest).await?;
    nothing_is_left(&guest).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_goes_whose_secret_went_while_no_operator_ran() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("secret-gone").await?.driven_by("secret-gone");
    let mut operator = world.operator("secret-gone", &[]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    furnish(&tenant).await?;
    let _operator = without_operator(&tenant, &mut operator).await?;
    ends(&tenant).await?;
    // Nobody can log in for them any more, and nobody said that stored messages may go without that.
    let left = Observer::of(&world.broker).await?.queue(&tenant.name("orders")).await?;
    ensure!(left.is_some_and(|row| row.messages == 1), "the stored message is gone");
    Ok(())
}
