//! The version of the running kernel.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::sysctl::{Sysctl, SysctlError};

/// A kernel release as far as it can be compared. Distributions move features to older numbers, so a version
/// says what to expect and a probe says what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number, 0 if the release has none.
    pub patch: u32,
}

/// The kernel's version is not known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The text is not a kernel release.
    #[error("{text:?} is not a kernel release")]
    NotARelease {
        /// The text.
        text: String,
    },
    /// The kernel's release could not be read.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

impl KernelVersion {
    /// The version with these numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The running kernel's, from `/proc/sys/kernel/osrelease`.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn running() -> Result<Self, VersionError> {
        Sysctl::new().read("kernel/osrelease")?.parse()
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for KernelVersion {
    type Err = VersionError;

    /// Reads a release such as `6.18.0`, `5.15.0-91-generic` or `6.1+`: two or three numbers, then anything
    /// that does not continue the number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || VersionError::NotARelease { text: text.to_owned() };
        let (major, rest) = number(text.trim()).ok_or_else(bad)?;
        let (minor, rest) = rest.strip_prefix('.').and_then(number).ok_or_else(bad)?;
        let patch = rest.strip_prefix('.').and_then(number).map_or(0, |(patch, _)| patch);
        Ok(Self { major, minor, patch })
    }
}

/// The decimal number a text begins with, and what follows.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_kinds_are_read() {
        for (text, expected) in [
            ("6.18.0", (6, 18, 0)),
            ("5.15.0-91-generic\n", (5, 15, 0)),
            ("6.1.0-rc3+", (6, 1, 0)),
            ("4.18.0-553.el8_10.x86_64", (4, 18, 0)),
            ("6.1+", (6, 1, 0)),
            ("5.10.102.1-microsoft-standard-WSL2", (5, 10, 102)),
        ] {
            let (major, minor, patch) = expected;
            assert_eq!(
                text.parse::<KernelVersion>().unwrap(),
                KernelVersion::new(major, minor, patch),
                "{text}"
            );
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "6", "6.", "linux", "v6.1.0", "-6.1", "99999999999.1"] {
            let error = text.parse::<KernelVersion>().unwrap_err();
            assert!(matches!(error, VersionError::NotARelease { .. }), "{text}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(KernelVersion::new(5, 9, 0) < KernelVersion::new(5, 13, 0));
        assert!(KernelVersion::new(6, 0, 0) > KernelVersion::new(5, 19, 17));
        assert_eq!(KernelVersion::new(6, 1, 2).to_string(), "6.1.2");
    }

    #[test]
    fn the_running_kernel_has_one() {
        assert!(KernelVersion::running().unwrap() > KernelVersion::new(3, 0, 0));
    }
}
