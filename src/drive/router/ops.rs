//! Entities as a router takes and shows them. Pure.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::link::{Operation, Request, Type};
use super::names::Names;
use crate::drive::amqp::Secret;
use crate::messaging::ids::Slot;
use crate::messaging::remote::{address_of, forward_slot, forwarder_named, is_remote, names_forwarder, phase, slot_at};
use crate::messaging::router::{
    AutoLink, Connector, Direction, Distribution, Entity, Remote, connector_slot, fence_slot, readiness_slot,
};

/// Seconds after which a silent broker counts as gone.
const IDLE_SECONDS: u32 = 16;
/// Seconds within which whoever connects to the readiness listener must speak AMQP: probes hang up at once.
const HANDSHAKE_SECONDS: u32 = 2;

/// With which user and password a connector logs in.
pub type Credentials = Option<(String, Secret)>;

/// The type that an entity is of.
pub fn type_of(entity: &Entity) -> Type {
    match entity {
        Entity::Address { .. } => Type::Address,
        Entity::AutoLink(_) => Type::AutoLink,
        Entity::LinkRoute { .. } | Entity::Via { .. } => Type::LinkRoute,
        Entity::Connector(_) => Type::Connector,
        Entity::Fence => Type::Vhost,
        Entity::Readiness { .. } => Type::Listener,
    }
}

/// Asks for an entity to be made. `credentials` are those of a connector.
pub fn create(names: &Names, slot: &str, entity: &Entity, credentials: &Credentials) -> Request {
    let name = names.name(slot, entity);
    let attributes = match entity {
        Entity::Address { distribution, waypoint } => {
            let mut address = json!({ "pattern": address_of(slot), "distribution": distribution.as_str() });
            if *waypoint {
                // A router without this attribute may refuse it, whatever its value.
                address["waypoint"] = true.into();
            }
            address
        }
        Entity::AutoLink(link) => {
            let mut attributes = json!({
                "address": address_of(slot),
                "direction": link.direction.as_str(),
                "connection": names.connector(&link.broker),
            });
            if let Some(external) = &link.external {
                attributes["externalAddress"] = (**external).into();
            }
            if let Some(phase) = phase(slot, link.direction) {
                attributes["phase"] = phase.into();
            }
            attributes
        }
        Entity::LinkRoute { direction, broker } => json!({
            "pattern": slot,
            "direction": direction.as_str(),
            "connection": names.connector(broker),
        }),
        Entity::Via { direction, connection, pattern, strip } => json!({
            "pattern": &**pattern,
            "direction": direction.as_str(),
            "connection": names.connector(connection),
            "delExternalPrefix": &**strip,
        }),
        Entity::Connector(connector) => create_connector(names, connector, credentials),
        Entity::Fence => json!({ "hostname": name, "allowUnknownUser": false, "groups": fence() }),
        // For probes, which need no more than a port that answers: nobody logs in here.
        Entity::Readiness { host, port } => json!({
            "host": &**host,
            "port": port.to_string(),
            "role": "normal",
            "authenticatePeer": true,
            "saslMechanisms": "EXTERNAL",
            "initialHandshakeTimeoutSeconds": HANDSHAKE_SECONDS,
        }),
    };
    let attributes = match attributes {
        Value::Object(attributes) => attributes,
        _ => Map::new(),
    };
    Request { of: type_of(entity), operation: Operation::Create(name, attributes) }
}

/// What a remote host may do on the connection that a router made to it: answer the links that the router attaches, and
/// attach none of its own. Whose connections these are is said by the connector, so that users and hosts do not matter.
fn fence() -> Value {
    json!({ "$connector": {
        "users": "",
        "remoteHosts": "*",
        "sources": "",
        "targets": "",
        "allowDynamicSource": false,
        "allowAnonymousSender": false,
        "allowUserIdProxy": false,
        "allowWaypointLinks": false,
        "allowDynamicLinkRoutes": false,
        "allowAdminStatusUpdate": false,
        "allowFallbackLinks": false,
    }})
}

fn create_connector(names: &Names, connector: &Connector, credentials: &Credentials) -> Value {
    let mut attributes = json!({
        "host": &*connector.host,
        "port": connector.port.to_string(),
        "role": "route-container",
        "idleTimeoutSeconds": connector.remote.map_or(IDLE_SECONDS, |remote| remote.idle_s),
    });
    if let Some(remote) = connector.remote {
        attributes["maxFrameSize"] = remote.max_frame.into();
        // A router that does not know it refuses to open the connection.
        attributes["policyVhost"] = names.fence().into();
    }
    if let Some(profile) = &connector.ssl_profile {
        attributes["sslProfile"] = (**profile).into();
        attributes["verifyHostname"] = true.into();
    }
    if let Some((username, password)) = credentials {
        attributes["saslMechanisms"] = "PLAIN".into();
        attributes["saslUsername"] = username.as_str().into();
        attributes["saslPassword"] = password.reveal().into();
    } else if connector.ssl_profile.is_none() {
        attributes["saslMechanisms"] = "ANONYMOUS".into();
    }
    attributes
}

/// Asks for an entity to go.
pub fn delete(of: Type, name: String) -> Request {
    Request { of, operation: Operation::Delete(name) }
}

/// Asks for one entity.
pub fn read(of: Type, name: String) -> Request {
    Request { of, operation: Operation::Read(name) }
}

