//! Events for people (`events.k8s.io/v1`), written behind everything else: a bounded queue, and what finds no room is
//! counted and forgotten.
//!
//! Whoever leads tells what happens, and the others know the same: what happens while nobody leads is held back until it is
//! known who told it, or until we lead ourselves. Of the same object and reason only the newest is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::meter::Meter;
use crate::api;
use crate::edge;
use crate::edge::ids::{Key, Object};
use crate::engine::clock::Clock;
use crate::engine::permit::Permit;
use crate::messaging::output::Event;

const ROOM: usize = 512;
/// What the API takes as a note.
const LONGEST_NOTE: usize = 1024;

/// An event for people, on an object of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Group and version of the kind.
    pub api_version: String,
    /// What kind of object.
    pub kind: &'static str,
    /// Which object; without a namespace it is the cluster's.
    pub key: Key,
    /// Its uid.
    pub uid: Arc<str>,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

fn our_version() -> String {
    format!("{}/{}", api::GROUP, api::VERSION)
}

impl Told {
    /// A warning on an object that the edge watches.
    pub fn of_edge(object: &Object, uid: Arc<str>, reason: &'static str, message: String) -> Self {
        use edge::ids::Kind;
        let api_version = match object.kind {
            Kind::RouterConfig => our_version(),
            Kind::Ingress | Kind::IngressClass => "networking.k8s.io/v1".to_owned(),
            Kind::EndpointSlice => "discovery.k8s.io/v1".to_owned(),
            Kind::Service | Kind::Secret | Kind::Namespace => "v1".to_owned(),
        };
        Self { api_version, kind: object.kind.as_str(), key: object.key.clone(), uid, warning: true, reason, message }
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        let Event { kind, key, uid, warning, reason, message } = event;
        Self { api_version: our_version(), kind: kind.as_str(), key, uid, warning, reason, message }
    }
}

impl From<edge::model::Event> for Told {
    fn from(event: edge::model::Event) -> Self {
        Self::of_edge(&event.object, event.uid, event.reason.as_str(), event.message.to_string())
    }
}

/// Where events are put. Cheap to clone.
#[derive(Clone)]
pub struct EventQueue {
    queue: mpsc::Sender<Told>,
    meter: Arc<dyn Meter>,
}

/// The other end of an [`EventQueue`].
pub struct EventWriter {
    queue: mpsc::Receiver<Told>,
    meter: Arc<dyn Meter>,
    controller: &'static str,
}

/// A queue and its other end; `controller` is who tells.
pub fn queue(controller: &'static str, meter: Arc<dyn Meter>) -> (EventQueue, EventWriter) {
    let (sender, receiver) = mpsc::channel(ROOM);
    (EventQueue { queue: sender, meter: Arc::clone(&meter) }, EventWriter { queue: receiver, meter, controller })
}

impl EventQueue {
    /// Puts an event; never waits.
    pub fn tell(&self, event: impl Into<Told>) {
        if self.queue.try_send(event.into()).is_err() {
            self.meter.event("dropped");
        }
    }
}

/// Events that nobody may write yet.
#[derive(Default)]
struct Held {
    /// By object and reason: when it happened, and the how manieth it is.
    events: BTreeMap<(&'static str, Key, &'static str), (Instant, u64, Told)>,
    count: u64,
}

impl Held {
    /// Keeps it in the place of one like it; the oldest goes where there are too many.
    fn put(&mut self, event: Told, now: Instant) -> Option<Told> {
        self.count += 1;
        self.events.insert((event.kind, event.key.clone(), event.reason), (now, self.count, event));
        if self.events.len() > ROOM { self.oldest() } else { None }
    }

    /// Those that somebody else has told, who led when they happened, or later.
    fn forget(&mut self, permit: &Permit) {
        self.events.retain(|_, (at, ..)| !permit.was_elsewhere(*at));
    }

    fn oldest(&mut self) -> Option<Told> {
        let oldest = self.events.iter().min_by_key(|(_, (_, number, _))| *number)?.0.clone();
        self.events.remove(&oldest).map(|(.., event)| event)
    }
}

impl EventWriter {
    /// Writes events while the permit lasts, one at a time, until every queue is gone. `deadline`: for a write; none is
    /// sent while the permit lasts less. `instance` names this process.
    pub async fn run(
        mut self,
        client: Client,
        (permit, deadline): (Permit, Duration),
        clock: Arc<dyn Clock>,
        instance: Arc<str>,
    ) {
        let mut number: u64 = 0;
        let mut held = Held::default();
        loop {
            let event = tokio::select! {
                biased;
                () = permit.granted(deadline), if !held.events.is_empty() => {
                    held.forget(&permit);
                    held.oldest()
                }
                event = self.queue.recv() => {
                    let Some(event) = event else { return };
                    if permit.allows(deadline) {
                        Some(event)
                    } else {
                        held.forget(&permit);
                        if held.put(event, Instant::now()).is_some() {
                            self.meter.event("dropped");
                        }
                        None
                    }
                }
            };
            let Some(event) = event else { continue };
            number += 1;
            let event = build(event, clock.unix_micros(), number, self.controller, &instance);
            self.write(&client, event, deadline).await;
        }
    }

