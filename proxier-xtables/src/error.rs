//! What can go wrong with the tools, and what a caller can do about it.

use proxier_core::backend::{BackendError, Refused, RetryClass};
use proxier_sys::runner::RunError;

use crate::objects::Table;

/// A line of an input that the tool or the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// The line, or what is known of it.
    pub line: String,
    /// The answer.
    pub answer: String,
}

/// An error of the tools, or of what they were given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tool did not run to its end.
    #[error(transparent)]
    Tool(#[from] RunError),
    /// The tools of no variant are installed, or not those of the one that was asked for.
    #[error("no usable iptables: {looked_for}")]
    NoTools {
        /// What was looked for, and what was found instead.
        looked_for: String,
    },
    /// The xtables lock was held by another program all the time. Nothing was written.
    #[error("{tool}: the xtables lock was held by another program for {tries} tries: {message}")]
    Locked {
        /// The tool.
        tool: String,
        /// How often it was tried.
        tries: u32,
        /// Its message.
        message: String,
    },
    /// This process may not do it, or the kernel lacks the table.
    #[error("{tool}: {message}")]
    Denied {
        /// The tool.
        tool: String,
        /// Its message.
        message: String,
    },
    /// Another program put something into a table that the tool cannot show.
    #[error("table {} cannot be read: {message}", table.name())]
    Incompatible {
        /// The table.
        table: Table,
        /// The tool's message.
        message: String,
    },
    /// A listing that is not one.
    #[error("line {line} of {tool}'s listing: {text:?}")]
    Listing {
        /// The tool.
        tool: String,
        /// Number of the line, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// Lines of an input were refused; nothing of its table is in force.
    #[error("{count} lines refused, the first: {}: {}", first.line, first.answer)]
    Refused {
        /// The first of them.
        first: Box<RefusedLine>,
        /// How many.
        count: usize,
        /// The service ports they were for.
        ports: Vec<Refused>,
        /// Lines that belong to no service port are among them.
        shared: bool,
        /// What a caller can do.
        class: RetryClass,
    },
    /// A tool failed otherwise.
    #[error("{tool} ended with {code}: {message}")]
    Failed {
        /// The tool.
        tool: String,
        /// Its exit status.
        code: i32,
        /// Its first message.
        message: String,
    },
}

impl BackendError for Error {
    fn retry_class(&self) -> RetryClass {
        match self {
            Self::Tool(RunError::Missing { .. }) | Self::NoTools { .. } => RetryClass::Unsupported,
            Self::Tool(RunError::Start { .. }) => RetryClass::Misconfigured,
            // Killed, or not heard: what it did is not known.
            Self::Tool(_) => RetryClass::NeedsFullSync,
            Self::Locked { .. } => RetryClass::Transient,
            Self::Denied { .. } | Self::Incompatible { .. } => RetryClass::Misconfigured,
            Self::Listing { .. } => RetryClass::Bug,
            Self::Refused { class, .. } => *class,
            Self::Failed { .. } => RetryClass::NeedsFullSync,
        }
    }

    fn refused(&self) -> &[Refused] {
        match self {
            Self::Refused { ports, shared: false, .. } => ports,
            _ => &[],
        }
    }
}
