//! Carrying steps out: commands without waiting in between, answers in their order, a verdict a step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::{AskError, Asked, ProcessSession};
use super::read;
use crate::drive::meter::Meter;
use crate::edge::render::Layout;
use crate::edge::runtime::answer::Answer;
use crate::edge::runtime::carry::{LINE, Step, VERSION, line_of};
use crate::edge::runtime::command::{Command, Kind};
use crate::edge::runtime::show::CrtListLine;
use crate::edge::wanted::{Change, Slot, Value};

/// Bytes of a command before its payload: with more than 16 KB HAProxy closes the connection.
const MAX_LINE: usize = 15_000;

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its slots are as they are wanted.
    Done,
    /// What it removes is in use: it takes nothing new, and is to be removed again later.
    Busy,
    /// HAProxy said no, in these words.
    Refused(Arc<str>),
    /// The process did not hold what it was thought to hold: it is to be read.
    Surprise(Arc<str>),
}

/// What carries steps out on one session.
pub(super) struct Carrier<'a> {
    session: &'a dyn ProcessSession,
    layout: &'a Layout,
    meter: &'a dyn Meter,
    window: usize,
    command: Duration,
    /// Lines of hosts as last read, without those deleted since.
    lines: Option<Vec<CrtListLine>>,
}

/// A command under way.
struct Flying {
    kind: Kind,
    sent: Instant,
    answer: Asked,
}

/// A step under way.
struct Sent {
    step: Step,
    commands: Vec<Flying>,
}

impl<'a> Carrier<'a> {
    pub fn new(
        session: &'a dyn ProcessSession,
        layout: &'a Layout,
        meter: &'a dyn Meter,
        window: usize,
        command: Duration,
    ) -> Self {
        Self { session, layout, meter, window, command, lines: None }
    }

    /// Carries out steps, in order; `verdict` is told of each as its last answer comes. `changes` are what they were
    /// made from. Steps whose verdict was not told are unknown when the session ends.
    pub async fn carry(
        &mut self,
        steps: Vec<Step>,
        changes: &[Change],
        mut verdict: impl FnMut(Step, Verdict),
    ) -> Result<(), AskError> {
        let mut flying: VecDeque<Sent> = VecDeque::new();
        let mut count = 0;
        for mut step in steps {
            if step.commands.iter().any(|command| first_line(command).len() > MAX_LINE) {
                verdict(step, Verdict::Refused("it is longer than HAProxy takes".into()));
                continue;
            }
            if step.commands.first().is_some_and(|command| command.kind == Kind::PrepareMap) {
                // Its answers decide what is sent next.
                let said = self.transaction(&step).await?;
                verdict(step, said);
                continue;
            }
            if step.one_by_one {
                let said = self.one_by_one(&step).await?;
                verdict(step, said);
                continue;
            }
            if step.commands.iter().any(|command| command.kind == Kind::DelCrtList) {
                self.fill_line(&mut step, changes).await?;
            }
            while count + step.commands.len() > self.window
                && let Some(sent) = flying.pop_front()
            {
                count -= sent.commands.len();
                self.finish(sent, &mut verdict).await?;
            }
            count += step.commands.len();
            let commands = step.commands.iter().map(|command| self.send(command)).collect();
            // HAProxy has one transaction of certificates at a time: one that is refused must be aborted before the
            // next begins, or refuses that one as well.
            let alone = !step.undo.is_empty();
            flying.push_back(Sent { step, commands });
            if alone {
                while let Some(sent) = flying.pop_front() {
                    self.finish(sent, &mut verdict).await?;
                }
                count = 0;
            }
        }
        for sent in flying {
            self.finish(sent, &mut verdict).await?;
        }
        Ok(())
    }

    /// Sends one command and reads its answer.
    pub async fn ask(&self, command: &Command) -> Result<Answer, AskError> {
        let flying = self.send(command);
        self.answer(flying).await
    }

    fn send(&self, command: &Command) -> Flying {
        Flying {
            kind: command.kind,
            sent: Instant::now(),
            answer: self.session.ask(command.text.clone(), self.command),
        }
    }

    async fn answer(&self, flying: Flying) -> Result<Answer, AskError> {
        let text = flying.answer.await;
        let answer = text.as_ref().map(|text| Answer::read(flying.kind, text));
        let result = match &answer {
            Ok(Answer::Done | Answer::Version(_)) => "ok",
            Ok(Answer::Already) => "already",
            Ok(Answer::Missing) => "missing",
            Ok(Answer::Busy) => "busy",
            Ok(Answer::Refused(_)) => "refused",
            Err(error) => error.category(),
        };
        self.meter.command(flying.kind.as_str(), result, flying.sent.elapsed());
        answer.map_err(Clone::clone)
    }

