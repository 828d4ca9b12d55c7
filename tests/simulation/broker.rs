//! Brokers in memory behind the drive's own seam, with everything that can go wrong between the two.

pub mod hands;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, pending};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use waystation::cluster::secrets::SecretData;
use waystation::drive::broker::link::{BrokerLink, BrokerSession, Call, CallError, LinkError, SessionEvent};
use waystation::messaging::input::Broker as Named;
use waystation::operator::links::{Links, NamedSecret};
use waystation_kit::artemis_core::Core;

use crate::lies::Lie;
use crate::world::{Shared, World, lock};

type Answer = Result<Value, CallError>;

/// A broker and its connections.
pub struct Broker {
    pub core: Core,
    pub up: bool,
    /// Answers nothing before this.
    pub hangs_until: Instant,
    /// Passwords that it takes; none: anything.
    pub passwords: BTreeSet<String>,
    sessions: BTreeMap<u64, Session>,
    /// How often all connections were lost.
    pub losses: u64,
    /// How often each queue was destroyed.
    pub destroyed: BTreeMap<String, u64>,
    /// For each queue: when its messages were last counted, and when some last arrived.
    pub counted: BTreeMap<String, u64>,
    pub arrived: BTreeMap<String, u64>,
    /// Names that it refuses.
    pub refused: BTreeSet<String>,
    /// Whoever asks what it holds is told that he may not.
    pub denies: bool,
    /// Queues that somebody else has put in the way, and whether their addresses were made for them.
    pub squatted: BTreeMap<String, bool>,
}

struct Session {
    waiting: VecDeque<(Instant, Call, oneshot::Sender<Answer>)>,
    events: VecDeque<SessionEvent>,
    lost: Option<String>,
    work: Arc<Notify>,
    news: Arc<Notify>,
}

impl Broker {
    pub fn new(host: &str, passwords: BTreeSet<String>) -> Self {
        Self {
            core: Core::new(true).with_node(host),
            up: true,
            hangs_until: Instant::now(),
            passwords,
            sessions: BTreeMap::new(),
            losses: 0,
            destroyed: BTreeMap::new(),
            counted: BTreeMap::new(),
            arrived: BTreeMap::new(),
            refused: BTreeSet::new(),
            denies: false,
            squatted: BTreeMap::new(),
        }
    }

    /// Ends every connection.
    pub fn lose_all(&mut self, reason: &str) {
        self.losses += 1;
        for session in self.sessions.values_mut() {
            session.lose(reason);
        }
    }

    /// Stops; what is left is decided at the start.
    pub fn stop(&mut self) {
        self.up = false;
        self.lose_all("the broker went down");
    }

    pub fn start(&mut self, empty: bool) {
        if !self.up {
            self.core.restart(empty);
            self.up = true;
            self.hangs_until = Instant::now();
        }
    }

    /// Tells connections of removals.
    pub fn notify(&mut self) {
        for removal in self.core.take_removals() {
            *self.destroyed.entry(removal.queue.clone()).or_default() += 1;
            for session in self.sessions.values_mut().filter(|session| session.lost.is_none()) {
                let (queue, address) = (removal.queue.clone(), removal.address.clone());
                session.events.push_back(SessionEvent::QueueRemoved { queue, address });
                session.news.notify_one();
            }
        }
    }

    /// Whether somebody with this password may log in.
    pub fn takes(&self, password: Option<&str>) -> bool {
        self.passwords.is_empty() || password.is_some_and(|password| self.passwords.contains(password))
    }

    /// What one operation destroys: queues with their messages.
    fn doomed(&self, call: &Call) -> Vec<Doomed> {
        let named = call.params.get(0).and_then(Value::as_str).unwrap_or_default();
        let all = self.core.queues().filter(|(_, queue)| queue.messages > 0);
        let doomed = all.filter(|(name, queue)| match call.operation {
            "destroyQueue" => *name == named,
            "deleteAddress" => call.params.get(1) == Some(&Value::Bool(true)) && queue.address == named,
            _ => false,
        });
        let doomed = doomed.map(|(name, queue)| Doomed {
            queue: name.to_owned(),
            messages: queue.messages,
            consumer_of: (call.operation == "deleteAddress" && !queue.durable).then(|| queue.address.to_string()),
        });
        doomed.collect()
    }
}

