//! Running tools: one narrow seam, so that a test can state the exact command, input and answer.

mod system;

use std::io;
use std::time::Duration;

use thiserror::Error;

pub use system::SystemRunner;

/// How long a tool may take unless its caller says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The tool, looked up in `PATH` unless it is a path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables that it is given beside those of this process.
    pub env: Vec<(String, String)>,
    /// What it reads on standard input; `None` is an empty input.
    pub stdin: Option<Vec<u8>>,
    /// After this long it is killed.
    pub timeout: Duration,
}

impl CommandSpec {
    /// A command without input, limited to [`DEFAULT_TIMEOUT`].
    pub fn new<S: Into<String>>(program: impl Into<String>, args: impl IntoIterator<Item = S>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            stdin: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// The same with this standard input.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(input.into());
        self
    }

    /// The same with an environment variable more.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The same with another time limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// What a command that ran to its end left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its exit status code; 0 is success.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// True for exit status 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }

    /// Standard output as text; bytes that are not UTF-8 are replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text; bytes that are not UTF-8 are replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The first line of standard error that is not empty: where tools say what is wrong.
    pub fn first_error_line(&self) -> String {
        self.stderr_text().lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }
}

/// A command that did not run to its end. An exit status other than 0 is not among these.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The tool is not installed.
    #[error("{program} is not installed")]
    Missing {
        /// The tool.
        program: String,
    },
    /// The tool is there and could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The tool.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It was killed at its time limit.
    #[error("{program} was killed after {timeout:?}")]
    TimedOut {
        /// The tool.
        program: String,
        /// The limit.
        timeout: Duration,
    },
    /// A signal ended it.
    #[error("{program} was ended by signal {signal}")]
    Signalled {
        /// The tool.
        program: String,
        /// Number of the signal.
        signal: i32,
    },
    /// Its input, output or status could not be handled.
    #[error("cannot exchange data with {program}: {source}")]
    Exchange {
        /// The tool.
        program: String,
        /// The system's error.
        source: io::Error,
    },
}

impl RunError {
    /// True if the tool is not installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// True if the tool was killed at its time limit.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// Something that runs commands: the system, or a test's script.
pub trait Runner {
    /// Runs a command to its end and returns what it left, whatever its exit status.
    ///
    /// # Errors
    /// [`RunError`] if it did not run to its end; it is not running any more in that case.
    fn run(&self, command: &CommandSpec) -> Result<Output, RunError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_built_in_one_line() {
        let spec =
            CommandSpec::new("nft", ["-f", "-"]).stdin("flush ruleset").timeout(Duration::from_secs(5));
        assert_eq!(spec.args, ["-f", "-"]);
        assert_eq!(spec.stdin.as_deref(), Some(&b"flush ruleset"[..]));
        assert_eq!(spec.timeout, Duration::from_secs(5));
        assert_eq!(CommandSpec::new("nft", [""; 0]).timeout, DEFAULT_TIMEOUT);
    }

    #[test]
    fn the_first_error_line_is_not_an_empty_one() {
        let output = Output { code: 1, stderr: b"\n  Error: no table\nmore\n".to_vec(), ..Output::default() };
        assert_eq!(output.first_error_line(), "Error: no table");
        assert!(!output.success());
        assert_eq!(Output::default().first_error_line(), "");
    }
}
