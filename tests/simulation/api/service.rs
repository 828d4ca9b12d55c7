//! The API server as the operator's client reaches it, with everything that can go wrong on the way.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, pending};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tower::Service;

use super::store::{Id, Plural, Refusal, partial};
use super::watch::{self, Events, Wanted};
use super::{Deed, Surroundings, lock, patch};

pub type Answer = Response<Either<Full<Bytes>, Events>>;

/// One replica's way to the API server.
pub struct ApiServer<W> {
    pub world: Arc<Mutex<W>>,
    /// Who asks.
    pub replica: usize,
    /// Which life of that replica.
    pub identity: Arc<str>,
}

impl<W> Clone for ApiServer<W> {
    fn clone(&self) -> Self {
        Self { world: Arc::clone(&self.world), replica: self.replica, identity: Arc::clone(&self.identity) }
    }
}

impl<W: Surroundings> Service<Request<Body>> for ApiServer<W> {
    type Response = Answer;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Answer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            server.exchange(Ask::new(&parts, body)).await
        }
        .boxed()
    }
}

/// A request, taken apart.
pub struct Ask {
    pub method: Method,
    path: String,
    query: String,
    content_type: String,
    metadata_only: bool,
    body: Bytes,
    json: Value,
    pub target: Option<Target>,
}

/// What a path names.
#[derive(Clone, Debug)]
pub struct Target {
    pub plural: Plural,
    pub namespace: String,
    pub name: String,
    pub status: bool,
}

impl Ask {
    fn new(parts: &http::request::Parts, body: Bytes) -> Self {
        let header = |name| parts.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let path = parts.uri.path().to_owned();
        Self {
            method: parts.method.clone(),
            target: target(&path),
            path,
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: header(http::header::CONTENT_TYPE).unwrap_or_default().to_owned(),
            metadata_only: header(http::header::ACCEPT).is_some_and(|accept| accept.contains("PartialObject")),
            json: serde_json::from_slice(&body).unwrap_or_default(),
            body,
        }
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
    }

    fn watches(&self) -> bool {
        self.param("watch") == Some("true")
    }

    pub fn writes(&self) -> bool {
        self.method != Method::GET
    }

    fn describe(&self) -> String {
        let applies = if self.content_type.contains("json-patch") { " json-patch" } else { "" };
        let watch = if self.watches() { " watch" } else { "" };
        format!("{} {}{watch}{applies}", self.method, self.path)
    }
}

fn target(path: &str) -> Option<Target> {
    let mut parts = path.trim_start_matches('/').split('/');
    let skip = if parts.next()? == "apis" { 2 } else { 1 };
    let rest: Vec<&str> = parts.skip(skip).collect();
    let named = |plural: &str, namespace: &str, name: &str, status| {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Some(Target { plural: Plural::parse(plural)?, namespace, name, status })
    };
    match rest[..] {
        [plural] => named(plural, "", "", false),
        ["namespaces", name] => named("namespaces", "", name, false),
        ["namespaces", namespace, plural] => named(plural, namespace, "", false),
        ["namespaces", namespace, plural, name] => named(plural, namespace, name, false),
        ["namespaces", namespace, plural, name, "status"] => named(plural, namespace, name, true),
        _ => None,
    }
}

/// What goes wrong with one request.
enum Mishap {
    /// Nothing.
    None,
    /// It never arrives.
    Refused,
    /// It never arrives, and nobody says so.
    Swallowed,
    /// It is answered with this code and not carried out.
    Answered(u16),
    /// It is carried out, and the answer gets lost.
    Lost,
    /// It is carried out, and there is no answer.
    Mute,
    /// It arrives much later and is carried out then.
    Late(Duration),
}

fn mishap(world: &mut impl Surroundings, ask: &Ask) -> Mishap {
    let mishap = some_mishap(world, ask);
    // A list or watch without an answer is given up after 60 s, a write after 5; the longest wait after either is 30.
    match mishap {
        Mishap::None => {}
        // Refused for good as far as the operator knows: it asks again after a minute.
        Mishap::Answered(400..=422) => world.trouble(75),
        Mishap::Swallowed if !ask.writes() => world.trouble(95),
        _ => world.trouble(40),
    }
    mishap
}

