//! Counts requests to the API server: by verb, resource and answer, all from bounded sets.

use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

use crate::metrics::ApiRequest;

/// Requests by verb, resource and answer. Clones are the same.
pub type Requests = Family<ApiRequest, Counter>;

/// Puts a counter around a client's service.
#[derive(Clone)]
pub struct CountRequests(pub Requests);

/// A service whose requests are counted.
#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    requests: Requests,
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, requests: self.0.clone() }
    }
}

impl<S, A, B> Service<Request<A>> for Counted<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (verb, resource) = classify(&request);
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            requests.get_or_create(&ApiRequest { verb, resource, code }).inc();
            answer
        }
        .boxed()
    }
}

/// What we ask for; the name in the path is followed by an object's name or nothing.
const RESOURCES: [&str; 11] = [
    "routerconfigs",
    "addressspaces",
    "addresses",
    "ingresses",
    "ingressclasses",
    "secrets",
    "namespaces",
    "leases",
    "events",
    "endpointslices",
    "services",
];
/// Of the first resources.
const STATUSES: [&str; 4] = ["routerconfigs/status", "addressspaces/status", "addresses/status", "ingresses/status"];

fn classify<A>(request: &Request<A>) -> (&'static str, &'static str) {
    let mut parts = request.uri().path().trim_start_matches('/').split('/');
    // `api/v1/…` or `apis/GROUP/VERSION/…`.
    let skip = if parts.next() == Some("apis") { 2 } else { 1 };
    let mut parts = parts.skip(skip).peekable();
    let mut plural = parts.next().unwrap_or_default();
    if plural == "namespaces" {
        let name = parts.next();
        match parts.next() {
            Some(namespaced) => plural = namespaced,
            None => return (verb(request, name.is_some()), "namespaces"),
        }
    }
    let name = parts.next();
    let status = parts.next() == Some("status");
    let resource = match RESOURCES.iter().position(|resource| *resource == plural) {
        Some(at) if status && at < STATUSES.len() => STATUSES[at],
        Some(at) => RESOURCES[at],
        None => "other",
    };
    (verb(request, name.is_some()), resource)
}

fn verb<A>(request: &Request<A>, named: bool) -> &'static str {
    let query = request.uri().query().unwrap_or_default();
    let applies = || {
        let kind = request.headers().get(http::header::CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"))
    };
    match *request.method() {
        Method::GET if query.split('&').any(|part| part == "watch=true" || part == "watch=1") => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if applies() => "apply",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(method: Method, uri: &str, content: &str) -> (&'static str, &'static str) {
        let request = Request::builder().method(method).uri(uri).header("content-type", content).body(()).unwrap();
        classify(&request)
    }

    #[test]
    fn requests_are_told_apart_without_their_names() {
        let group = "/apis/waystation.dev/v1alpha1";
        let status = format!("{group}/namespaces/a/addresses/b/status?fieldManager=waystation");
        assert_eq!(classified(Method::PATCH, &status, "application/apply-patch+yaml"), ("apply", "addresses/status"));
        let patch = format!("{group}/namespaces/a/addresses/b");
        assert_eq!(classified(Method::PATCH, &patch, "application/json-patch+json"), ("patch", "addresses"));
        let watch = format!("{group}/addresses?watch=true&resourceVersion=5");
        assert_eq!(classified(Method::GET, &watch, ""), ("watch", "addresses"));
        assert_eq!(classified(Method::GET, &format!("{group}/addresses?limit=500"), ""), ("list", "addresses"));
        assert_eq!(classified(Method::GET, "/api/v1/namespaces/kube-system", ""), ("get", "namespaces"));
        assert_eq!(classified(Method::GET, "/api/v1/namespaces/a/secrets/b", ""), ("get", "secrets"));
        assert_eq!(classified(Method::GET, "/api/v1/namespaces?watch=true", ""), ("watch", "namespaces"));
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        assert_eq!(classified(Method::PUT, lease, ""), ("update", "leases"));
        assert_eq!(classified(Method::GET, group, ""), ("list", "other"));
    }
}
