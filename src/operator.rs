//! Wiring of `waystation operator`.
