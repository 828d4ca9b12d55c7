//! A broker in memory: queues, addresses, settings, and Artemis' words for what it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::sleep;

use crate::drive::broker::link::{BrokerLink, BrokerSession, Call, CallError, LinkError, SessionEvent};

#[derive(Clone, Debug)]
pub struct QueueState {
    pub address: String,
    pub routing: String,
    pub durable: bool,
    pub max_consumers: i64,
    pub user: String,
    pub messages: i64,
}

#[derive(Default)]
pub struct State {
    pub queues: BTreeMap<String, QueueState>,
    pub addresses: BTreeMap<String, Vec<String>>,
    pub settings: BTreeMap<String, Map<String, Value>>,
    /// Addresses and queues that it made for somebody who came there.
    pub by_itself: BTreeSet<String>,
    /// Every operation.
    pub calls: Vec<&'static str>,
    /// How long answers to an operation take.
    pub slow: BTreeMap<&'static str, Duration>,
    /// Operations that are refused, with the words.
    pub refuses: BTreeMap<&'static str, &'static str>,
    /// What others do right after an operation, once.
    pub then: BTreeMap<&'static str, fn(&mut State)>,
    /// So many times, a list meets a queue that has just gone.
    pub stumbles: u32,
    /// Nothing is answered.
    pub hung: bool,
    /// Connections are refused, with the reason.
    pub down: Option<&'static str>,
    pub connects: u32,
    pub sessions: u32,
    listeners: Vec<mpsc::UnboundedSender<SessionEvent>>,
}

#[derive(Clone, Default)]
pub struct MemoryBroker(Arc<Mutex<State>>);

impl MemoryBroker {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Ends every session.
    pub fn cut(&self) {
        for listener in self.state().listeners.drain(..) {
            let _ = listener.send(SessionEvent::Lost("cut".into()));
        }
    }

    pub fn make_by_hand(&self, name: &str, user: &str, messages: i64) {
        let mut state = self.state();
        state.addresses.insert(name.into(), vec!["ANYCAST".into()]);
        let queue = QueueState {
            address: name.into(),
            routing: "ANYCAST".into(),
            durable: true,
            max_consumers: -1,
            user: user.into(),
            messages,
        };
        state.queues.insert(name.into(), queue);
    }

    pub fn remove_by_hand(&self, name: &str) {
        self.state().remove_queue(name);
    }

    pub fn operations(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }
}

type Answer = Result<Value, String>;

impl State {
    pub fn remove_queue(&mut self, name: &str) -> bool {
        let Some(queue) = self.queues.remove(name) else { return false };
        let event = SessionEvent::QueueRemoved { queue: name.into(), address: queue.address };
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
        true
    }

