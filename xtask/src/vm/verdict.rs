//! How it went in the machine, from the lines of its status port and its kernel's log.

use std::time::Duration;

/// Exit status when the time was up, as of `timeout`.
const TIMEOUT: u8 = 124;

/// Exit status when the machine itself failed.
const BROKEN: u8 = 125;

/// Marks in the kernel's log of faults after which nothing counts.
const FATAL: [&str; 6] =
    ["Kernel panic", "Oops: ", "BUG: ", "kernel BUG at", "general protection fault", "Out of memory: "];

/// Marks in the kernel's log that a person should see.
const NOTABLE: [&str; 3] = ["WARNING: CPU:", "blocked for more than", "detected stall"];

/// What came of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ended by itself.
    Exit(u8),
    /// It was still running when its time was up.
    Timeout(Duration),
    /// The kernel failed; the first line about it.
    Kernel(String),
    /// The machine went away without a word; whether it had come as far as starting the program.
    Gone { started: bool },
}

impl Verdict {
    /// By the lines of the status port and of the console; `killed` when the machine did not end within its own limit.
    pub(crate) fn of(status: &[String], console: &[String], limit: Duration, killed: bool) -> Self {
        let exit = status.iter().find_map(|line| line.strip_prefix("exit ")?.parse::<u8>().ok());
        if let Some(line) = faults(console).next() {
            return Self::Kernel(line.to_owned());
        }
        if killed || status.iter().any(|line| line == "timeout") {
            return Self::Timeout(limit);
        }
        match exit {
            Some(code) => Self::Exit(code),
            None => Self::Gone { started: status.iter().any(|line| line == "start") },
        }
    }

    /// The exit status to pass on.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Exit(code) => *code,
            Self::Timeout(_) => TIMEOUT,
            Self::Kernel(_) | Self::Gone { .. } => BROKEN,
        }
    }

    /// One sentence for a person.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Exit(0) => "the program ended with exit status 0".to_owned(),
            Self::Exit(code) if (129..=192).contains(code) => {
                format!("the program ended with exit status {code} (signal {} if it was one)", code - 128)
            }
            Self::Exit(code) => format!("the program ended with exit status {code}"),
            Self::Timeout(limit) => {
                format!("the program was still running after {} s (--timeout)", limit.as_secs())
            }
            Self::Kernel(line) => format!("the machine's kernel failed: {line}"),
            Self::Gone { started: true } => "the machine ended while the program was running".to_owned(),
            Self::Gone { started: false } => "the machine ended before the program was started".to_owned(),
        }
    }
}

fn faults(console: &[String]) -> impl Iterator<Item = &str> {
    console
        .iter()
        .map(String::as_str)
        .filter(|line| from_kernel(line) && FATAL.iter().any(|f| line.contains(f)))
}

/// Lines of the kernel's log that are no failure and yet worth a look.
pub(crate) fn notable(console: &[String]) -> Vec<&str> {
    let notable = |line: &&str| from_kernel(line) && NOTABLE.iter().any(|n| line.contains(n));
    console.iter().map(String::as_str).filter(notable).collect()
}

/// The kernel begins its lines with a time in brackets.
fn from_kernel(line: &str) -> bool {
    line.starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn verdict(status: &str, console: &str, killed: bool) -> Verdict {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        Verdict::of(&lines(status), &lines(console), LIMIT, killed)
    }

    #[test]
    fn the_programs_exit_status_is_passed_on() {
        for (status, code) in [("start\nexit 0", 0), ("start\nexit 7", 7), ("start\nexit 139", 139)] {
            assert_eq!(verdict(status, "[    1.0] fine", false), Verdict::Exit(code));
            assert_eq!(verdict(status, "", false).code(), code);
        }
        assert!(Verdict::Exit(139).sentence().contains("signal 11"));
    }

    #[test]
    fn a_machine_that_says_nothing_never_counts_as_success() {
        assert_eq!(verdict("", "", false), Verdict::Gone { started: false });
        assert_eq!(verdict("start", "", false), Verdict::Gone { started: true });
        assert_eq!(verdict("start\nexit ", "", false), Verdict::Gone { started: true });
        assert_eq!(verdict("start\nexit 256", "", false).code(), 125);
    }

    #[test]
    fn the_time_may_be_up_inside_or_outside() {
        assert_eq!(verdict("start\ntimeout", "", false), Verdict::Timeout(LIMIT));
        assert_eq!(verdict("start", "", true).code(), 124);
    }

    #[test]
    fn a_kernel_fault_outweighs_the_programs_success() {
        let log = "[    3.1] BUG: kernel NULL pointer dereference\n[    3.2] Oops: 0000";
        assert_eq!(
            verdict("start\nexit 0", log, false),
            Verdict::Kernel("[    3.1] BUG: kernel NULL pointer dereference".to_owned())
        );
        // The program's own words are not the kernel's.
        assert_eq!(verdict("start\nexit 0", "BUG: mine", false), Verdict::Exit(0));
    }

    #[test]
    fn warnings_are_told_and_no_failure() {
        let log = ["[ 1.0] WARNING: CPU: 0 PID: 1 at net/x.c".to_owned(), "[ 1.1] fine".to_owned()];
        assert_eq!(notable(&log), ["[ 1.0] WARNING: CPU: 0 PID: 1 at net/x.c"]);
        assert_eq!(Verdict::of(&["exit 0".to_owned()], &log, LIMIT, false), Verdict::Exit(0));
    }
}
