//! A witness of what a broker holds, and of what the operator said and did: none of it goes by the operator's own word.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, Body, Message, Outcome, Properties, Source};
use fe2o3_amqp::types::primitives::{SimpleValue, Value as AmqpAny};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use waystation_kit::artemis::{Artemis, Login};
use waystation_kit::process::eventually;

use crate::support::{Kind, SOON, Tenant};

/// A queue as the broker lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    pub address: String,
    pub routing: String,
    pub durable: bool,
    pub messages: i64,
    pub user: String,
}

/// A management client of its own: one question at a time.
pub struct Observer {
    requests: Sender,
    replies: Receiver,
    reply_to: String,
    // Dropped last, so that links end before them.
    _session: SessionHandle<()>,
    _connection: ConnectionHandle<()>,
}

impl Observer {
    pub async fn of(broker: &Artemis) -> Result<Self> {
        timeout(SOON, Self::connect(broker)).await.context("the broker does not answer")?
    }

    async fn connect(broker: &Artemis) -> Result<Self> {
        let Login::Password { user, password } = broker.login() else { bail!("the broker has no password") };
        let stream = TcpStream::connect(("127.0.0.1", broker.plain_port())).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection::builder()
            .container_id(format!("observer-of-faults-{:?}", std::thread::current().id()))
            .hostname("127.0.0.1")
            .scheme("amqp")
            .sasl_profile(SaslProfile::Plain { username: user.clone(), password: password.clone() })
            .open_with_stream(stream)
            .await?;
        let mut session = Session::begin(&mut connection).await?;
        let replies = Receiver::builder()
            .name("observer-replies")
            .source(Source::builder().dynamic(true).build())
            .auto_accept(true)
            .attach(&mut session)
            .await?;
        let reply_to =
            replies.source().as_ref().and_then(|source| source.address.clone()).context("no reply address")?;
        let requests = Sender::attach(&mut session, "observer-requests", "activemq.management").await?;
        Ok(Self { requests, replies, reply_to, _session: session, _connection: connection })
    }

    /// One operation; a refusal is an error in the broker's words.
    pub async fn call(&mut self, resource: &str, operation: &str, parameters: Value) -> Result<Value> {
        timeout(SOON, self.ask(resource, operation, parameters)).await.context("the broker does not answer")?
    }

    async fn ask(&mut self, resource: &str, operation: &str, parameters: Value) -> Result<Value> {
        let properties = ApplicationProperties::builder()
            .insert("_AMQ_ResourceName", resource)
            .insert("_AMQ_OperationName", operation)
            .build();
        let request = Message::builder()
            .properties(Properties::builder().reply_to(self.reply_to.clone()).build())
            .application_properties(properties)
            .value(parameters.to_string())
            .build();
        let outcome = self.requests.send::<AmqpValue<String>>(request).await?;
        ensure!(matches!(outcome, Outcome::Accepted(_)), "the request was not taken: {outcome:?}");
        let reply = self.replies.recv::<Body<AmqpAny>>().await?.into_message();
        let succeeded = reply.application_properties.as_ref().and_then(|all| all.0.get("_AMQ_OperationSucceeded"));
        let text = match &reply.body {
            Body::Value(AmqpValue(AmqpAny::String(text))) => text.as_str(),
            _ => "[null]",
        };
        let answer: Value = serde_json::from_str(text)?;
        let first = answer.get(0).cloned().unwrap_or_default();
        ensure!(matches!(succeeded, Some(SimpleValue::Bool(true))), "{operation}: {first}");
        Ok(first)
    }

    async fn broker(&mut self, operation: &str, parameters: Value) -> Result<Value> {
        self.call("broker", operation, parameters).await
    }

    /// All queues whose names begin so.
    pub async fn queues(&mut self, prefix: &str) -> Result<BTreeMap<String, QueueRow>> {
        let answer = loop {
            match self.broker("listQueues", json!(["", 1, 100_000])).await {
                // A queue of another test went while it was being listed.
                Err(error) if error.to_string().contains("Cannot invoke") => {}
                answer => break answer?,
            }
        };
        let list: Value = serde_json::from_str(answer.as_str().context("no list")?)?;
        let rows = list["data"].as_array().context("no rows")?;
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let row = |row: &Value| {
            let queue = QueueRow {
                address: text(row, "address"),
                routing: text(row, "routingType"),
                durable: text(row, "durable") == "true",
                messages: text(row, "messageCount").parse().unwrap_or(-1),
                user: text(row, "user"),
            };
            (text(row, "name"), queue)
        };
        Ok(rows.iter().map(row).filter(|(name, _)| name.starts_with(prefix)).collect())
    }

    /// The queue of this name.
    pub async fn queue(&mut self, name: &str) -> Result<Option<QueueRow>> {
        Ok(self.queues(name).await?.remove(name))
    }

    /// All addresses whose names begin so.
    pub async fn addresses(&mut self, prefix: &str) -> Result<BTreeSet<String>> {
        let names: Vec<String> = serde_json::from_value(self.broker("getAddressNames", json!([])).await?)?;
        Ok(names.into_iter().filter(|name| name.starts_with(prefix)).collect())
    }

