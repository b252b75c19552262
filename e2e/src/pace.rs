//! How fast the machine is taken to be, and how much of it the lab asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many times longer than on a real machine everything may take. Emulated processors are slower by an order of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(u32);

impl Patience {
    /// A real machine's.
    pub const REAL: Self = Self(1);

    /// From what was typed.
    ///
    /// # Errors
    /// No whole number from 1 to 100.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number @ 1..=100) => Ok(Self(number)),
            _ => Err("a whole number from 1 to 100".to_owned()),
        }
    }

    /// A limit that is right for a real machine, for this one.
    #[must_use]
    pub fn of(self, limit: Duration) -> Duration {
        limit.saturating_mul(self.0)
    }

    /// How often to try what must succeed once, where a slow machine may spoil a try.
    #[must_use]
    pub fn tries(self) -> u32 {
        self.0
    }

    /// How many datagrams a UDP client may send until it is answered. On a real machine one does. A slow one loses some where nobody can be blamed: while it
    /// looks for a neighbour again, or with the endpoint that is removed before its answer has left.
    #[must_use]
    pub fn datagrams(self) -> u32 {
        if self == Self::REAL { 1 } else { 6 }
    }

    /// So many as many of at a time on a real machine, on this one; some in any case.
    #[must_use]
    pub fn at_once(self, real: usize) -> usize {
        (real / usize::try_from(self.0).unwrap_or(usize::MAX)).max(4)
    }
}

impl std::fmt::Display for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How the rows of the matrix are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Scales all limits of time.
    pub patience: Patience,
    /// Of what differs in protocol and family alone, two of the four ways; and fewer connections for each.
    pub thin: bool,
}

impl Pace {
    /// So many connections as a real machine is asked for; under a thin pace the fewest that show something.
    #[must_use]
    pub fn connections(self, full: usize, thin: usize) -> usize {
        if self.thin { thin } else { full }
    }
}

/// Answers that did not come, after which no more of them are waited for patiently: so many are no matter of speed.
const TOO_MANY: u64 = 8;

/// The slowest answer so far: nothing is known to be silent before twice that time has passed. And how often none came.
#[derive(Debug, Default)]
pub struct Slowest(AtomicU64, AtomicU64);

impl Slowest {
    /// An answer took this long.
    pub fn record(&self, took: Duration) {
        self.0.fetch_max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// None came in time.
    pub fn record_none(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    /// How long to wait for an answer that takes so long at most on a real machine.
    #[must_use]
    pub fn answer(&self, limit: Duration, patience: Patience) -> Duration {
        if self.1.load(Ordering::Relaxed) < TOO_MANY { patience.of(limit) } else { limit.max(self.silence()) }
    }

    /// How long nothing must come back to count as silence.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed).saturating_mul(2))
    }
}

/// Connections that should be answered, and how many of them were not and are put down to chance.
#[derive(Debug, Default)]
pub struct Chance(AtomicU64, AtomicU64);

impl Chance {
    /// One is made.
    pub fn made(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// It was lost.
    pub fn lost(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    /// Made, and lost of these.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.0.load(Ordering::Relaxed), self.1.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_stretches_time_and_narrows_crowds() {
        assert_eq!(Patience::REAL.datagrams(), 1);
        let patience = Patience::parse("8").unwrap();
        assert_eq!(patience.of(Duration::from_millis(250)), Duration::from_secs(2));
        assert_eq!((patience.at_once(64), patience.at_once(8)), (8, 4));
        assert_eq!(Patience::REAL.at_once(64), 64);
        for text in ["0", "-1", "101", "1.5", ""] {
            assert!(Patience::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn silence_lasts_longer_than_any_answer() {
        let slowest = Slowest::default();
        assert_eq!(slowest.silence(), Duration::ZERO);
        for millis in [20, 900, 30] {
            slowest.record(Duration::from_millis(millis));
        }
        assert_eq!(slowest.silence(), Duration::from_millis(1800));
    }

    #[test]
    fn patience_ends_when_too_many_answers_fail() {
        let slowest = Slowest::default();
        let patience = Patience::parse("10").unwrap();
        let limit = || slowest.answer(Duration::from_secs(3), patience);
        for _ in 0..TOO_MANY {
            assert_eq!(limit(), Duration::from_secs(30));
            slowest.record_none();
        }
        assert_eq!(limit(), Duration::from_secs(3));
        slowest.record(Duration::from_secs(5));
        assert_eq!(limit(), Duration::from_secs(10));
    }
}
