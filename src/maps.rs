//! Hash maps whose order of iteration is the same in every process, so that a simulation repeats.

use std::hash::BuildHasher;

/// Hashes with fixed seeds. Names come from the API server, which bounds their length and number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl BuildHasher for Fixed {
    type Hasher = ahash::AHasher;

    fn build_hasher(&self) -> Self::Hasher {
        ahash::RandomState::with_seeds(1, 2, 3, 4).build_hasher()
    }
}

/// A map with fixed seeds.
pub type Map<K, V> = std::collections::HashMap<K, V, Fixed>;
/// A set with fixed seeds.
pub type Set<K> = std::collections::HashSet<K, Fixed>;
