//! The development kit.
