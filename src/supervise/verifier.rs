//! Who knows which passwords: HAProxy asks here, over a socket in its folder.
//!
//! It lives with whoever keeps HAProxy running and not with the agent, so that an agent that restarts denies nobody. The
//! users are the files that the drive writes. What a guess costs is bounded: few are computed at a time, and one of a file,
//! so that files take turns; few of a file wait, and what was computed is remembered for a while, so that people with the
//! right password do not wait behind those without. What cannot be told is said to be unknown, which HAProxy answers by 503.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Path as InPath, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::hashes;

/// Passwords of one file that may wait or be computed at a time.
const WAITING: usize = 16;
/// For a turn; HAProxy waits five seconds for the answer.
const LONGEST_WAIT: Duration = Duration::from_secs(4);
/// How long a right password is remembered, and a wrong one.
const REMEMBERED: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(5)];
/// As many are remembered.
const MEMORY: usize = 20_000;
/// Bytes of a file that are looked at: a thousand users.
const LONGEST_FILE: u64 = 1 << 20;

/// Why it does not listen.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct VerifierError {
    path: PathBuf,
    source: std::io::Error,
}

/// What is said of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    Unknown,
}

/// Users of one file.
struct Users {
    /// What tells it from another one of its name.
    stamp: (SystemTime, u64),
    /// Differs where contents do.
    fingerprint: u64,
    hashes: HashMap<String, String>,
    /// For names that are not there: they shall take as long.
    any: String,
}

struct Shared {
    folder: PathBuf,
    files: Mutex<HashMap<String, Arc<Users>>>,
    /// By the two keyed hashes of file, name and password: those themselves are not kept.
    known: Mutex<HashMap<(u64, u64), (bool, Instant)>>,
    keys: [RandomState; 2],
    turns: Arc<Semaphore>,
    waiting: Mutex<HashMap<String, Line>>,
}

/// Those who wait for one file.
struct Line {
    count: usize,
    /// Only the first stands in the line of all: however many there are, another file waits for one of them.
    first: Arc<Semaphore>,
}

