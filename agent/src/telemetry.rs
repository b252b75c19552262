//! Logging: text or JSON lines on standard error.

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The names that configuration knows, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["text", "json"];

    /// The format of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// Not a level, nor a list of `target=level`.
    #[error("{text:?} is not a log filter: {reason}")]
    Filter {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in this process set up logging before.
    #[error("logging is already set up: {0}")]
    AlreadySet(String),
    /// [`init`] was not called.
    #[error("logging is not set up")]
    NotSet,
    /// The filter could not be put in place of the old one.
    #[error("the log filter stays as it is: {0}")]
    Stuck(String),
}

/// Puts another filter in place.
type Replace = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

static REPLACE: OnceLock<Replace> = OnceLock::new();

/// Reads a log filter: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or a comma list of levels and
/// `target=level`, e.g. `info,agent::source=debug`.
///
/// # Errors
/// When it is neither. A word that is no level is refused, although the filter language would take it as the name of a target.
pub fn parse_filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    let refuse = |reason: String| TelemetryError::Filter { text: text.to_owned(), reason };
    for part in text.split(',').map(str::trim) {
        if part.is_empty() || !part.contains('=') && part.parse::<LevelFilter>().is_err() {
            return Err(refuse(format!("{part:?} is not a level")));
        }
    }
    EnvFilter::builder().parse(text).map_err(|e| refuse(e.to_string()))
}

/// Sets up logging for this process. Call once, early.
///
/// # Errors
/// A filter that cannot be read, or logging that is already set up.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let filter = parse_filter(filter)?;
    // What cannot be written, because a disk is full, is lost. It must not end the process, as a word about it on standard error would.
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false);
    let (done, replace): (_, Replace) = match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal());
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            let replace = move |filter| handle.reload(filter).map_err(|e| e.to_string());
            (builder.finish().try_init(), Box::new(replace))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_current_span(true);
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            let replace = move |filter| handle.reload(filter).map_err(|e| e.to_string());
            (builder.finish().try_init(), Box::new(replace))
        }
    };
    done.map_err(|e| TelemetryError::AlreadySet(e.to_string()))?;
    let _ = REPLACE.set(replace);
    Ok(())
}

/// Puts another filter in the place of the one that [`init`] was given.
///
/// # Errors
/// A filter that cannot be read, or logging that is not set up.
pub fn set_filter(filter: &str) -> Result<(), TelemetryError> {
    let filter = parse_filter(filter)?;
    let replace = REPLACE.get().ok_or(TelemetryError::NotSet)?;
    replace(filter).map_err(TelemetryError::Stuck)
}

/// The filter that stands for a verbosity of Kubernetes' programs: what they log at 4 and above is for whoever debugs them.
#[must_use]
pub fn verbosity(level: u32) -> &'static str {
    match level {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        for good in ["info", "off", "INFO", "warn,agent::source=debug", "agent=trace, info"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "info,agent=loud", "info,,debug"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_filter("info,agnet").expect_err("no level").to_string(),
            "\"info,agnet\" is not a log filter: \"agnet\" is not a level"
        );
    }

    #[test]
    fn format_names_agree() {
        for name in LogFormat::NAMES {
            assert_eq!(LogFormat::from_name(name).expect("known").to_string(), name);
        }
        assert_eq!(LogFormat::from_name("xml"), None);
    }
}
