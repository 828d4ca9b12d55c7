//! An AMQP 1.0 client such as any application has: it sends to an address, receives from one, and knows nothing of
//! Kubernetes or of the broker's management. What goes wrong is told in the broker's words.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::{Delivery, DeliveryFut};
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Body, Data, Header, Message, Modified, Outcome, Properties, SerializableBody, Source, Target,
};
use fe2o3_amqp::types::primitives::{Array, SimpleValue, Symbol, Value};
use fe2o3_amqp::{Connection, Receiver, Sendable, Sender, Session};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::artemis::Login;

/// How long the broker may take for anything but the arrival of a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// What kind of node a link is for, where the broker does not know that from the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Node {
    /// What the broker has under that address.
    #[default]
    Any,
    /// Each message to one consumer.
    Queue,
    /// Each message to every consumer.
    Topic,
}

impl Node {
    fn capabilities(self) -> Option<Array<Symbol>> {
        match self {
            Self::Any => None,
            Self::Queue => Some(Array::from(vec![Symbol::from("queue")])),
            Self::Topic => Some(Array::from(vec![Symbol::from("topic")])),
        }
    }
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The body, sent as one data section.
    pub body: Vec<u8>,
    /// Whether it is to survive a restart of the broker.
    pub durable: bool,
    /// After what time it expires.
    pub ttl: Option<Duration>,
    /// Application properties.
    pub properties: BTreeMap<String, String>,
}

impl Outgoing {
    /// A durable message with a text.
    #[must_use]
    pub fn text(body: &str) -> Self {
        Self { body: body.as_bytes().to_vec(), durable: true, ttl: None, properties: BTreeMap::new() }
    }

    /// The same message with a time to live.
    #[must_use]
    pub fn expiring_after(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    fn message(&self) -> Result<Message<Data>> {
        let ttl = self.ttl.map(|ttl| u32::try_from(ttl.as_millis())).transpose()?;
        let header = Header { durable: self.durable, ttl, ..Header::default() };
        let properties = self.properties.iter().map(|(name, value)| (name.clone(), SimpleValue::String(value.clone())));
        Ok(Message::builder()
            .header(header)
            .properties(Properties::default())
            .application_properties(ApplicationProperties(properties.collect()))
            .data(self.body.clone())
            .build())
    }
}

/// A message that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The body as text.
    pub body: String,
    /// Whether it was marked durable.
    pub durable: bool,
    /// How often it was delivered before.
    pub delivery_count: u32,
    /// Application properties, as text.
    pub properties: BTreeMap<String, String>,
    /// Message annotations, as text; brokers tell here where a dead letter comes from.
    pub annotations: BTreeMap<String, String>,
}

/// What to do with a message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Accept,
    Reject,
    Fail,
    Release,
}

/// A connection to a broker or router. Dropping it cuts the connection; [`Client::close`] ends it in an orderly way.
#[derive(Debug)]
pub struct Client {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

impl Client {
    /// Connects.
    pub async fn connect(host: &str, port: u16, login: &Login) -> Result<Self> {
        timeout(PATIENCE, Self::open(host, port, login))
            .await
            .map_err(|_| anyhow!("no answer from {host}:{port} within {PATIENCE:?}"))?
    }

    async fn open(host: &str, port: u16, login: &Login) -> Result<Self> {
        let stream = TcpStream::connect((host, port)).await.with_context(|| format!("connecting to {host}:{port}"))?;
        stream.set_nodelay(true)?;
        let profile = match login {
            Login::Anonymous => SaslProfile::Anonymous,
            Login::Password { user, password } => {
                SaslProfile::Plain { username: user.clone(), password: password.clone() }
            }
        };
        let mut connection = Connection::builder()
            .container_id(unique("observer"))
            .hostname(host)
            .scheme("amqp")
            .sasl_profile(profile)
            .open_with_stream(stream)
            .await
            .map_err(|error| anyhow!("opening a connection to {host}:{port}: {error}"))?;
        let session = Session::begin(&mut connection).await.map_err(|error| anyhow!("beginning a session: {error}"))?;
        Ok(Self { connection, session })
    }

    /// Sends a message and waits until the broker has accepted it; anything else is an error in its words.
    pub async fn send(&mut self, address: &str, message: &Outgoing) -> Result<()> {
        self.send_all(address, std::slice::from_ref(message)).await
    }

