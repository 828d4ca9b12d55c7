//! Flags, environment names and defaults of every subcommand.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A Kubernetes operator for AMQP 1.0 addresses on message brokers.
#[derive(Debug, Parser)]
#[command(name = "waystation", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the CustomResourceDefinitions, or write them to files, or check those files.
    Crds(CrdsArgs),
}

/// Flags of `waystation crds`.
#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Write one file per kind into this folder instead of printing.
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub dir: Option<PathBuf>,
    /// Compare the files in this folder with the types, write nothing, and fail when they differ.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "crds")]
    pub check: Option<PathBuf>,
}
