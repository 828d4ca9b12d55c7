//! From watches to inputs of the edge's model: one task per kind.
//!
//! An object that cannot be read is named by an event and counted, and what it had stays as it is; its deletion counts
//! like any other. Secrets are not here: only those that are referred to are read (see [`super::secrets`]).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::api::Api;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::convert;
use super::publish::Observed;
use crate::api;
use crate::cluster::convert::{ConvertError, key, labels};
use crate::cluster::events::{EventQueue, Told};
use crate::cluster::meter::Meter;
use crate::cluster::readiness::Readiness;
use crate::cluster::sources::Closed;
use crate::cluster::watch::{Options, Seen, Watch};
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::input::Input;
use crate::engine::jitter::Jitter;

/// What every source needs.
#[derive(Clone)]
pub struct Sources {
    /// For watches.
    pub client: Client,
    /// The RouterConfig that is served.
    pub config: Key,
    /// Bounds.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Where inputs go.
    pub inputs: mpsc::Sender<Input>,
    /// Where goes what is told of objects in their status.
    pub observed: mpsc::UnboundedSender<Observed>,
    /// Told when a first list is complete.
    pub readiness: Readiness,
    /// Events about what cannot be read.
    pub events: EventQueue,
    /// Counts.
    pub meter: Arc<dyn Meter>,
}

impl Sources {
    fn watch<K>(&self, api: Api<K>, name: &'static str) -> Watch<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        Watch::new(api, name, self.options.clone(), self.jitter.fork(), Arc::clone(&self.meter))
    }