fn some_mishap(world: &mut impl Surroundings, ask: &Ask) -> Mishap {
    let lease = ask.target.as_ref().is_some_and(|target| target.plural == Plural::Leases);
    if world.api_is_down() {
        return if world.random.chance(500) { Mishap::Refused } else { Mishap::Swallowed };
    }
    let rate = world.failing();
    if rate == 0 || !world.random.chance(if lease { rate / 4 } else { rate }) {
        return Mishap::None;
    }
    match world.random.within(0..if ask.writes() { 8 } else { 4 }) {
        0 => Mishap::Refused,
        1 => Mishap::Answered(world.random.one_of(&[429, 429, 500, 503, 504])),
        2 => Mishap::Swallowed,
        3 => Mishap::Late(Duration::from_millis(world.random.within(1..9_000))),
        4 if !lease => Mishap::Answered(world.random.one_of(&[409, 409, 409, 403, 422])),
        5 => Mishap::Mute,
        _ => Mishap::Lost,
    }
}

impl<W: Surroundings> ApiServer<W> {
    async fn exchange(self, ask: Ask) -> io::Result<Answer> {
        let (there, back, mishap) = {
            let mut world = lock(&self.world);
            let mishap = mishap(&mut *world, &ask);
            if ask.writes() {
                world.note_sender(&self.identity, ask.target.as_ref());
            }
            (world.api_latency(), world.api_latency(), mishap)
        };
        let reset = || io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer");
        match mishap {
            Mishap::Refused => {
                sleep(there).await;
                self.note(&ask, "refused");
                return Err(reset());
            }
            Mishap::Swallowed => {
                self.note(&ask, "swallowed");
                return pending().await;
            }
            Mishap::Answered(code) => {
                sleep(there).await;
                self.note(&ask, &format!("{code} injected"));
                return Ok(failure((code, "Injected")));
            }
            _ => {}
        }
        let arrives = match mishap {
            Mishap::Late(late) => there + late,
            _ => there,
        };
        // What was sent arrives, whatever becomes of the one who sent it.
        let (teller, told) = oneshot::channel();
        let server = self.clone();
        let carry_out = async move {
            sleep(arrives).await;
            let answer = server.answer(&ask);
            // Nobody may wait any more.
            let _ = teller.send(answer);
        };
        tokio::spawn(carry_out);
        let answer = told.await.map_err(|_| reset())?;
        sleep(back).await;
        match mishap {
            Mishap::Lost => Err(reset()),
            Mishap::Mute => pending().await,
            _ => Ok(answer),
        }
    }

    fn note(&self, ask: &Ask, outcome: &str) {
        lock(&self.world).note(&format!("{} {} -> {outcome}", self.identity, ask.describe()));
    }

    fn answer(&self, ask: &Ask) -> Answer {
        let mut world = lock(&self.world);
        if ask.watches() {
            let wanted = self.wanted(ask);
            world.note(&format!("{} {} from {}", self.identity, ask.describe(), wanted.from));
            drop(world);
            return match watch::open(&self.world, wanted) {
                Ok(events) => Response::new(Either::Right(events)),
                Err(refusal) => failure(refusal),
            };
        }
        let before = world.api.version;
        let result = self.carry_out(&mut world, ask);
        let changed = world.api.version != before;
        let outcome = match &result {
            Ok(_) => "ok".to_owned(),
            Err((code, word)) => format!("{code} {word}"),
        };
        let said = if ask.writes() { String::from_utf8_lossy(&ask.body) } else { Default::default() };
        world.note(&format!("{} {} {said} -> {outcome}", self.identity, ask.describe()));
        if ask.writes() {
            world.wrote(ask.target.as_ref(), &ask.json, result.is_ok(), changed);
        }
        match result {
            Ok(text) => Response::new(Either::Left(Full::from(text))),
            Err(refusal) => failure(refusal),
        }
    }

    fn carry_out(&self, world: &mut W, ask: &Ask) -> Result<Bytes, Refusal> {
        if ask.path == "/apis/waystation.dev/v1alpha1" {
            return Ok(kinds().to_string().into());
        }
        if ask.path.ends_with("/events") {
            world.told(&ask.json);
            return Ok(ask.body.clone());
        }
        let target = ask.target.as_ref().ok_or((404, "NotFound"))?;
        let id = Id::new(target.plural, &target.namespace, &target.name);
        if ask.method == Method::GET {
            if target.name.is_empty() {
                return self.list(world, ask, target).map(Bytes::from);
            }
            return world.api.text(&id, ask.metadata_only);
        }
        let body = &ask.json;
        if ask.method == Method::POST {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let id = Id::new(target.plural, &target.namespace, name);
            world.api.create(&id, body)?;
            return world.api.text(&id, false);
        }
        if ask.method == Method::DELETE {
            return patch::delete(&mut world.api, &id, &body["preconditions"]).map(Bytes::from);
        }
        if ask.content_type.contains("apply-patch") && !target.status {
            if world.api.get(&id).is_none() && world.omits(Deed::Make(id.plural)) {
                return Ok(body.to_string().into());
            }
            patch::apply(&mut world.api, &id, body)?;
            return world.api.text(&id, false);
        }
        let object = if ask.method == Method::PUT {
            let object = Arc::clone(world.api.get(&id).ok_or((404, "NotFound"))?);
            let version = &body["metadata"]["resourceVersion"];
            if *version != object["metadata"]["resourceVersion"] && !world.omits(Deed::Compare) {
                return Err((409, "Conflict"));
            }
            world.api.update(&id, |object| object["spec"] = body["spec"].clone())?
        } else if ask.content_type.contains("json-patch") {
            if body.to_string().contains("\"add\"") && world.omits(Deed::Finalize) {
                return world.api.text(&id, false);
            }
            patch::json_patch(&mut world.api, &id, body)?
        } else if target.status {
            if world.omits(Deed::Status(target.plural)) {
                return world.api.text(&id, false);
            }
            patch::apply_status(&mut world.api, &id, body)?
        } else {
            return Err((415, "UnsupportedMediaType"));
        };
        // An object that this has ended is in the answer all the same.
        if world.api.get(&id).is_some() { world.api.text(&id, false) } else { Ok(shown(&object, false).into()) }
    }

