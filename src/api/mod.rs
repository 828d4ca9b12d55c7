//! The custom resources of group `waystation.dev`.
