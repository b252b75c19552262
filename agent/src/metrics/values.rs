//! Values that the loop's thread changes and a scrape reads: each costs an addition, or a lock that is held for as long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Buckets of durations: 1 ms, doubling, to 16.384 s (core spec 8, D).
pub const DURATIONS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Buckets of the network programming latency (core spec 8, N).
pub const PROGRAMMING: &[f64] = &[
    0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0,
    18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0, 32.0, 33.0, 34.0,
    35.0, 36.0, 37.0, 38.0, 39.0, 40.0, 41.0, 42.0, 43.0, 44.0, 45.0, 46.0, 47.0, 48.0, 49.0, 50.0, 51.0,
    52.0, 53.0, 54.0, 55.0, 56.0, 57.0, 58.0, 59.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 100.0,
    105.0, 110.0, 115.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0,
];

/// Buckets of sizes and numbers, from one, growing by four.
pub const SIZES: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// What a histogram has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Upper ends of the buckets, ascending, without the infinite one.
    pub bounds: &'static [f64],
    /// Observations of each bucket alone; one more than there are bounds.
    pub counts: Vec<u64>,
    /// Sum of all observations.
    pub sum: f64,
}

impl Observed {
    /// How many observations there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Observations by size.
#[derive(Debug)]
pub struct Histogram(Mutex<Observed>);

impl Histogram {
    /// One with these buckets.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Self(Mutex::new(Observed { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }))
    }

    /// Observes a value. One that equals a bound belongs below it.
    pub fn observe(&self, value: f64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seen.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = seen.counts.get_mut(at) {
            *count += 1;
        }
        seen.sum += value;
    }

    /// Observes a duration, in seconds.
    pub fn observe_duration(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// All of it, at one moment.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_below_it() {
        let histogram = Histogram::new(DURATIONS);
        for seconds in [0.0, 0.001, 0.0011, 16.384, 16.385] {
            histogram.observe(seconds);
        }
        let seen = histogram.observed();
        assert_eq!((seen.counts[0], seen.counts[1], seen.counts[14], seen.counts[15]), (2, 1, 1, 1));
        assert_eq!(seen.count(), 5);
        assert!((seen.sum - 32.7711).abs() < 1e-9);
    }

    #[test]
    fn buckets_are_those_of_the_specification() {
        let doubling: Vec<f64> = (0..15).map(|i| 0.001 * 2f64.powi(i)).collect();
        assert_eq!(DURATIONS, doubling);
        let ranges: [(u32, u32, usize); 3] = [(1, 59, 1), (60, 115, 5), (120, 300, 30)];
        let mut programming = vec![0.25, 0.5];
        for (from, to, step) in ranges {
            programming.extend((from..=to).step_by(step).map(f64::from));
        }
        assert_eq!(PROGRAMMING, programming);
    }
}
