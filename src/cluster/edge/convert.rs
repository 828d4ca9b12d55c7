//! From objects of Kubernetes to what the model of the edge reads.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;
use crate::api::DurationText;
use crate::api::router_config::HostOwnership;
use crate::cluster::convert::{ConvertError, key, requirements};
use crate::edge::ids::Key;
use crate::edge::input::{
    Allowed, Annotations, BackendRef, Endpoint, EndpointSlice, Ingress, IngressClass, LabelTest, Listeners, Meta,
    PathRule, PathType, Port, Requirement, RouterConfig, Rule, Service, ServicePort, Tls, Tuning,
};
use crate::edge::options::is_option;
use crate::messaging::input as messaging;

/// Older than `spec.ingressClassName`, and still written.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_CLASS_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

type Result<T> = std::result::Result<T, ConvertError>;

fn meta(meta: &ObjectMeta) -> Meta {
    Meta {
        key: key(meta),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        created_s: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
    }
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn annotations(meta: &ObjectMeta) -> Annotations {
    // Of a BTreeMap: in order.
    let ours = meta.annotations.iter().flatten().filter(|(key, _)| is_option(key));
    ours.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect()
}

fn port_number(number: i32) -> u16 {
    // The API server has checked it; what is none leads nowhere.
    u16::try_from(number).unwrap_or(0)
}

fn port(port: &IntOrString) -> Port {
    match port {
        IntOrString::Int(number) => Port::Number(port_number(*number)),
        IntOrString::String(name) => Port::Name(name.as_str().into()),
    }
}

/// An Ingress.
pub fn ingress(object: &networking::Ingress) -> Ingress {
    let spec = object.spec.clone().unwrap_or_default();
    let rule = |rule: &networking::IngressRule| Rule {
        host: rule.host.as_deref().unwrap_or_default().into(),
        paths: rule.http.iter().flat_map(|http| &http.paths).map(path).collect(),
    };
    let tls = |tls: &networking::IngressTLS| Tls {
        hosts: tls.hosts.iter().flatten().map(|host| host.as_str().into()).collect(),
        secret: tls.secret_name.as_deref().filter(|name| !name.is_empty()).map(Arc::from),
    };
    Ingress {
        meta: meta(&object.metadata),
        class: spec.ingress_class_name.as_deref().map(Arc::from),
        class_annotation: annotation(&object.metadata, CLASS_ANNOTATION).map(Arc::from),
        default_backend: spec.default_backend.as_ref().map(backend),
        rules: spec.rules.iter().flatten().map(rule).collect(),
        tls: spec.tls.iter().flatten().map(tls).collect(),
        annotations: annotations(&object.metadata),
    }
}

fn path(path: &networking::HTTPIngressPath) -> PathRule {
    PathRule {
        path: path.path.as_deref().unwrap_or_default().into(),
        kind: match path.path_type.as_str() {
            "Exact" => PathType::Exact,
            "Prefix" => PathType::Prefix,
            _ => PathType::ImplementationSpecific,
        },
        backend: backend(&path.backend),
    }
}

fn backend(backend: &networking::IngressBackend) -> BackendRef {
    if let Some(service) = &backend.service {
        let of = service.port.clone().unwrap_or_default();
        let port = match (of.name.filter(|name| !name.is_empty()), of.number) {
            (Some(name), _) => Port::Name(name.into()),
            (None, number) => Port::Number(port_number(number.unwrap_or_default())),
        };
        return BackendRef::Service(service.name.as_str().into(), port);
    }
    let resource = backend.resource.clone().unwrap_or_default();
    BackendRef::Resource(format!("{} {}", resource.kind, resource.name).into())
}

/// Where the status of an Ingress says that it is served.
pub fn ingress_addresses(object: &networking::Ingress) -> Vec<String> {
    let entries = object.status.iter().flat_map(|s| &s.load_balancer).flat_map(|l| &l.ingress).flatten();
    entries.filter_map(|entry| entry.ip.clone().or_else(|| entry.hostname.clone())).collect()
}

/// An IngressClass.
pub fn ingress_class(object: &networking::IngressClass) -> IngressClass {
    let spec = object.spec.clone().unwrap_or_default();
    let parameters = spec.parameters.as_ref().and_then(|reference| {
        let ours = reference.api_group.as_deref() == Some(api::GROUP) && reference.kind == "RouterConfig";
        let namespace = reference.namespace.as_deref().filter(|_| ours)?;
        Some(Key::new(namespace, reference.name.as_str()))
    });
    // Parameters of another kind are somebody else's, who has taken our name: nothing leads here.
    let foreign = spec.parameters.is_some() && parameters.is_none();
    IngressClass {
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
        controller: spec.controller.as_deref().filter(|_| !foreign).unwrap_or_default().into(),
        parameters,
        default: annotation(&object.metadata, DEFAULT_CLASS_ANNOTATION) == Some("true"),
    }
}

/// A Service.
pub fn service(object: &core::Service) -> Service {
    let spec = object.spec.clone().unwrap_or_default();
    let external = spec.type_.as_deref() == Some("ExternalName");
    let port = |port: &core::ServicePort| ServicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        port: port_number(port.port),
        tcp: port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"),
    };
    let cluster_ip = spec.cluster_ips.iter().flatten().next().or(spec.cluster_ip.as_ref());
    Service {
        meta: meta(&object.metadata),
        ports: spec.ports.iter().flatten().map(port).collect(),
        cluster_ip: cluster_ip.filter(|_| !external).and_then(|ip| ip.parse().ok()),
        external_name: spec.external_name.as_deref().filter(|name| external && !name.is_empty()).map(Arc::from),
        ipv6_first: spec.ip_families.iter().flatten().next().is_some_and(|family| family == "IPv6"),
        annotations: annotations(&object.metadata),
    }
}

