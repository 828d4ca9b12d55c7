//! Links of routers to brokers: what is told of them, and for how long.

use super::routers::routed;
use super::world::{World, key};
use crate::messaging::input::AddressType::*;
use crate::messaging::reason;
use crate::messaging::router::*;

#[test]
fn a_link_that_fails_is_told_once_and_taken_back() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    let slot = w.slot("q");
    w.link("r1", &slot, true);
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((false, reason::LINK_FAILED)));
    assert_eq!(w.writes("q"), 2);
    w.link("r1", &slot, false);
    w.advance(5_000);
    assert_eq!(w.ready("q"), Some((true, reason::CONFIGURED)));
    assert_eq!(w.writes("q"), 3);
}

/// Whoever fills a router anew does not look at each link: what was said of one stays until somebody has.
#[test]
fn what_was_told_of_a_link_stays_until_it_was_looked_at_after_a_refill() {
    for works in [false, true] {
        let mut w = World::routed(&["b"], &["r1"]);
        w.address("q", Queue);
        w.run();
        let slot = w.slot("q");
        w.link("r1", &slot, true);
        w.advance(5_000);
        let (said, writes) = (w.message("q"), w.writes("q"));
        w.router("r1").unseen = true;
        w.router_down("r1");
        w.run();
        w.router_up("r1");
        w.advance(3_000);
        assert!(w.router("r1").serving());
        assert_eq!((w.ready("q"), w.message("q")), (Some((false, reason::LINK_FAILED)), said));
        if works {
            w.router("r1").failing.clear();
        } else {
            w.link("r1", &slot, true);
        }
        w.looked("r1");
        w.advance(3_000);
        let now = if works { (true, reason::CONFIGURED) } else { (false, reason::LINK_FAILED) };
        assert_eq!((w.ready("q"), w.writes("q")), (Some(now), writes + usize::from(works)));
    }
}

#[test]
fn links_of_a_connector_that_is_down_are_its_matter() {
    let mut w = routed();
    w.address("q", Queue);
    w.run();
    w.advance(3_000);
    let slot = w.slot("q");
    for router in ["r1", "r2"] {
        let (id, incarnation) = (w.router_id(router), w.router(router).incarnation);
        w.router(router).cut.insert("b".into());
        let down = RouterLink::Connector("b".into(), Some("connection refused".into()));
        w.input(crate::messaging::input::Input::Router(id, incarnation, down));
        w.link(router, &slot, true);
    }
    w.advance(20_000);
    assert_eq!((w.ready("q"), w.writes("q")), (Some((true, reason::CONFIGURED)), 1));
    // A new one waits for it, and says so once.
    w.address("new", Queue);
    w.advance(20_000);
    assert_eq!((w.ready("new"), w.writes("new")), (Some((false, reason::BROKER_UNREACHABLE)), 1));
    assert!(w.message("new").contains("no connection to broker b"), "{}", w.message("new"));
    let message = w.configs[&key("rc")].status.routers[0].message.clone();
    assert!(message.contains("broker b") && message.contains("refused"), "{message}");
}
