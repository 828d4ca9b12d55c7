//! Reading all that a broker holds of ours.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::Value;
use tokio::time::timeout;

use super::link::{BrokerSession, Call, CallError};
use super::ops::{self, Refusal};
use crate::messaging::broker::{Contents, Routing};
use crate::messaging::ids::Slot;

/// Queues a page: a page costs the broker a walk over all queues, whatever its size.
const PAGE: u32 = 20_000;

/// Why a read brought nothing.
#[derive(Debug, PartialEq)]
pub enum ReadError {
    /// Only a person can mend it: the broker's words.
    Unreadable(String),
    /// The session is of no use any more.
    Dead(String),
}

/// Reads the queues of `owner` and the addresses of the broker, each answer within `deadline`, up to `window`
/// questions at a time.
pub async fn read(
    session: &dyn BrokerSession,
    owner: &str,
    window: usize,
    deadline: Duration,
) -> Result<Contents, ReadError> {
    let ask = |call: Call| {
        let answer = session.ask(call);
        async move {
            match timeout(deadline, answer).await.unwrap_or(Err(CallError::TimedOut)) {
                Ok(value) => Ok(value),
                Err(CallError::Refused(words)) => Err(ReadError::Unreadable(words)),
                Err(error) => Err(ReadError::Dead(error.to_string())),
            }
        }
    };
    let unreadable = |error: ops::UnexpectedAnswer| ReadError::Unreadable(error.to_string());

    let mut contents = Contents::default();
    let (mut page, mut tries) = (1, 0);
    loop {
        let answer: Value = match ask(ops::list_queues(owner, page, PAGE)).await {
            Err(ReadError::Unreadable(words)) if ops::classify(&words) == Refusal::Passing && tries < ops::TRIES => {
                tries += 1;
                continue;
            }
            answer => answer?,
        };
        let rows = ops::parse_queues(&answer).map_err(unreadable)?;
        let last = rows.queues.is_empty() || u64::from(page) * u64::from(PAGE) >= rows.total;
        for row in rows.queues.into_iter().filter(|row| row.is_of(owner)) {
            match ops::marked(&row.queue.name) {
                Some(slot) => drop(contents.marks.insert(slot)),
                None => drop(contents.queues.insert(row.queue.name.clone(), row.queue)),
            }
        }
        if last {
            break;
        }
        page += 1;
    }

    let names = ops::parse_names(&ask(ops::address_names()).await?).map_err(unreadable)?;
    let mut others = Vec::new();
    for name in names {
        let name = Slot::from(name);
        match contents.queues.get(&name).filter(|queue| queue.address == name).map(|queue| queue.routing) {
            Some(routing) => {
                contents.addresses.insert(name, vec![routing]);
            }
            // The broker's own, and what marks are on.
            None if name.starts_with('$') || name.starts_with("activemq.") || name.starts_with(ops::MARKS) => {}
            None => others.push(name),
        }
    }
    // What has no queue of ours of the same name: topics and multicast addresses of ours, and other people's.
    let mut infos = stream::iter(others.into_iter().map(|name| {
        let info = ask(ops::address_info(&name));
        async move { (name, info.await) }
    }))
    .buffered(window.max(1));
    while let Some((name, info)) = infos.next().await {
        let routing: Vec<Routing> = match info {
            Ok(info) => ops::parse_routing(&info).map_err(unreadable)?,
            // Gone meanwhile.
            Err(ReadError::Unreadable(words)) if ops::classify(&words) == Refusal::NotFound => continue,
            Err(error) => return Err(error),
        };
        contents.addresses.insert(name, routing);
    }
    Ok(contents)
}
