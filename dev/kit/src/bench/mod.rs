//! The bench: what the shipped operator costs and how fast it is, seen from outside.
//!
//! The operator runs as its users run it: the built binary with its shipped flags, under its own ServiceAccount, against
//! a real API server. Figures come from a watching client, the API server's audit log and `/proc`, never from the
//! operator itself. A baseline (the same requests by a client of our own, on a twin kind that the operator does not
//! know) runs in the same call, turn about, so that ratios hold on a noisy machine.

mod add;
mod bulk;
mod client;
mod data;
mod delete;
mod edge;
mod figures;
mod idle;
mod management;
mod process;
mod restart;
mod router_restart;
mod routers;
mod smoke;
mod stage;
mod watcher;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use figures::Figures;
use stage::Stage;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Two addresses are created among `size` others: time until both are Ready
    AddressAdd,
    /// `size` addresses are created at once: time until the last is Ready
    AddressBulk,
    /// Nothing happens: requests, CPU, memory
    Idle,
    /// The operator is stopped and killed, and started again: writes, time until it follows changes
    OperatorRestart,
    /// `size` addresses are deleted at once: time until the last is gone
    DeleteAll,
    /// A router is killed and comes back empty: time until it is filled, writes
    RouterRestart,
    /// edge: who serves `size` Ingresses starts from nothing: time until HAProxy serves all of them
    EdgeSync,
    /// edge: an endpoint is replaced: time until HAProxy has the new one in service
    EdgeEndpoint,
    /// edge: an Ingress comes, a path comes, a host goes, a certificate is another one: time until that is served
    EdgeRoute,
    /// edge: requests for all hosts: HAProxy's CPU for each, beside a bare HAProxy's
    EdgeTraffic,
    /// edge: `events` changes, `rate` a second, under load: reloads, failed requests, CPU, what is wrong in the end
    EdgeChurn,
    /// All of the edge
    Edge,
    /// All of the above, one after the other
    All,
}

impl Scenario {
    fn is_of_edge(self) -> bool {
        use Scenario::{Edge, EdgeChurn, EdgeEndpoint, EdgeRoute, EdgeSync, EdgeTraffic};
        matches!(self, Edge | EdgeChurn | EdgeEndpoint | EdgeRoute | EdgeSync | EdgeTraffic)
    }
}

const EXAMPLES: &str = "\
Examples:
  Addresses on a stand-in for a broker, at two sizes:
    dev/bench address-add --size 1000,10000
  What a start of the edge takes, and what one endpoint does:
    dev/bench edge-sync --size 1000,4800,17000
    dev/bench edge-endpoint --size 1000,17000,100000
  2,000 changes at the edge in 40 seconds, under load:
    dev/bench edge-churn --size 4800 --rate 50 --events 2000
  All of the edge, with figures for a program:
    dev/bench edge --size 1000 --json edge.json
  The same of another controller, beside it:
    dev/bench edge-churn --size 1000 --peer 'other=exec /opt/other/run --class $BENCH_CLASS --socket $BENCH_FOLDER/haproxy.sock'
  What CI does, three minutes:
    dev/bench all --smoke";

/// What is on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Broker {
    /// A process that speaks Artemis' management protocol and answers at once
    Standin,
    /// A real Artemis, with its journal forced to the disk
    Artemis,
    /// None: for spaces that need no broker
    None,
}

/// Arguments of the bench.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What is measured
    scenario: Scenario,
    /// How many addresses, or Ingresses, there are; several are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    size: Vec<usize>,
    /// How often it is measured [default: 300 for address-add, edge-endpoint and edge-route, 5 for edge-sync, 3 for
    /// operator-restart and edge-traffic; for idle seconds / 60]
    #[arg(long)]
    rounds: Option<usize>,
    /// Routers that stand before the broker: spaces are of type standard then
    #[arg(long, default_value_t = 0)]
    routers: usize,
    /// How many AddressSpaces there are; several are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "200")]
    spaces: Vec<usize>,
    /// What is on the other side
    #[arg(long, value_enum, default_value_t = Broker::Standin)]
    broker: Broker,
    /// address-add: measure while this many addresses are created in one space
    #[arg(long, default_value_t = 0)]
    behind_bulk: usize,
    /// Leave the admission policy out, which adds the finalizer to new Addresses without a request
    #[arg(long)]
    without_policy: bool,
    /// edge-churn: changes a second
    #[arg(long, default_value_t = 50)]
    rate: usize,
    /// edge-churn: changes in all
    #[arg(long, default_value_t = 2000)]
    events: usize,
    /// edge: measure another controller as well, on the same cluster after ours; may be given more than once. The command
    /// is run by a shell, with KUBECONFIG (all rights), BENCH_CLASS (of the Ingresses; it may make that IngressClass its
    /// own), BENCH_HTTP and BENCH_HTTPS (ports of 127.0.0.1), BENCH_HAPROXY (an executable) and BENCH_FOLDER (empty). It
    /// stays in the foreground; HAProxy's runtime socket is BENCH_FOLDER/haproxy.sock, that of its master, by which reloads
    /// are counted, BENCH_FOLDER/master.sock
    #[arg(long, value_name = "NAME=COMMAND", value_parser = edge::Peer::parse)]
    peer: Vec<edge::Peer>,
    /// Also write the figures to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Small, and with a verdict: checks that the scenarios work and what must be exact, not times
    #[arg(long)]
    smoke: bool,
}

