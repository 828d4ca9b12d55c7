//! The log of a supervisor that nobody else looks after: a file that is turned when it is long, with one old one beside it.
//!
//! Standard output and standard error are that file, and HAProxy's lines come to us by a pipe: all that writes turns with
//! it, and no line is lost. Where somebody else takes the output (as in a Pod), none of this is used.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::sleep;

/// Bytes of a log that is turned.
const LONG: u64 = 10_000_000;
/// Bytes between two looks at its length.
const LOOK_AFTER: usize = 1 << 16;
/// Between two looks, for lines of our own.
const LOOK: Duration = Duration::from_secs(5);

/// What becomes of output where it is ours to bound.
#[derive(Clone, Debug)]
pub(super) struct Log {
    path: PathBuf,
    old: PathBuf,
}

impl Log {
    /// That file, and one beside it.
    pub(super) fn new(path: &Path) -> Self {
        let mut old = path.to_owned().into_os_string();
        old.push(".old");
        Self { path: path.to_owned(), old: old.into() }
    }

    /// Turns it if it is long, or is there no more.
    pub(super) fn look(&self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(now) if now.len() < LONG => return Ok(()),
            Ok(_) => fs::rename(&self.path, &self.old)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = File::options().create(true).append(true).mode(0o600).open(&self.path)?;
        rustix::stdio::dup2_stdout(&file)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(())
    }

    fn look_and_tell(&self) {
        if let Err(error) = self.look() {
            tracing::warn!(%error, "the log could not be turned; it grows on");
        }
    }

    /// Looks after it for ever.
    pub(super) async fn keep(&self) {
        loop {
            self.look_and_tell();
            sleep(LOOK).await;
        }
    }

    /// Passes on what a program says, line by line, until nobody has the other end of the pipe any more.
    pub(super) async fn pass_on(self, said: pipe::Receiver) {
        let (mut said, mut line, mut since) = (BufReader::new(said), Vec::new(), 0);
        loop {
            line.clear();
            match said.read_until(b'\n', &mut line).await {
                Ok(0) => return,
                Ok(count) => since += count,
                Err(error) => return tracing::warn!(%error, "what HAProxy says cannot be read any more"),
            }
            // There is nobody to be told.
            let _ = io::stderr().lock().write_all(&line);
            if since >= LOOK_AFTER {
                since = 0;
                self.look_and_tell();
            }
        }
    }
}

/// A pipe: what a program is given for its outputs, and the end that we read.
pub(super) fn outputs() -> io::Result<([Stdio; 2], pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let outputs = [Stdio::from(writer.try_clone()?), Stdio::from(writer)];
    Ok((outputs, pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
}
