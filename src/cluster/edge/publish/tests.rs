//! Which writes follow from what is heard.

use std::sync::Mutex;

use http::Method;
use tokio::time::sleep;

use super::*;
use crate::cluster::events;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Log, Reply, TestClock, failure, server};

fn config(publish: &str) -> api::RouterConfig {
    serde_json::from_str(&format!(
        r#"{{"apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig", "metadata": {{"name": "c"}},
            "spec": {{"edge": {publish}}}}}"#
    ))
    .unwrap()
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn seen(name: &str, addresses: &[&str]) -> Observed {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Observed::Ingress { key: key(name), uid: "u".into(), addresses }
}

/// `name=addresses` to be written, `-name` where ours are to go; carried out at once.
fn writes(state: &mut State) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(Write { key, wish, .. }) = state.next() {
        let known = state.ingresses.get_mut(&key).unwrap();
        known.writing = false;
        known.clear &= wish.is_some();
        match wish {
            Some(addresses) => {
                all.push(format!("{}={}", key.name, addresses.join(",")));
                known.addresses = addresses;
            }
            None => {
                all.push(format!("-{}", key.name));
                known.addresses.clear();
            }
        }
    }
    all
}

const FIXED: &str = r#"{"publish": {"addresses": ["192.0.2.1", "edge.example"]}}"#;
const SERVICE: &str = r#"{"publish": {"service": "lb"}}"#;

#[test]
fn only_what_differs_is_written_and_only_where_it_is_served() {
    let mut state = State::default();
    state.config(&config(FIXED));
    state.take(seen("new", &[]), Instant::now());
    state.take(seen("same", &["192.0.2.1", "edge.example"]), Instant::now());
    state.take(seen("other", &["192.0.2.9"]), Instant::now());
    state.take(seen("foreign", &["192.0.2.9"]), Instant::now());
    state.take(Observed::Served(["new", "same", "other"].map(|name| (key(name), true)).into()), Instant::now());
    assert_eq!(writes(&mut state), ["new=192.0.2.1,edge.example", "other=192.0.2.1,edge.example"]);
    // What came of it is seen, and is no news.
    state.take(seen("new", &["192.0.2.1", "edge.example"]), Instant::now());
    assert!(writes(&mut state).is_empty());
    // Somebody writes over it: it is put back, not at once.
    let now = Instant::now();
    state.take(seen("new", &["192.0.2.9"]), now);
    assert!(writes(&mut state).is_empty());
    state.due(now + FIRST_WAIT);
    assert_eq!(writes(&mut state), ["new=192.0.2.1,edge.example"]);
}

/// Waits until ours is put back, each time that somebody writes over it.
#[test]
fn what_was_left_is_taken_away_also_where_the_routerconfig_is_heard_of_last() {
    for config_first in [true, false] {
        let mut state = State::default();
        let mut heard = [Observed::Config(Box::new(config(FIXED))), seen("left", &["192.0.2.1", "edge.example"])];
        if !config_first {
            heard.reverse();
        }
        heard.into_iter().for_each(|observed| state.take(observed, Instant::now()));
        state.take(Observed::Served(Vec::new()), Instant::now());
        assert_eq!(writes(&mut state), ["-left"], "{config_first}");
    }
}

fn put_back(state: &mut State, times: usize, now: &mut Instant) -> Vec<u64> {
    let mut waits = Vec::new();
    for _ in 0..times {
        let began = *now;
        state.take(seen("a", &["192.0.2.9"]), *now);
        while writes(state).is_empty() {
            *now += FIRST_WAIT;
            state.due(*now);
        }
        state.take(seen("a", &["192.0.2.1", "edge.example"]), *now);
        waits.push((*now - began).as_secs());
    }
    waits
}

