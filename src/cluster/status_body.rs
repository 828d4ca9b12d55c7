//! Statuses of the model as the API has them, and back.
//!
//! Invariant: what is written and read back is equal to what was decided, else every restart would write it again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::convert;
use crate::api;
use crate::api::DurationText;
use crate::api::address::AddressBrokerState as BrokerState;
use crate::api::conditions::{ACCEPTED, ConditionValue, READY, find};
use crate::api::connector::{ConnectorStatus, ForwarderStatus};
use crate::messaging::exposure::EndpointStatus;
use crate::messaging::ids::Kind;
use crate::messaging::input::{Redelivery, Ttl};
use crate::messaging::output::Status;
use crate::messaging::remote::Row;
use crate::messaging::status::{
    AddressSpaceStatus, AddressStatus, Condition, Leaving, RouterConfigStatus, TargetState, TargetStatus,
};

/// The JSON of a status, for `.status` of a server-side apply.
///
/// # Errors
/// Never in practice: everything in it has a JSON form.
pub fn body(status: &Status, generation: i64) -> serde_json::Result<Value> {
    match status {
        Status::RouterConfig(status) => serde_json::to_value(router_config(status, generation)),
        Status::AddressSpace(status) => serde_json::to_value(address_space(status, generation)),
        Status::Address(status) => serde_json::to_value(address(status, generation)),
    }
}

/// The whole object of a server-side apply: with its uid, so that a namesake is never written.
pub fn applied(kind: Kind, namespace: &str, name: &str, uid: &str, status: &Value) -> Value {
    json!({
        "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
        "kind": kind.as_str(),
        "metadata": { "namespace": namespace, "name": name, "uid": uid },
        "status": status,
    })
}

fn router_config(status: &RouterConfigStatus, generation: i64) -> api::RouterConfigStatus {
    let summary = |rows: &[TargetStatus]| {
        let serving = rows.iter().filter(|row| row.state == TargetState::Serving).count();
        format!("{serving}/{}", rows.len())
    };
    api::RouterConfigStatus {
        conditions: conditions(status.accepted.as_ref(), status.ready.as_ref()),
        observed_generation: Some(generation),
        kind: Some("Messaging".to_owned()),
        owner: status.owner.as_deref().map(str::to_owned),
        brokers_summary: Some(summary(&status.brokers)),
        brokers: status.brokers.iter().map(target).collect(),
        routers_summary: (!status.routers.is_empty()).then(|| summary(&status.routers)),
        routers: status.routers.iter().map(target).collect(),
        edges_summary: None,
        edges: Vec::new(),
        orphans: Some(u32::try_from(status.orphans).unwrap_or_default()),
        orphans_pruned: status.orphans_pruned.as_deref().map(str::to_owned),
        resynced: status.resynced.as_deref().map(str::to_owned),
    }
}

fn target(row: &TargetStatus) -> api::router_config::TargetStatus {
    use api::router_config::TargetState as State;
    api::router_config::TargetStatus {
        name: row.name.to_string(),
        state: match row.state {
            TargetState::Connecting => State::Connecting,
            TargetState::Filling => State::Filling,
            TargetState::Serving => State::Serving,
            TargetState::Unreachable => State::Unreachable,
        },
        message: row.message.to_string(),
        since: Some(time(row.since_s)),
    }
}

fn address_space(status: &AddressSpaceStatus, generation: i64) -> api::AddressSpaceStatus {
    let count = |number: i64| u32::try_from(number).unwrap_or_default();
    let (total, ready) = (count(status.total), count(status.ready_addresses));
    let endpoint = status.endpoint.as_ref().map(|(host, port)| api::address_space::Endpoint {
        name: status.broker.as_deref().unwrap_or_default().to_owned(),
        host: Some(host.to_string()),
        port: Some(*port),
        ca_certificate: None,
        message: None,
    });
    let row = |row: &EndpointStatus| api::address_space::Endpoint {
        name: row.name.to_string(),
        host: row.at.as_ref().map(|(host, _)| host.to_string()),
        port: row.at.as_ref().map(|(_, port)| *port),
        ca_certificate: row.ca_certificate.as_deref().map(str::to_owned),
        message: row.message.as_deref().map(str::to_owned),
    };
    api::AddressSpaceStatus {
        conditions: conditions(status.accepted.as_ref(), status.ready.as_ref()),
        observed_generation: Some(generation),
        addresses: Some(api::address_space::AddressCount { total, ready }),
        summary: Some(format!("{ready}/{total}")),
        address_prefix: status.address_prefix.as_deref().map(str::to_owned),
        broker: status.broker.as_deref().map(str::to_owned),
        endpoints: endpoint.into_iter().chain(status.endpoints.iter().map(row)).collect(),
        connectors: status.connectors.iter().map(connector).collect(),
    }
}

