//! Starts HAProxy, starts it again, ends it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::log::{self, Log};
use super::verifier::{self, VerifierError};
use crate::edge::render::Layout;
use crate::engine::jitter::doubling;
use crate::engine::loops::pass_on;

/// Between two looks for files.
const LOOK: Duration = Duration::from_millis(20);
/// Waits before a start that follows an early end.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Who has run for so long is started again at once.
const STEADY: Duration = Duration::from_secs(5);
/// From SIGTERM to SIGKILL.
const LAST: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(2);
/// For the last lines of a HAProxy that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the files; an absolute path.
    pub folder: PathBuf,
    /// HAProxy's executable.
    pub haproxy: PathBuf,
    /// How long connections may take to end, when it is to end.
    pub grace: Duration,
    /// The file that our outputs are, where it is ours to keep it from growing for ever.
    pub log: Option<PathBuf>,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End: HAProxy takes no new connections, and ends with the last; said again: at once.
    Terminate,
    /// Have HAProxy load its files.
    Reload,
}

/// Why it does not supervise.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Another one does.
    #[error("another supervisor has the folder {}", .0.display())]
    Taken(PathBuf),
    /// The folder cannot be used.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The verifier of passwords does not listen.
    #[error(transparent)]
    Verifier(#[from] VerifierError),
    /// It has ended.
    #[error("the verifier of passwords has ended: {0}")]
    VerifierEnded(String),
}

/// Runs until it is told to end.
///
/// # Errors
/// When it cannot supervise that folder.
pub async fn run(options: Options, mut signals: mpsc::Receiver<Signal>) -> Result<(), SuperviseError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SuperviseError::Folder { path, source }
    };
    let folder = &options.folder;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    let _lock = take(folder)?;
    let layout = Layout::new(folder.display().to_string());
    let listener = verifier::listen(Path::new(&layout.verifier()))?;
    let users = folder.join("users");
    let verifier = tokio::spawn(verifier::serve(listener, users));
    let log = options.log.as_deref().map(Log::new);
    let keep_log = async {
        match &log {
            Some(log) => log.keep().await,
            None => std::future::pending().await,
        }
    };
    let mut supervisor = Supervisor { options: &options, layout, log: log.clone(), said: JoinSet::new() };
    tokio::select! {
        () = supervisor.keep(&mut signals) => Ok(()),
        () = keep_log => Ok(()),
        ended = verifier => Err(SuperviseError::VerifierEnded(format!("{ended:?}"))),
    }
}

