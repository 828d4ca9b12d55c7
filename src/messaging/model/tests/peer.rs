//! A broker of the test world: it keeps queues, addresses and settings, and refuses or dawdles when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messaging::broker::*;
use crate::messaging::ids::Slot;

/// What it holds, and how it behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Broker {
    pub up: bool,
    /// Its id, where that is not its name's.
    pub node: Option<std::sync::Arc<str>>,
    pub queues: BTreeMap<Slot, ObservedQueue>,
    pub addresses: BTreeMap<Slot, Vec<Routing>>,
    pub settings: BTreeMap<Slot, Settings>,
    pub marks: BTreeSet<Slot>,
    /// Addresses that somebody receives from.
    pub used: BTreeSet<Slot>,
    /// Slots that are refused, with the words.
    pub refuses: BTreeMap<Slot, String>,
    /// Answers are held back.
    pub slow: bool,
    pub waiting: Vec<Job>,
    pub incarnation: u64,
    /// Durable queues that were destroyed with messages in them. Others promise to keep nothing.
    pub destroyed: Vec<Slot>,
    /// Jobs carried out, by slot.
    pub log: Vec<(Slot, &'static str)>,
}

impl Broker {
    pub fn carry(&mut self, job: &Job) -> Result<Done, String> {
        let word = match &job.wish {
            Wish::Hold { .. } => "hold",
            Wish::Verify { .. } => "verify",
            Wish::Gone { .. } => "gone",
        };
        self.log.push((job.slot.clone(), word));
        if let Some(words) = self.refuses.get(&job.slot) {
            return Err(words.clone());
        }
        match &job.wish {
            Wish::Hold { entry, .. } if is_ground(&job.slot) => {
                self.settings.insert(entry.address.clone(), Settings::default());
                self.marks.insert(job.slot.clone());
                Ok(Done::Held)
            }
            Wish::Hold { entry, replace } => {
                if entry.ground.iter().any(|g| !self.settings.contains_key(g)) {
                    return Err("before its space".into());
                }
                if entry.settings.is_none() && !self.addresses.contains_key(&entry.address) {
                    return Err(format!("no address {}", entry.address));
                }
                if let Some(queue) = &entry.queue {
                    if let Some(have) = self.queues.get(&queue.name)
                        && (have.routing != entry.routing || have.address != entry.address)
                        && !replace
                    {
                        return Err(format!("there is a queue of another kind with {} messages", have.messages));
                    }
                    let messages =
                        self.queues.get(&queue.name).filter(|q| q.routing == entry.routing).map_or(0, |q| q.messages);
                    let observed = ObservedQueue {
                        name: queue.name.clone(),
                        address: entry.address.clone(),
                        routing: entry.routing,
                        durable: queue.durable,
                        max_consumers: queue.max_consumers,
                        messages,
                    };
                    self.queues.insert(queue.name.clone(), observed);
                }
                match &entry.queue {
                    None => drop(self.marks.insert(job.slot.clone())),
                    Some(_) => drop(self.marks.remove(&job.slot)),
                }
                if let Some(settings) = &entry.settings {
                    self.addresses.insert(entry.address.clone(), vec![entry.routing]);
                    self.settings.insert(entry.address.clone(), settings.clone());
                }
                Ok(Done::Held)
            }
            Wish::Verify { entry } => {
                let Some(settings) = &entry.settings else { return Ok(Done::Held) };
                if entry.queue.is_none() {
                    self.marks.insert(job.slot.clone());
                }
                let old = self.settings.insert(entry.address.clone(), settings.clone());
                Ok(if old.as_ref() == Some(settings) { Done::Held } else { Done::Repaired })
            }
            Wish::Gone { entry, only_if_empty } => {
                let messages = entry.queue.as_ref().and_then(|q| self.queues.get(&q.name)).map_or(0, |q| q.messages);
                if *only_if_empty && messages > 0 {
                    return Ok(Done::NotEmpty { messages });
                }
                if *only_if_empty && entry.queue.is_none() && self.used.contains(&entry.address) {
                    return Ok(Done::NotEmpty { messages: 0 });
                }
                if entry.queue.is_none() {
                    self.marks.remove(&job.slot);
                }
                if let Some(queue) = &entry.queue
                    && self.queues.remove(&queue.name).is_some_and(|queue| queue.durable && queue.messages > 0)
                {
                    self.destroyed.push(queue.name.clone());
                }
                if entry.settings.is_some() {
                    self.addresses.remove(&entry.address);
                    self.settings.remove(&entry.address);
                }
                Ok(Done::Gone)
            }
        }
    }

    pub fn contents(&self) -> Arc<Contents> {
        Arc::new(Contents { queues: self.queues.clone(), addresses: self.addresses.clone(), marks: self.marks.clone() })
    }
}
