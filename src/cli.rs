//! Flags, environment names and defaults of every subcommand.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::api;

/// A Kubernetes operator for AMQP 1.0 addresses on message brokers, and for HAProxy without reloads.
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
    /// Run the operator: make brokers hold what Addresses say, and tell how that stands in their status.
    Operator(OperatorArgs),
    /// Run the agent beside a HAProxy: make it serve what Ingresses say.
    Edge(EdgeArgs),
    /// Keep a HAProxy running from the files that the agent writes, whatever becomes of either.
    Supervise(SuperviseArgs),
    /// What `supervise` starts: becomes a program that ends with it.
    #[command(hide = true)]
    SuperviseChild(SuperviseChildArgs),
    /// Before an uninstall: take the operator's finalizers off all objects of a controllerName, so that their namespaces can
    /// be deleted without it. What brokers and routers hold stays.
    ReleaseFinalizers(ReleaseArgs),
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

/// Flags of `waystation operator`. The cluster is that of the kubeconfig (`KUBECONFIG`, `~/.kube/config`), or the one
/// that the process runs in.
#[derive(Clone, Debug, Args)]
#[command(after_help = OPERATOR_EXAMPLES)]
pub struct OperatorArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Where /livez, /readyz and /metrics are served.
    #[arg(long, env = "WAYSTATION_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Writes to the API server at a time.
    #[arg(long, env = "WAYSTATION_WRITE_CONCURRENCY", value_name = "COUNT", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=512))]
    pub write_concurrency: u16,
    /// Those of all that follow the API server.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags that tell one installation of the operator from another.
#[derive(Clone, Debug, Args)]
pub struct InstallationArgs {
    /// Which installation: that of the RouterConfigs whose spec.controllerName is this, and of no others.
    #[arg(long, env = "WAYSTATION_CONTROLLER_NAME", value_name = "NAME", default_value = api::DEFAULT_CONTROLLER)]
    pub controller_name: String,
    /// Namespace of the Lease. Default: that of the service account, else waystation-system.
    #[arg(long, env = "WAYSTATION_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the Lease by which one replica leads. Default: the controller name.
    #[arg(long, env = "WAYSTATION_LEASE_NAME", value_name = "NAME")]
    lease_name: Option<String>,
}

impl InstallationArgs {
    /// Name of the Lease by which one replica leads.
    pub fn lease_name(&self) -> &str {
        self.lease_name.as_deref().unwrap_or(&self.controller_name)
    }
}