fn connector(row: &Row) -> ConnectorStatus {
    ConnectorStatus {
        name: row.name.to_string(),
        ready: row.ready,
        reason: row.reason.to_owned(),
        message: row.message.to_string(),
        host: row.host.as_deref().map(str::to_owned),
    }
}

fn forwarder(row: &Row) -> ForwarderStatus {
    let (name, reason, message) = (row.name.to_string(), row.reason.to_owned(), row.message.to_string());
    ForwarderStatus { name, ready: row.ready, reason, message }
}

fn address(status: &AddressStatus, generation: i64) -> api::AddressStatus {
    let text =
        |ms: Option<i64>| ms.map(|ms| DurationText::from(Duration::from_millis(u64::try_from(ms).unwrap_or_default())));
    let ttl = status.ttl;
    let redelivery = status.redelivery;
    let ready = status.ready.as_ref().filter(|ready| ready.status).map(|ready| ready.generation);
    api::AddressStatus {
        conditions: conditions(status.accepted.as_ref(), status.ready.as_ref()),
        observed_generation: Some(generation),
        configured_generation: status.configured.filter(|generation| Some(*generation) != ready),
        address: status.address.as_deref().map(str::to_owned),
        plan: status.plan.as_deref().map(str::to_owned),
        brokers: status
            .brokers
            .iter()
            .map(|name| {
                let leaving = status.leaving.iter().find(|(broker, _)| broker == name);
                let state = match leaving.map(|(_, phase)| *phase) {
                    None => BrokerState::Active,
                    Some(Leaving::Migrating) => BrokerState::Migrating,
                    Some(Leaving::Draining) => BrokerState::Draining,
                };
                api::address::AddressBroker { name: name.to_string(), state }
            })
            .collect(),
        message_ttl: (ttl != Ttl::default())
            .then(|| api::settings::MessageTtl { minimum: text(ttl.minimum_ms), maximum: text(ttl.maximum_ms) }),
        redelivery: (redelivery != Redelivery::default()).then(|| api::settings::Redelivery {
            max_attempts: redelivery.max_attempts,
            delay: text(redelivery.delay_ms),
            delay_multiplier: redelivery.delay_multiplier,
            max_delay: text(redelivery.max_delay_ms),
        }),
        forwarders: status.forwarders.iter().map(forwarder).collect(),
    }
}

fn conditions(accepted: Option<&Condition>, ready: Option<&Condition>) -> Vec<ApiCondition> {
    let one = |type_: &str, condition: Option<&Condition>| {
        condition.map(|condition| ApiCondition {
            type_: type_.to_owned(),
            status: ConditionValue::from(condition.status).as_str().to_owned(),
            reason: condition.reason.to_owned(),
            message: condition.message.to_string(),
            observed_generation: Some(condition.generation),
            last_transition_time: time(condition.since_s),
        })
    };
    one(ACCEPTED, accepted).into_iter().chain(one(READY, ready)).collect()
}

fn time(unix_s: i64) -> Time {
    Time(Timestamp::from_second(unix_s).unwrap_or(Timestamp::UNIX_EPOCH))
}

// === Reading ===

/// The status that came with a RouterConfig.
pub fn read_router_config(status: &api::RouterConfigStatus) -> RouterConfigStatus {
    RouterConfigStatus {
        accepted: condition(&status.conditions, ACCEPTED),
        ready: condition(&status.conditions, READY),
        owner: text(status.owner.as_ref()),
        brokers: status.brokers.iter().map(read_target).collect(),
        routers: status.routers.iter().map(read_target).collect(),
        orphans: i64::from(status.orphans.unwrap_or_default()),
        orphans_pruned: text(status.orphans_pruned.as_ref()),
        resynced: text(status.resynced.as_ref()),
    }
}

