//! A bare client of a broker's management: the same addresses, queues and settings as the operator makes, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
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
use serde_json::json;
use tokio::time::timeout;

use super::data::Planned;
use crate::amqp_client::send_settled;

/// Requests in flight, as many as the operator has jobs.
const WINDOW: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// An open connection with its links.
pub(super) struct Management {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    receiver: Receiver,
    sender: Sender,
    reply_to: String,
}

/// Makes settings, address and queue for each of the addresses, under names that are nobody else's.
pub(super) async fn make(port: u16, addresses: &[Planned]) -> Result<()> {
    let mut management = Management::open(port).await?;
    management.make(addresses).await?;
    management.close().await
}

/// Takes away what [`make`] made.
pub(super) async fn remove(port: u16, addresses: &[Planned]) -> Result<()> {
    let mut management = Management::open(port).await?;
    management.remove(addresses).await?;
    management.close().await
}

impl Management {
    pub async fn open(port: u16) -> Result<Self> {
        let mut connection = Connection::builder()
            .container_id("bench-bare")
            .sasl_profile(SaslProfile::Anonymous)
            .open(format!("amqp://127.0.0.1:{port}").as_str())
            .await?;
        let mut session = Session::begin(&mut connection).await?;
        let receiver = Receiver::builder()
            .name("bare-replies")
            .source(Source::builder().dynamic(true).build())
            .sender_settle_mode(SenderSettleMode::Settled)
            .credit_mode(CreditMode::Auto(2 * WINDOW as u32))
            .auto_accept(true)
            .attach(&mut session)
            .await?;
        let reply_to =
            receiver.source().as_ref().and_then(|source| source.address.clone()).context("no address for replies")?;
        let sender = Sender::builder()
            .name("bare-requests")
            .target(Target::builder().address("activemq.management").build())
            .sender_settle_mode(SenderSettleMode::Mixed)
            .attach(&mut session)
            .await?;
        Ok(Self { connection, session, receiver, sender, reply_to: reply_to.to_string() })
    }

    /// Makes address and queue for each, and settings where it has some.
    pub async fn make(&mut self, addresses: &[Planned]) -> Result<()> {
        self.all(addresses.iter().filter(|address| address.stored).flat_map(creations)).await
    }

    /// Takes away what was made.
    pub async fn remove(&mut self, addresses: &[Planned]) -> Result<()> {
        self.all(addresses.iter().filter(|address| address.stored).flat_map(removals)).await
    }

    /// Makes the broker forget which settings are in force for which name, as it does whenever a queue goes: the next
    /// change of settings looks them up for every queue again. The operator's turn comes after removals, too.
    pub async fn forget_settings(&mut self) -> Result<()> {
        const NAME: &str = "bare.passing";
        let queue = json!({ "name": NAME, "address": NAME, "routing-type": "ANYCAST", "durable": false, "auto-create-address": true });
        let passing = [
            ("createQueue", json!([queue.to_string(), false])),
            ("destroyQueue", json!([NAME])),
            ("deleteAddress", json!([NAME])),
        ];
        self.all(passing.into_iter()).await
    }

    async fn all(&mut self, operations: impl Iterator<Item = Operation>) -> Result<()> {
        let mut open = 0;
        for (operation, parameters) in operations {
            if open >= WINDOW {
                reply(&mut self.receiver).await?;
                open -= 1;
            }
            let message = message(operation, parameters, &self.reply_to);
            let sendable = Sendable::builder().message(message).settled(true).build();
            send_settled(&mut self.sender, &sendable, PATIENCE).await?;
            open += 1;
        }
        for _ in 0..open {
            reply(&mut self.receiver).await?;
        }
        Ok(())
    }

    pub async fn close(mut self) -> Result<()> {
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

/// A name that is nobody else's.
pub(super) fn bare_name(address: &Planned) -> String {
    format!("bare.{}/{}", address.namespace, address.name)
}

type Operation = (&'static str, serde_json::Value);

fn removals(address: &Planned) -> Vec<Operation> {
    let name = bare_name(address);
    let mut operations = vec![("destroyQueue", json!([name])), ("deleteAddress", json!([name]))];
    if settings(address).is_some() {
        operations.push(("removeAddressSettings", json!([name])));
    }
    operations
}

fn creations(address: &Planned) -> Vec<Operation> {
    let name = bare_name(address);
    let queue = json!({
        "name": name, "address": name, "routing-type": "ANYCAST", "durable": address.is_queue(),
        "max-consumers": -1, "auto-create-address": false, "user": "bare",
    });
    let settings = settings(address).map(|settings| ("addAddressSettings", json!([name, settings.to_string()])));
    let made = [("createAddress", json!([name, "ANYCAST"])), ("createQueue", json!([queue.to_string(), false]))];
    settings.into_iter().chain(made).collect()
}

/// Settings of its own. What their change costs a broker does not depend on what they say, but on what it has forgotten:
/// [`Management::forget_settings`].
fn settings(address: &Planned) -> Option<serde_json::Value> {
    let attempts = address.spec["redelivery"]["maxAttempts"].as_u64()?;
    Some(json!({ "maxDeliveryAttempts": attempts, "redeliveryDelay": 200, "autoDeleteQueues": false }))
}

fn message(operation: &str, parameters: serde_json::Value, reply_to: &str) -> Message<Body<Value>> {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    Message::builder()
        .properties(
            Properties::builder()
                .reply_to(reply_to.to_owned())
                .correlation_id(MessageId::String("bare".to_owned()))
                .build(),
        )
        .application_properties(
            ApplicationProperties::builder()
                .insert("_AMQ_ResourceName", text("broker"))
                .insert("_AMQ_OperationName", text(operation))
                .build(),
        )
        .body(Body::Value(AmqpValue(Value::String(parameters.to_string()))))
        .build()
}

async fn reply(receiver: &mut Receiver) -> Result<()> {
    let reply = timeout(PATIENCE, receiver.recv::<Body<Value>>()).await.context("the broker does not answer")??;
    let properties = reply.message().application_properties.clone().unwrap_or_default();
    let succeeded = properties.0.get("_AMQ_OperationSucceeded");
    ensure!(succeeded == Some(&SimpleValue::Bool(true)), "the broker refused: {:?}", reply.message().body);
    Ok(())
}
