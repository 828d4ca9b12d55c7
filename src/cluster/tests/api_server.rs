//! An API server that says what a test tells it to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// A request, as far as tests look at it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// What is answered.
pub enum Reply {
    /// With this status.
    Json(u16, Value),
    /// A watch: these lines, then whatever comes, until the sender is gone.
    Watch(Vec<Value>, Option<mpsc::UnboundedReceiver<Value>>),
    /// Never.
    Hang,
    /// Later.
    After(Duration, Box<Reply>),
}

/// A `metav1.Status` of a failure.
pub fn failure(code: u16, message: &str) -> Reply {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    Reply::Json(code, status)
}

type Handler = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// Requests so far. Clones are the same log.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A client of a server that answers by `handler`.
pub fn server(handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> (Client, Log) {
    let log = Log::default();
    let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
    let asked = log.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (handler, log) = (Arc::clone(&handler), asked.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let asked = Asked {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            };
            log.0.lock().unwrap().push(asked.clone());
            let reply = (handler.lock().unwrap())(&asked);
            Ok::<_, kube::Error>(respond(reply).await)
        }
    });
    (Client::new(service, "default"), log)
}

fn respond(reply: Reply) -> BoxFuture<'static, Response<Body>> {
    async move {
        match reply {
            Reply::Json(code, value) => Response::builder().status(code).body(Body::from(value.to_string())).unwrap(),
            Reply::Watch(lines, more) => {
                let lines = futures::stream::iter(lines);
                let more = futures::stream::unfold(more, |more| async move {
                    let mut more = more?;
                    let next = more.recv().await?;
                    Some((next, Some(more)))
                });
                let bytes =
                    lines.chain(more).map(|line| Ok::<_, std::convert::Infallible>(Bytes::from(format!("{line}\n"))));
                Response::new(Body::from_stream(bytes))
            }
            Reply::Hang => std::future::pending().await,
            Reply::After(wait, reply) => {
                sleep(wait).await;
                respond(*reply).await
            }
        }
    }
    .boxed()
}

/// Replies one after another; the test fails when more is asked.
pub fn script(replies: impl IntoIterator<Item = Reply>) -> impl FnMut(&Asked) -> Reply + Send + 'static {
    let mut replies: VecDeque<Reply> = replies.into_iter().collect();
    move |asked| replies.pop_front().unwrap_or_else(|| panic!("one request too many: {asked:?}"))
}

/// Unix time of tests: follows the paused clock.
pub struct TestClock(pub tokio::time::Instant);

impl crate::engine::clock::Clock for TestClock {
    fn unix_micros(&self) -> i64 {
        1_700_000_000_000_000 + i64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}
