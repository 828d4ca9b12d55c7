//! Sessions with a real router: management over AMQP, in the way of Qpid Dispatch and of those that came of it.

use std::net::IpAddr;
use std::time::Duration;

use fe2o3_amqp::Session;
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::primitives::SimpleValue;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_amqp::primitives::OrderedMap;
use serde_amqp::{Value, primitives::Symbol};
use serde_json::Value as Json;

use super::link::{Answer, CallError, LinkError, Operation, Request, RouterLink, RouterSession, Type};
use crate::drive::amqp::{ConnectError, Connector, Management, Opened, Reply, RequestError, management};
use crate::messaging::router::Abilities;

const MANAGEMENT: &str = "$management";
/// Of the one entity `policy`.
const ENFORCED: &str = "enableVhostPolicy";
const SESSION_WINDOW: u32 = 20_000;
/// Before the names of all types of a router, known ones.
const PREFIXES: [&str; 2] = ["org.apache.qpid.dispatch", "io.skupper.router"];

/// A router that is managed over AMQP.
#[derive(Clone, Debug)]
pub struct QpidLink {
    /// How to connect.
    pub connector: Connector,
    /// For each request.
    pub request_deadline: Duration,
}

impl RouterLink for QpidLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>> {
        async move {
            let session = QpidSession::open(&self.connector, self.request_deadline).await?;
            Ok(Box::new(session) as Box<dyn RouterSession>)
        }
        .boxed()
    }
}

/// One connection to a router. Fields are dropped in order: links before session before connection.
struct QpidSession {
    management: Management,
    request_deadline: Duration,
    prefix: &'static str,
    abilities: Abilities,
    peer: Option<IpAddr>,
    _session: SessionHandle<()>,
    _connection: ConnectionHandle<()>,
}

impl QpidSession {
    async fn open(connector: &Connector, request_deadline: Duration) -> Result<Self, LinkError> {
        let Opened { mut connection, peer } = connector.open().await?;
        let attach = async {
            let mut session = Session::builder()
                .incoming_window(SESSION_WINDOW)
                .outgoing_window(SESSION_WINDOW)
                .begin(&mut connection)
                .await
                .map_err(|error| LinkError { category: "protocol", message: error.to_string() })?;
            let management = Management::attach(&mut session, MANAGEMENT, "waystation").await?;
            let (prefix, abilities) = learn(&management, connector.deadline).await?;
            Ok::<_, LinkError>((session, management, prefix, abilities))
        };
        let (session, management, prefix, abilities) =
            tokio::time::timeout(connector.deadline, attach).await.map_err(|_| {
                let stage = "reading the schema";
                LinkError::from(ConnectError::TimedOut { stage, after: connector.deadline })
            })??;
        Ok(Self { management, request_deadline, prefix, abilities, peer, _session: session, _connection: connection })
    }
}

