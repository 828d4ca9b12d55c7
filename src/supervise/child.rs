//! What stands between the supervisor and HAProxy for a moment: it sees to it that HAProxy ends with the supervisor.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Becomes that program, which is asked to end when the process `parent` does; comes back only when that fails.
pub fn become_program(parent: u32, program: &OsString, arguments: &[OsString]) -> std::io::Error {
    // Kept by whatever is executed, also by a reload, which executes HAProxy again.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return error.into();
    }
    let expected = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != expected {
        // It ended before that was said.
        return std::io::Error::other("the supervisor has ended");
    }
    Command::new(program).args(arguments).exec()
}
