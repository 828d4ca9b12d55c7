//! From what people write to what the model reads.
//!
//! An object with a value that this version does not know is as good as one that does not decode: it is not guessed
//! at. The two exceptions are the careful ones (`deletionPolicy`, `allowedNamespaces`).

mod remote;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::status_body;
use crate::api;
use crate::api::DurationText;
use crate::messaging::broker::FullPolicy;
use crate::messaging::endpoints::{PortRef, ServiceRef};
use crate::messaging::exposure::{EndpointSpec, Listeners, Protocol};
use crate::messaging::ids::Key;
use crate::messaging::input::{
    Address, AddressSpace, AddressType, Allowed, Broker, Defaults, LabelTest, Meta, Readiness, Redelivery, Requirement,
    Router, RouterConfig, Ttl,
};
use crate::messaging::plans::{AddressPlan, Limits, SpacePlan};

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConvertError {
    /// A value of an enum that a newer version has.
    #[error("{field} has a value that this version does not know")]
    Unknown {
        /// Where it stands.
        field: &'static str,
    },
    /// A required field that old or foreign objects may lack.
    #[error("{field} is missing")]
    Missing {
        /// Where it should stand.
        field: &'static str,
    },
    /// Not a duration.
    #[error("{field}: {source}")]
    Duration {
        /// Where it stands.
        field: &'static str,
        /// What is wrong with it.
        source: api::duration::DurationError,
    },
}

/// As much of an annotation's value as is looked at.
const ANNOTATION_CHARACTERS: usize = 253;

type Result<T> = std::result::Result<T, ConvertError>;

/// The key of a namespaced object.
pub fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// What the model needs of the metadata; `listed` when it came from a list.
pub fn meta(meta: &ObjectMeta, finalizer: &str, listed: bool) -> Meta {
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(name));
    Meta {
        key: key(meta),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        generation: meta.generation.unwrap_or_default(),
        version: version(meta.resource_version.as_deref()),
        created_s: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|held| held == finalizer),
        others: meta.deletion_timestamp.as_ref().and_then(|_| others(meta, finalizer)),
        force_delete: annotation(api::FORCE_DELETE_ANNOTATION).is_some_and(|value| value == "true"),
        listed,
    }
}

/// Finalizers that are not ours, by name.
fn others(meta: &ObjectMeta, finalizer: &str) -> Option<Arc<str>> {
    let mut others: Vec<&str> =
        meta.finalizers.iter().flatten().map(String::as_str).filter(|held| *held != finalizer).collect();
    others.sort_unstable();
    (!others.is_empty()).then(|| others.join(", ").into())
}

/// A `resourceVersion` as the number that it is on every API server today.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The owner of a RouterConfig that names none: a short hash of the cluster and the object's name, the same in every
/// process and for ever.
pub fn default_owner(cluster_uid: &str, key: &Key) -> Arc<str> {
    let text = format!("{cluster_uid}/{key}");
    // FNV-1a, then mixed so that every bit of the 32 that are kept depends on all of the text.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    format!("{:08x}", mixed >> 32).into()
}

