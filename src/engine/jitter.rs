//! Waits between attempts: doubling, with a random part from a seed that is injected.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A small seeded source of numbers (SplitMix64). Clones share its state.
#[derive(Clone, Debug)]
pub struct Jitter(Arc<Mutex<u64>>);

impl Jitter {
    /// The source of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A source of its own for one of many, such as a target.
    pub fn fork(&self) -> Self {
        Self::seeded(self.next())
    }

    /// Somewhere between half of `wait` and `wait`.
    pub fn spread(&self, wait: Duration) -> Duration {
        let half = wait / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_micros(self.next() % micros)
    }
}

/// The wait before attempt number `attempt` (from 0): `first`, doubling up to `cap`, without jitter.
pub fn doubling(first: Duration, cap: Duration, attempt: u32) -> Duration {
    first.saturating_mul(1_u32 << attempt.min(20)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_spread_over_their_upper_half() {
        let (first, cap) = (Duration::from_millis(100), Duration::from_secs(10));
        assert_eq!(doubling(first, cap, 0), first);
        assert_eq!(doubling(first, cap, 3), Duration::from_millis(800));
        assert_eq!(doubling(first, cap, 40), cap);
        let jitter = Jitter::seeded(7);
        for _ in 0..100 {
            let wait = jitter.spread(cap);
            assert!(wait >= cap / 2 && wait <= cap, "{wait:?}");
        }
        assert_eq!(Jitter::seeded(7).next(), Jitter::seeded(7).next());
    }
}
