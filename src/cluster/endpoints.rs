//! The endpoints of Services that RouterConfigs name, by their EndpointSlices.
//!
//! One watch for each such Service, with its label as selector: of all the others the API server sends nothing. Of a
//! slice only addresses and ports are kept. What is told is told whole, and only once all slices have been listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::convert;
use super::meter::Meter;
use super::references::References;
use super::sources::Closed;
use super::watch::{Options, Seen, Watch};
use crate::engine::jitter::Jitter;
use crate::engine::loops::pass_on;
use crate::messaging::endpoints::{Endpoint, Endpoints, Port};
use crate::messaging::ids::Key;
use crate::messaging::input::Input;

/// Follows the EndpointSlices of referenced Services.
pub struct EndpointSlices {
    /// For watches.
    pub client: Client,
    /// Which Services to follow.
    pub references: References,
    /// Where endpoints go.
    pub inputs: mpsc::Sender<Input>,
    /// Bounds of watches.
    pub options: Options,
    /// Spreads retries.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
}

impl EndpointSlices {
    /// Runs until nobody takes inputs.
    ///
    /// # Errors
    /// Then.
    pub async fn run(self) -> Result<(), Closed> {
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<Key, AbortHandle> = BTreeMap::new();
        loop {
            let dropped = self.references.take_dropped();
            let referenced = self.references.all();
            watches.retain(|service, task| {
                // Who forgot it must hear of it again, from the beginning.
                let keep = referenced.contains(service) && !dropped.contains(service);
                if !keep {
                    task.abort();
                }
                keep
            });
            for service in referenced {
                watches.entry(service.clone()).or_insert_with(|| tasks.spawn(self.follow(service)));
            }
            tokio::select! {
                biased;
                () = self.references.moved() => {}
                Some(ended) = tasks.join_next() => pass_on(ended).unwrap_or(Ok(()))?,
                () = self.inputs.closed() => return Err(Closed),
            }
        }
    }

    fn follow(&self, service: Key) -> impl Future<Output = Result<(), Closed>> + Send + use<> {
        let api: Api<DeserializeGuard<EndpointSlice>> = Api::namespaced(self.client.clone(), &service.namespace);
        let (options, jitter) = (self.options.clone(), self.jitter.fork());
        let watch = Watch::new(api, "EndpointSlice", options, jitter, Arc::clone(&self.meter))
            .labels(format!("kubernetes.io/service-name={}", service.name));
        Service { key: service, inputs: self.inputs.clone(), slices: BTreeMap::new(), told: None }.run(watch)
    }
}

/// One Service.
struct Service {
    key: Key,
    inputs: mpsc::Sender<Input>,
    slices: BTreeMap<Key, Vec<Endpoint>>,
    told: Option<Endpoints>,
}

impl Service {
    async fn run(mut self, mut watch: Watch<DeserializeGuard<EndpointSlice>>) -> Result<(), Closed> {
        // While a list is under way, what is known is partly old and partly new.
        let mut listing = true;
        loop {
            match watch.next().await {
                Seen::Applied { object, listed } => {
                    let key = convert::key(object.meta());
                    listing |= listed;
                    match &object.0 {
                        Ok(slice) => {
                            self.slices.insert(key, endpoints(slice));
                        }
                        Err(invalid) => {
                            tracing::warn!(slice = %key, error = %invalid.error, "an EndpointSlice cannot be read; \
                                           what it said before stays");
                        }
                    }
                }
                Seen::Deleted(key) => {
                    self.slices.remove(&key);
                }
                Seen::Complete => listing = false,
            }
            if !listing {
                self.tell().await?;
            }
        }
    }

    async fn tell(&mut self) -> Result<(), Closed> {
        let mut all: Vec<Endpoint> = self.slices.values().flatten().cloned().collect();
        all.sort_unstable();
        let now = Endpoints { slices: self.slices.len(), all };
        if self.told.as_ref() != Some(&now) {
            self.told = Some(now.clone());
            self.inputs.send(Input::Endpoints(self.key.clone(), now)).await.map_err(|_| Closed)?;
        }
        Ok(())
    }
}

/// What is kept of a slice.
fn endpoints(slice: &EndpointSlice) -> Vec<Endpoint> {
    let ports: Arc<[Port]> = slice
        .ports
        .iter()
        .flatten()
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .map(|port| Port {
            name: port.name.as_deref().unwrap_or_default().into(),
            number: port.port.and_then(|number| u16::try_from(number).ok()),
        })
        .collect();
    let family = match slice.address_type.as_str() {
        "IPv4" => 0,
        "IPv6" => 1,
        _ => 2,
    };
    slice
        .endpoints
        .iter()
        .filter(|endpoint| {
            // One that ends and serves nobody any more does not come back.
            let conditions = endpoint.conditions.as_ref();
            let is = |condition: fn(&k8s_openapi::api::discovery::v1::EndpointConditions) -> Option<bool>| {
                conditions.and_then(condition)
            };
            !(is(|c| c.terminating) == Some(true) && is(|c| c.serving) == Some(false))
        })
        .filter_map(|endpoint| {
            let pod = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
            Some(Endpoint {
                pod: pod.and_then(|pod| pod.name.as_deref()).map(Arc::from),
                family,
                // All of them mean the same; the first is the one to use.
                host: endpoint.addresses.first()?.as_str().into(),
                ports: Arc::clone(&ports),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
