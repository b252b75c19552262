//! How long to wait before the next attempt: growing, and never the same for two agents.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// A source of numbers that differ from agent to agent. Not for secrets.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Dice that fall differently in every process.
    pub(super) fn new() -> Self {
        Self::seeded(RandomState::new().hash_one(0_u64))
    }

    /// Dice that fall as the seed says.
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A duration from `low` to `high`, all of them equally likely to the millisecond.
    pub(super) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_millis()).unwrap_or(u64::MAX - 1);
        low + Duration::from_millis(self.next() % (span + 1))
    }
}

/// The bounds of the delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The first delay is up to this.
    pub(super) first: Duration,
    /// No delay is longer.
    pub(super) longest: Duration,
}

/// Delays that double. The first one is anything up to its bound, so that agents which lost their server together do not come
/// back together; later ones keep at least half of theirs.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    bounds: Bounds,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, failures: 0 }
    }

    /// It went well: the next delay is a first one.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The delay after one more failure.
    pub(super) fn next(&mut self, dice: &mut Dice) -> Duration {
        let Bounds { first, longest } = self.bounds;
        let bound = first.saturating_mul(1 << self.failures.min(20)).min(longest);
        let low = if self.failures == 0 { Duration::ZERO } else { bound / 2 };
        self.failures = self.failures.saturating_add(1);
        dice.between(low, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { first: Duration::from_millis(800), longest: Duration::from_secs(30) };

    #[test]
    fn delays_double_up_to_the_longest() {
        let (mut backoff, mut dice) = (Backoff::new(BOUNDS), Dice::seeded(1));
        let mut bound = BOUNDS.first;
        assert!(backoff.next(&mut dice) <= bound);
        for _ in 0..50 {
            bound = (bound * 2).min(BOUNDS.longest);
            let delay = backoff.next(&mut dice);
            assert!(delay >= bound / 2 && delay <= bound, "{delay:?} for {bound:?}");
        }
        assert_eq!(bound, BOUNDS.longest);
        backoff.reset();
        assert!(backoff.next(&mut dice) <= BOUNDS.first);
    }

    #[test]
    fn a_thousand_agents_come_back_spread_out() {
        let mut buckets = [0; 8];
        for seed in 0..1000 {
            let delay = Backoff::new(BOUNDS).next(&mut Dice::seeded(seed));
            buckets[usize::try_from(delay.as_millis()).expect("small") / 101] += 1;
        }
        assert!(buckets.iter().all(|n| *n > 60), "{buckets:?}");
    }

    #[test]
    fn processes_differ() {
        let draw = || Dice::new().between(Duration::ZERO, Duration::from_secs(1 << 40));
        assert_ne!(draw(), draw());
    }
}
