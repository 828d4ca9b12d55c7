//! What the operator asks of the API server: one status write for an address that becomes Ready, none for what does not
//! change. Counted in the API server's own audit log.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use serde_json::{Value, json};
use waystation_kit::cluster::AuditEntry;
use waystation_kit::operator::NAMESPACE;
use waystation_kit::process::eventually;

use crate::support::{Kind, SOON, SPACE, Tenant, WITHOUT_POLICY, World};

/// Addresses that take longer than a second say so meanwhile, which is a write more; a busy machine may need a few.
const ATTEMPTS: usize = 12;

/// One of each type, in an order in which none has to wait.
fn one_of_each() -> [(&'static str, Value); 6] {
    [
        ("dead", json!({"type": "deadLetter"})),
        ("orders", json!({"type": "queue", "deadLetterAddress": "dead"})),
        ("news", json!({"type": "topic"})),
        ("archive", json!({"type": "subscription", "topic": "news"})),
        ("prices", json!({"type": "anycast"})),
        ("alerts", json!({"type": "multicast"})),
    ]
}

fn described(entries: &[AuditEntry]) -> Vec<String> {
    entries.iter().map(|e| format!("{} {}/{} {}", e.verb, e.resource, e.subresource, e.name)).collect()
}

/// Creates addresses until one is Ready within the second, and checks what each cost: `finalizer` patches of the object,
/// and one of its status, or two for one that was late.
async fn costs_one_status_write(tenant: &Tenant<'_>, spec: &Value, finalizers: usize) -> Result<()> {
    let kind = spec["type"].as_str().unwrap_or_default().to_lowercase();
    for attempt in 0..ATTEMPTS {
        let name = format!("{kind}-{attempt}");
        let mark = tenant.mark().await?;
        tenant.ready_address(&name, spec.clone()).await?;
        let all = tenant.audit.since(mark).await?;
        let created = all.iter().find(|entry| entry.verb == "create" && entry.resource == Kind::Address.plural());
        let created: Timestamp = created.context("nobody created it")?.times[0].parse()?;
        let mut writes = tenant.address_writes(mark).await?;
        writes.retain(|entry| entry.name == name);
        let told = described(&writes);
        let (status, object): (Vec<&AuditEntry>, Vec<&AuditEntry>) =
            writes.iter().partition(|entry| entry.subresource == "status");
        ensure!(writes.iter().all(|entry| entry.verb == "patch" && entry.code == 200), "{told:?}");
        ensure!(object.len() == finalizers, "{finalizers} writes for the finalizer expected: {told:?}");
        ensure!((1..=2).contains(&status.len()), "one status write expected: {told:?}");
        // Only one that is late says so meanwhile: of two writes the first comes when a second has passed.
        let first: Timestamp = status[0].times[0].parse()?;
        let late = first.duration_since(created) >= SignedDuration::from_secs(1);
        ensure!(status.len() == 1 || late, "two writes for one that was not late: {told:?}, {}", status[0].times[0]);
        if status.len() == 1 {
            return Ok(());
        }
    }
    anyhow::bail!("each of {ATTEMPTS} addresses of type {kind} had more than one status write")
}

#[tokio::test]
async fn a_created_address_costs_one_status_write() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("one-write").await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.ready_address("dead", json!({"type": "deadLetter"})).await?;
    tenant.ready_address("news", json!({"type": "topic"})).await?;
    for (_, spec) in one_of_each() {
        costs_one_status_write(&tenant, &spec, 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_the_admission_policy_an_address_costs_one_write_more() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.labelled_tenant("one-write-more", &[(WITHOUT_POLICY, "")]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    costs_one_status_write(&tenant, &json!({"type": "queue"}), 1).await
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes_nor_after_a_restart() -> Result<()> {
    const CONTROLLER: &str = "restarted";
    let world = World::shared().await?;
    let mut operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    let tenant = world.tenant("quiet").await?.driven_by(CONTROLLER);
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    for (name, spec) in one_of_each() {
        tenant.address(name, spec).await?;
    }
    let names = one_of_each().map(|(name, _)| name);
    tenant.ready(Kind::Address, &names).await?;
    counted(&tenant, "6/6").await?;

    let mark = tenant.mark().await?;
    renewed_twice(&tenant, CONTROLLER).await?;
    let writes = tenant.writes(mark).await?;
    ensure!(writes.is_empty(), "written while nothing changed: {:?}", described(&writes));

    let mark = tenant.mark().await?;
    let ended = operator.terminate().await?;
    ensure!(ended.success(), "{ended}");
    let mut operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    // That it leads and drives shows in a new address; that it is done with comparing, in its queues.
    tenant.ready_address("new", json!({"type": "queue"})).await?;
    counted(&tenant, "7/7").await?;
    eventually(SOON, "the operator is done", || async {
        for queue in ["drives", "writer"] {
            for lane in ["change", "repair", "in_flight"] {
                let series = format!("waystation_queue_depth{{queue=\"{queue}\",lane=\"{lane}\"}}");
                let depth = operator.metric(&series).await?;
                ensure!(depth == 0.0, "{series} is {depth}");
            }
        }
        Ok(())
    })
    .await?;
    renewed_twice(&tenant, CONTROLLER).await?;
    let mut writes = tenant.writes(mark).await?;
    // What is new: the address, and its space's count of it.
    writes.retain(|entry| entry.name != "new" && !(entry.resource == "addressspaces" && entry.name == SPACE));
    ensure!(writes.is_empty(), "written by a restart: {:?}", described(&writes));
    operator.ensure_running()
}

/// Waits until the space tells that count, which follows within two seconds.
async fn counted(tenant: &Tenant<'_>, summary: &str) -> Result<()> {
    tenant
        .until(Kind::AddressSpace, SPACE, summary, |space| {
            ensure!(space["status"]["summary"] == summary, "it tells another count");
            Ok(())
        })
        .await
}

/// Waits until an operator has renewed its Lease twice more.
pub async fn renewed_twice(tenant: &Tenant<'_>, lease: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(tenant.client.clone(), NAMESPACE);
    let renewed = || async {
        let spec = leases.get(lease).await?.spec.context("the Lease has no spec")?;
        anyhow::Ok((spec.holder_identity, spec.renew_time))
    };
    for _ in 0..2 {
        let before = renewed().await?;
        eventually(SOON, "the Lease is renewed", || async {
            ensure!(renewed().await? != before, "it is as before");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