    /// Watches the RouterConfig.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn router_config(self) -> Result<(), Closed> {
        let api: Api<DeserializeGuard<api::RouterConfig>> =
            Api::namespaced(self.client.clone(), &self.config.namespace);
        let watch = self.watch(api, Kind::RouterConfig.as_str()).fields(format!("metadata.name={}", self.config.name));
        let observed = self.observed.clone();
        let convert = move |object: &api::RouterConfig| {
            let config = Arc::new(convert::router_config(object)?);
            // Once nobody publishes, all ends.
            let _ = observed.send(Observed::Config(Box::new(object.clone())));
            Ok(Input::RouterConfig(config))
        };
        self.follow(watch, Kind::RouterConfig, convert, |_| ()).await
    }

    /// Watches Ingresses of every namespace and class: the model decides whose they are.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn ingresses(self) -> Result<(), Closed> {
        let watch = self.watch(Api::<DeserializeGuard<Ingress>>::all(self.client.clone()), Kind::Ingress.as_str());
        let (observed, vanished) = (self.observed.clone(), self.observed.clone());
        let convert = move |object: &Ingress| {
            let ingress = convert::ingress(object);
            let _ = observed.send(Observed::Ingress {
                key: ingress.meta.key.clone(),
                uid: Arc::clone(&ingress.meta.uid),
                addresses: convert::ingress_addresses(object),
            });
            Ok(Input::Ingress(Arc::new(ingress)))
        };
        self.follow(watch, Kind::Ingress, convert, move |key| {
            let _ = vanished.send(Observed::IngressGone(key.clone()));
        })
        .await
    }

    /// Watches IngressClasses.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn ingress_classes(self) -> Result<(), Closed> {
        let watch =
            self.watch(Api::<DeserializeGuard<IngressClass>>::all(self.client.clone()), Kind::IngressClass.as_str());
        let convert = |object: &IngressClass| Ok(Input::IngressClass(Arc::new(convert::ingress_class(object))));
        self.follow(watch, Kind::IngressClass, convert, |_| ()).await
    }

    /// Watches Services.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn services(self) -> Result<(), Closed> {
        let watch = self.watch(Api::<DeserializeGuard<Service>>::all(self.client.clone()), Kind::Service.as_str());
        let (observed, vanished) = (self.observed.clone(), self.observed.clone());
        let ours = Arc::clone(&self.config.namespace);
        let convert = move |object: &Service| {
            let service = convert::service(object);
            // Only one of the RouterConfig's own namespace can be what is published.
            if service.meta.key.namespace == ours {
                let addresses = convert::service_addresses(object);
                let _ = observed.send(Observed::Service(Arc::clone(&service.meta.key.name), addresses));
            }
            Ok(Input::Service(Arc::new(service)))
        };
        let ours = Arc::clone(&self.config.namespace);
        self.follow(watch, Kind::Service, convert, move |key| {
            if key.namespace == ours {
                let _ = vanished.send(Observed::Service(Arc::clone(&key.name), Vec::new()));
            }
        })
        .await
    }

    /// Watches EndpointSlices.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn endpoint_slices(self) -> Result<(), Closed> {
        let watch =
            self.watch(Api::<DeserializeGuard<EndpointSlice>>::all(self.client.clone()), Kind::EndpointSlice.as_str());
        let convert = |object: &EndpointSlice| Ok(Input::EndpointSlice(Arc::new(convert::endpoint_slice(object))));
        self.follow(watch, Kind::EndpointSlice, convert, |_| ()).await
    }

    /// Watches the labels of namespaces.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn namespaces(self) -> Result<(), Closed> {
        let api = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
        let mut watch = self.watch(api, Kind::Namespace.as_str());
        loop {
            let input = match watch.next().await {
                Seen::Applied { object, .. } => {
                    let name = object.metadata.name.as_deref().unwrap_or_default();
                    Input::Namespace(name.into(), labels(&object.metadata))
                }
                Seen::Deleted(key) => Input::Vanished(Kind::Namespace, key),
                Seen::Complete => Input::Synced(Kind::Namespace),
            };
            self.send(input).await?;
        }
    }

    async fn follow<K>(
        self,
        mut watch: Watch<DeserializeGuard<K>>,
        kind: Kind,
        convert: impl Fn(&K) -> Result<Input, ConvertError>,
        vanished: impl Fn(&Key),
    ) -> Result<(), Closed>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let mut unreadable: BTreeMap<Key, String> = BTreeMap::new();
        loop {
            let (key, input) = match watch.next().await {
                Seen::Applied { object, .. } => {
                    let key = key(object.meta());
                    let input = match &object.0 {
                        Ok(object) => convert(object).map_err(|error| error.to_string()),
                        Err(invalid) => Err(invalid.error.clone()),
                    };
                    match input {
                        Ok(input) => (key, input),
                        Err(error) => {
                            if unreadable.get(&key) != Some(&error) {
                                let uid = object.meta().uid.as_deref().unwrap_or_default();
                                self.tell_unreadable(kind, &key, uid, &error);
                                unreadable.insert(key, error);
                                self.meter.undecodable(kind.as_str(), unreadable.len());
                            }
                            continue;
                        }
                    }
                }
                Seen::Deleted(key) => {
                    vanished(&key);
                    (key.clone(), Input::Vanished(kind, key))
                }
                Seen::Complete => {
                    self.send(Input::Synced(kind)).await?;
                    continue;
                }
            };
            if unreadable.remove(&key).is_some() {
                self.meter.undecodable(kind.as_str(), unreadable.len());
            }
            self.send(input).await?;
        }
    }

    async fn send(&self, input: Input) -> Result<(), Closed> {
        let synced = if let Input::Synced(kind) = &input { Some(*kind) } else { None };
        self.inputs.send(input).await.map_err(|_| Closed)?;
        if let Some(kind) = synced {
            self.readiness.read(kind.as_str());
        }
        Ok(())
    }

    fn tell_unreadable(&self, kind: Kind, key: &Key, uid: &str, error: &str) {
        tracing::warn!(kind = kind.as_str(), %key, error, "cannot be read; what it had stays as it is");
        let message = format!("cannot be read by this version, and what it had stays as it is: {error}");
        self.events.tell(Told::of_edge(&Object::new(kind, key.clone()), uid.into(), "Invalid", message));
    }
}