/// Measures and prints. False: a check of `--smoke` failed.
///
/// # Errors
/// When something could not be measured.
pub async fn run(arguments: &Arguments) -> Result<bool> {
    let (of_edge, every) = (arguments.scenario.is_of_edge(), arguments.scenario == Scenario::All);
    if of_edge || every {
        // API servers take no loopback addresses for endpoints.
        crate::process::enter_own_network()?;
    }
    ensure!(
        arguments.broker != Broker::None || arguments.routers > 0,
        "every address of a brokered space is on a broker: use --broker standin or artemis, or --routers N"
    );
    ensure!(
        arguments.scenario != Scenario::RouterRestart || arguments.routers > 0 || arguments.smoke,
        "router-restart needs routers: --routers N"
    );
    let mut all = Vec::new();
    for (size, spaces, routers) in if of_edge { Vec::new() } else { stages(arguments) } {
        if size < 2 || spaces == 0 {
            bail!("--size {size} --spaces {spaces}: at least 2 addresses and a space");
        }
        let mut stage = Stage::set(arguments, size, spaces, routers).await?;
        let outcome = measure(arguments, &mut stage, &mut all).await;
        if let Err(error) = outcome {
            return Err(error.context(stage.last_words()));
        }
    }
    if of_edge || every {
        edge::run(arguments, &mut all).await?;
    }
    figures::print(&all, !arguments.without_policy);
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&all.iter().map(Figures::json).collect::<Vec<_>>())?;
        std::fs::write(path, json + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(!arguments.smoke || smoke::judge(&all))
}

/// Addresses, spaces and routers of each stage, in their order.
fn stages(arguments: &Arguments) -> Vec<(usize, usize, usize)> {
    if arguments.smoke {
        let usual = arguments.spaces[0];
        return match arguments.scenario {
            Scenario::All => vec![(smoke::SIZE, usual, 0), (smoke::ROUTED_SIZE, usual, 2)],
            Scenario::RouterRestart => vec![(smoke::ROUTED_SIZE, usual, 2)],
            _ => vec![(smoke::SIZE, usual, arguments.routers)],
        };
    }
    let all = arguments.size.iter().flat_map(|size| arguments.spaces.iter().map(move |spaces| (*size, *spaces)));
    all.map(|(size, spaces)| (size, spaces, arguments.routers)).collect()
}

async fn measure(arguments: &Arguments, stage: &mut Stage, all: &mut Vec<Figures>) -> Result<()> {
    let rounds = |usual: usize, smoke: usize| arguments.rounds.unwrap_or(if arguments.smoke { smoke } else { usual });
    let every = arguments.scenario == Scenario::All;
    let wanted = |scenario| every || arguments.scenario == scenario;
    if wanted(Scenario::AddressBulk) {
        all.push(bulk::run(stage).await?);
    }
    if wanted(Scenario::AddressAdd) {
        stage.fill().await?;
        let behind =
            if every && arguments.behind_bulk == 0 { stage.size().min(2000) / 2 } else { arguments.behind_bulk };
        if every || behind == 0 {
            all.push(add::run(stage, rounds(300, 20)).await?);
        }
        if behind > 0 {
            all.push(add::behind(stage, behind).await?);
        }
    }
    if wanted(Scenario::Idle) {
        stage.fill().await?;
        all.push(idle::run(stage, if arguments.smoke { 8 } else { 60 * rounds(2, 1) as u64 }).await?);
    }
    if wanted(Scenario::RouterRestart) && !stage.routers.is_empty() {
        stage.fill().await?;
        all.push(router_restart::run(stage, rounds(3, 1)).await?);
    }
    if wanted(Scenario::OperatorRestart) {
        stage.fill().await?;
        all.push(restart::run(stage, rounds(3, 1)).await?);
    }
    if wanted(Scenario::DeleteAll) {
        stage.fill().await?;
        all.push(delete::run(stage).await?);
    }
    Ok(())
}

/// Says on standard error what is being done.
fn say(text: &str) {
    eprintln!("bench: {text}");
}
