//! Probes and metrics over HTTP: `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

type Question = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What is asked by the probes.
#[derive(Clone)]
pub struct Probes {
    /// Loops that are stuck; none: alive.
    pub stuck: Question,
    /// What is awaited still; nothing: ready.
    pub awaits: Question,
    /// The text of all metrics.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Serves until the listener fails.
///
/// # Errors
/// Then.
pub async fn serve(listener: TcpListener, probes: Probes) -> std::io::Result<()> {
    axum::serve(listener, router(probes)).await
}

fn router(probes: Probes) -> Router {
    let livez = |State(probes): State<Probes>| async move { answer("stuck", &(probes.stuck)()) };
    let readyz = |State(probes): State<Probes>| async move { answer("waiting for", &(probes.awaits)()) };
    let metrics = |State(probes): State<Probes>| async move {
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], (probes.metrics)())
    };
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(probes)
}

/// 200 `ok`, or 503 with a line for each thing.
fn answer(what: &str, things: &[String]) -> Response {
    if things.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let lines: String = things.iter().map(|thing| format!("{what} {thing}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(probes: &Probes, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let answer = router(probes.clone()).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_names_what_it_waits_for_and_livez_what_is_stuck() {
        let awaited = Arc::new(Mutex::new(vec!["the first list of Addresses".to_owned()]));
        let asked = Arc::clone(&awaited);
        let probes = Probes {
            stuck: Arc::new(|| vec!["model".to_owned()]),
            awaits: Arc::new(move || asked.lock().unwrap().clone()),
            metrics: Arc::new(|| "# EOF\n".to_owned()),
        };
        assert_eq!(ask(&probes, "/readyz").await, (503, "waiting for the first list of Addresses\n".to_owned()));
        awaited.lock().unwrap().clear();
        assert_eq!(ask(&probes, "/readyz").await, (200, "ok\n".to_owned()));
        assert_eq!(ask(&probes, "/livez").await, (503, "stuck model\n".to_owned()));
        assert_eq!(ask(&probes, "/metrics").await.0, 200);
        assert_eq!(ask(&probes, "/").await.0, 404);
    }
}