#[test]
fn who_is_written_over_again_and_again_is_put_back_less_and_less_often() {
    let (mut state, mut now) = (State::default(), Instant::now());
    state.config(&config(FIXED));
    state.take(seen("a", &[]), now);
    state.take(Observed::Served(vec![(key("a"), true)]), now);
    assert_eq!(writes(&mut state).len(), 1);
    // What was on the way when we wrote is nobody's fault.
    state.take(seen("a", &[]), now);
    assert_eq!(writes(&mut state).len(), 1);
    state.take(seen("a", &["192.0.2.1", "edge.example"]), now);
    assert_eq!(put_back(&mut state, 11, &mut now), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    // After a while without, it is none of that fight.
    now += PEACE * 2;
    assert_eq!(put_back(&mut state, 2, &mut now), [1, 2]);
    // Nor is what is published from now on.
    state.take(seen("a", &["192.0.2.9"]), now);
    state.config(&config(r#"{"publish": {"addresses": ["192.0.2.7"]}}"#));
    assert_eq!(writes(&mut state), ["a=192.0.2.7"]);
}

#[test]
fn what_is_served_no_more_loses_ours_and_nothing_else() {
    let mut state = State::default();
    state.config(&config(FIXED));
    state.take(seen("left", &["192.0.2.1", "edge.example"]), Instant::now());
    state.take(seen("foreign", &["192.0.2.9"]), Instant::now());
    state.take(seen("ours", &[]), Instant::now());
    state.take(Observed::Served(vec![(key("ours"), true)]), Instant::now());
    // `left` says what only we say: one who led before us was interrupted.
    assert_eq!(writes(&mut state), ["-left", "ours=192.0.2.1,edge.example"]);
    state.take(Observed::Served(vec![(key("ours"), false)]), Instant::now());
    assert_eq!(writes(&mut state), ["-ours"]);
    // A namesake is served like the one before it, until the model says otherwise.
    state.take(Observed::Served(vec![(key("ours"), true)]), Instant::now());
    assert_eq!(writes(&mut state), ["ours=192.0.2.1,edge.example"]);
    state.take(Observed::IngressGone(key("ours")), Instant::now());
    assert!(writes(&mut state).is_empty());
    state.take(seen("ours", &[]), Instant::now());
    assert_eq!(writes(&mut state), ["ours=192.0.2.1,edge.example"]);
}

#[test]
fn a_service_is_followed_and_one_that_says_nothing_changes_nothing() {
    let mut state = State::default();
    state.config(&config(SERVICE));
    state.take(seen("a", &[]), Instant::now());
    state.take(Observed::Served(vec![(key("a"), true)]), Instant::now());
    assert!(writes(&mut state).is_empty());
    state.take(Observed::Service("lb".into(), vec!["198.51.100.1".to_owned()]), Instant::now());
    assert_eq!(writes(&mut state), ["a=198.51.100.1"]);
    state.take(Observed::Service("other".into(), vec!["198.51.100.2".to_owned()]), Instant::now());
    assert!(writes(&mut state).is_empty());
    state.take(Observed::Service("lb".into(), Vec::new()), Instant::now());
    assert!(writes(&mut state).is_empty());
    state.config(&config("{}"));
    assert_eq!(writes(&mut state), ["-a"]);
}

#[test]
fn addresses_and_names_stand_where_they_belong() {
    let addresses = vec!["192.0.2.1".to_owned(), "2001:db8::1".to_owned(), "edge.example".to_owned()];
    let body = body(&key("a"), "u", Some(&addresses));
    let entries = json!([{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }, { "hostname": "edge.example" }]);
    assert_eq!(body["status"]["loadBalancer"]["ingress"], entries);
    assert_eq!(super::body(&key("a"), "u", None)["status"], json!({}));
}

// === The loop ===

const OURS: [&str; 2] = ["192.0.2.1", "edge.example"];

/// What the server answers to writes of a status, and what is seen of it.
type Answer = Box<dyn FnMut(usize, &mpsc::UnboundedSender<Observed>) -> Reply + Send>;

struct Bench {
    observed: mpsc::UnboundedSender<Observed>,
    counted: Arc<Mutex<Vec<WriteResult>>>,
    log: Log,
    _configs: mpsc::UnboundedReceiver<Box<api::RouterConfig>>,
}

/// A publisher that leads, and serves the Ingress `a`. The answer is by the number of the write.
fn bench(mut answer: Answer) -> Bench {
    let (observed_in, observed) = mpsc::unbounded_channel();
    let (configs_in, configs) = mpsc::unbounded_channel();
    let (tell, mut writes) = (observed_in.clone(), 0);
    let fields = json!({ "f:status": { "f:loadBalancer": { "f:ingress": {} } } });
    let entry = json!({ "manager": "waystation-edge-feed", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields });
    let (client, log) = server(move |asked| match asked.method {
        Method::PATCH => {
            writes += 1;
            answer(writes, &tell)
        }
        Method::GET => Reply::Json(
            200,
            json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": { "name": "a", "namespace": "n", "managedFields": [entry] } }),
        ),
        _ => Reply::Json(201, asked.body.clone()),
    });
    let (queue, writer) = events::queue("c", Arc::new(Unmetered));
    let clock = Arc::new(TestClock(Instant::now()));
    tokio::spawn(writer.run(client.clone(), (Permit::unlimited(), Duration::from_secs(5)), clock, "pod-0".into()));
    let counted: Arc<Mutex<Vec<WriteResult>>> = Arc::default();
    let count = Arc::clone(&counted);
    let publisher = Publisher {
        client,
        config: Key::new("edge", "main"),
        observed,
        configs: configs_in,
        permit: Permit::unlimited(),
        deadline: Duration::from_secs(5),
        jitter: Jitter::seeded(1),
        events: queue,
        count: Arc::new(move |result| count.lock().unwrap().push(result)),
        stop: Stop::default(),
    };
    tokio::spawn(publisher.run());
    let bench = Bench { observed: observed_in, counted, log, _configs: configs };
    bench.tell(Observed::Config(Box::new(config(FIXED))));
    bench.tell(seen("a", &[]));
    bench.tell(Observed::Served(vec![(key("a"), true)]));
    bench
}

impl Bench {
    fn tell(&self, observed: Observed) {
        self.observed.send(observed).unwrap();
    }

    fn writes(&self) -> usize {
        self.log.all().iter().filter(|asked| asked.method == Method::PATCH).count()
    }

    fn notes(&self) -> Vec<String> {
        let all = self.log.all();
        let notes = all.iter().filter(|asked| asked.method == Method::POST).map(|asked| &asked.body["note"]);
        notes.map(|note| note.as_str().unwrap().to_owned()).collect()
    }
}

fn written() -> Reply {
    Reply::Json(200, json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "a" } }))
}

