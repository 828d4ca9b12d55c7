//! The writer on an API server that fails in every way.

use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Log, Reply, failure, script, server};
use crate::engine::permit::{Granter, permit};
use crate::messaging::output::{FinalizerChange, Status};
use crate::messaging::status::AddressStatus;

struct Desk {
    outbox: Mailbox<Write>,
    inputs: mpsc::Receiver<Input>,
    log: Log,
    granter: Granter,
    stop: Stop,
    task: JoinHandle<()>,
}

fn desk(handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> Desk {
    let (client, log) = server(handler);
    let (granter, permit) = permit();
    granter.grant(Instant::now() + Duration::from_secs(1_000_000));
    let (sender, inputs) = mpsc::channel(1_000);
    let (outbox, stop) = (Mailbox::default(), Stop::default());
    let writer = Writer {
        client,
        outbox: outbox.clone(),
        permit,
        inputs: sender,
        limits: Limits::default(),
        jitter: Jitter::seeded(5),
        meter: Arc::new(Unmetered),
        stop: stop.clone(),
    };
    Desk { outbox, inputs, log, granter, stop, task: tokio::spawn(writer.run()) }
}

impl Desk {
    async fn done(&mut self) -> WriteDone {
        match self.inputs.recv().await {
            Some(Input::Written(done)) => done,
            other => panic!("{other:?}"),
        }
    }
}

fn write(name: &str, seq: u64) -> Write {
    Write {
        kind: Kind::Address,
        key: Key::new("team", name),
        uid: "u-1".into(),
        generation: 4,
        tenant: Key::new("team", "shop"),
        low: false,
        seq,
        status: Some(Status::Address(Arc::new(AddressStatus {
            address: Some(format!("{name}-{seq}").into()),
            ..AddressStatus::default()
        }))),
        finalizer: None,
    }
}

fn object(uid: &str, version: u64, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "waystation.dev/v1alpha1", "kind": "Address",
        "metadata": { "name": "a", "namespace": "team", "uid": uid, "resourceVersion": version.to_string(),
                      "finalizers": finalizers },
    })
}

fn ok(version: u64) -> Reply {
    Reply::Json(200, object("u-1", version, &[]))
}

