//! `waystation release-finalizers` as a process: arguments, progress and the time that it may take.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use kube::Client;

use super::process::namespace;
use crate::api;
use crate::cli::ReleaseArgs;
use crate::cluster::release::{await_no_leader, held, release, stop};
use crate::process::{UNUSABLE, log};

const PROGRESS: Duration = Duration::from_secs(2);

/// Runs `waystation release-finalizers` to its end.
///
/// # Errors
/// When an operator leads, when something may not be done, or when it takes longer than it may.
pub fn run(args: &ReleaseArgs) -> anyhow::Result<()> {
    log(args.log_format);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = kube::Config::infer().await.context("no kubeconfig, and not in a cluster")?;
        let client = Client::try_from(config).context(UNUSABLE)?;
        let done = AtomicUsize::new(0);
        match tokio::time::timeout(args.deadline, carry_out(args, &client, &done)).await {
            Ok(outcome) => outcome,
            Err(_) => anyhow::bail!(
                "not within {}; {} objects were released. It can be repeated",
                api::format_duration(args.deadline),
                done.load(Ordering::Relaxed)
            ),
        }
    })
}

async fn carry_out(args: &ReleaseArgs, client: &Client, done: &AtomicUsize) -> anyhow::Result<()> {
    let namespace = namespace(&args.installation);
    let (controller, lease) = (&args.installation.controller_name, args.installation.lease_name());
    if args.dry_run {
        let objects = held(client, controller, args.include_orphans).await?;
        let mut out = std::io::stdout().lock();
        for object in &objects {
            writeln!(out, "{object}")?;
        }
        writeln!(out, "{} finalizers of {} would be released", objects.len(), controller)?;
        return Ok(());
    }
    if let Some(deployment) = &args.stop_deployment {
        tracing::info!(namespace, deployment, "stopping the operator");
        stop(client, &namespace, deployment).await?;
    }
    await_no_leader(client, &namespace, lease, args.stop_deployment.is_some()).await?;
    let objects = held(client, controller, args.include_orphans).await?;
    tracing::info!(controller, objects = objects.len(), "releasing finalizers");
    let progress = async {
        loop {
            tokio::time::sleep(PROGRESS).await;
            tracing::info!(released = done.load(Ordering::Relaxed), of = objects.len(), "releasing finalizers");
        }
    };
    tokio::select! {
        outcome = release(client, &objects, usize::from(args.concurrency), done) => outcome?,
        () = progress => {}
    }
    tracing::info!(released = done.load(Ordering::Relaxed), "done; what brokers and routers hold stays there");
    Ok(())
}
