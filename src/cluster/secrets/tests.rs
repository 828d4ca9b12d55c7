//! Secrets on an API server that holds a few, and is asked for no others.

use std::sync::Mutex as StdMutex;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Log, Reply, failure, server};

#[derive(Default)]
struct Stored {
    /// Value and version, by name.
    secrets: BTreeMap<String, (String, u64)>,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    version: u64,
    fail: bool,
}

impl Stored {
    fn meta(name: &str, version: u64) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": name, "namespace": "infra", "resourceVersion": version.to_string() },
        })
    }

    fn set(&mut self, name: &str, value: &str) {
        self.version += 1;
        let before = self.secrets.insert(name.into(), (value.into(), self.version));
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.tell(kind, name);
    }

    fn remove(&mut self, name: &str) {
        self.version += 1;
        self.secrets.remove(name);
        self.tell("DELETED", name);
    }

    /// To everybody, whatever the selector: those who did not ask must not mind.
    fn tell(&mut self, kind: &str, name: &str) {
        let event = json!({ "type": kind, "object": Self::meta(name, self.version) });
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        if self.fail {
            return failure(500, "etcd");
        }
        if let Some(name) = asked.path.strip_prefix("/api/v1/namespaces/infra/secrets/") {
            return match self.secrets.get(name) {
                Some((value, version)) => {
                    let mut secret = Self::meta(name, *version);
                    secret["data"] = json!({ "password": value });
                    Reply::Json(200, secret)
                }
                None => failure(404, "not found"),
            };
        }
        assert_eq!(asked.path, "/api/v1/namespaces/infra/secrets");
        if asked.query.contains("watch") {
            let (watch, events) = mpsc::unbounded_channel();
            self.watches.push(watch);
            return Reply::Watch(Vec::new(), Some(events));
        }
        let wanted = |name: &str| match asked.query.split_once("metadata.name%3D") {
            Some((_, selected)) => selected.split('&').next() == Some(name),
            None => true,
        };
        let items: Vec<Value> = self
            .secrets
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, (_, version))| Self::meta(name, *version))
            .collect();
        Reply::Json(200, json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": items }))
    }
}

struct Bench {
    stored: Arc<StdMutex<Stored>>,
    references: References,
    store: SecretStore,
    inputs: mpsc::Receiver<Input>,
    log: Log,
    _task: JoinHandle<Result<(), Closed>>,
}

fn bench() -> Bench {
    let stored: Arc<StdMutex<Stored>> = Arc::default();
    let server_side = Arc::clone(&stored);
    let (client, log) = server(move |asked| server_side.lock().unwrap().answer(asked));
    let (sender, inputs) = mpsc::channel(1_000);
    let (references, store) = (References::default(), SecretStore::default());
    let secrets = Secrets {
        client,
        references: references.clone(),
        store: store.clone(),
        inputs: sender,
        options: Options::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
    };
    Bench { stored, references, store, inputs, log, _task: tokio::spawn(secrets.run()) }
}

fn key(name: &str) -> Key {
    Key::new("infra", name)
}

impl Bench {
    fn server(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap()
    }

    async fn told(&mut self) -> (Key, Option<u64>) {
        match timeout(Duration::from_secs(60), self.inputs.recv()).await {
            Ok(Some(Input::Secret(key, revision))) => (key, revision),
            other => panic!("{other:?}"),
        }
    }

