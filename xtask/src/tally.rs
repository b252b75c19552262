//! How many checks passed, read from what test programs print.

use std::ops::AddAssign;

/// Numbers of checks, and which ones failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// A line for each check that failed, as far as it was printed in a form that is known. Long output buries the place where it failed, so the
    /// summary repeats them.
    pub(crate) failures: Vec<String>,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures);
    }
}

impl Tally {
    /// One check that passed.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0, ignored: 0, failures: Vec::new() };

    fn failure(line: &str) -> Self {
        Self { failures: vec![line.trim().to_owned()], ..Self::default() }
    }

    /// The result line of a Rust test program, as in
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`,
    /// or the line of a test that failed, as in `test tests::a_name ... FAILED`; nothing for other lines.
    pub(crate) fn of_test_program(line: &str) -> Option<Self> {
        if line.starts_with("test ") && line.ends_with(" ... FAILED") {
            return Some(Self::failure(line));
        }
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

    /// The lab's last line, as in `23 passed, 0 failed`, or a row or headline of a difference; nothing for other lines.
    pub(crate) fn of_lab(line: &str) -> Option<Self> {
        if line.starts_with("DIFFERS ") || line.ends_with(" | DIFFERS") {
            return Some(Self::failure(line));
        }
        let (passed, failed) = line.split_once(" passed, ")?;
        let failed = failed.strip_suffix(" failed")?;
        Some(Self {
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
            ignored: 0,
            failures: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, ignored: u64) -> Tally {
        Tally { passed, failed, ignored, failures: Vec::new() }
    }

    #[test]
    fn what_failed_is_kept_by_name() {
        let mut sum = tally(0, 0, 0);
        for line in ["test a::b ... ok", "test a::c ... FAILED", "test result: FAILED. 1 passed; 1 failed"] {
            sum += Tally::of_test_program(line).unwrap_or_default();
        }
        for line in
            ["A maps | client | DIFFERS", "DIFFERS maps/default/ranges: pod a to VIP ", "1 passed, 2 failed"]
        {
            sum += Tally::of_lab(line).unwrap_or_default();
        }
        let failures = [
            "test a::c ... FAILED",
            "A maps | client | DIFFERS",
            "DIFFERS maps/default/ranges: pod a to VIP",
        ];
        assert_eq!(sum, Tally { failures: failures.map(str::to_owned).to_vec(), ..tally(2, 3, 0) });
    }

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out; finished in 0.52s";
        assert_eq!(Tally::of_test_program(line), Some(tally(12, 3, 4)));
        assert_eq!(Tally::of_lab("7 passed, 1 failed"), Some(tally(7, 1, 0)));
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
