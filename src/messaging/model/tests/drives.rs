//! The drives of the test world: they connect, read, and carry out what they are given.

use super::peer::Broker;
use super::world::World;
use crate::messaging::broker::Outcome;
use crate::messaging::ids::{Plane, TargetId};
use crate::messaging::input::{Input, Link};
use crate::messaging::output::TargetChange;

impl World {
    /// The broker stops; with `empty` it comes back without anything.
    pub fn broker_down(&mut self, broker: &str, empty: bool) {
        let id = self.id(broker);
        let b = self.broker(broker);
        b.up = false;
        if empty {
            (b.queues, b.addresses, b.settings, b.marks) = Default::default();
        }
        let incarnation = b.incarnation;
        if self.live.remove(&id) {
            self.input(Input::Target(id, incarnation, Link::Down("connection refused".into())));
        }
    }

    pub fn broker_up(&mut self, broker: &str) {
        let id = self.id(broker);
        self.broker(broker).up = true;
        self.connect(&id);
    }

    fn connect(&mut self, id: &TargetId) {
        let Some(broker) = self.brokers.get_mut(id) else { return };
        let (up, incarnation, contents) = (broker.up, broker.incarnation, broker.contents());
        let node = broker.node.clone();
        if incarnation == 0 {
            return;
        }
        if up {
            self.live.insert(id.clone());
            let node = node.unwrap_or_else(|| format!("{id:?}").into());
            self.input(Input::Target(id.clone(), incarnation, Link::Connected(Some(node))));
            self.input(Input::Target(id.clone(), incarnation, Link::Reading));
            self.input(Input::Target(id.clone(), incarnation, Link::Contents(contents)));
        } else {
            self.input(Input::Target(id.clone(), incarnation, Link::Down("connection refused".into())));
        }
    }

    pub fn target(&mut self, change: TargetChange) {
        let plane = match &change {
            TargetChange::Start { .. } => Plane::Broker,
            TargetChange::StartRouter { .. } => Plane::Router,
            TargetChange::Reconnect { target, .. }
            | TargetChange::Reread { target, .. }
            | TargetChange::Stop { target, .. } => target.plane,
        };
        if plane == Plane::Router {
            return self.router_change(change);
        }
        match change {
            TargetChange::StartRouter { .. } => {}
            TargetChange::Start { target, incarnation, .. } => {
                let broker = self.brokers.entry(target.clone()).or_default();
                broker.incarnation = incarnation;
                broker.waiting.clear();
                self.connect(&target);
            }
            TargetChange::Reconnect { target, incarnation, .. } => {
                self.input(Input::Target(target.clone(), incarnation, Link::Down("reconnecting".into())));
                self.connect(&target);
            }
            TargetChange::Reread { target, incarnation } => {
                let contents = self.brokers.get(&target).map(Broker::contents).unwrap_or_default();
                self.input(Input::Target(target.clone(), incarnation, Link::Reading));
                self.input(Input::Target(target, incarnation, Link::Contents(contents)));
            }
            TargetChange::Stop { target, .. } => {
                self.live.remove(&target);
                if let Some(broker) = self.brokers.get_mut(&target) {
                    broker.incarnation = 0;
                    broker.waiting.clear();
                }
            }
        }
    }

    pub fn work(&mut self) -> bool {
        let mut outcomes = Vec::new();
        for (id, broker) in &mut self.brokers {
            if !self.live.contains(id) || broker.slow {
                continue;
            }
            // The newest of a slot wins.
            let jobs = std::mem::take(&mut broker.waiting);
            for (i, job) in jobs.iter().enumerate() {
                if jobs[i + 1..].iter().any(|later| later.slot == job.slot) {
                    continue;
                }
                let result = broker.carry(job);
                let outcome = Outcome { slot: job.slot.clone(), generation: job.generation, result };
                outcomes.push((id.clone(), broker.incarnation, outcome));
            }
        }
        let worked = !outcomes.is_empty();
        for (id, incarnation, outcome) in outcomes {
            self.input(Input::Target(id, incarnation, Link::Outcome(outcome)));
        }
        worked
    }
}
