//! Bugs that are planted in what surrounds the agents, so that an edge as a whole has them: each must be found.

/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Commands are answered before they are carried out: what is refused then was acknowledged.
    EarlyAnswer,
    /// Files are written in the opposite order: lists before what they name.
    ReversedFiles,
    /// The last file of a write is said to be written, and is not.
    PhantomFiles,
    /// A server in use is said to be removed, and is not: nobody tries again.
    PhantomRemoval,
    /// After an agent's restart backends are said to be published, and are not.
    ForgottenPublish,
    /// What changes in an EndpointSlice never reaches a watch.
    LostSlice,
    /// A Lease is replaced without looking at the version that was read.
    BlindLease,
    /// The first status of an Ingress is said to be written, and is not.
    DroppedStatus,
}

impl Lie {
    const ALL: [Self; 8] = [
        Self::EarlyAnswer,
        Self::ReversedFiles,
        Self::PhantomFiles,
        Self::PhantomRemoval,
        Self::ForgottenPublish,
        Self::LostSlice,
        Self::BlindLease,
        Self::DroppedStatus,
    ];

    /// By its name in the code.
    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|lie| format!("{lie:?}") == name).expect(name)
    }
}
