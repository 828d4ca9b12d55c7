//! From watches to inputs of the model: one task per kind.
//!
//! A RouterConfig of another controller name never enters the model, only its key does, so that its spaces and
//! addresses are left alone. What does not decode is named by an event and counted; its deletion counts like any
//! other.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::convert::{self, ConvertError};
use super::events::EventQueue;
use super::meter::Meter;
use super::readiness::Readiness;
use super::references::References;
use super::watch::{Options, Seen, Watch};
use crate::api;
use crate::engine::jitter::Jitter;
use crate::messaging::ids::{Key, Kind};
use crate::messaging::input::{Input, Source};
use crate::messaging::output::Event;
use crate::messaging::reason;

/// Nobody takes inputs any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody takes inputs any more")]
pub struct Closed;

/// What every source needs.
#[derive(Clone)]
pub struct Sources {
    /// For watches.
    pub client: Client,
    /// The installation whose RouterConfigs are ours.
    pub controller_name: Arc<str>,
    /// Identity of the cluster, for default owners.
    pub cluster_uid: Arc<str>,
    /// Bounds.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Where inputs go.
    pub inputs: mpsc::Sender<Input>,
    /// Which Secrets are to be read.
    pub secrets: References,
    /// Which Services are to be followed.
    pub services: References,
    /// Told when a first list is complete.
    pub readiness: Readiness,
    /// Events about what does not decode.
    pub events: EventQueue,
    /// Counts.
    pub meter: Arc<dyn Meter>,
}

impl Sources {
    fn watch<K>(&self, name: &'static str) -> Watch<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let api = Api::all(self.client.clone());
        Watch::new(api, name, self.options.clone(), self.jitter.fork(), Arc::clone(&self.meter))
    }

    /// Watches RouterConfigs.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn router_configs(self) -> Result<(), Closed> {
        let (ours, uid) = (Arc::clone(&self.controller_name), Arc::clone(&self.cluster_uid));
        let (secrets, services) = (self.secrets.clone(), self.services.clone());
        let forget = |key: &Key| {
            secrets.set(key, []);
            services.set(key, []);
        };
        let convert = |object: &api::RouterConfig, listed| {
            let key = convert::key(&object.metadata);
            if *object.spec.controller_name != *ours {
                forget(&key);
                return Ok(Input::ForeignConfig(key));
            }
            if object.spec.messaging.is_none() {
                // An edge's: none that a space could use.
                forget(&key);
                return Ok(Input::Vanished(Kind::RouterConfig, key));
            }
            let config = convert::router_config(object, &uid, listed)?;
            secrets.set(&key, config.secrets().cloned());
            services.set(&key, config.router_service.iter().map(|reference| reference.service.clone()));
            Ok(Input::RouterConfig(Box::new(config)))
        };
        self.follow(Kind::RouterConfig, Source::RouterConfigs, convert, forget).await
    }

    /// Watches AddressSpaces.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn address_spaces(self) -> Result<(), Closed> {
        let secrets = self.secrets.clone();
        let convert = |object: &api::AddressSpace, listed| {
            let space = convert::address_space(object, listed)?;
            let named = space.connectors.iter().filter_map(|connector| connector.credentials.clone());
            secrets.set_of(Kind::AddressSpace, &space.meta.key, named);
            Ok(Input::AddressSpace(Box::new(space)))
        };
        let forget = |key: &Key| secrets.set_of(Kind::AddressSpace, key, []);
        self.follow(Kind::AddressSpace, Source::AddressSpaces, convert, forget).await
    }

    /// Watches Addresses.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn addresses(self) -> Result<(), Closed> {
        let convert = |object: &api::Address, listed| {
            convert::address(object, listed).map(|address| Input::Address(Box::new(address)))
        };
        self.follow(Kind::Address, Source::Addresses, convert, |_| ()).await
    }

    /// Watches the labels of namespaces.
    ///
    /// # Errors
    /// When nobody takes inputs any more.
    pub async fn namespaces(self) -> Result<(), Closed> {
        let mut watch = self.watch::<PartialObjectMeta<Namespace>>("Namespace");
        loop {
            let input = match watch.next().await {
                Seen::Applied { object, .. } => {
                    let name = object.metadata.name.as_deref().unwrap_or_default();
                    let labels = Some(convert::labels(&object.metadata));
                    if object.metadata.deletion_timestamp.is_some() {
                        self.send(Input::Namespace(name.into(), labels)).await?;
                        Input::NamespaceGoing(name.into())
                    } else {
                        Input::Namespace(name.into(), labels)
                    }
                }
                Seen::Deleted(key) => Input::Namespace(key.name, None),
                Seen::Complete => Input::Synced(Source::Namespaces),
            };
            self.send(input).await?;
        }
    }

    async fn follow<K>(
        self,
        kind: Kind,
        source: Source,
        convert: impl Fn(&K, bool) -> Result<Input, ConvertError>,
        vanished: impl Fn(&Key),
    ) -> Result<(), Closed>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let mut watch = self.watch::<DeserializeGuard<K>>(kind.as_str());
        let mut undecodable: BTreeMap<Key, String> = BTreeMap::new();
        loop {
            let (key, input) = match watch.next().await {
                Seen::Applied { object, listed } => {
                    let key = convert::key(object.meta());
                    let input = match &object.0 {
                        Ok(object) => convert(object, listed).map_err(|error| error.to_string()),
                        Err(invalid) => Err(invalid.error.clone()),
                    };
                    match input {
                        Ok(input) => (key, input),
                        Err(error) => {
                            if undecodable.get(&key) != Some(&error) {
                                let uid = object.meta().uid.as_deref().unwrap_or_default();
                                self.tell_undecodable(kind, &key, uid, &error);
                                undecodable.insert(key.clone(), error);
                                self.meter.undecodable(kind.as_str(), undecodable.len());
                            }
                            self.send(Input::Undecodable(kind, key)).await?;
                            continue;
                        }
                    }
                }
                Seen::Deleted(key) => {
                    vanished(&key);
                    (key.clone(), Input::Vanished(kind, key))
                }
                Seen::Complete => {
                    self.send(Input::Synced(source)).await?;
                    continue;
                }
            };
            if undecodable.remove(&key).is_some() {
                self.meter.undecodable(kind.as_str(), undecodable.len());
            }
            self.send(input).await?;
        }
    }

    async fn send(&self, input: Input) -> Result<(), Closed> {
        let synced = if let Input::Synced(source) = &input { Some(*source) } else { None };
        self.inputs.send(input).await.map_err(|_| Closed)?;
        if let Some(source) = synced {
            self.readiness.synced(source);
        }
        Ok(())
    }

    fn tell_undecodable(&self, kind: Kind, key: &Key, uid: &str, error: &str) {
        tracing::warn!(kind = kind.as_str(), %key, error, "cannot be read; what it had stays as it is");
        self.events.tell(Event {
            kind,
            key: key.clone(),
            uid: uid.into(),
            warning: true,
            reason: reason::event::INVALID,
            message: format!("cannot be read by this version, and what it had stays as it is: {error}"),
        });
    }
}
