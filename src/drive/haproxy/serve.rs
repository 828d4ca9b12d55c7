//! One session with a process: read, complete, follow, until it is another one.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::actor::Work;
use super::carry::{Carrier, Verdict};
use super::fixed::Fixed;
use super::link::{AskError, ProcessSession};
use super::order::{Report, State};
use super::read::{self, ReadError};
use crate::edge::input::Input;
use crate::edge::order;
use crate::edge::runtime::carry::{self, Step};
use crate::edge::runtime::command::{Command, Kind};
use crate::edge::runtime::compare::Difference;
use crate::edge::runtime::show::Info;
use crate::edge::wanted::{Change, MapName, Slot, Value};

/// Why a session ended.
pub(super) enum End {
    /// Told to finish, or nobody listens.
    Finished,
    /// The process is, or is about to be, another one.
    Changed,
    /// It is of no use, in words for people.
    Failed(String),
}

impl From<AskError> for End {
    fn from(error: AskError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ReadError> for End {
    fn from(error: ReadError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What carrying out came to.
#[derive(Default)]
struct Tally {
    /// The process is not what it was thought to be: it is to be read before more is carried out.
    surprised: bool,
    /// Ordered maps that were refused as a whole.
    maps: BTreeSet<MapName>,
}

/// A session that is served.
pub(super) struct Session<'a> {
    work: &'a mut Work,
    session: &'a dyn ProcessSession,
    info: Info,
    next_compare: Instant,
    surprised: bool,
    /// What left, is wanted again, and was found as it was: it may be unpublished.
    returned: Vec<Slot>,
    told_leaving: usize,
}

impl<'a> Session<'a> {
    /// Serves a session to its end.
    pub async fn serve(work: &'a mut Work, session: &'a dyn ProcessSession, was_read: &mut bool) -> End {
        let info = match read::info(session, work.limits.command).await {
            Ok(info) if info.stopping => return End::Changed,
            Ok(info) => info,
            Err(error) => return error.into(),
        };
        work.answers = true;
        let next_compare = Instant::now() + work.jitter.spread(work.limits.compare);
        let mut this =
            Self { work, session, info, next_compare, surprised: false, returned: Vec::new(), told_leaving: 0 };
        match this.run(was_read).await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn run(&mut self, was_read: &mut bool) -> Result<End, End> {
        self.work.report(Report::State(State::Filling)).await?;
        let id = (self.info.pid, self.info.started_s);
        if self.work.process != Some(id) {
            self.work.leaving.clear();
        }
        if self.work.fixed.as_mut().is_some_and(|fixed| fixed.found(id, self.info.mark)) {
            self.work.write_all().await?;
        }
        // What was under way when the last session ended may be half done.
        let unsure: Vec<Slot> = self.work.ledger.changes().into_iter().map(|change| change.slot).collect();
        let found = match self.compare().await {
            // Started from files of another version, it may lack what is asked for.
            Err(ReadError::Foreign(words)) => {
                let reloaded = self.work.reload_due() && self.work.reload().await?;
                return Ok(if reloaded { End::Changed } else { End::Failed(words) });
            }
            found => found?,
        };
        if self.work.ledger.assumable() > self.work.limits.behind && self.work.may_refill() {
            self.work.reload().await?;
            return Ok(End::Changed);
        }
        let returned = std::mem::take(&mut self.returned);
        self.publish(&[unsure, returned].concat()).await?;
        self.repair(&found).await?;
        self.work.process = Some(id);
        *was_read = true;
        let mut next_look = Instant::now() + self.work.limits.look;
        loop {
            self.carry_all().await?;
            // Commands that went to a process on its way out are lost: nothing is in force before that is known.
            if Instant::now() >= next_look || self.work.in_force != self.work.ledger.generation() {
                self.look().await?;
                next_look = Instant::now() + self.work.limits.look;
            }
            self.work.tell_in_force().await?;
            if self.work.reload_due() && !self.work.finishing {
                if self.work.reload().await? {
                    return Ok(End::Changed);
                }
                continue;
            }
            let lacks = self.work.fixed.as_ref().and_then(Fixed::lacks);
            self.work.report(Report::State(lacks.map_or(State::Serving, State::Outdated))).await?;
            if self.work.leaving.len() != self.told_leaving {
                self.told_leaving = self.work.leaving.len();
                self.work.report(Report::Leaving(self.told_leaving)).await?;
            }
            if self.work.finishing {
                return Ok(End::Finished);
            }
            let compare_at = match self.surprised {
                _ if self.work.compare_asked => Instant::now(),
                true => self.work.last_surprise.map_or_else(Instant::now, |last| last + self.work.limits.surprise),
                false => self.next_compare,
            };
            let leave_at = self.work.leaving.next();
            let reload_at = self.work.reload_at();
            let at = |when: Option<Instant>| async move {
                match when {
                    Some(when) => sleep_until(when).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // Orders last: a stream of them must not hold up what is rare and has its time.
                biased;
                reason = self.session.lost() => return Ok(End::Failed(reason)),
                () = at(leave_at) => self.leave().await?,
                () = at(reload_at) => {}
                done = self.work.writer.tick() => self.work.wrote(done).await?,
                () = sleep_until(next_look) => {}
                () = sleep_until(compare_at) => {
                    if self.surprised {
                        self.work.last_surprise = Some(Instant::now());
                    }
                    self.surprised = false;
                    // Before the files follow what is found.
                    let files = self.work.verify_files().await?;
                    let asked: BTreeSet<Slot> = self.work.ledger.changes().into_iter().map(|c| c.slot).collect();
                    let found = self.compare().await?;
                    let new = found.changes.iter().filter(|change| is_news(change, &asked)).count();
                    let differences = new + found.whole.len() + found.twice.len();
                    self.work.report(Report::Compared { differences, files }).await?;
                    self.work.compare_asked = false;
                    let returned = std::mem::take(&mut self.returned);
                    self.publish(&returned).await?;
                    self.repair(&found).await?;
                    self.next_compare = Instant::now() + self.work.jitter.spread(self.work.limits.compare);
                }
                order = self.work.orders.recv() => self.work.ordered(order),
            }
        }
    }

    /// Whether the process is the one that the session began with.
    async fn look(&mut self) -> Result<(), End> {
        let now = read::info(self.session, self.work.limits.command).await?;
        let same = now.pid == self.info.pid && now.started_s == self.info.started_s && !now.stopping;
        if same { Ok(()) } else { Err(End::Changed) }
    }

    async fn compare(&mut self) -> Result<Difference, ReadError> {
        let held = read::held(self.session, &self.work.layout, self.work.limits.read).await?;
        let mut found = self.work.ledger.compare(&held, &self.info, &self.work.layout);
        // What is there and wanted again is no change that would tell so.
        let ledger = &self.work.ledger;
        let wanted = |slot: &&Slot| ledger.wanted(slot).is_some();
        let returned: Vec<Slot> = self.work.leaving.slots().filter(wanted).cloned().collect();
        returned.iter().for_each(|slot| self.work.leaving.remove(slot));
        self.returned.extend(returned);
        // What leaves is there, and known.
        let leaving = &self.work.leaving;
        let (known, new): (Vec<Change>, Vec<Change>) =
            found.changes.into_iter().partition(|change| change.after.is_none() && leaving.contains(&change.slot));
        found.changes = new;
        for change in known {
            self.work.ledger.acknowledged(&change.slot);
        }
        Ok(found)
    }

    /// What may have been made and not published: that cannot be read.
    async fn publish(&mut self, unsure: &[Slot]) -> Result<(), End> {
        let all = self.work.process.is_none();
        let backends: Vec<Slot> = match all {
            // One that others commanded before us.
            true => self.work.ledger.held().slots().keys().filter(|s| matches!(s, Slot::Backend(_))).cloned().collect(),
            false => unsure.iter().filter(|slot| matches!(slot, Slot::Backend(_))).cloned().collect(),
        };
        let mut steps = Vec::new();
        for slot in backends {
            let Slot::Backend(name) = &slot else { continue };
            // Held, as it was read; one that is not is made and published anyway.
            if self.work.ledger.held().get(&slot).is_some() && self.work.ledger.wanted(&slot).is_some() {
                let commands = vec![Command::plain(Kind::Publish, format!("publish backend {name}"))];
                steps.push(Step { slots: vec![slot], commands, undo: Vec::new(), removal: false, one_by_one: false });
            }
        }
        let mut carrier = self.work.carrier(self.session);
        carrier.carry(steps, &[], |_, _| {}).await?;
        Ok(())
    }

    /// What is wrong in a process and no change: entries twice, patterns out of order, lines twice.
    async fn repair(&mut self, found: &Difference) -> Result<(), End> {
        let list = self.work.layout.crt_list();
        for (path, number) in &found.twice {
            let line = format!("del ssl crt-list {list} {path}:{number}");
            self.work.carrier(self.session).ask(&Command::plain(Kind::DelCrtList, line)).await?;
        }
        if found.whole.is_empty() {
            return Ok(());
        }
        let maps: BTreeSet<MapName> = found.whole.iter().copied().collect();
        let wanted = self.work.ledger.wanted_maps(&maps);
        for map in maps {
            let step = carry::whole_map(map, &wanted, &self.work.layout);
            let mut said = Verdict::Done;
            self.work.carrier(self.session).carry(vec![step], &[], |_, verdict| said = verdict).await?;
            match said {
                Verdict::Done => self.work.ledger.map_written(map),
                _ => self.map_by_lines(map).await?,
            }
        }
        Ok(())
    }

    /// Carries out all that is pending; looks at orders in between.
    async fn carry_all(&mut self) -> Result<(), End> {
        loop {
            while let Ok(order) = self.work.orders.try_recv() {
                self.work.ordered(Some(order));
            }
            let changes = self.work.ledger.changes();
            if changes.is_empty() {
                return Ok(());
            }
            self.work.write_users(&changes).await?;
            let abandoned = order::abandoned(&changes);
            let (later, changes): (Vec<Change>, Vec<Change>) =
                changes.into_iter().partition(|change| abandoned.contains(&change.slot));
            let ordered: BTreeSet<MapName> = changes
                .iter()
                .filter_map(|change| match &change.slot {
                    Slot::Map(map, _) if map.ordered() => Some(*map),
                    _ => None,
                })
                .collect();
            let wanted = self.work.ledger.wanted_maps(&ordered);
            for change in &changes {
                if change.after.is_some() {
                    // An entry that would not go is there beside the new one: only what is read tells.
                    self.surprised |= matches!(change.slot, Slot::Map(..)) && self.work.leaving.contains(&change.slot);
                    self.work.leaving.remove(&change.slot);
                }
                if matches!(change.slot, Slot::Users(_)) {
                    // Nothing of the process.
                    self.work.ledger.acknowledged(&change.slot);
                }
            }
            let mut steps = self.work.leaving.displaced(&changes);
            steps.extend(carry::steps(&changes, &wanted, &self.work.layout));
            let cut = steps.len() > self.work.limits.chunk;
            steps.truncate(self.work.limits.chunk);
            let mut told = Vec::new();
            let carried =
                self.work.carrier(self.session).carry(steps, &changes, |step, said| told.push((step, said))).await;
            let tally = self.take_verdicts(told).await?;
            self.work.writer.note(self.work.ledger.held());
            carried?;
            for map in tally.maps {
                self.map_by_lines(map).await?;
            }
            if !cut && !tally.surprised {
                // Nothing leads to them from now on.
                let now = Instant::now();
                for change in &later {
                    for step in carry::steps(std::slice::from_ref(change), &wanted, &self.work.layout) {
                        step.slots.iter().for_each(|slot| self.work.ledger.acknowledged(slot));
                        let place = order::takes(change.before.as_ref());
                        self.work.leaving.later(step, place, now, &self.work.limits);
                    }
                }
                self.work.writer.note(self.work.ledger.held());
            }
            if tally.surprised {
                self.surprised = true;
                // What was surprised stays pending: the comparison knows better.
                return Ok(());
            }
            if self.work.ledger.is_settled() {
                // Told before more is taken in: a stream of orders must not put off the word on those before it.
                return Ok(());
            }
        }
    }

    async fn take_verdicts(&mut self, told: Vec<(Step, Verdict)>) -> Result<Tally, End> {
        let mut tally = Tally::default();
        let now = Instant::now();
        for (step, said) in told {
            match said {
                Verdict::Done => {
                    for slot in &step.slots {
                        self.work.leaving.remove(slot);
                        self.work.ledger.acknowledged(slot);
                    }
                }
                Verdict::Busy => {
                    step.slots.iter().for_each(|slot| self.work.ledger.acknowledged(slot));
                    self.work.leaving.busy(step, now, &self.work.limits);
                }
                Verdict::Surprise(_) => tally.surprised = true,
                Verdict::Refused(words) if step.removal => {
                    // It takes nothing new, or nothing leads to it: it is tried again like what is in use.
                    for slot in &step.slots {
                        if !self.work.leaving.contains(slot) {
                            self.work.report(Report::Stuck(slot.clone(), Arc::clone(&words))).await?;
                        }
                        self.work.ledger.acknowledged(slot);
                    }
                    self.work.leaving.busy(step, now, &self.work.limits);
                }
                Verdict::Refused(words) => match step.slots.first() {
                    Some(Slot::Map(map, _)) if map.ordered() => {
                        tally.maps.insert(*map);
                    }
                    // Entries that went together: which of them it was, is asked one by one.
                    Some(Slot::Map(..)) if step.slots.len() > 1 => self.one_by_one(&step).await?,
                    _ => {
                        for slot in &step.slots {
                            self.refuse(slot, &words).await?;
                        }
                        // Something may be half made.
                        self.surprised = true;
                    }
                },
            }
        }
        Ok(tally)
    }

    /// Tells an object what was said of it.
    async fn refuse(&mut self, slot: &Slot, words: &Arc<str>) -> Result<(), End> {
        // One that is about to be replaced by another is no judge.
        let judges = !self.work.fixed.as_ref().is_some_and(Fixed::is_untried);
        if let Some(fingerprint) = self.work.ledger.refused(slot)
            && judges
        {
            self.work.report(Report::Model(Input::Refused(slot.clone(), fingerprint, Arc::clone(words)))).await?;
        }
        Ok(())
    }

    /// Entries that were refused as one: those before the bad one are there, those behind it not.
    async fn one_by_one(&mut self, step: &Step) -> Result<(), End> {
        for slot in &step.slots {
            let (Slot::Map(map, key), Some(Value::Text(value))) = (slot, self.work.ledger.wanted(slot).cloned()) else {
                continue;
            };
            let path = self.work.layout.map(*map);
            let delete = format!("del map {path} {}", crate::edge::runtime::command::word(key));
            let add = Command::with_payload(Kind::SetMap, &format!("add map {path}"), &format!("{key} {value}\n"));
            let carrier = self.work.carrier(self.session);
            carrier.ask(&Command::plain(Kind::DelMap, delete)).await?;
            let answer = carrier.ask(&add).await?;
            match answer {
                crate::edge::runtime::answer::Answer::Refused(words) => self.refuse(slot, &words).await?,
                _ => self.work.ledger.acknowledged(slot),
            }
        }
        Ok(())
    }

    /// A map that was refused as a whole: every line is tried by itself in a version that is never committed, and the
    /// map is written without those that are bad.
    async fn map_by_lines(&mut self, map: MapName) -> Result<(), End> {
        let path = self.work.layout.map(map);
        let wanted = self.work.ledger.wanted_maps(&BTreeSet::from([map]));
        let carrier = self.work.carrier(self.session);
        let prepare = Command::plain(Kind::PrepareMap, format!("prepare map {path}"));
        let crate::edge::runtime::answer::Answer::Version(version) = carrier.ask(&prepare).await? else {
            self.surprised = true;
            return Ok(());
        };
        let mut steps = Vec::new();
        for (key, value) in wanted.map(map) {
            let line = format!("add map @{version} {path}");
            let commands = vec![Command::with_payload(Kind::SetMap, &line, &format!("{key} {value}\n"))];
            let slots = vec![Slot::Map(map, Arc::clone(key))];
            steps.push(Step { slots, commands, undo: Vec::new(), removal: false, one_by_one: false });
        }
        let mut bad: Vec<(Slot, Arc<str>)> = Vec::new();
        self.work
            .carrier(self.session)
            .carry(steps, &[], |step, said| {
                if let Verdict::Refused(words) = said {
                    bad.extend(step.slots.into_iter().map(|slot| (slot, Arc::clone(&words))));
                }
            })
            .await?;
        if bad.is_empty() {
            self.surprised = true;
            return Ok(());
        }
        for (slot, words) in &bad {
            self.refuse(slot, words).await?;
        }
        let wanted = self.work.ledger.wanted_maps(&BTreeSet::from([map]));
        let step = carry::whole_map(map, &wanted, &self.work.layout);
        let mut said = Verdict::Done;
        self.work.carrier(self.session).carry(vec![step], &[], |_, verdict| said = verdict).await?;
        match said {
            Verdict::Done => self.work.ledger.map_written(map),
            _ => self.surprised = true,
        }
        Ok(())
    }

    /// Tries again to remove what was in use.
    async fn leave(&mut self) -> Result<(), End> {
        let due = self.work.leaving.due(Instant::now());
        let mut told = Vec::new();
        let carried = self.work.carrier(self.session).carry(due, &[], |step, said| told.push((step, said))).await;
        self.take_verdicts(told).await?;
        Ok(carried?)
    }
}

/// Whether a difference says that the process is not what it was thought to be: contents and limits that cannot be read
/// are told again and again.
fn is_news(change: &Change, asked: &BTreeSet<Slot>) -> bool {
    if asked.contains(&change.slot) {
        return false;
    }
    match (&change.before, &change.after) {
        (Some(Value::Server(before)), Some(Value::Server(after))) => {
            before.drain != after.drain || before.address != after.address || before.port != after.port
        }
        (Some(Value::Sealed(_)), Some(Value::Sealed(_))) => false,
        _ => true,
    }
}

impl Work {
    pub(super) fn carrier<'s>(&'s self, session: &'s dyn ProcessSession) -> Carrier<'s> {
        Carrier::new(session, &self.layout, &*self.meter, self.limits.window, self.limits.command)
    }
}
