//! A namespace with a data plane, a space and addresses of its own, seen as its users see it.

use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use waystation_kit::amqp_client::Client as Amqp;
use waystation_kit::artemis::{Artemis, Login};
use waystation_kit::cluster::{AuditEntry, AuditMark, AuditReader};
use waystation_kit::operator::{NAMESPACE as OPERATOR_NAMESPACE, SERVICE_ACCOUNT};
use waystation_kit::process::eventually;

use super::{SOON, World};

/// The RouterConfig that [`Tenant::data_plane`] makes.
pub const CONFIG: &str = "main";
/// The AddressSpace that [`Tenant::data_plane`] makes.
pub const SPACE: &str = "shop";
/// The Secret with the login that [`Tenant::data_plane`] makes.
pub const LOGIN: &str = "broker-login";

/// The custom resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A data plane.
    RouterConfig,
    /// A tenant's addresses.
    AddressSpace,
    /// One address.
    Address,
}

impl Kind {
    /// In lower case, several: as in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::RouterConfig => "routerconfigs",
            Self::AddressSpace => "addressspaces",
            Self::Address => "addresses",
        }
    }

    fn resource(self) -> ApiResource {
        let kind = format!("{self:?}");
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("waystation.dev", "v1alpha1", &kind), self.plural())
    }
}

/// A namespace.
pub struct Tenant<'w> {
    /// What it stands in.
    pub world: &'w World,
    /// Its name.
    pub namespace: String,
    /// All rights.
    pub client: kube::Client,
    /// What the API server was asked.
    pub audit: AuditReader,
    controller: Option<String>,
}

impl<'w> Tenant<'w> {
    pub(super) async fn new(world: &'w World, namespace: &str, labels: &[(&str, &str)]) -> Result<Self> {
        let tenant = Self::visit(world, namespace).await?;
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let metadata = ObjectMeta { name: Some(namespace.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
        let object = Namespace { metadata, ..Namespace::default() };
        Api::all(tenant.client.clone()).create(&PostParams::default(), &object).await?;
        Ok(tenant)
    }

    pub(super) async fn visit(world: &'w World, namespace: &str) -> Result<Self> {
        let (client, audit) = tokio::try_join!(world.cluster.admin_client(), world.cluster.audit())?;
        Ok(Self { world, namespace: namespace.to_owned(), client, audit, controller: None })
    }

    /// Its RouterConfigs belong to another operator than the world's.
    #[must_use]
    pub fn driven_by(self, controller: &str) -> Self {
        Self { controller: Some(controller.to_owned()), ..self }
    }

    // === Objects ===

    /// The objects of a kind in this namespace.
    #[must_use]
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Creates an object.
    pub async fn create(&self, kind: Kind, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "waystation.dev/v1alpha1",
            "kind": format!("{kind:?}"),
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        });
        let created = self.api(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        created.with_context(|| format!("creating {kind:?} {name}"))?;
        Ok(())
    }

    /// Creates an Address in the space `shop`: `{"type": "queue"}` and what else it needs.
    pub async fn address(&self, name: &str, mut spec: Value) -> Result<()> {
        if spec.get("addressSpace").is_none() {
            spec["addressSpace"] = SPACE.into();
        }
        self.create(Kind::Address, name, spec).await
    }

    /// Creates an Address and waits until it is Ready.
    pub async fn ready_address(&self, name: &str, spec: Value) -> Result<()> {
        self.address(name, spec).await?;
        self.ready(Kind::Address, &[name]).await
    }

    /// Changes an object by a merge patch.
    pub async fn change(&self, kind: Kind, name: &str, patch: Value) -> Result<()> {
        let changed = self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        changed.with_context(|| format!("changing {kind:?} {name}"))?;
        Ok(())
    }

    /// Changes an Address's spec by a merge patch, and waits until that is in force.
    pub async fn changed_address(&self, name: &str, spec: Value) -> Result<()> {
        self.change(Kind::Address, name, json!({ "spec": spec })).await?;
        self.ready(Kind::Address, &[name]).await
    }

    /// Asks for the deletion of an object.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.api(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Reads an object.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.api(kind).get(name).await?)?)
    }

