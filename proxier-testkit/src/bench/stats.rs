//! Medians and percentiles.

use std::time::Duration;

/// Durations of the same thing done many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Adds all of the others.
    pub fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    /// The middle one; zero without any.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// The smallest one that is not below `percent` of them (nearest rank); zero without any.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(millis: impl IntoIterator<Item = u64>) -> Samples {
        millis.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_samples() {
        let hundred = samples((1..=100).rev());
        assert_eq!(hundred.median(), Duration::from_millis(50));
        assert_eq!(hundred.percentile(99), Duration::from_millis(99));
        assert_eq!(hundred.percentile(100), Duration::from_millis(100));
        assert_eq!(samples([3, 1, 2]).median(), Duration::from_millis(2));
        assert_eq!(samples([3, 1, 2]).percentile(99), Duration::from_millis(3));
        assert_eq!(samples([]).median(), Duration::ZERO);
        assert_eq!(samples([3, 1, 2]).sum(), Duration::from_millis(6));
    }
}
