//! Events for people (`events.k8s.io/v1`), written behind everything else: a bounded queue, and what finds no room is
//! counted and forgotten.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::meter::Meter;
use crate::api;
use crate::engine::clock::Clock;
use crate::engine::permit::Permit;
use crate::messaging::output::Event;

const ROOM: usize = 512;
const DEADLINE: Duration = Duration::from_secs(5);
/// What the API takes as a note.
const LONGEST_NOTE: usize = 1024;

/// Where events are put. Cheap to clone.
#[derive(Clone)]
pub struct EventQueue {
    queue: mpsc::Sender<Event>,
    meter: Arc<dyn Meter>,
}

/// The other end of an [`EventQueue`].
pub struct EventWriter {
    queue: mpsc::Receiver<Event>,
    meter: Arc<dyn Meter>,
}

/// A queue and its other end.
pub fn queue(meter: Arc<dyn Meter>) -> (EventQueue, EventWriter) {
    let (sender, receiver) = mpsc::channel(ROOM);
    (EventQueue { queue: sender, meter: Arc::clone(&meter) }, EventWriter { queue: receiver, meter })
}

impl EventQueue {
    /// Puts an event; never waits.
    pub fn tell(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.meter.event("dropped");
        }
    }
}

impl EventWriter {
    /// Writes events while the permit lasts, one at a time, until every queue is gone. `instance` names this process.
    pub async fn run(mut self, client: Client, permit: Permit, clock: Arc<dyn Clock>, instance: Arc<str>) {
        let mut number: u64 = 0;
        while let Some(event) = self.queue.recv().await {
            if !permit.allows(DEADLINE) {
                // Whoever leads tells what happens.
                continue;
            }
            number += 1;
            let event = build(event, clock.unix_micros(), number, &instance);
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            let events: Api<ApiEvent> = Api::namespaced(client.clone(), &namespace);
            let result = match timeout(DEADLINE, events.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => "written",
                // A namespace that is going away takes no events, and nobody would read them.
                Ok(Err(Error::Api(status))) if status.code == 403 || status.code == 404 => "failed",
                Ok(Err(error)) => {
                    tracing::debug!(%error, "an event could not be written");
                    "failed"
                }
                Err(_) => "failed",
            };
            self.meter.event(result);
        }
    }
}

fn build(event: Event, unix_micros: i64, number: u64, instance: &str) -> ApiEvent {
    // Names of events carry the object's and something unique; together they fit into 253 characters.
    let name: String = event.key.name.chars().take(200).collect();
    let unique = (unix_micros as u64).wrapping_mul(31).wrapping_add(number);
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{unique:016x}")),
            namespace: Some(event.key.namespace.to_string()),
            ..ObjectMeta::default()
        },
        action: Some(event.reason.to_owned()),
        event_time: Some(MicroTime(Timestamp::from_microsecond(unix_micros).unwrap_or(Timestamp::UNIX_EPOCH))),
        note: Some(shortened(event.message, LONGEST_NOTE)),
        reason: Some(event.reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(format!("{}/{}", api::GROUP, api::VERSION)),
            kind: Some(event.kind.as_str().to_owned()),
            name: Some(event.key.name.to_string()),
            namespace: Some(event.key.namespace.to_string()),
            uid: Some(event.uid.to_string()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("waystation.dev/operator".to_owned()),
        reporting_instance: Some(instance.chars().take(128).collect()),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        ..ApiEvent::default()
    }
}

fn shortened(mut text: String, longest: usize) -> String {
    const MORE: &str = "…";
    if text.len() > longest {
        let mut at = longest - MORE.len();
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.truncate(at);
        text.push_str(MORE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::meter::Unmetered;
    use crate::messaging::ids::{Key, Kind};

    fn event(message: &str) -> Event {
        Event {
            kind: Kind::Address,
            key: Key::new("team", "orders"),
            uid: "u-1".into(),
            warning: true,
            reason: "Repaired",
            message: message.to_owned(),
        }
    }

    #[test]
    fn an_event_names_its_object_and_fits() {
        let built = build(event(&"ä".repeat(2_000)), 1_700_000_000_000_001, 3, "pod-0");
        let regarding = built.regarding.unwrap();
        assert_eq!(regarding.kind.as_deref(), Some("Address"));
        assert_eq!(regarding.uid.as_deref(), Some("u-1"));
        let note = built.note.unwrap();
        assert!(note.len() <= LONGEST_NOTE && note.ends_with('…'), "{}", note.len());
        let other = build(event("x"), 1_700_000_000_000_001, 4, "pod-0");
        assert_ne!(other.metadata.name, built.metadata.name);
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_is_dropped_without_waiting() {
        let (queue, mut writer) = queue(Arc::new(Unmetered));
        for _ in 0..ROOM + 10 {
            queue.tell(event("x"));
        }
        drop(queue);
        let mut kept = 0;
        while writer.queue.recv().await.is_some() {
            kept += 1;
        }
        assert_eq!(kept, ROOM);
    }
}