impl RouterSession for QpidSession {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The request is sent before the future is polled.
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Answer, CallError>> {
        let operation = request.operation.clone();
        let answer = self.management.request(encode(request, self.prefix), self.request_deadline);
        async move {
            match answer.await {
                Ok(reply) => decode(&operation, reply),
                Err(RequestError::Lost(reason)) => Err(CallError::Lost(reason)),
                Err(RequestError::TimedOut(_)) => Err(CallError::TimedOut),
            }
        }
        .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, String> {
        self.management.lost().boxed()
    }
}

// === The schema ===

/// Which router it is, and what it can do. The whole schema is large; these two answers are not.
async fn learn(management: &Management, deadline: Duration) -> Result<(&'static str, Abilities), LinkError> {
    let protocol = |message: String| LinkError { category: "protocol", message };
    let ask = |properties: Vec<(&'static str, SimpleValue)>, body: OrderedMap<Value, Value>| async move {
        let request = management::Request { properties, body: Value::Map(body) };
        management.request(request, deadline).await.map_err(|error| protocol(error.to_string()))
    };
    let text = |text: &str| SimpleValue::String(text.to_owned());
    let reply = ask(vec![("operation", text("GET-ATTRIBUTES"))], OrderedMap::new()).await?;
    let (status, words) = status(&reply);
    let Value::Map(attributes) = reply.body else {
        return Err(protocol(format!("GET-ATTRIBUTES is refused: {status} {words}")));
    };
    let (prefix, mut abilities) = understand(&attributes).filter(|_| status == 200).ok_or_else(|| {
        protocol("not a router that can be managed: its schema has no router.config.address".to_owned())
    })?;
    let mut body = OrderedMap::new();
    let wanted = vec![Value::String(ENFORCED.to_owned())];
    body.insert(Value::String("attributeNames".to_owned()), Value::List(wanted));
    let properties = vec![("operation", text("QUERY")), ("entityType", text(&format!("{prefix}.policy")))];
    abilities.policies = enforces(ask(properties, body).await?);
    Ok((prefix, abilities))
}

/// Whether a router says that it enforces its policies. One that has none does not.
fn enforces(reply: Reply) -> bool {
    let rows = if status(&reply).0 == 200 { rows(reply.body, &[ENFORCED]).ok() } else { None };
    matches!(rows, Some(Answer::Rows(rows)) if rows.iter().flatten().any(|value| *value == Json::Bool(true)))
}

/// Before the names of a router's types, and what it can do, from its answer to GET-ATTRIBUTES; none where it has no
/// addresses to configure.
pub fn understand(attributes: &OrderedMap<Value, Value>) -> Option<(&'static str, Abilities)> {
    let of = |name: &str| {
        attributes.iter().find(|(key, _)| text_of(key) == Some(name)).map(|(_, attributes)| match attributes {
            Value::List(list) => list.iter().filter_map(text_of).map(str::to_owned).collect(),
            Value::Array(array) => array.0.iter().filter_map(text_of).map(str::to_owned).collect(),
            _ => Vec::new(),
        })
    };
    PREFIXES.iter().find_map(|prefix| {
        let of = |of_type: Type| of(&format!("{prefix}.{}", of_type.as_str()));
        let address: Vec<String> = of(Type::Address)?;
        let listener = of(Type::Listener).unwrap_or_default();
        let abilities = Abilities {
            waypoints: address.iter().any(|name| name == "waypoint"),
            link_routes: of(Type::LinkRoute).is_some(),
            multi_tenant: listener.iter().any(|name| name == "multiTenant"),
            // Having it and being told to keep to it are two things.
            policies: false,
        };
        Some((*prefix, abilities))
    })
}

// === Requests and answers ===

/// A request as routers take it.
pub fn encode(request: Request, prefix: &str) -> management::Request {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    let of = format!("{prefix}.{}", request.of.as_str());
    let mut properties = vec![("operation", text(request.label()))];
    let mut body = OrderedMap::new();
    match request.operation {
        Operation::Create(name, attributes) => {
            properties.extend([("type", text(&of)), ("name", SimpleValue::String(name))]);
            for (key, value) in attributes {
                body.insert(Value::String(key), to_amqp(value));
            }
        }
        Operation::Read(name) | Operation::Delete(name) => {
            properties.extend([("type", text(&of)), ("name", SimpleValue::String(name))]);
        }
        Operation::Query { offset, count, attributes } => {
            let number = |number: u32| SimpleValue::Int(i32::try_from(number).unwrap_or(i32::MAX));
            properties.extend([("entityType", text(&of)), ("offset", number(offset)), ("count", number(count))]);
            let names = attributes.iter().map(|name| Value::String((*name).to_owned())).collect();
            body.insert(Value::String("attributeNames".to_owned()), Value::List(names));
        }
    }
    management::Request { properties, body: Value::Map(body) }
}

fn status(reply: &Reply) -> (i64, String) {
    let status = match reply.properties.get("statusCode") {
        Some(SimpleValue::Int(status)) => i64::from(*status),
        Some(SimpleValue::Uint(status)) => i64::from(*status),
        Some(SimpleValue::Long(status)) => *status,
        _ => 0,
    };
    let words = match reply.properties.get("statusDescription") {
        Some(SimpleValue::String(words)) => words.clone(),
        _ => String::new(),
    };
    (status, words)
}

/// What a router's answer to this operation means.
///
/// # Errors
/// When it is a refusal.
pub fn decode(operation: &Operation, reply: Reply) -> Result<Answer, CallError> {
    let (status, words) = status(&reply);
    match (status, operation) {
        (404, Operation::Read(_) | Operation::Delete(_)) => Err(CallError::NotFound),
        (200..=299, Operation::Create(..) | Operation::Delete(_)) => Ok(Answer::Done),
        (200..=299, Operation::Read(_)) => match to_json(reply.body) {
            Json::Object(mut attributes) => {
                // Routers show it to whoever asks.
                attributes.remove("saslPassword");
                Ok(Answer::Entity(attributes))
            }
            _ => Err(CallError::Refused("an entity without attributes".to_owned())),
        },
        (200..=299, Operation::Query { attributes, .. }) => rows(reply.body, attributes),
        _ if words.is_empty() => Err(CallError::Refused(format!("refused without a reason ({status})"))),
        _ => Err(CallError::Refused(words)),
    }
}

/// The rows in the order in which their attributes were asked for, whatever the order in which they came.
fn rows(body: Value, attributes: &[&str]) -> Result<Answer, CallError> {
    let unexpected = || CallError::Refused("rows without the attributes that were asked for".to_owned());
    let Json::Object(mut body) = to_json(body) else { return Err(unexpected()) };
    let (Some(Json::Array(names)), Some(Json::Array(rows))) = (body.remove("attributeNames"), body.remove("results"))
    else {
        return Err(unexpected());
    };
    let places: Vec<Option<usize>> =
        attributes.iter().map(|wanted| names.iter().position(|name| name.as_str() == Some(wanted))).collect();
    let in_order = |row: Json| match row {
        Json::Array(mut row) => {
            let value = |at: &Option<usize>| at.and_then(|at| row.get_mut(at)).map(Json::take).unwrap_or_default();
            places.iter().map(value).collect()
        }
        _ => Vec::new(),
    };
    Ok(Answer::Rows(rows.into_iter().map(in_order).collect()))
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Symbol(Symbol(text)) => Some(text),
        _ => None,
    }
}

