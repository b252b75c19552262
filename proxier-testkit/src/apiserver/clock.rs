//! Time and identities that a test can fix.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where creation times and uids come from.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time since 1970 that does not move, if the test set one.
    fixed: Option<Duration>,
    uids: VecDeque<String>,
    made: u64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { fixed: None, uids: VecDeque::new(), made: 0 }
    }

    pub(super) fn set(&mut self, since_1970: Duration) {
        self.fixed = Some(since_1970);
    }

    pub(super) fn next_uid(&mut self, uid: String) {
        self.uids.push_back(uid);
    }

    /// The uid the test asked for next, else one that was not used before.
    pub(super) fn uid(&mut self) -> String {
        self.uids.pop_front().unwrap_or_else(|| {
            self.made += 1;
            format!("00000000-0000-4000-8000-{:012x}", self.made)
        })
    }

    /// Five letters or digits, different each time, as `generateName` appends.
    pub(super) fn suffix(&mut self) -> String {
        self.made += 1;
        let letters = b"bcdfghjklmnpqrstvwxz2456789";
        // All names of five letters in turn: the factor has no divisor in common with their number.
        let mut rest =
            usize::try_from(self.made).unwrap_or_default().wrapping_mul(7_368_787) % letters.len().pow(5);
        let mut letter = || {
            let next = letters[rest % letters.len()];
            rest /= letters.len();
            char::from(next)
        };
        (0..5).map(|_| letter()).collect()
    }

    /// Now, RFC 3339 to the second.
    pub(super) fn seconds_text(&self) -> String {
        let now = self.fixed.unwrap_or_else(since_1970);
        rfc3339(now.as_secs())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this server that reads the clock; tests can fix it"
)]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970 as `2026-11-30T07:22:09Z`.
pub(super) fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while month < 11 && day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_796_023_329), "2026-11-30T07:22:09Z");
        assert_eq!(rfc3339(4_107_542_399), "2100-02-28T23:59:59Z");
    }

    #[test]
    fn names_do_not_meet() {
        let mut clock = Clock::new();
        let names: std::collections::BTreeSet<String> = (0..1000).map(|_| clock.suffix()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == 5));
    }
}
