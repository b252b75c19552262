//! How many checks passed, read from what test programs print.

use std::ops::AddAssign;

/// Numbers of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Tally {
    /// One check that passed.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0, ignored: 0 };

    /// The result line of a Rust test program, as in
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`;
    /// nothing for other lines.
    pub(crate) fn of_test_program(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut tally = Self::default();
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let field = match what {
                "passed" => &mut tally.passed,
                "failed" => &mut tally.failed,
                "ignored" => &mut tally.ignored,
                _ => continue,
            };
            *field = number.parse().ok()?;
        }
        Some(tally)
    }

    /// The lab's last line, as in `23 passed, 0 failed`; nothing for other lines.
    pub(crate) fn of_lab(line: &str) -> Option<Self> {
        let (passed, failed) = line.split_once(" passed, ")?;
        let failed = failed.strip_suffix(" failed")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()?, ignored: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out; finished in 0.52s";
        assert_eq!(Tally::of_test_program(line), Some(Tally { passed: 12, failed: 3, ignored: 4 }));
        assert_eq!(Tally::of_lab("7 passed, 1 failed"), Some(Tally { passed: 7, failed: 1, ignored: 0 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "test a ... ok", "running 3 tests", "some passed, 1 failed", "  1 passed, 0 failed"]
        {
            assert_eq!((Tally::of_test_program(line), Tally::of_lab(line)), (None, None), "{line}");
        }
        assert_eq!(Tally::of_test_program("1 passed, 0 failed"), None);
        assert_eq!(Tally::of_lab("test result: ok. 1 passed; 0 failed; 0 ignored"), None);
    }
}
