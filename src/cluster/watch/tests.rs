//! A watch on an API server that forgets, fails, hangs and sends what nobody can read.

use std::sync::Mutex;

use kube::core::DeserializeGuard;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::api::Address;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Log, Reply, failure, script, server};

type Guarded = DeserializeGuard<Address>;

fn watching(mode: Mode, handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> (Watch<Guarded>, Log) {
    let (client, log) = server(handler);
    let options = Options { mode, page: 2, ..Options::default() };
    (Watch::new(Api::all(client), "Address", options, Jitter::seeded(3), Arc::new(Unmetered)), log)
}

fn address(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "Address",
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string(),
            "managedFields": [{ "manager": "kubectl", "operation": "Apply" }],
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes" },
        },
        "spec": { "addressSpace": "shop", "type": "queue" },
    })
}

fn unreadable(name: &str, version: u64) -> Value {
    let mut object = address(name, version);
    object["spec"] = json!({ "addressSpace": 5 });
    object
}

fn list(version: u64, next: &str, items: impl IntoIterator<Item = Value>) -> Reply {
    Reply::Json(
        200,
        json!({
            "apiVersion": "waystation.dev/v1alpha1", "kind": "AddressList",
            "metadata": { "resourceVersion": version.to_string(), "continue": next },
            "items": items.into_iter().collect::<Vec<_>>(),
        }),
    )
}