/// A queue with messages that a command destroys.
struct Doomed {
    queue: String,
    messages: u64,
    /// It is a consumer's own, and goes with this address.
    consumer_of: Option<String>,
}

impl Session {
    fn lose(&mut self, reason: &str) {
        if self.lost.is_none() {
            self.lost = Some(reason.to_owned());
            self.work.notify_one();
            self.news.notify_one();
        }
    }
}

/// One replica's way to all brokers.
pub struct SimLinks {
    pub world: Shared,
    pub identity: Arc<str>,
}

impl Links for SimLinks {
    fn link(&self, broker: &Named, _: Option<NamedSecret>, login: Option<NamedSecret>) -> Arc<dyn BrokerLink> {
        Arc::new(SimLink {
            world: Shared::clone(&self.world),
            identity: Arc::clone(&self.identity),
            host: broker.host.to_string(),
            login: login.map(|secret| secret.data),
        })
    }
}

struct SimLink {
    world: Shared,
    identity: Arc<str>,
    host: String,
    login: Option<Option<Arc<SecretData>>>,
}

impl BrokerLink for SimLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
        async move {
            let (wait, hangs) = {
                let mut world = lock(&self.world);
                world.note_sender(&self.identity, None);
                let bad = world.faults.broker;
                let hangs = bad > 0 && world.random.chance(bad / 2);
                (world.broker_latency(), hangs)
            };
            sleep(wait).await;
            if hangs {
                return pending().await;
            }
            loop {
                let hung = lock(&self.world).brokers.get(&self.host).map(|broker| broker.hangs_until);
                match hung {
                    Some(until) if until > Instant::now() => sleep_until(until).await,
                    _ => break,
                }
            }
            self.accept()
        }
        .boxed()
    }
}

fn refused(message: &str) -> LinkError {
    LinkError { category: "unreachable", message: message.to_owned() }
}

impl SimLink {
    fn accept(&self) -> Result<Box<dyn BrokerSession>, LinkError> {
        let mut world = lock(&self.world);
        let bad = world.faults.broker;
        let unlucky = bad > 0 && world.random.chance(bad);
        let password = match &self.login {
            Some(Some(data)) => data.get("password").map(|value| String::from_utf8_lossy(value).into_owned()),
            _ => None,
        };
        world.sessions += 1;
        let id = world.sessions;
        world.note(&format!("{} connects to {}", self.identity, self.host));
        let Some(broker) = world.brokers.get_mut(&self.host) else { return Err(refused("no such host")) };
        if !broker.up || unlucky {
            return Err(refused("connection refused"));
        }
        if !broker.takes(password.as_deref()) {
            return Err(LinkError { category: "login", message: "login refused".to_owned() });
        }
        let session = Session {
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            lost: None,
            work: Arc::default(),
            news: Arc::default(),
        };
        let (work, news) = (Arc::clone(&session.work), Arc::clone(&session.news));
        broker.sessions.insert(id, session);
        let made = SimSession {
            world: Shared::clone(&self.world),
            identity: Arc::clone(&self.identity),
            host: self.host.clone(),
            id,
            work,
            news,
        };
        let serving = Serving {
            world: Shared::clone(&self.world),
            identity: Arc::clone(&self.identity),
            host: self.host.clone(),
            id,
            work: Arc::clone(&made.work),
        };
        tokio::spawn(serving.run());
        Ok(Box::new(made))
    }
}

struct SimSession {
    world: Shared,
    identity: Arc<str>,
    host: String,
    id: u64,
    work: Arc<Notify>,
    news: Arc<Notify>,
}

impl SimSession {
    fn with<T>(&self, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut world = lock(&self.world);
        world.brokers.get_mut(&self.host)?.sessions.get_mut(&self.id).map(act)
    }
}

