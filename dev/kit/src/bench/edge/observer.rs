//! The outside observer of HAProxy: its socket, which says the same whoever drives it.
//!
//! It blocks: what is timed is not to wait for a turn among tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const ANSWER: Duration = Duration::from_secs(30);
/// Between two questions.
const PAUSE: Duration = Duration::from_micros(100);
/// A connection is used for so long.
const STALE: Duration = Duration::from_millis(50);

/// A connection to the socket.
#[derive(Debug)]
pub(super) struct Observer {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Addresses that take requests, by backend.
pub(super) type Servers = BTreeMap<String, BTreeSet<String>>;

impl Observer {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("the socket of HAProxy")?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut observer = Self { socket: socket.to_owned(), stream: BufReader::new(stream) };
        observer.ask("prompt i")?;
        Ok(observer)
    }

    /// One question.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        loop {
            let before = answer.len();
            ensure!(self.stream.read_line(&mut answer)? > 0, "HAProxy has closed its socket");
            if &answer[before..] == "\n" {
                answer.truncate(before);
                return Ok(answer);
            }
        }
    }

    /// What takes requests, in one backend or in all.
    pub fn servers(&mut self, backend: Option<&str>) -> Result<Servers> {
        let command = format!("show servers state {}", backend.unwrap_or_default());
        parse(&self.ask(command.trim_end())?)
    }

    /// Asks for one backend until that is so, and says when it was.
    pub fn until(
        &mut self,
        backend: &str,
        within: Duration,
        condition: impl Fn(&BTreeSet<String>) -> bool,
    ) -> Result<Instant> {
        let deadline = Instant::now() + within;
        let mut since = Instant::now();
        loop {
            // After a reload a connection stays with the process that was.
            if since.elapsed() > STALE
                && let Ok(again) = Self::connect(&self.socket)
            {
                *self = again;
                since = Instant::now();
            }
            let servers = self.servers(Some(backend)).unwrap_or_default();
            let now = Instant::now();
            if condition(servers.get(backend).unwrap_or(&BTreeSet::new())) {
                return Ok(now);
            }
            if now > deadline {
                bail!("not within {within:?}: {servers:?}");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Servers that are up and in no maintenance.
fn parse(answer: &str) -> Result<Servers> {
    let mut lines = answer.lines().skip_while(|line| !line.starts_with('#'));
    let header = lines.next().with_context(|| format!("no servers in: {answer}"))?;
    let columns: Vec<&str> = header.trim_start_matches("# ").split(' ').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).context("an unknown form of servers");
    let (backend, address) = (column("be_name")?, column("srv_addr")?);
    let (state, maintenance) = (column("srv_op_state")?, column("srv_admin_state")?);
    let mut servers = Servers::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        if word(state) == "2" && word(maintenance) == "0" {
            servers.entry(word(backend).to_owned()).or_default().insert(word(address).to_owned());
        }
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_requests_counts() {
        let answer = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight\n\
                      3 one 1 a 10.77.0.1 2 0 1\n3 one 2 b 10.77.0.2 0 1 1\n3 one 3 c 10.77.0.3 0 0 1\n4 two 1 a 10.77.0.4 2 0 1\n";
        let servers = parse(answer).unwrap();
        assert_eq!(servers.len(), 2);
        assert_eq!(servers["one"], BTreeSet::from(["10.77.0.1".to_owned()]));
        assert!(parse("Unknown command").is_err());
    }
}
