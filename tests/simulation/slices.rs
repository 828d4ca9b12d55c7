//! Routers that are the endpoints of a Service.

use serde_json::{Value, json};

use crate::api::store::{Id, Plural};
use crate::people::CONFIGS;
use crate::router::{router_host, router_name};
use crate::run::text;
use crate::world::World;

/// The Service of the routers.
pub const SERVICE: &str = "routers";

fn id(half: usize) -> Id {
    Id::new(Plural::EndpointSlices, CONFIGS[0].0, &format!("{SERVICE}-{half}"))
}

/// What a RouterConfig says of them.
pub fn reference() -> Value {
    json!({ "serviceRef": { "name": SERVICE, "port": "amqp" } })
}

/// So many routers are endpoints: half of them in each of two slices, half of them ready.
pub fn put(world: &mut World, count: usize) {
    for half in 0..2 {
        let endpoint = |index: usize| {
            json!({
                "addresses": [router_host(index)], "conditions": { "ready": index.is_multiple_of(3) },
                "targetRef": { "kind": "Pod", "name": router_name(index) },
            })
        };
        let endpoints: Vec<Value> = (0..count).filter(|index| index % 2 == half).map(endpoint).collect();
        let labels = json!({ "kubernetes.io/service-name": SERVICE });
        let slice = json!({
            "metadata": { "labels": labels }, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "amqp", "port": 5672, "protocol": "TCP" }],
        });
        let id = id(half);
        if !world.create(&id, &slice) {
            world.change(&id, |there| there["endpoints"] = slice["endpoints"].clone());
        }
    }
}

/// The routers of a RouterConfig: name and place.
pub fn routers_of<'a>(world: &'a World, config: &'a Value) -> Vec<(&'a str, &'a str)> {
    let external = &config["spec"]["messaging"]["routers"]["external"];
    if let Some(hosts) = external["hosts"].as_array() {
        return hosts.iter().map(|host| (text(&host["name"]), text(&host["host"]))).collect();
    }
    let slices = (0..2).filter_map(|half| world.api.get(&id(half)));
    let endpoints = slices.filter_map(|slice| slice["endpoints"].as_array()).flatten();
    endpoints.map(|endpoint| (text(&endpoint["targetRef"]["name"]), text(&endpoint["addresses"][0]))).collect()
}
