//! A tenant whose data plane has routers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use waystation_kit::artemis::{Artemis, Login};
use waystation_kit::process::eventually;
use waystation_kit::router::management::Management;
use waystation_kit::router::{Router, RouterOptions};

use crate::support::{CONFIG, Kind, LOGIN, SOON, SPACE, Tenant};

/// A router and the port of its readiness listener.
pub struct Routed {
    pub router: Router,
    pub readiness: u16,
}

impl Routed {
    /// One that knows nothing yet.
    pub async fn start() -> Result<Self> {
        Self::with(RouterOptions::default()).await
    }

    /// One that enforces policies.
    pub async fn with_policies() -> Result<Self> {
        Self::with(RouterOptions { policies: true, ..RouterOptions::default() }).await
    }

    /// One with these options, under a name of its own.
    pub async fn with(options: RouterOptions) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = format!("R{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let router = Router::start(RouterOptions { id, ..options }).await?;
        Ok(Self { router, readiness: free_port()? })
    }

    /// Whether a probe would find it filled.
    pub async fn is_filled(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.readiness)).await.is_ok()
    }

    /// Waits until it is.
    pub async fn filled(&self) -> Result<()> {
        eventually(SOON, "the readiness listener", || async {
            ensure!(self.is_filled().await, "nobody listens on {}", self.readiness);
            Ok(())
        })
        .await
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A RouterConfig `main` on these brokers and routers, and a standard space `shop` on it; both Ready.
pub async fn routed_plane(
    tenant: &Tenant<'_>,
    brokers: &[(&str, &Artemis)],
    routers: &[(&str, &Routed)],
) -> Result<()> {
    let (_, first) = brokers.first().context("a data plane needs a broker")?;
    let Login::Password { user, password } = first.login() else { bail!("the broker has no password") };
    tenant.secret(LOGIN, &[("username", user), ("password", password)]).await?;
    tenant.router_config(CONFIG, brokers, json!({"routers": rows(routers)})).await?;
    let spec = json!({"type": "standard", "routerConfigRef": {"name": CONFIG}});
    tenant.create(Kind::AddressSpace, SPACE, spec).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await
}

/// `spec.messaging.routers` with these routers.
pub fn rows(routers: &[(&str, &Routed)]) -> Value {
    let hosts: Vec<Value> = routers
        .iter()
        .map(|(name, routed)| {
            let (port, readiness) = (routed.router.port(), routed.readiness);
            json!({"name": name, "host": "127.0.0.1", "port": port, "readinessPort": readiness})
        })
        .collect();
    json!({"external": {"hosts": hosts}, "brokerCredentials": {"secretName": LOGIN}})
}

/// The state of a router in the RouterConfig's status.
pub async fn router_state(tenant: &Tenant<'_>, router: &str, state: &str) -> Result<String> {
    let what = format!("router {router} {state}");
    tenant
        .until(Kind::RouterConfig, CONFIG, &what, |object| {
            let rows = object["status"]["routers"].as_array().context("there are no routers")?;
            let row = rows.iter().find(|row| row["name"] == router).context("there is no such router")?;
            ensure!(row["state"] == state, "it is {}", row["state"]);
            Ok(row["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
}

/// All that a router holds for the addresses of a tenant: type, the name for clients and the rest, one entity a text.
pub async fn held(router: &Router, tenant: &Tenant<'_>) -> Result<BTreeSet<String>> {
    let kinds: [(&str, &[&str]); 3] = [
        ("address", &["pattern", "distribution", "waypoint"]),
        ("autoLink", &["address", "direction", "externalAddress", "connection"]),
        ("linkRoute", &["pattern", "direction", "connection"]),
    ];
    let mut manager = Management::connect(router).await?;
    let (mut all, prefix) = (BTreeSet::new(), tenant.name(""));
    for (kind, attributes) in kinds {
        let of = format!("org.apache.qpid.dispatch.router.config.{kind}");
        for row in manager.all_rows(&of, attributes, 500, 10).await? {
            let shown: Vec<String> = row.iter().map(shown).collect();
            if shown[0].starts_with(&prefix) {
                let text = format!("{kind} {}", shown.join(" "));
                ensure!(all.insert(text.clone()), "there are two of {text}");
            }
        }
    }
    Ok(all)
}

fn shown(value: &fe2o3_amqp::types::primitives::Value) -> String {
    use fe2o3_amqp::types::primitives::Value;
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => format!("{other:?}"),
    }
}

/// How often each value of an attribute is on a router.
pub async fn texts(manager: &mut Management, of: &str, attribute: &str) -> Result<BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    let of = format!("org.apache.qpid.dispatch.router.config.{of}");
    for row in manager.all_rows(&of, &[attribute], 500, 10).await? {
        let text = match row.into_iter().next() {
            Some(fe2o3_amqp::types::primitives::Value::String(text)) => text,
            other => format!("{other:?}"),
        };
        *all.entry(text).or_default() += 1;
    }
    Ok(all)
}
