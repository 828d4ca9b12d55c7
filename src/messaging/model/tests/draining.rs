//! How often queues are asked that go once they are empty.

use super::world::World;
use crate::messaging::input::AddressType::Queue;

impl World {
    /// A queue with messages that waits for its last one.
    fn draining_queue(&mut self, name: &str) {
        self.address_with(name, Queue, |a| a.when_empty = true);
        self.run();
        self.put_messages(name, 5);
        self.delete(name);
        self.run();
    }

    /// How often the broker was asked for something to be gone.
    fn asked(&mut self) -> usize {
        self.broker("b").log.iter().filter(|(_, word)| *word == "gone").count()
    }
}

#[test]
fn what_lies_still_is_asked_more_and_more_seldom() {
    let mut w = World::new();
    w.draining_queue("q");
    w.advance(60_000);
    let before = w.asked();
    assert!((5..12).contains(&before), "{before}");
    w.advance(600_000);
    let more = w.asked() - before;
    assert!((38..44).contains(&more), "{more}: every fifteen seconds");
    w.put_messages("q", 0);
    w.advance(15_000);
    assert_eq!(w.queue("q"), None);
}

#[test]
fn what_is_being_emptied_goes_soon_after_its_last_message() {
    let mut w = World::new();
    w.draining_queue("q");
    w.advance(100_000);
    for left in (0..200).rev() {
        w.put_messages("q", left);
        w.advance(100);
    }
    w.advance(500);
    assert_eq!(w.queue("q"), None);
}

#[test]
fn a_comparison_lets_go_of_what_it_finds_empty_and_asks_for_nothing_else() {
    let mut w = World::new();
    w.draining_queue("q");
    w.draining_queue("r");
    w.advance(61_000);
    let before = w.asked();
    w.put_messages("q", 0);
    w.change_config(|c| c.resync = Some("now".into()));
    w.run();
    assert_eq!((w.queue("q"), w.asked() - before), (None, 1));
}