fn event(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn gone() -> Value {
    event("ERROR", json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" }))
}

/// `+name` applied by an event, `=name` listed, `?name` unreadable, `-name` deleted, `.` complete.
async fn seen(watch: &mut Watch<Guarded>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(match watch.next().await {
            Seen::Applied { object, listed } => {
                let name = object.meta().name.clone().unwrap();
                match (&object.0, listed) {
                    (Err(_), _) => format!("?{name}"),
                    (Ok(_), true) => format!("={name}"),
                    (Ok(_), false) => format!("+{name}"),
                }
            }
            Seen::Deleted(key) => format!("-{}", key.name),
            Seen::Complete => ".".to_owned(),
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn pages_then_events_and_nothing_that_nobody_reads() {
    let (mut watch, log) = watching(
        Mode::List,
        script([
            list(10, "more", [address("a", 1), address("b", 2)]),
            list(10, "", [address("c", 3)]),
            Reply::Watch(vec![event("ADDED", address("d", 11)), event("DELETED", address("a", 12))], None),
            list(12, "", []),
            Reply::Hang,
        ]),
    );
    let Seen::Applied { object, .. } = watch.next().await else { panic!() };
    assert_eq!(object.meta().managed_fields, None);
    assert_eq!(object.meta().annotations.clone().unwrap().into_keys().collect::<Vec<_>>(), ["kept"]);
    assert_eq!(seen(&mut watch, 5).await, ["=b", "=c", ".", "+d", "-a"]);
    // The end of a watch is no failure: it goes on from the last version. An early one raises a doubt.
    let next = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
    assert!(next.is_err());
    let asked: Vec<String> = log.all().into_iter().map(|asked| asked.query).collect();
    assert!(asked[0].contains("limit=2") && asked[1].contains("continue=more"), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=10") && asked[3].contains("limit=1"), "{asked:?}");
    assert!(asked[4].contains("resourceVersion=12"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_gone_back_is_listed_however_its_watch_ended() {
    let broken = || Reply::Watch(vec![event("ADDED", json!({ "metadata": 5 }))], None);
    for ends in [Reply::Watch(vec![], None), broken(), failure(500, "ending")] {
        let (mut watch, _) = watching(
            Mode::List,
            script([
                list(10, "", [address("a", 1), address("b", 2)]),
                ends,
                failure(503, "starting"),
                list(7, "", [address("b", 2)]),
                list(7, "", [address("b", 2)]),
                Reply::Hang,
            ]),
        );
        assert_eq!(seen(&mut watch, 6).await, ["=a", "=b", ".", "=b", "-a", "."]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_in_its_time_raises_no_doubt() {
    let (quiet, events) = mpsc::unbounded_channel();
    let (mut watch, log) = watching(
        Mode::List,
        script([
            list(10, "", []),
            Reply::Watch(vec![event("BOOKMARK", bookmark(44, false))], Some(events)),
            Reply::Hang,
        ]),
    );
    assert_eq!(seen(&mut watch, 1).await, ["."]);
    tokio::spawn(async move {
        tokio::time::sleep(Options::default().watch).await;
        drop(quiet);
    });
    let _ = tokio::time::timeout(Duration::from_secs(300), watch.next()).await;
    assert_eq!(log.len(), 3);
    assert!(log.all()[2].query.contains("resourceVersion=44"), "{}", log.all()[2].query);
}

#[tokio::test(start_paused = true)]
async fn after_a_410_everything_is_listed_and_what_is_missing_is_gone() {
    for refused in [true, false] {
        let lost = if refused { failure(410, "too old") } else { Reply::Watch(vec![gone()], None) };
        let (mut watch, _) = watching(
            Mode::List,
            script([
                list(10, "", [address("a", 1), address("b", 2)]),
                lost,
                list(5, "", [address("b", 4), address("c", 5)]),
                Reply::Hang,
            ]),
        );
        assert_eq!(seen(&mut watch, 7).await, ["=a", "=b", ".", "=b", "=c", "-a", "."], "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_expired_begins_the_list_anew() {
    let (mut watch, _) = watching(
        Mode::List,
        script([
            list(10, "more", [address("a", 1)]),
            failure(410, "the provided continue parameter is too old"),
            list(11, "", [address("b", 2)]),
            Reply::Hang,
        ]),
    );
    assert_eq!(seen(&mut watch, 4).await, ["=a", "=b", "-a", "."]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_told_and_its_deletion_counts() {
    let (mut watch, _) = watching(
        Mode::List,
        script([
            list(10, "", [unreadable("a", 1), address("b", 2)]),
            Reply::Watch(vec![event("MODIFIED", unreadable("b", 11)), event("DELETED", unreadable("a", 12))], None),
            Reply::Hang,
        ]),
    );
    assert_eq!(seen(&mut watch, 5).await, ["?a", "=b", ".", "?b", "-a"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_waited_after_longer_each_time_and_a_hung_page_ends() {
    let (mut watch, log) = watching(
        Mode::List,
        script([failure(500, "etcd"), failure(503, "starting"), Reply::Hang, list(1, "", []), Reply::Hang]),
    );
    let began = Instant::now();
    assert_eq!(seen(&mut watch, 1).await, ["."]);
    assert_eq!(log.len(), 4);
    let took = began.elapsed();
    assert!(took > Duration::from_secs(61) && took < Duration::from_secs(65), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_anew_where_it_was() {
    let (quiet, events) = mpsc::unbounded_channel();
    let (mut watch, log) = watching(
        Mode::List,
        script([
            list(10, "", []),
            Reply::Watch(vec![event("BOOKMARK", bookmark(44, false))], Some(events)),
            Reply::Watch(vec![event("ADDED", address("a", 50))], None),
        ]),
    );
    let began = Instant::now();
    assert_eq!(seen(&mut watch, 2).await, [".", "+a"]);
    assert!(began.elapsed() > Options::default().watch);
    assert!(log.all()[2].query.contains("resourceVersion=44"));
    drop(quiet);
}

fn bookmark(version: u64, ends: bool) -> Value {
    let annotations = if ends { json!({ "k8s.io/initial-events-end": "true" }) } else { json!({}) };
    json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "Address",
        "metadata": { "resourceVersion": version.to_string(), "annotations": annotations },
    })
}

#[tokio::test(start_paused = true)]
async fn the_first_list_may_come_as_a_stream() {
    let first = vec![
        event("ADDED", address("a", 1)),
        event("ADDED", address("b", 2)),
        event("BOOKMARK", bookmark(10, true)),
        event("MODIFIED", address("a", 11)),
        gone(),
    ];
    let again = vec![event("ADDED", address("a", 11)), event("BOOKMARK", bookmark(12, true))];
    let (_open, more) = mpsc::unbounded_channel();
    let (mut watch, log) = watching(Mode::Stream, script([Reply::Watch(first, None), Reply::Watch(again, Some(more))]));
    assert_eq!(seen(&mut watch, 7).await, ["=a", "=b", ".", "+a", "=a", "-b", "."]);
    assert!(log.all()[0].query.contains("sendInitialEvents=true"), "{}", log.all()[0].query);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_goes_on_and_one_that_always_breaks_is_listed() {
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let (mut watch, log) = watching(Mode::List, move |request| {
        if request.query.contains("watch") {
            *counted.lock().unwrap() += 1;
            // No object has no metadata.
            return Reply::Watch(vec![json!({ "type": "ADDED", "object": 5 })], None);
        }
        list(10, "", [address("a", 1)])
    });
    assert_eq!(seen(&mut watch, 4).await, ["=a", ".", "=a", "."]);
    let watches = *asked.lock().unwrap();
    assert!((2..=5).contains(&watches), "{watches} watches, {} requests", log.len());
}