/// A RouterConfig of our controller name.
///
/// # Errors
/// When it cannot be used as it is.
pub fn router_config(object: &api::RouterConfig, cluster_uid: &str, listed: bool) -> Result<RouterConfig> {
    let meta = meta(&object.metadata, api::ROUTER_CONFIG_FINALIZER, listed);
    let spec = &object.spec;
    let messaging = spec.messaging.as_ref().ok_or(ConvertError::Missing { field: "spec.messaging" })?;
    let (external, routers, way) = (spec.external_brokers(), spec.external_routers(), messaging.routers.as_ref());
    let secret = |name: &String| Key::new(Arc::clone(&meta.key.namespace), name.as_str());
    let annotation = |name: &str| {
        // It is told back in the status: only its beginning is, and only that tells a new value from the last.
        let value = object.metadata.annotations.as_ref().and_then(|all| all.get(name))?;
        Some(Arc::from(value.chars().take(ANNOTATION_CHARACTERS).collect::<String>()))
    };
    Ok(RouterConfig {
        owner: match &messaging.owner {
            Some(owner) => owner.as_str().into(),
            None => default_owner(cluster_uid, &meta.key),
        },
        single: match messaging.tenancy {
            api::router_config::Tenancy::Shared => false,
            api::router_config::Tenancy::Single => true,
            api::router_config::Tenancy::Unknown => {
                return Err(ConvertError::Unknown { field: "spec.messaging.tenancy" });
            }
        },
        allowed: spec.allowed_namespaces.as_ref().map_or(Allowed::Same, allowed),
        brokers: spec
            .broker_hosts()
            .iter()
            .map(|host| Broker {
                name: host.name_in_force().into(),
                host: host.host.as_str().into(),
                port: host.port,
                router_host: host.router_host.as_deref().map(Arc::from),
                router_port: host.router_port,
                credit: host.credit.unwrap_or_default().milli(),
                drain: host.drain,
            })
            .collect(),
        tls_secret: external.and_then(|e| e.tls.as_ref()).map(|tls| secret(&tls.secret_name)),
        credentials_secret: external.and_then(|e| e.credentials.as_ref()).map(|login| secret(&login.secret_name)),
        routers: routers.map_or(&[][..], |external| &external.hosts).iter().map(router).collect(),
        router_service: routers
            .and_then(|external| external.service_ref.as_ref())
            .map(|r| service(r, &meta))
            .transpose()?,
        router_tls_secret: routers.and_then(|e| e.tls.as_ref()).map(|tls| secret(&tls.secret_name)),
        router_credentials_secret: routers.and_then(|e| e.credentials.as_ref()).map(|login| secret(&login.secret_name)),
        broker_ssl_profile: way.and_then(|way| way.broker_ssl_profile.as_deref()).map(Arc::from),
        broker_credentials_secret: way
            .and_then(|way| way.broker_credentials.as_ref())
            .map(|login| secret(&login.secret_name)),
        connectors: way.and_then(|way| way.connectors.as_ref()).map(remote::rules),
        readiness: way.map_or_else(Readiness::default, |way| Readiness {
            host: way.readiness.host.as_str().into(),
            port: way.readiness.port,
        }),
        listeners: way.and_then(|way| way.listeners.as_ref()).map(listeners).unwrap_or_default(),
        defaults: defaults(messaging.defaults.as_ref())?,
        address_plans: messaging.address_plans.iter().map(address_plan).collect::<Result<_>>()?,
        space_plans: messaging.space_plans.iter().map(space_plan).collect(),
        resync: annotation(api::RESYNC_ANNOTATION),
        prune_orphans: annotation(api::PRUNE_ORPHANS_ANNOTATION),
        status: object.status.as_ref().map(status_body::read_router_config).unwrap_or_default(),
        meta,
    })
}

fn router(host: &api::router_config::RouterHost) -> Router {
    Router {
        name: host.name_in_force().into(),
        host: host.host.as_str().into(),
        port: host.port,
        readiness_port: host.readiness_port,
    }
}

fn service(reference: &api::router_config::RouterService, meta: &Meta) -> Result<ServiceRef> {
    const PORT: &str = "spec.messaging.routers.external.serviceRef.port";
    let service = Key::new(Arc::clone(&meta.key.namespace), reference.name.as_str());
    let port = match &reference.port {
        IntOrString::String(name) => PortRef::Name(name.as_str().into()),
        IntOrString::Int(number) => {
            PortRef::Number(u16::try_from(*number).map_err(|_| ConvertError::Unknown { field: PORT })?)
        }
    };
    Ok(ServiceRef { service, port })
}

fn listeners(listeners: &api::router_config::Listeners) -> Listeners {
    let amqps = listeners.amqps.as_ref();
    Listeners {
        amqp: listeners.amqp.as_ref().map(|listener| listener.port),
        amqps: amqps.map(|listener| listener.port),
        ca_certificate: amqps.and_then(|listener| listener.ca_certificate.as_deref()).map(Arc::from),
    }
}

fn allowed(allowed: &api::router_config::AllowedNamespaces) -> Allowed {
    use api::router_config::NamespacesFrom;
    match allowed.from {
        NamespacesFrom::Same => Allowed::Same,
        NamespacesFrom::All => Allowed::All,
        NamespacesFrom::Selector => {
            allowed.selector.as_ref().map_or_else(nobody, |selector| Allowed::Selector(requirements(selector)))
        }
        NamespacesFrom::Unknown => nobody(),
    }
}

