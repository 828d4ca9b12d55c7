//! Carrying out what has to be done for one space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::build::{ChildId, ChildKind, Observed, covers, observe};
use crate::cluster::patch::{FIELD_MANAGER, json_patch};
use crate::engine::permit::Permit;

/// One request.
#[derive(Debug)]
pub enum Action {
    /// Make a child, or give it our fields.
    Apply {
        id: ChildId,
        endpoint: Arc<str>,
        /// Uid of the space.
        owner: Arc<str>,
        /// Its uid, where it is known to be ours.
        known: Option<String>,
        body: Value,
    },
    /// Take a child away.
    Delete { id: ChildId, endpoint: Arc<str>, uid: String },
}

impl Action {
    /// The endpoint that it is for.
    pub fn endpoint(&self) -> &Arc<str> {
        match self {
            Self::Apply { endpoint, .. } | Self::Delete { endpoint, .. } => endpoint,
        }
    }
}

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Children as they are now; none: gone.
    pub seen: Vec<(ChildId, Option<Observed>)>,
    /// The endpoints that something was done for.
    pub tried: BTreeSet<Arc<str>>,
    /// Those of them that were refused something, in words for people.
    pub refused: BTreeMap<Arc<str>, Arc<str>>,
    /// Those of them that something failed for which may succeed later.
    pub failed: BTreeSet<Arc<str>>,
}

/// Who sends.
pub struct Carrier {
    pub client: Client,
    pub permit: Permit,
    pub deadline: Duration,
}

enum Trouble {
    /// Words for people.
    Refused(String),
    Later,
}

impl Carrier {
    /// All of a plan, one after the other; of an endpoint nothing more after a refusal.
    pub async fn carry_out(&self, plan: Vec<Action>) -> Outcome {
        let mut outcome = Outcome::default();
        for action in plan {
            let endpoint = action.endpoint().clone();
            outcome.tried.insert(endpoint.clone());
            if outcome.refused.contains_key(&endpoint) {
                continue;
            }
            let result = match action {
                Action::Apply { id, owner, known, body, .. } => {
                    self.apply(&id, &owner, known, body).await.map(|now| (id, Some(now)))
                }
                Action::Delete { id, uid, .. } => self.delete(&id, uid).await.map(|()| (id, None)),
            };
            match result {
                Ok(seen) => outcome.seen.push(seen),
                Err(Trouble::Refused(words)) => {
                    outcome.refused.insert(endpoint, words.into());
                }
                Err(Trouble::Later) => {
                    outcome.failed.insert(endpoint);
                }
            }
        }
        outcome
    }

    fn api(&self, id: &ChildId) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &id.key.namespace, &id.kind.resource())
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.permit.granted(self.deadline).await;
        match timeout(self.deadline, call).await {
            Ok(answer) => answer,
            Err(late) => Err(Error::Service(late.into())),
        }
    }

    async fn apply(
        &self,
        id: &ChildId,
        owner: &str,
        known: Option<String>,
        mut body: Value,
    ) -> Result<Observed, Trouble> {
        let api = self.api(id);
        let uid = match known {
            Some(uid) => Some(uid),
            // Nobody else's is taken over, whoever made it under our name.
            None => match self.call(api.get_opt(&id.key.name)).await.map_err(trouble)? {
                Some(object) => {
                    let there = observe(id.kind, &object);
                    let ours = there.owner.as_ref().is_some_and(|(_, uid)| uid == owner);
                    if !ours {
                        return Err(Trouble::Refused(format!(
                            "{} {} is there already and belongs to somebody else: delete it, or give the endpoint \
                             another name",
                            id.kind.as_str(),
                            id.key.name
                        )));
                    }
                    if covers(id.kind, &there.body, &body) {
                        return Ok(there);
                    }
                    Some(there.uid)
                }
                None => None,
            },
        };
        let ours = uid.is_some();
        if let Some(uid) = uid {
            body["metadata"]["uid"] = uid.into();
        }
        let applied = match self.send(&api, id, &body).await {
            Err(Error::Api(status)) if status.code == 422 && ours && id.kind == ChildKind::Service => {
                self.make_room(&api, id, &body).await.map_err(trouble)?;
                self.send(&api, id, &body).await.map_err(trouble)?
            }
            answer => answer.map_err(trouble)?,
        };
        tracing::info!(kind = id.kind.as_str(), key = %id.key, "applied");
        let now = observe(id.kind, &applied);
        if !covers(id.kind, &now.body, &body) {
            let words = format!(
                "{} {} does not keep what is applied to it: something in the cluster changes it",
                id.kind.as_str(),
                id.key.name
            );
            return Err(Trouble::Refused(words));
        }
        Ok(now)
    }

    async fn send(&self, api: &Api<DynamicObject>, id: &ChildId, body: &Value) -> Result<DynamicObject, Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.call(api.patch(&id.key.name, &params, &Patch::Apply(body))).await
    }

    /// A port of our name that somebody gave another number is another port, and theirs: no two may have one name, and
    /// a Service must have one. So ours is put beside it under another name, and theirs is taken away.
    async fn make_room(&self, api: &Api<DynamicObject>, id: &ChildId, body: &Value) -> Result<(), Error> {
        let Some(ours) = body.pointer("/spec/ports/0") else { return Ok(()) };
        let mut beside = body.clone();
        beside["spec"]["ports"][0]["name"] = FIELD_MANAGER.into();
        let there = self.send(api, id, &beside).await?;
        let ports = there.data.pointer("/spec/ports").and_then(Value::as_array);
        let taken = ports.and_then(|ports| ports.iter().position(|port| port["name"] == ours["name"]));
        let Some(at) = taken else { return Ok(()) };
        let operations = json!([
            { "op": "test", "path": "/metadata/uid", "value": body["metadata"]["uid"] },
            { "op": "test", "path": format!("/spec/ports/{at}/name"), "value": ours["name"] },
            { "op": "remove", "path": format!("/spec/ports/{at}") },
        ]);
        self.call(json_patch(&self.client, api, &id.key.name, &operations)).await.map(drop)
    }

    async fn delete(&self, id: &ChildId, uid: String) -> Result<(), Trouble> {
        let ours = Preconditions { uid: Some(uid), resource_version: None };
        let params = DeleteParams { preconditions: Some(ours), ..DeleteParams::default() };
        match self.call(self.api(id).delete(&id.key.name, &params)).await {
            Ok(_) => {
                tracing::info!(kind = id.kind.as_str(), key = %id.key, "deleted");
                Ok(())
            }
            // Gone, or another one by now.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(trouble(error)),
        }
    }
}

fn trouble(error: Error) -> Trouble {
    match error {
        Error::Api(status) if matches!(status.code, 400 | 403 | 405 | 413 | 422) => {
            Trouble::Refused(status.message.clone())
        }
        error => {
            tracing::debug!(%error, "a Service or EndpointSlice could not be written; it is tried again");
            Trouble::Later
        }
    }
}
