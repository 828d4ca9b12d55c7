//! Secrets on an API server that holds a few, and is asked for no others.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::secrets::BY_NAME;
use crate::cluster::tests::api_server::{Asked, Log, Reply, failure, server};

#[derive(Default)]
struct Stored {
    /// Contents and version.
    secrets: BTreeMap<String, (String, u64)>,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    version: u64,
    /// Answers to reads by name.
    refuse: Option<u16>,
    /// Reads by name are not answered.
    hang: bool,
    /// All of the cluster may not be listed.
    narrow: bool,
}

impl Stored {
    fn meta(name: &str, version: u64) -> Value {
        // Those of other namespaces are called after them.
        let namespace = name.strip_prefix("of-").unwrap_or("n");
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string() },
        })
    }

    fn set(&mut self, name: &str, value: &str) {
        self.version += 1;
        let before = self.secrets.insert(name.into(), (value.into(), self.version));
        self.tell(if before.is_some() { "MODIFIED" } else { "ADDED" }, name);
    }

    fn remove(&mut self, name: &str) {
        self.version += 1;
        self.secrets.remove(name);
        self.tell("DELETED", name);
    }

    fn tell(&mut self, kind: &str, name: &str) {
        let event = json!({ "type": kind, "object": Self::meta(name, self.version) });
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        if let Some((_, name)) = asked.path.split_once("/secrets/") {
            if self.hang {
                return Reply::Hang;
            }
            if let Some(code) = self.refuse {
                return failure(code, "no");
            }
            return match self.secrets.get(name) {
                Some((value, version)) => {
                    let mut secret = Self::meta(name, *version);
                    secret["data"] = json!({ "tls.crt": value });
                    Reply::Json(200, secret)
                }
                None => failure(404, "not found"),
            };
        }
        if self.narrow && asked.path == "/api/v1/secrets" {
            return failure(403, "not all of them");
        }
        if asked.query.contains("watch") {
            let (watch, events) = mpsc::unbounded_channel();
            self.watches.push(watch);
            return Reply::Watch(Vec::new(), Some(events));
        }
        let named =
            asked.query.split_once("metadata.name%3D").map(|(_, rest)| rest.split('&').next().unwrap().to_owned());
        let namespace = asked.path.strip_prefix("/api/v1/namespaces/").and_then(|path| path.strip_suffix("/secrets"));
        let within =
            |name: &str| namespace.is_none_or(|namespace| Self::meta(name, 0)["metadata"]["namespace"] == namespace);
        let wanted = |name: &&String| named.as_ref().is_none_or(|named| named == *name) && within(name);
        let items: Vec<Value> =
            self.secrets.iter().filter(|(name, _)| wanted(name)).map(|(name, (_, v))| Self::meta(name, *v)).collect();
        Reply::Json(200, json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": items }))
    }
}

struct Bench {
    stored: Arc<Mutex<Stored>>,
    asked: mpsc::UnboundedSender<(Key, bool)>,
    inputs: mpsc::Receiver<Input>,
    log: Log,
}

fn bench() -> Bench {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let server_side = Arc::clone(&stored);
    let (client, log) = server(move |asked| server_side.lock().unwrap().answer(asked));
    let (asked_in, asked) = mpsc::unbounded_channel();
    let (sender, inputs) = mpsc::channel(1_000);
    let secrets = Secrets {
        client,
        asked,
        inputs: sender,
        options: Options::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
    };
    tokio::spawn(secrets.run());
    Bench { stored, asked: asked_in, inputs, log }
}

impl Bench {
    fn ask(&self, name: &str, wanted: bool) {
        let namespace = name.strip_prefix("of-").unwrap_or("n");
        self.asked.send((Key::new(namespace, name), wanted)).unwrap();
    }

    /// What is listed.
    fn lists(&self) -> BTreeSet<String> {
        let all = self.log.all().into_iter().filter(|asked| !asked.path.contains("/secrets/"));
        all.filter(|asked| !asked.query.contains("limit=1&") && !asked.query.ends_with("limit=1"))
            .map(|asked| asked.path)
            .collect()
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap()
    }

    /// `name=contents`, or `-name`.
    async fn told(&mut self) -> String {
        match timeout(Duration::from_secs(600), self.inputs.recv()).await {
            Ok(Some(Input::Secret(secret))) => {
                let value = String::from_utf8(secret.data["tls.crt"].to_vec()).unwrap();
                format!("{}={value}", secret.meta.key.name)
            }
            Ok(Some(Input::Vanished(Kind::Secret, key))) => format!("-{}", key.name),
            Ok(Some(Input::Unreadable(key))) => format!("?{}", key.name),
            other => panic!("{other:?}"),
        }
    }

    async fn nothing(&mut self) {
        let told = timeout(Duration::from_secs(10), self.inputs.recv()).await;
        assert!(told.is_err(), "{told:?}");
    }