fn to_amqp(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => Value::Int(number.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(0)),
        Json::String(text) => Value::String(text),
        Json::Array(list) => Value::List(list.into_iter().map(to_amqp).collect()),
        Json::Object(map) => {
            Value::Map(map.into_iter().map(|(key, value)| (Value::String(key), to_amqp(value))).collect())
        }
    }
}

fn to_json(value: Value) -> Json {
    match value {
        Value::Bool(value) => value.into(),
        Value::Ubyte(number) => number.into(),
        Value::Ushort(number) => number.into(),
        Value::Uint(number) => number.into(),
        Value::Ulong(number) => number.into(),
        Value::Byte(number) => number.into(),
        Value::Short(number) => number.into(),
        Value::Int(number) => number.into(),
        Value::Long(number) => number.into(),
        Value::String(text) | Value::Symbol(Symbol(text)) => text.into(),
        Value::List(list) => list.into_iter().map(to_json).collect::<Vec<_>>().into(),
        Value::Array(array) => array.0.into_iter().map(to_json).collect::<Vec<_>>().into(),
        Value::Map(map) => {
            let entries = map.into_iter().filter_map(|(key, value)| Some((text_of(&key)?.to_owned(), to_json(value))));
            Json::Object(entries.collect())
        }
        _ => Json::Null,
    }
}

#[cfg(test)]
mod tests;