    /// Creates a Secret, or sets these keys of one that is there.
    pub async fn secret(&self, name: &str, data: &[(&str, &str)]) -> Result<()> {
        let text: serde_json::Map<String, Value> =
            data.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": text});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        secrets.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(secret)).await?;
        Ok(())
    }

    // === A data plane ===

    /// A RouterConfig `main` on these brokers (name and broker), with the login of the first, and a space `shop` on it;
    /// both Ready.
    pub async fn data_plane(&self, brokers: &[(&str, &Artemis)]) -> Result<()> {
        self.router_config(CONFIG, brokers, json!({})).await?;
        self.space(SPACE, CONFIG).await?;
        self.ready(Kind::RouterConfig, &[CONFIG]).await?;
        self.ready(Kind::AddressSpace, &[SPACE]).await
    }

    /// The Secret `broker-login` and a RouterConfig on brokers; `messaging` is laid over `spec.messaging`.
    pub async fn router_config(&self, name: &str, brokers: &[(&str, &Artemis)], messaging: Value) -> Result<()> {
        let hosts: Vec<(&str, u16)> = brokers.iter().map(|(name, broker)| (*name, broker.plain_port())).collect();
        let (_, first) = brokers.first().context("a RouterConfig needs a broker")?;
        let Login::Password { user, password } = first.login() else { bail!("the broker has no password") };
        self.secret(LOGIN, &[("username", user), ("password", password)]).await?;
        self.router_config_on_ports(name, &hosts, messaging).await
    }