impl BrokerSession for SimSession {
    fn call(&self, call: Call) -> BoxFuture<'static, Answer> {
        let (mut teller, told) = oneshot::channel();
        {
            let mut world = lock(&self.world);
            world.note_sender(&self.identity, None);
            if world.lies(Lie::EarlyAnswer) && mutates(&call) {
                // Said to be done; what the broker says of it, or that the connection breaks, comes too late.
                let early = std::mem::replace(&mut teller, oneshot::channel().0);
                let _ = early.send(Ok(presumed(&call)));
            }
            let arrives = Instant::now() + world.broker_latency();
            let session = world.brokers.get_mut(&self.host).and_then(|broker| broker.sessions.get_mut(&self.id));
            match session {
                Some(session) if session.lost.is_none() => session.waiting.push_back((arrives, call, teller)),
                // Dropping the teller says that the connection is lost.
                _ => drop(teller),
            }
        }
        self.work.notify_one();
        async move { told.await.unwrap_or_else(|_| Err(CallError::Lost("the connection was reset".to_owned()))) }
            .boxed()
    }

    fn next_event(&self) -> BoxFuture<'_, SessionEvent> {
        async move {
            loop {
                let news = self.news.notified();
                let event = self.with(|session| match (session.events.pop_front(), &session.lost) {
                    (Some(event), _) => Some(event),
                    (None, Some(reason)) => Some(SessionEvent::Lost(reason.clone())),
                    (None, None) => None,
                });
                match event {
                    Some(Some(event)) => return event,
                    Some(None) => news.await,
                    None => return SessionEvent::Lost("the connection is closed".to_owned()),
                }
            }
        }
        .boxed()
    }
}

impl Drop for SimSession {
    fn drop(&mut self) {
        // What was sent may have arrived or not.
        let mut world = lock(&self.world);
        let sent = world.brokers.get(&self.host).and_then(|b| b.sessions.get(&self.id)).map_or(0, |s| s.waiting.len());
        let arrived = if sent == 0 { 0 } else { world.random.within(0..sent as u64 + 1) };
        for _ in 0..arrived {
            let next = world.brokers.get_mut(&self.host).and_then(|broker| {
                let up = broker.up;
                let session = broker.sessions.get_mut(&self.id)?;
                session.waiting.pop_front().filter(|_| up && session.lost.is_none())
            });
            if let Some((_, call, _)) = next {
                let _ = carry_out(&mut world, &self.identity, &self.host, &call);
            }
        }
        if let Some(broker) = world.brokers.get_mut(&self.host) {
            broker.sessions.remove(&self.id);
        }
        drop(world);
        self.work.notify_one();
    }
}

/// The broker's side of one connection.
struct Serving {
    world: Shared,
    identity: Arc<str>,
    host: String,
    id: u64,
    work: Arc<Notify>,
}

enum Turn {
    Wait(Option<Instant>),
    Took(Call, oneshot::Sender<Answer>),
    Ended,
}

