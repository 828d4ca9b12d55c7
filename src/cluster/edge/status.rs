//! The status of an edge's RouterConfig, written by whoever holds the Lease: one write when something differs.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Client, Error};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::presence::Row;
use super::publish::Count;
use crate::api;
use crate::api::conditions::{ACCEPTED, READY};
use crate::api::reasons::EdgeReason;
use crate::api::router_config::{TargetState, TargetStatus};
use crate::api::{RouterConfigStatus, set_condition};
use crate::cluster::meter::WriteResult;
use crate::cluster::patch::apply_status;
use crate::edge::options::Options;
use crate::engine::clock::Clock;
use crate::engine::jitter::Jitter;
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;

const MANAGER: &str = "waystation-edge";
const RETRY: Duration = Duration::from_secs(5);
/// The state of an edge that holds all but what needs a reload; in the status that is `Filling` with the reason.
const OUTDATED: &str = "Outdated";
/// From a change to its write: what is passed through costs none.
const REST: Duration = Duration::from_millis(500);

/// Writes the status of the RouterConfig.
pub struct StatusKeeper {
    /// For writes.
    pub client: Client,
    /// The RouterConfig, as it is.
    pub configs: mpsc::UnboundedReceiver<Box<api::RouterConfig>>,
    /// Who is there, and how they stand.
    pub rows: mpsc::UnboundedReceiver<Vec<Row>>,
    /// Whether it may write.
    pub permit: Permit,
    /// For a call; none is sent while the permit lasts less.
    pub deadline: Duration,
    /// For the times of conditions.
    pub clock: std::sync::Arc<dyn Clock>,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub count: Count,
    /// End.
    pub stop: Stop,
}