    /// Sends a durable message with a text.
    pub async fn send_text(&mut self, address: &str, body: &str) -> Result<()> {
        self.send(address, &Outgoing::text(body)).await
    }

    /// Sends messages over one link, one after the other.
    pub async fn send_all(&mut self, address: &str, messages: &[Outgoing]) -> Result<()> {
        self.send_to(address, Node::Any, messages).await
    }

    /// Sends messages to an address that is meant as a queue or as a topic.
    pub async fn send_to(&mut self, address: &str, node: Node, messages: &[Outgoing]) -> Result<()> {
        let what = format!("sending to {address}");
        let mut target = Target::builder().address(address);
        if let Some(capabilities) = node.capabilities() {
            target = target.capabilities(capabilities);
        }
        let attach = Sender::builder()
            .name(unique("sender"))
            .source(unique("source"))
            .target(target.build())
            .attach(&mut self.session);
        let mut sender = patiently(&what, attach).await?;
        for message in messages {
            let sendable = Sendable::from(message.message()?);
            let sent = patiently(&what, async {
                match hand_over(&mut sender, &sendable).await?.await {
                    // As routers do when the link behind them goes away under a message.
                    Err(SendError::IllegalDeliveryState) => Ok(None),
                    outcome => outcome.map(Some),
                }
            });
            let Some(outcome) = sent.await? else {
                bail!("{what}: settled without an outcome: it may have arrived or not");
            };
            match outcome {
                Outcome::Accepted(_) => {}
                Outcome::Rejected(rejected) => match rejected.error {
                    Some(error) => bail!("{what}: rejected: {error}"),
                    None => bail!("{what}: rejected"),
                },
                other => bail!("{what}: {other:?}"),
            }
        }
        patiently(&what, sender.close()).await
    }

    /// Receives and accepts up to `count` messages; ends earlier when `within` has passed.
    pub async fn receive(&mut self, address: &str, count: usize, within: Duration) -> Result<Vec<Received>> {
        self.take(address, count, within, Answer::Accept).await
    }

    /// Receives up to `count` messages and rejects each.
    pub async fn receive_and_reject(&mut self, address: &str, count: usize, within: Duration) -> Result<Vec<Received>> {
        self.take(address, count, within, Answer::Reject).await
    }

    /// Receives up to `count` messages and says of each that it could not be handled: a failed attempt. One that is
    /// offered again is received again, and counts again.
    pub async fn receive_and_fail(&mut self, address: &str, count: usize, within: Duration) -> Result<Vec<Received>> {
        self.take(address, count, within, Answer::Fail).await
    }

    /// Receives up to `count` messages and releases each when all are there, so that others may have them.
    pub async fn receive_and_release(
        &mut self,
        address: &str,
        count: usize,
        within: Duration,
    ) -> Result<Vec<Received>> {
        self.take(address, count, within, Answer::Release).await
    }

    /// A consumer that stays attached. On an address with multicast each consumer gets every message sent from now on.
    /// `TOPIC::SUBSCRIPTION` consumes from that queue of a topic.
    pub async fn consumer(&mut self, address: &str, node: Node) -> Result<Consumer> {
        let what = format!("receiving from {address}");
        let mut source = Source::builder().address(address);
        if let Some(capabilities) = node.capabilities() {
            source = source.capabilities(capabilities);
        }
        let attach = Receiver::builder()
            .name(unique("receiver"))
            .source(source.build())
            .target(unique("target"))
            // Only what is asked for is taken, so that nothing is held back from others.
            .credit_mode(CreditMode::Manual)
            .attach(&mut self.session);
        Ok(Consumer { receiver: patiently(&what, attach).await?, what })
    }

    /// Ends the connection in an orderly way.
    pub async fn close(mut self) -> Result<()> {
        patiently("ending the session", self.session.end()).await?;
        patiently("closing the connection", self.connection.close()).await
    }

    async fn take(&mut self, address: &str, count: usize, within: Duration, answer: Answer) -> Result<Vec<Received>> {
        let mut consumer = self.consumer(address, Node::Any).await?;
        let received = consumer.take(count, within, answer).await;
        consumer.close().await?;
        received
    }
}

/// A link that stays attached.
#[derive(Debug)]
pub struct Consumer {
    receiver: Receiver,
    what: String,
}

impl Consumer {
    /// Receives and accepts up to `count` messages; ends earlier when `within` has passed.
    pub async fn receive(&mut self, count: usize, within: Duration) -> Result<Vec<Received>> {
        self.take(count, within, Answer::Accept).await
    }

