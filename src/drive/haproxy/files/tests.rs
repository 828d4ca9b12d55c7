//! What is written, in which order, and what is left when the disk fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;

use super::*;
use crate::edge::class::Class;
use crate::edge::wanted::{CrtLine, Link, MapName, Server};

/// Files in memory, and the order in which they came and went.
#[derive(Default)]
struct Memory {
    files: Mutex<BTreeMap<String, String>>,
    log: Mutex<Vec<String>>,
    full: AtomicBool,
}

impl Disk for Memory {
    fn write(&self, files: Vec<File>, removed: Vec<String>) -> Work<()> {
        let mut held = self.files.lock().unwrap();
        let mut log = self.log.lock().unwrap();
        for file in files {
            if self.full.load(Ordering::SeqCst) {
                let error = DiskError { path: file.path, words: "full".to_owned() };
                return async move { Err(error) }.boxed();
            }
            log.push(format!("+{}", file.path));
            held.insert(file.path, file.contents);
        }
        for path in removed {
            log.push(format!("-{path}"));
            held.remove(&path);
        }
        async { Ok(()) }.boxed()
    }

    fn read(&self, paths: Vec<String>) -> Work<Vec<Option<String>>> {
        let held = self.files.lock().unwrap();
        let found = paths.iter().map(|path| held.get(path).cloned()).collect();
        async move { Ok(found) }.boxed()
    }

    fn list(&self, folder: String) -> Work<Vec<String>> {
        let held = self.files.lock().unwrap();
        let found = held.keys().filter(|path| path.starts_with(&format!("{folder}/"))).cloned().collect();
        async move { Ok(found) }.boxed()
    }
}

fn sealed(text: &str) -> Option<Value> {
    Some(Value::Sealed(text.into()))
}

fn fill(wanted: &mut Wanted) {
    let server =
        Server { address: [10, 0, 0, 1].into(), port: 80, drain: false, maxconn: 0, link: Arc::new(Link::default()) };
    wanted.set(Slot::Certificate("n_c".into()), sealed("PEM"));
    wanted.set(Slot::Backend("n:s:80".into()), Some(Value::Backend(Class::DEFAULT)));
    wanted.set(Slot::Server("n:s:80".into(), "x".into()), Some(Value::Server(Arc::new(server))));
    wanted.set(Slot::Map(MapName::Prefix, "h/".into()), Some(Value::Text("n:s:80".into())));
    let line = CrtLine { certificate: "n_c".into(), client: None };
    wanted.set(Slot::CrtList("h".into()), Some(Value::CrtLine(Arc::new(line))));
}

async fn commit(files: &mut Files, wanted: &mut Wanted) -> Result<Written, DiskError> {
    files.note(wanted);
    let fixed = FixedPart::of(&crate::edge::model::tests::support::config(), &Layout::new("/d"));
    let mut commit = files.commit(&fixed, wanted);
    let result = (&mut commit.work).await;
    files.committed(commit, result)
}

fn following() -> Wanted {
    let mut wanted = Wanted::default();
    wanted.take_changes();
    wanted
}

#[tokio::test]
async fn stores_come_before_what_refers_to_them_and_go_after_it() {
    let disk = Arc::new(Memory::default());
    let mut files = Files::new(Layout::new("/d"), disk.clone());
    let mut wanted = following();
    fill(&mut wanted);
    let written = commit(&mut files, &mut wanted).await.unwrap();
    assert_eq!((written.changed, written.certificates), (4, vec![Arc::from("n_c")]));
    let shard = Layout::new("/d").shard(shard_of("n:s:80"));
    let come =
        ["/d/certs/n_c.pem".to_owned(), shard.clone(), "/d/certs.list".to_owned(), "/d/maps/prefix.map".to_owned()];
    assert_eq!(*disk.log.lock().unwrap(), come.clone().map(|path| format!("+{path}")));
    assert!(disk.files.lock().unwrap()[&shard].contains("server x 10.0.0.1:80"));
    disk.log.lock().unwrap().clear();
    for slot in wanted.slots().keys().cloned().collect::<Vec<_>>() {
        wanted.set(slot, None);
    }
    commit(&mut files, &mut wanted).await.unwrap();
    assert_eq!(disk.log.lock().unwrap().last().unwrap(), "-/d/certs/n_c.pem");
    assert!(!disk.files.lock().unwrap().contains_key(&shard), "nothing is in it");
}

#[tokio::test]
async fn what_fails_is_written_later_and_what_is_the_same_is_not_written() {
    let disk = Arc::new(Memory::default());
    let mut files = Files::new(Layout::new("/d"), disk.clone());
    let mut wanted = following();
    fill(&mut wanted);
    disk.full.store(true, Ordering::SeqCst);
    assert!(commit(&mut files, &mut wanted).await.is_err());
    assert!(files.is_dirty());
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(commit(&mut files, &mut wanted).await.unwrap().changed, 4);
    wanted.set(Slot::Map(MapName::Prefix, "h/".into()), None);
    wanted.take_changes();
    wanted.set(Slot::Map(MapName::Prefix, "h/".into()), Some(Value::Text("n:s:80".into())));
    assert_eq!(commit(&mut files, &mut wanted).await.unwrap(), Written::default());
    assert!(!files.is_dirty());
}

#[tokio::test]
async fn files_that_others_changed_are_found_and_written_anew() {
    let disk = Arc::new(Memory::default());
    let mut files = Files::new(Layout::new("/d"), disk.clone());
    let mut wanted = following();
    fill(&mut wanted);
    commit(&mut files, &mut wanted).await.unwrap();
    assert_eq!(files.verify(&wanted).await, Ok(0));
    disk.files.lock().unwrap().insert("/d/maps/prefix.map".to_owned(), "x y\n".to_owned());
    disk.files.lock().unwrap().remove("/d/certs/n_c.pem");
    assert_eq!(files.verify(&wanted).await, Ok(2));
    commit(&mut files, &mut wanted).await.unwrap();
    assert_eq!(disk.files.lock().unwrap()["/d/maps/prefix.map"], "h/ n:s:80\n");
    assert_eq!(files.verify(&wanted).await, Ok(0));
}

#[tokio::test]
async fn what_the_files_said_before_was_tried() {
    let disk = Arc::new(Memory::default());
    let mut files = Files::new(Layout::new("/d"), disk.clone());
    let mut wanted = following();
    fill(&mut wanted);
    wanted.set(Slot::Map(MapName::Regex, "^a$".into()), Some(Value::Text("b".into())));
    commit(&mut files, &mut wanted).await.unwrap();
    let regex = |key: &str| Slot::Map(MapName::Regex, key.into());
    let untried = vec![
        (Slot::Certificate("n_c".into()), sealed("PEM").unwrap()),
        (Slot::Certificate("n_d".into()), sealed("PEM").unwrap()),
        (regex("^a$"), Value::Text("b".into())),
        (regex("^a("), Value::Text("b".into())),
    ];
    let tried = files.tried(untried.clone()).await.unwrap();
    assert_eq!(tried, [Slot::Certificate("n_c".into()), regex("^a$")].into());
    let other = vec![(Slot::Certificate("n_c".into()), sealed("OTHER").unwrap())];
    assert!(files.tried(other).await.unwrap().is_empty());
}
