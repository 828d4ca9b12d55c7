//! Properties over random sequences of operations, and the named cases.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Letter {
    slot: u8,
    tenant: u8,
    class: Class,
    generation: u64,
}

impl Item for Letter {
    type Slot = u8;
    type Tenant = u8;

    fn slot(&self) -> u8 {
        self.slot
    }
    fn tenant(&self) -> &u8 {
        &self.tenant
    }
    fn class(&self) -> Class {
        self.class
    }
    fn generation(&self) -> u64 {
        self.generation
    }
}

fn letter(slot: u8, tenant: u8, class: Class, generation: u64) -> Letter {
    Letter { slot, tenant, class, generation }
}

fn take_all(mailbox: &Mailbox<Letter>) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(taken) = mailbox.try_take(1, Class::Repair) {
        all.extend(taken.into_iter().map(|taken| taken.generation));
    }
    all
}

#[test]
fn the_newest_of_a_slot_wins_and_keeps_its_place() {
    let mailbox = Mailbox::default();
    mailbox.put(letter(1, 0, Class::Change, 1));
    mailbox.put(letter(2, 0, Class::Change, 2));
    mailbox.put(letter(1, 0, Class::Repair, 3));
    assert_eq!(mailbox.depth(Class::Change), 2);
    assert_eq!(take_all(&mailbox), [3, 2]);
}

#[test]
fn a_change_of_what_waits_for_repair_goes_with_the_changes() {
    let mailbox = Mailbox::default();
    for slot in 0..5 {
        mailbox.put(letter(slot, 0, Class::Repair, u64::from(slot)));
    }
    mailbox.put(letter(4, 0, Class::Change, 10));
    assert_eq!((mailbox.depth(Class::Change), mailbox.depth(Class::Repair)), (1, 4));
    assert_eq!(take_all(&mailbox), [10, 0, 1, 2, 3]);
}

#[test]
fn a_bulk_of_one_tenant_does_not_stand_before_two_of_another() {
    let mailbox = Mailbox::default();
    for slot in 0..100 {
        mailbox.put(letter(slot, 0, Class::Change, u64::from(slot)));
    }
    mailbox.put(letter(200, 1, Class::Change, 200));
    mailbox.put(letter(201, 1, Class::Change, 201));
    assert_eq!(take_all(&mailbox)[..4], [0, 200, 1, 201]);
}

#[test]
fn one_of_a_slot_in_flight_and_the_next_goes_when_its_turn_has_come() {
    let mailbox = Mailbox::default();
    mailbox.put(letter(1, 0, Class::Change, 1));
    assert_eq!(take_all(&mailbox), [1]);
    mailbox.put(letter(1, 0, Class::Change, 2));
    mailbox.put(letter(2, 0, Class::Change, 3));
    assert!(mailbox.superseded(&1));
    assert_eq!(take_all(&mailbox), [3]);
    mailbox.put(letter(3, 0, Class::Change, 4));
    assert!(!mailbox.done(&1, 7));
    assert!(mailbox.done(&1, 1));
    assert_eq!(take_all(&mailbox), [2, 4]);
}

#[test]
fn what_is_lost_goes_first_again_unless_superseded() {
    let mailbox = Mailbox::default();
    for slot in 1..=3 {
        mailbox.put(letter(slot, 0, Class::Change, u64::from(slot)));
    }
    assert_eq!(take_all(&mailbox), [1, 2, 3]);
    mailbox.put(letter(9, 0, Class::Change, 9));
    mailbox.put(letter(2, 0, Class::Change, 12));
    mailbox.lost();
    assert_eq!(mailbox.in_flight(), 0);
    assert_eq!(take_all(&mailbox), [1, 3, 9, 12]);
}

#[test]
fn what_is_tried_again_goes_to_the_end_unless_superseded() {
    let mailbox = Mailbox::default();
    for slot in 1..=3 {
        mailbox.put(letter(slot, 0, Class::Change, u64::from(slot)));
    }
    assert_eq!(mailbox.try_take(2, Class::Repair).unwrap().len(), 2);
    mailbox.put(letter(2, 0, Class::Change, 12));
    assert!(mailbox.again(&1, 1));
    assert!(!mailbox.again(&2, 2));
    assert_eq!(take_all(&mailbox), [3, 12, 1]);
}

#[test]
fn repairs_wait_where_only_changes_are_asked_for() {
    let mailbox = Mailbox::default();
    mailbox.put(letter(1, 0, Class::Repair, 1));
    assert_eq!(mailbox.try_take(5, Class::Change), None);
    mailbox.put(letter(2, 0, Class::Change, 2));
    assert_eq!(mailbox.try_take(5, Class::Change).unwrap().len(), 1);
    assert_eq!(take_all(&mailbox), [1]);
}

