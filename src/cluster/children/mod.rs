//! Services that lead from a space's namespace to its routers, with their EndpointSlices: made, kept and taken away as the
//! model wishes.
//!
//! A child belongs to its space by ownership, and goes with it. Only our fields are applied, and only what differs is;
//! a child that is changed or deleted by hand is applied again. What belongs to somebody else is never touched, and its
//! name is told. Nothing is sent without the permit.
//!
//! The watches begin with the first wish: who has no endpoints pays nothing.

mod build;
mod carry;
mod state;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use kube::api::{Api, DynamicObject};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::meter::Meter;
use super::watch::{Options, Seen, Watch};
use crate::engine::jitter::{Jitter, doubling};
use crate::engine::loops::pass_on;
use crate::engine::permit::Permit;
use crate::engine::stop::Stop;
use crate::messaging::exposure::Exposure;
use crate::messaging::ids::Key;
use crate::messaging::input::Input;
use build::{ChildId, ChildKind, SPACE_LABEL, observe};
use carry::{Carrier, Outcome};
use state::State;

/// Spaces that are worked on together.
const CONCURRENCY: usize = 4;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What the model wants.
#[derive(Debug)]
pub enum Command {
    /// A space shall have exactly these.
    Have(Exposure),
    /// A space is gone; what it had goes by itself.
    Forget(Key),
    /// Another process leads: nothing is wished any more.
    Resign,
}

/// Makes and keeps children.
pub struct Children {
    /// For watches.
    pub client: Client,
    /// For everything else.
    pub write_client: Client,
    /// Whether anything may be sent.
    pub permit: Permit,
    /// What is wished.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// Where it is told how far it is.
    pub inputs: mpsc::Sender<Input>,
    /// Bounds of watches.
    pub options: Options,
    /// For a call; none is sent while the permit lasts less.
    pub deadline: Duration,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
    /// Begin nothing more; end when what is under way is answered.
    pub stop: Stop,
}

type Event = (ChildKind, Seen<DynamicObject>);

impl Children {
    /// Runs until stopped, or until nobody takes what it tells.
    pub async fn run(mut self) {
        let carrier =
            Carrier { client: self.write_client.clone(), permit: self.permit.clone(), deadline: self.deadline };
        let carrier = &carrier;
        let mut state = State::default();
        let mut watches = JoinSet::new();
        let (tell, mut told) = mpsc::channel::<Event>(64);
        let mut working: FuturesUnordered<BoxFuture<'_, (Key, Outcome)>> = FuturesUnordered::new();
        let mut waiting: FuturesUnordered<BoxFuture<'_, Key>> = FuturesUnordered::new();
        loop {
            let stopping = self.stop.is_requested();
            if stopping && (working.is_empty() || !self.permit.allows(self.deadline)) {
                return;
            }
            while !stopping && working.len() < CONCURRENCY {
                let Some((space, plan)) = state.next() else { break };
                working.push(carrier.carry_out(plan).map(|outcome| (space, outcome)).boxed());
            }
            for (space, uid, report) in state.reports() {
                if self.inputs.send(Input::Exposed(space, uid, report)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                biased;
                () = self.stop.requested(), if !stopping => {}
                Some((space, outcome)) = working.next(), if !working.is_empty() => {
                    if let Some(attempts) = state.finished(&space, outcome) {
                        let wait = self.jitter.spread(doubling(FIRST_WAIT, LONGEST_WAIT, attempts));
                        waiting.push(async move { sleep(wait).await; space }.boxed());
                    }
                }
                Some(space) = waiting.next(), if !waiting.is_empty() => state.again(&space),
                command = self.commands.recv() => match command {
                    Some(Command::Have(exposure)) => {
                        if watches.is_empty() {
                            for kind in ChildKind::ALL {
                                watches.spawn(self.watch(kind, tell.clone()));
                            }
                        }
                        state.wish(exposure);
                    }
                    Some(Command::Forget(space)) => state.forget(&space),
                    Some(Command::Resign) => {
                        // What is under way may be carried out: who leads now wishes the same.
                        working.clear();
                        waiting.clear();
                        state.resign();
                    }
                    None => return,
                },
                Some((kind, event)) = told.recv() => match event {
                    Seen::Applied { object, .. } => {
                        let id = ChildId { key: super::convert::key(&object.metadata), kind };
                        state.observed(id, observe(kind, &object));
                    }
                    Seen::Deleted(key) => state.gone(&ChildId { key, kind }),
                    Seen::Complete => state.synced(kind),
                },
                Some(ended) = watches.join_next() => {
                    pass_on(ended);
                    return;
                }
            }
        }
    }

    fn watch(&self, kind: ChildKind, tell: mpsc::Sender<Event>) -> impl Future<Output = ()> + Send + use<> {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind.resource());
        let (options, jitter, meter) = (self.options.clone(), self.jitter.fork(), Arc::clone(&self.meter));
        let mut watch = Watch::new(api, kind.as_str(), options, jitter, meter).labels(SPACE_LABEL.to_owned());
        async move {
            loop {
                let event = watch.next().await;
                if tell.send((kind, event)).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
