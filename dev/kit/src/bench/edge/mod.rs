//! The bench of the edge: what the shipped agent costs and how fast HAProxy follows the cluster, seen from outside.
//!
//! The observer knows nothing of who drives HAProxy: it asks HAProxy's socket and sends requests. Beside each figure
//! stands what the same takes the least that could do it (a bare lister, a bare watcher, a bare HAProxy), in the same run.

mod churn;
mod data;
mod endpoint;
mod list;
mod metrics;
mod model;
mod observer;
mod route;
mod stage;
mod subject;
mod sync;
mod traffic;
mod watcher;
mod web;

use anyhow::Result;

use super::figures::Figures;
use super::{Arguments, Scenario, smoke};
use stage::EdgeStage;
pub(super) use subject::Peer;

/// Measures all that was asked for of the edge.
pub(super) async fn run(arguments: &Arguments, all: &mut Vec<Figures>) -> Result<()> {
    let small = vec![smoke::EDGE_SIZE];
    for size in if arguments.smoke { &small } else { &arguments.size } {
        if *size > data::LARGEST {
            all.push(model::run(*size, arguments.rounds.unwrap_or(2000)).await?);
            continue;
        }
        let mut stage = EdgeStage::set(*size).await?;
        if let Err(error) = measure(arguments, &mut stage, all).await {
            return Err(error.context(stage.last_words()));
        }
        for peer in &arguments.peer {
            stage.play(peer).await?;
            let mut figures = Vec::new();
            if let Err(error) = measure(arguments, &mut stage, &mut figures).await {
                return Err(error.context(stage.last_words()));
            }
            all.extend(figures.into_iter().map(|figures| figures.of(&peer.name)));
        }
        stage.stop().await?;
    }
    Ok(())
}

async fn measure(arguments: &Arguments, stage: &mut EdgeStage, all: &mut Vec<Figures>) -> Result<()> {
    let rounds = |usual: usize, smoke: usize| arguments.rounds.unwrap_or(if arguments.smoke { smoke } else { usual });
    let wanted =
        |scenario| matches!(arguments.scenario, Scenario::All | Scenario::Edge) || arguments.scenario == scenario;
    if wanted(Scenario::EdgeSync) {
        all.push(sync::run(stage, rounds(5, 1)).await?);
    }
    if wanted(Scenario::EdgeEndpoint) {
        all.push(endpoint::run(stage, rounds(300, 20)).await?);
    }
    if wanted(Scenario::EdgeRoute) {
        all.push(route::run(stage, rounds(300, 5)).await?);
    }
    if wanted(Scenario::EdgeTraffic) {
        all.extend(traffic::run(stage, rounds(3, 1), if arguments.smoke { 0.3 } else { 3.0 }).await?);
    }
    if wanted(Scenario::EdgeChurn) {
        let events = if arguments.smoke { arguments.events.min(100) } else { arguments.events };
        all.push(churn::run(stage, arguments.rate, events).await?);
    }
    Ok(())
}
