//! Sessions with a real Artemis: management over AMQP, and its notifications.

use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{Body, FilterSet, Source};
use fe2o3_amqp::types::primitives::{Array, SimpleValue, Symbol};
use fe2o3_amqp::{Delivery, Receiver, Session};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_amqp::Value;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinHandle};

use super::link::{BrokerLink, BrokerSession, Call, CallError, LinkError, SessionEvent};
use crate::drive::amqp::management::AttachError;
use crate::drive::amqp::{ConnectError, Connector, Management, Reply, Request, RequestError};
use crate::engine::loops::pass_on;

const MANAGEMENT: &str = "activemq.management";
const NOTIFICATIONS: &str = "activemq.notifications";
/// Sessions and consumers make the notification address noisy, our own included.
const REMOVALS: &str = "_AMQ_NotifType IN ('BINDING_REMOVED', 'ADDRESS_REMOVED')";
const NOTIFICATION_CREDIT: u32 = 2_000;
/// The code of `apache.org:selector-filter:string`.
const SELECTOR_FILTER: u64 = 0x0000_468C_0000_0004;
const SESSION_WINDOW: u32 = 20_000;

/// A broker that speaks Artemis' management over AMQP.
#[derive(Clone, Debug)]
pub struct ArtemisLink {
    /// How to connect.
    pub connector: Connector,
    /// For each request. Long enough for a list of everything: 10,000 queues take a busy broker two seconds.
    pub request_deadline: Duration,
}

impl BrokerLink for ArtemisLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
        async move {
            let session = ArtemisSession::open(&self.connector, self.request_deadline).await?;
            Ok(Box::new(session) as Box<dyn BrokerSession>)
        }
        .boxed()
    }
}

/// One connection to Artemis. Fields are dropped in order: links before session before connection.
struct ArtemisSession {
    management: Management,
    /// On a session of its own: a session's requests are carried out one after the other, and a list of 10,000 queues
    /// takes seconds in which a new address would wait.
    questions: Management,
    request_deadline: Duration,
    /// And who tells them, until it is known how that ended.
    events: Mutex<(mpsc::UnboundedReceiver<SessionEvent>, Option<JoinHandle<()>>)>,
    listener: AbortHandle,
    _sessions: [SessionHandle<()>; 2],
    _connection: ConnectionHandle<()>,
}

impl ArtemisSession {
    async fn open(connector: &Connector, request_deadline: Duration) -> Result<Self, LinkError> {
        let mut connection = connector.open().await?.connection;
        let attach = async {
            let mut session = begin(&mut connection).await?;
            let mut questioning = begin(&mut connection).await?;
            // Before anything is asked, so that no removal after the first answer is missed.
            let notifications = listen(&mut session).await?;
            let management = Management::attach(&mut session, MANAGEMENT, "waystation").await?;
            let questions = Management::attach(&mut questioning, MANAGEMENT, "waystation-questions").await?;
            Ok::<_, LinkError>(([session, questioning], notifications, management, questions))
        };
        let (sessions, notifications, management, questions) =
            tokio::time::timeout(connector.deadline, attach).await.map_err(|_| {
                let stage = "attaching to the management address";
                LinkError::from(ConnectError::TimedOut { stage, after: connector.deadline })
            })??;

        let (teller, events) = mpsc::unbounded_channel();
        let lost = futures::future::select(management.lost().boxed(), questions.lost().boxed());
        let lost = lost.map(|lost| lost.factor_first().0).boxed();
        let listener = tokio::spawn(tell_events(notifications, lost, teller));
        Ok(Self {
            management,
            questions,
            request_deadline,
            listener: listener.abort_handle(),
            events: Mutex::new((events, Some(listener))),
            _sessions: sessions,
            _connection: connection,
        })
    }
}

impl Drop for ArtemisSession {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl BrokerSession for ArtemisSession {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<serde_json::Value, CallError>> {
        answer(&self.management, call, self.request_deadline)
    }

    fn ask(&self, call: Call) -> BoxFuture<'static, Result<serde_json::Value, CallError>> {
        answer(&self.questions, call, self.request_deadline)
    }

    fn next_event(&self) -> BoxFuture<'_, SessionEvent> {
        async move {
            let mut events = self.events.lock().await;
            if let Some(event) = events.0.recv().await {
                return event;
            }
            if let Some(listener) = events.1.take() {
                pass_on(listener.await);
            }
            SessionEvent::Lost(self.management.lost().await)
        }
        .boxed()
    }
}

