//! Children on an API server that keeps Services and EndpointSlices, applies like the real one, and tells of changes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Log, Reply, failure, server};
use crate::engine::permit::{Granter, permit};
use crate::messaging::exposure::{Exposed, Protocol, ServiceWish};

type Watches = Vec<(&'static str, mpsc::UnboundedSender<Value>)>;

#[derive(Default)]
struct Stored {
    objects: BTreeMap<(&'static str, String), Value>,
    watches: Watches,
    version: u64,
    uids: u64,
    /// Answers to writes, as long as there are some.
    refuse: Vec<u16>,
}

const PLURALS: [&str; 2] = ["services", "endpointslices"];

fn labelled(object: &Value) -> bool {
    object["metadata"]["labels"].get(SPACE_LABEL).is_some()
}

impl Stored {
    fn tell(&mut self, kind: &str, plural: &'static str, object: &Value) {
        let event = json!({ "type": kind, "object": object });
        self.watches.retain(|(watched, watch)| *watched != plural || watch.send(event.clone()).is_ok());
    }

    fn put(&mut self, plural: &'static str, name: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"].get("uid").is_none_or(Value::is_null) {
            self.uids += 1;
            object["metadata"]["uid"] = format!("child-{}", self.uids).into();
        }
        let before = self.objects.insert((plural, name.to_owned()), object.clone());
        match (before.as_ref().is_some_and(labelled), labelled(&object)) {
            (false, true) => self.tell("ADDED", plural, &object),
            (true, true) => self.tell("MODIFIED", plural, &object),
            (true, false) => self.tell("DELETED", plural, &object),
            (false, false) => {}
        }
        object
    }

    fn remove(&mut self, plural: &'static str, name: &str) {
        if let Some(object) = self.objects.remove(&(plural, name.to_owned())) {
            self.version += 1;
            self.tell("DELETED", plural, &object);
        }
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        let plural = PLURALS.into_iter().find(|plural| asked.path.contains(plural)).unwrap();
        let name = asked.path.rsplit('/').next().filter(|last| *last != plural);
        let Some(name) = name else {
            assert!(asked.query.contains("labelSelector=waystation.dev%2Faddress-space"), "{}", asked.query);
            if asked.query.contains("watch=true") {
                let (watch, events) = mpsc::unbounded_channel();
                self.watches.push((plural, watch));
                return Reply::Watch(Vec::new(), Some(events));
            }
            let mine = self.objects.iter().filter(|((of, _), object)| *of == plural && labelled(object));
            let items: Vec<&Value> = mine.map(|(_, object)| object).collect();
            return Reply::Json(
                200,
                json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": items }),
            );
        };
        let there = self.objects.get(&(plural, name.to_owned())).cloned();
        match (asked.method.clone(), there) {
            (Method::GET, None) => failure(404, "not found"),
            (Method::GET, Some(there)) => Reply::Json(200, there),
            (Method::DELETE, None) => failure(404, "not found"),
            (Method::DELETE, Some(there)) => {
                assert_eq!(asked.body["preconditions"]["uid"], there["metadata"]["uid"]);
                self.remove(plural, name);
                Reply::Json(200, there)
            }
            (Method::PATCH, there) => {
                if let Some(code) = self.refuse.pop() {
                    return failure(code, "the quota is used up");
                }
                assert!(asked.query.contains("force=true") && asked.query.contains("fieldManager=waystation"));
                let mut object = there.unwrap_or_else(|| json!({ "metadata": {} }));
                merge(&mut object, &asked.body);
                Reply::Json(200, self.put(plural, name, object))
            }
            (method, _) => panic!("{method}"),
        }
    }
}

/// As if all lists belonged to us.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

struct Bench {
    stored: Arc<Mutex<Stored>>,
    commands: mpsc::UnboundedSender<Command>,
    inputs: mpsc::Receiver<Input>,
    log: Log,
    granter: Granter,
    _task: JoinHandle<()>,
}

fn bench() -> Bench {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let server_side = Arc::clone(&stored);
    let (client, log) = server(move |asked| server_side.lock().unwrap().answer(asked));
    let (sender, inputs) = mpsc::channel(100);
    let (commands, wishes) = mpsc::unbounded_channel();
    let (granter, permit) = permit();
    granter.grant(Instant::now() + Duration::from_secs(1_000_000));
    let children = Children {
        client: client.clone(),
        write_client: client,
        permit,
        commands: wishes,
        inputs: sender,
        options: Options::default(),
        deadline: Duration::from_secs(5),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
        stop: Stop::default(),
    };
    Bench { stored, commands, inputs, log, granter, _task: tokio::spawn(children.run()) }
}

fn wish(to: Option<&[&str]>) -> ServiceWish {
    let addresses = |to: &[&str]| {
        let all: Vec<_> = to.iter().map(|address| address.parse().unwrap()).collect();
        if all.is_empty() { BTreeMap::new() } else { BTreeMap::from([((false, 6000), all)]) }
    };
    ServiceWish { protocol: Protocol::Amqp, load_balancer: false, to: to.map(addresses) }
}

impl Bench {
    fn server(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap()
    }

    fn want(&self, wishes: &[(&str, ServiceWish)]) {
        let services = wishes.iter().map(|(name, wish)| ((*name).into(), wish.clone())).collect();
        let exposure = Exposure { space: Key::new("team", "shop"), uid: "u-1".into(), services };
        self.commands.send(Command::Have(exposure)).unwrap();
    }

    async fn told(&mut self) -> Vec<(String, Exposed)> {
        match timeout(Duration::from_secs(600), self.inputs.recv()).await.expect("nothing is told").unwrap() {
            Input::Exposed(space, uid, report) => {
                assert_eq!((space, &*uid), (Key::new("team", "shop"), "u-1"));
                report.into_iter().map(|(name, state)| (name.to_string(), state)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits until nothing moves any more; gives what was told last, if anything.
    async fn rest(&mut self) -> Option<Vec<(String, Exposed)>> {
        let mut last = None;
        while let Ok(Some(input)) = timeout(Duration::from_secs(400), self.inputs.recv()).await {
            let Input::Exposed(_, _, report) = input else { panic!("{input:?}") };
            last = Some(report.into_iter().map(|(name, state)| (name.to_string(), state)).collect());
        }
        last
    }

    fn object(&self, plural: &'static str, name: &str) -> Value {
        self.server().objects.get(&(plural, name.to_owned())).cloned().unwrap_or_default()
    }

    fn edit(&self, plural: &'static str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.object(plural, name);
        edit(&mut object);
        self.server().put(plural, name, object);
    }

    fn writes(&self) -> usize {
        self.log.all().iter().filter(|asked| asked.method != Method::GET).count()
    }
}

fn made(name: &str) -> Vec<(String, Exposed)> {
    vec![(name.to_owned(), Exposed::Made)]
}

#[tokio::test(start_paused = true)]
async fn a_service_and_where_it_leads_are_made_once_and_owned_by_the_space() {
    let mut bench = bench();
    assert_eq!(bench.rest().await, None);
    assert_eq!(bench.log.len(), 0, "who has no endpoints pays nothing");
    bench.want(&[("in", wish(Some(&["10.0.0.1", "10.0.0.2"])))]);
    assert_eq!(bench.rest().await, Some(made("in")));
    let service = bench.object("services", "shop-in");
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(service["spec"]["ports"][0], json!({ "name": "amqp", "port": 5672, "protocol": "TCP" }));
    let owner = &service["metadata"]["ownerReferences"][0];
    assert_eq!((owner["uid"].as_str(), owner["kind"].as_str()), (Some("u-1"), Some("AddressSpace")));
    assert_eq!(owner.get("blockOwnerDeletion"), None);
    let slice = bench.object("endpointslices", "shop-in-ipv4-6000");
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "shop-in");
    assert_eq!(slice["endpoints"][1]["addresses"], json!(["10.0.0.2"]));
    assert_eq!(slice["ports"][0]["port"], 6000);
    assert_eq!(bench.writes(), 2);
    // The same again, as after a restart: nothing.
    bench.want(&[("in", wish(Some(&["10.0.0.1", "10.0.0.2"])))]);
    assert_eq!(bench.rest().await, Some(made("in")));
    assert_eq!(bench.writes(), 2);
    bench.want(&[("in", wish(Some(&["10.0.0.1"])))]);
    bench.rest().await;
    assert_eq!(bench.object("endpointslices", "shop-in-ipv4-6000")["endpoints"].as_array().unwrap().len(), 1);
    assert_eq!(bench.writes(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_or_deleted_by_hand_comes_back_and_what_others_own_stays() {
    let mut bench = bench();
    bench.want(&[("in", wish(Some(&["10.0.0.1"])))]);
    bench.rest().await;
    bench.edit("services", "shop-in", |service| service["spec"]["ports"][0]["port"] = 1.into());
    bench.rest().await;
    assert_eq!(bench.object("services", "shop-in")["spec"]["ports"][0]["port"], 5672);
    bench.edit("endpointslices", "shop-in-ipv4-6000", |slice| slice["endpoints"] = json!([]));
    bench.rest().await;
    assert_eq!(bench.object("endpointslices", "shop-in-ipv4-6000")["endpoints"].as_array().unwrap().len(), 1);
    let before = bench.writes();
    bench.edit("services", "shop-in", |service| {
        service["metadata"]["annotations"] = json!({ "example.com/by": "somebody" });
        service["spec"]["sessionAffinity"] = "ClientIP".into();
    });
    bench.rest().await;
    assert_eq!(bench.writes(), before, "others may say more");
    bench.edit("services", "shop-in", |service| service["metadata"]["labels"] = json!({}));
    bench.rest().await;
    assert_eq!(bench.object("services", "shop-in")["metadata"]["labels"][SPACE_LABEL], "shop");
    bench.server().remove("services", "shop-in");
    bench.server().remove("endpointslices", "shop-in-ipv4-6000");
    bench.rest().await;
    assert_eq!(bench.object("services", "shop-in")["spec"]["type"], "ClusterIP");
    assert!(bench.object("endpointslices", "shop-in-ipv4-6000").is_object());
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_somebody_else_is_named_and_not_touched_until_it_is_gone() {
    let mut bench = bench();
    let foreign = json!({ "metadata": { "name": "shop-in", "namespace": "team" }, "spec": { "type": "ExternalName" } });
    bench.server().put("services", "shop-in", foreign);
    bench.want(&[("in", wish(Some(&["10.0.0.1"]))), ("other", wish(None))]);
    loop {
        let told = bench.told().await;
        if let Some((_, Exposed::Refused(words))) = told.iter().find(|(name, _)| name == "in") {
            assert!(words.contains("Service shop-in is there already and belongs to somebody else"), "{words}");
            if told.len() == 2 {
                assert_eq!(told[1], ("other".to_owned(), Exposed::Made));
                break;
            }
        }
    }
    assert_eq!(bench.object("services", "shop-in")["spec"]["type"], "ExternalName");
    // It holds up nobody else.
    let began = Instant::now();
    bench.server().remove("services", "shop-other");
    while !bench.object("services", "shop-other").is_object() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() < FIRST_WAIT, "{:?}", began.elapsed());
    bench.server().remove("services", "shop-in");
    assert_eq!(bench.rest().await.unwrap()[0], ("in".to_owned(), Exposed::Made));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_servers_words_and_tried_again() {
    let mut bench = bench();
    bench.server().refuse = vec![403, 500];
    bench.want(&[("in", wish(None))]);
    let mut told = bench.told().await;
    while told.is_empty() {
        told = bench.told().await;
    }
    assert_eq!(told, [("in".to_owned(), Exposed::Refused("the quota is used up".into()))]);
    assert_eq!(bench.rest().await, Some(made("in")));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_wished_any_more_goes_and_what_is_not_known_stays() {
    let mut bench = bench();
    bench.want(&[("in", wish(Some(&["10.0.0.1"]))), ("out", wish(Some(&["10.0.0.1"])))]);
    bench.rest().await;
    let foreign = json!({
        "metadata": { "name": "mine", "namespace": "team", "labels": { SPACE_LABEL: "shop" } }, "spec": {},
    });
    bench.server().put("services", "mine", foreign);
    bench.want(&[("in", wish(None))]);
    assert_eq!(bench.rest().await, Some(made("in")));
    let names: Vec<String> = bench.server().objects.keys().map(|(_, name)| name.clone()).collect();
    assert_eq!(names, ["shop-in-ipv4-6000", "mine", "shop-in"]);
    bench.want(&[]);
    assert_eq!(bench.rest().await, Some(Vec::new()));
    assert_eq!(bench.server().objects.len(), 1, "what only has our label is not ours");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_told_once_it_has_an_address() {
    let mut bench = bench();
    bench.want(&[("out", ServiceWish { load_balancer: true, ..wish(None) })]);
    assert_eq!(bench.rest().await, Some(vec![("out".to_owned(), Exposed::Pending)]));
    assert_eq!(bench.object("services", "shop-out")["spec"]["type"], "LoadBalancer");
    bench.edit("services", "shop-out", |service| {
        service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "198.51.100.7" }] } });
    });
    assert_eq!(bench.rest().await, Some(vec![("out".to_owned(), Exposed::At("198.51.100.7".into()))]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_the_permit_or_after_it_was_given_up() {
    let mut bench = bench();
    bench.granter.revoke();
    bench.want(&[("in", wish(Some(&["10.0.0.1"])))]);
    bench.rest().await;
    assert_eq!(bench.writes(), 0);
    bench.commands.send(Command::Resign).unwrap();
    bench.granter.grant(Instant::now() + Duration::from_secs(1_000_000));
    bench.rest().await;
    assert_eq!(bench.writes(), 0);
    bench.want(&[("in", wish(Some(&["10.0.0.1"])))]);
    assert_eq!(bench.rest().await, Some(made("in")));
    // A space that is gone takes its children with it.
    bench.commands.send(Command::Forget(Key::new("team", "shop"))).unwrap();
    bench.server().remove("services", "shop-in");
    let before = bench.writes();
    bench.rest().await;
    assert_eq!(bench.writes(), before);
}