#[tokio::test(start_paused = true)]
async fn a_status_is_applied_by_name_and_uid_and_answered_with_its_version() {
    let mut desk = desk(script([ok(17)]));
    desk.outbox.put(write("a", 1));
    assert_eq!(desk.done().await.result, Ok(17));
    let asked = &desk.log.all()[0];
    assert_eq!(asked.path, "/apis/waystation.dev/v1alpha1/namespaces/team/addresses/a/status");
    assert!(asked.query.contains("fieldManager=waystation") && asked.query.contains("force=true"), "{}", asked.query);
    assert_eq!(asked.body["metadata"]["uid"], "u-1");
    assert_eq!(asked.body["status"]["address"], "a-1");
    assert_eq!(asked.body["status"]["observedGeneration"], 4);
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_later_each_time() {
    let later = json!({ "kind": "Status", "code": 429, "message": "busy", "details": { "retryAfterSeconds": 7 } });
    let replies = [Reply::Json(429, later), failure(500, "etcd"), Reply::Hang, failure(503, "later"), ok(3)];
    let mut desk = desk(script(replies));
    let began = Instant::now();
    desk.outbox.put(write("a", 1));
    assert_eq!(desk.done().await.result, Ok(3));
    assert_eq!(desk.log.len(), 5);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(7 + 5) && took < Duration::from_secs(20), "{took:?}");
    assert!(desk.outbox.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_is_answered_with_the_servers_words() {
    let mut desk = desk(script([failure(422, "status.address: too long"), failure(403, "not allowed")]));
    desk.outbox.put(write("a", 1));
    assert_eq!(desk.done().await.result, Err(WriteError::Refused("status.address: too long".into())));
    desk.outbox.put(write("a", 2));
    assert_eq!(desk.done().await.result, Err(WriteError::Refused("not allowed".into())));
}

#[tokio::test(start_paused = true)]
async fn a_namesake_and_what_is_gone_are_not_written() {
    let conflict = || failure(409, "uid mismatch");
    let replies =
        [failure(404, "gone"), conflict(), Reply::Json(200, object("u-2", 9, &[])), conflict(), failure(404, "")];
    let mut desk = desk(script(replies));
    for seq in 1..=3 {
        desk.outbox.put(write("a", seq));
        assert_eq!(desk.done().await.result, Err(WriteError::Gone));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_the_same_object_is_a_race_and_goes_again() {
    let mut desk = desk(script([failure(409, "race"), Reply::Json(200, object("u-1", 9, &[])), ok(10)]));
    desk.outbox.put(write("a", 1));
    assert_eq!(desk.done().await.result, Ok(10));
}

#[tokio::test(start_paused = true)]
async fn one_write_of_an_object_at_a_time_and_the_newest_wins() {
    let under_way = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&under_way);
    let mut desk = desk(move |asked| {
        *counted.lock().unwrap() += 1;
        let version = asked.body["status"]["address"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
        Reply::After(Duration::from_secs(1), Box::new(ok(version)))
    });
    desk.outbox.put(write("a", 1));
    sleep(Duration::from_millis(100)).await;
    for seq in 2..=5 {
        desk.outbox.put(write("a", seq));
    }
    sleep(Duration::from_millis(100)).await;
    assert_eq!(*under_way.lock().unwrap(), 1);
    assert_eq!((desk.done().await.seq, desk.done().await.seq), (1, 5));
    assert_eq!(desk.log.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_newer_write_takes_the_place_of_one_that_waits_to_be_tried_again() {
    let mut desk = desk(script([failure(500, "etcd"), ok(2)]));
    desk.outbox.put(write("a", 1));
    sleep(Duration::from_millis(10)).await;
    desk.outbox.put(write("a", 2));
    let done = desk.done().await;
    assert_eq!((done.seq, done.result), (2, Ok(2)));
}

#[tokio::test(start_paused = true)]
async fn many_objects_are_written_at_a_time_and_not_more() {
    let mut desk = desk(|_| Reply::After(Duration::from_secs(1), Box::new(ok(1))));
    let began = Instant::now();
    for seq in 0..64 {
        desk.outbox.put(write(&format!("a{seq}"), seq));
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(desk.log.len(), 16);
    for _ in 0..64 {
        desk.done().await;
    }
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_after_the_status_and_needs_no_read() {
    let mut desk = desk(script([ok(5), Reply::Json(200, object("u-1", 6, &["waystation.dev/address"]))]));
    desk.outbox.put(Write { finalizer: Some(FinalizerChange::Add), ..write("a", 1) });
    assert_eq!(desk.done().await.result, Ok(6));
    let asked = &desk.log.all()[1];
    assert_eq!(
        (asked.method.clone(), &*asked.path),
        (Method::PATCH, "/apis/waystation.dev/v1alpha1/namespaces/team/addresses/a")
    );
    assert_eq!(asked.body[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u-1" }));
    assert_eq!(asked.body[2]["value"], json!(["waystation.dev/address"]));
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_goes_from_whatever_place_it_has() {
    let ours = "waystation.dev/address";
    let replies = [
        failure(422, "the server rejected our request due to an error in our request"),
        Reply::Json(200, object("u-1", 8, &["other/one", ours])),
        Reply::Json(200, object("u-1", 9, &["other/one"])),
    ];
    let mut desk = desk(script(replies));
    desk.outbox.put(Write { status: None, finalizer: Some(FinalizerChange::Remove), ..write("a", 1) });
    assert_eq!(desk.done().await.result, Ok(9));
    assert_eq!(desk.log.all()[2].body[2], json!({ "op": "remove", "path": "/metadata/finalizers/1" }));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_permit_and_nothing_is_lost_by_it() {
    let mut desk = desk(script([ok(1)]));
    desk.granter.revoke();
    desk.outbox.put(write("a", 1));
    sleep(Duration::from_secs(100)).await;
    assert_eq!(desk.log.len(), 0);
    desk.granter.grant(Instant::now() + Duration::from_secs(60));
    assert_eq!(desk.done().await.result, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_while_it_waits_for_the_permit_is_not_sent() {
    let mut desk = desk(script([ok(2)]));
    desk.granter.revoke();
    desk.outbox.put(write("a", 1));
    sleep(Duration::from_secs(1)).await;
    desk.outbox.clear();
    desk.granter.grant(Instant::now() + Duration::from_secs(60));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(desk.log.len(), 0);
    desk.outbox.put(write("a", 2));
    assert_eq!(desk.done().await.seq, 2);
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_is_under_way_and_begins_nothing() {
    let mut desk = desk(|_| Reply::After(Duration::from_secs(2), Box::new(ok(1))));
    desk.outbox.put(write("a", 1));
    sleep(Duration::from_secs(1)).await;
    desk.stop.request();
    desk.outbox.put(write("b", 2));
    assert_eq!(desk.done().await.seq, 1);
    desk.task.await.unwrap();
    assert_eq!(desk.log.len(), 1);
}
