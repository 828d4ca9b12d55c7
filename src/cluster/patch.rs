//! One write to the API server: status by server-side apply, then the finalizer by JSON patch, both bound to the uid.

use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::convert;
use super::status_body;
use crate::api;
use crate::messaging::ids::{Key, Kind};
use crate::messaging::output::{FinalizerChange, Write};

/// Who we are in `managedFields`.
pub const FIELD_MANAGER: &str = "waystation";

/// Why a write was not carried out.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The object is gone, or another one has its name.
    Gone,
    /// It will never be: the API server's words.
    Refused(String),
    /// It may be later: after this long, if the API server said so.
    Later(Option<Duration>),
}

/// The finalizer of a kind.
pub fn finalizer(kind: Kind) -> &'static str {
    match kind {
        Kind::RouterConfig => api::ROUTER_CONFIG_FINALIZER,
        Kind::AddressSpace => api::ADDRESS_SPACE_FINALIZER,
        Kind::Address => api::ADDRESS_FINALIZER,
    }
}

pub(super) fn resource(kind: Kind) -> ApiResource {
    let plural = match kind {
        Kind::RouterConfig => "routerconfigs",
        Kind::AddressSpace => "addressspaces",
        Kind::Address => "addresses",
    };
    ApiResource {
        group: api::GROUP.to_owned(),
        version: api::VERSION.to_owned(),
        api_version: format!("{}/{}", api::GROUP, api::VERSION),
        kind: kind.as_str().to_owned(),
        plural: plural.to_owned(),
    }
}

/// Objects of one kind in one namespace, with a deadline for each call.
pub struct Objects {
    client: Client,
    api: Api<DynamicObject>,
    deadline: Duration,
}

/// Calls that wait for leave before they send.
pub trait Leave: Sync {
    /// Waits until a call may be sent; false: it shall not be sent any more.
    fn granted(&self) -> impl Future<Output = bool> + Send;
}

impl Objects {
    /// Of this kind in this namespace.
    pub fn new(client: &Client, kind: Kind, namespace: &str, deadline: Duration) -> Self {
        Self { client: client.clone(), api: Api::namespaced_with(client.clone(), namespace, &resource(kind)), deadline }
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Answer> {
        match timeout(self.deadline, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Error::Api(status))) => Err(Answer::Status(status)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a write could not be sent; it is tried again");
                Err(Answer::None)
            }
            Err(_) => Err(Answer::None),
        }
    }

    async fn patch_json(&self, name: &str, operations: &Value) -> Result<DynamicObject, Answer> {
        self.call(json_patch(&self.client, &self.api, name, operations)).await
    }

    async fn apply_status(&self, name: &str, body: &Value) -> Result<DynamicObject, Answer> {
        let url = format!("{}/{name}", self.api.resource_url());
        self.call(apply_status(&self.client, &url, FIELD_MANAGER, body)).await
    }

    async fn read(&self, key: &Key, uid: &str) -> Result<DynamicObject, Failure> {
        let object = self.call(self.api.get(&key.name)).await.map_err(Answer::failure)?;
        if object.metadata.uid.as_deref() == Some(uid) { Ok(object) } else { Err(Failure::Gone) }
    }
}

/// A server-side apply of the status of the object at `url`. By hand, since the server reads it as YAML, which knows fewer
/// characters than JSON: one of a tenant in a message must not keep the status from being written.
pub(super) async fn apply_status(
    client: &Client,
    url: &str,
    manager: &str,
    body: &Value,
) -> Result<DynamicObject, Error> {
    let request = http::Request::patch(format!("{url}/status?force=true&fieldManager={manager}"))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(readable_as_yaml(&body.to_string()).into_owned().into_bytes())
        .map_err(|error| Error::Service(error.into()))?;
    client.request(request).await
}

/// Patches an object by JSON operations. By hand: the client library wants a type of another crate for them.
pub(super) async fn json_patch(
    client: &Client,
    api: &Api<DynamicObject>,
    name: &str,
    operations: &Value,
) -> Result<DynamicObject, Error> {
    let request = http::Request::patch(format!("{}/{name}?fieldManager={FIELD_MANAGER}", api.resource_url()))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(operations.to_string().into_bytes())
        .map_err(|error| Error::Service(error.into()))?;
    client.request(request).await
}

/// JSON in which characters that YAML does not print are escaped. They stand in strings only.
fn readable_as_yaml(json: &str) -> std::borrow::Cow<'_, str> {
    let prints =
        |c: char| !matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if json.chars().all(prints) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match prints(c) {
            true => text.push(c),
            false => text.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    text.into()
}

enum Answer {
    Status(Box<kube::core::Status>),
    None,
}

impl Answer {
    fn code(&self) -> u16 {
        match self {
            Self::Status(status) => status.code,
            Self::None => 0,
        }
    }

    fn failure(self) -> Failure {
        let Self::Status(status) = self else { return Failure::Later(None) };
        let after = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        match status.code {
            404 => Failure::Gone,
            400 | 401 | 403 | 405 | 413 | 415 | 422 => Failure::Refused(status.message.clone()),
            _ => Failure::Later(after.map(|seconds| Duration::from_secs(seconds.into()))),
        }
    }
}