/// Flags of all that follow the API server.
#[derive(Clone, Debug, Args)]
pub struct CommonArgs {
    /// After how long a leader that is silent is replaced; at least 3s.
    #[arg(long, env = "WAYSTATION_LEASE_DURATION", value_name = "DURATION", default_value = "15s", value_parser = lease)]
    pub lease_duration: Duration,
    /// How objects are first read: page by page, or as a stream (needs WatchList in the API server).
    #[arg(long, env = "WAYSTATION_WATCH_MODE", value_enum, value_name = "MODE", default_value_t = WatchMode::List)]
    pub watch_mode: WatchMode,
    /// Objects in a page of a list.
    #[arg(long, env = "WAYSTATION_PAGE_SIZE", value_name = "COUNT", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub page_size: u32,
    /// How often what a broker or HAProxy holds is read and compared again; at least 1s.
    #[arg(long, env = "WAYSTATION_RESYNC_INTERVAL", value_name = "DURATION", default_value = "10m", value_parser = resync)]
    pub resync_interval: Duration,
    /// How log lines look. What is logged is said by RUST_LOG, such as waystation=debug.
    #[arg(long, env = "WAYSTATION_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Flags of `waystation edge`. The cluster is that of the kubeconfig (`KUBECONFIG`, `~/.kube/config`), or the one that the
/// process runs in.
#[derive(Clone, Debug, Args)]
#[command(after_help = EDGE_EXAMPLES)]
pub struct EdgeArgs {
    /// The RouterConfig that is served; it has spec.edge.
    #[arg(long, env = "WAYSTATION_ROUTER_CONFIG", value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub router_config: String,
    /// Where HAProxy's files are, and its sockets, shared with whoever runs it: an absolute path that is the same there.
    /// Keys are in it; it belongs in memory.
    #[arg(long, env = "WAYSTATION_FOLDER", value_name = "FOLDER", default_value = "/run/waystation")]
    pub folder: PathBuf,
    /// Start a HAProxy (3.4 or newer), for a single machine: a supervisor of its own keeps it, also when this process
    /// ends. Its number is in FOLDER/supervise.lock, its log in FOLDER/supervise.log. Default: somebody else runs
    /// HAProxy from the folder.
    #[arg(long, env = "WAYSTATION_HAPROXY", value_name = "PATH")]
    pub haproxy: Option<PathBuf>,
    /// HAProxy's runtime socket. Default: FOLDER/haproxy.sock.
    #[arg(long, env = "WAYSTATION_RUNTIME_SOCKET", value_name = "PATH")]
    pub runtime_socket: Option<PathBuf>,
    /// The socket of HAProxy's master (-S). Default: FOLDER/master.sock.
    #[arg(long, env = "WAYSTATION_MASTER_SOCKET", value_name = "PATH")]
    pub master_socket: Option<PathBuf>,
    /// What this agent is called in the RouterConfig's status: unique among its agents. Default: the host name.
    #[arg(long, env = "WAYSTATION_EDGE_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of Leases. Default: that of the service account, else waystation-edge.
    #[arg(long, env = "WAYSTATION_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Where /livez, /readyz and /metrics are served.
    #[arg(long, env = "WAYSTATION_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    pub listen: SocketAddr,
    /// Those of all that follow the API server.
    #[command(flatten)]
    pub common: CommonArgs,
}

const EDGE_EXAMPLES: &str = "\
Examples:
  Beside a container that runs `waystation supervise` from the same folder:
    waystation edge --router-config edge/main --folder /run/waystation
  On a single machine, with a HAProxy of its own that goes on without it:
    KUBECONFIG=admin.conf waystation edge --router-config edge/main --folder /run/waystation --haproxy /usr/sbin/haproxy";

/// Flags of `waystation release-finalizers`. The cluster is that of the kubeconfig (`KUBECONFIG`, `~/.kube/config`), or the
/// one that the process runs in.
#[derive(Clone, Debug, Args)]
#[command(after_help = RELEASE_EXAMPLES)]
pub struct ReleaseArgs {
    /// Of which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// The operator's Deployment, in the same namespace: it is scaled to 0 first, and its end is waited for. Default:
    /// fail when an operator leads.
    #[arg(long, value_name = "NAME")]
    pub stop_deployment: Option<String>,
    /// Also release objects whose space or RouterConfig is gone, so that it cannot be told whose they are.
    #[arg(long)]
    pub include_orphans: bool,
    /// Print what would be released, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How long all of it may take.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = resync)]
    pub deadline: Duration,
    /// Writes to the API server at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub concurrency: u16,
    /// How log lines look.
    #[arg(long, env = "WAYSTATION_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

const RELEASE_EXAMPLES: &str = "\
Examples:
  What would be released:
    waystation release-finalizers --dry-run
  Of a second installation, whose operator is stopped first:
    waystation release-finalizers --controller-name desk --namespace desk --stop-deployment waystation";

/// Flags of `waystation supervise`.
#[derive(Clone, Debug, Args)]
pub struct SuperviseArgs {
    /// Where HAProxy's files are: an absolute path. They are waited for.
    #[arg(long, env = "WAYSTATION_FOLDER", value_name = "FOLDER", default_value = "/run/waystation")]
    pub folder: PathBuf,
    /// HAProxy, 3.4 or newer.
    #[arg(long, env = "WAYSTATION_HAPROXY", value_name = "PATH", default_value = "haproxy")]
    pub haproxy: PathBuf,
    /// On SIGTERM HAProxy takes no new connections; for how long the others may go on.
    #[arg(long, env = "WAYSTATION_GRACE", value_name = "DURATION", default_value = "30s", value_parser = api::parse_duration)]
    pub grace: Duration,
    /// The file that standard output and standard error are, if it is to be kept from growing for ever: at 10 MB it is
    /// renamed to FILE.old, in the place of the one before. Default: somebody else takes the output.
    #[arg(long, env = "WAYSTATION_LOG_FILE", value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// How log lines look.
    #[arg(long, env = "WAYSTATION_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Flags of `waystation supervise-child`.
#[derive(Clone, Debug, Args)]
pub struct SuperviseChildArgs {
    /// The supervisor's process.
    #[arg(long)]
    pub parent: u32,
    /// A program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

const OPERATOR_EXAMPLES: &str = "\
Examples:
  In a cluster, two replicas of which one leads:
    waystation operator
  On a desk, with a kubeconfig, beside the installation of the cluster:
    KUBECONFIG=admin.conf waystation operator --controller-name desk --listen 127.0.0.1:8080
  With logs for a machine, and all that the drives do:
    RUST_LOG=waystation=info,waystation::drive=debug waystation operator --log-format json";

/// How objects are first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchMode {
    /// Page by page.
    List,
    /// As the beginning of a watch.
    Stream,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

fn at_least(text: &str, least: Duration) -> Result<Duration, String> {
    let duration = api::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < least {
        return Err(format!("at least {}", api::format_duration(least)));
    }
    Ok(duration)
}

fn lease(text: &str) -> Result<Duration, String> {
    at_least(text, Duration::from_secs(3))
        .map_err(|error| format!("{error}: a shorter one leaves no time for an answer between two renewals"))
}

fn resync(text: &str) -> Result<Duration, String> {
    at_least(text, Duration::from_secs(1))
}

fn namespaced(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(text.to_owned())
        }
        _ => Err("write NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_fit_together_and_have_defaults() {
        Cli::command().debug_assert();
        let Command::Operator(args) = Cli::parse_from(["waystation", "operator"]).command else { panic!() };
        assert_eq!(args.installation.controller_name, "waystation");
        assert_eq!(args.common.lease_duration, Duration::from_secs(15));
    }

    #[test]
    fn an_edge_needs_a_router_config_with_its_namespace() {
        let parse = |value: &str| Cli::try_parse_from(["waystation", "edge", "--router-config", value]);
        assert!(parse("edge/main").is_ok());
        for wrong in ["main", "/main", "edge/", "a/b/c"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(Cli::try_parse_from(["waystation", "edge"]).is_err());
    }

    #[test]
    fn durations_are_checked() {
        let parse = |flag: &str| Cli::try_parse_from(["waystation", "operator", flag]);
        assert!(parse("--lease-duration=1s").unwrap_err().to_string().contains("at least 3s"));
        assert!(parse("--resync-interval=soon").is_err());
        assert!(parse("--resync-interval=30s").is_ok());
    }
}
