//! The bare lister: what it takes to read the same objects and do nothing with them.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, ListParams, PartialObjectMeta};
use serde::de::DeserializeOwned;

/// As the agent's default is.
const PAGE: u32 = 500;

/// Lists all kinds at a time, page by page.
pub(super) async fn all(client: &kube::Client) -> Result<Duration> {
    let began = Instant::now();
    // Tasks, as in an agent: objects are decoded on all cores.
    let lists = [
        tokio::spawn(pages(Api::<Ingress>::all(client.clone()))),
        tokio::spawn(pages(Api::<Service>::all(client.clone()))),
        tokio::spawn(pages(Api::<EndpointSlice>::all(client.clone()))),
        tokio::spawn(pages(Api::<Secret>::all(client.clone()))),
        tokio::spawn(pages(Api::<PartialObjectMeta<Namespace>>::all(client.clone()))),
    ];
    for list in lists {
        list.await??;
    }
    Ok(began.elapsed())
}

async fn pages<K: Clone + Debug + DeserializeOwned>(api: Api<K>) -> Result<usize> {
    let (mut count, mut params) = (0, ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        count += page.items.len();
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(count),
        }
    }
}