    async fn quiet(&mut self) {
        let more = timeout(Duration::from_secs(30), self.inputs.recv()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

/// "one" and "two" in base64.
const ONE: &str = "b25l";
const TWO: &str = "dHdv";

#[tokio::test(start_paused = true)]
async fn contents_are_followed_and_the_last_known_are_kept() {
    let mut bench = bench();
    bench.server().set("login", ONE);
    bench.server().set("unrelated", ONE);
    bench.references.set(&key("main"), [key("login")]);
    let (name, first) = bench.told().await;
    assert_eq!(name, key("login"));
    assert_eq!(bench.store.get(&key("login")).unwrap().get("password"), Some(&b"one"[..]));
    bench.quiet().await;

    bench.server().set("unrelated", TWO);
    bench.server().set("login", TWO);
    let (_, second) = bench.told().await;
    assert!(second.is_some() && second != first);
    // The same contents again are no news.
    bench.server().set("login", TWO);
    bench.quiet().await;

    bench.server().remove("login");
    assert_eq!(bench.told().await, (key("login"), None));
    assert_eq!(bench.store.get(&key("login")).unwrap().get("password"), Some(&b"two"[..]));
    bench.server().set("login", TWO);
    assert_eq!(bench.told().await, (key("login"), second));

    let read: Vec<String> = bench.log.all().into_iter().map(|asked| asked.path).collect();
    assert!(read.iter().all(|path| !path.contains("unrelated")), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_one_is_told_and_found_when_it_comes() {
    let mut bench = bench();
    bench.references.set(&key("main"), [key("login")]);
    assert_eq!(bench.told().await, (key("login"), None));
    bench.server().set("login", ONE);
    assert!(bench.told().await.1.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_referenced_no_more_is_forgotten() {
    let mut bench = bench();
    bench.server().set("login", ONE);
    bench.references.set(&key("main"), [key("login")]);
    bench.told().await;
    bench.references.set(&key("main"), []);
    bench.quiet().await;
    assert!(bench.store.get(&key("login")).is_none());
    bench.server().set("login", TWO);
    bench.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn above_a_few_dozen_one_watch_serves_the_namespace() {
    let mut bench = bench();
    let names: Vec<String> = (0..=BY_NAME).map(|index| format!("login-{index}")).collect();
    for name in &names {
        bench.server().set(name, ONE);
    }
    bench.references.set(&key("main"), names.iter().map(|name| key(name)));
    for _ in &names {
        bench.told().await;
    }
    bench.quiet().await;
    let lists = bench.log.all().iter().filter(|asked| asked.query.contains("limit=")).count();
    assert_eq!(lists, 1);
    bench.server().set("login-3", TWO);
    assert_eq!(bench.told().await.0, key("login-3"));
    let read = bench.log.all().iter().filter(|asked| asked.path.ends_with("login-4")).count();
    assert_eq!(read, 1, "what has not moved is not read again");
}

#[tokio::test(start_paused = true)]
async fn a_failing_api_server_makes_nothing_missing() {
    let mut bench = bench();
    bench.server().set("login", ONE);
    bench.server().fail = true;
    bench.references.set(&key("main"), [key("login")]);
    bench.quiet().await;
    bench.server().fail = false;
    let began = Instant::now();
    assert!(bench.told().await.1.is_some());
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn contents_are_not_shown() {
    let data: SecretData = [("password".to_owned(), b"hunter2".to_vec())].into_iter().collect();
    let shown = format!("{data:?}");
    assert!(shown.contains("password") && !shown.contains("hunter2") && !shown.contains("104"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_whose_router_config_was_gone_for_a_moment_is_told_again() {
    let mut bench = bench();
    bench.server().set("login", ONE);
    bench.references.set(&key("main"), [key("login")]);
    let first = bench.told().await;
    // Both before anybody looks.
    bench.references.set(&key("main"), []);
    bench.references.set(&key("main"), [key("login")]);
    assert_eq!(bench.told().await, first);
    bench.quiet().await;
}

#[tokio::test]
async fn a_panic_in_a_watch_is_not_swallowed() {
    let (client, _) = server(|asked| {
        assert!(asked.path.contains("/secrets/"), "a watch begins");
        failure(404, "not found")
    });
    let (references, (sender, _inputs)) = (References::default(), mpsc::channel(10));
    references.set(&key("config"), [key("a")]);
    let secrets = Secrets {
        client,
        references,
        store: SecretStore::default(),
        inputs: sender,
        options: Options::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
    };
    let ended = timeout(Duration::from_secs(60), tokio::spawn(secrets.run())).await.unwrap();
    assert!(ended.unwrap_err().is_panic());
}
