//! One watchdog process for each process that uses the kit: it ends the children and removes the folders of a parent
//! that was killed and could not do so itself.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow};

const SCRIPT: &str = include_str!("watchdog.sh");

struct Watchdog {
    // Never written or read otherwise: it is the parent's end of the pipe that says whether the parent lives.
    orders: ChildStdin,
    _process: Child,
}

/// Says that this child and its process group must not outlive us.
pub(super) fn guard(pid: u32) -> Result<()> {
    order(&format!("guard {pid}"))
}

/// Says that this child has been waited for.
pub(super) fn release(pid: u32) {
    // A watchdog that is gone has nothing to release.
    let _ = order(&format!("release {pid}"));
}

/// Says that this folder must not outlive us.
pub(super) fn folder(path: &Path) -> Result<()> {
    order(&format!("folder {}", path.display()))
}

/// Says that this folder has been removed.
pub(super) fn gone(path: &Path) {
    let _ = order(&format!("gone {}", path.display()));
}

fn order(line: &str) -> Result<()> {
    static WATCHDOG: OnceLock<Result<Mutex<Watchdog>, String>> = OnceLock::new();
    let watchdog = WATCHDOG
        .get_or_init(|| start().map(Mutex::new).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|text| anyhow!("{text}"))?;
    let mut watchdog = watchdog.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(watchdog.orders, "{line}").context("the watchdog of the test kit is gone")
}

fn start() -> Result<Watchdog> {
    let mut process = Command::new("bash")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own: Ctrl-C in a terminal goes to the whole group of the test.
        .process_group(0)
        .spawn()
        .context("bash could not be started")?;
    let orders = process.stdin.take().context("the watchdog has no standard input")?;
    Ok(Watchdog { orders, _process: process })
}
