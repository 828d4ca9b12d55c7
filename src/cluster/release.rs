//! Takes the operator's finalizers off all objects of one controllerName, for an uninstall: `waystation release-finalizers`.
//!
//! What brokers and routers hold stays as it is. Addresses first, then spaces, then RouterConfigs: what tells whose an object
//! is goes last, so that one that was ended half way can be repeated. The operator must not run meanwhile, or it puts
//! finalizers on again: [`await_no_leader`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::patch::{finalizer, finalizer_patch, json_patch, resource};
use crate::api::DEFAULT_CONTROLLER;
use crate::messaging::ids::Kind;
use crate::messaging::output::FinalizerChange;

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(500);

/// Why finalizers could not be released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The API server refused something, or did not answer.
    #[error("{what}: {source}")]
    Api {
        /// What was asked for.
        what: String,
        /// Its answer.
        source: Box<Error>,
    },
    /// An operator runs, and would put finalizers on again.
    #[error(
        "{holder} leads by the Lease {namespace}/{name}, and would put finalizers on again: scale its Deployment to 0 first"
    )]
    Leads {
        /// Who leads.
        holder: String,
        /// Where the Lease is.
        namespace: String,
        /// What it is called.
        name: String,
    },
    /// Some could not be released.
    #[error("{} objects keep their finalizer; the first: {}", .0.len(), .0.first().map_or("", String::as_str))]
    Kept(Vec<String>),
}

fn failed(what: impl Into<String>) -> impl FnOnce(Error) -> ReleaseError {
    let what = what.into();
    move |source| ReleaseError::Api { what, source: Box::new(source) }
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Of the controllerName in question.
    Ours,
    /// Of another.
    Others,
    /// What would tell is gone.
    Nobodys,
}

