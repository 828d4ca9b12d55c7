//! What the log says of brokers and routers: once for each turn, with where and why.

use super::world::World;
use crate::messaging::input::Link;

impl World {
    /// Everything that was logged since the last time.
    fn logged(&mut self) -> Vec<String> {
        let notes = std::mem::take(&mut self.notes).into_iter().map(|note| (note.warning, note.message));
        let events = std::mem::take(&mut self.events).into_iter().filter(|event| {
            // What notes say as well, and with more.
            use crate::messaging::reason::event::*;
            ![BROKER_UNREACHABLE, ROUTER_UNREACHABLE, BROKER_SERVING, ROUTER_SERVING].contains(&event.reason)
        });
        let events = events.map(|event| (event.warning, event.message));
        events.chain(notes).map(|(warning, text)| format!("{} {text}", if warning { "warn" } else { "info" })).collect()
    }

    fn fails(&mut self, words: &str) {
        let id = self.id("b");
        let incarnation = self.broker("b").incarnation;
        self.live.remove(&id);
        self.broker("b").up = false;
        self.input(Input::Target(id, incarnation, Link::Down(words.into())));
    }
}

use crate::messaging::input::Input;

#[test]
fn an_outage_is_logged_once_for_each_cause_and_its_end_with_its_length() {
    let mut w = World::new();
    assert_eq!(w.logged(), ["info broker b at h:5672 serves"]);
    w.fails("cannot be reached: connection refused");
    w.advance(20_000);
    assert_eq!(w.logged(), ["warn broker b at h:5672: cannot be reached: connection refused"]);
    for words in ["login by PLAIN refused", "cannot be reached: connection refused", "login by PLAIN refused"] {
        w.fails(words);
        w.advance(10_000);
    }
    assert_eq!(w.logged(), ["warn broker b at h:5672: login by PLAIN refused"]);
    w.broker_up("b");
    w.advance(5_000);
    assert_eq!(w.logged(), ["info broker b at h:5672 serves again after 50s"]);
}

#[test]
fn a_new_process_logs_what_it_finds_down_though_it_is_no_event() {
    let mut w = World::new();
    w.fails("connection refused");
    w.advance(20_000);
    (w.events, w.notes) = Default::default();
    w.restart();
    w.advance(3_000);
    w.fails("connection refused");
    w.advance(20_000);
    assert_eq!(w.events, []);
    assert_eq!(w.logged(), ["warn broker b at h:5672: connection refused"]);
}
