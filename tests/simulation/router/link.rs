//! Sessions with routers: requests on their way, answers on theirs, and what gets lost between.

use std::collections::VecDeque;
use std::sync::Arc;

use fe2o3_amqp::types::primitives::SimpleValue;
use futures::future::{BoxFuture, FutureExt, pending};
use serde_amqp::Value as Amqp;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use waystation::cluster::secrets::SecretData;
use waystation::drive::amqp::{Endpoint, Reply};
use waystation::drive::router::link::{
    Answer, CallError, LinkError, Operation, Request, RouterLink, RouterSession, Type,
};
use waystation::drive::router::qpid;
use waystation::messaging::router::Abilities;
use waystation::operator::links::NamedSecret;
use waystation::operator::router_links::RouterLinks;
use waystation_kit::router_core;

use super::PREFIX;
use crate::lies::Lie;
use crate::world::{Shared, World, lock};

type Answered = Result<Answer, CallError>;

/// The two parts of a router that answer: each in the order in which it was asked.
const LANES: usize = 2;

/// One connection, as the router sees it.
pub struct Session {
    waiting: [VecDeque<(Instant, Request, oneshot::Sender<Answered>)>; LANES],
    lost: Option<String>,
    /// Answers that never come: whoever waits for one must not see that it is forgotten.
    unsaid: Vec<oneshot::Sender<Answered>>,
    /// It is the first one since the router started.
    first: bool,
    work: Arc<Notify>,
}

impl Session {
    pub fn lose(&mut self, reason: &str) {
        if self.lost.is_none() {
            self.lost = Some(reason.to_owned());
            self.unsaid.clear();
            self.work.notify_waiters();
        }
    }
}

/// One replica's way to all routers.
pub struct SimRouterLinks {
    pub world: Shared,
    pub identity: Arc<str>,
}

impl RouterLinks for SimRouterLinks {
    fn link(&self, at: Endpoint, _: Option<NamedSecret>, login: Option<NamedSecret>) -> Arc<dyn RouterLink> {
        Arc::new(SimLink {
            way: Way { world: Shared::clone(&self.world), identity: Arc::clone(&self.identity), host: at.host },
            login: login.map(|secret| secret.data),
        })
    }
}

#[derive(Clone)]
struct Way {
    world: Shared,
    identity: Arc<str>,
    host: String,
}

struct SimLink {
    way: Way,
    login: Option<Option<Arc<SecretData>>>,
}

fn refused(message: &str) -> LinkError {
    LinkError { category: "unreachable", message: message.to_owned() }
}

