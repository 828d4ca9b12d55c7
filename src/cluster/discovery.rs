//! What the API server must have before anything can be watched. It is waited for: an operator that is started before
//! its CRDs is not ready, and does not crash.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error};
use tokio::time::{sleep, timeout};

use super::readiness::Readiness;
use crate::api;

const ASK_EVERY: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(10);

/// Plural and full name of a kind.
pub type Kind = (&'static str, &'static str);

/// What the operator needs.
pub const KINDS: &[Kind] = &[
    ("routerconfigs", "routerconfigs.waystation.dev"),
    ("addressspaces", "addressspaces.waystation.dev"),
    ("addresses", "addresses.waystation.dev"),
];

/// What the edge needs.
pub const EDGE_KINDS: &[Kind] = &[("routerconfigs", "routerconfigs.waystation.dev")];

/// Waits until the API server serves these kinds, and tells `readiness` which are missing.
pub async fn crds(client: &Client, kinds: &[Kind], readiness: &Readiness) {
    let version = format!("{}/{}", api::GROUP, api::VERSION);
    let mut told: Option<Vec<&str>> = None;
    loop {
        let missing = match timeout(DEADLINE, client.list_api_group_resources(&version)).await {
            Ok(Ok(served)) => {
                let missing = |plural: &str| served.resources.iter().all(|resource| resource.name != plural);
                Some(kinds.iter().filter(|(plural, _)| missing(plural)).map(|(_, name)| *name).collect::<Vec<_>>())
            }
            Ok(Err(Error::Api(status))) if status.code == 404 => Some(kinds.iter().map(|(_, name)| *name).collect()),
            Ok(Err(error)) => {
                tracing::warn!(%error, "asking the API server for our kinds failed; it is asked again");
                None
            }
            Err(_) => {
                tracing::warn!("the API server does not answer; it is asked again");
                None
            }
        };
        if let Some(missing) = missing {
            readiness.crds(missing.clone());
            if missing.is_empty() {
                return;
            }
            if told.as_ref() != Some(&missing) {
                tracing::warn!(missing = missing.join(", "), "waiting for CustomResourceDefinitions");
                told = Some(missing);
            }
        }
        sleep(ASK_EVERY).await;
    }
}

/// The uid of the namespace `kube-system`, which stands for the cluster's identity. Waits until it can be read.
pub async fn cluster_uid(client: &Client) -> String {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match timeout(DEADLINE, namespaces.get_metadata("kube-system")).await {
            Ok(Ok(namespace)) => match namespace.metadata.uid {
                Some(uid) => return uid,
                None => tracing::warn!("namespace kube-system has no uid; it is read again"),
            },
            Ok(Err(error)) => tracing::warn!(%error, "reading namespace kube-system failed; it is tried again"),
            Err(_) => tracing::warn!("reading namespace kube-system: no answer in time; it is tried again"),
        }
        sleep(ASK_EVERY).await;
    }
}