    /// The same for ports of loopback, without making the Secret.
    pub async fn router_config_on_ports(&self, name: &str, hosts: &[(&str, u16)], messaging: Value) -> Result<()> {
        let hosts: Vec<Value> =
            hosts.iter().map(|(name, port)| json!({"name": name, "host": "127.0.0.1", "port": port})).collect();
        let external = json!({"hosts": hosts, "credentials": {"secretName": LOGIN}});
        let mut all = json!({"brokers": {"external": external}});
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), messaging) {
            all.extend(more);
        }
        let mut spec = json!({ "messaging": all });
        if let Some(controller) = &self.controller {
            spec["controllerName"] = controller.as_str().into();
        }
        self.create(Kind::RouterConfig, name, spec).await
    }

    /// A space on a RouterConfig of this namespace.
    pub async fn space(&self, name: &str, config: &str) -> Result<()> {
        self.create(Kind::AddressSpace, name, json!({"type": "brokered", "routerConfigRef": {"name": config}})).await
    }

    /// What clients call an address of the space `shop`.
    #[must_use]
    pub fn name(&self, address: &str) -> String {
        format!("{}.{SPACE}/{address}", self.namespace)
    }

    /// What consumers of a subscription attach to.
    #[must_use]
    pub fn subscription(&self, topic: &str, subscription: &str) -> String {
        format!("{}::{}", self.name(topic), self.name(subscription))
    }

    /// A client of the world's broker.
    pub async fn client(&self) -> Result<Amqp> {
        self.world.broker.client().await
    }

    // === Waiting ===

    /// Waits until the object is as `wanted` says, and gives it. What it was last is part of the error.
    pub async fn until<T>(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Result<T>,
    ) -> Result<T> {
        let api = self.api(kind);
        let what = format!("{kind:?} {name} of {}: {what}", self.namespace);
        let outcome = eventually(SOON, &what, || async {
            let object = serde_json::to_value(api.get(name).await?)?;
            wanted(&object).map_err(|error| anyhow!("{error}; {}", brief(&object)))
        });
        outcome.await.map_err(|error| error.context(self.last_words()))
    }

    /// Waits until all are Ready, for their present generation.
    pub async fn ready(&self, kind: Kind, names: &[&str]) -> Result<()> {
        for name in names {
            self.until(kind, name, "Ready", is_ready).await?;
        }
        Ok(())
    }

    /// Waits until `Ready` has that reason, for the present generation; gives the message.
    pub async fn reason(&self, kind: Kind, name: &str, reason: &str) -> Result<String> {
        self.until(kind, name, reason, |object| {
            let condition = condition(object, "Ready").context("there is no condition Ready")?;
            ensure!(condition["reason"] == reason, "the reason is {}", condition["reason"]);
            ensure!(condition["observedGeneration"] == object["metadata"]["generation"], "of an older generation");
            Ok(condition["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Waits until the object is gone.
    pub async fn gone(&self, kind: Kind, name: &str) -> Result<()> {
        let api = self.api(kind);
        let what = format!("{kind:?} {name} of {} is gone", self.namespace);
        let outcome = eventually(SOON, &what, || async {
            match api.get_opt(name).await? {
                None => Ok(()),
                Some(object) => {
                    let object = serde_json::to_value(object)?;
                    bail!("it is still there: {}", brief(&object))
                }
            }
        });
        outcome.await.map_err(|error| error.context(self.last_words()))
    }

    /// Waits until a broker of a RouterConfig is in a state; gives the message.
    pub async fn broker_state(&self, config: &str, broker: &str, state: &str) -> Result<String> {
        self.until(Kind::RouterConfig, config, &format!("broker {broker} {state}"), |object| {
            let row = broker_row(object, broker).context("there is no such broker")?;
            ensure!(row["state"] == state, "it is {}", row["state"]);
            Ok(row["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    fn last_words(&self) -> String {
        let own = self.controller.as_ref().and_then(|name| self.world.logs.lock().unwrap().get(name).cloned());
        let log = match own {
            Some(path) => std::fs::read_to_string(path).unwrap_or_default(),
            None => self.world.operator.logs(),
        };
        let others = |line: &&str| line.contains(" target=") && !line.contains(&format!(" target={}/", self.namespace));
        let lines: Vec<&str> = log.lines().filter(|line| !others(line)).collect();
        let mut text = "the end of the operator's log:\n".to_owned();
        for line in &lines[lines.len().saturating_sub(25)..] {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    // === What was asked of the API server ===

    /// The place in the audit log after everything that was answered up to now.
    pub async fn mark(&self) -> Result<AuditMark> {
        self.audit.mark().await
    }

    /// What operators changed in this namespace since then, events left out.
    pub async fn writes(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        let mut entries = self.audit.since(mark).await?;
        entries.retain(|entry| {
            is_operator(entry) && entry.is_write() && entry.namespace == self.namespace && entry.resource != "events"
        });
        Ok(entries)
    }

    /// The same for Addresses only.
    pub async fn address_writes(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        let mut entries = self.writes(mark).await?;
        entries.retain(|entry| entry.resource == Kind::Address.plural());
        Ok(entries)
    }
}

/// What matters of an object in an error.
fn brief(object: &Value) -> String {
    let metadata = &object["metadata"];
    let seen = ["generation", "deletionTimestamp", "finalizers"].map(|field| format!("{field} {}", metadata[field]));
    format!("{}, status {}", seen.join(", "), object["status"])
}

/// Whether the operator's account asked.
#[must_use]
pub fn is_operator(entry: &AuditEntry) -> bool {
    entry.user == format!("system:serviceaccount:{OPERATOR_NAMESPACE}:{SERVICE_ACCOUNT}")
}

/// A condition of an object.
#[must_use]
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The row of a broker in a RouterConfig's status.
#[must_use]
pub fn broker_row<'v>(config: &'v Value, broker: &str) -> Option<&'v Value> {
    config["status"]["brokers"].as_array()?.iter().find(|row| row["name"] == broker)
}

/// Whether `Ready` is true for the present generation.
pub fn is_ready(object: &Value) -> Result<()> {
    let condition = condition(object, "Ready").context("there is no condition Ready")?;
    ensure!(condition["status"] == "True", "Ready is {}", condition["status"]);
    ensure!(condition["observedGeneration"] == object["metadata"]["generation"], "Ready of an older generation");
    Ok(())
}