impl RouterLink for SimLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>> {
        async move {
            let Way { world, identity, host } = &self.way;
            let (wait, hangs) = {
                let mut world = lock(world);
                world.note_sender(identity, None);
                let bad = world.faults.router;
                let hangs = bad > 0 && world.random.chance(bad / 2);
                (world.broker_latency(), hangs)
            };
            sleep(wait).await;
            if hangs {
                return pending().await;
            }
            loop {
                let hung = lock(world).routers.get(host).map(|router| router.hangs_until);
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

impl SimLink {
    fn accept(&self) -> Result<Box<dyn RouterSession>, LinkError> {
        let Way { world, identity, host } = &self.way;
        let mut world = lock(world);
        let bad = world.faults.router;
        let unlucky = bad > 0 && world.random.chance(bad);
        let password = match &self.login {
            Some(Some(data)) => data.get("password").map(|value| String::from_utf8_lossy(value).into_owned()),
            _ => None,
        };
        world.sessions += 1;
        let id = world.sessions;
        world.note(&format!("{identity} connects to {host}"));
        let Some(router) = world.routers.get_mut(host) else { return Err(refused("no such host")) };
        if !router.up || unlucky {
            return Err(refused("connection refused"));
        }
        if !router.passwords.is_empty() && password.is_none_or(|password| !router.passwords.contains(&password)) {
            return Err(LinkError { category: "login", message: "login refused".to_owned() });
        }
        let ask = router_core::Request { operation: "GET-ATTRIBUTES".to_owned(), ..router_core::Request::default() };
        let Some(Amqp::Map(attributes)) = router.core.call(&ask).map(|answer| answer.body) else {
            return Err(refused("no schema"));
        };
        let Some((_, mut abilities)) = qpid::understand(&attributes) else { return Err(refused("not a router")) };
        abilities.policies = router.enforces;
        let first = !std::mem::replace(&mut router.was_connected, true);
        let session =
            Session { waiting: Default::default(), lost: None, unsaid: Vec::new(), first, work: Arc::default() };
        let work = Arc::clone(&session.work);
        router.sessions.insert(id, session);
        for lane in 0..LANES {
            let serving = Serving { way: self.way.clone(), id, lane, work: Arc::clone(&work) };
            tokio::spawn(serving.run());
        }
        Ok(Box::new(SimSession { way: self.way.clone(), id, abilities, work }))
    }
}

struct SimSession {
    way: Way,
    id: u64,
    abilities: Abilities,
    work: Arc<Notify>,
}

impl RouterSession for SimSession {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn peer(&self) -> Option<std::net::IpAddr> {
        self.way.host.parse().ok()
    }

    fn call(&self, mut request: Request) -> BoxFuture<'static, Answered> {
        let (mut teller, told) = oneshot::channel();
        let Way { world, identity, host } = &self.way;
        {
            let mut world = lock(world);
            world.note_sender(identity, None);
            world.falsify(&mut request);
            let mut arrives = Instant::now() + world.broker_latency();
            let lane = usize::from(request.of.is_shown_whole());
            let core_change = lane == 0 && mutates(&request);
            let eager = world.lies(Lie::EagerListener) && core_change;
            if eager || (world.lies(Lie::EarlyRoute) && core_change) {
                // Said to be done; what the router says of it, or that the connection breaks, comes too late.
                let early = std::mem::replace(&mut teller, oneshot::channel().0);
                let _ = early.send(Ok(Answer::Done));
            }
            if eager {
                arrives += std::time::Duration::from_millis(500);
            }
            let swallowed = world.swallows(host, self.id, &request);
            let session = world.routers.get_mut(host).and_then(|router| router.sessions.get_mut(&self.id));
            match session {
                Some(session) if session.lost.is_none() && swallowed => drop(teller.send(Ok(Answer::Done))),
                Some(session) if session.lost.is_none() => {
                    let after = session.waiting[lane].back().map_or(arrives, |(before, ..)| arrives.max(*before));
                    session.waiting[lane].push_back((after, request, teller));
                }
                // Dropping the teller says that the connection is lost.
                _ => drop(teller),
            }
        }
        self.work.notify_waiters();
        async move { told.await.unwrap_or_else(|_| Err(CallError::Lost("the connection was reset".to_owned()))) }
            .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, String> {
        let (world, host) = (&self.way.world, &self.way.host);
        async move {
            loop {
                let work = self.work.notified();
                let lost = match lock(world).routers.get(host).and_then(|router| router.sessions.get(&self.id)) {
                    Some(session) => session.lost.clone(),
                    None => Some("the connection is closed".to_owned()),
                };
                match lost {
                    Some(reason) => return reason,
                    None => work.await,
                }
            }
        }
        .boxed()
    }
}

impl World {
    /// Whether a planted bug keeps this request to itself.
    fn swallows(&self, host: &str, session: u64, request: &Request) -> bool {
        let again = self.routers.get(host).and_then(|r| r.sessions.get(&session)).is_some_and(|s| !s.first);
        let link = request.of == Type::AutoLink && matches!(request.operation, Operation::Create(..));
        if let (Type::AutoLink, Operation::Delete(name)) = (request.of, &request.operation)
            && self.lies(Lie::OpenWay)
        {
            let stays = |slot: &str| {
                let mut addresses = self.api.all(crate::api::store::Plural::Addresses);
                addresses.any(|(_, a)| !crate::api::store::deleting(a) && self.slot(a) == slot)
            };
            let links = self.routers.get(host).into_iter().flat_map(|router| router.core.auto_links());
            return links.filter(|(_, link)| link.name.as_ref() == Some(name)).any(|(_, link)| stays(&link.address));
        }
        if self.swallows_remote(host, request, again) {
            return true;
        }
        let removal = !request.of.is_shown_whole() && matches!(request.operation, Operation::Delete(_));
        again && ((link && self.lies(Lie::ForgottenLinks)) || (removal && self.lies(Lie::SkippedRemoval)))
    }
}

impl Drop for SimSession {
    fn drop(&mut self) {
        let Way { world, identity, host } = &self.way;
        // What was sent may have arrived or not.
        let mut world = lock(world);
        for lane in 0..LANES {
            let session = world.routers.get(host).and_then(|router| router.sessions.get(&self.id));
            let sent = session.map_or(0, |session| session.waiting[lane].len());
            let arrived = if sent == 0 { 0 } else { world.random.within(0..sent as u64 + 1) };
            for _ in 0..arrived {
                let next = world.routers.get_mut(host).and_then(|router| {
                    let up = router.up;
                    let session = router.sessions.get_mut(&self.id)?;
                    session.waiting[lane].pop_front().filter(|_| up && session.lost.is_none())
                });
                if let Some((_, request, _)) = next {
                    let _ = carry_out(&mut world, identity, host, &request);
                }
            }
        }
        if let Some(router) = world.routers.get_mut(host) {
            router.sessions.remove(&self.id);
        }
        drop(world);
        self.work.notify_waiters();
    }
}

/// One part of the router at work for one connection.
struct Serving {
    way: Way,
    id: u64,
    lane: usize,
    work: Arc<Notify>,
}

enum Turn {
    Wait(Option<Instant>),
    Took(Request, oneshot::Sender<Answered>),
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
                        () = work => {}
                    }
                }
                Turn::Took(request, teller) => self.serve(&request, teller),
            }
        }
    }

    fn turn(&self) -> Turn {
        let mut world = lock(&self.way.world);
        let Some(router) = world.routers.get_mut(&self.way.host) else { return Turn::Ended };
        let (hangs, delay) = (router.hangs_until, router.delay());
        let Some(session) = router.sessions.get_mut(&self.id) else { return Turn::Ended };
        let waiting = &mut session.waiting[self.lane];
        if session.lost.is_some() {
            // Whoever waits is told by the loss of the teller.
            waiting.clear();
            return Turn::Ended;
        }
        let Some((arrives, ..)) = waiting.front() else { return Turn::Wait(None) };
        let due = (*arrives + delay).max(hangs);
        if due > Instant::now() {
            return Turn::Wait(Some(due));
        }
        match waiting.pop_front() {
            Some((_, request, teller)) => Turn::Took(request, teller),
            None => Turn::Wait(None),
        }
    }

    fn serve(&self, request: &Request, teller: oneshot::Sender<Answered>) {
        let Way { world, identity, host } = &self.way;
        let mut world = lock(world);
        let bad = world.faults.router;
        let lost = bad > 0 && world.random.chance(bad / 4);
        let before = lost && world.random.chance(300);
        let unsaid = lost && world.random.chance(300);
        if !before {
            let answer = carry_out(&mut world, identity, host, request);
            if !lost {
                let _ = teller.send(answer);
                return;
            }
        }
        if !lost {
            return;
        }
        if unsaid {
            world.note(&format!("{host} never answers {request:?}"));
            // Until the deadline of a question, which is the longest, has passed.
            world.trouble(75);
        } else {
            world.note(&format!("{identity} loses its connection to {host}"));
        }
        let session = world.routers.get_mut(host).and_then(|router| router.sessions.get_mut(&self.id));
        match session {
            Some(session) if unsaid => session.unsaid.push(teller),
            Some(session) => session.lose("the connection was reset"),
            None => {}
        }
    }
}