#[tokio::test(start_paused = true)]
async fn two_that_publish_different_things_do_not_write_without_pause_and_people_are_told_once() {
    let bench = bench(Box::new(|count, tell| {
        assert!(count < 100, "without pause");
        // The other one answers at once.
        tell.send(seen("a", &OURS)).unwrap();
        tell.send(seen("a", &["192.0.2.9"])).unwrap();
        written()
    }));
    sleep(Duration::from_secs(600)).await;
    assert!((5..=12).contains(&bench.writes()), "{}", bench.writes());
    let notes = bench.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("waystation-edge-feed") && notes[0].contains("ingressClassName"), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_tried_again_less_and_less_often() {
    let bench = bench(Box::new(|count, _| if count < 5 { failure(422, "no") } else { written() }));
    sleep(Duration::from_secs(600)).await;
    let counted = bench.counted.lock().unwrap().clone();
    assert_eq!(counted, [[WriteResult::Failed; 4].as_slice(), &[WriteResult::Written]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_looked_at_again_and_what_is_gone_is_forgotten() {
    let bench = bench(Box::new(|count, _| match count {
        1 => failure(409, "another uid"),
        2 => failure(404, "not found"),
        _ => written(),
    }));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(bench.writes(), 2);
    // Another one of its name is served like it.
    let Observed::Ingress { key, addresses, .. } = seen("a", &[]) else { panic!() };
    bench.tell(Observed::Ingress { key, uid: "another".into(), addresses });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.writes(), 3);
}