    /// The settings in force for an address.
    pub async fn settings(&mut self, address: &str) -> Result<Map<String, Value>> {
        let answer = self.broker("getAddressSettingsAsJSON", json!([address])).await?;
        Ok(serde_json::from_str(answer.as_str().context("no settings")?)?)
    }

    /// The same for several.
    pub async fn settings_of(&mut self, addresses: &[String]) -> Result<Vec<Map<String, Value>>> {
        let mut all = Vec::new();
        for address in addresses {
            all.push(self.settings(address).await?);
        }
        Ok(all)
    }

    /// Makes a queue as people do.
    pub async fn make_queue(&mut self, name: &str, user: Option<&str>) -> Result<()> {
        let mut queue = json!({
            "name": name, "address": name, "routing-type": "ANYCAST", "durable": true, "auto-create-address": true,
        });
        if let Some(user) = user {
            queue["user"] = user.into();
        }
        self.broker("createQueue", json!([queue.to_string(), false])).await.map(drop)
    }

    /// Takes a queue away, with its messages.
    pub async fn destroy_queue(&mut self, name: &str) -> Result<()> {
        self.broker("destroyQueue", json!([name, true, true])).await.map(drop)
    }

    /// Waits until there is no queue of this name.
    pub async fn without_queue(&mut self, name: &str) -> Result<()> {
        self.until(&format!("queue {name} is gone"), name, |row| {
            row.is_none().then_some(()).with_context(|| format!("{row:?}"))
        })
        .await
    }

    /// Waits until the queue is as it should be.
    pub async fn until<T>(
        &mut self,
        what: &str,
        name: &str,
        wanted: impl Fn(Option<QueueRow>) -> Result<T>,
    ) -> Result<T> {
        let this = tokio::sync::Mutex::new(self);
        eventually(SOON, what, || async { wanted(this.lock().await.queue(name).await?) }).await
    }
}

/// Events on an object: reason and message of each.
pub async fn events(tenant: &Tenant<'_>, kind: Kind, name: &str) -> Result<Vec<(String, String)>> {
    let all = Api::<Event>::namespaced(tenant.client.clone(), &tenant.namespace).list(&Default::default()).await?;
    let about = |event: &Event| {
        event.regarding.as_ref().is_some_and(|object| {
            object.kind.as_deref() == Some(&format!("{kind:?}")) && object.name.as_deref() == Some(name)
        })
    };
    let told = all.items.into_iter().filter(about);
    Ok(told.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect())
}

/// Waits for an event with that reason whose message has these words.
pub async fn event(tenant: &Tenant<'_>, kind: Kind, name: &str, reason: &str, words: &str) -> Result<()> {
    eventually(SOON, &format!("event {reason} on {name}"), || async {
        let all = events(tenant, kind, name).await?;
        let told = all.iter().any(|(its, note)| its == reason && note.contains(words));
        told.then_some(()).ok_or_else(|| anyhow!("there are {all:?}"))
    })
    .await
}

/// Sends texts to an address.
pub async fn send(broker: &Artemis, address: &str, texts: &[&str]) -> Result<()> {
    let mut client = broker.client().await?;
    let messages: Vec<_> = texts.iter().map(|text| waystation_kit::amqp_client::Outgoing::text(text)).collect();
    client.send_all(address, &messages).await?;
    client.close().await
}

/// Takes exactly these texts from an address, in this order.
pub async fn take(broker: &Artemis, address: &str, texts: &[&str]) -> Result<()> {
    let mut client = broker.client().await?;
    let received = client.receive(address, texts.len(), SOON).await?;
    client.close().await?;
    let bodies: Vec<&str> = received.iter().map(|message| message.body.as_str()).collect();
    ensure!(bodies == texts, "expected {texts:?} from {address}, received {bodies:?}");
    Ok(())
}

/// Ports of loopback that a process has established connections to.
pub fn connections_to(pid: u32, port: u16) -> Result<usize> {
    let mut sockets = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that was closed meanwhile.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let name = target.to_string_lossy().into_owned();
        sockets.extend(name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned));
    }
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    let (remote, established) = (format!(":{port:04X}"), "01");
    let count = table.lines().skip(1).filter(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.len() > 9 && columns[2].ends_with(&remote) && columns[3] == established && sockets.contains(columns[9])
    });
    Ok(count.count())
}

/// Waits until a metric of an operator is as it should be.
pub async fn metric(
    operator: &waystation_kit::operator::Operator,
    series: &str,
    wanted: impl Fn(f64) -> bool,
) -> Result<f64> {
    eventually(SOON, series, || async {
        let value = operator.metric(series).await?;
        ensure!(wanted(value), "it is {value}");
        Ok(value)
    })
    .await
}

/// The sum of a counter over all its labels.
pub async fn total(operator: &waystation_kit::operator::Operator, name: &str) -> Result<f64> {
    let text = operator.metrics().await?;
    let lines = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
