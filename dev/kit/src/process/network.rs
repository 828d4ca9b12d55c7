//! A network of one's own, for tests that need addresses which are not loopback: API servers refuse loopback addresses
//! as endpoints.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Process, WorkFolder};

/// Set in a process that is inside.
const INSIDE: &str = "WAYSTATION_TEST_NETWORK";
/// An API server looks for its own address by the default route.
const SCRIPT: &str = "ip link set lo up && ip addr add 10.77.255.254/32 dev lo && ip route add local 10.77.0.0/16 dev lo \
                      && ip route add default dev lo \
                      && { ip -6 route add local fd00:77::/32 dev lo || echo 'no IPv6'; } && exec \"$0\" \"$@\"";
const LONGEST: Duration = Duration::from_secs(600);

/// Becomes this program again, with the same arguments, in such a network; returns where it is in one already. Nothing may
/// have been started by this process before.
///
/// # Errors
/// When this machine has no `unshare`, or leaves nobody to use it.
pub fn enter_own_network() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT]).arg(std::env::current_exe()?);
    let failed = command.args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    Err(failed).context("a network namespace of its own needs unshare, ip and leave to use them")
}

/// Runs the test of this name of this executable again, alone, in a network namespace in which every address 10.77.x.y
/// (and fd00:77::x, where the machine knows IPv6) leads to itself and nothing leads outside. True in that second run, which is the one that does the work; false in the
/// first, once the second has succeeded.
///
/// # Errors
/// When the second run fails, with its output; or when this machine has no `ip` or makes no namespaces.
pub async fn inside_own_network(test: &str) -> Result<bool> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    let folder = WorkFolder::new("network")?;
    let this = std::env::current_exe()?;
    let this = this.to_str().context("the path of this executable")?;
    let arguments = ["--map-root-user", "--net", "sh", "-c", SCRIPT, this, "--exact", test, "--nocapture"];
    let inside: &[(&str, &std::ffi::OsStr)] = &[(INSIDE, "1".as_ref())];
    let mut process = Process::spawn(test, Path::new("unshare"), &arguments, inside, &folder.join("output.log"))?;
    let deadline = tokio::time::Instant::now() + LONGEST;
    let ended = loop {
        match process.ended() {
            Some(ended) => break ended,
            None if tokio::time::Instant::now() > deadline => break process.terminate(Duration::from_secs(5)).await?,
            None => tokio::time::sleep(super::POLL).await,
        }
    };
    let output = process.log();
    ensure!(
        ended.success() && output.contains("1 passed"),
        "{test} in a network namespace of its own ({ended}; it needs unshare, ip and leave to use them):\n{output}"
    );
    // For those who look: what it has printed.
    print!("{output}");
    Ok(false)
}