    fn reads(&self) -> usize {
        self.log.all().iter().filter(|asked| asked.path.contains("/secrets/")).count()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_referred_to_is_read_and_followed_and_nothing_else() {
    let mut bench = bench();
    bench.server().set("a", "b25l");
    bench.server().set("other", "eA==");
    bench.ask("a", true);
    bench.ask("missing", true);
    let mut told = [bench.told().await, bench.told().await];
    told.sort();
    assert_eq!(told, ["-missing", "a=one"]);
    bench.server().set("a", "dHdv");
    assert_eq!(bench.told().await, "a=two");
    bench.server().set("other", "eQ==");
    bench.nothing().await;
    bench.server().set("missing", "b25l");
    assert_eq!(bench.told().await, "missing=one");
    bench.server().remove("a");
    assert_eq!(bench.told().await, "-a");
    assert!(bench.log.all().iter().all(|asked| !asked.path.ends_with("/other")), "nobody has asked for it");
}

#[tokio::test(start_paused = true)]
async fn many_are_followed_by_one_watch() {
    let mut bench = bench();
    let names: Vec<String> = (0..BY_NAME * 3).map(|n| format!("s{n}")).collect();
    for name in &names {
        bench.server().set(name, "b25l");
        bench.ask(name, true);
    }
    for _ in &names {
        assert!(bench.told().await.ends_with("=one"));
    }
    bench.nothing().await;
    assert!(bench.server().watches.len() <= BY_NAME + 1, "{} watches", bench.server().watches.len());
    // Where one has the right to no more, no more is listed.
    assert_eq!(bench.lists(), ["/api/v1/namespaces/n/secrets".to_owned()].into());
    let reads = bench.reads();
    bench.server().set("s7", "dHdv");
    assert_eq!(bench.told().await, "s7=two");
    bench.nothing().await;
    assert_eq!(bench.reads(), reads + 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_refers_to_any_more_is_forgotten_after_a_while() {
    let mut bench = bench();
    bench.server().set("a", "b25l");
    bench.ask("a", true);
    assert_eq!(bench.told().await, "a=one");
    bench.ask("a", false);
    bench.nothing().await;
    // Back within the time: told again, since who asks may have forgotten it.
    bench.ask("a", true);
    assert_eq!(bench.told().await, "a=one");
    tokio::time::sleep(LINGER * 2).await;
    bench.nothing().await;
    bench.ask("a", false);
    tokio::time::sleep(LINGER * 2).await;
    assert_eq!(bench.told().await, "-a");
    bench.server().set("a", "dHdv");
    bench.nothing().await;
}

/// One Secret in each of many namespaces; what is listed when that has settled.
async fn in_many_namespaces(narrow: bool) -> (Bench, BTreeSet<String>) {
    let mut bench = bench();
    bench.server().narrow = narrow;
    let names: Vec<String> = (0..WATCHES + 10).map(|n| format!("of-ns{n}")).collect();
    for name in &names {
        bench.server().set(name, "b25l");
        bench.ask(name, true);
    }
    for _ in &names {
        assert!(bench.told().await.ends_with("=one"));
    }
    bench.nothing().await;
    bench.server().set("of-ns3", "dHdv");
    assert_eq!(bench.told().await, "of-ns3=two");
    bench.nothing().await;
    let lists = bench.lists();
    (bench, lists)
}

#[tokio::test(start_paused = true)]
async fn those_of_many_namespaces_are_followed_by_one_watch_where_we_have_the_right_to_it() {
    let (bench, lists) = in_many_namespaces(false).await;
    assert_eq!(lists, ["/api/v1/secrets".to_owned()].into());
    assert_eq!(bench.server().watches.len(), 1);
    // The right is taken away.
    bench.server().narrow = true;
    tokio::time::sleep(LOOK * 2).await;
    assert_eq!(bench.lists().len(), WATCHES + 10 + 1);
}

#[tokio::test(start_paused = true)]
async fn and_in_each_namespace_where_we_have_not() {
    let (_bench, lists) = in_many_namespaces(true).await;
    assert!(!lists.contains("/api/v1/secrets"), "{lists:?}");
    assert_eq!(lists.len(), WATCHES + 10);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_read_is_said_to_be_unreadable_after_a_while_and_goes_on_being_tried() {
    let mut bench = bench();
    bench.server().set("a", "b25l");
    for hang in [false, true] {
        bench.server().refuse = Some(500);
        bench.server().hang = hang;
        bench.ask("a", true);
        bench.nothing().await;
        assert_eq!(bench.told().await, "?a");
        // Once.
        tokio::time::sleep(PATIENCE * 4).await;
        bench.nothing().await;
        bench.server().refuse = None;
        bench.server().hang = false;
        assert_eq!(bench.told().await, "a=one");
        // What was read stays as it was.
        bench.server().refuse = Some(500);
        bench.server().set("a", "b25l");
        tokio::time::sleep(PATIENCE * 4).await;
        bench.nothing().await;
        bench.server().refuse = None;
        assert_eq!(bench.told().await, "a=one");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_forbidden_is_as_good_as_missing_at_once() {
    let mut bench = bench();
    bench.server().set("a", "b25l");
    bench.server().refuse = Some(403);
    bench.ask("a", true);
    assert_eq!(bench.told().await, "?a");
    bench.server().refuse = None;
    assert_eq!(bench.told().await, "a=one");
}

#[tokio::test]
async fn a_panic_in_a_watch_is_not_swallowed() {
    let (client, _) = server(|asked| {
        assert!(asked.path.contains("/secrets/"), "a watch begins");
        failure(404, "not found")
    });
    let ((asked_in, asked), (sender, _inputs)) = (mpsc::unbounded_channel(), mpsc::channel(1));
    let (options, jitter) = (Options::default(), Jitter::seeded(1));
    let secrets = Secrets { client, asked, inputs: sender, options, jitter, meter: Arc::new(Unmetered) };
    asked_in.send((Key::new("n", "a"), true)).unwrap();
    let ended = timeout(Duration::from_secs(60), tokio::spawn(secrets.run())).await.unwrap();
    assert!(ended.unwrap_err().is_panic());
}
