//! Agents that see each other by their Leases, under a paused clock.

use std::sync::Mutex;

use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Reply, TestClock, failure, server};
use crate::engine::permit::permit;

#[derive(Default)]
struct Stored {
    leases: BTreeMap<String, Value>,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    version: u64,
    down: bool,
    /// Watches show nothing, and then all that they did not.
    hung: bool,
    missed: Vec<Value>,
}

impl Stored {
    fn tell(&mut self, kind: &str, lease: &Value) {
        self.missed.push(json!({ "type": kind, "object": lease }));
        self.show();
    }

    fn show(&mut self) {
        let events = if self.hung { Vec::new() } else { std::mem::take(&mut self.missed) };
        for event in events {
            self.watches.retain(|watch| watch.send(event.clone()).is_ok());
        }
    }

    fn may_delete(&self, name: &str, preconditions: &Value) -> bool {
        let Some(lease) = self.leases.get(name) else { return true };
        let holds = |field: &str| preconditions[field].is_null() || preconditions[field] == lease["metadata"][field];
        holds("resourceVersion") && holds("uid")
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        if self.down {
            return failure(500, "down");
        }
        let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        let name = asked.path.strip_prefix(path).unwrap().trim_start_matches('/').to_owned();
        self.version += 1;
        match asked.method {
            Method::PATCH => {
                let mut lease = asked.body.clone();
                lease["metadata"]["resourceVersion"] = self.version.to_string().into();
                lease["metadata"]["uid"] = name.as_str().into();
                let before = self.leases.insert(name, lease.clone());
                self.tell(if before.is_some() { "MODIFIED" } else { "ADDED" }, &lease);
                Reply::Json(200, lease)
            }
            Method::DELETE if !self.may_delete(&name, &asked.body["preconditions"]) => failure(409, "it has moved"),
            Method::DELETE => match self.leases.remove(&name) {
                Some(mut lease) => {
                    lease["metadata"]["resourceVersion"] = self.version.to_string().into();
                    self.tell("DELETED", &lease);
                    Reply::Json(200, lease)
                }
                None => failure(404, "not found"),
            },
            _ if asked.query.contains("watch") => {
                let (watch, events) = mpsc::unbounded_channel();
                self.watches.push(watch);
                Reply::Watch(Vec::new(), Some(events))
            }
            _ => {
                assert!(asked.query.contains("labelSelector=waystation.dev%2Frouter-config%3D"), "{}", asked.query);
                let items: Vec<&Value> = self.leases.values().collect();
                let version = self.version.to_string();
                Reply::Json(200, json!({ "metadata": { "resourceVersion": version }, "items": items }))
            }
        }
    }
}

struct Agent {
    own: watch::Sender<Row>,
    rows: mpsc::UnboundedReceiver<Vec<Row>>,
    stop: Stop,
    task: tokio::task::JoinHandle<()>,
}

fn agent(stored: &Arc<Mutex<Stored>>, name: &str, leads: bool) -> Agent {
    let server_side = Arc::clone(stored);
    let (client, _) = server(move |asked| server_side.lock().unwrap().answer(asked));
    let row = Row { name: name.to_owned(), state: "Serving", message: String::new(), since_s: 5 };
    let ((own_in, own), (rows_in, rows)) = (watch::channel(row), mpsc::unbounded_channel());
    let stop = Stop::default();
    let permit = if leads { Permit::unlimited() } else { permit().1 };
    let presence = Presence {
        client,
        namespace: "ns".to_owned(),
        config: Key::new("edge", "main"),
        identity: format!("{name}-1"),
        own,
        rows: rows_in,
        permit,
        deadline: Duration::from_secs(5),
        clock: Arc::new(TestClock(Instant::now())),
        options: Options::default(),
        jitter: Jitter::seeded(u64::from(leads)),
        meter: Arc::new(Unmetered),
        stop: stop.clone(),
    };
    Agent { own: own_in, rows, stop, task: tokio::spawn(presence.run()) }
}

impl Agent {
    /// The newest rows: `name=state`.
    async fn rows(&mut self) -> String {
        let mut rows = timeout(LONGEST * 3, self.rows.recv()).await.unwrap().unwrap();
        while let Ok(newer) = self.rows.try_recv() {
            rows = newer;
        }
        rows.iter().map(|row| format!("{}={}", row.name, row.state)).collect::<Vec<_>>().join(" ")
    }

    async fn until(&mut self, wanted: &str) {
        while self.rows().await != wanted {}
    }
}

#[tokio::test(start_paused = true)]
async fn agents_see_each_other_and_the_end_of_each() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let (mut a, mut b) = (agent(&stored, "a", true), agent(&stored, "b", false));
    a.until("a=Serving b=Serving").await;
    b.until("a=Serving b=Serving").await;
    b.own.send_modify(|row| row.state = "Unreachable");
    a.until("a=Serving b=Unreachable").await;
    // In order: at once.
    let began = Instant::now();
    b.stop.request();
    b.task.await.unwrap();
    a.until("a=Serving").await;
    assert!(began.elapsed() < LONGEST / 2);
    // By a crash: after a while, and then what is left of it is taken away.
    let c = agent(&stored, "c", false);
    a.until("a=Serving c=Serving").await;
    c.task.abort();
    a.until("a=Serving").await;
    sleep(RENEW).await;
    assert_eq!(stored.lock().unwrap().leases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_says_nothing_about_the_others() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let (mut a, mut b) = (agent(&stored, "a", true), agent(&stored, "b", false));
    a.until("a=Serving b=Serving").await;
    b.until("a=Serving b=Serving").await;
    {
        let mut stored = stored.lock().unwrap();
        stored.down = true;
        stored.watches.clear();
    }
    sleep(LONGEST * 3).await;
    assert!(a.rows.try_recv().is_err() && b.rows.try_recv().is_err());
    stored.lock().unwrap().down = false;
    sleep(LONGEST * 3).await;
    assert!(a.rows.try_recv().is_err() && b.rows.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_shows_nothing_says_nothing_about_the_others() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let (mut a, mut b) = (agent(&stored, "a", true), agent(&stored, "b", false));
    a.until("a=Serving b=Serving").await;
    b.until("a=Serving b=Serving").await;
    stored.lock().unwrap().hung = true;
    sleep(LONGEST * 4).await;
    assert!(a.rows.try_recv().is_err() && b.rows.try_recv().is_err());
    assert_eq!(stored.lock().unwrap().leases.len(), 2);
    // It goes on: what died meanwhile is found out.
    b.task.abort();
    {
        let mut stored = stored.lock().unwrap();
        stored.hung = false;
        stored.show();
    }
    a.until("a=Serving").await;
    sleep(RENEW).await;
    assert_eq!(stored.lock().unwrap().leases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_taken_for_gone_and_has_moved_keeps_its_lease() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let (mut a, b) = (agent(&stored, "a", true), agent(&stored, "b", false));
    a.until("a=Serving b=Serving").await;
    b.task.abort();
    sleep(RENEW).await;
    // It is back, of which the watch is late to tell.
    for lease in stored.lock().unwrap().leases.values_mut() {
        if lease["metadata"]["annotations"][NAME] == "b" {
            lease["metadata"]["resourceVersion"] = "9999".into();
        }
    }
    a.until("a=Serving").await;
    sleep(RENEW).await;
    assert_eq!(stored.lock().unwrap().leases.len(), 2);
}

#[test]
fn a_lease_of_somebody_else_is_nobody() {
    assert_eq!(row(&Lease::default()), None);
}
