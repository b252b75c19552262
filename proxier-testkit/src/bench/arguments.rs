//! The words that every benchmark understands, so that `cargo xtask bench` can give the same to all of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Error;

/// How large a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size {
    /// Services.
    pub services: u32,
    /// Endpoints of each.
    pub endpoints: u32,
}

impl Size {
    /// A size.
    #[must_use]
    pub const fn new(services: u32, endpoints: u32) -> Self {
        Self { services, endpoints }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.services, self.endpoints)
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let numbers = text.split_once('x').and_then(|(s, e)| Some((s.parse().ok()?, e.parse().ok()?)));
        match numbers {
            Some((services, endpoints)) if services > 0 => Ok(Self { services, endpoints }),
            _ => Err(Error::Argument(text.to_owned())),
        }
    }
}

/// The sizes of the whole suite.
const FULL: [Size; 4] =
    [Size::new(1_000, 5), Size::new(10_000, 5), Size::new(50_000, 5), Size::new(5_000, 50)];
/// The size of a quick look.
const QUICK: [Size; 1] = [Size::new(1_000, 5)];

/// What to measure, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Clusters.
    pub sizes: Vec<Size>,
    /// Seconds of steady change of one Service in a hundred each second.
    pub churn_seconds: u32,
    /// Seconds of the storm of updates.
    pub storm_seconds: u32,
    /// Updates a second in the storm.
    pub storm_rate: u32,
    /// TCP connections for each number of Services.
    pub connections: u32,
    /// Tracked UDP flows.
    pub flows: u32,
    /// Services that are created and deleted.
    pub turnover: u32,
    /// Only these programs of the suite; empty for all.
    pub only: Vec<String>,
}

impl Arguments {
    /// Reads words: sizes, `quick`, `churn=`, `storm=` (seconds), `rate=`, `connections=`, `flows=`, `turnover=`, `only=`. Options that
    /// begin with a dash are Cargo's, and of no concern here.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other word.
    pub fn parse<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let words: Vec<String> = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
        let quick = words.iter().any(|w| w == "quick");
        let mut arguments = Self {
            sizes: Vec::new(),
            churn_seconds: if quick { 3 } else { 10 },
            storm_seconds: if quick { 5 } else { 60 },
            storm_rate: 10_000,
            connections: if quick { 2_000 } else { 20_000 },
            flows: if quick { 100_000 } else { 1_000_000 },
            turnover: if quick { 5_000 } else { 100_000 },
            only: Vec::new(),
        };
        for word in words.iter().filter(|w| *w != "quick" && !w.starts_with('-')) {
            arguments.word(word)?;
        }
        if arguments.sizes.is_empty() {
            arguments.sizes = if quick { QUICK.to_vec() } else { FULL.to_vec() };
        }
        Ok(arguments)
    }

    fn word(&mut self, word: &str) -> Result<(), Error> {
        let Some((key, value)) = word.split_once('=') else {
            self.sizes.push(word.parse()?);
            return Ok(());
        };
        let number = || value.parse().map_err(|_| Error::Argument(word.to_owned()));
        match key {
            "churn" => self.churn_seconds = number()?,
            "storm" => self.storm_seconds = number()?,
            "rate" => self.storm_rate = number()?,
            "connections" => self.connections = number()?,
            "flows" => self.flows = number()?,
            "turnover" => self.turnover = number()?,
            "only" => self.only.push(value.to_owned()),
            _ => return Err(Error::Argument(word.to_owned())),
        }
        Ok(())
    }

    /// Whether this program of the suite is asked for.
    #[must_use]
    pub fn wants(&self, program: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == program)
    }

    /// The size that the storm is let loose on: 10,000 Services with five endpoints where that is among the sizes, else the largest.
    #[must_use]
    pub fn storm_size(&self) -> Option<Size> {
        let asked = Size::new(10_000, 5);
        if self.storm_seconds == 0 {
            return None;
        }
        self.sizes.iter().copied().find(|size| *size == asked).or_else(|| self.sizes.iter().copied().max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let a = Arguments::parse(["--bench", "1000x5", "storm=3", "only=api", "20x0"]).unwrap();
        assert_eq!(a.sizes, [Size::new(1_000, 5), Size::new(20, 0)]);
        assert_eq!((a.storm_seconds, a.churn_seconds), (3, 10));
        assert!(a.wants("api") && !a.wants("sync"));
        assert_eq!(a.storm_size(), Some(Size::new(1_000, 5)));
    }

    #[test]
    fn without_a_size_it_is_the_whole_suite_or_a_quick_look() {
        let full = Arguments::parse([""; 0]).unwrap();
        assert_eq!(full.sizes.len(), 4);
        assert_eq!(full.storm_size(), Some(Size::new(10_000, 5)));
        assert!(full.wants("anything"));
        let quick = Arguments::parse(["quick"]).unwrap();
        assert_eq!(quick.sizes, [Size::new(1_000, 5)]);
        assert!(quick.storm_seconds < full.storm_seconds);
        assert_eq!(Arguments::parse(["storm=0"]).unwrap().storm_size(), None);
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["x", "5", "0x5", "10x", "speed=9", "storm=long"] {
            assert!(matches!(Arguments::parse([word]), Err(Error::Argument(_))), "{word}");
        }
    }
}
