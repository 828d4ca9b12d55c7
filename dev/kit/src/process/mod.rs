//! Child processes, folders and ports that end with the process that asked for them.
//!
//! Invariant: whatever [`Process::spawn`] starts and [`WorkFolder::new`] makes is gone soon after the owner drops it,
//! panics, is interrupted, or is killed with SIGKILL. Dropping does it at once; for the rest there is a watchdog process
//! which notices the owner's end (see `watchdog.sh`).

mod network;
mod port;
mod watchdog;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::time::Instant;

pub use network::{enter_own_network, inside_own_network};
pub use port::Port;

/// Says that a process that something of ours has started apart, with its group, must not outlive us.
pub fn guard_group(pid: u32) -> Result<()> {
    watchdog::guard(pid)
}

/// How often [`eventually`] asks again.
const POLL: Duration = Duration::from_millis(50);

/// Asks `probe` until it answers `Ok`, and fails when `within` has passed, with its last answer and `what` was awaited.
pub async fn eventually<T, F, Fut>(within: Duration, what: &str, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + within;
    let mut last = anyhow!("it was never asked");
    loop {
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => {
                return Err(last.context(format!("{what}: not within {within:?} (the last question had no answer)")));
            }
        }
        if Instant::now() + POLL > deadline {
            return Err(last.context(format!("{what}: not within {within:?}")));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A child process with a log file; its process group is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a program with its output appended to `log`. The environment is inherited, with `environment` on top.
    pub fn spawn(
        name: &str,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &[(&str, &OsStr)],
        log: &Path,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        // The program waits for a line before it begins: when we are killed in between, it ends by the closed pipe,
        // and when the line comes the watchdog knows of it. So there is no moment in which it could be left over.
        let mut child = Command::new("sh")
            .args(["-c", r#"read -r go || exit 1; exec "$0" "$@" < /dev/null"#])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        let mut gate = child.stdin.take();
        let process = Self { name: name.to_owned(), child, log: log.to_owned(), ended: None };
        watchdog::guard(process.pid())?;
        gate.as_mut().with_context(|| format!("{name} has no standard input"))?.write_all(b"go\n")?;
        Ok(process)
    }

    /// The process number, which is also that of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_some() {
                watchdog::release(self.child.id());
            }
        }
        self.ended
    }

    /// Fails with the end of its log when it runs no more.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); the end of its log:\n{}", self.name, self.log_tail(20)),
        }
    }

    /// Sends a signal by name (`TERM`, `STOP`, `CONT`…) to the process.
    pub fn signal(&mut self, signal: &str) -> Result<()> {
        ensure!(self.ended().is_none(), "{} runs no more", self.name);
        let status =
            Command::new("sh").args(["-c", r#"kill -s "$0" "$1""#, signal, &self.pid().to_string()]).status()?;
        ensure!(status.success(), "SIG{signal} could not be sent to {}", self.name);
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits for that; kills it and fails when it takes longer than `within`.
    pub async fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        if self.ended().is_none() {
            self.signal("TERM")?;
            // One that stands still would not hear of it; one that has ended already needs it no more.
            let _ = self.signal("CONT");
        }
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.kill();
                bail!(
                    "{} did not end within {within:?} of SIGTERM; the end of its log:\n{}",
                    self.name,
                    self.log_tail(20)
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // The whole group first, while the number is certainly ours: a child that was killed is not yet waited for.
        let group = format!("-{}", self.pid());
        let _ = Command::new("sh").args(["-c", r#"kill -s KILL -- "$0""#, &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        self.ended = Some(self.child.wait().unwrap_or(ExitStatus::from_raw(9)));
        watchdog::release(self.child.id());
    }

    /// Everything it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines that it wrote.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = self.log();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Where its log is.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder of our own, under the system's temporary one, removed when this is dropped.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Makes an empty folder that only its owner can read.
    pub fn new(purpose: &str) -> Result<Self> {
        Self::below(&std::env::temp_dir(), purpose)
    }

    /// Makes one in memory, where this machine has room for that; else as [`WorkFolder::new`].
    pub fn in_memory(purpose: &str) -> Result<Self> {
        Self::below(Path::new("/dev/shm"), purpose).or_else(|_| Self::new(purpose))
    }

    fn below(folder: &Path, purpose: &str) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("waystation-{purpose}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        // A killed predecessor with our number may have left one that its watchdog is about to remove.
        let _ = std::fs::remove_dir_all(&path);
        watchdog::folder(&path)?;
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.path).is_ok() {
            watchdog::gone(&self.path);
        }
    }
}
