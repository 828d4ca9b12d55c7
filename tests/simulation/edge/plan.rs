//! What a seed decides: the edges, the faults, and what people and machines do, in order.

use super::world::Faults;
use crate::seeds;

/// A namespace and the name of an object in it.
pub type Name = (&'static str, &'static str);

/// Words of an option and its value, without a prefix.
pub type Options = Vec<(&'static str, &'static str)>;

/// A path, its type, and the Service that it leads to.
pub type Path = (&'static str, &'static str, &'static str);

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    PutIngress {
        name: Name,
        class: &'static str,
        host: &'static str,
        paths: Vec<Path>,
        secret: Option<&'static str>,
        options: Options,
    },
    DeleteIngress(Name),
    PutService(Name, Options),
    DeleteService(Name),
    /// Numbers of addresses, and how each stands.
    PutSlice {
        name: Name,
        service: &'static str,
        endpoints: Vec<(u8, &'static str)>,
    },
    DeleteSlice(Name),
    /// With contents of that number.
    PutSecret(Name, u64),
    DeleteSecret(Name),
    /// The second IngressClass: whether it is ours.
    PutClass(bool),
    DeleteClass,
    LabelNamespace(&'static str, bool),
    ConfigAllowed(bool),
    ConfigOption(&'static str, Option<&'static str>),
    ConfigPublish(u64),
    ConfigDefaultCertificate(bool),
    ConfigOwnership(bool),
    /// A field that needs a reload.
    ConfigThreads(u64),
    Crash {
        agent: usize,
        down_ms: u64,
    },
    /// Right after so many more changes have been carried out anywhere.
    CrashAfter {
        agent: usize,
        changes: u64,
    },
    Stop {
        agent: usize,
        down_ms: u64,
    },
    /// HAProxy ends at once, and is started from the files.
    Kill {
        machine: usize,
        down_ms: u64,
    },
    /// The same, right after so many more changes.
    KillAfter {
        machine: usize,
        changes: u64,
    },
    /// Somebody else has it reloaded.
    Reload(usize),
    Cut(usize),
    /// Servers have sessions that keep them from being removed.
    Busy {
        machine: usize,
        ms: u64,
    },
    /// The next command that begins so is refused.
    RefuseNext {
        machine: usize,
        what: &'static str,
    },
    /// HAProxy can make nothing of contents with this number.
    Refuse {
        machine: usize,
        number: u64,
    },
    DiskFull {
        machine: usize,
        ms: u64,
    },
    DiskSlow {
        machine: usize,
        ms: u64,
    },
    /// Somebody spoils a file.
    Litter {
        machine: usize,
        pick: u64,
    },
    /// Somebody takes something away from the process.
    Drift {
        machine: usize,
        pick: u64,
    },
    ApiOutage(u64),
    CutWatches,
    Compact,
    StallWatches {
        agent: usize,
        ms: u64,
    },
    /// Faults cease, everything comes to rest and is compared.
    Quiet,
}

impl Action {
    /// Whether it is a change of objects, and no fault or restart.
    pub fn is_of_people(&self) -> bool {
        matches!(
            self,
            Self::PutIngress { .. }
                | Self::DeleteIngress(_)
                | Self::PutService(..)
                | Self::DeleteService(_)
                | Self::PutSlice { .. }
                | Self::DeleteSlice(_)
                | Self::PutSecret(..)
                | Self::DeleteSecret(_)
                | Self::PutClass(_)
                | Self::DeleteClass
                | Self::LabelNamespace(..)
                | Self::ConfigAllowed(_)
                | Self::ConfigOption(..)
                | Self::ConfigPublish(_)
                | Self::ConfigDefaultCertificate(_)
                | Self::ConfigOwnership(_)
                | Self::Quiet
        )
    }
}

pub type Step = seeds::Step<Action>;

/// The edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Each with a HAProxy of its own.
    pub agents: usize,
    /// Lists come by the watch.
    pub stream: bool,
    pub page: u32,
    pub faults: Faults,
}

/// All of it.
pub type Plan = seeds::Plan<Setup, Action>;

pub use crate::plan::NAMESPACES;