/// Where a Service is found from outside: what its load balancer says, or else its external IPs.
pub fn service_addresses(object: &core::Service) -> Vec<String> {
    let entries = object.status.iter().flat_map(|s| &s.load_balancer).flat_map(|l| &l.ingress).flatten();
    let told: Vec<String> = entries.filter_map(|entry| entry.ip.clone().or_else(|| entry.hostname.clone())).collect();
    if !told.is_empty() {
        return told;
    }
    object.spec.iter().flat_map(|spec| &spec.external_ips).flatten().cloned().collect()
}

/// An EndpointSlice.
pub fn endpoint_slice(object: &discovery::EndpointSlice) -> EndpointSlice {
    let service = object.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
    let fqdn = object.address_type == "FQDN";
    let ports = object.ports.iter().flatten().filter(|port| port.protocol.as_deref().is_none_or(|p| p == "TCP"));
    let ports = ports.filter_map(|port| {
        Some((Arc::from(port.name.as_deref().unwrap_or_default()), u16::try_from(port.port?).ok()?))
    });
    let endpoints = object.endpoints.iter().flat_map(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let serving = conditions.serving.unwrap_or(ready);
        let terminating = conditions.terminating.unwrap_or(false);
        let at = move |address: &String| Endpoint {
            address: (!fqdn).then(|| address.parse::<IpAddr>().ok()).flatten(),
            ready,
            serving,
            terminating,
        };
        endpoint.addresses.iter().map(at).collect::<Vec<_>>()
    });
    EndpointSlice {
        key: key(&object.metadata),
        service: service.map_or("", String::as_str).into(),
        fqdn,
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    }
}

