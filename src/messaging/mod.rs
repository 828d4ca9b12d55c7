//! The pure model of addresses.
