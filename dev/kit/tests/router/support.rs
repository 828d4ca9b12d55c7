//! Entities in one line, and waiting for links.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, Body, Message, Properties, Source, Target};
use fe2o3_amqp::types::primitives::SimpleValue;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use serde_amqp::Value;
use waystation_kit::artemis::{Artemis, Login};
use waystation_kit::process::eventually;
use waystation_kit::router::Router;
use waystation_kit::router::management::{Management, get};
use waystation_kit::router_core::Request;

pub const ADDRESS: &str = "org.apache.qpid.dispatch.router.config.address";
pub const AUTO_LINK: &str = "org.apache.qpid.dispatch.router.config.autoLink";
pub const LINK_ROUTE: &str = "org.apache.qpid.dispatch.router.config.linkRoute";
pub const CONNECTOR: &str = "org.apache.qpid.dispatch.connector";
pub const LISTENER: &str = "org.apache.qpid.dispatch.listener";
pub const VHOST: &str = "org.apache.qpid.dispatch.vhost";
pub const SSL_PROFILE: &str = "org.apache.qpid.dispatch.sslProfile";

/// Long enough for a message or an answer on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
/// In which nothing shall come.
pub const MOMENT: Duration = Duration::from_millis(400);

pub fn create(kind: &str, name: &str, attributes: &[(&str, &str)]) -> Request {
    let attributes: Vec<_> = attributes.iter().map(|(key, value)| (*key, Value::from(*value))).collect();
    Request::create(kind, Some(name), &attributes)
}

pub fn waypoint(name: &str, pattern: &str) -> Request {
    Request::create(ADDRESS, Some(name), &[("pattern", pattern.into()), ("waypoint", Value::Bool(true))])
}

pub fn connector(name: &str, broker: &Artemis) -> Request {
    let mut attributes = vec![
        ("host", Value::from("127.0.0.1")),
        ("port", Value::String(broker.plain_port().to_string())),
        ("role", Value::from("route-container")),
    ];
    match broker.login() {
        Login::Anonymous => attributes.push(("saslMechanisms", Value::from("ANONYMOUS"))),
        Login::Password { user, password } => attributes.extend([
            ("saslMechanisms", Value::from("PLAIN")),
            ("saslUsername", Value::from(user.as_str())),
            ("saslPassword", Value::from(password.as_str())),
        ]),
    }
    Request::create(CONNECTOR, Some(name), &attributes)
}

/// A queue by way of a broker: its address and both auto-links.
pub async fn make_queue(router: &mut Management, address: &str, connection: &str) -> Result<()> {
    router.make(&waypoint(&format!("{address}-address"), address)).await?;
    for direction in ["in", "out"] {
        let attributes = [("address", address), ("direction", direction), ("connection", connection)];
        router.make(&create(AUTO_LINK, &format!("{address}-{direction}"), &attributes)).await?;
    }
    Ok(())
}

/// What an entity says under a key.
pub async fn told(router: &mut Management, kind: &str, name: &str, key: &str) -> Result<Value> {
    Ok(get(&router.make(&Request::read(kind, name)).await?.body, key))
}

/// Waits until an entity says this under a key.
pub async fn until(router: &Router, kind: &str, name: &str, key: &str, value: &str) -> Result<()> {
    let what = format!("{key} of {name} is {value}");
    eventually(Duration::from_secs(40), &what, || async {
        let mut management = Management::connect(router).await?;
        let found = told(&mut management, kind, name, key).await?;
        ensure!(found == Value::from(value), "it is {found:?}");
        Ok(())
    })
    .await
}

/// A management operation on a broker.
pub async fn manage(broker: &Artemis, operation: &str, parameters: &[&str]) -> Result<()> {
    let profile = match broker.login() {
        Login::Anonymous => SaslProfile::Anonymous,
        Login::Password { user, password } => SaslProfile::Plain { username: user.clone(), password: password.clone() },
    };
    let url = format!("amqp://127.0.0.1:{}", broker.plain_port());
    let mut connection =
        Connection::builder().container_id("router-test").sasl_profile(profile).open(url.as_str()).await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut receiver = Receiver::builder()
        .name("replies")
        .source(Source::builder().dynamic(true).build())
        .attach(&mut session)
        .await?;
    let reply_to = receiver.source().as_ref().and_then(|source| source.address.clone()).context("no reply address")?;
    let target = Target::builder().address("activemq.management").build();
    let mut sender = Sender::builder().name("requests").target(target).attach(&mut session).await?;
    let properties = ApplicationProperties::builder()
        .insert("_AMQ_ResourceName", SimpleValue::String("broker".to_owned()))
        .insert("_AMQ_OperationName", SimpleValue::String(operation.to_owned()))
        .build();
    let parameters: Vec<serde_json::Value> = parameters
        .iter()
        .map(|text| text.parse::<bool>().map_or_else(|_| serde_json::Value::from(*text), serde_json::Value::Bool))
        .collect();
    let body = serde_json::to_string(&parameters)?;
    let message = Message::builder()
        .properties(Properties::builder().reply_to(reply_to).build())
        .application_properties(properties)
        .body(Body::<Value>::Value(AmqpValue(Value::String(body))))
        .build();
    sender.send(message).await?;
    let reply = tokio::time::timeout(SOON, receiver.recv::<Body<Value>>()).await.context("no answer")??;
    let properties = reply.message().application_properties.clone().unwrap_or_default();
    let succeeded = properties.0.get("_AMQ_OperationSucceeded") == Some(&SimpleValue::Bool(true));
    ensure!(succeeded, "{operation}: {:?}", reply.message().body);
    connection.close().await?;
    Ok(())
}

/// A client that gives a host name of its own.
pub struct Tenant {
    _connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    links: u32,
}

impl Tenant {
    pub async fn connect(port: u16, hostname: &str) -> Result<Self> {
        let stream = eventually(SOON, "the listener is there", || async {
            Ok(tokio::net::TcpStream::connect(("127.0.0.1", port)).await?)
        })
        .await?;
        let mut connection = Connection::builder()
            .container_id(hostname)
            .hostname(hostname)
            .scheme("amqp")
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream)
            .await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Self { _connection: connection, session, links: 0 })
    }

    fn name(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }

    pub async fn send(&mut self, address: &str, text: &str) -> Result<()> {
        let name = self.name();
        let mut sender = Sender::attach(&mut self.session, name, address).await?;
        let outcome = tokio::time::timeout(SOON, sender.send(text)).await.context("no outcome")??;
        ensure!(outcome.is_accepted(), "{outcome:?}");
        sender.close().await?;
        Ok(())
    }

    pub async fn receiver(&mut self, address: &str) -> Result<Receiver> {
        let name = self.name();
        Ok(Receiver::attach(&mut self.session, name, address).await?)
    }
}

/// The next message, accepted; none when there is none in time.
pub async fn next(receiver: &mut Receiver, within: Duration) -> Result<Option<String>> {
    let Ok(received) = tokio::time::timeout(within, receiver.recv::<Body<Value>>()).await else { return Ok(None) };
    let delivery = received?;
    receiver.accept(&delivery).await?;
    Ok(match delivery.body() {
        Body::Value(AmqpValue(Value::String(text))) => Some(text.clone()),
        Body::Data(data) => data.iter().next().map(|data| String::from_utf8_lossy(&data.0).into_owned()),
        other => Some(format!("{other:?}")),
    })
}
