//! A management client for tests and measurements: any request, any correlation id, any number under way.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Source, Target,
};
use fe2o3_amqp::types::primitives::SimpleValue;
use fe2o3_amqp::{Connection, Receiver, Sendable, Sender, Session};
use serde_amqp::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::Router;
use crate::artemis::Login;
use crate::router_core::{Answer, Request};

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(300);
const WINDOW: u32 = 20_000;

/// A connection for management requests.
#[derive(Debug)]
pub struct Management {
    _connection: ConnectionHandle<()>,
    _session: SessionHandle<()>,
    sender: Sender,
    receiver: Receiver,
    reply_to: String,
    next: u64,
}

impl Management {
    /// Connects to a router that has no TLS.
    ///
    /// # Errors
    /// When it does not let us in.
    pub async fn connect(router: &Router) -> Result<Self> {
        Self::open(router.port(), router.login()).await
    }

    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When nobody lets us in.
    pub async fn open(port: u16, login: &Login) -> Result<Self> {
        timeout(PATIENCE, Self::attach(port, login)).await.context("no answer")?
    }

    async fn attach(port: u16, login: &Login) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let profile = match login {
            Login::Anonymous => SaslProfile::Anonymous,
            Login::Password { user, password } => {
                SaslProfile::Plain { username: user.clone(), password: password.clone() }
            }
        };
        let mut connection = Connection::builder()
            .container_id(format!("kit-management-{}", std::process::id()))
            .scheme("amqp")
            .max_frame_size(1024 * 1024)
            .sasl_profile(profile)
            .open_with_stream(stream)
            .await
            .map_err(|error| anyhow!("opening: {error}"))?;
        let mut session = Session::builder()
            .incoming_window(WINDOW)
            .outgoing_window(WINDOW)
            .begin(&mut connection)
            .await
            .map_err(|error| anyhow!("beginning: {error}"))?;
        let receiver = Receiver::builder()
            .name("replies")
            .source(Source::builder().dynamic(true).build())
            .sender_settle_mode(SenderSettleMode::Settled)
            .credit_mode(CreditMode::Auto(2_000))
            .auto_accept(true)
            .attach(&mut session)
            .await
            .map_err(|error| anyhow!("attaching: {error}"))?;
        let address = receiver.source().as_ref().and_then(|source| source.address.clone());
        let reply_to = address.context("no address for answers")?;
        let sender = Sender::builder()
            .name("requests")
            .target(Target::builder().address("$management").build())
            .attach(&mut session)
            .await
            .map_err(|error| anyhow!("attaching: {error}"))?;
        Ok(Self { _connection: connection, _session: session, sender, receiver, reply_to, next: 0 })
    }

    /// Asks, and waits for the answer; `None` when there is none within `within`.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask_within(&mut self, request: &Request, within: Duration) -> Result<Option<Answer>> {
        let id = self.send(request).await?;
        let until = Instant::now() + within;
        loop {
            match timeout_at(until, self.receive()).await {
                Err(_) => return Ok(None),
                Ok(received) => {
                    let (found, answer) = received?;
                    if found == Some(MessageId::String(id.clone())) {
                        return Ok(Some(answer));
                    }
                }
            }
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.ask_within(request, PATIENCE).await?.with_context(|| format!("no answer to {request:?}"))
    }

    /// Asks, and fails when the answer is no success.
    ///
    /// # Errors
    /// The router's words.
    pub async fn make(&mut self, request: &Request) -> Result<Answer> {
        let answer = self.ask(request).await?;
        ensure!(answer.succeeded(), "{} {}: {request:?}", answer.status, answer.description);
        Ok(answer)
    }

    /// Asks with an id of any type; the id that comes back.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ask_with_id(&mut self, request: &Request, id: MessageId) -> Result<Option<MessageId>> {
        self.send_with_id(request, id).await?;
        let (id, _) = timeout(PATIENCE, self.receive()).await.context("no answer")??;
        Ok(id)
    }

    /// Asks for everything with so many requests under way; the answers in the order of the requests.
    ///
    /// # Errors
    /// When an answer is missing.
    pub async fn pipeline(&mut self, requests: &[Request], under_way: usize) -> Result<Vec<Answer>> {
        let mut answers: Vec<Option<Answer>> = vec![None; requests.len()];
        let mut open = HashMap::new();
        let mut sent = 0;
        while sent < requests.len() || !open.is_empty() {
            while sent < requests.len() && open.len() < under_way {
                open.insert(MessageId::String(self.send(&requests[sent]).await?), sent);
                sent += 1;
            }
            let (id, answer) = timeout(PATIENCE, self.receive()).await.context("an answer is missing")??;
            let position = id.and_then(|id| open.remove(&id)).context("an answer to nothing")?;
            answers[position] = Some(answer);
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// All rows of a type, by pages of so many with so many under way.
    ///
    /// # Errors
    /// When an answer is missing.
    pub async fn all_rows(&mut self, of: &str, names: &[&str], page: i64, under_way: usize) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        for round in 0.. {
            let pages = i64::try_from(under_way)?;
            let requests: Vec<_> = (0..pages)
                .map(|number| Request {
                    offset: Some((round * pages + number) * page),
                    count: Some(page),
                    ..Request::query(of, names)
                })
                .collect();
            let answers = self.pipeline(&requests, under_way).await?;
            let before = rows.len();
            for answer in &answers {
                rows.extend(rows_of(&answer.body));
            }
            if rows.len() - before < usize::try_from(page)? * under_way {
                return Ok(rows);
            }
        }
        bail!("there is no end to the rounds")
    }

    async fn send(&mut self, request: &Request) -> Result<String> {
        self.next += 1;
        let id = self.next.to_string();
        self.send_with_id(request, MessageId::String(id.clone())).await?;
        Ok(id)
    }

    async fn send_with_id(&mut self, request: &Request, id: MessageId) -> Result<()> {
        let texts = [
            ("operation", Some(&request.operation).filter(|operation| !operation.is_empty())),
            ("type", request.entity_type.as_ref()),
            ("entityType", request.queried_type.as_ref()),
            ("name", request.name.as_ref()),
            ("identity", request.identity.as_ref()),
        ];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, SimpleValue::String(text?.clone()))));
        let numbers = [("offset", request.offset), ("count", request.count)];
        let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, SimpleValue::Long(number?))));
        let properties = texts.chain(numbers).map(|(key, value)| (key.to_owned(), value)).collect();
        let message = Message::builder()
            .properties(Properties::builder().reply_to(self.reply_to.clone()).correlation_id(id).build())
            .application_properties(ApplicationProperties(properties))
            .body(Body::Value(AmqpValue(request.body.clone())))
            .build();
        let sendable = Sendable::builder().message(message).settled(true).build();
        crate::amqp_client::send_settled(&mut self.sender, &sendable, PATIENCE).await
    }

    async fn receive(&mut self) -> Result<(Option<MessageId>, Answer)> {
        let delivery = self.receiver.recv::<Body<Value>>().await.map_err(|error| anyhow!("receiving: {error}"))?;
        let message = delivery.into_message();
        let properties = message.application_properties.unwrap_or_default();
        let status = match properties.0.get("statusCode") {
            Some(SimpleValue::Int(status)) => *status,
            other => bail!("statusCode is {other:?} and not an int"),
        };
        let description = match properties.0.get("statusDescription") {
            Some(SimpleValue::String(text)) => text.clone(),
            _ => String::new(),
        };
        let body = match message.body {
            Body::Value(AmqpValue(value)) => value,
            _ => Value::Null,
        };
        let id = message.properties.and_then(|properties| properties.correlation_id);
        Ok((id, Answer { status, description, body, echoes_any_id: true }))
    }
}

/// The rows of a QUERY's answer.
#[must_use]
pub fn rows_of(body: &Value) -> Vec<Vec<Value>> {
    let Value::List(rows) = get(body, "results") else { return Vec::new() };
    rows.into_iter().filter_map(|row| if let Value::List(row) = row { Some(row) } else { None }).collect()
}

/// What a map has under a key; null when it has not.
#[must_use]
pub fn get(map: &Value, key: &str) -> Value {
    let Value::Map(map) = map else { return Value::Null };
    map.get(&Value::from(key)).cloned().unwrap_or_default()
}