    fn answer(&mut self, call: &Call) -> Answer {
        let text = |at: usize| call.params.get(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(words) = self.refuses.get(call.operation) {
            return Err((*words).to_owned());
        }
        if call.operation == "listQueues" && self.stumbles > 0 {
            self.stumbles -= 1;
            return Err("Cannot invoke \"Queue.isPaused()\" because \"q\" is null".to_owned());
        }
        match call.operation {
            "createQueue" => self.create_queue(&serde_json::from_str(&text(0)).unwrap()),
            "updateQueue" => {
                let wanted: Value = serde_json::from_str(&text(0)).unwrap();
                let queue = self.queues.get_mut(wanted["name"].as_str().unwrap()).ok_or("AMQ229017: no such queue")?;
                queue.max_consumers = wanted["max-consumers"].as_i64().unwrap_or(queue.max_consumers);
                queue.user = wanted["user"].as_str().map_or(queue.user.clone(), str::to_owned);
                Ok(Value::Null)
            }
            "destroyQueue" if self.queues.contains_key(&text(0)) => {
                let address = self.queues[&text(0)].address.clone();
                self.remove_queue(&text(0));
                if call.params[2] == true && !self.queues.values().any(|queue| queue.address == address) {
                    self.addresses.remove(&address);
                }
                Ok(Value::Null)
            }
            "destroyQueue" => Err("AMQ229017: Queue does not exist".into()),
            "createAddress" if self.addresses.contains_key(&text(0)) => Err("AMQ229204: Address already exists".into()),
            "createAddress" => {
                self.addresses.insert(text(0), text(1).split(',').map(str::to_owned).collect());
                Ok(Value::Null)
            }
            "deleteAddress" => self.delete_address(&text(0), call.params[1].as_bool().unwrap()),
            "addAddressSettings" => {
                let settings: Map<String, Value> = serde_json::from_str(&text(1)).unwrap();
                self.settings.insert(text(0), settings.clone());
                Ok(Value::Object(settings).to_string().into())
            }
            "removeAddressSettings" => {
                self.settings.remove(&text(0));
                Ok(Value::Null)
            }
            "getAddressSettingsAsJSON" => {
                let mut merged = self.settings.get(&text(0)).cloned().unwrap_or_default();
                // The match of all names below a prefix.
                let wide = text(0).split_once('/').map(|(space, _)| format!("{space}/*.#")).unwrap_or_default();
                for (key, value) in self.settings.get(&wide).into_iter().flatten() {
                    merged.entry(key.clone()).or_insert(value.clone());
                }
                merged.entry("maxDeliveryAttempts").or_insert(json!(10));
                for key in ["autoCreateQueues", "autoCreateAddresses", "autoDeleteQueues", "autoDeleteAddresses"] {
                    merged.entry(key).or_insert(json!(true));
                }
                for key in ["autoCreateDeadLetterResources", "autoCreateExpiryResources"] {
                    merged.entry(key).or_insert(json!(false));
                }
                Ok(Value::Object(merged).to_string().into())
            }
            "listQueues" => self.list(&serde_json::from_str(&text(0)).unwrap()),
            "getNodeID" => Ok(json!("node")),
            "getAddressNames" => Ok(json!(self.addresses.keys().collect::<Vec<_>>())),
            "getAddressInfo" => match self.addresses.get(&text(0)) {
                Some(types) => {
                    let types = types.join(",");
                    let by_itself = self.by_itself.contains(&text(0));
                    Ok(format!("Address [name={}, routingTypes={{{types}}}, autoCreated={by_itself}]", text(0)).into())
                }
                None => Err("AMQ229203: Address Does Not Exist".into()),
            },
            "closeConsumerConnectionsForAddress" => Ok(json!(true)),
            "getQueueNames" => {
                let name = call.resource.strip_prefix("address.").unwrap();
                self.addresses.get(name).ok_or("AMQ229067: Cannot find resource with name")?;
                let bound = self.queues.iter().filter(|(_, queue)| queue.address == name);
                Ok(json!(bound.map(|(queue, _)| queue).collect::<Vec<_>>()))
            }
            "getUser" => {
                let name = call.resource.strip_prefix("queue.").unwrap();
                let queue = self.queues.get(name).ok_or("AMQ229067: Cannot find resource with name")?;
                Ok(json!(queue.user))
            }
            "getMessageCount" => {
                let name = call.resource.strip_prefix("queue.").unwrap();
                let queue = self.queues.get(name).ok_or("AMQ229067: Cannot find resource with name")?;
                Ok(json!(queue.messages))
            }
            other => panic!("{other}"),
        }
    }

    fn create_queue(&mut self, wanted: &Value) -> Answer {
        let text = |key: &str| wanted[key].as_str().unwrap().to_owned();
        if self.queues.contains_key(&text("name")) {
            return Err(format!("AMQ229019: Queue {} already exists on address {}", text("name"), text("address")));
        }
        match self.addresses.get(&text("address")) {
            Some(types) if types.contains(&text("routing-type")) => {}
            Some(_) => return Err("AMQ229209: Can not create queue: invalid routing type".into()),
            None if wanted["auto-create-address"] == true => {
                self.addresses.insert(text("address"), vec![text("routing-type")]);
            }
            None => return Err(format!("AMQ229203: Address Does Not Exist: {}", text("address"))),
        }
        let queue = QueueState {
            address: text("address"),
            routing: text("routing-type"),
            durable: wanted["durable"].as_bool().unwrap(),
            max_consumers: wanted["max-consumers"].as_i64().unwrap(),
            user: text("user"),
            messages: 0,
        };
        self.queues.insert(text("name"), queue);
        Ok(Value::Null)
    }

    fn delete_address(&mut self, name: &str, with_queues: bool) -> Answer {
        if !self.addresses.contains_key(name) {
            return Err("AMQ229203: Address Does Not Exist".into());
        }
        let bound: Vec<String> =
            self.queues.iter().filter(|(_, queue)| queue.address == name).map(|(name, _)| name.clone()).collect();
        if !bound.is_empty() && !with_queues {
            return Err("AMQ229205: Address has bindings".into());
        }
        for queue in bound {
            self.remove_queue(&queue);
        }
        self.addresses.remove(name);
        Ok(Value::Null)
    }

    fn list(&self, filter: &Value) -> Answer {
        let wanted = filter["value"].as_str().unwrap();
        let taken = |name: &str, queue: &QueueState| match filter["field"].as_str().unwrap() {
            "user" => queue.user == wanted,
            "name" => name == wanted,
            "address" => queue.address == wanted,
            other => panic!("{other}"),
        };
        let rows: Vec<Value> = self
            .queues
            .iter()
            .filter(|(name, queue)| taken(name, queue))
            .map(|(name, queue)| {
                json!({
                    "name": name, "address": queue.address, "routingType": queue.routing,
                    "durable": queue.durable.to_string(), "maxConsumers": queue.max_consumers.to_string(),
                    "messageCount": queue.messages.to_string(), "consumerCount": "0", "user": queue.user,
                    "autoCreated": self.by_itself.contains(name).to_string(),
                })
            })
            .collect();
        Ok(json!({ "count": rows.len(), "data": rows }).to_string().into())
    }
}

impl BrokerLink for MemoryBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
        async {
            let mut state = self.state();
            state.connects += 1;
            if let Some(reason) = state.down {
                return Err(LinkError { category: "unreachable", message: reason.to_owned() });
            }
            state.sessions += 1;
            let (listener, events) = mpsc::unbounded_channel();
            state.listeners.push(listener);
            let session = MemorySession { broker: self.clone(), events: AsyncMutex::new(events) };
            Ok(Box::new(session) as Box<dyn BrokerSession>)
        }
        .boxed()
    }
}

struct MemorySession {
    broker: MemoryBroker,
    events: AsyncMutex<mpsc::UnboundedReceiver<SessionEvent>>,
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.broker.state().sessions -= 1;
    }
}

impl BrokerSession for MemorySession {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Value, CallError>> {
        let mut state = self.broker.state();
        state.calls.push(call.operation);
        if state.hung {
            return std::future::pending().boxed();
        }
        let answer = state.answer(&call).map_err(CallError::Refused);
        if let Some(then) = state.then.remove(call.operation) {
            then(&mut state);
        }
        let slow = state.slow.get(call.operation).copied();
        async move {
            if let Some(slow) = slow {
                sleep(slow).await;
            }
            answer
        }
        .boxed()
    }

    fn next_event(&self) -> BoxFuture<'_, SessionEvent> {
        async {
            match self.events.lock().await.recv().await {
                Some(event) => event,
                None => SessionEvent::Lost("cut".into()),
            }
        }
        .boxed()
    }
}
