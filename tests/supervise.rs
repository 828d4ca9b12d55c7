//! The supervisor as a process, with a program in the place of HAProxy.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use waystation_kit::process::{Process, WorkFolder, eventually};

/// What stands in for HAProxy says so many lines, and goes on.
const LINES: usize = 150_000;

#[tokio::test]
async fn the_log_is_turned_when_it_is_long_and_no_line_is_lost() -> Result<()> {
    let folder = WorkFolder::new("supervise")?;
    let (haproxy, log) = (folder.join("haproxy"), folder.join("supervise.log"));
    let script = format!(
        "#!/bin/sh\ni=0\nwhile [ $i -lt {LINES} ]; do\n  i=$((i + 1))\n  echo \"line $i {:0>80}\"\ndone\necho end >&2\nexec sleep 1000\n",
        ""
    );
    std::fs::write(&haproxy, script)?;
    std::fs::set_permissions(&haproxy, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    std::fs::write(folder.join("haproxy.cfg"), "")?;
    let paths = [folder.path(), &haproxy, &log].map(|path| path.display().to_string());
    let arguments = ["supervise", "--folder", &paths[0], "--haproxy", &paths[1], "--log-file", &paths[2]];
    let binary = Path::new(env!("CARGO_BIN_EXE_waystation"));
    let mut supervisor = Process::spawn("waystation supervise", binary, &arguments, &[], &log)?;
    eventually(Duration::from_secs(120), "all is said", || async {
        ensure!(std::fs::read_to_string(&log)?.ends_with("\nend\n"));
        Ok(())
    })
    .await?;
    let (old, new) = (std::fs::read_to_string(folder.join("supervise.log.old"))?, std::fs::read_to_string(&log)?);
    for (name, text) in [("old", &old), ("new", &new)] {
        ensure!(text.len() < 11_000_000, "{name}: {} bytes", text.len());
        ensure!(text.ends_with('\n'), "{name} ends with half a line");
    }
    let lines = old.lines().chain(new.lines()).filter_map(|line| line.strip_prefix("line ")?.split(' ').next());
    let numbers: Vec<usize> = lines.map(|number| number.parse()).collect::<Result<_, _>>()?;
    ensure!(numbers.iter().copied().eq(1..=LINES), "{} lines of {LINES}", numbers.len());
    supervisor.terminate(Duration::from_secs(30)).await?;
    Ok(())
}