    async fn write(&self, client: &Client, event: ApiEvent, deadline: Duration) {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Api<ApiEvent> = Api::namespaced(client.clone(), &namespace);
        let result = match timeout(deadline, events.create(&PostParams::default(), &event)).await {
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

/// Where events about objects without a namespace are.
const CLUSTER_EVENTS: &str = "default";

fn build(event: Told, unix_micros: i64, number: u64, controller: &str, instance: &str) -> ApiEvent {
    let namespace = Some(event.key.namespace.to_string()).filter(|namespace| !namespace.is_empty());
    // Names of events carry the object's and something unique; together they fit into 253 characters. Before the dot
    // that parts them may stand neither dot nor dash.
    let name: String = event.key.name.chars().take(200).collect();
    let name = name.trim_end_matches(['.', '-']);
    let unique = (unix_micros as u64).wrapping_mul(31).wrapping_add(number);
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{unique:016x}")),
            namespace: Some(namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_owned())),
            ..ObjectMeta::default()
        },
        action: Some(event.reason.to_owned()),
        event_time: Some(MicroTime(Timestamp::from_microsecond(unix_micros).unwrap_or(Timestamp::UNIX_EPOCH))),
        note: Some(shortened(event.message, LONGEST_NOTE)),
        reason: Some(event.reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(event.api_version),
            kind: Some(event.kind.to_owned()),
            name: Some(event.key.name.to_string()),
            namespace,
            uid: Some(event.uid.to_string()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(controller.to_owned()),
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
    use tokio::time::sleep;

    use super::*;
    use crate::cluster::meter::Unmetered;
    use crate::cluster::tests::api_server::{Log, Reply, TestClock, server};
    use crate::engine::permit::{deadline, permit};
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
        let built = build(event(&"ä".repeat(2_000)).into(), 1_700_000_000_000_001, 3, "c", "pod-0");
        let regarding = built.regarding.unwrap();
        assert_eq!(regarding.kind.as_deref(), Some("Address"));
        assert_eq!(regarding.uid.as_deref(), Some("u-1"));
        let note = built.note.unwrap();
        assert!(note.len() <= LONGEST_NOTE && note.ends_with('…'), "{}", note.len());
        let other = build(event("x").into(), 1_700_000_000_000_001, 4, "c", "pod-0");
        assert_ne!(other.metadata.name, built.metadata.name);
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_is_dropped_without_waiting() {
        let (queue, mut writer) = queue("c", Arc::new(Unmetered));
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

    #[tokio::test(start_paused = true)]
    async fn what_happens_while_nobody_leads_is_told_once_by_who_leads_next() {
        let (queue, writer) = queue("c", Arc::new(Unmetered));
        let (client, log) = server(|asked| Reply::Json(201, asked.body.clone()));
        let (granter, permit) = permit();
        tokio::spawn(writer.run(
            client,
            (permit, Duration::from_secs(5)),
            Arc::new(TestClock(Instant::now())),
            "pod-0".into(),
        ));
        // Somebody else leads, and tells it.
        queue.tell(event("told by another"));
        sleep(Duration::from_secs(1)).await;
        granter.had_elsewhere(Instant::now());
        sleep(Duration::from_secs(1)).await;
        // Nobody does.
        for message in ["old", "new"] {
            queue.tell(event(message));
        }
        queue.tell(Event { reason: "Other", ..event("another reason") });
        sleep(Duration::from_secs(60)).await;
        assert_eq!(log.len(), 0);
        for _ in 0..3 {
            granter.grant(Instant::now() + Duration::from_secs(15));
            sleep(Duration::from_secs(5)).await;
        }
        let notes = |log: &Log| -> Vec<String> {
            log.all().iter().map(|asked| asked.body["note"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(notes(&log), ["new", "another reason"]);
        // Who leads tells all.
        for message in ["one", "two"] {
            queue.tell(event(message));
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(notes(&log)[2..], ["one", "two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_lease_leaves_time_for_an_event() {
        let lease = Duration::from_secs(3);
        let (queue, writer) = queue("c", Arc::new(Unmetered));
        let (client, log) = server(|asked| Reply::Json(201, asked.body.clone()));
        let (granter, permit) = permit();
        let leave = (permit, deadline(Duration::from_secs(5), lease));
        tokio::spawn(writer.run(client, leave, Arc::new(TestClock(Instant::now())), "pod-0".into()));
        queue.tell(event("x"));
        granter.grant(Instant::now() + lease - lease / 20);
        sleep(lease / 3).await;
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn the_name_of_an_event_is_one_wherever_that_of_its_object_is_cut() {
        let part = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || c == '-')
        };
        for (before, middle) in [(199, "-"), (199, "."), (190, "----------"), (198, "-."), (197, "a.b"), (199, "a")] {
            let name = format!("{}{middle}{}", "a".repeat(before), "b".repeat(40));
            let told = Told { key: Key::new("n", name.as_str()), ..Told::from(event("x")) };
            let built = build(told, 1, 1, "c", "pod-0").metadata.name.unwrap();
            assert!(built.len() <= 253 && built.split('.').all(part), "{built}");
        }
    }

    #[test]
    fn only_so_many_are_held_back_and_the_oldest_go() {
        let (mut held, now) = (Held::default(), Instant::now());
        let numbered = |n: usize| Told::from(Event { key: Key::new("team", n.to_string()), ..event("x") });
        for n in 0..ROOM {
            assert_eq!(held.put(numbered(n), now), None);
        }
        assert_eq!(held.put(numbered(ROOM), now).unwrap().key.name.as_ref(), "0");
        assert_eq!(held.oldest().unwrap().key.name.as_ref(), "1");
    }
}
