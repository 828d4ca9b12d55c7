//! The drive of one Artemis broker.