    fn list(&self, world: &mut W, ask: &Ask, target: &Target) -> Result<String, Refusal> {
        let limit = ask.param("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let (selector, labels) = (Selector::of(ask), world.api.labels.clone());
        let of = |id: &Id| selector.takes(target, id, &labels);
        let (items, version, next) = world.api.list(of, limit, ask.param("continue"))?;
        let item = |object: &Arc<Value>| match world.shows(target.plural, object) {
            Some(other) => shown(&other, ask.metadata_only),
            None => shown(object, ask.metadata_only),
        };
        let items: Vec<String> = items.iter().map(item).collect();
        let metadata = json!({ "resourceVersion": version.to_string(), "continue": next.unwrap_or_default() });
        let items = items.join(",");
        Ok(format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}],"metadata":{metadata}}}"#))
    }

    fn wanted(&self, ask: &Ask) -> Wanted {
        let target = ask.target.clone().unwrap();
        let timeout = ask.param("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(290);
        Wanted {
            selector: Selector::of(ask),
            target,
            replica: self.replica,
            from: ask.param("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default(),
            initial: ask.param("sendInitialEvents") == Some("true"),
            timeout: Duration::from_secs(timeout),
        }
    }
}

/// An object as it is shown.
pub fn shown(object: &Value, metadata_only: bool) -> String {
    let text = if metadata_only { serde_json::to_string(&partial(object)) } else { serde_json::to_string(object) };
    text.unwrap()
}

/// What a list or watch is narrowed to: by `metadata.name=NAME`, by `LABEL` or by `LABEL=VALUE`.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    name: Option<String>,
    label: Option<(String, Option<String>)>,
}

impl Selector {
    fn of(ask: &Ask) -> Self {
        let plain = |text: &str| text.replace("%3D", "=").replace("%2F", "/");
        let name = ask.param("fieldSelector").map(plain);
        let name = name.map(|selector| selector.strip_prefix("metadata.name=").unwrap().to_owned());
        let label = ask.param("labelSelector").map(plain).map(|selector| match selector.split_once('=') {
            Some((label, value)) => (label.to_owned(), Some(value.to_owned())),
            None => (selector, None),
        });
        Self { name, label }
    }

    /// Whether a list or watch of `target` has this object.
    pub fn takes(&self, target: &Target, id: &Id, labels: &BTreeMap<Id, Value>) -> bool {
        id.plural == target.plural
            && (target.namespace.is_empty() || target.namespace == id.namespace)
            && self.name.as_ref().is_none_or(|name| *name == id.name)
            && self.label.as_ref().is_none_or(|(label, wanted)| {
                let has = labels.get(id).and_then(|labels| labels[label.as_str()].as_str());
                has.is_some_and(|has| wanted.as_ref().is_none_or(|wanted| wanted == has))
            })
    }
}

/// The body of a refusal.
pub fn status((code, reason): Refusal) -> Value {
    let after = if code == 429 { 1 } else { 0 };
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": format!("refused: {reason}"), "metadata": {}, "details": { "retryAfterSeconds": after },
    })
}

fn failure(refusal: Refusal) -> Answer {
    let mut response = Response::new(Either::Left(Full::from(status(refusal).to_string())));
    *response.status_mut() = http::StatusCode::from_u16(refusal.0).unwrap();
    response
}

fn kinds() -> Value {
    let kind = |name: &str, kind: &str| json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": [] });
    json!({
        "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "waystation.dev/v1alpha1",
        "resources": [
            kind("routerconfigs", "RouterConfig"), kind("addressspaces", "AddressSpace"), kind("addresses", "Address"),
        ],
    })
}