fn mutates(request: &Request) -> bool {
    matches!(request.operation, Operation::Create(..) | Operation::Delete(_))
}

fn plain(value: SimpleValue) -> Amqp {
    match value {
        SimpleValue::String(text) => Amqp::String(text),
        SimpleValue::Int(number) => Amqp::Int(number),
        other => panic!("{other:?}"),
    }
}

fn carry_out(world: &mut World, identity: &str, host: &str, request: &Request) -> Answered {
    let World { routers, brokers, remotes, stage, .. } = world;
    let Some(router) = routers.get_mut(host) else { return Err(CallError::Lost("gone".to_owned())) };
    router.live(brokers, &remotes.hosts, &mut stage.random);
    let sent = qpid::encode(request.clone(), PREFIX);
    let properties = sent.properties.into_iter().map(|(key, value)| (key, plain(value)));
    let answer = router.core.call(&router_core::Request::new(properties, sent.body));
    router.follow();
    let Some(answer) = answer else { return Err(CallError::TimedOut) };
    let properties = [
        ("statusCode".to_owned(), SimpleValue::Int(answer.status)),
        ("statusDescription".to_owned(), SimpleValue::String(answer.description)),
    ];
    let reply = Reply { properties: properties.into_iter().collect(), body: answer.body };
    let answered = qpid::decode(&request.operation, reply);
    if mutates(request) {
        let outcome = answered.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
        world.note(&format!("{identity} {host} {request:?} -> {outcome}"));
        if answered.is_ok() {
            world.router_commands += 1;
            world.acted();
            world.judge_routing(host, request);
        }
    }
    answered
}
