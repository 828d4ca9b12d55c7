//! The part of the files that needs a reload: what is wanted of it, what the files say, what the process runs on.
//!
//! Invariant: the files say what a process has taken, but for the moment in which it is asked to take something else, and
//! where there is none to ask. So HAProxy starts from them, whatever a RouterConfig says.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::time::Instant;

use super::link::ReloadError;
use super::order::Limits;
use crate::edge::input::RouterConfig;
use crate::edge::render::{FixedPart, Layout, Mark, reloads};
use crate::engine::jitter::{Jitter, doubling};

/// What a reload was asked for by, where no field of the RouterConfig is known to have changed.
pub const OUTDATED: &str = "outdated";
/// A process that lacked much when it was found.
pub const BEHIND: &str = "behind";

/// Characters of HAProxy's words that people are told.
const WORDS: usize = 600;

/// A process: its number and its start.
pub type Process = (u32, u64);

/// See the module.
pub struct Fixed {
    layout: Layout,
    config: Arc<RouterConfig>,
    wanted: Arc<FixedPart>,
    files: Arc<FixedPart>,
    /// What the files say is what a process was seen to run on, or what was found there.
    taken: bool,
    /// What the process says that it runs on; none before one was asked.
    running: Option<Option<Mark>>,
    /// What a process that said that was to run on.
    base: Option<(Option<Mark>, Arc<RouterConfig>)>,
    /// Fields that have changed since, where that is not known.
    fields: Vec<&'static str>,
    last: Option<Instant>,
    refused: Option<Refused>,
    /// The process that was found last.
    process: Option<Process>,
    /// What a reload was done for, where no process was found since then.
    loaded: Option<(Option<Mark>, Arc<RouterConfig>)>,
    /// What was wanted, and what a process says that has loaded it: somebody else's files have another word for it.
    alias: Option<(Option<Mark>, Option<Mark>)>,
    /// Since when no process answers.
    away: Option<Instant>,
}

struct Refused {
    what: Option<Mark>,
    words: Arc<str>,
    failures: u32,
    again: Instant,
}

impl Fixed {
    /// What is wanted, and what was found in the files.
    pub fn new(layout: Layout, config: &Arc<RouterConfig>, there: Option<FixedPart>) -> Self {
        let wanted = Arc::new(FixedPart::of(config, &layout));
        Self {
            layout,
            config: Arc::clone(config),
            taken: there.is_some(),
            files: there.map_or_else(|| Arc::clone(&wanted), Arc::new),
            wanted,
            running: None,
            base: None,
            fields: Vec::new(),
            last: None,
            refused: None,
            process: None,
            loaded: None,
            alias: None,
            away: None,
        }
    }

    /// That is wanted from now on, and differs in these fields from what was.
    pub fn want(&mut self, config: &Arc<RouterConfig>, fields: Vec<&'static str>) {
        if !Arc::ptr_eq(config, &self.config) {
            self.config = Arc::clone(config);
            self.wanted = Arc::new(FixedPart::of(config, &self.layout));
        }
        self.fields.extend(fields);
        self.fields.sort_unstable();
        self.fields.dedup();
        if !self.is_outdated() {
            self.fields.clear();
        }
    }

    /// What the files are to say.
    pub fn files(&self) -> Arc<FixedPart> {
        Arc::clone(&self.files)
    }

    /// A process answers, and says that it runs on that. Whether the files have something else to say from now on.
    pub fn found(&mut self, process: Process, mark: Option<Mark>) -> bool {
        self.away = None;
        self.running = Some(mark);
        let is_new = self.process.replace(process) != Some(process);
        // The old one may answer for a moment.
        let loaded = if is_new { self.loaded.take() } else { None };
        if mark == self.wanted.mark() {
            (self.refused, self.taken) = (None, true);
            self.fields.clear();
            self.base = Some((mark, Arc::clone(&self.config)));
            return self.turn_to_wanted();
        }
        // Something else may be wanted by now than what was loaded.
        if let Some((what, config)) = loaded {
            self.alias = (what != mark).then_some((what, mark));
            self.base = Some((mark, config));
            self.fields.clear();
        }
        self.taken |= mark == self.files.mark();
        false
    }