/// The edge half of a RouterConfig.
///
/// # Errors
/// When it cannot be used as it is.
pub fn router_config(object: &api::RouterConfig) -> Result<RouterConfig> {
    let edge = object.spec.edge.as_ref().ok_or(ConvertError::Missing { field: "spec.edge" })?;
    let meta = meta(&object.metadata);
    let namespace = meta.key.namespace.clone();
    let ip = |address: &api::router_config::ListenAddress| {
        address.0.parse().map_err(|_| ConvertError::Unknown { field: "spec.edge.listeners.addresses" })
    };
    let listeners = &edge.listeners;
    Ok(RouterConfig {
        class_name: edge.ingress_class_name.as_str().into(),
        allowed: object.spec.allowed_namespaces.as_ref().map_or(Allowed::All, allowed),
        any_owner: match edge.host_ownership {
            HostOwnership::Namespace => false,
            HostOwnership::Any => true,
            HostOwnership::Unknown => return Err(ConvertError::Unknown { field: "spec.edge.hostOwnership" }),
        },
        default_certificate: edge
            .default_certificate
            .as_ref()
            .map(|certificate| Key::new(namespace, certificate.secret_name.as_str())),
        default_backend: edge
            .default_backend
            .as_ref()
            .map(|backend| (backend.service.name.as_str().into(), port(&backend.service.port))),
        external_name: edge.external_name,
        listeners: Listeners {
            http: listeners.http,
            https: listeners.https,
            stats: listeners.stats.unwrap_or(0),
            addresses: listeners.addresses.iter().map(ip).collect::<Result<_>>()?,
            accept_proxy: listeners.accept_proxy,
            passthrough: listeners.passthrough,
        },
        tuning: tuning(&edge.tuning)?,
        options: edge.options.iter().map(|(key, value)| (key.as_str().into(), value.0.as_str().into())).collect(),
        meta,
    })
}

fn tuning(tuning: &api::router_config::Tuning) -> Result<Tuning> {
    let usual = Tuning::default();
    let ms = |text: &Option<DurationText>, field: &'static str, usual: u64| match text {
        None => Ok(usual),
        Some(text) => {
            let duration = text.parse().map_err(|source| ConvertError::Duration { field, source })?;
            Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, LONGEST_MS))
        }
    };
    Ok(Tuning {
        max_connections: tuning.max_connections,
        threads: tuning.threads,
        timeout_client_ms: ms(&tuning.timeout_client, "tuning.timeoutClient", usual.timeout_client_ms)?,
        timeout_http_request_ms: ms(
            &tuning.timeout_http_request,
            "tuning.timeoutHttpRequest",
            usual.timeout_http_request_ms,
        )?,
        timeout_keep_alive_ms: ms(&tuning.timeout_keep_alive, "tuning.timeoutKeepAlive", usual.timeout_keep_alive_ms)?,
        timeout_connect_ms: ms(&tuning.timeout_connect, "tuning.timeoutConnect", usual.timeout_connect_ms)?,
        timeout_server_ms: ms(&tuning.timeout_server, "tuning.timeoutServer", usual.timeout_server_ms)?,
        timeout_tunnel_ms: ms(&tuning.timeout_tunnel, "tuning.timeoutTunnel", usual.timeout_tunnel_ms)?,
        timeout_queue_ms: ms(&tuning.timeout_queue, "tuning.timeoutQueue", usual.timeout_queue_ms)?,
        hard_stop_after_ms: ms(&tuning.hard_stop_after, "tuning.hardStopAfter", usual.hard_stop_after_ms)?,
    })
}

/// HAProxy counts milliseconds in 31 bits: 24 days.
const LONGEST_MS: u64 = 24 * 24 * 3_600_000;

fn allowed(allowed: &api::router_config::AllowedNamespaces) -> Allowed {
    use api::router_config::NamespacesFrom;
    match allowed.from {
        NamespacesFrom::Same => Allowed::Same,
        NamespacesFrom::All => Allowed::All,
        NamespacesFrom::Selector => match &allowed.selector {
            Some(selector) => Allowed::Selector(requirements(selector).into_iter().map(requirement).collect()),
            None => nobody(),
        },
        NamespacesFrom::Unknown => nobody(),
    }
}

/// A selector that no namespace matches.
fn nobody() -> Allowed {
    Allowed::Selector(vec![Requirement { key: "".into(), test: LabelTest::In(Vec::new()) }])
}

fn requirement(requirement: messaging::Requirement) -> Requirement {
    let test = match requirement.test {
        messaging::LabelTest::In(values) => LabelTest::In(values),
        messaging::LabelTest::NotIn(values) => LabelTest::NotIn(values),
        messaging::LabelTest::Exists => LabelTest::Exists,
        messaging::LabelTest::DoesNotExist => LabelTest::DoesNotExist,
    };
    Requirement { key: requirement.key, test }
}

#[cfg(test)]
mod tests;
