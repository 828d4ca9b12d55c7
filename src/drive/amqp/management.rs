//! Requests and their answers over one pair of links: a sender to a management node and a receiver with an address
//! that the peer made up.
//!
//! Requests are sent in the order in which [`Management::request`] is called, without waiting for each other; answers
//! are matched by a correlation id, which must be a string (router agents drop other types). Nothing is retried.
//! A lost link fails every open request at once; the client cannot be used again.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Source, Target,
};
use fe2o3_amqp::types::primitives::SimpleValue;
use fe2o3_amqp::{Delivery, Receiver, Sendable, Sender};
use futures::FutureExt;
use serde_amqp::Value;
use serde_amqp::primitives::OrderedMap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// Answers that the peer may send ahead of us.
const REPLY_CREDIT: u32 = 2_000;
/// Between two looks at the credit. Giving up a send that has its credit already and waits for the session costs one
/// credit of the link, and so this is longer than a session that is not stuck takes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Application properties: what is asked of which object.
    pub properties: Vec<(&'static str, SimpleValue)>,
    /// The body, sent as an AMQP value.
    pub body: Value,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Application properties: the status.
    pub properties: OrderedMap<String, SimpleValue>,
    /// The body; null when there is none.
    pub body: Value,
}

/// Why there is no answer. Both mean that this client is of no more use: after a deadline nobody knows what the peer
/// did, and a late answer would be taken for current.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The link, session or connection ended.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer did not answer in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
}

/// Cannot attach the links.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot attach to {node}: {reason}")]
pub struct AttachError {
    /// The node.
    pub node: String,
    /// The peer's words.
    pub reason: String,
}

/// A management client. Dropping it ends the links and fails what is open.
#[derive(Debug)]
pub struct Management {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<(u64, Request)>,
    lost: watch::Receiver<Option<String>>,
    tasks: [JoinHandle<()>; 2],
}

struct Shared {
    open: Mutex<Open>,
    lost: watch::Sender<Option<String>>,
    /// That of one of our tasks, for whoever waits for the loss.
    panic: Mutex<Option<Panic>>,
}

type Panic = Box<dyn Any + Send>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("lost", &*self.lost.borrow()).finish_non_exhaustive()
    }
}

/// Requests that wait for their answers, by the number in their correlation id.
#[derive(Debug, Default)]
struct Open {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    lost: Option<String>,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, reason: String) {
        let mut open = self.open();
        if open.lost.is_none() {
            open.lost = Some(reason.clone());
            open.waiting.clear();
            self.lost.send_replace(Some(reason));
        }
    }

    /// Runs a task of ours; its panic is the loss of the links, and that of whoever waits for it.
    async fn guard(self: Arc<Self>, task: impl Future<Output = ()>) {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            self.lose("a task of the links has panicked".to_owned());
        }
    }
}

impl Management {
    /// Attaches to `node` on `session`. `name` makes the link names unique on the session.
    ///
    /// # Errors
    /// When the peer refuses one of the links.
    pub async fn attach<R>(session: &mut SessionHandle<R>, node: &str, name: &str) -> Result<Self, AttachError> {
        let refused = |reason: String| AttachError { node: node.to_owned(), reason };
        let receiver = Receiver::builder()
            .name(format!("{name}-replies"))
            .source(Source::builder().dynamic(true).build())
            .sender_settle_mode(SenderSettleMode::Settled)
            .credit_mode(CreditMode::Auto(REPLY_CREDIT))
            .auto_accept(true)
            .attach(session)
            .await
            .map_err(|error| refused(error.to_string()))?;
        let reply_to = receiver
            .source()
            .as_ref()
            .and_then(|source| source.address.clone())
            .ok_or_else(|| refused("the peer gave no address for answers".to_owned()))?;
        let sender = Sender::builder()
            .name(format!("{name}-requests"))
            .target(Target::builder().address(node).build())
            .sender_settle_mode(SenderSettleMode::Mixed)
            .attach(session)
            .await
            .map_err(|error| refused(error.to_string()))?;

        let (lost_sender, lost) = watch::channel(None);
        let shared = Arc::new(Shared { open: Mutex::default(), lost: lost_sender, panic: Mutex::default() });
        let (outgoing, requests) = mpsc::unbounded_channel();
        let tasks = [
            tokio::spawn(Arc::clone(&shared).guard(send_requests(sender, requests, reply_to, Arc::clone(&shared)))),
            tokio::spawn(Arc::clone(&shared).guard(take_replies(receiver, Arc::clone(&shared)))),
        ];
        Ok(Self { shared, outgoing, lost, tasks })
    }