/// The folder is ours while this is open.
fn take(folder: &Path) -> Result<File, SuperviseError> {
    let path = folder.join("supervise.lock");
    let failed = |source| SuperviseError::Folder { path: path.clone(), source };
    let mut file = File::options().create(true).write(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(SuperviseError::Taken(folder.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
    }
    // For people who want to end it.
    let number = format!("{}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(number.as_bytes())).map_err(failed)?;
    Ok(file)
}

/// Whether a supervisor has the folder.
pub fn is_kept(folder: &Path) -> bool {
    let file = File::options().write(true).open(folder.join("supervise.lock"));
    file.is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
}

struct Supervisor<'a> {
    options: &'a Options,
    layout: Layout,
    log: Option<Log>,
    /// What passes on what HAProxy says, now and before.
    said: JoinSet<()>,
}

/// Why a HAProxy is waited for no more.
enum End {
    /// It has ended.
    Died(std::io::Result<ExitStatus>),
    /// We are to end.
    Told,
}

impl Supervisor<'_> {
    async fn keep(&mut self, signals: &mut mpsc::Receiver<Signal>) {
        let mut early = 0;
        loop {
            if self.files(signals).await.is_none() {
                return;
            }
            self.retire_left_over().await;
            let began = Instant::now();
            match self.spawn() {
                Ok(mut child) => match self.watch(&mut child, signals).await {
                    End::Told => return self.end(child, signals).await,
                    End::Died(status) => {
                        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                        tracing::warn!(status, ran = ?began.elapsed(), "HAProxy has ended; it is started again");
                    }
                },
                Err(error) => {
                    tracing::error!(haproxy = %self.options.haproxy.display(), %error, "HAProxy cannot be started");
                }
            }
            early = if began.elapsed() >= STEADY { 0 } else { early + 1 };
            if early > 1 {
                let wait = doubling(FIRST_WAIT, LONGEST_WAIT, early - 2);
                if self.pause(wait, signals).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Waits; none: we are to end.
    async fn pause(&self, wait: Duration, signals: &mut mpsc::Receiver<Signal>) -> Option<()> {
        let until = Instant::now() + wait;
        loop {
            match tokio::time::timeout_at(until, signals.recv()).await {
                Err(_) => return Some(()),
                Ok(Some(Signal::Reload)) => {}
                Ok(Some(Signal::Terminate) | None) => return None,
            }
        }
    }

    /// Waits for files; the fixed part is written last.
    async fn files(&self, signals: &mut mpsc::Receiver<Signal>) -> Option<()> {
        let config = self.layout.config();
        if !Path::new(&config).exists() {
            tracing::info!(config, "waiting for the files of HAProxy");
        }
        while !Path::new(&config).exists() {
            self.pause(LOOK, signals).await?;
        }
        Some(())
    }

    fn spawn(&mut self) -> std::io::Result<Child> {
        let master = format!("{}/master.sock,mode,600", self.layout.dir());
        // Through ourselves, for a moment: so that it ends when we are killed.
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(log) = &self.log {
            let ([output, error], said) = log::outputs()?;
            command.stdout(output).stderr(error);
            self.said.spawn(log.clone().pass_on(said));
        }
        command
            .args(["supervise-child", "--parent", &std::process::id().to_string(), "--"])
            .arg(&self.options.haproxy)
            .args(["-W", "-S", &master, "-f", &self.layout.config(), "-f", &self.layout.backends()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    }

    async fn watch(&mut self, child: &mut Child, signals: &mut mpsc::Receiver<Signal>) -> End {
        loop {
            tokio::select! {
                biased;
                status = child.wait() => return End::Died(status),
                Some(ended) = self.said.join_next() => {
                    pass_on(ended);
                }
                signal = signals.recv() => match signal {
                    Some(Signal::Reload) => tell(child.id(), rustix::process::Signal::HUP),
                    Some(Signal::Terminate) | None => return End::Told,
                },
            }
        }
    }

    /// Takes no new connections, waits for the others, and then does not wait any more.
    async fn end(&mut self, mut child: Child, signals: &mut mpsc::Receiver<Signal>) {
        tracing::info!(grace = ?self.options.grace, "ending: HAProxy takes no new connections");
        tell(child.id(), rustix::process::Signal::USR1);
        let grace = sleep(self.options.grace);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                _ = child.wait() => return self.last_words().await,
                () = &mut grace => break,
                signal = signals.recv() => if signal != Some(Signal::Reload) { break },
            }
        }
        tell(child.id(), rustix::process::Signal::TERM);
        if timeout(LAST, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
        self.last_words().await;
    }

    async fn last_words(&mut self) {
        let ended = async {
            while let Some(ended) = self.said.join_next().await {
                pass_on(ended);
            }
        };
        let _ = timeout(LAST_WORDS, ended).await;
    }

    /// A HAProxy of this folder whose supervisor was killed, and that has not heard of it: it makes room for the next.
    async fn retire_left_over(&self) {
        let ask = async {
            let mut stream = UnixStream::connect(format!("{}/master.sock", self.layout.dir())).await?;
            // Without an end it waits for more.
            stream.write_all(b"show proc;quit\n").await?;
            let mut answer = String::new();
            stream.take(1 << 16).read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let Ok(Ok(answer)) = timeout(ANSWER, ask).await else { return };
        if let Some(pid) = master_of(&answer) {
            tracing::warn!(pid, "a HAProxy of this folder was left over; it takes no new connections any more");
            tell(Some(pid), rustix::process::Signal::USR1);
        }
    }
}

/// The number of the master in an answer to `show proc`.
fn master_of(answer: &str) -> Option<u32> {
    answer.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        (words.next()? == "master").then_some(pid)
    })
}

fn tell(pid: Option<u32>, signal: rustix::process::Signal) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid
        && let Err(error) = kill_process(pid, signal)
    {
        tracing::debug!(%error, "HAProxy could not be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_is_found_among_its_workers() {
        let answer = "#<PID>          <type>          <reloads>       <uptime>        <version>\n\
                      4321            master          0 [failed: 0]   0d00h00m05s     3.4.7\n# workers\n\
                      4322            worker          0               0d00h00m05s     3.4.7\n\n";
        assert_eq!(master_of(answer), Some(4321));
        assert_eq!(master_of("Unknown command"), None);
    }

    #[test]
    fn one_folder_has_one_supervisor() {
        let folder = std::env::temp_dir().join(format!("waystation-supervise-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = take(&folder).unwrap();
        assert!(matches!(take(&folder), Err(SuperviseError::Taken(_))));
        drop(first);
        take(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
