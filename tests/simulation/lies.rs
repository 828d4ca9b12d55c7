//! Bugs that are planted in what surrounds the operator, so that the operator as a whole has them: each must be found.

/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A broker's link answers before the broker has done it: what is refused then, or swallowed by a connection that
    /// breaks, was acknowledged.
    EarlyAnswer,
    /// A queue's messages are not counted: it always looks empty.
    EmptyCount,
    /// Adding a finalizer is said to be done, and is not.
    ForgottenFinalizer,
    /// The first status of an Address is said to be written, and is not.
    DroppedStatus,
    /// The first change of an Address never reaches a watch.
    LostEvent,
    /// A Lease is replaced without looking at the version that was read.
    BlindLease,
    /// A router's link answers before the router has done it.
    EarlyRoute,
    /// The same, and what was acknowledged is slow to arrive: the readiness listener overtakes it.
    EagerListener,
    /// Auto-links are made on the first connection to a router only.
    ForgottenLinks,
    /// From a router that was away nothing is ever removed.
    SkippedRemoval,
    /// The links of an Address that stays are never removed: also not those to where it moves away from.
    OpenWay,
    /// The operator reads of more room than a plan gives.
    WideGate,
    /// Whoever lists RouterConfigs reads that the first broker is to be emptied.
    FalseDrain,
    /// What changes in an EndpointSlice never reaches a watch.
    LostSlice,
    /// Services are said to be made, and are not.
    PhantomService,
    /// Connectors to remote hosts are made on the first connection to a router only.
    ForgottenRemotes,
    /// Routers go on with the password that they were given first.
    OldPassword,
    /// The links of forwarders are never removed from routers.
    LeftForwards,
}

/// What an installation must have for a bug to show.
pub enum Needs {
    Nothing,
    Routers,
    Plans,
    Slices,
    Endpoints,
    Remotes,
}

impl Lie {
    const ALL: [Self; 18] = [
        Self::EarlyAnswer,
        Self::EmptyCount,
        Self::ForgottenFinalizer,
        Self::DroppedStatus,
        Self::LostEvent,
        Self::BlindLease,
        Self::EarlyRoute,
        Self::EagerListener,
        Self::ForgottenLinks,
        Self::SkippedRemoval,
        Self::OpenWay,
        Self::WideGate,
        Self::FalseDrain,
        Self::LostSlice,
        Self::PhantomService,
        Self::ForgottenRemotes,
        Self::OldPassword,
        Self::LeftForwards,
    ];

    /// What it takes to be told.
    pub fn needs(self) -> Needs {
        match self {
            Self::EarlyRoute | Self::EagerListener | Self::ForgottenLinks | Self::SkippedRemoval => Needs::Routers,
            Self::OpenWay | Self::WideGate | Self::FalseDrain => Needs::Plans,
            Self::LostSlice => Needs::Slices,
            Self::PhantomService => Needs::Endpoints,
            Self::ForgottenRemotes | Self::OldPassword | Self::LeftForwards => Needs::Remotes,
            _ => Needs::Nothing,
        }
    }

    /// By its name in the code.
    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|lie| format!("{lie:?}") == name).expect(name)
    }
}
