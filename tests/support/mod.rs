//! What tests of the whole operator stand on: a real control plane, a real broker, the built operator under its own
//! ServiceAccount ([`World`]), and namespaces in it that know nothing of each other ([`Tenant`]).
//!
//! One world serves many tests, since its start takes ten seconds: a test takes a namespace of its own, and with it a
//! RouterConfig of its own, so that nothing of it is seen or driven by another test. A test that stops the operator
//! starts one of its own under another controller name ([`World::operator`]).

// Each test target uses its part.
#![allow(dead_code)]

mod tenant;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::OnceCell;
use waystation_kit::amqp_client::Received;
use waystation_kit::artemis::{Artemis, ArtemisOptions};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::operator::{self, NAMESPACE, Operator, OperatorOptions, SERVICE_ACCOUNT};

#[allow(unused_imports)]
pub use tenant::{CONFIG, Kind, LOGIN, SPACE, Tenant, broker_row, condition, is_operator, is_ready};

/// How long something may take that should happen in no time, on a machine that is busy with other tests.
pub const SOON: Duration = Duration::from_secs(60);
/// How long a broker is asked for a message that should not be there.
pub const MOMENT: Duration = Duration::from_millis(300);
/// Addresses in a namespace with this label (any value) are left alone by the admission policy.
pub const WITHOUT_POLICY: &str = "test.waystation.dev/without-policy";

/// A control plane with the kinds, the rights and (but for namespaces that opt out) the admission policy; a broker with
/// persistence; an operator.
pub struct World {
    /// The operator of the default controller name.
    pub operator: Operator,
    /// A broker with a login.
    pub broker: Artemis,
    /// The control plane.
    pub cluster: Cluster,
    account: PathBuf,
    /// Where further operators log, by controller name; the newest of each.
    logs: Mutex<BTreeMap<String, PathBuf>>,
}

impl World {
    /// The one that all tests of a target share. It ends with the process.
    pub async fn shared() -> Result<&'static World> {
        static SHARED: OnceCell<World> = OnceCell::const_new();
        SHARED.get_or_try_init(World::start).await
    }

    /// One for a test alone that stops the API server, restores etcd or does other things that all would feel.
    pub async fn start() -> Result<World> {
        let (cluster, broker) =
            tokio::try_join!(Cluster::start(ClusterOptions::default()), Artemis::start(ArtemisOptions::default()))?;
        operator::install(&cluster, true).await?;
        exempt_some(&cluster).await?;
        let account = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        let operator = start_operator(&account, &[]).await?;
        Ok(World { operator, broker, cluster, account, logs: Mutex::default() })
    }

    /// One more operator, for RouterConfigs of that controller name ([`Tenant::driven_by`]); ready when this returns.
    /// `more` are more arguments.
    pub async fn operator(&self, controller: &str, more: &[&str]) -> Result<Operator> {
        let name = format!("--controller-name={controller}");
        let mut operator = Operator::start(&self.account, &options(&[&[name.as_str()], more].concat()))?;
        self.logs.lock().unwrap().insert(controller.to_owned(), operator.log_path().to_owned());
        operator.await_ready(SOON).await?;
        Ok(operator)
    }

    /// An operator with exactly these further arguments, which may not be ready yet.
    pub fn spawn_operator(&self, arguments: &[&str]) -> Result<Operator> {
        Operator::start(&self.account, &options(arguments))
    }

    /// A new namespace.
    pub async fn tenant(&self, namespace: &str) -> Result<Tenant<'_>> {
        Tenant::new(self, namespace, &[]).await
    }

    /// A namespace that is there already.
    pub async fn visit(&self, namespace: &str) -> Result<Tenant<'_>> {
        Tenant::visit(self, namespace).await
    }

    /// A new namespace with labels.
    pub async fn labelled_tenant(&self, namespace: &str, labels: &[(&str, &str)]) -> Result<Tenant<'_>> {
        Tenant::new(self, namespace, labels).await
    }
}

/// Fails unless exactly these messages were received, in this order.
pub fn arrived(received: &[Received], bodies: &[&str]) -> Result<()> {
    let found: Vec<&str> = received.iter().map(|message| message.body.as_str()).collect();
    ensure!(found == bodies, "expected {bodies:?}, received {found:?}");
    Ok(())
}

/// Fails when anything was received.
pub fn nothing(received: &[Received]) -> Result<()> {
    arrived(received, &[])
}

fn options(arguments: &[&str]) -> OperatorOptions {
    OperatorOptions {
        binary: Some(env!("CARGO_BIN_EXE_waystation").into()),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        environment: vec![("RUST_LOG".to_owned(), "info,waystation=debug".to_owned())],
    }
}

async fn start_operator(account: &std::path::Path, arguments: &[&str]) -> Result<Operator> {
    let mut operator = Operator::start(account, &options(arguments))?;
    operator.await_ready(SOON).await?;
    Ok(operator)
}

/// Lets namespaces opt out of the admission policy, so that both ways are tested in one cluster.
async fn exempt_some(cluster: &Cluster) -> Result<()> {
    let patch = format!(
        r#"{{"spec": {{"matchResources": {{"namespaceSelector": {{"matchExpressions":
            [{{"key": "{WITHOUT_POLICY}", "operator": "DoesNotExist"}}]}}}}}}}}"#
    );
    let binding = "mutatingadmissionpolicybinding/waystation-address-finalizer";
    cluster.kubectl_text(&["patch", binding, "--type=merge", "-p", &patch]).await?;
    operator::await_admission(cluster, true).await
}
