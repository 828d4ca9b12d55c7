//! A router in memory behind the seam: the kit's management, with connections and links that come up by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fe2o3_amqp::types::primitives::SimpleValue;
use futures::future::{BoxFuture, FutureExt, pending};
use serde_amqp::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use waystation_kit::router_core::{self, Bound, Core, Flavour, OperStatus};

use crate::drive::amqp::Reply;
use crate::drive::router::link::{Answer, CallError, LinkError, Request, RouterLink, RouterSession, Type};
use crate::drive::router::qpid;
use crate::messaging::router::Abilities;

pub struct State {
    pub core: Core,
    flavour: Flavour,
    /// Every request.
    pub requests: Vec<Request>,
    /// How long answers to an operation take.
    pub slow: BTreeMap<&'static str, Duration>,
    /// Answers to this operation never come, though it is carried out.
    pub unanswered: Option<&'static str>,
    /// Nothing is answered, or carried out.
    pub hung: bool,
    /// Connections are refused, with the reason.
    pub down: Option<&'static str>,
    /// So many of the links to be made at addresses with this in them will fail.
    pub failing: BTreeMap<String, u32>,
    /// Why no connector connects.
    pub brokers_down: Option<&'static str>,
    attempts: usize,
    pub connects: u32,
    pub sessions: u32,
    /// The most requests under way at a time.
    pub most_open: usize,
    open: usize,
    /// The most pages of addresses that were asked for at a time.
    pub most_pages: usize,
    pages: usize,
    links: BTreeMap<u64, (Instant, bool)>,
    ended: watch::Sender<u32>,
}

/// How long a new link takes to become active.
const ATTACH: Duration = Duration::from_millis(12);

#[derive(Clone)]
pub struct MemoryRouter(Arc<Mutex<State>>);

impl MemoryRouter {
    pub fn new(flavour: Flavour) -> Self {
        let state = State {
            core: Core::new("R", flavour),
            flavour,
            requests: Vec::new(),
            slow: BTreeMap::new(),
            unanswered: None,
            hung: false,
            down: None,
            failing: BTreeMap::new(),
            brokers_down: None,
            attempts: 0,
            connects: 0,
            sessions: 0,
            most_open: 0,
            open: 0,
            most_pages: 0,
            pages: 0,
            links: BTreeMap::new(),
            ended: watch::channel(0).0,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Ends every session.
    pub fn cut(&self) {
        self.state().ended.send_modify(|times| *times += 1);
    }

    /// Ends every session, and forgets everything.
    pub fn restart(&self) {
        self.state().core.restart();
        self.cut();
    }

    /// Asks by hand, in the router's own way.
    pub fn by_hand(&self, request: Request) -> Result<Answer, CallError> {
        self.state().carry_out(&request)
    }

    /// What was asked since the last time, without questions.
    pub fn asked(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state().requests);
        requests.iter().filter(|request| request.label() != "QUERY").map(|request| format!("{request:?}")).collect()
    }
}

impl State {
    fn carry_out(&mut self, request: &Request) -> Result<Answer, CallError> {
        self.live();
        let before: BTreeSet<u64> = self.core.auto_links().map(|(identity, _)| identity).collect();
        let sent = qpid::encode(request.clone(), self.flavour.prefix());
        let properties = sent.properties.into_iter().map(|(key, value)| (key, plain(value)));
        let answer = self.core.call(&router_core::Request::new(properties, sent.body)).expect("an answer");
        let new: Vec<(u64, String)> = self
            .core
            .auto_links()
            .filter(|(identity, _)| !before.contains(identity))
            .map(|(identity, link)| (identity, link.address.clone()))
            .collect();
        for (identity, address) in new {
            let failing = self.failing.iter_mut().find(|(part, times)| address.contains(*part) && **times > 0);
            let fails = failing.is_some();
            if let Some((_, times)) = failing {
                *times -= 1;
            }
            self.links.insert(identity, (Instant::now(), fails));
        }
        let properties = [
            ("statusCode".to_owned(), SimpleValue::Int(answer.status)),
            ("statusDescription".to_owned(), SimpleValue::String(answer.description)),
        ];
        qpid::decode(&request.operation, Reply { properties: properties.into_iter().collect(), body: answer.body })
    }

