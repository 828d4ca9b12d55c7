//! What the drive tells: to the model, to metrics, to people, and into this agent's row of the status.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::progress::Progress;
use crate::cluster::edge::presence::Row;
use crate::cluster::events::{EventQueue, Told};
use crate::drive::haproxy::actor::{Report, State};
use crate::edge::ids::{Kind, Object};
use crate::edge::input::Input;
use crate::engine::clock::Clock;
use crate::metrics::edge::{EdgeMetrics, ForReason};

/// Everything that takes in reports.
pub struct Reports {
    /// What the drive tells.
    pub reports: mpsc::Receiver<Report>,
    /// To the model.
    pub inputs: mpsc::Sender<Input>,
    /// This agent's row.
    pub own: watch::Sender<Row>,
    /// To people.
    pub events: EventQueue,
    /// Counts.
    pub metrics: Arc<EdgeMetrics>,
    /// Who asks how far it is.
    pub progress: Progress,
    /// For the times that people read.
    pub clock: Arc<dyn Clock>,
}

impl Reports {
    /// Runs until the drive has ended.
    pub async fn run(mut self) {
        let (mut state, mut disk) = (None, None);
        // What was told to people of reloads: one that is tried again and again fails once.
        let mut failed: Option<Arc<str>> = None;
        while let Some(report) = self.reports.recv().await {
            match report {
                Report::Model(input) => {
                    if let Input::InForce(generation) = input {
                        for since in self.progress.in_force(generation) {
                            self.metrics.apply_seconds.observe(since.elapsed().as_secs_f64());
                        }
                        if self.progress.is_idle() {
                            self.metrics.in_force.set(1);
                        }
                    }
                    if self.inputs.send(input).await.is_err() {
                        return;
                    }
                    continue;
                }
                Report::State(new) => {
                    self.metrics.haproxy_up.set((!matches!(new, State::Unreachable(_))).into());
                    match &new {
                        State::Unreachable(words) => tracing::warn!(%words, "HAProxy does not answer"),
                        State::Filling => tracing::info!("HAProxy is brought to what it must hold"),
                        State::Serving => tracing::info!("HAProxy serves"),
                        State::Outdated(words) => tracing::warn!(%words, "HAProxy does not hold everything"),
                    }
                    if matches!(new, State::Serving | State::Outdated(_)) {
                        self.progress.followed();
                    }
                    state = Some(new);
                }
                Report::Compared { differences, files } => {
                    self.metrics.comparisons.inc();
                    self.metrics.drift("process", differences);
                    self.metrics.drift("files", files);
                    if differences + files > 0 {
                        tracing::warn!(differences, files, "HAProxy or its files were not as they were left: repaired");
                    }
                    continue;
                }
                Report::Reloaded(fields) => {
                    let reason = fields.first().copied().unwrap_or("behind");
                    self.metrics.reloads.get_or_create(&ForReason { reason }).inc();
                    let fields = fields.join(", ");
                    tracing::info!(fields, "HAProxy was reloaded");
                    match reason {
                        "behind" => {}
                        "outdated" => {
                            self.tell(false, "Reloaded", "HAProxy was reloaded: it ran on other files".into())
                        }
                        _ => self.tell(false, "Reloaded", format!("HAProxy was reloaded, since {fields} changed")),
                    }
                    failed = None;
                    continue;
                }
                Report::ReloadFailed(words) => {
                    self.metrics.reloads_failed.inc();
                    tracing::error!(%words, "HAProxy did not load its files: the old process goes on");
                    if failed.as_ref() != Some(&words) {
                        self.tell(true, "ReloadFailed", format!("HAProxy goes on as it was: {words}"));
                    }
                    failed = Some(words);
                    continue;
                }
                Report::Files(words) => {
                    self.metrics.files_failing.set(words.is_some().into());
                    match &words {
                        Some(words) => tracing::error!(%words, "files cannot be written: traffic goes on"),
                        None => tracing::info!("files can be written again"),
                    }
                    disk = words;
                }
                Report::Stuck(slot, words) => {
                    tracing::warn!(kind = slot.kind(), %words, "something cannot be removed; it is tried again");
                    continue;
                }
                Report::Leaving(count) => {
                    self.metrics.leaving.set(i64::try_from(count).unwrap_or(i64::MAX));
                    continue;
                }
            }
            self.row(state.as_ref(), disk.as_deref());
        }
    }

    fn row(&self, state: Option<&State>, disk: Option<&str>) {
        let (name, words) = match state {
            None => ("Connecting", None),
            Some(State::Unreachable(words)) => ("Unreachable", Some(words.to_string())),
            Some(State::Filling) => ("Filling", None),
            Some(State::Serving) => ("Serving", None),
            Some(State::Outdated(words)) => ("Outdated", Some(words.to_string())),
        };
        let disk = disk.map(|words| format!("its files cannot be written: {words}"));
        let message = [words, disk].into_iter().flatten().collect::<Vec<_>>().join("; ");
        self.progress.trouble(Some(message.clone()).filter(|message| !message.is_empty()));
        let now = self.clock.unix_s();
        self.own.send_if_modified(|row| {
            let changed = row.state != name || row.message != message;
            if row.state != name {
                row.since_s = now;
            }
            (row.state, row.message) = (name, message);
            changed
        });
    }

    /// Tells of the RouterConfig.
    fn tell(&self, warning: bool, reason: &'static str, message: String) {
        let Some(config) = self.progress.config() else { return };
        let object = Object::new(Kind::RouterConfig, config.meta.key.clone());
        let told = Told::of_edge(&object, Arc::clone(&config.meta.uid), reason, message);
        self.events.tell(Told { warning, ..told });
    }
}