    /// Detaches.
    pub async fn close(self) -> Result<()> {
        patiently(&self.what, self.receiver.close()).await
    }

    async fn take(&mut self, count: usize, within: Duration, answer: Answer) -> Result<Vec<Received>> {
        let deadline = Instant::now() + within;
        patiently(&self.what, self.receiver.set_credit(u32::try_from(count)?)).await?;
        let (mut received, mut held) = (Vec::with_capacity(count), Vec::new());
        while received.len() < count {
            let Ok(delivery) = timeout_at(deadline, self.receiver.recv::<Body<Value>>()).await else { break };
            let delivery = delivery.map_err(|error| anyhow!("{}: {error}", self.what))?;
            received.push(incoming(&delivery));
            match answer {
                Answer::Accept => patiently(&self.what, self.receiver.accept(&delivery)).await?,
                Answer::Reject => patiently(&self.what, self.receiver.reject(&delivery, None)).await?,
                Answer::Fail => {
                    let failed =
                        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
                    patiently(&self.what, self.receiver.modify(&delivery, failed)).await?;
                }
                // A message that is released at once comes back at once.
                Answer::Release => held.push(delivery),
            }
        }
        if !held.is_empty() {
            patiently(&self.what, self.receiver.set_credit(0)).await?;
        }
        for delivery in &held {
            patiently(&self.what, self.receiver.release(delivery)).await?;
        }
        Ok(received)
    }
}

fn incoming(delivery: &Delivery<Body<Value>>) -> Received {
    let message = delivery.message();
    let body = match &message.body {
        Body::Data(sections) => {
            let bytes: Vec<u8> = sections.iter().flat_map(|section| section.0.iter().copied()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Body::Value(value) => text(&value.0),
        Body::Sequence(_) => "(sequence)".to_owned(),
        Body::Empty => String::new(),
    };
    let header = message.header.clone().unwrap_or_default();
    let properties = message.application_properties.iter().flat_map(|properties| properties.0.iter());
    let annotations = message.message_annotations.iter().flat_map(|annotations| annotations.0.iter());
    Received {
        body,
        durable: header.durable,
        delivery_count: header.delivery_count,
        properties: properties.map(|(name, value)| (name.clone(), text(&Value::from(value.clone())))).collect(),
        annotations: annotations.map(|(name, value)| (format!("{name:?}"), text(value))).collect(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Symbol(symbol) => symbol.to_string(),
        Value::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Long(value) => value.to_string(),
        Value::Ulong(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

/// Link names are unique in a session whatever their direction, and containers on a broker.
fn unique(what: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("kit-{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Between two looks at the credit.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Waits for credit and sends; what comes of it is still to be awaited. fe2o3-amqp 0.18 looks at the credit first and
/// listens for more of it then: what is granted in between wakes nobody, and so the look is taken again.
pub(crate) async fn hand_over<T: SerializableBody>(
    sender: &mut Sender,
    sendable: &Sendable<T>,
) -> std::result::Result<DeliveryFut<std::result::Result<Outcome, SendError>>, SendError> {
    loop {
        if let Ok(sent) = timeout(LOOK_AGAIN, sender.send_batchable_ref(sendable)).await {
            return sent;
        }
    }
}

/// Sends a message that is settled already.
pub(crate) async fn send_settled<T: SerializableBody>(
    sender: &mut Sender,
    sendable: &Sendable<T>,
    within: Duration,
) -> Result<()> {
    let sent = timeout(within, hand_over(sender, sendable)).await;
    sent.with_context(|| format!("no credit to send within {within:?}"))?
        .map(drop)
        .map_err(|error| anyhow!("sending: {error}"))
}

async fn patiently<T, E: std::fmt::Display>(
    what: &str,
    answer: impl Future<Output = std::result::Result<T, E>>,
) -> Result<T> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(anyhow!("{what}: {error}")),
        Err(_) => Err(anyhow!("{what}: no answer within {PATIENCE:?}")),
    }
}
