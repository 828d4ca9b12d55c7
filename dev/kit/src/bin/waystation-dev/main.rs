//! `waystation-dev`: what `dev/cluster`, `dev/demo` and `dev/bench` call.

mod cluster;
mod demo;
mod message;
mod router;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use waystation_kit::bench;

#[derive(Parser)]
#[command(name = "waystation-dev", about = "Real clusters and brokers for people who work on Waystation")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A Kubernetes control plane that stays up until it is taken down
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// The whole story: cluster, broker, operator, six addresses, messages through each
    Demo(demo::Arguments),
    /// Measure the operator, or the edge
    Bench(bench::Arguments),
    /// Send one message
    Send(message::Send),
    /// Receive messages and accept them
    Receive(message::Receive),
    /// A stand-in for a broker, for benches: management in memory, no messages, login ANONYMOUS
    Standin {
        /// Where it listens on 127.0.0.1; 0 for a free port
        #[arg(long, default_value_t = 5672)]
        port: u16,
    },
    /// An AMQP router in the foreground: a stand-in that moves messages, or a real qdrouterd
    Router(router::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Cluster(command) => cluster::run(command).await,
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Bench(arguments) => match bench::run(&arguments).await {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Send(arguments) => message::send(&arguments).await,
        Command::Receive(arguments) => message::receive(&arguments).await,
        Command::Standin { port } => waystation_kit::standin::run(port).await,
        Command::Router(arguments) => router::run(&arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
