//! Objects and their history. Everything that the real one does to an object is done here: versions, uids,
//! generations, finalizers, namespaces that go away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use waystation::api::ADDRESS_FINALIZER;

use super::service::shown;

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plural {
    RouterConfigs,
    AddressSpaces,
    Addresses,
    Namespaces,
    Secrets,
    Leases,
    Services,
    EndpointSlices,
    Ingresses,
    IngressClasses,
}

impl Plural {
    pub const ALL: [Self; 10] = [
        Self::RouterConfigs,
        Self::AddressSpaces,
        Self::Addresses,
        Self::Namespaces,
        Self::Secrets,
        Self::Leases,
        Self::Services,
        Self::EndpointSlices,
        Self::Ingresses,
        Self::IngressClasses,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::RouterConfigs => "routerconfigs",
            Self::AddressSpaces => "addressspaces",
            Self::Addresses => "addresses",
            Self::Namespaces => "namespaces",
            Self::Secrets => "secrets",
            Self::Leases => "leases",
            Self::Services => "services",
            Self::EndpointSlices => "endpointslices",
            Self::Ingresses => "ingresses",
            Self::IngressClasses => "ingressclasses",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plural| plural.as_str() == text)
    }

    fn types(self) -> (&'static str, &'static str) {
        match self {
            Self::RouterConfigs => ("waystation.dev/v1alpha1", "RouterConfig"),
            Self::AddressSpaces => ("waystation.dev/v1alpha1", "AddressSpace"),
            Self::Addresses => ("waystation.dev/v1alpha1", "Address"),
            Self::Namespaces => ("v1", "Namespace"),
            Self::Secrets => ("v1", "Secret"),
            Self::Leases => ("coordination.k8s.io/v1", "Lease"),
            Self::Services => ("v1", "Service"),
            Self::EndpointSlices => ("discovery.k8s.io/v1", "EndpointSlice"),
            Self::Ingresses => ("networking.k8s.io/v1", "Ingress"),
            Self::IngressClasses => ("networking.k8s.io/v1", "IngressClass"),
        }
    }

    /// Of no namespace.
    pub fn cluster_scoped(self) -> bool {
        matches!(self, Self::Namespaces | Self::IngressClasses)
    }

    /// Only ever listed and watched by metadata.
    pub fn metadata_only(self) -> bool {
        matches!(self, Self::Namespaces | Self::Secrets)
    }
}

/// Names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub plural: Plural,
    pub namespace: String,
    pub name: String,
}

