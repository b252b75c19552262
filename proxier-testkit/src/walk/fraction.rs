//! Exact probabilities.

use std::fmt;

/// A fraction in lowest terms, not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: u64,
    denominator: u64,
}

/// Greatest common divisor; with 0 the other number.
pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b).max(1)).checked_mul(b)
}

impl Fraction {
    /// 0.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };
    /// 1.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// A fraction in lowest terms; `None` for denominator 0.
    #[must_use]
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        let divisor = gcd(numerator, denominator);
        (denominator != 0)
            .then(|| Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The number above the line.
    #[must_use]
    pub fn numerator(self) -> u64 {
        self.numerator
    }

    /// The number below the line.
    #[must_use]
    pub fn denominator(self) -> u64 {
        self.denominator
    }

    /// The sum; `None` if it cannot be written with 64 bits.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        let denominator = lcm(self.denominator, other.denominator)?;
        let left = self.numerator.checked_mul(denominator / self.denominator)?;
        let right = other.numerator.checked_mul(denominator / other.denominator)?;
        Self::new(left.checked_add(right)?, denominator)
    }

    /// The product; `None` if it cannot be written with 64 bits.
    #[must_use]
    pub fn times(self, other: Self) -> Option<Self> {
        let a = Self::new(self.numerator, other.denominator)?;
        let b = Self::new(other.numerator, self.denominator)?;
        Self::new(a.numerator.checked_mul(b.numerator)?, a.denominator.checked_mul(b.denominator)?)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

/// Whole numbers in the same proportion, not necessarily the smallest; `None` if they are too large.
pub(super) fn whole_weights(shares: impl Iterator<Item = Fraction> + Clone) -> Option<Vec<u32>> {
    let common = shares.clone().try_fold(1, |common, share| lcm(common, share.denominator))?;
    let weight = |share: Fraction| share.numerator.checked_mul(common / share.denominator);
    let weights: Vec<u64> = shares.map(weight).collect::<Option<_>>()?;
    let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, *weight)).max(1);
    weights.into_iter().map(|weight| u32::try_from(weight / divisor).ok()).collect()
}
