//! What is created: the same for every subject and every run.

use serde_json::{Value, json};

/// The RouterConfig and its namespace.
pub(super) const CONFIG: (&str, &str) = ("bench", "plane");
const SEED: u64 = 0x5741_5953;
const SPACES: usize = 200;

/// One AddressSpace, alone in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub namespace: String,
    pub name: String,
}

/// One Address, not necessarily created yet.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub namespace: String,
    pub name: String,
    pub spec: Value,
    /// A broker holds something for it.
    pub stored: bool,
}

/// All that a run begins with.
#[derive(Debug, Clone)]
pub(super) struct DataSet {
    pub spaces: Vec<Space>,
    pub addresses: Vec<Planned>,
}

/// Numbers that are the same in every run (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub fn seeded() -> Self {
        Self(SEED)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The remainder is small enough for usize anywhere.
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// What the data are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// AddressSpaces, each in a namespace of its own.
    pub spaces: usize,
    /// Of type standard: routers stand before the broker, which holds queues only.
    pub standard: bool,
    /// There is a broker: else all addresses are anycast.
    pub broker: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { spaces: SPACES, standard: false, broker: true }
    }
}

/// Above this many addresses, one in twenty is a queue; else every second.
const MANY: usize = 10_000;

/// `size` addresses, half of them queues and half anycast (of more than 10,000, one in twenty a queue), each space in a
/// namespace of its own; fewer spaces where that were less than five addresses a space.
pub(super) fn plan(size: usize, shape: Shape) -> DataSet {
    let count = (size / 5).clamp(1, shape.spaces);
    let spaces: Vec<Space> =
        (0..count).map(|i| Space { namespace: format!("bench-{i:03}"), name: "orders".to_owned() }).collect();
    let mut numbers = Numbers::seeded();
    let addresses = (0..size)
        .map(|i| {
            let turn = if size > MANY { usize::from(i % 20 != 0) } else { i / count + i % count };
            address(&spaces[i % count], &format!("a-{i:06}"), turn, &mut numbers, shape)
        })
        .collect();
    DataSet { spaces, addresses }
}

/// An address of a space: a queue where `turn` is even, else anycast. A quarter of the queues have settings.
pub(super) fn address(space: &Space, name: &str, turn: usize, numbers: &mut Numbers, shape: Shape) -> Planned {
    let mut spec = json!({ "addressSpace": space.name, "address": format!("eu.{name}"), "type": "anycast" });
    let queue = turn.is_multiple_of(2) && shape.broker;
    if queue {
        spec["type"] = json!("queue");
        if numbers.below(4) == 0 {
            spec["messageTtl"] = json!({ "maximum": format!("{}h", 1 + numbers.below(48)) });
            spec["redelivery"] = json!({ "maxAttempts": 3 + numbers.below(5), "delay": "200ms" });
        }
    }
    let stored = queue || !shape.standard;
    Planned { namespace: space.namespace.clone(), name: name.to_owned(), spec, stored }
}

impl Planned {
    /// Its key.
    pub fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }

    pub fn is_queue(&self) -> bool {
        self.spec["type"] == "queue"
    }

    /// The status that makes it Ready, as the operator writes it.
    pub fn status(&self) -> Value {
        let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str, reason: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": "",
                "observedGeneration": 1, "lastTransitionTime": now,
            })
        };
        let mut status = json!({
            "conditions": [condition("Accepted", "Accepted"), condition("Ready", "Configured")],
            "observedGeneration": 1,
            "address": self.spec["address"],
        });
        if self.stored {
            status["brokers"] = json!([{ "name": "broker", "state": "Active" }]);
        }
        for field in ["messageTtl", "redelivery"] {
            if !self.spec[field].is_null() {
                status[field] = self.spec[field].clone();
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_are_queues_and_every_run_has_the_same() {
        let usual = Shape::default();
        let (one, other) = (plan(1000, usual), plan(1000, usual));
        let queues = one.addresses.iter().filter(|address| address.is_queue()).count();
        assert_eq!((queues, one.spaces.len()), (500, 200));
        assert!(one.addresses.iter().zip(&other.addresses).all(|(a, b)| a.spec == b.spec && a.key() == b.key()));
        let queues = |size, shape| plan(size, shape).addresses.iter().filter(|address| address.is_queue()).count();
        assert_eq!(queues(10_000, usual), 5_000);
        assert_eq!(queues(100_000, usual), 5_000);
        assert_eq!(queues(1_000, Shape { standard: true, broker: false, ..usual }), 0);
    }

    #[test]
    fn of_a_standard_space_a_broker_holds_the_queues_only() {
        let data = plan(100, Shape { standard: true, ..Shape::default() });
        assert!(data.addresses.iter().all(|address| address.stored == address.is_queue()));
        assert!(plan(100, Shape::default()).addresses.iter().all(|address| address.stored));
    }
}