    /// Fields that differ from what the process runs on, as far as they are known.
    fn fields(&self) -> Vec<&'static str> {
        match &self.base {
            Some((mark, config)) if self.running == Some(*mark) => reloads(config, &self.config),
            _ => self.fields.clone(),
        }
    }

    fn turn_to_wanted(&mut self) -> bool {
        let differs = self.files != self.wanted;
        self.files = Arc::clone(&self.wanted);
        differs
    }

    /// Whether the process runs on something else than what is wanted.
    pub fn is_outdated(&self) -> bool {
        let Some(running) = self.running else { return false };
        running != self.wanted.mark() && self.alias != Some((self.wanted.mark(), running))
    }

    /// Whether that is about to end.
    pub fn is_untried(&self) -> bool {
        self.is_outdated() && self.refusal().is_none()
    }

    fn refusal(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|refused| refused.what == self.wanted.mark())
    }

    /// Why not everything that is wanted is in force, for people.
    pub fn lacks(&self) -> Option<Arc<str>> {
        if !self.is_outdated() {
            return None;
        }
        let fields = self.fields();
        let fields = if fields.is_empty() { String::new() } else { format!(" for {}", fields.join(", ")) };
        Some(match self.refusal() {
            Some(Refused { words, .. }) => format!("it goes on as it was: the reload{fields} failed: {words}").into(),
            None => format!("it is to be reloaded{fields}").into(),
        })
    }

    /// When a reload may be done; none: it is not wanted.
    pub fn reload_at(&self, limits: &Limits) -> Option<Instant> {
        if !self.is_outdated() {
            return None;
        }
        let earliest = self.last.map_or_else(Instant::now, |last| last + limits.reload);
        Some(self.refusal().map_or(earliest, |refused| refused.again))
    }

    /// Whether a process may be started from the files for another reason: not again and again.
    pub fn may_reload(&self, limits: &Limits) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= limits.reload)
    }

    /// The files are about to be loaded: what they are to say is in them from now on. What to put back if that fails, and
    /// why it is done.
    pub fn begin(&mut self) -> (Arc<FixedPart>, Vec<&'static str>) {
        self.last = Some(Instant::now());
        let before = Arc::clone(&self.files);
        let fields = self.fields();
        let reasons = match (self.is_outdated(), fields.is_empty()) {
            (false, _) => vec![BEHIND],
            (true, true) => vec![OUTDATED],
            (true, false) => fields,
        };
        // What was refused is tried when its time has come, and does not keep a process from what it lacks.
        if self.refusal().is_none_or(|refused| refused.again <= Instant::now()) {
            self.files = Arc::clone(&self.wanted);
            return (before, reasons);
        }
        (before, vec![BEHIND])
    }

    /// Where the files have HAProxy listen and those before did not: at port 0 where only the address is new, since its own
    /// sockets are in nobody's way. Nothing where it is not known where it listens.
    pub fn new_binds(&self, before: &FixedPart) -> Vec<SocketAddr> {
        if self.running != Some(before.mark()) {
            return Vec::new();
        }
        let there = before.binds();
        let has_port = |port| there.iter().any(|bind| bind.port() == port);
        let new = self.files.binds().into_iter().filter(|bind| !there.contains(bind));
        // Those of both families would be in their own way.
        let new = new.filter(|bind| bind.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        new.map(|bind| if has_port(bind.port()) { SocketAddr::new(bind.ip(), 0) } else { bind }).collect()
    }

    /// They are loaded.
    pub fn loaded(&mut self) {
        if self.files == self.wanted {
            self.loaded = Some((self.wanted.mark(), Arc::clone(&self.config)));
            self.refused = None;
            self.fields.clear();
        }
    }

    /// They could not be written.
    pub fn put_back(&mut self, before: Arc<FixedPart>) {
        self.files = before;
    }

    /// They are not loaded: HAProxy's words, shortened.
    pub fn refused(
        &mut self,
        before: Arc<FixedPart>,
        error: &ReloadError,
        limits: &Limits,
        jitter: &Jitter,
    ) -> Arc<str> {
        let words = spoken(error);
        let failures = self.refusal().map_or(0, |refused| refused.failures);
        if self.files == self.wanted {
            let wait = doubling(limits.reload, limits.reload_longest, failures);
            let again = Instant::now() + limits.reload.max(jitter.spread(wait));
            let words = Arc::clone(&words);
            self.refused = Some(Refused { what: self.wanted.mark(), words, failures: failures + 1, again });
        }
        // Where nobody can be asked, who starts HAProxy anew is to have what is wanted.
        let nobody = match error {
            ReloadError::NoMaster => true,
            ReloadError::Unreachable(_) => failures >= 2,
            ReloadError::Refused(_) | ReloadError::TimedOut => false,
        };
        if !nobody {
            self.files = before;
        }
        words
    }

    /// No process answers. Whether the files have something else to say from now on: that which was there may be what
    /// keeps it from starting.
    pub fn unreachable(&mut self, limits: &Limits) -> bool {
        let since = *self.away.get_or_insert_with(Instant::now);
        let long = !self.taken || since.elapsed() >= limits.reload;
        long && self.refusal().is_none() && self.turn_to_wanted()
    }
}

/// What is of use to people: the alarms, without the numbers of processes, which differ each time.
fn spoken(error: &ReloadError) -> Arc<str> {
    let words = error.to_string();
    let is_number = |word: &str| {
        word.strip_prefix('(').and_then(|word| word.strip_suffix(')')).is_some_and(|word| word.parse::<u32>().is_ok())
    };
    let plain = |line: &str| line.split_whitespace().filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ");
    let said = |kind: &str| -> Vec<String> {
        let of_kind = |line: &str| plain(line.strip_prefix(kind)?).strip_prefix(": ").map(str::to_owned);
        words.lines().filter_map(of_kind).collect()
    };
    let told = [said("[ALERT]"), said("[WARNING]"), vec![plain(&words)]].into_iter().find(|lines| !lines.is_empty());
    let text = told.unwrap_or_default().join("; ");
    match text.char_indices().nth(WORDS) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
