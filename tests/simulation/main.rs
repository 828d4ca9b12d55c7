//! Simulation: the whole operator on a simulated clock, between an API server, brokers and routers in memory; and in
//! [`edge`] whole agents of an edge, between the same API server, HAProxies and their files. A seed decides what people
//! do, what fails and when anything crashes; a run repeats from its seed to the last byte.
//!
//! `dev/simulate --seed N` runs one seed again and prints what happened; `dev/simulate --edge --seed N` one of the edge.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod api;
mod broker;
mod check;
mod choice;
mod edge;
mod fleet;
mod lies;
mod life;
mod newer;
mod people;
mod plan;
mod random;
mod remotes;
mod router;
mod run;
mod schedule;
mod seeds;
mod services;
mod shrink;
mod slices;
mod stage;
mod surroundings;
mod terms;
mod trace;
mod wanted;
mod world;

use lies::Lie;
use plan::Plan;

#[test]
fn a_thousand_schedules_end_in_agreement() {
    seeds::each::<Plan>(&(0..1_000).collect::<Vec<u64>>());
}

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    seeds::each::<Plan>(&seeds::known::<Plan>());
}

#[test]
fn a_seed_repeats_to_the_last_request() {
    seeds::repeat::<Plan>(0..20);
}

/// `dev/simulate`: seeds from the environment.
#[test]
#[ignore = "run by dev/simulate"]
fn simulate() {
    seeds::from_environment::<Plan>();
}

fn found(lie: Lie) {
    seeds::found::<Plan>(lie);
}

#[test]
fn finds_answers_that_come_before_the_deed() {
    found(Lie::EarlyAnswer);
}

#[test]
fn finds_queues_that_are_destroyed_because_nobody_counted() {
    found(Lie::EmptyCount);
}

#[test]
fn finds_a_finalizer_that_is_forgotten() {
    found(Lie::ForgottenFinalizer);
}

#[test]
fn finds_a_status_that_is_not_written() {
    found(Lie::DroppedStatus);
}

#[test]
fn finds_an_event_that_is_lost() {
    found(Lie::LostEvent);
}

#[test]
fn finds_two_who_lead_at_once() {
    found(Lie::BlindLease);
}

#[test]
fn finds_routers_that_are_acknowledged_before_they_answer() {
    found(Lie::EarlyRoute);
}

#[test]
fn finds_a_router_that_says_too_early_that_it_is_filled() {
    found(Lie::EagerListener);
}

#[test]
fn finds_links_that_are_not_made_again() {
    found(Lie::ForgottenLinks);
}

#[test]
fn finds_what_is_left_over_on_a_router_that_was_away() {
    found(Lie::SkippedRemoval);
}

#[test]
fn finds_a_way_that_stays_open_into_what_is_being_left() {
    found(Lie::OpenWay);
}

#[test]
fn finds_a_space_that_is_given_more_than_its_plan_has() {
    found(Lie::WideGate);
}

#[test]
fn finds_queues_that_move_and_nobody_asked_for_it() {
    seeds::found_saying::<Plan>(Lie::FalseDrain, " and is on [");
}

#[test]
fn finds_a_router_that_nobody_was_told_of() {
    found(Lie::LostSlice);
}

#[test]
fn finds_a_service_that_was_never_made() {
    found(Lie::PhantomService);
}

#[test]
fn finds_connectors_that_are_not_made_again() {
    found(Lie::ForgottenRemotes);
}

#[test]
fn finds_a_password_that_is_not_changed() {
    found(Lie::OldPassword);
}

#[test]
fn finds_links_of_forwarders_that_are_left_over() {
    found(Lie::LeftForwards);
}