    /// Connections and links are what they have become by now.
    fn live(&mut self) {
        let connectors: BTreeSet<String> = self.core.connectors().into_iter().map(|connector| connector.name).collect();
        for name in &connectors {
            // Every look finds another attempt, at another moment of it.
            self.attempts += 1;
            match self.brokers_down {
                None => self.core.set_connector(name, "SUCCESS", "[C1] Connection Opened: dir=out"),
                Some(why) => {
                    let status = ["CONNECTING", "SUCCESS", "FAILED"][self.attempts % 3];
                    self.core.set_connector(name, status, &format!("[C{}] {why}", self.attempts));
                }
            }
        }
        let links: Vec<(u64, Bound)> = self.core.auto_links().map(|(id, link)| (id, link.bound.clone())).collect();
        for (identity, bound) in links {
            let connected = matches!(&bound, Bound::Connection(name) if connectors.contains(name));
            let (since, fails) = *self.links.entry(identity).or_insert((Instant::now(), false));
            let status = if !connected || self.brokers_down.is_some() {
                OperStatus::Inactive
            } else if since.elapsed() < ATTACH {
                OperStatus::Attaching
            } else if fails {
                OperStatus::Failed
            } else {
                OperStatus::Active
            };
            self.core.set_auto_link(identity, status, Some("no such queue"));
        }
    }

    /// The links that are there from now on fail, or are active.
    pub fn all_links(&mut self, fail: bool) {
        for (_, fails) in self.links.values_mut() {
            *fails = fail;
        }
    }
}

fn plain(value: SimpleValue) -> Value {
    match value {
        SimpleValue::String(text) => Value::String(text),
        SimpleValue::Int(number) => Value::Int(number),
        other => panic!("{other:?}"),
    }
}

impl RouterLink for MemoryRouter {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>> {
        async move {
            let hung = {
                let mut state = self.state();
                state.connects += 1;
                if let Some(reason) = state.down {
                    return Err(LinkError { category: "unreachable", message: reason.to_owned() });
                }
                state.hung
            };
            if hung {
                pending::<()>().await;
            }
            let mut state = self.state();
            state.sessions += 1;
            let request = router_core::Request { operation: "GET-ATTRIBUTES".into(), ..Default::default() };
            let attributes = match state.core.call(&request).unwrap().body {
                Value::Map(attributes) => attributes,
                other => panic!("{other:?}"),
            };
            let (prefix, abilities) = qpid::understand(&attributes).unwrap();
            assert_eq!(prefix, state.flavour.prefix());
            let ended = state.ended.subscribe();
            Ok(Box::new(MemorySession { router: self.clone(), abilities, ended }) as Box<dyn RouterSession>)
        }
        .boxed()
    }
}

struct MemorySession {
    router: MemoryRouter,
    abilities: Abilities,
    ended: watch::Receiver<u32>,
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.router.state().sessions -= 1;
    }
}

impl RouterSession for MemorySession {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn call(&self, request: Request) -> BoxFuture<'static, Result<Answer, CallError>> {
        let mut state = self.router.state();
        state.requests.push(request.clone());
        if state.hung {
            return pending().boxed();
        }
        let answer = state.carry_out(&request);
        if state.unanswered == Some(request.label()) {
            return pending().boxed();
        }
        let slow = state.slow.get(request.label()).copied();
        let counts = request.label() != "QUERY";
        let page = usize::from(!counts && request.of == Type::Address);
        state.pages += page;
        state.most_pages = state.most_pages.max(state.pages);
        state.open += usize::from(counts);
        state.most_open = state.most_open.max(state.open);
        let router = self.router.clone();
        async move {
            if let Some(slow) = slow {
                sleep(slow).await;
            }
            router.state().open -= usize::from(counts);
            router.state().pages -= page;
            answer
        }
        .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, String> {
        let mut ended = self.ended.clone();
        async move {
            let _ = ended.changed().await;
            "cut".to_owned()
        }
        .boxed()
    }
}
