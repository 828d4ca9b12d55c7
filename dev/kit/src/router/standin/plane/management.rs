//! Management requests and their answers.

use bytes::Bytes;
use fe2o3_amqp::types::messaging::message::__private::{Deserializable, Serializable};
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, Body, Header, Message, MessageId, Properties};
use fe2o3_amqp::types::primitives::SimpleValue;
use serde_amqp::Value;

use super::Plane;
use super::links::local;
use crate::router_core::Request;

fn parse(payload: &[u8]) -> Option<Message<Body<Value>>> {
    serde_amqp::from_slice::<Deserializable<Message<Body<Value>>>>(payload).ok().map(|message| message.0)
}

/// Where a message says that it goes.
pub(super) fn to_of(payload: &[u8]) -> Option<String> {
    parse(payload)?.properties?.to
}

impl Plane {
    /// Carries out a request and sends its answer, if it has one and somebody to go to.
    pub(super) fn request(&mut self, payload: &[u8]) {
        self.burst += 1;
        self.most_in_flight = self.most_in_flight.max(self.burst);
        let Some(message) = parse(payload) else { return };
        let properties = message.properties.unwrap_or_default();
        let Some(reply_to) = properties.reply_to else { return };
        let body = match message.body {
            Body::Value(AmqpValue(value)) => value,
            _ => Value::Null,
        };
        let asked = message.application_properties.unwrap_or_default();
        let asked = asked.0.iter().map(|(key, value)| (key.as_str(), Value::from(value.clone())));
        let Some(answer) = self.core.call(&Request::new(asked, body)) else { return };
        let correlation_id = properties
            .correlation_id
            .filter(|id| answer.echoes_any_id || matches!(id, MessageId::String(_) | MessageId::Binary(_)));
        let reply = Message::builder()
            .header(Header::default())
            .properties(Properties { to: Some(reply_to.clone()), correlation_id, ..Properties::default() })
            .application_properties(
                ApplicationProperties::builder()
                    .insert("statusDescription", SimpleValue::String(answer.description))
                    .insert("statusCode", SimpleValue::Int(answer.status))
                    .build(),
            )
            .body(AmqpValue(answer.body))
            .build();
        if let Ok(bytes) = serde_amqp::to_vec(&Serializable(reply)) {
            let place = (0, local(&reply_to, self.core.id()));
            self.deliver(&place, Bytes::from(bytes), None);
        }
    }
}