impl Id {
    pub fn new(plural: Plural, namespace: &str, name: &str) -> Self {
        Self { plural, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Objects of one page, the version of the list, and the token of the next page.
pub type Page = (Vec<Arc<Value>>, u64, Option<String>);

/// Why a request brought nothing: the code and a word.
pub type Refusal = (u16, &'static str);

/// One event of a watch.
pub struct Change {
    pub version: u64,
    pub at: Instant,
    pub id: Id,
    pub line: Bytes,
}

/// Everything at one moment.
#[derive(Clone)]
pub struct Snapshot(BTreeMap<Id, Arc<Value>>);

/// See the module.
pub struct Store {
    pub version: u64,
    pub objects: BTreeMap<Id, Arc<Value>>,
    history: BTreeMap<u64, Change>,
    /// Objects as watches show them: writing JSON is most of what a simulation costs.
    texts: BTreeMap<Id, Bytes>,
    /// Watches cannot begin before this version.
    pub compacted: u64,
    uids: u64,
    /// Whether new Addresses get the finalizer at admission.
    pub policy: bool,
    moved: [Arc<Notify>; 10],
    /// Labels that objects had when they were made, also of those that are gone: nobody changes any.
    pub labels: BTreeMap<Id, Value>,
    pages: BTreeMap<u64, (Vec<Arc<Value>>, u64)>,
    began: Instant,
    /// Addresses that went without having been seen to be deleted: by uid.
    pub unseen: BTreeSet<String>,
}

/// Seconds since 1970 when a simulation begins.
pub const EPOCH_S: i64 = 1_800_000_000;

impl Store {
    pub fn new(policy: bool) -> Self {
        Self {
            version: 100,
            objects: BTreeMap::new(),
            history: BTreeMap::new(),
            texts: BTreeMap::new(),
            compacted: 0,
            uids: 0,
            policy,
            moved: Default::default(),
            labels: BTreeMap::new(),
            pages: BTreeMap::new(),
            began: Instant::now(),
            unseen: BTreeSet::new(),
        }
    }

    /// Notified at every change of a kind.
    pub fn moved(&self, plural: Plural) -> Arc<Notify> {
        Arc::clone(&self.moved[plural as usize])
    }

    pub fn wake_all(&self) {
        for moved in &self.moved {
            moved.notify_waiters();
        }
    }

    pub fn get(&self, id: &Id) -> Option<&Arc<Value>> {
        self.objects.get(id)
    }

    /// An object as JSON text.
    pub fn text(&self, id: &Id, metadata_only: bool) -> Result<Bytes, Refusal> {
        let object = self.objects.get(id).ok_or((404, "NotFound"))?;
        let known = self.texts.get(id).filter(|_| metadata_only == id.plural.metadata_only());
        Ok(known.cloned().unwrap_or_else(|| shown(object, metadata_only).into()))
    }

    /// All of a kind, by namespace and name.
    pub fn all(&self, plural: Plural) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.objects.range(Id::new(plural, "", "")..).take_while(move |(id, _)| id.plural == plural)
    }

    /// Changes of a kind after a version.
    pub fn since(&self, plural: Plural, version: u64) -> impl Iterator<Item = &Change> {
        self.history.range(version + 1..).map(|(_, change)| change).filter(move |change| change.id.plural == plural)
    }

    fn now(&self) -> String {
        let at = EPOCH_S + i64::try_from(self.began.elapsed().as_secs()).unwrap();
        k8s_openapi::jiff::Timestamp::from_second(at).unwrap().to_string()
    }

    fn record(&mut self, id: &Id, word: &str, object: Value) -> Arc<Value> {
        self.version += 1;
        let mut object = object;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        let seen = shown(&object, id.plural.metadata_only());
        let before = format!(r#"{{"type":"{word}","object":"#);
        let line = Bytes::from(format!("{before}{seen}}}\n"));
        let text = line.slice(before.len()..before.len() + seen.len());
        let change = Change { version: self.version, at: Instant::now(), id: id.clone(), line };
        self.history.insert(self.version, change);
        if word == "DELETED" {
            self.objects.remove(id);
            self.texts.remove(id);
        } else {
            self.texts.insert(id.clone(), text);
            self.objects.insert(id.clone(), Arc::clone(&object));
        }
        self.moved[id.plural as usize].notify_waiters();
        if word == "DELETED" && id.plural == Plural::AddressSpaces {
            self.collect(uid(&object));
        }
        object
    }

    /// What belongs to an object goes with it.
    fn collect(&mut self, owner: &str) {
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|reference| reference["uid"] == owner))
        };
        let children = [Plural::Services, Plural::EndpointSlices].into_iter().flat_map(|plural| self.all(plural));
        let gone: Vec<Id> = children.filter(|(_, object)| owned(object)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            let _ = self.delete(&id);
        }
    }

    /// Creates an object out of everything but its metadata; `finalizers` and `annotations` may come with it.
    pub fn create(&mut self, id: &Id, body: &Value) -> Result<Arc<Value>, Refusal> {
        if self.objects.contains_key(id) {
            return Err((409, "AlreadyExists"));
        }
        if !id.plural.cluster_scoped() {
            match self.objects.get(&Id::new(Plural::Namespaces, "", &id.namespace)) {
                None => return Err((404, "NotFound")),
                Some(namespace) if deleting(namespace) => return Err((403, "Forbidden")),
                Some(_) => {}
            }
        }
        self.uids += 1;
        let (api_version, kind) = id.plural.types();
        let mut object = body.clone();
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let created = self.now();
        let metadata = object["metadata"].as_object_mut();
        let mut metadata = metadata.map(std::mem::take).unwrap_or_default();
        metadata.insert("name".into(), id.name.as_str().into());
        if !id.namespace.is_empty() {
            metadata.insert("namespace".into(), id.namespace.as_str().into());
        }
        metadata.insert("uid".into(), format!("uid-{}", self.uids).into());
        metadata.insert("generation".into(), 1.into());
        metadata.insert("creationTimestamp".into(), created.into());
        metadata.insert("managedFields".into(), json!([{ "manager": "somebody" }]));
        if self.policy && id.plural == Plural::Addresses {
            metadata.insert("finalizers".into(), json!([ADDRESS_FINALIZER]));
        }
        if let Some(labels) = metadata.get("labels") {
            self.labels.insert(id.clone(), labels.clone());
        }
        object["metadata"] = metadata.into();
        Ok(self.record(id, "ADDED", object))
    }

    /// Changes an object. The generation rises when the spec differs; an object that is being deleted and has no
    /// finalizer left is gone; a change of nothing is none.
    pub fn update(&mut self, id: &Id, change: impl FnOnce(&mut Value)) -> Result<Arc<Value>, Refusal> {
        let before = Arc::clone(self.objects.get(id).ok_or((404, "NotFound"))?);
        let mut after = (*before).clone();
        change(&mut after);
        if after["metadata"]["finalizers"].as_array().is_some_and(Vec::is_empty)
            && let Some(metadata) = after["metadata"].as_object_mut()
        {
            metadata.remove("finalizers");
        }
        if after == *before {
            return Ok(before);
        }
        if after["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
            after["metadata"]["generation"] = (generation + 1).into();
        }
        let gone = deleting(&after) && finalizers(&after).is_empty();
        Ok(self.record(id, if gone { "DELETED" } else { "MODIFIED" }, after))
    }

    /// Deletes an object, or begins to.
    pub fn delete(&mut self, id: &Id) -> Result<(), Refusal> {
        let object = self.objects.get(id).ok_or((404, "NotFound"))?;
        if finalizers(object).is_empty() {
            let object = (**object).clone();
            self.record(id, "DELETED", object);
            return Ok(());
        }
        if deleting(object) {
            return Ok(());
        }
        let (now, generation) = (self.now(), object["metadata"]["generation"].as_i64().unwrap_or_default());
        self.update(id, |object| {
            object["metadata"]["deletionTimestamp"] = now.into();
            object["metadata"]["generation"] = (generation + 1).into();
        })?;
        Ok(())
    }

    /// One page of a list, and the token of the next.
    pub fn list(&mut self, matching: impl Fn(&Id) -> bool, limit: usize, token: Option<&str>) -> Result<Page, Refusal> {
        let (mut rest, version) = match token {
            Some(token) => {
                let kept = token.parse().ok().and_then(|token: u64| self.pages.remove(&token));
                kept.ok_or((410, "Expired"))?
            }
            None => {
                let all = self.objects.iter().filter(|(id, _)| matching(id)).map(|(_, o)| Arc::clone(o)).collect();
                (all, self.version)
            }
        };
        if rest.len() <= limit {
            return Ok((rest, version, None));
        }
        let later = rest.split_off(limit);
        self.uids += 1;
        let token = self.uids;
        self.pages.insert(token, (later, version));
        Ok((rest, version, Some(token.to_string())))
    }

    /// Forgets where everybody was: who wants to go on from there is told so. A watch that is open goes on.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.pages.clear();
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.objects.clone())
    }

    /// As after a restore of etcd with a bumped revision: objects as they were, versions only ever rise.
    pub fn restore(&mut self, snapshot: Snapshot) {
        let Snapshot(objects) = snapshot;
        for (id, object) in &self.objects {
            let back = objects.get(id).is_some_and(|then| uid(then) == uid(object));
            if id.plural == Plural::Addresses && !back {
                self.unseen.insert(uid(object).to_owned());
            }
        }
        let there: BTreeSet<String> = objects.values().map(|object| uid(object).to_owned()).collect();
        let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned);
        self.objects = objects;
        self.objects.retain(|_, object| owner(object).is_none_or(|owner| there.contains(&owner)));
        self.texts.clear();
        self.version += 10_000;
        self.history.clear();
        self.compact();
    }
}

/// What a watch of metadata shows.
pub fn partial(object: &Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
    })
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub fn deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// A condition of an object's status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}