    /// Sends a request; the future is its answer, and waits for it until `deadline` has passed since this call.
    /// Dropping the future abandons the answer, not the request.
    pub fn request(
        &self,
        request: Request,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, RequestError>> + Send + use<> {
        let until = Instant::now() + deadline;
        let waiting = self.register(request);
        async move {
            let (mut answer, slot) = waiting?;
            match timeout_at(until, &mut answer).await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(_)) => Err(slot.lost()),
                Err(_) => Err(RequestError::TimedOut(deadline)),
            }
        }
    }

    fn register(&self, request: Request) -> Result<(oneshot::Receiver<Reply>, Slot), RequestError> {
        let mut open = self.shared.open();
        if let Some(reason) = &open.lost {
            return Err(RequestError::Lost(reason.clone()));
        }
        let id = open.next;
        open.next += 1;
        let (answer, waiting) = oneshot::channel();
        open.waiting.insert(id, answer);
        // Under the lock, so that the order of ids is the order of sending.
        if self.outgoing.send((id, request)).is_err() {
            open.waiting.remove(&id);
            return Err(RequestError::Lost("the link has ended".to_owned()));
        }
        Ok((waiting, Slot { id, shared: Arc::clone(&self.shared) }))
    }

    /// Resolves once the links are lost, with the reason. A panic in what carries them goes on in the first who waits.
    pub fn lost(&self) -> impl Future<Output = String> + Send + use<> {
        let (mut lost, shared) = (self.lost.clone(), Arc::clone(&self.shared));
        async move {
            let reason = match lost.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => "the client was dropped".to_owned(),
            };
            let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(panic) = panic {
                std::panic::resume_unwind(panic);
            }
            reason
        }
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.lose("the client was dropped".to_owned());
    }
}

/// The place of one request among the open ones; gives it back when its future ends or is dropped.
#[derive(Debug)]
struct Slot {
    id: u64,
    shared: Arc<Shared>,
}

impl Slot {
    fn lost(&self) -> RequestError {
        RequestError::Lost(self.shared.open().lost.clone().unwrap_or_else(|| "the link has ended".to_owned()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.open().waiting.remove(&self.id);
    }
}

async fn send_requests(
    mut sender: Sender,
    mut requests: mpsc::UnboundedReceiver<(u64, Request)>,
    reply_to: String,
    shared: Arc<Shared>,
) {
    while let Some((id, request)) = requests.recv().await {
        // Settled by ourselves: the answer is the acknowledgement.
        let sendable = Sendable::builder().message(message(id, request, &reply_to)).settled(true).build();
        if let Err(error) = send(&mut sender, &sendable).await {
            shared.lose(error.to_string());
            return;
        }
    }
}

/// Sends what is settled already. fe2o3-amqp 0.18 looks at the credit first and listens for more of it then: what is
/// granted in between wakes nobody, and so the look is taken again.
async fn send(sender: &mut Sender, sendable: &Sendable<Body<Value>>) -> Result<(), SendError> {
    loop {
        match timeout(LOOK_AGAIN, sender.send_batchable_ref(sendable)).await {
            Ok(sent) => return sent.map(drop),
            Err(_) => continue,
        }
    }
}

fn message(id: u64, request: Request, reply_to: &str) -> Message<Body<Value>> {
    let mut properties = ApplicationProperties::builder();
    for (key, value) in request.properties {
        properties = properties.insert(key, value);
    }
    Message::builder()
        .properties(
            Properties::builder()
                .reply_to(reply_to.to_owned())
                .correlation_id(MessageId::String(id.to_string()))
                .build(),
        )
        .application_properties(properties.build())
        .body(Body::Value(AmqpValue(request.body)))
        .build()
}

async fn take_replies(mut receiver: Receiver, shared: Arc<Shared>) {
    loop {
        let delivery: Delivery<Body<Value>> = match receiver.recv().await {
            Ok(delivery) => delivery,
            Err(error) => {
                shared.lose(error.to_string());
                return;
            }
        };
        let message = delivery.into_message();
        let id = match message.properties.and_then(|properties| properties.correlation_id) {
            Some(MessageId::String(id)) => id.parse().ok(),
            _ => None,
        };
        // What nobody asked for, or waits for no more, is not an error: its request was abandoned.
        let Some(answer) = id.and_then(|id: u64| shared.open().waiting.remove(&id)) else { continue };
        let body = match message.body {
            Body::Value(value) => value.0,
            _ => Value::Null,
        };
        let properties = message.application_properties.map(|properties| properties.0).unwrap_or_default();
        // The receiver may have gone meanwhile.
        let _ = answer.send(Reply { properties, body });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_task_fails_what_is_open_and_goes_on_in_who_waits_for_the_loss() {
        let (lost_sender, lost) = watch::channel(None);
        let shared = Arc::new(Shared { open: Mutex::default(), lost: lost_sender, panic: Mutex::default() });
        let (outgoing, mut requests) = mpsc::unbounded_channel();
        let broken = async move {
            requests.recv().await;
            panic!("broken");
        };
        let tasks = [tokio::spawn(Arc::clone(&shared).guard(broken)), tokio::spawn(std::future::pending())];
        let management = Management { shared, outgoing, lost, tasks };
        let request = Request { properties: Vec::new(), body: Value::Null };
        let waiting = tokio::spawn(management.lost());
        let answer = management.request(request, Duration::from_secs(60)).await;
        assert!(matches!(answer, Err(RequestError::Lost(_))), "{answer:?}");
        assert!(waiting.await.unwrap_err().is_panic());
        assert!(!management.lost().await.is_empty());
    }
}
