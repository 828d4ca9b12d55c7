//! Parses the arguments and runs one subcommand.

use std::io::Write;

use clap::Parser;
use waystation::api::crds;
use waystation::cli::{Cli, Command, CrdsArgs};
use waystation::operator;

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Operator(args) => operator::process::run(args),
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
