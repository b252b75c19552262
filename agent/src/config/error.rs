//! What can be wrong with a configuration, and what should be known about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::layers::Origin;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Who said it.
    pub origin: Origin,
    /// The setting, with dots; empty for the file as a whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program runs, but perhaps not as it was meant.
    Warning,
    /// The program must not run.
    Fatal,
}

/// What an operator should know about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Who said it.
    pub origin: Origin,
    /// The setting, with dots; empty for none.
    pub path: String,
    /// What.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, path, message, .. } = self;
        ConfigError { origin: origin.clone(), path: path.clone(), message: message.clone() }.fmt(f)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigErrors {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// Everything that is wrong, a line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigError>),
}

fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