#[tokio::test(start_paused = true)]
async fn several_workers_are_woken_one_by_one_and_all_by_the_close() {
    let mailbox: Mailbox<Letter> = Mailbox::default();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mailbox = mailbox.clone();
        workers.spawn(async move {
            let mut taken = 0;
            loop {
                let items = mailbox.take(1, Class::Repair).await;
                if items.is_empty() {
                    return taken;
                }
                taken += items.len();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                mailbox.done(&items[0].slot, items[0].generation);
            }
        });
    }
    for generation in 0..60 {
        mailbox.put(letter(u8::try_from(generation % 40).unwrap(), 0, Class::Change, generation));
    }
    while !mailbox.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    mailbox.close();
    let taken: Vec<usize> = workers.join_all().await;
    assert_eq!(taken.iter().sum::<usize>(), 40, "20 of 60 were superseded while they waited: {taken:?}");
    assert!(taken.iter().all(|&taken| taken > 0), "{taken:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Put { slot: u8, repair: bool },
    Take(usize, bool),
    Done(usize),
    Again(usize),
    Lost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..24u8, any::<bool>()).prop_map(|(slot, repair)| Step::Put { slot, repair }),
        4 => (1..4usize, any::<bool>()).prop_map(|(max, all)| Step::Take(max, all)),
        3 => any::<prop::sample::Index>().prop_map(|at| Step::Done(at.index(1 << 20))),
        1 => any::<prop::sample::Index>().prop_map(|at| Step::Again(at.index(1 << 20))),
        1 => Just(Step::Lost),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Against the plainest model there is: the newest undone item of every slot.
    #[test]
    fn nothing_is_lost_reordered_or_doubled(steps in steps()) {
        let mailbox = Mailbox::default();
        let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
        let mut last_taken: BTreeMap<u8, u64> = BTreeMap::new();
        let mut flying: Vec<Letter> = Vec::new();
        let mut generation = 0;
        let take = |mailbox: &Mailbox<Letter>, max, lowest, flying: &mut Vec<Letter>,
                        last_taken: &mut BTreeMap<u8, u64>, newest: &BTreeMap<u8, u64>| {
            let taken = mailbox.try_take(max, lowest).unwrap_or_default();
            prop_assert!(taken.len() <= max);
            for item in taken {
                prop_assert!(flying.iter().all(|other| other.slot != item.slot), "two of a slot in flight");
                prop_assert_eq!(newest.get(&item.slot), Some(&item.generation), "not the newest");
                let before = last_taken.insert(item.slot, item.generation);
                prop_assert!(before <= Some(item.generation), "an older one after a newer one");
                flying.push(item);
            }
            Ok(())
        };
        for step in steps {
            match step {
                Step::Put { slot, repair } => {
                    generation += 1;
                    let class = if repair { Class::Repair } else { Class::Change };
                    mailbox.put(letter(slot, slot % 5, class, generation));
                    newest.insert(slot, generation);
                }
                Step::Take(max, all) => {
                    let lowest = if all { Class::Repair } else { Class::Change };
                    take(&mailbox, max, lowest, &mut flying, &mut last_taken, &newest)?;
                }
                Step::Done(at) if !flying.is_empty() => {
                    let item = flying.remove(at % flying.len());
                    prop_assert!(mailbox.done(&item.slot, item.generation));
                    if newest.get(&item.slot) == Some(&item.generation) {
                        newest.remove(&item.slot);
                    }
                }
                Step::Again(at) if !flying.is_empty() => {
                    let item = flying.remove(at % flying.len());
                    let waits = newest.get(&item.slot) == Some(&item.generation);
                    prop_assert_eq!(mailbox.again(&item.slot, item.generation), waits);
                }
                Step::Done(_) | Step::Again(_) => {}
                Step::Lost => {
                    mailbox.lost();
                    flying.clear();
                }
            }
            prop_assert_eq!(mailbox.in_flight(), flying.len());
            let waiting: BTreeSet<u8> = newest
                .iter()
                .filter(|(slot, newest)| !flying.iter().any(|f| f.slot == **slot && f.generation == **newest))
                .map(|(slot, _)| *slot)
                .collect();
            prop_assert_eq!(mailbox.depth(Class::Change) + mailbox.depth(Class::Repair), waiting.len());
        }
        mailbox.lost();
        flying.clear();
        take(&mailbox, usize::MAX, Class::Repair, &mut flying, &mut last_taken, &newest)?;
        let rest: BTreeMap<u8, u64> = flying.iter().map(|item| (item.slot, item.generation)).collect();
        prop_assert_eq!(rest, newest);
    }

    /// An item of a tenant that had nothing waiting is taken within as many takes as there are tenants.
    #[test]
    fn an_idle_tenant_is_served_within_one_round(others in prop::collection::vec((0..200u8, 0..7u8), 0..300)) {
        let mailbox = Mailbox::default();
        let mut generation = 0;
        let mut tenants = BTreeSet::new();
        for (slot, tenant) in others {
            generation += 1;
            // One tenant a slot, as with addresses.
            let tenant = slot % 7 + tenant / 7;
            tenants.insert(tenant);
            mailbox.put(letter(slot, tenant, Class::Change, generation));
            if generation % 3 == 0 {
                mailbox.try_take(1, Class::Repair);
            }
        }
        mailbox.put(letter(255, 99, Class::Change, 1_000));
        let within = (0..=tenants.len()).any(|_| {
            mailbox.try_take(1, Class::Repair).is_some_and(|taken| taken[0].slot == 255)
        });
        prop_assert!(within);
    }
}
