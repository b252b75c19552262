//! Why a benchmark has no result.

use std::io;

/// Why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A word on the command line that means nothing.
    #[error(
        "{0:?}: give sizes such as 10000x5, quick, storm=SECONDS, rate=UPDATES, churn=SECONDS or only=PROGRAM"
    )]
    Argument(String),
    /// What was measured did something wrong.
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    /// The system refused `what`.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }
}