    async fn finish(&self, sent: Sent, verdict: &mut impl FnMut(Step, Verdict)) -> Result<(), AskError> {
        let Sent { step, commands } = sent;
        let mut said = Verdict::Done;
        for flying in commands {
            let kind = flying.kind;
            let answer = self.answer(flying).await?;
            // The first that fails says why; those behind it fail since it did.
            if said == Verdict::Done {
                said = judge(kind, answer, step.removal);
            }
        }
        if said != Verdict::Done {
            for command in &step.undo {
                self.ask(command).await?;
            }
        }
        verdict(step, said);
        Ok(())
    }

    /// Each command when the one before holds; the rest is left.
    async fn one_by_one(&self, step: &Step) -> Result<Verdict, AskError> {
        for command in &step.commands {
            let answer = self.ask(command).await?;
            if let (Kind::SwitchFrontend, Answer::Missing) = (command.kind, &answer) {
                // Whoever should take over was left out at the start: the other one goes on.
                return Ok(Verdict::Done);
            }
            let said = judge(command.kind, answer, step.removal);
            if said != Verdict::Done {
                return Ok(said);
            }
        }
        Ok(Verdict::Done)
    }

    /// A map in one transaction: what is prepared is committed only if every part was taken.
    async fn transaction(&self, step: &Step) -> Result<Verdict, AskError> {
        let [prepare, parts @ .., last] = &step.commands[..] else {
            return Ok(Verdict::Surprise("a transaction without an end".into()));
        };
        let version = match self.ask(prepare).await? {
            Answer::Version(number) => number,
            Answer::Refused(words) => return Ok(Verdict::Refused(words)),
            _ => return Ok(Verdict::Surprise("no version was prepared".into())),
        };
        let numbered = |command: &Command| replaced(command, VERSION, &format!("@{version}"));
        let parts: Vec<Flying> = parts.iter().map(|part| self.send(&numbered(part))).collect();
        let mut said = Verdict::Done;
        for part in parts {
            let answer = self.answer(part).await?;
            if said == Verdict::Done {
                said = judge(Kind::SetMap, answer, false);
            }
        }
        if said == Verdict::Done {
            said = judge(last.kind, self.ask(&numbered(last)).await?, false);
        }
        Ok(said)
    }

    /// Puts the number of a host's old line in its place; a command for one that is not there is left out.
    async fn fill_line(&mut self, step: &mut Step, changes: &[Change]) -> Result<(), AskError> {
        let mut number = None;
        if let Some(Slot::CrtList(host)) = step.slots.first()
            && let Some(Value::CrtLine(before)) =
                changes.iter().find(|change| step.slots.first() == Some(&change.slot)).and_then(|c| c.before.as_ref())
        {
            // As last read; what has been added since is not there, and then it is read again.
            for fresh in [false, true] {
                if fresh || self.lines.is_none() {
                    self.lines = Some(read::crt_list(self.session, self.layout, self.command).await?);
                }
                number = self.lines.as_ref().and_then(|lines| line_of(lines, host, before, self.layout));
                if number.is_some() {
                    break;
                }
            }
            if let (Some(number), Some(lines)) = (number, &mut self.lines) {
                let path = self.layout.certificate(&before.certificate);
                lines.retain(|line| !(line.number == number && line.certificate == path));
            }
        }
        match number {
            Some(number) => {
                let number = number.to_string();
                for command in step.commands.iter_mut().filter(|command| command.kind == Kind::DelCrtList) {
                    *command = replaced(command, LINE, &number);
                }
            }
            None => step.commands.retain(|command| command.kind != Kind::DelCrtList),
        }
        Ok(())
    }
}

fn first_line(command: &Command) -> &str {
    command.text.lines().next().unwrap_or_default()
}

/// A mark in the line of a command; a payload is nobody's to change.
fn replaced(command: &Command, mark: &str, with: &str) -> Command {
    let (line, rest) = command.text.split_at(first_line(command).len());
    Command { kind: command.kind, text: format!("{}{rest}", line.replacen(mark, with, 1)) }
}

fn judge(kind: Kind, answer: Answer, removal: bool) -> Verdict {
    if answer.holds(kind) {
        return Verdict::Done;
    }
    match answer {
        // What is not there needs no removal.
        Answer::Missing if removal => Verdict::Done,
        Answer::Busy if removal => Verdict::Busy,
        Answer::Refused(words) => Verdict::Refused(words),
        Answer::Busy => Verdict::Surprise(format!("{}: in use", kind.as_str()).into()),
        _ => Verdict::Surprise(format!("{}: not there", kind.as_str()).into()),
    }
}