/// Carries a write out; gives the object's new `resourceVersion`. None: leave was taken away before the end.
///
/// # Errors
/// With the reason, and then all of it has to be done again: each part of it that was done is done again without effect.
pub async fn carry_out(objects: &Objects, write: &Write, leave: &impl Leave) -> Result<Option<u64>, Failure> {
    let mut object = None;
    if let Some(status) = &write.status {
        let status =
            status_body::body(status, write.generation).map_err(|error| Failure::Refused(error.to_string()))?;
        let body = status_body::applied(write.kind, &write.key.namespace, &write.key.name, &write.uid, &status);
        if !leave.granted().await {
            return Ok(None);
        }
        match objects.apply_status(&write.key.name, &body).await {
            Ok(patched) => object = Some(patched),
            Err(answer) if answer.code() == 409 => {
                // With force, a conflict is another uid, or a race that the server gave up on: the object tells.
                objects.read(&write.key, &write.uid).await?;
                return Err(Failure::Later(None));
            }
            Err(answer) => return Err(answer.failure()),
        }
    }
    if let Some(change) = write.finalizer {
        match change_finalizer(objects, write, change, object, leave).await? {
            Some(patched) => object = Some(patched),
            None => return Ok(None),
        }
    }
    Ok(Some(object.map_or(0, |object| convert::version(object.metadata.resource_version.as_deref()))))
}

async fn change_finalizer(
    objects: &Objects,
    write: &Write,
    change: FinalizerChange,
    mut object: Option<DynamicObject>,
    leave: &impl Leave,
) -> Result<Option<DynamicObject>, Failure> {
    /// A patch whose tests fail although the object was just read has lost a race; so many in a row are no race.
    const ATTEMPTS: u32 = 4;
    let ours = finalizer(write.kind);
    for _ in 0..ATTEMPTS {
        // Without having read the object: most have no other finalizer, and the tests notice those that do.
        let held = match &object {
            Some(object) => object.metadata.finalizers.clone().unwrap_or_default(),
            None if change == FinalizerChange::Remove => vec![ours.to_owned()],
            None => Vec::new(),
        };
        let Some(patch) = finalizer_patch(&write.uid, &held, ours, change) else { return Ok(object) };
        if !leave.granted().await {
            return Ok(None);
        }
        match objects.patch_json(&write.key.name, &patch).await {
            Ok(patched) => return Ok(Some(patched)),
            Err(answer) if matches!(answer.code(), 409 | 422) => {
                let before = object.take().and_then(|object| object.metadata.resource_version);
                let read = objects.read(&write.key, &write.uid).await?;
                if before.is_some() && before == read.metadata.resource_version {
                    // Nothing moved: it is not our tests that failed.
                    return Err(answer.failure());
                }
                object = Some(read);
            }
            Err(answer) => return Err(answer.failure()),
        }
    }
    Err(Failure::Later(None))
}

/// The patch that puts `ours` on or takes it off, given what is held; none when nothing is to be done.
pub(super) fn finalizer_patch(uid: &str, held: &[String], ours: &str, change: FinalizerChange) -> Option<Value> {
    let at = held.iter().position(|name| name == ours);
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    match (change, at) {
        (FinalizerChange::Add, Some(_)) | (FinalizerChange::Remove, None) => return None,
        (FinalizerChange::Add, None) if held.is_empty() => {
            // `add` would replace a list that has come meanwhile.
            operations.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": null }));
            operations.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": [ours] }));
        }
        (FinalizerChange::Add, None) => {
            operations.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": held }));
            operations.push(json!({ "op": "add", "path": "/metadata/finalizers/-", "value": ours }));
        }
        (FinalizerChange::Remove, Some(at)) => {
            let path = format!("/metadata/finalizers/{at}");
            operations.push(json!({ "op": "test", "path": path, "value": ours }));
            operations.push(json!({ "op": "remove", "path": path }));
        }
    }
    Some(operations.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_does_not_print_is_escaped_and_still_the_same_json() {
        for text in
            ["plain ä 😀", "del\u{7f}", "next\u{85}line", "\u{feff}bom", "non\u{ffff}character", "\u{2028}", "\t\n"]
        {
            let json = serde_json::json!({ "message": text });
            let body = json.to_string();
            let escaped = readable_as_yaml(&body);
            assert!(!escaped.contains(['\u{7f}', '\u{85}', '\u{feff}', '\u{ffff}', '\u{2028}']), "{escaped}");
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), json);
        }
    }

    fn patch(held: &[&str], change: FinalizerChange) -> Option<serde_json::Value> {
        let held: Vec<String> = held.iter().map(|name| (*name).to_owned()).collect();
        finalizer_patch("u", &held, "ours", change)
    }

    #[test]
    fn the_finalizer_goes_on_beside_others_and_off_by_its_place() {
        let first = patch(&[], FinalizerChange::Add).unwrap();
        assert_eq!(first[1], json!({ "op": "test", "path": "/metadata/finalizers", "value": null }));
        let beside = patch(&["a"], FinalizerChange::Add).unwrap();
        assert_eq!(beside[2], json!({ "op": "add", "path": "/metadata/finalizers/-", "value": "ours" }));
        let off = patch(&["a", "ours"], FinalizerChange::Remove).unwrap();
        assert_eq!(off[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u" }));
        assert_eq!(off[1], json!({ "op": "test", "path": "/metadata/finalizers/1", "value": "ours" }));
        assert_eq!(off[2], json!({ "op": "remove", "path": "/metadata/finalizers/1" }));
        assert_eq!(patch(&["ours"], FinalizerChange::Add), None);
        assert_eq!(patch(&["a"], FinalizerChange::Remove), None);
    }
}
