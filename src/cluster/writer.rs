//! The status writer: carries out the model's writes, many at a time, one of an object at a time.
//!
//! What fails and may succeed later stays in flight, waits its turn (longer each time, by object) and goes again
//! unless a newer one has come; what can never succeed is answered. Nothing is sent without the permit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::meter::{Meter, WriteResult};
use super::patch::{self, Failure, Leave, Objects};
use crate::engine::jitter::{Jitter, doubling};
use crate::engine::mailbox::{Class, Item, Mailbox};
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;
use crate::messaging::ids::{Key, Kind};
use crate::messaging::input::Input;
use crate::messaging::output::{Write, WriteDone, WriteError};

impl Item for Write {
    type Slot = (Kind, Key);
    type Tenant = Key;

    fn slot(&self) -> (Kind, Key) {
        (self.kind, self.key.clone())
    }

    fn tenant(&self) -> &Key {
        &self.tenant
    }

    fn class(&self) -> Class {
        if self.low { Class::Repair } else { Class::Change }
    }

    fn generation(&self) -> u64 {
        self.seq
    }
}

/// Bounds of the writer.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Writes under way.
    pub concurrency: usize,
    /// For a call; none is sent while the permit lasts less.
    pub deadline: Duration,
    /// Wait after the first failure of an object's write; doubles.
    pub first_wait: Duration,
    /// Longest wait of an object.
    pub longest_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 16,
            deadline: Duration::from_secs(5),
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// Everything the writer works with.
pub struct Writer {
    /// For writes.
    pub client: Client,
    /// What is to be written.
    pub outbox: Mailbox<Write>,
    /// Whether it may be.
    pub permit: Permit,
    /// Where answers go.
    pub inputs: mpsc::Sender<Input>,
    /// Bounds.
    pub limits: Limits,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
    /// Take nothing more; end when what is under way is answered.
    pub stop: Stop,
}

type Attempt = (Write, Result<Option<u64>, Failure>);

/// Leave to send one write: the permit, and that the write is wanted still.
struct Wanted<'a> {
    permit: &'a Permit,
    outbox: &'a Mailbox<Write>,
    deadline: Duration,
    write: &'a Write,
}

impl Leave for Wanted<'_> {
    async fn granted(&self) -> bool {
        self.permit.granted(self.deadline).await;
        self.outbox.flies(&self.write.slot(), self.write.seq)
    }
}

impl Writer {
    /// Runs until stopped, or until nobody takes answers.
    pub async fn run(self) {
        let Self { client, outbox, permit, inputs, limits, jitter, meter, stop } = self;
        let mut attempts: HashMap<(Kind, Key), u32, RandomState> =
            HashMap::with_hasher(RandomState::with_seeds(3, 5, 7, 9));
        let mut writing: FuturesUnordered<BoxFuture<'_, Attempt>> = FuturesUnordered::new();
        let mut waiting: FuturesUnordered<BoxFuture<'_, Write>> = FuturesUnordered::new();
        loop {
            let stopping = stop.is_requested();
            if stopping && (writing.is_empty() || !permit.allows(limits.deadline)) {
                return;
            }
            let room = if stopping { 0 } else { limits.concurrency.saturating_sub(writing.len()) };
            tokio::select! {
                biased;
                () = stop.requested(), if !stopping => {}
                Some((write, result)) = writing.next(), if !writing.is_empty() => {
                    let slot = write.slot();
                    let done = match result {
                        Ok(Some(version)) => {
                            meter.write(write.kind, WriteResult::Written);
                            Ok(version)
                        }
                        Ok(None) => {
                            // Forgotten meanwhile; nobody waits for an answer.
                            attempts.remove(&slot);
                            outbox.done(&slot, write.seq);
                            continue;
                        }
                        Err(Failure::Gone) => {
                            meter.write(write.kind, WriteResult::Skipped);
                            Err(WriteError::Gone)
                        }
                        Err(Failure::Refused(words)) => {
                            meter.write(write.kind, WriteResult::Failed);
                            tracing::warn!(kind = write.kind.as_str(), key = %write.key, words, "a write was refused");
                            Err(WriteError::Refused(words.into()))
                        }
                        Err(Failure::Later(after)) => {
                            meter.write(write.kind, WriteResult::Retried);
                            let failed = attempts.entry(slot).or_default();
                            let wait = jitter.spread(doubling(limits.first_wait, limits.longest_wait, *failed));
                            *failed += 1;
                            let wait = after.map_or(wait, |after| after.max(wait));
                            waiting.push(async move {
                                sleep(wait).await;
                                write
                            }.boxed());
                            continue;
                        }
                    };
                    attempts.remove(&slot);
                    let answer = WriteDone { kind: write.kind, key: write.key.clone(), seq: write.seq, result: done };
                    if inputs.send(Input::Written(answer)).await.is_err() {
                        return;
                    }
                    outbox.done(&slot, write.seq);
                }
                Some(write) = waiting.next(), if !waiting.is_empty() => {
                    let slot = write.slot();
                    if !outbox.again(&slot, write.seq) {
                        meter.write(write.kind, WriteResult::Skipped);
                    }
                }
                taken = outbox.take(room, Class::Repair), if room > 0 => {
                    if taken.is_empty() {
                        return;
                    }
                    for write in taken {
                        let objects = Objects::new(&client, write.kind, &write.key.namespace, limits.deadline);
                        let (permit, outbox, deadline) = (&permit, &outbox, limits.deadline);
                        writing.push(async move {
                            let leave = Wanted { permit, outbox, deadline, write: &write };
                            let result = patch::carry_out(&objects, &write, &leave).await;
                            (write, result)
                        }.boxed());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