async fn begin(connection: &mut ConnectionHandle<()>) -> Result<SessionHandle<()>, LinkError> {
    Session::builder()
        .incoming_window(SESSION_WINDOW)
        .outgoing_window(SESSION_WINDOW)
        .begin(connection)
        .await
        .map_err(|error| LinkError { category: "protocol", message: error.to_string() })
}

/// The request is sent before the future is polled.
fn answer(
    management: &Management,
    call: Call,
    deadline: Duration,
) -> BoxFuture<'static, Result<serde_json::Value, CallError>> {
    let answer = management.request(request(call), deadline);
    async move {
        match answer.await {
            Ok(reply) => result(reply),
            Err(RequestError::Lost(reason)) => Err(CallError::Lost(reason)),
            Err(RequestError::TimedOut(_)) => Err(CallError::TimedOut),
        }
    }
    .boxed()
}

fn request(call: Call) -> Request {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    Request {
        properties: vec![("_AMQ_ResourceName", text(&call.resource)), ("_AMQ_OperationName", text(call.operation))],
        body: Value::String(call.params.to_string()),
    }
}

/// The answer: a JSON array in a string, its first element being the value or the words of the refusal. Operations
/// without a result have no body.
fn result(reply: Reply) -> Result<serde_json::Value, CallError> {
    let succeeded = matches!(reply.properties.get("_AMQ_OperationSucceeded"), Some(SimpleValue::Bool(true)));
    let body = match &reply.body {
        Value::String(text) => text.as_str(),
        _ => "",
    };
    let first = match serde_json::from_str(body) {
        Ok(serde_json::Value::Array(mut list)) if !list.is_empty() => list.swap_remove(0),
        _ => serde_json::Value::Null,
    };
    match (succeeded, first) {
        (true, value) => Ok(value),
        (false, serde_json::Value::String(words)) => Err(CallError::Refused(words)),
        (false, _) if body.is_empty() => Err(CallError::Refused("refused without a reason".to_owned())),
        (false, _) => Err(CallError::Refused(body.to_owned())),
    }
}

async fn listen(session: &mut SessionHandle<()>) -> Result<Receiver, AttachError> {
    let mut filter = FilterSet::new();
    let selector =
        Described { descriptor: Descriptor::Code(SELECTOR_FILTER), value: Value::String(REMOVALS.to_owned()) };
    filter.insert(Symbol::from("apache.org:selector-filter:string"), Value::Described(Box::new(selector)));
    let source = Source::builder()
        .address(NOTIFICATIONS)
        .capabilities(Array::from(vec![Symbol::from("topic")]))
        .filter(filter)
        .build();
    Receiver::builder()
        .name("waystation-notifications")
        .source(source)
        .sender_settle_mode(SenderSettleMode::Settled)
        .credit_mode(CreditMode::Auto(NOTIFICATION_CREDIT))
        .auto_accept(true)
        .attach(session)
        .await
        .map_err(|error| AttachError { node: NOTIFICATIONS.to_owned(), reason: error.to_string() })
}

async fn tell_events(
    mut notifications: Receiver,
    lost: BoxFuture<'static, String>,
    teller: mpsc::UnboundedSender<SessionEvent>,
) {
    let removals = async {
        loop {
            let delivery: Delivery<Body<Value>> = match notifications.recv().await {
                Ok(delivery) => delivery,
                Err(error) => return error.to_string(),
            };
            let Some(properties) = delivery.into_message().application_properties else { continue };
            let text = |key: &str| match properties.0.get(key) {
                Some(SimpleValue::String(text)) => text.clone(),
                _ => String::new(),
            };
            let event = match text("_AMQ_NotifType").as_str() {
                "BINDING_REMOVED" => {
                    SessionEvent::QueueRemoved { queue: text("_AMQ_RoutingName"), address: text("_AMQ_Address") }
                }
                "ADDRESS_REMOVED" => SessionEvent::AddressRemoved { address: text("_AMQ_Address") },
                _ => continue,
            };
            if teller.send(event).is_err() {
                return "nobody listens".to_owned();
            }
        }
    };
    let reason = tokio::select! {
        biased;
        reason = lost => reason,
        reason = removals => reason,
    };
    // Nobody may listen any more.
    let _ = teller.send(SessionEvent::Lost(reason));
}