impl Default for Line {
    fn default() -> Self {
        Self { count: 0, first: Arc::new(Semaphore::new(1)) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens at a socket that only its owner may use; what a predecessor left there is replaced.
///
/// # Errors
/// When that is not possible.
pub fn listen(path: &Path) -> Result<UnixListener, VerifierError> {
    let failed = |source| VerifierError { path: path.to_owned(), source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Answers for the files in that folder, until the listener fails.
///
/// # Errors
/// Then.
pub async fn serve(listener: UnixListener, users: PathBuf) -> std::io::Result<()> {
    axum::serve(listener, router(users)).await
}

fn router(folder: PathBuf) -> Router {
    routes(Arc::new(Shared::new(folder)))
}

fn routes(shared: Arc<Shared>) -> Router {
    Router::new().route("/basic/{users}", get(answer)).with_state(shared)
}

async fn answer(State(shared): State<Arc<Shared>>, InPath(users): InPath<String>, headers: HeaderMap) -> StatusCode {
    let credentials = headers.get(AUTHORIZATION).and_then(|value| credentials(value.as_bytes()));
    let Some((name, password)) = credentials else { return StatusCode::UNAUTHORIZED };
    match shared.judge(&users, &name, password).await {
        Verdict::Yes => StatusCode::NO_CONTENT,
        Verdict::No => StatusCode::UNAUTHORIZED,
        Verdict::Unknown => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Name and password of `Basic …`.
fn credentials(header: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}

impl Shared {
    fn new(folder: PathBuf) -> Self {
        // Half of what there is, so that requests go on; at least one.
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            folder,
            files: Mutex::default(),
            known: Mutex::default(),
            keys: [RandomState::new(), RandomState::new()],
            turns: Arc::new(Semaphore::new((cpus / 2).max(1))),
            waiting: Mutex::default(),
        }
    }

    async fn judge(self: &Arc<Self>, file: &str, name: &str, password: Vec<u8>) -> Verdict {
        let Some(users) = self.users(file) else { return Verdict::Unknown };
        let key = self.keys.each_ref().map(|keys| keys.hash_one((users.fingerprint, file, name, &password)));
        let key = (key[0], key[1]);
        let now = Instant::now();
        if let Some((right, until)) = lock(&self.known).get(&key)
            && *until > now
        {
            return if *right { Verdict::Yes } else { Verdict::No };
        }
        let (known, hash) = match users.hashes.get(name) {
            Some(hash) => (true, hash.clone()),
            None => (false, users.any.clone()),
        };
        let right = match hashes::is_cheap(&hash) {
            true => hashes::verify(&hash, &password),
            false => match self.compute(file, hash, password).await {
                Some(right) => right,
                None => return Verdict::Unknown,
            },
        };
        let right = known && right;
        self.remember(key, right);
        if right { Verdict::Yes } else { Verdict::No }
    }

    /// In its turn; none when there are too many before it.
    async fn compute(self: &Arc<Self>, file: &str, hash: String, password: Vec<u8>) -> Option<bool> {
        let (place, first) = Place::take(Arc::clone(self), file)?;
        let turn = async {
            let first = first.acquire_owned().await.ok()?;
            Some((first, Arc::clone(&self.turns).acquire_owned().await.ok()?))
        };
        let turn = timeout(LONGEST_WAIT, turn).await.ok()??;
        // All are given back when the work ends, even if nobody waits for the answer any more.
        let work = tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            hashes::verify(&hash, &password)
        })
        .await;
        // What a tenant wrote must not end the process that HAProxy hangs on, whatever becomes of it.
        work.inspect_err(|error| tracing::error!(file, %error, "a password could not be checked")).ok()
    }

    fn remember(&self, key: (u64, u64), right: bool) {
        let mut known = lock(&self.known);
        if known.len() >= MEMORY {
            let now = Instant::now();
            known.retain(|_, (_, until)| *until > now);
            if known.len() >= MEMORY {
                known.clear();
            }
        }
        known.insert(key, (right, Instant::now() + REMEMBERED[usize::from(!right)]));
    }

    /// The users of a file, read again when it has changed.
    fn users(&self, file: &str) -> Option<Arc<Users>> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if file.is_empty() || file.starts_with('.') || !file.bytes().all(plain) {
            return None;
        }
        let path = self.folder.join(file);
        let meta = std::fs::metadata(&path).ok().filter(|meta| meta.is_file() && meta.len() <= LONGEST_FILE)?;
        let stamp = (meta.modified().ok()?, std::os::unix::fs::MetadataExt::ino(&meta));
        if let Some(known) = lock(&self.files).get(file).filter(|known| known.stamp == stamp) {
            return Some(Arc::clone(known));
        }
        let text = std::fs::read_to_string(&path).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let hashes: HashMap<String, String> = lines.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect();
        let any = hashes.values().max_by_key(|hash| !hashes::is_cheap(hash)).cloned()?;
        let users = Arc::new(Users { stamp, fingerprint: self.keys[0].hash_one(&text), hashes, any });
        let mut files = lock(&self.files);
        files.retain(|name, _| name == file || self.folder.join(name).exists());
        files.insert(file.to_owned(), Arc::clone(&users));
        Some(users)
    }
}

/// A place among those of a file who wait; given back when dropped.
struct Place {
    shared: Arc<Shared>,
    file: String,
}

impl Place {
    /// With what the first of the file holds.
    fn take(shared: Arc<Shared>, file: &str) -> Option<(Self, Arc<Semaphore>)> {
        let mut waiting = lock(&shared.waiting);
        let line = waiting.entry(file.to_owned()).or_default();
        if line.count >= WAITING {
            return None;
        }
        line.count += 1;
        let first = Arc::clone(&line.first);
        drop(waiting);
        Some((Self { shared, file: file.to_owned() }, first))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = lock(&self.shared.waiting);
        if let Some(line) = waiting.get_mut(&self.file) {
            line.count -= 1;
            if line.count == 0 {
                waiting.remove(&self.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("waystation-users-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, file: &str, text: &str) {
            let part = self.0.join(".part");
            std::fs::write(&part, text).unwrap();
            std::fs::rename(part, self.0.join(file)).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn ask(router: &Router, users: &str, header: &str) -> u16 {
        let request = axum::http::Request::get(format!("/basic/{users}")).header("authorization", header);
        router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    }

    fn basic(name: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
    }

    #[tokio::test]
    async fn it_answers_for_what_the_files_say_now() {
        let folder = Folder::new("now");
        let router = router(folder.0.clone());
        assert_eq!(ask(&router, "a_users", &basic("ann", "x")).await, 503, "no file");
        let hash = bcrypt::hash("good", 4).unwrap();
        folder.write("a_users", &format!("ann:{hash}\nbob:{{PLAIN}}a:b\n"));
        for (name, password, status) in
            [("ann", "good", 204), ("ann", "bad", 401), ("bob", "a:b", 204), ("bob", "a", 401), ("eve", "good", 401)]
        {
            // The second time from memory.
            for _ in 0..2 {
                assert_eq!(ask(&router, "a_users", &basic(name, password)).await, status, "{name} {password}");
            }
        }
        for header in ["", "Bearer x", "Basic", "Basic ", "Basic !", "Basic eA=="] {
            assert_eq!(ask(&router, "a_users", header).await, 401, "{header}");
        }
        folder.write("a_users", "ann:{PLAIN}other\n");
        assert_eq!(ask(&router, "a_users", &basic("ann", "good")).await, 401);
        assert_eq!(ask(&router, "a_users", &basic("ann", "other")).await, 204);
        std::fs::remove_file(folder.0.join("a_users")).unwrap();
        assert_eq!(ask(&router, "a_users", &basic("ann", "other")).await, 503);
    }

    #[tokio::test]
    async fn names_of_files_lead_nowhere_else() {
        let folder = Folder::new("paths");
        folder.write("users", "a:{PLAIN}b\n");
        std::fs::create_dir_all(folder.0.join("inner")).unwrap();
        let router = router(folder.0.join("inner"));
        for path in ["..%2Fusers", "%2E%2E%2Fusers", ".", "%00"] {
            assert_ne!(ask(&router, path, &basic("a", "b")).await, 204, "{path}");
        }
    }

    #[tokio::test]
    async fn a_flood_of_guesses_waits_in_a_short_line_and_keeps_nobody_else_out() {
        let folder = Folder::new("flood");
        folder.write("slow", &format!("ann:{}\n", bcrypt::hash("good", 10).unwrap()));
        folder.write("fast", "bob:{PLAIN}good\n");
        let router = router(folder.0.clone());
        assert_eq!(ask(&router, "slow", &basic("ann", "good")).await, 204);
        let guesses = (0..WAITING * 4).map(|n| {
            let router = router.clone();
            async move { ask(&router, "slow", &basic("ann", &format!("guess {n}"))).await }
        });
        let guesses = futures::future::join_all(guesses);
        let others = async {
            (ask(&router, "slow", &basic("ann", "good")).await, ask(&router, "fast", &basic("bob", "good")).await)
        };
        let (guessed, others) = tokio::join!(guesses, others);
        assert_eq!(others, (204, 204), "whoever was right before, and another tenant");
        assert!(guessed.iter().all(|status| matches!(status, 401 | 503)), "{guessed:?}");
        assert!(guessed.iter().filter(|status| **status == 503).count() >= WAITING * 2, "{guessed:?}");
    }

    #[tokio::test]
    async fn a_flood_on_one_file_does_not_delay_another() {
        let folder = Folder::new("turns");
        let users = format!("ann:{}\n", bcrypt::hash("good", 8).unwrap());
        folder.write("flooded", &users);
        folder.write("quiet", &users);
        let shared = Arc::new(Shared::new(folder.0.clone()));
        let router = routes(Arc::clone(&shared));
        let mut guesses = tokio::task::JoinSet::new();
        for n in 0..WAITING {
            let router = router.clone();
            guesses.spawn(async move { ask(&router, "flooded", &basic("ann", &format!("guess {n}"))).await });
        }
        let all_wait = async {
            while lock(&shared.waiting).get("flooded").is_none_or(|line| line.count < WAITING) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), all_wait).await.unwrap();
        assert_eq!(ask(&router, "quiet", &basic("ann", "good")).await, 204);
        let left = lock(&shared.waiting).get("flooded").map_or(0, |line| line.count);
        assert!(left > WAITING / 2, "{left} of {WAITING} guesses are left: it waited for the others");
        while guesses.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn whoever_hangs_up_does_not_make_room_for_another_guess_before_his_is_computed() {
        let folder = Folder::new("hung-up");
        // Takes some tenths of a second at least.
        folder.write("slow", &format!("ann:$2b$13${}\n", "a".repeat(53)));
        let shared = Arc::new(Shared::new(folder.0.clone()));
        let (all, router) = (shared.turns.available_permits(), routes(Arc::clone(&shared)));
        let asked = tokio::spawn(async move { ask(&router, "slow", &basic("ann", "guess")).await });
        let turns = |wanted: usize| {
            let shared = Arc::clone(&shared);
            async move {
                while shared.turns.available_permits() != wanted {
                    tokio::task::yield_now().await;
                }
            }
        };
        timeout(Duration::from_secs(60), turns(all - 1)).await.unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!((shared.turns.available_permits(), lock(&shared.waiting)["slow"].count), (all - 1, 1));
        timeout(Duration::from_secs(60), turns(all)).await.unwrap();
        assert!(lock(&shared.waiting).is_empty());
    }
}
