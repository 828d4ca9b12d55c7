//! Where the programs are that the kit starts: `dev/setup` builds and fetches them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};

/// The folders that `dev/setup` filled.
#[derive(Debug, Clone)]
pub struct Tools {
    kubernetes: PathBuf,
    artemis: PathBuf,
    haproxy: PathBuf,
}

impl Tools {
    /// The program of that name: `etcd`, `etcd-kv`, `kube-apiserver`, `kube-controller-manager`, `kubectl`, `helm`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.kubernetes.join(name)
    }

    /// The folder of the programs, to be put in front of `PATH`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.kubernetes
    }

    /// Where the Artemis distribution was unpacked.
    #[must_use]
    pub fn artemis_home(&self) -> &Path {
        &self.artemis
    }

    /// HAProxy, with its own libraries.
    #[must_use]
    pub fn haproxy(&self) -> &Path {
        &self.haproxy
    }
}

/// Finds the programs, running `dev/setup` when nobody has (`WAYSTATION_TOOLS`, `WAYSTATION_ARTEMIS` and
/// `WAYSTATION_HAPROXY` tell that somebody has). The first call on a fresh machine builds them: about ten minutes, with progress on standard error.
pub fn tools() -> Result<&'static Tools> {
    static TOOLS: OnceLock<Result<Tools, String>> = OnceLock::new();
    TOOLS.get_or_init(|| find().map_err(|error| format!("{error:#}"))).as_ref().map_err(|text| anyhow!("{text}"))
}

/// The repository that this kit belongs to.
#[must_use]
pub fn repository() -> &'static Path {
    // dev/kit is two below the root, so both parents exist.
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.parent().and_then(Path::parent).unwrap_or(kit)
}

fn find() -> Result<Tools> {
    let told = |name| std::env::var_os(name).map(PathBuf::from);
    if let (Some(kubernetes), Some(artemis), Some(haproxy)) =
        (told("WAYSTATION_TOOLS"), told("WAYSTATION_ARTEMIS"), told("WAYSTATION_HAPROXY"))
    {
        return Ok(Tools { kubernetes, artemis, haproxy });
    }
    let setup = repository().join("dev/setup");
    let output = Command::new(&setup)
        .arg("--print")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{} could not be run", setup.display()))?;
    ensure!(output.status.success(), "dev/setup failed; what it said is above");
    let text = String::from_utf8(output.stdout)?;
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(PathBuf::from)
            .with_context(|| format!("dev/setup did not print {name}"))
    };
    Ok(Tools {
        kubernetes: value("WAYSTATION_TOOLS")?,
        artemis: value("WAYSTATION_ARTEMIS")?,
        haproxy: value("WAYSTATION_HAPROXY")?,
    })
}
