//! Flags and environment names.
