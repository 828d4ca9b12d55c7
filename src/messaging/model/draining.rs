//! When a draining queue is asked again whether it is empty. No broker tells when one has become so.
//!
//! A queue that is being emptied is asked often, so that it is let go of soon after its last message; one where nothing
//! moves more and more seldom. They wait in lines of their own, and a broker is asked for each line at most so often:
//! however many lie still, they cost a fixed share, and take nothing from what moves or has just begun.

use super::Timing;
use super::target::backoff;
use crate::maps::Map;
use crate::messaging::ids::Slot;

/// What an answer says of a queue.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// It was asked for the first time.
    New,
    /// There are fewer messages than before.
    Moves,
    /// There are not.
    Still,
}

/// The draining queues of one broker.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// Messages in each when it was last asked, and how often in a row they were not fewer than before.
    asked: Map<Slot, (u64, u32)>,
    /// When each is asked again, by line.
    due: [Map<Slot, u64>; 3],
}

impl Draining {
    /// A queue was found to hold `messages`: when it is asked again.
    pub fn found(&mut self, slot: &Slot, messages: u64, now_ms: u64, timing: &Timing) -> u64 {
        let (line, still) = match self.asked.get(slot) {
            None => (Line::New, 0),
            Some((before, _)) if messages < *before => (Line::Moves, 0),
            Some((_, still)) => (Line::Still, still + 1),
        };
        self.asked.insert(slot.clone(), (messages, still));
        self.leave(slot);
        let line = &mut self.due[line as usize];
        let turn = timing.drain_turn_ms.saturating_mul(line.len() as u64 + 1);
        let due = now_ms + backoff(timing.drain_ms, timing.drain_cap_ms, still).max(turn);
        line.insert(slot.clone(), due);
        due
    }

    /// Whether it may be asked now; it leaves its line then.
    pub fn is_due(&mut self, slot: &Slot, now_ms: u64) -> bool {
        if self.due.iter().any(|line| line.get(slot).is_some_and(|due| *due > now_ms)) {
            return false;
        }
        self.leave(slot);
        true
    }

    /// It drains no more.
    pub fn over(&mut self, slot: &Slot) {
        self.asked.remove(slot);
        self.leave(slot);
    }

    fn leave(&mut self, slot: &Slot) {
        for line in &mut self.due {
            line.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Queues, as many as named, where nothing moves; asked until `end_ms`. How often any was asked after `from_ms`.
    fn asked(draining: &mut Draining, count: usize, from_ms: u64, end_ms: u64) -> usize {
        let timing = Timing::default();
        let mut timers = BTreeSet::new();
        for number in 0..count {
            timers.insert((0, Slot::from(format!("q{number}"))));
        }
        let mut asked = 0;
        while let Some((now, slot)) = timers.pop_first().filter(|(now, _)| *now < end_ms) {
            if draining.is_due(&slot, now) {
                asked += usize::from(now >= from_ms);
                timers.insert((draining.found(&slot, 7, now, &timing), slot));
            }
        }
        asked
    }

    #[test]
    fn however_many_lie_still_a_broker_is_asked_for_a_fixed_number() {
        let mut draining = Draining::default();
        let asked = asked(&mut draining, 10_000, 600_000, 700_000);
        assert!((3_900..4_200).contains(&asked), "{asked} in 100 s");
    }

    #[test]
    fn what_is_new_or_being_emptied_does_not_wait_behind_what_lies_still() {
        let mut draining = Draining::default();
        asked(&mut draining, 10_000, 0, 600_000);
        let (timing, late) = (Timing::default(), Slot::from("late"));
        let mut now = 600_000;
        for left in (0..5).rev() {
            let due = draining.found(&late, left, now, &timing);
            assert_eq!(due - now, timing.drain_ms);
            now = due;
            assert!(draining.is_due(&late, now));
        }
    }

    #[test]
    fn an_older_timer_does_not_ask_twice() {
        let (mut draining, timing, slot) = (Draining::default(), Timing::default(), Slot::from("q"));
        let first = draining.found(&slot, 1, 0, &timing);
        let second = draining.found(&slot, 1, 100, &timing);
        assert!(!draining.is_due(&slot, first));
        assert!(draining.is_due(&slot, second));
    }
}