/// A selector that no namespace matches.
fn nobody() -> Allowed {
    Allowed::Selector(vec![Requirement { key: "".into(), test: LabelTest::In(Vec::new()) }])
}

pub(super) fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let labels = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| Requirement { key: key.as_str().into(), test: LabelTest::In(vec![value.as_str().into()]) });
    labels.chain(selector.match_expressions.iter().flatten().map(requirement)).collect()
}

fn requirement(expression: &LabelSelectorRequirement) -> Requirement {
    let values = || expression.values.iter().flatten().map(|value| Arc::from(value.as_str())).collect();
    let test = match expression.operator.as_str() {
        "In" => LabelTest::In(values()),
        "NotIn" => LabelTest::NotIn(values()),
        "Exists" => LabelTest::Exists,
        "DoesNotExist" => LabelTest::DoesNotExist,
        // An operator of a later version selects nothing.
        _ => LabelTest::In(Vec::new()),
    };
    Requirement { key: expression.key.as_str().into(), test }
}

fn defaults(defaults: Option<&api::router_config::MessagingDefaults>) -> Result<Defaults> {
    let Some(defaults) = defaults else { return Ok(Defaults::default()) };
    Ok(Defaults {
        message_ttl: ttl(defaults.message_ttl.as_ref())?,
        redelivery: redelivery(defaults.redelivery.as_ref())?,
        full_policy: full_policy(defaults.full_policy)?,
        max_size_bytes: defaults.max_size_bytes,
        dead_letter_address: defaults.dead_letter_address.as_deref().map(Arc::from),
    })
}

fn plan_name(name: &api::plans::PlanName) -> Arc<str> {
    name.0.as_str().into()
}

fn address_plan(plan: &api::plans::AddressPlan) -> Result<AddressPlan> {
    Ok(AddressPlan {
        name: plan_name(&plan.name),
        types: plan.address_types.iter().filter_map(|type_| address_type(*type_)).collect(),
        router: plan.router_credit.milli(),
        broker: plan.broker_credit.milli(),
        partitions: plan.partitions.unwrap_or(1).into(),
        ttl: ttl(plan.message_ttl.as_ref())?,
        redelivery: redelivery(plan.redelivery.as_ref())?,
    })
}

fn space_plan(plan: &api::plans::SpacePlan) -> SpacePlan {
    let limits = plan.limits.unwrap_or_default();
    let milli = |credit: Option<api::plans::Credit>| credit.map(api::plans::Credit::milli);
    SpacePlan {
        name: plan_name(&plan.name),
        limits: Limits {
            addresses: limits.addresses,
            router: milli(limits.router),
            broker: milli(limits.broker),
            aggregate: milli(limits.aggregate),
        },
        allowed: plan.address_plans.iter().map(plan_name).collect(),
    }
}

/// An AddressSpace.
///
/// # Errors
/// When it cannot be used as it is.
pub fn address_space(object: &api::AddressSpace, listed: bool) -> Result<AddressSpace> {
    let meta = meta(&object.metadata, api::ADDRESS_SPACE_FINALIZER, listed);
    let spec = &object.spec;
    use api::address_space::AddressSpaceType as Type;
    let standard = match spec.type_ {
        Type::Brokered => false,
        Type::Standard => true,
        Type::Unknown => return Err(ConvertError::Unknown { field: "spec.type" }),
    };
    let namespace = match &spec.router_config_ref.namespace {
        Some(namespace) => namespace.as_str().into(),
        None => Arc::clone(&meta.key.namespace),
    };
    Ok(AddressSpace {
        config: Key { namespace, name: spec.router_config_ref.name.as_str().into() },
        standard,
        plan: spec.plan.as_ref().map(plan_name),
        endpoints: spec.endpoints.iter().map(endpoint).collect::<Result<_>>()?,
        connectors: spec
            .connectors
            .iter()
            .map(|connector| remote::connector(connector, &meta.key.namespace))
            .collect::<Result<_>>()?,
        status: object.status.as_ref().map(status_body::read_address_space).unwrap_or_default(),
        meta,
    })
}