impl StatusKeeper {
    /// Runs until stopped, or until nobody tells anything.
    pub async fn run(mut self) {
        let (mut config, mut rows): (Option<Box<api::RouterConfig>>, Vec<Row>) = (None, Vec::new());
        let mut look_at: Option<Instant> = None;
        loop {
            let due = async {
                match look_at {
                    Some(at) => {
                        sleep_until(at).await;
                        self.permit.granted(self.deadline).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stop.requested() => return,
                new = self.configs.recv() => {
                    let Some(new) = new else { return };
                    config = Some(new);
                    look_at.get_or_insert(Instant::now() + REST);
                }
                new = self.rows.recv() => {
                    let Some(new) = new else { return };
                    rows = new;
                    look_at.get_or_insert(Instant::now() + REST);
                }
                () = due => {
                    look_at = None;
                    if let Some(config) = &mut config
                        && !self.write(config, &rows).await
                    {
                        look_at = Some(Instant::now() + self.jitter.spread(RETRY));
                    }
                }
            }
        }
    }

    /// Writes what differs; false: it is to be tried again.
    async fn write(&self, config: &mut api::RouterConfig, rows: &[Row]) -> bool {
        let before = config.status.clone().unwrap_or_default();
        let now = Timestamp::from_second(self.clock.unix_s()).unwrap_or(Timestamp::UNIX_EPOCH);
        let status = status(config, rows, now);
        if status == before {
            return true;
        }
        let metadata = &config.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let api: Api<api::RouterConfig> = Api::namespaced(self.client.clone(), namespace);
        let body = json!({
            "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
            "kind": "RouterConfig",
            "metadata": { "namespace": namespace, "name": name, "uid": metadata.uid },
            "status": status,
        });
        let url = format!("{}/{name}", api.resource_url());
        let (result, done) = match timeout(self.deadline, apply_status(&self.client, &url, MANAGER, &body)).await {
            Ok(Ok(_)) => {
                config.status = Some(status);
                (WriteResult::Written, true)
            }
            // The watch tells what there is now.
            Ok(Err(Error::Api(answer))) if matches!(answer.code, 404 | 409) => (WriteResult::Skipped, true),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the status could not be written; it is tried again");
                (WriteResult::Retried, false)
            }
            Err(_) => (WriteResult::Retried, false),
        };
        (self.count)(result);
        done
    }
}

/// Names of options in `edge.options` that have no effect, with the reason.
fn bad_options(config: &api::RouterConfig) -> Vec<String> {
    let options = config.spec.edge.iter().flat_map(|edge| &edge.options);
    let options = options.map(|(key, value)| (key.as_str().into(), value.0.as_str().into())).collect();
    let read = Options::read_plain(&options);
    let bad = read.bad.iter().map(|bad| bad.message.clone());
    bad.chain(read.unknown.iter().map(|key| format!("{key} is not an option"))).collect()
}

/// What is to be told.
pub fn status(config: &api::RouterConfig, rows: &[Row], now: Timestamp) -> RouterConfigStatus {
    let before = config.status.clone().unwrap_or_default();
    let generation = config.metadata.generation.unwrap_or_default();
    let mut conditions = before.conditions;
    let bad = bad_options(config);
    let (reason, message) = match bad.is_empty() {
        true => (EdgeReason::Accepted, String::new()),
        false => (EdgeReason::InvalidOption, format!("without effect in edge.options: {}", bad.join("; "))),
    };
    set_condition(
        &mut conditions,
        ACCEPTED,
        bad.is_empty().into(),
        reason.as_str(),
        &shortened(message),
        generation,
        now,
    );
    let edges: Vec<TargetStatus> = rows.iter().map(target).collect();
    let serving = edges.iter().filter(|edge| edge.state == TargetState::Serving).count();
    let worst = |state: TargetState| edges.iter().find(|edge| edge.state == state);
    let (reason, message) = if let Some(edge) = worst(TargetState::Unreachable) {
        (EdgeReason::EdgeUnreachable, format!("{}: {}", edge.name, edge.message))
    } else if let Some(edge) = worst(TargetState::Connecting) {
        (EdgeReason::Connecting, format!("{} is being connected", edge.name))
    } else if let Some(edge) = rows.iter().find(|row| row.state == OUTDATED) {
        (EdgeReason::Outdated, format!("{}: {}", edge.name, edge.message))
    } else if let Some(edge) = worst(TargetState::Filling) {
        (EdgeReason::Filling, format!("{} is brought to what it must hold", edge.name))
    } else {
        (EdgeReason::Serving, String::new())
    };
    let ready = reason == EdgeReason::Serving && !edges.is_empty();
    set_condition(&mut conditions, READY, ready.into(), reason.as_str(), &shortened(message), generation, now);
    RouterConfigStatus {
        conditions,
        observed_generation: Some(generation),
        kind: Some("Edge".to_owned()),
        edges_summary: Some(format!("{serving}/{}", edges.len())),
        edges,
        ..RouterConfigStatus::default()
    }
}

/// What a condition takes as its message is 32 KiB; people read less.
fn shortened(text: String) -> String {
    const MOST: usize = 2000;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn target(row: &Row) -> TargetStatus {
    TargetStatus {
        name: row.name.clone(),
        state: match row.state {
            "Serving" => TargetState::Serving,
            "Filling" | OUTDATED => TargetState::Filling,
            "Unreachable" => TargetState::Unreachable,
            _ => TargetState::Connecting,
        },
        message: row.message.clone(),
        since: Timestamp::from_second(row.since_s).ok().map(Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{find, is_true};

    fn config(options: &str) -> api::RouterConfig {
        serde_json::from_str(&format!(
            r#"{{"apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig",
                "metadata": {{"name": "edge", "namespace": "n", "generation": 3}},
                "spec": {{"edge": {{"options": {options}}}}}}}"#
        ))
        .unwrap()
    }

    fn row(name: &str, state: &'static str) -> Row {
        Row { name: name.to_owned(), state, message: "words".to_owned(), since_s: 7 }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ready_when_all_serve_and_the_one_that_does_not_is_named() {
        let told = status(&config("{}"), &[row("a", "Serving"), row("b", "Unreachable")], at(1));
        assert_eq!(told.edges_summary.as_deref(), Some("1/2"));
        let ready = find(&told.conditions, READY).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "EdgeUnreachable"));
        assert_eq!(ready.message, "b: words");
        let told = status(&config("{}"), &[row("a", "Serving"), row("b", "Serving")], at(1));
        assert!(is_true(&told.conditions, READY) && is_true(&told.conditions, ACCEPTED));
        assert!(!is_true(&status(&config("{}"), &[], at(1)).conditions, READY));
    }

    #[test]
    fn what_was_not_loaded_is_not_told_as_in_force() {
        let told = status(&config("{}"), &[row("a", "Serving"), row("b", "Outdated")], at(1));
        let ready = find(&told.conditions, READY).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Outdated"));
        assert_eq!((ready.message.as_str(), told.edges_summary.as_deref()), ("b: words", Some("1/2")));
        assert_eq!((told.edges[1].state, told.edges[1].message.as_str()), (TargetState::Filling, "words"));
    }

    #[test]
    fn the_same_again_is_the_same_status() {
        let mut config = config("{}");
        let rows = [row("a", "Serving")];
        config.status = Some(status(&config, &rows, at(1)));
        assert_eq!(config.status, Some(status(&config, &rows, at(9))));
    }

    #[test]
    fn options_without_effect_are_told() {
        let told = status(&config(r#"{"hsts": "perhaps", "unheard-of": "1", "timeout-server": "5s"}"#), &[], at(1));
        let accepted = find(&told.conditions, ACCEPTED).unwrap();
        assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "InvalidOption"));
        assert!(accepted.message.contains("hsts") && accepted.message.contains("unheard-of"), "{}", accepted.message);
        assert!(!accepted.message.contains("timeout-server"), "{}", accepted.message);
    }
}
