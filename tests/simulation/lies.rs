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
}

impl Lie {
    const ALL: [Self; 10] = [
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
    ];

    /// Whether it takes routers to be told.
    pub fn needs_routers(self) -> bool {
        matches!(self, Self::EarlyRoute | Self::EagerListener | Self::ForgottenLinks | Self::SkippedRemoval)
    }

    /// By its name in the code.
    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|lie| format!("{lie:?}") == name).expect(name)
    }
}
