//! Reading all that a router holds of ours.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use serde_json::Value;
use tokio::time::Instant;

use super::carry::Caller;
use super::link::{Answer, CallError, Operation, Request, Type};
use super::memory::Memory;
use super::names::Names;
use super::ops::{self, Shown};
use crate::messaging::router::{Abilities, Contents};

/// Rows a page: a longer one holds up what comes behind it.
pub const PAGE: u32 = 500;
/// Pages that are asked for at a time, while they come quickly. The routers hand a row at a time from one thread to
/// another, which costs less the more there is to hand over.
pub const PAGES: usize = 50;
/// Pages that take less are asked for more at a time, and those that take more less: for each row a router walks its
/// list from the beginning, so that a page of 500 behind 100,000 rows takes it seconds, in which it does little else.
const QUICK: Duration = Duration::from_millis(250);
const SLOW: Duration = Duration::from_secs(1);

/// Why a read brought nothing.
#[derive(Debug, PartialEq)]
pub enum ReadError {
    /// Only a person can mend it: the router's words.
    Unreadable(String),
    /// The session is of no use any more.
    Dead(String),
}

impl From<CallError> for ReadError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(_) | CallError::NotFound => Self::Unreadable(error.to_string()),
            CallError::Lost(_) | CallError::TimedOut => Self::Dead(error.to_string()),
        }
    }
}

/// Asks for all entities of a type, so many pages at a time, and hands on each row: the `attributes`, in their order.
///
/// A list may change while it is read: a row that moves to an earlier page may be missed.
pub async fn pages(
    caller: &Caller<'_>,
    of: Type,
    attributes: &'static [&'static str],
    at_a_time: usize,
    deadline: Duration,
    mut row: impl FnMut(Vec<Value>),
) -> Result<(), CallError> {
    let mut open = FuturesOrdered::new();
    let (mut next, mut window, mut ended) = (0, 1, false);
    loop {
        while !ended && open.len() < window {
            let operation = Operation::Query { offset: next, count: PAGE, attributes };
            let began = Instant::now();
            let page = caller.send(Request { of, operation }, deadline);
            open.push_back(async move { (page.await, began.elapsed()) });
            next += PAGE;
        }
        let Some((answer, took)) = open.next().await else { return Ok(()) };
        let rows = match answer? {
            Answer::Rows(rows) => rows,
            _ => return Err(CallError::Lost("the answer to a question has no rows".to_owned())),
        };
        if rows.len() < PAGE as usize || of.is_shown_whole() {
            ended = true;
        } else if took < QUICK {
            window = (window * 2).min(at_a_time);
        } else if took > SLOW {
            window = (window / 2).max(1);
        }
        rows.into_iter().for_each(&mut row);
    }
}

/// Entities by the position of their attributes.
pub fn by_position(attributes: &[&str], row: &[Value], attribute: &str) -> Option<Value> {
    let at = attributes.iter().position(|name| *name == attribute)?;
    row.get(at).cloned()
}

/// What was read.
pub struct Reading {
    /// For this session.
    pub memory: Memory,
    /// For the model.
    pub contents: Contents,
}

/// Reads everything with the mark of `names`, each page within `deadline`.
///
/// # Errors
/// When the router will not, or cannot any more.
pub async fn read(
    caller: &Caller<'_>,
    names: &Names,
    abilities: Abilities,
    seed: u64,
    deadline: Duration,
) -> Result<Reading, ReadError> {
    let mut reading = Reading { memory: Memory::new(seed), contents: Contents::default() };
    let mut types = VecDeque::from([Type::Connector, Type::Listener, Type::Address, Type::AutoLink]);
    if abilities.link_routes {
        types.push_back(Type::LinkRoute);
    }
    if abilities.policies {
        types.push_back(Type::Vhost);
    }
    for of in types {
        let attributes = match of {
            Type::Address if !abilities.waypoints => ops::attributes_without_waypoint(),
            of => ops::attributes(of),
        };
        pages(caller, of, attributes, PAGES, deadline, |row| {
            let Some((name, shown)) = ops::shown(names, of, |attribute| by_position(attributes, &row, attribute))
            else {
                return;
            };
            let Reading { memory, contents } = &mut reading;
            let (slot, number) = match shown {
                Shown::Known(slot, entity) => {
                    let number = entity.fingerprint();
                    memory.add(&slot, entity);
                    (slot, number)
                }
                Shown::Stray(slot) => {
                    let number = crate::messaging::router::digest(&name);
                    memory.add_stray(slot.clone(), (of, name));
                    (slot, number)
                }
            };
            let sum = contents.slots.entry(slot).or_default();
            *sum = sum.wrapping_add(number);
        })
        .await?;
    }
    Ok(reading)
}
