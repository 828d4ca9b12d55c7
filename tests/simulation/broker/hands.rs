//! What people do to brokers.

use serde_json::json;
use tokio::time::Instant;
use waystation_kit::artemis_core::Routing;

use super::{Broker, millis};
use crate::plan::Action;
use crate::run::{Story, host};
use crate::world::World;

impl Broker {
    /// Refuses nothing any more; whether it did.
    pub fn relent_all(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        for name in &refused {
            self.core.relent(name);
        }
        !refused.is_empty()
    }
}

/// Whatever brokers refuse, they take now; what others put in the way goes. Whether there was anything.
pub fn make_up(world: &mut World) -> bool {
    let mut had = false;
    for broker in world.brokers.values_mut() {
        had |= broker.relent_all();
        had |= std::mem::take(&mut broker.denies);
        for name in broker.squatted.keys().cloned().collect::<Vec<_>>() {
            had |= unsquat(broker, &name);
        }
    }
    for router in world.routers.values_mut() {
        had |= router.make_up();
    }
    had
}

/// A client that receives from a multicast address has a queue of its own there, for as long as it is connected.
fn attach(broker: &mut Broker, address: &str) {
    let multicast = |(name, types): (&str, Vec<Routing>)| name == address && types.contains(&Routing::Multicast);
    if broker.core.addresses().any(multicast) {
        let queue = json!({
            "name": format!("client of {address}"), "address": address, "routing-type": "MULTICAST", "durable": false,
            "user": "client", "auto-create-address": false,
        });
        let _ = broker.core.call("broker", "createQueue", &json!([queue.to_string(), false]));
    }
}

fn squat(broker: &mut Broker, name: &str) {
    let there = broker.core.addresses().any(|(address, _)| address == name);
    let queue = json!({
        "name": name, "address": name, "routing-type": "ANYCAST", "user": "somebody", "auto-create-address": true,
    });
    if broker.core.call("broker", "createQueue", &json!([queue.to_string(), false])).is_ok() {
        broker.squatted.insert(name.to_owned(), !there);
    }
}

/// The queue goes, and the address where that was made for it.
fn unsquat(broker: &mut Broker, name: &str) -> bool {
    let Some(made_address) = broker.squatted.remove(name) else { return false };
    if broker.core.queue(name).is_some_and(|queue| queue.user == "somebody") {
        let _ = broker.core.call("broker", "destroyQueue", &json!([name, true, made_address]));
        broker.notify();
    }
    true
}

/// Every action on brokers that is over at once.
pub fn act(story: &mut Story, world: &mut World, action: &Action) {
    let now = world.now_us();
    world.outages |= matches!(action, Action::BrokerHang { .. } | Action::BreakConnections(_));
    match action {
        Action::Send(space, address, count) => {
            let address = world.prefix(*space) + address;
            let ways = world.ways_into(*space, &address);
            let led = |host: &String| ways.as_ref().is_none_or(|ways| ways.contains(host));
            for (_, broker) in world.brokers.iter_mut().filter(|(host, broker)| broker.up && led(host)) {
                let bound = broker.core.queues().filter(|(_, queue)| queue.address == address);
                let bound: Vec<(String, u64)> = bound.map(|(name, queue)| (name.to_owned(), queue.messages)).collect();
                for (queue, messages) in bound {
                    broker.core.set_messages(&queue, messages + count);
                    broker.arrived.insert(queue, now);
                }
            }
        }
        Action::Drain(space, address) => {
            let address = world.prefix(*space) + address;
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                let bound = broker.core.queues().filter(|(_, queue)| queue.address == address);
                let bound: Vec<String> = bound.map(|(name, _)| name.to_owned()).collect();
                for queue in bound {
                    broker.core.set_messages(&queue, 0);
                }
            }
        }
        Action::RemoveQueue(space, address) => {
            let queue = world.prefix(*space) + address;
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                let _ = broker.core.call("broker", "destroyQueue", &json!([queue, true, false]));
                broker.notify();
            }
        }
        Action::Refuse(space, address) => {
            story.refusals = true;
            let name = world.prefix(*space) + address;
            for broker in world.brokers.values_mut() {
                broker.core.refuse(&name, "AMQ229999: not today");
                broker.refused.insert(name.clone());
            }
        }
        Action::Relent(space, address) => {
            let name = world.prefix(*space) + address;
            for broker in world.brokers.values_mut() {
                broker.core.relent(&name);
                broker.refused.remove(&name);
            }
        }
        Action::Squat(space, address) => {
            story.refusals = true;
            let name = world.prefix(*space) + address;
            world.excused.insert(name.clone());
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                squat(broker, &name);
            }
        }
        Action::Unsquat(space, address) => {
            let name = world.prefix(*space) + address;
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                unsquat(broker, &name);
            }
        }
        Action::Attach(space, address) => {
            let name = world.prefix(*space) + address;
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                attach(broker, &name);
            }
        }
        Action::Detach(space, address) => {
            let name = world.prefix(*space) + address;
            for broker in world.brokers.values_mut().filter(|broker| broker.up) {
                let _ = broker.core.call("broker", "destroyQueue", &json!([format!("client of {name}"), true, false]));
                broker.notify();
            }
        }
        Action::Deny(broker) => {
            story.refusals = true;
            if let Some(broker) = world.brokers.get_mut(&host(*broker)) {
                broker.denies = true;
            }
        }
        Action::BrokerHang { broker, ms } => {
            if let Some(broker) = world.brokers.get_mut(&host(*broker)) {
                broker.hangs_until = Instant::now() + millis(*ms);
            }
        }
        Action::BreakConnections(broker) => {
            if let Some(broker) = world.brokers.get_mut(&host(*broker)) {
                broker.lose_all("the connection was reset");
            }
        }
        other => crate::router::hands::act(story, world, other),
    }
}
