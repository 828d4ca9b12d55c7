//! EndpointSlices on an API server that hands out what the selector takes.

use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Log, Reply, server};

#[derive(Default)]
struct Stored {
    slices: BTreeMap<String, Value>,
    watches: Vec<(String, UnboundedSender<Value>)>,
    version: u64,
}

fn service_of(slice: &Value) -> &str {
    slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str().unwrap()
}

impl Stored {
    fn tell(&mut self, kind: &str, slice: &Value) {
        let event = json!({ "type": kind, "object": slice });
        self.watches.retain(|(service, watch)| service != service_of(slice) || watch.send(event.clone()).is_ok());
    }

    fn set(&mut self, name: &str, service: &str, endpoints: Value) {
        self.version += 1;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": name, "namespace": "infra", "resourceVersion": self.version.to_string(),
                "labels": { "kubernetes.io/service-name": service },
            },
            "ports": [{ "name": "amqp", "port": 5672, "protocol": "TCP" }, { "name": "sctp", "port": 9, "protocol": "SCTP" }],
            "endpoints": endpoints,
        });
        self.slices.insert(name.into(), slice.clone());
        self.tell("MODIFIED", &slice);
    }

    fn remove(&mut self, name: &str) {
        if let Some(slice) = self.slices.remove(name) {
            self.tell("DELETED", &slice);
        }
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        assert_eq!(asked.path, "/apis/discovery.k8s.io/v1/namespaces/infra/endpointslices");
        let selector = asked.query.split("labelSelector=kubernetes.io%2Fservice-name%3D").nth(1).unwrap();
        let service = selector.split('&').next().unwrap().to_owned();
        if asked.query.contains("watch=true") {
            let (watch, events) = mpsc::unbounded_channel();
            self.watches.push((service, watch));
            return Reply::Watch(Vec::new(), Some(events));
        }
        let items: Vec<&Value> = self.slices.values().filter(|slice| service_of(slice) == service).collect();
        Reply::Json(200, json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": items }))
    }
}

struct Bench {
    stored: Arc<Mutex<Stored>>,
    references: References,
    inputs: mpsc::Receiver<Input>,
    log: Log,
    _task: JoinHandle<Result<(), Closed>>,
}

fn bench() -> Bench {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let server_side = Arc::clone(&stored);
    let (client, log) = server(move |asked| server_side.lock().unwrap().answer(asked));
    let (sender, inputs) = mpsc::channel(100);
    let references = References::default();
    let follower = EndpointSlices {
        client,
        references: references.clone(),
        inputs: sender,
        options: Options::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
    };
    Bench { stored, references, inputs, log, _task: tokio::spawn(follower.run()) }
}

fn key(name: &str) -> Key {
    Key::new("infra", name)
}

impl Bench {
    fn set(&self, name: &str, service: &str, endpoints: Value) {
        self.stored.lock().unwrap().set(name, service, endpoints);
    }

    /// The Service, how many slices it has, and its endpoints in short.
    async fn told(&mut self) -> (String, usize, Vec<String>) {
        let told = timeout(Duration::from_secs(60), self.inputs.recv()).await.expect("nothing is told").unwrap();
        let Input::Endpoints(service, endpoints) = told else { panic!("{told:?}") };
        let short = |e: &Endpoint| {
            let ports: Vec<String> = e.ports.iter().map(|p| format!("{}:{:?}", p.name, p.number)).collect();
            format!("{} {} {}", e.pod.as_deref().unwrap_or("-"), e.host, ports.join(","))
        };
        (service.name.to_string(), endpoints.slices, endpoints.all.iter().map(short).collect())
    }

    async fn silent(&mut self) {
        assert!(timeout(Duration::from_secs(60), self.inputs.recv()).await.is_err());
    }
}

fn pod(name: &str, address: &str) -> Value {
    json!({ "addresses": [address], "targetRef": { "kind": "Pod", "name": name, "namespace": "infra" } })
}

#[tokio::test(start_paused = true)]
async fn only_what_is_referenced_is_asked_for_and_every_change_of_it_told() {
    let mut bench = bench();
    for number in 0..50 {
        bench.set(&format!("other-{number}"), "other", json!([pod("o", "10.1.0.1")]));
    }
    bench.silent().await;
    assert_eq!(bench.log.len(), 0);
    bench.set("routers-a", "routers", json!([pod("r-0", "10.0.0.1")]));
    bench.references.set(&key("main"), [key("routers")]);
    assert_eq!(bench.told().await, ("routers".into(), 1, vec!["r-0 10.0.0.1 amqp:Some(5672)".to_owned()]));
    bench.set("other-1", "other", json!([pod("o", "10.1.0.2")]));
    bench.set("routers-b", "routers", json!([pod("r-1", "10.0.0.2"), { "addresses": ["10.0.0.3", "10.0.0.4"] }]));
    let (_, slices, endpoints) = bench.told().await;
    assert_eq!((slices, endpoints.len(), endpoints[0].as_str()), (2, 3, "- 10.0.0.3 amqp:Some(5672)"));
    bench.stored.lock().unwrap().remove("routers-a");
    assert_eq!(bench.told().await.2.len(), 2);
    // Moved and not changed.
    bench.set("routers-b", "routers", json!([{ "addresses": ["10.0.0.3"] }, pod("r-1", "10.0.0.2")]));
    bench.silent().await;
    assert!(bench.log.all().iter().all(|asked| asked.query.contains("service-name%3Drouters")));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_ready_counts_and_one_that_ends_does_not() {
    let mut bench = bench();
    let conditions = |name: &str, address: &str, conditions: Value| {
        let mut endpoint = pod(name, address);
        endpoint["conditions"] = conditions;
        endpoint
    };
    bench.set(
        "routers",
        "routers",
        json!([
            conditions("new", "10.0.0.1", json!({ "ready": false, "serving": false, "terminating": false })),
            conditions("leaving", "10.0.0.2", json!({ "ready": false, "serving": true, "terminating": true })),
            conditions("left", "10.0.0.3", json!({ "ready": false, "serving": false, "terminating": true })),
        ]),
    );
    bench.references.set(&key("main"), [key("routers")]);
    let (_, _, endpoints) = bench.told().await;
    let names: Vec<&str> = endpoints.iter().map(|e| e.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["leaving", "new"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_without_slices_is_told_as_such_and_one_named_again_is_told_again() {
    let mut bench = bench();
    bench.references.set(&key("main"), [key("routers")]);
    assert_eq!(bench.told().await, ("routers".into(), 0, Vec::new()));
    // Whoever forgot it meanwhile hears of it again.
    bench.references.set(&key("main"), []);
    bench.references.set(&key("main"), [key("routers")]);
    assert_eq!(bench.told().await, ("routers".into(), 0, Vec::new()));
    bench.references.set(&key("main"), []);
    bench.silent().await;
    bench.set("a", "routers", json!([pod("r", "10.0.0.1")]));
    bench.silent().await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_cannot_be_read_says_what_it_said_before() {
    let mut bench = bench();
    bench.set("a", "routers", json!([pod("r", "10.0.0.1")]));
    bench.references.set(&key("main"), [key("routers")]);
    bench.told().await;
    bench.set("a", "routers", json!("later versions"));
    bench.silent().await;
    bench.set("a", "routers", json!([pod("r", "10.0.0.2")]));
    assert_eq!(bench.told().await.2, ["r 10.0.0.2 amqp:Some(5672)"]);
}