fn endpoint(spec: &api::address_space::EndpointSpec) -> Result<EndpointSpec> {
    use api::address_space::{EndpointService as Service, Expose};
    Ok(EndpointSpec {
        name: spec.name.as_str().into(),
        service: match spec.service {
            Service::Amqp => Protocol::Amqp,
            Service::Amqps => Protocol::Amqps,
            Service::Unknown => return Err(ConvertError::Unknown { field: "spec.endpoints[].service" }),
        },
        load_balancer: match spec.expose {
            Expose::Cluster => false,
            Expose::LoadBalancer => true,
            Expose::Unknown => return Err(ConvertError::Unknown { field: "spec.endpoints[].expose" }),
        },
        host: spec.host.as_deref().map(Arc::from),
    })
}

/// An Address.
///
/// # Errors
/// When it cannot be used as it is.
pub fn address(object: &api::Address, listed: bool) -> Result<Address> {
    let meta = meta(&object.metadata, api::ADDRESS_FINALIZER, listed);
    let spec = &object.spec;
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    Ok(Address {
        space: spec.address_space.as_str().into(),
        address: object.address_in_force().into(),
        kind: address_type(spec.type_).ok_or(ConvertError::Unknown { field: "spec.type" })?,
        plan: spec.plan.as_ref().map(plan_name),
        topic: text(&spec.topic),
        dead_letter: text(&spec.dead_letter_address),
        expiry: text(&spec.expiry_address),
        ttl: ttl(spec.message_ttl.as_ref())?,
        redelivery: redelivery(spec.redelivery.as_ref())?,
        max_size_bytes: spec.max_size_bytes,
        full_policy: full_policy(spec.full_policy)?,
        max_consumers: spec.subscription.as_ref().and_then(|subscription| subscription.max_consumers),
        forwarders: spec.forwarders.iter().map(remote::forwarder).collect::<Result<_>>()?,
        when_empty: spec.deletion_policy != api::address::DeletionPolicy::Delete,
        status: object.status.as_ref().map(status_body::read_address).unwrap_or_default(),
        meta,
    })
}

/// None of a type that this version does not know.
fn address_type(type_: api::address::AddressType) -> Option<AddressType> {
    use api::address::AddressType as Type;
    Some(match type_ {
        Type::Anycast => AddressType::Anycast,
        Type::Multicast => AddressType::Multicast,
        Type::Queue => AddressType::Queue,
        Type::Topic => AddressType::Topic,
        Type::Subscription => AddressType::Subscription,
        Type::DeadLetter => AddressType::DeadLetter,
        Type::Unknown => return None,
    })
}

/// The labels of a namespace.
pub fn labels(meta: &ObjectMeta) -> Arc<BTreeMap<String, String>> {
    Arc::new(meta.labels.clone().unwrap_or_default())
}

fn full_policy(policy: Option<api::settings::FullPolicy>) -> Result<Option<FullPolicy>> {
    use api::settings::FullPolicy as Policy;
    Ok(match policy {
        None => None,
        Some(Policy::Page) => Some(FullPolicy::Page),
        Some(Policy::Block) => Some(FullPolicy::Block),
        Some(Policy::Fail) => Some(FullPolicy::Fail),
        Some(Policy::Drop) => Some(FullPolicy::Drop),
        Some(Policy::Unknown) => return Err(ConvertError::Unknown { field: "fullPolicy" }),
    })
}

/// A time-to-live window in milliseconds.
pub(super) fn ttl(ttl: Option<&api::settings::MessageTtl>) -> Result<Ttl> {
    let Some(ttl) = ttl else { return Ok(Ttl::default()) };
    Ok(Ttl {
        minimum_ms: millis(ttl.minimum.as_ref(), "messageTtl.minimum")?,
        maximum_ms: millis(ttl.maximum.as_ref(), "messageTtl.maximum")?,
    })
}

/// Redelivery with its delays in milliseconds.
pub(super) fn redelivery(redelivery: Option<&api::settings::Redelivery>) -> Result<Redelivery> {
    let Some(redelivery) = redelivery else { return Ok(Redelivery::default()) };
    Ok(Redelivery {
        max_attempts: redelivery.max_attempts,
        delay_ms: millis(redelivery.delay.as_ref(), "redelivery.delay")?,
        delay_multiplier: redelivery.delay_multiplier,
        max_delay_ms: millis(redelivery.max_delay.as_ref(), "redelivery.maxDelay")?,
    })
}

fn millis(text: Option<&DurationText>, field: &'static str) -> Result<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let duration = text.parse().map_err(|source| ConvertError::Duration { field, source })?;
    Ok(Some(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests;