fn read_target(row: &api::router_config::TargetStatus) -> TargetStatus {
    use api::router_config::TargetState as State;
    TargetStatus {
        name: row.name.as_str().into(),
        state: match row.state {
            State::Filling => TargetState::Filling,
            State::Serving => TargetState::Serving,
            State::Unreachable => TargetState::Unreachable,
            State::Connecting | State::Unknown => TargetState::Connecting,
        },
        message: row.message.as_str().into(),
        since_s: row.since.as_ref().map_or(0, |since| since.0.as_second()),
    }
}

/// The status that came with an AddressSpace.
pub fn read_address_space(status: &api::AddressSpaceStatus) -> AddressSpaceStatus {
    let count = status.addresses.unwrap_or_default();
    let at = |endpoint: &api::address_space::Endpoint| Some((endpoint.host.as_deref()?.into(), endpoint.port?));
    // Only brokered spaces have a broker of their own, and its endpoint only.
    let brokered = status.broker.is_some();
    let row = |row: &api::address_space::Endpoint| EndpointStatus {
        name: row.name.as_str().into(),
        at: at(row),
        ca_certificate: text(row.ca_certificate.as_ref()),
        message: text(row.message.as_ref()),
    };
    AddressSpaceStatus {
        accepted: condition(&status.conditions, ACCEPTED),
        ready: condition(&status.conditions, READY),
        total: i64::from(count.total),
        ready_addresses: i64::from(count.ready),
        address_prefix: text(status.address_prefix.as_ref()),
        broker: text(status.broker.as_ref()),
        endpoint: status.endpoints.first().filter(|_| brokered).and_then(at),
        endpoints: if brokered { Vec::new() } else { status.endpoints.iter().map(row).collect() },
        connectors: status.connectors.iter().map(read_connector).collect(),
    }
}

/// The status that came with an Address.
pub fn read_address(status: &api::AddressStatus) -> AddressStatus {
    let ready = condition(&status.conditions, READY);
    let in_force = ready.as_ref().filter(|ready| ready.status).map(|ready| ready.generation);
    AddressStatus {
        accepted: condition(&status.conditions, ACCEPTED),
        configured: status.configured_generation.or(in_force),
        ready,
        address: text(status.address.as_ref()),
        plan: text(status.plan.as_ref()),
        brokers: status.brokers.iter().map(|broker| broker.name.as_str().into()).collect(),
        leaving: status
            .brokers
            .iter()
            .filter_map(|broker| Some((broker.name.as_str().into(), leaving(broker)?)))
            .collect(),
        // What is not readable differs from what is wanted, and is written anew.
        ttl: convert::ttl(status.message_ttl.as_ref()).unwrap_or_default(),
        redelivery: convert::redelivery(status.redelivery.as_ref()).unwrap_or_default(),
        forwarders: status.forwarders.iter().map(read_forwarder).collect(),
    }
}

fn read_connector(row: &ConnectorStatus) -> Row {
    Row {
        name: row.name.as_str().into(),
        ready: row.ready,
        reason: known_reason(&row.reason),
        message: row.message.as_str().into(),
        host: text(row.host.as_ref()),
    }
}

fn read_forwarder(row: &ForwarderStatus) -> Row {
    let (name, message) = (row.name.as_str().into(), row.message.as_str().into());
    Row { name, ready: row.ready, reason: known_reason(&row.reason), message, host: None }
}

fn leaving(broker: &api::address::AddressBroker) -> Option<Leaving> {
    match broker.state {
        BrokerState::Migrating => Some(Leaving::Migrating),
        BrokerState::Draining => Some(Leaving::Draining),
        BrokerState::Active | BrokerState::Unknown => None,
    }
}

fn condition(conditions: &[ApiCondition], type_: &str) -> Option<Condition> {
    let found = find(conditions, type_)?;
    Some(Condition {
        status: found.status == ConditionValue::True.as_str(),
        reason: known_reason(&found.reason),
        message: found.message.as_str().into(),
        generation: found.observed_generation.unwrap_or_default(),
        since_s: found.last_transition_time.0.as_second(),
    })
}

/// A reason of any kind; one of another version becomes empty, and so differs from all.
fn known_reason(reason: &str) -> &'static str {
    crate::messaging::reason::known(reason)
}

fn text(text: Option<&String>) -> Option<Arc<str>> {
    text.map(|text| text.as_str().into())
}

#[cfg(test)]
mod tests;