/// An object with a finalizer of the operator.
#[derive(Clone, Debug)]
pub struct Held {
    kind: Kind,
    namespace: String,
    name: String,
    uid: String,
    finalizers: Vec<String>,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

type Owners = BTreeMap<(String, String), Whose>;

fn controller_of(object: &DynamicObject) -> &str {
    object.data["spec"]["controllerName"].as_str().unwrap_or(DEFAULT_CONTROLLER)
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The namespace and name of the object that tells whose this one is.
fn above(kind: Kind, object: &DynamicObject) -> (String, String) {
    let own = object.namespace().unwrap_or_default();
    let spec = &object.data["spec"];
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    match kind {
        Kind::Address => (own, text(&spec["addressSpace"]).unwrap_or_default()),
        _ => {
            let to = &spec["routerConfigRef"];
            (text(&to["namespace"]).unwrap_or(own), text(&to["name"]).unwrap_or_default())
        }
    }
}

fn whose(kind: Kind, object: &DynamicObject, controller: &str, owners: &Owners) -> Whose {
    match kind {
        Kind::RouterConfig if controller_of(object) == controller => Whose::Ours,
        Kind::RouterConfig => Whose::Others,
        _ => owners.get(&above(kind, object)).copied().unwrap_or(Whose::Nobodys),
    }
}

/// All objects of `controller` that have a finalizer of the operator, in the order in which they are to be released; with
/// `orphans` also those of which it cannot be told whose they are, since their space or RouterConfig is gone.
///
/// # Errors
/// When the objects cannot be listed.
pub async fn held(client: &Client, controller: &str, orphans: bool) -> Result<Vec<Held>, ReleaseError> {
    let mut found = Vec::new();
    let mut owners = Owners::new();
    for kind in [Kind::RouterConfig, Kind::AddressSpace, Kind::Address] {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
        let (mut below, mut here) = (Owners::new(), Vec::new());
        let mut params = ListParams::default().limit(500);
        loop {
            let page = match api.list(&params).await {
                // Its kinds are not there: nothing is held.
                Err(Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
                page => page.map_err(failed(format!("cannot list {}", kind.as_str())))?,
            };
            for object in page.items {
                let whose = whose(kind, &object, controller, &owners);
                below.insert(key(&object), whose);
                let wanted = whose == Whose::Ours || (orphans && whose == Whose::Nobodys);
                let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
                if wanted && finalizers.iter().any(|held| held == finalizer(kind)) {
                    let (namespace, name) = key(&object);
                    here.push(Held { kind, namespace, name, uid: object.uid().unwrap_or_default(), finalizers });
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        owners = below;
        here.append(&mut found);
        found = here;
    }
    Ok(found)
}

/// Takes the finalizer off each of these, kind by kind, `at_a_time` at a time; `done` counts them. Ends by itself only
/// when each is released or refused: bound it in time.
///
/// # Errors
/// Names those that the API server refused to release.
pub async fn release(
    client: &Client,
    objects: &[Held],
    at_a_time: usize,
    done: &AtomicUsize,
) -> Result<(), ReleaseError> {
    let mut kept = Vec::new();
    for group in objects.chunk_by(|one, next| one.kind == next.kind) {
        let mut answers = stream::iter(group)
            .map(|held| async move { (held, release_one(client, held).await) })
            .buffer_unordered(at_a_time.max(1));
        while let Some((held, answer)) = answers.next().await {
            match answer {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(error) => kept.push(format!("{held}: {error}")),
            }
        }
        // What tells whose these are must stay.
        if !kept.is_empty() {
            return Err(ReleaseError::Kept(kept));
        }
    }
    Ok(())
}

async fn release_one(client: &Client, held: &Held) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &held.namespace, &resource(held.kind));
    let mut finalizers = held.finalizers.clone();
    loop {
        let Some(patch) = finalizer_patch(&held.uid, &finalizers, finalizer(held.kind), FinalizerChange::Remove) else {
            return Ok(());
        };
        match json_patch(client, &api, &held.name, &patch).await {
            Ok(_) => return Ok(()),
            Err(Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(Error::Api(status)) if matches!(status.code, 409 | 422) => match api.get_opt(&held.name).await {
                Ok(None) => return Ok(()),
                Ok(Some(object)) if object.uid().as_deref() != Some(&held.uid) => return Ok(()),
                Ok(Some(object)) => {
                    let now = object.metadata.finalizers.unwrap_or_default();
                    if now == finalizers {
                        // Our test did not fail: somebody writes the object all the time, or it is refused for good.
                        retry(Error::Api(status)).await?;
                    }
                    finalizers = now;
                }
                Err(error) => retry(error).await?,
            },
            Err(error) => retry(error).await?,
        }
    }
}

/// Waits a moment if the answer may be another then.
async fn retry(error: Error) -> Result<(), Error> {
    match error {
        Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 405 | 413 | 415 | 422) => Err(Error::Api(status)),
        _ => {
            sleep(LOOK).await;
            Ok(())
        }
    }
}

/// Scales a Deployment to 0 and waits until it has no Pods but such as end. Fine if there is none.
///
/// # Errors
/// When the API server refuses.
pub async fn stop(client: &Client, namespace: &str, deployment: &str) -> Result<(), ReleaseError> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let what = || format!("cannot scale the Deployment {namespace}/{deployment}");
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    match api.patch_scale(deployment, &PatchParams::default(), &none).await {
        Err(Error::Api(status)) if status.code == 404 => return Ok(()),
        scaled => drop(scaled.map_err(failed(what()))?),
    }
    loop {
        let scale = api.get_scale(deployment).await.map_err(failed(what()))?;
        if scale.status.is_none_or(|status| status.replicas == 0) {
            return Ok(());
        }
        sleep(LOOK).await;
    }
}

/// Waits until nobody leads by that Lease: it has no holder, or one that has been silent for as long as it may be. With
/// `patient` also for one that renews it, which is about to end.
///
/// # Errors
/// When somebody leads and is not waited for, or the API server refuses.
pub async fn await_no_leader(client: &Client, namespace: &str, name: &str, patient: bool) -> Result<(), ReleaseError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let mut seen: Option<(LeaseSpec, Instant)> = None;
    loop {
        let lease = api.get_opt(name).await.map_err(failed(format!("cannot read the Lease {namespace}/{name}")))?;
        let Some(spec) = lease.and_then(|lease| lease.spec) else { return Ok(()) };
        let Some(holder) = spec.holder_identity.clone().filter(|holder| !holder.is_empty()) else { return Ok(()) };
        // By our clock, as the operators do: renewTime is by another's.
        match &seen {
            Some((before, since)) if *before == spec => {
                let silent = u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15);
                if since.elapsed() > Duration::from_secs(silent) {
                    return Ok(());
                }
            }
            Some(_) if !patient => {
                return Err(ReleaseError::Leads { holder, namespace: namespace.to_owned(), name: name.to_owned() });
            }
            _ => seen = Some((spec, Instant::now())),
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, namespace: &str, name: &str, spec: serde_json::Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &resource(kind)).within(namespace);
        object.data = json!({ "spec": spec });
        object
    }

    #[test]
    fn an_object_is_of_the_controller_of_its_router_config() {
        let config = |name, spec| object(Kind::RouterConfig, "plane", name, spec);
        let mut owners = Owners::new();
        for (name, spec) in [("old", json!({})), ("desk", json!({ "controllerName": "desk" }))] {
            let config = config(name, spec);
            owners.insert(key(&config), whose(Kind::RouterConfig, &config, "waystation", &Owners::new()));
        }
        let space = |to| object(Kind::AddressSpace, "team", "shop", json!({ "routerConfigRef": to }));
        let of = |to| whose(Kind::AddressSpace, &space(to), "waystation", &owners);
        assert_eq!(of(json!({ "name": "old", "namespace": "plane" })), Whose::Ours);
        assert_eq!(of(json!({ "name": "desk", "namespace": "plane" })), Whose::Others);
        assert_eq!(of(json!({ "name": "old" })), Whose::Nobodys, "its own namespace has none of that name");
        assert_eq!(of(json!({ "name": "gone", "namespace": "plane" })), Whose::Nobodys);

        let owners = Owners::from([(("team".to_owned(), "shop".to_owned()), Whose::Ours)]);
        let address = |namespace| object(Kind::Address, namespace, "orders", json!({ "addressSpace": "shop" }));
        assert_eq!(whose(Kind::Address, &address("team"), "waystation", &owners), Whose::Ours);
        assert_eq!(whose(Kind::Address, &address("other"), "waystation", &owners), Whose::Nobodys);
    }
}
