//! The links of one session.

use std::sync::Arc;

use fe2o3_amqp::acceptor::{LinkAcceptor, LinkEndpoint, ListenerSessionHandle};
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::types::definitions::{AmqpError, Error};
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Source};
use fe2o3_amqp::types::primitives::SimpleValue;
use fe2o3_amqp::{Delivery, Receiver, Sendable, Sender};
use serde_amqp::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Outgoing, State, lock};
use crate::amqp_client::hand_over;
use crate::artemis_core::Removal;

const MANAGEMENT: &str = "activemq.management";
const NOTIFICATIONS: &str = "activemq.notifications";
const REQUEST_CREDIT: u32 = 1_000;

/// Takes links until the session ends.
pub(super) async fn serve(mut session: ListenerSessionHandle, state: Arc<State>) {
    let names = Arc::clone(&state);
    let acceptor = LinkAcceptor::builder()
        .verify_incoming_source(false)
        .verify_incoming_target(false)
        .on_dynamic_source(move |source: Source| Some(Source { address: Some(names.new_address()), ..source }))
        .build();
    let mut links = JoinSet::new();
    while let Ok(link) = acceptor.accept(&mut session).await {
        let state = Arc::clone(&state);
        match link {
            LinkEndpoint::Receiver(receiver) => links.spawn(take_requests(receiver, state)),
            LinkEndpoint::Sender(sender) => links.spawn(hand_out(sender, state)),
        };
    }
}

async fn take_requests(mut receiver: Receiver, state: Arc<State>) {
    let address = receiver.target().as_ref().and_then(|target| target.address.clone()).unwrap_or_default();
    if address != MANAGEMENT && state.with(|core| core.queue(&address).is_some()) {
        // A router's link, which stays; what comes on it is nobody's.
        while receiver.recv::<Body<Value>>().await.is_ok() {}
        return;
    }
    if address != MANAGEMENT {
        let words = format!("AMQ119002: target address {address} does not exist");
        let _ = receiver.close_with_error(not_found(words)).await;
        return;
    }
    receiver.set_credit_mode(CreditMode::Auto(REQUEST_CREDIT));
    receiver.set_auto_accept(true);
    if receiver.set_credit(REQUEST_CREDIT).await.is_err() {
        return;
    }
    while let Ok(request) = receiver.recv::<Body<Value>>().await {
        answer(request, &state);
    }
}

fn answer(request: Delivery<Body<Value>>, state: &State) {
    let message = request.into_message();
    let Some(properties) = message.properties else { return };
    let asked = message.application_properties.unwrap_or_default();
    let text = |key: &str| match asked.0.get(key) {
        Some(SimpleValue::String(text)) => text.as_str(),
        _ => "",
    };
    let params = match &message.body {
        Body::Value(AmqpValue(Value::String(text))) => serde_json::from_str(text).unwrap_or_default(),
        _ => serde_json::Value::Null,
    };
    let result = state.with(|core| core.call(text("_AMQ_ResourceName"), text("_AMQ_OperationName"), &params));
    let reply = reply(properties.correlation_id, result);
    if let Some(link) = properties.reply_to.and_then(|address| lock(&state.replies).get(&address).cloned()) {
        // A client that is gone needs no answer.
        let _ = link.send(reply);
    }
}

fn reply(correlation: Option<MessageId>, result: Result<serde_json::Value, String>) -> Outgoing {
    let succeeded = result.is_ok();
    let body = match result.unwrap_or_else(serde_json::Value::String) {
        serde_json::Value::Null => Value::Null,
        first => Value::String(serde_json::Value::Array(vec![first]).to_string()),
    };
    let properties = Properties { correlation_id: correlation, ..Properties::default() };
    Message::builder()
        .properties(properties)
        .application_properties(
            ApplicationProperties::builder().insert("_AMQ_OperationSucceeded", SimpleValue::Bool(succeeded)).build(),
        )
        .body(AmqpValue(body))
        .build()
}

/// What is told of a removed queue.
pub(super) fn notification(removal: &Removal) -> Outgoing {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    Message::builder()
        .application_properties(
            ApplicationProperties::builder()
                .insert("_AMQ_NotifType", text("BINDING_REMOVED"))
                .insert("_AMQ_Address", text(&removal.address))
                .insert("_AMQ_RoutingName", text(&removal.queue))
                .build(),
        )
        .body(AmqpValue(Value::Null))
        .build()
}

async fn hand_out(mut sender: Sender, state: Arc<State>) {
    let source = sender.source().clone().unwrap_or_default();
    let address = source.address.unwrap_or_default();
    let (give, mut given) = mpsc::unbounded_channel();
    if address == NOTIFICATIONS {
        lock(&state.listeners).push(give);
    } else if source.dynamic {
        lock(&state.replies).insert(address.clone(), give);
    } else if state.with(|core| core.queue(&address).is_some()) {
        sender.on_detach().await;
        return;
    } else {
        let words = "AMQ119010: source address does not exist".to_owned();
        let _ = sender.close_with_error(not_found(words)).await;
        return;
    }
    let _forget = Forget { address, state };
    while let Some(message) = given.recv().await {
        let sendable = Sendable::builder().message(message).settled(true).build();
        if hand_over(&mut sender, &sendable).await.is_err() {
            return;
        }
    }
}

/// Forgets the address of a link when the link ends, however it does.
struct Forget {
    address: String,
    state: Arc<State>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        lock(&self.state.replies).remove(&self.address);
    }
}

fn not_found(description: String) -> Error {
    Error::new(AmqpError::NotFound, description, None)
}
