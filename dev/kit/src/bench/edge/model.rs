//! Sizes that this machine cannot serve: the model alone, in a process of its own that `dev/bench` has built.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::figures::Figures;
use super::super::say;

/// Names the program.
const PROGRAM: &str = "WAYSTATION_EDGE_MODEL";

/// One endpoint replaced, `rounds` times.
pub(super) async fn run(size: usize, rounds: usize) -> Result<Figures> {
    say(&format!("{size} ingresses: the model alone"));
    let told = std::env::var_os(PROGRAM).map(PathBuf::from);
    let program =
        told.with_context(|| format!("--size {size} is for the model alone: call dev/bench, which sets {PROGRAM}"))?;
    let arguments = [size.to_string(), rounds.to_string()];
    let output = tokio::process::Command::new(&program).args(arguments).stderr(Stdio::inherit()).output().await?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let keys = ["model_ms", "event_p50_us", "event_p99_us", "rss_mb"];
    keys.into_iter().try_fold(Figures::new("edge-endpoint, model alone", size, rounds), |figures, key| {
        Ok(figures.with(key, answer[key].as_f64().with_context(|| format!("no {key}"))?))
    })
}
