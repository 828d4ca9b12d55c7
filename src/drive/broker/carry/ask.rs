//! What a broker is asked while a job is carried out, and how anything is sent at all.

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{Carrier, Halt, OURS, owner_of};
use crate::drive::broker::link::{Call, CallError};
use crate::drive::broker::ops::{self, AddressInfo, ListedQueue, Refusal};
use crate::messaging::broker::ObservedQueue;
use crate::messaging::ids::Slot;

/// Whose a queue is.
pub(super) enum Standing {
    Ours(ObservedQueue),
    Anothers,
    Nobodys,
}

impl Carrier<'_> {
    /// The queue of this name if it is ours; another's is a refusal.
    pub(super) async fn ours(&self, name: &Slot) -> Result<Option<ObservedQueue>, Halt> {
        // Counting is cheap, while listing walks all queues of the broker. It is asked even where a queue is known:
        // it may have gone a moment ago.
        if self.count(name).await?.is_none() {
            self.memory().queues.remove(name);
            return Ok(None);
        }
        let known = self.memory().queues.get(name).cloned();
        match known {
            Some(known) => Ok(Some(known)),
            None => self.find_ours(name).await,
        }
    }

    pub(super) async fn find_ours(&self, name: &Slot) -> Result<Option<ObservedQueue>, Halt> {
        match self.listed(ops::find_queue(name)).await?.pop() {
            None => Ok(None),
            Some(row) if row.is_of(self.owner) => Ok(Some(row.queue)),
            // A broker that had lost everything made it for whoever was quicker than we: with the messages that came since.
            Some(row) if row.by_itself && !row.user.starts_with(OURS) => {
                self.call(ops::adopt_queue(name, self.owner)).await?;
                Ok(Some(row.queue))
            }
            Some(row) => Err(Halt::Refused(format!(
                "queue {name} is there already, made by {}, and holds {} messages: remove it, or use another address",
                owner_of(&row),
                row.queue.messages,
            ))),
        }
    }

    /// Whose queue stands under this name, for one that is to go.
    pub(super) async fn standing(&self, name: &Slot) -> Result<Standing, Halt> {
        let known = self.memory().queues.get(name).cloned();
        if let Some(known) = known {
            return Ok(Standing::Ours(known));
        }
        if self.count(name).await?.is_none() {
            return Ok(Standing::Nobodys);
        }
        Ok(match self.listed(ops::find_queue(name)).await?.pop() {
            Some(row) if row.is_of(self.owner) => Standing::Ours(row.queue),
            Some(_) => Standing::Anothers,
            None => Standing::Nobodys,
        })
    }

    /// Messages in a queue; none when there is no such queue.
    pub(super) async fn count(&self, name: &Slot) -> Result<Option<u64>, Halt> {
        match self.call(ops::message_count(name)).await {
            Ok(answer) => ops::parse_count(&answer).map(Some).map_err(|error| Halt::Dead(error.to_string())),
            Err(halt) if halt.is(Refusal::NotFound) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    pub(super) async fn address(&self, address: &str) -> Result<Option<AddressInfo>, Halt> {
        match self.call(ops::address_info(address)).await {
            Ok(answer) => ops::parse_address(&answer).map(Some).map_err(|error| Halt::Dead(error.to_string())),
            Err(halt) if halt.is(Refusal::NotFound) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    /// A queue on this address that another owner has made; where `alone`, also one that people made to stay.
    pub(super) async fn anothers_on(&self, address: &str, alone: bool) -> Result<Option<ListedQueue>, Halt> {
        // Names are cheap, while listing walks all queues of the broker.
        let names = match self.call(ops::queues_on(address)).await {
            Ok(answer) => ops::parse_names(&answer).map_err(|error| Halt::Dead(error.to_string()))?,
            Err(halt) if halt.is(Refusal::NotFound) => return Ok(None),
            Err(halt) => return Err(halt),
        };
        if names.iter().all(|name| self.memory().queues.contains_key(name.as_str())) {
            return Ok(None);
        }
        let bound = self.listed(ops::list_bound(address)).await?;
        Ok(bound.into_iter().find(|row| match row.user.starts_with(OURS) {
            true => !row.is_of(self.owner),
            false => alone && row.queue.durable && !row.by_itself,
        }))
    }

    pub(super) async fn listed(&self, call: Call) -> Result<Vec<ListedQueue>, Halt> {
        let mut tries = 0;
        let answer = loop {
            match self.call(call.clone()).await {
                Err(halt) if halt.is(Refusal::Passing) && tries < ops::TRIES => tries += 1,
                answer => break answer?,
            }
        };
        Ok(ops::parse_queues(&answer).map_err(|error| Halt::Dead(error.to_string()))?.queues)
    }

    // === Sending ===

    pub(super) async fn call(&self, call: Call) -> Result<Value, Halt> {
        self.permit.granted(self.deadline).await;
        self.send(call).await
    }

    /// Sends at once, before the future is polled: the order of calls is the order on the broker.
    pub(super) fn send(&self, call: Call) -> impl Future<Output = Result<Value, Halt>> + Send + use<'_> {
        let operation = call.operation;
        let began = Instant::now();
        let answer = self.session.call(call);
        async move {
            let answer = timeout(self.deadline, answer).await.unwrap_or(Err(CallError::TimedOut));
            let result = answer.as_ref().map_or_else(CallError::category, |_| "ok");
            self.meter.command(operation, result, began.elapsed());
            self.pace.answered(began);
            answer.map_err(|error| match error {
                CallError::Refused(words) => Halt::Refused(words),
                error => Halt::Dead(error.to_string()),
            })
        }
    }
}