/// What is needed to tell what an entity is, the name first.
pub fn attributes(of: Type) -> &'static [&'static str] {
    match of {
        Type::Address => &["name", "pattern", "distribution", "waypoint"],
        Type::AutoLink => &["name", "address", "direction", "connection", "externalAddress"],
        Type::LinkRoute => &["name", "pattern", "direction", "connection", "delExternalPrefix"],
        Type::Connector => {
            &["name", "host", "port", "role", "sslProfile", "idleTimeoutSeconds", "maxFrameSize", "policyVhost"]
        }
        Type::Vhost => &["name", "hostname", "allowUnknownUser", "groups"],
        Type::Listener => &["name", "host", "port"],
    }
}

/// The attributes of [`attributes`] that the router's schema must have.
pub fn attributes_without_waypoint() -> &'static [&'static str] {
    &["name", "pattern", "distribution"]
}

/// An entity of ours as a router shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// One that we would make today: its slot, and what it is.
    Known(Slot, Entity),
    /// One with our mark that no wish of ours looks like (any more): it is in the way of its slot.
    Stray(Slot),
}

/// What one entity is, from its attributes; none where it is not ours.
pub fn shown(names: &Names, of: Type, get: impl Fn(&str) -> Option<Value>) -> Option<(String, Shown)> {
    let text = |attribute: &str| match get(attribute) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let name = text("name").filter(|name| names.is_ours(name))?;
    let broker = || names.broker(&text("connection")?);
    let number = |attribute: &str| get(attribute)?.as_u64().and_then(|number| u32::try_from(number).ok());
    let port = || match get("port")? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().and_then(|port| u16::try_from(port).ok()),
        _ => None,
    };
    let slot: Option<Slot> = match of {
        Type::Address => text("pattern").map(|pattern| slot_at(&pattern)),
        Type::LinkRoute => match broker().filter(|broker| is_remote(broker)) {
            Some(connection) => Some(connector_slot(&connection)),
            None => text("pattern").map(Into::into),
        },
        Type::AutoLink => link_slot(names, &name, text),
        Type::Connector => names.broker(&name).map(|broker| connector_slot(&broker)),
        Type::Listener => Some(readiness_slot()),
        Type::Vhost => Some(fence_slot()),
    };
    // Whatever somebody has made of it, a forwarder's link is in the way of that forwarder.
    let named = forwarder_named(&name, Names::is_whole(&name)).filter(|_| of == Type::AutoLink);
    let twisted = named.is_some() && named != slot;
    let slot = named.or(slot);
    let entity = (|| {
        if twisted {
            return None;
        }
        Some(match of {
            Type::Address => {
                let waypoint = matches!(get("waypoint"), Some(Value::Bool(true)));
                Entity::Address { distribution: distribution(&text("distribution")?)?, waypoint }
            }
            Type::AutoLink => {
                let external = text("externalAddress").map(Arc::from);
                Entity::AutoLink(AutoLink { direction: direction(&text("direction")?)?, broker: broker()?, external })
            }
            Type::LinkRoute if is_remote(&broker()?) => Entity::Via {
                direction: direction(&text("direction")?)?,
                connection: broker()?,
                pattern: text("pattern")?.into(),
                strip: text("delExternalPrefix")?.into(),
            },
            Type::LinkRoute => Entity::LinkRoute { direction: direction(&text("direction")?)?, broker: broker()? },
            Type::Connector => {
                text("role").filter(|role| role == "route-container")?;
                let broker = names.broker(&name)?;
                let remote = if is_remote(&broker) {
                    text("policyVhost").filter(|vhost| *vhost == names.fence())?;
                    Some(Remote { idle_s: number("idleTimeoutSeconds")?, max_frame: number("maxFrameSize")? })
                } else {
                    None
                };
                Entity::Connector(Connector {
                    broker,
                    remote,
                    host: text("host")?.into(),
                    port: port()?,
                    ssl_profile: text("sslProfile").map(Into::into),
                    credentials: None,
                    relogin: false,
                })
            }
            Type::Vhost => {
                let closed = get("allowUnknownUser") != Some(Value::Bool(true)) && get("groups")? == fence();
                (closed && text("hostname")? == name).then_some(Entity::Fence)?
            }
            Type::Listener => Entity::Readiness { host: text("host")?.into(), port: port()? },
        })
    })();
    // What lacks even its slot is kept under its own name: nobody wants that, so that it goes.
    let slot = slot.unwrap_or_else(|| format!("#stray/{name}").into());
    let shown = match entity {
        Some(entity) if names.name(&slot, &entity) == name => Shown::Known(slot, entity),
        _ => Shown::Stray(slot),
    };
    Some((name, shown))
}

/// The slot of an auto-link of this name.
pub fn link_slot(names: &Names, name: &str, text: impl Fn(&str) -> Option<String>) -> Option<Slot> {
    let address = text("address")?;
    if !names_forwarder(name) {
        return Some(slot_at(&address));
    }
    let connection = names.broker(&text("connection")?)?;
    let external = text("externalAddress").unwrap_or_default();
    Some(forward_slot(direction(&text("direction")?)?, &connection, &external, &address))
}

fn distribution(word: &str) -> Option<Distribution> {
    [Distribution::Balanced, Distribution::Multicast].into_iter().find(|known| known.as_str() == word)
}

fn direction(word: &str) -> Option<Direction> {
    [Direction::In, Direction::Out].into_iter().find(|known| known.as_str() == word)
}

/// What a refusal of a CREATE means for what is there.
pub fn is_name_conflict(words: &str) -> bool {
    words.contains("Name conflicts") || words.contains("duplicates unique attribute")
}

#[cfg(test)]
mod tests;