impl Serving {
    async fn run(self) {
        loop {
            let work = self.work.notified();
            match self.turn() {
                Turn::Ended => return,
                Turn::Wait(None) => work.await,
                Turn::Wait(Some(at)) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(at) => {}
                        () = self.ended() => {}
                    }
                }
                Turn::Took(call, teller) => self.serve(call, teller),
            }
        }
    }

    /// Waits until the connection is over.
    async fn ended(&self) {
        loop {
            let work = self.work.notified();
            let over = lock(&self.world)
                .brokers
                .get(&self.host)
                .and_then(|broker| broker.sessions.get(&self.id))
                .is_none_or(|session| session.lost.is_some());
            if over {
                return;
            }
            work.await;
        }
    }

    fn turn(&self) -> Turn {
        let mut world = lock(&self.world);
        let Some(broker) = world.brokers.get_mut(&self.host) else { return Turn::Ended };
        let hangs = broker.hangs_until;
        let Some(session) = broker.sessions.get_mut(&self.id) else { return Turn::Ended };
        if session.lost.is_some() {
            // Whoever waits is told by the loss of the teller.
            session.waiting.clear();
            return Turn::Ended;
        }
        let Some((arrives, ..)) = session.waiting.front() else { return Turn::Wait(None) };
        let due = (*arrives).max(hangs);
        if due > Instant::now() {
            return Turn::Wait(Some(due));
        }
        match session.waiting.pop_front() {
            Some((_, call, teller)) => Turn::Took(call, teller),
            None => Turn::Wait(None),
        }
    }

    fn serve(&self, call: Call, teller: oneshot::Sender<Answer>) {
        let mut world = lock(&self.world);
        let bad = world.faults.broker;
        let lost = bad > 0 && world.random.chance(bad / 4);
        let before = lost && world.random.chance(300);
        if !before {
            let answer = carry_out(&mut world, &self.identity, &self.host, &call);
            if !lost {
                let _ = teller.send(answer.map_err(CallError::Refused));
            }
        }
        if lost {
            world.note(&format!("{} loses its connection to {}", self.identity, self.host));
            if let Some(session) = world.brokers.get_mut(&self.host).and_then(|b| b.sessions.get_mut(&self.id)) {
                session.lose("the connection was reset");
                session.waiting.clear();
            }
        }
    }
}

/// Whether a command changes anything.
pub fn mutates(call: &Call) -> bool {
    matches!(
        call.operation,
        "createQueue"
            | "updateQueue"
            | "destroyQueue"
            | "createAddress"
            | "deleteAddress"
            | "addAddressSettings"
            | "removeAddressSettings"
    )
}

/// What a link that lies makes up.
fn presumed(call: &Call) -> Value {
    match call.operation {
        "addAddressSettings" => call.params[1].clone(),
        _ => Value::Null,
    }
}

fn carry_out(world: &mut World, identity: &str, host: &str, call: &Call) -> Result<Value, String> {
    let now = world.now_us();
    let Some(broker) = world.brokers.get_mut(host) else { return Err("gone".to_owned()) };
    let doomed = broker.doomed(call);
    let answer = match call.operation {
        "listQueues" | "getAddressNames" if broker.denies => Err("AMQ229213: User does not have permission".to_owned()),
        operation => broker.core.call(&call.resource, operation, &call.params),
    };
    let answer = match (call.operation, answer) {
        ("getMessageCount", Ok(count)) => {
            if let Some(queue) = call.resource.strip_prefix("queue.") {
                broker.counted.insert(queue.to_owned(), now);
            }
            Ok(if world.lies(Lie::EmptyCount) { 0.into() } else { count })
        }
        (_, answer) => answer,
    };
    let outcome = match &answer {
        Ok(_) => "ok",
        Err(words) => words,
    };
    let line = format!("{identity} {host} {} {} {} -> {outcome}", call.resource, call.operation, call.params);
    if mutates(call) && answer.is_ok() {
        if call.operation == "createQueue" {
            let wanted: Value = serde_json::from_str(call.params[0].as_str().unwrap_or_default()).unwrap_or_default();
            let name = wanted["name"].as_str().unwrap_or_default();
            world.forget_tombs(name);
            world.held.insert((host.to_owned(), name.to_owned()));
        }
        if call.operation == "destroyQueue" {
            let name = call.params[0].as_str().unwrap_or_default();
            world.held.remove(&(host.to_owned(), name.to_owned()));
            world.judge_removal(host, name);
        }
        world.commands += 1;
        world.acted();
    }
    world.note(&line);
    if answer.is_ok() {
        for Doomed { queue, messages, consumer_of } in doomed {
            match consumer_of {
                Some(address) => world.judge_parting(host, &address, &queue, messages),
                None => world.judge_destruction(host, &queue, messages),
            }
        }
    }
    if let Some(broker) = world.brokers.get_mut(host) {
        if call.operation == "closeConsumerConnectionsForAddress" {
            // Of routers; operators receive from nothing of ours.
            broker.losses += 1;
        }
        broker.notify();
    }
    answer
}

/// A wait of so many milliseconds.
pub fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
