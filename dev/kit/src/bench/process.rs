//! What a process costs, from `/proc`.

use std::time::Duration;

use anyhow::{Context, Result};

/// Linux reports CPU time to user space in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time that a process has used so far, in user space and in the kernel.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat")?;
    let ticks = |index: usize| fields.split(' ').nth(index).and_then(|text| text.parse::<u64>().ok());
    let total = ticks(11).zip(ticks(12)).context("/proc/PID/stat")?;
    Ok(Duration::from_millis((total.0 + total.1) * 1000 / TICKS_PER_SECOND))
}

/// Resident memory of a process in MB (10^6 bytes).
pub(super) fn rss_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    #[test]
    fn our_own_process_has_memory_and_used_time() {
        let pid = std::process::id();
        assert!(super::rss_mb(pid).unwrap() > 0.5);
        super::cpu(pid).unwrap();
    }
}
