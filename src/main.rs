//! Parses the arguments and runs one subcommand.

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use waystation::agent;
use waystation::api::crds;
use waystation::cli::{Cli, Command, CrdsArgs};
use waystation::{operator, supervise};

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Operator(args) => operator::process::run(args),
        Command::ReleaseFinalizers(args) => operator::release::run(&args),
        Command::Edge(args) => agent::process::run(args),
        Command::Supervise(args) => agent::process::run_supervise(args),
        Command::SuperviseChild(args) => {
            let (program, arguments) = args.command.split_first().context("no program")?;
            Err(supervise::become_program(args.parent, program, arguments).into())
        }
        Command::Crds(args) => run_crds(&args),
    }
}

fn run_crds(args: &CrdsArgs) -> anyhow::Result<()> {
    if let Some(dir) = &args.check {
        return Ok(crds::check(dir)?);
    }
    if let Some(dir) = &args.dir {
        return Ok(crds::write(dir)?);
    }
    Ok(std::io::stdout().lock().write_all(crds::multi_document()?.as_bytes())?)
}
