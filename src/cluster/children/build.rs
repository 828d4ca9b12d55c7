//! The Services and EndpointSlices of a space as the API has them: what is applied, and what of an object matters.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::api;
use crate::cluster::convert;
use crate::messaging::exposure::{Exposure, ServiceWish, service_name};
use crate::messaging::ids::{Key, Kind};

/// On every child: the name of its space.
pub const SPACE_LABEL: &str = "waystation.dev/address-space";
/// On every child: the name of the endpoint that it is for.
pub const ENDPOINT_LABEL: &str = "waystation.dev/endpoint";
const MANAGED_BY: &str = "waystation";

/// The kinds of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKind {
    /// What clients connect to.
    Service,
    /// Where that leads.
    EndpointSlice,
}

impl ChildKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Service, Self::EndpointSlice];

    /// As in `kind:`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        let (group, plural) = match self {
            Self::Service => ("", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "endpointslices"),
        };
        ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
            kind: self.as_str().to_owned(),
            plural: plural.to_owned(),
        }
    }
}

/// One child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildId {
    /// Its namespace and name.
    pub key: Key,
    /// Its kind.
    pub kind: ChildKind,
}

/// A child as it is on the API server, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub uid: String,
    pub version: u64,
    /// The space that owns it, by name and uid.
    pub owner: Option<(Key, String)>,
    /// The endpoint that it says it is for.
    pub endpoint: Arc<str>,
    /// What may differ from what is applied.
    pub body: Value,
    /// Name or address of its load balancer.
    pub ingress: Option<Arc<str>>,
}

/// What matters of an object.
pub fn observe(kind: ChildKind, object: &DynamicObject) -> Observed {
    let meta = &object.metadata;
    let owners = meta.owner_references.iter().flatten();
    let mut owner = owners.filter(|owner| {
        owner.kind == Kind::AddressSpace.as_str() && owner.api_version.starts_with(&format!("{}/", api::GROUP))
    });
    let namespace = convert::key(meta).namespace;
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let kept: &[&str] = match kind {
        ChildKind::Service => &["spec"],
        ChildKind::EndpointSlice => &["addressType", "endpoints", "ports"],
    };
    let mut body = json!({ "metadata": { "labels": meta.labels, "ownerReferences": meta.owner_references } });
    for field in kept {
        if let Some(value) = object.data.get(field) {
            body[*field] = value.clone();
        }
    }
    let ingress = object.data.pointer("/status/loadBalancer/ingress/0");
    let ingress = ingress.and_then(|first| first["hostname"].as_str().or(first["ip"].as_str()));
    Observed {
        uid: meta.uid.clone().unwrap_or_default(),
        version: convert::version(meta.resource_version.as_deref()),
        owner: owner.next().map(|owner| (Key { namespace, name: owner.name.as_str().into() }, owner.uid.clone())),
        endpoint: label(ENDPOINT_LABEL).unwrap_or_default().into(),
        body,
        ingress: ingress.map(Arc::from),
    }
}

/// All that is applied for one endpoint: its Service first, then where it leads, if that is known.
pub fn wanted(exposure: &Exposure, endpoint: &Arc<str>, wish: &ServiceWish) -> BTreeMap<ChildId, Value> {
    let service = service_name(&exposure.space.name, endpoint);
    let id = |kind, name: &str| ChildId { key: Key::new(exposure.space.namespace.clone(), name), kind };
    let port = wish.protocol.as_str();
    let mut all = BTreeMap::new();
    let mut body = child(exposure, endpoint, ChildKind::Service, &service);
    body["spec"] = json!({
        "type": if wish.load_balancer { "LoadBalancer" } else { "ClusterIP" },
        "ports": [{ "name": port, "port": wish.protocol.port(), "protocol": "TCP" }],
    });
    all.insert(id(ChildKind::Service, &service), body);
    for ((v6, number), addresses) in wish.to.iter().flatten() {
        let family = if *v6 { "IPv6" } else { "IPv4" };
        let name = format!("{service}-{}-{number}", family.to_lowercase());
        let mut body = child(exposure, endpoint, ChildKind::EndpointSlice, &name);
        body["metadata"]["labels"]["kubernetes.io/service-name"] = service.as_str().into();
        body["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = "waystation.dev".into();
        body["addressType"] = family.into();
        body["ports"] = json!([{ "name": port, "port": number, "protocol": "TCP" }]);
        body["endpoints"] = addresses.iter().map(endpoint_of).collect();
        all.insert(id(ChildKind::EndpointSlice, &name), body);
    }
    all
}

fn endpoint_of(address: &IpAddr) -> Value {
    json!({ "addresses": [address.to_string()], "conditions": { "ready": true } })
}

fn child(exposure: &Exposure, endpoint: &Arc<str>, kind: ChildKind, name: &str) -> Value {
    let resource = kind.resource();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": &*exposure.space.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": MANAGED_BY,
                SPACE_LABEL: &*exposure.space.name,
                ENDPOINT_LABEL: &**endpoint,
            },
            // Not blockOwnerDeletion: setting that may need more rights.
            "ownerReferences": [{
                "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
                "kind": Kind::AddressSpace.as_str(),
                "name": &*exposure.space.name,
                "uid": &*exposure.uid,
                "controller": true,
            }],
        },
    })
}

/// Whether what is there has all of what is applied; what else there is belongs to others.
pub fn covers(kind: ChildKind, there: &Value, applied: &Value) -> bool {
    let known = ["metadata", "spec", "addressType", "endpoints", "ports"];
    let labels = |value: &Value| value.pointer("/metadata/labels").cloned().unwrap_or_default();
    let owners = |value: &Value| value.pointer("/metadata/ownerReferences").cloned().unwrap_or_default();
    // Of a slice the lists are one value each; of everything else only ours has to be in them.
    let whole = kind == ChildKind::EndpointSlice;
    within(&labels(there), &labels(applied), false)
        && within(&owners(there), &owners(applied), false)
        && known[1..].iter().all(|field| {
            let nothing = Value::Null;
            let applied = applied.get(field).unwrap_or(&nothing);
            applied.is_null() || within(there.get(field).unwrap_or(&nothing), applied, whole)
        })
}

/// Whether `there` has everything of `applied`; with `whole`, lists have the same length and order.
fn within(there: &Value, applied: &Value, whole: bool) -> bool {
    match (there, applied) {
        (Value::Object(there), Value::Object(applied)) => {
            applied.iter().all(|(key, value)| there.get(key).is_some_and(|there| within(there, value, whole)))
        }
        (Value::Array(there), Value::Array(applied)) if whole => {
            there.len() == applied.len()
                && there.iter().zip(applied).all(|(there, applied)| within(there, applied, whole))
        }
        (Value::Array(there), Value::Array(applied)) => {
            applied.iter().all(|applied| there.iter().any(|there| within(there, applied, whole)))
        }
        (there, applied) => there == applied,
    }
}
