//! What an Address asks of a broker, from the API's JSON alone.

use serde_json::{Map, Value};

use crate::api::store::deleting;
use crate::check::{Object, Scene, canonical, is_true, name_of};
use crate::run::text;

/// What one Address asks for.
pub struct Wanted {
    pub address: String,
    pub routing: &'static str,
    /// Durable, and consumers at a time.
    pub queue: Option<(bool, i32)>,
    /// Those that differ from a broker's own.
    pub settings: Option<Map<String, Value>>,
}

impl Wanted {
    /// What this Address asks for under this name.
    pub fn of(address: &Value, slot: &str, scene: &Scene<'_>) -> Self {
        let spec = &address["spec"];
        let kind = text(&spec["type"]);
        let (routing, queue) = match kind {
            "anycast" => ("ANYCAST", Some((false, -1))),
            "queue" | "deadLetter" => ("ANYCAST", Some((true, -1))),
            "subscription" => {
                // Every router takes what is forwarded.
                let forwards = spec["forwarders"].as_array().is_some_and(|all| !all.is_empty());
                let asked = spec["subscription"]["maxConsumers"].as_i64().unwrap_or(1);
                let consumers = if forwards { -1 } else { asked };
                ("MULTICAST", Some((true, i32::try_from(consumers).unwrap())))
            }
            _ => ("MULTICAST", None),
        };
        if kind == "subscription" {
            return Self { address: scene.really(address, text(&spec["topic"])), routing, queue, settings: None };
        }
        Self { address: slot.to_owned(), routing, queue, settings: Some(settings(address, scene)) }
    }
}

fn settings(address: &Value, scene: &Scene<'_>) -> Map<String, Value> {
    let (spec, kind) = (&address["spec"], text(&address["spec"]["type"]));
    let mut settings = Map::new();
    for key in ["Queues", "Addresses"] {
        settings.insert(format!("autoCreate{key}"), false.into());
        settings.insert(format!("autoDelete{key}"), false.into());
    }
    for key in ["autoCreateDeadLetterResources", "autoCreateExpiryResources"] {
        settings.insert(key.to_owned(), false.into());
    }
    if kind == "deadLetter" {
        settings.insert("addressFullMessagePolicy".to_owned(), "PAGE".into());
    }
    if matches!(kind, "queue" | "topic") {
        let config = scene.config_of(address);
        let defaults = config.map(|config| config["spec"]["messaging"]["defaults"].clone()).unwrap_or_default();
        let ttl = spec["messageTtl"]["maximum"].as_str().or(defaults["messageTtl"]["maximum"].as_str());
        if let Some(hours) = ttl.and_then(|ttl| ttl.strip_suffix('h')?.parse::<i64>().ok()) {
            settings.insert("maxExpiryDelay".to_owned(), (hours * 3_600_000).into());
        }
        let default = defaults["deadLetterAddress"].as_str().filter(|name| scene.has_dead_letter(address, name));
        let dead = spec["deadLetterAddress"].as_str().or(default);
        for (key, named) in [("deadLetterAddress", dead), ("expiryAddress", spec["expiryAddress"].as_str())] {
            if let Some(named) = named {
                settings.insert(key.to_owned(), scene.really(address, named).into());
            }
        }
    }
    settings
}

impl Scene<'_> {
    /// The name on the broker of what a reference means: the target's own spelling.
    pub fn really(&self, of: &Value, named: &str) -> String {
        let holder = self.claimants(of, named).find(|address| is_true(address, "Ready"));
        let space = (text(&of["metadata"]["namespace"]), text(&of["spec"]["addressSpace"]));
        self.world.prefix(space) + &holder.map_or_else(|| named.to_owned(), |address| name_of(address))
    }

    fn has_dead_letter(&self, of: &Value, name: &str) -> bool {
        let holds = |address: &&Object| address["spec"]["type"] == "deadLetter" && is_true(address, "Ready");
        self.claimants(of, name).filter(holds).any(|address| !deleting(address))
    }

    /// Others in the space under the same address.
    pub fn claimants<'a>(&'a self, like: &'a Value, name: &str) -> impl Iterator<Item = &'a Object> {
        let name = canonical(name);
        self.addresses.iter().map(|(_, address)| address).filter(move |address| {
            address["spec"]["addressSpace"] == like["spec"]["addressSpace"]
                && address["metadata"]["namespace"] == like["metadata"]["namespace"]
                && canonical(&name_of(address)) == name
        })
    }
}
