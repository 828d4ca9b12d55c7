//! Plans and orders that properties choose from.

use std::sync::Arc;

use crate::messaging::input::{AddressType, Redelivery, Ttl};
use crate::messaging::plans::{AddressPlan, Limits, SpacePlan};

/// Mostly one of two plans; sometimes one that does not exist, or none.
pub fn plan(index: usize) -> Option<Arc<str>> {
    ["small", "small", "small", "large", "large", "large", "lost", ""]
        .get(index)
        .filter(|p| !p.is_empty())
        .map(|p| (*p).into())
}

pub fn space_plan(index: usize) -> Option<Arc<str>> {
    ["tight", "wide", "lost"].get(index).map(|p| (*p).into())
}

/// Two plans of Addresses: none, some, some that cost more, some that fit less.
pub fn address_plans(which: usize) -> Vec<AddressPlan> {
    use AddressType::*;
    let plan = |name: &str, router, broker, types: &[AddressType]| AddressPlan {
        name: name.into(),
        types: types.to_vec(),
        router,
        broker,
        partitions: if name == "large" && which == 2 { 2 } else { 1 },
        ttl: Ttl { minimum_ms: None, maximum_ms: (name == "large").then_some(9) },
        redelivery: Redelivery::default(),
    };
    let all = [Anycast, Multicast, Queue, Topic, Subscription, DeadLetter];
    match which {
        0 => vec![],
        1 => vec![plan("small", 100, 200, &all), plan("large", 300, 1_000, &all)],
        2 => vec![plan("small", 100, 500, &all), plan("large", 1_000, 700, &all)],
        _ => vec![plan("small", 0, 200, &all[1..4]), plan("large", 300, 0, &[Queue, Topic, Anycast])],
    }
}

/// Two plans of spaces, of which one has little room: for few, for little credit, for few plans.
pub fn space_plans(which: usize) -> Vec<SpacePlan> {
    let plan = |name: &str, limits, allowed: &[&str]| SpacePlan {
        name: name.into(),
        limits,
        allowed: allowed.iter().map(|name| (*name).into()).collect(),
    };
    let tight = match which {
        0 => return vec![],
        1 => Limits { addresses: Some(2), ..Limits::default() },
        2 => Limits { broker: Some(1_200), router: Some(600), ..Limits::default() },
        _ => Limits { aggregate: Some(1_500), addresses: Some(3), ..Limits::default() },
    };
    let allowed: &[&str] = if which == 3 { &["small"] } else { &[] };
    vec![plan("tight", tight, allowed), plan("wide", Limits { addresses: Some(5), ..Limits::default() }, &[])]
}

/// The same order for the same seed.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for last in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(last, (state >> 33) as usize % (last + 1));
    }
}
