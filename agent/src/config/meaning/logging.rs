//! Logging, by our own settings and by kube-proxy's.

use serde_json::Value;

use crate::config::gates::LOGGING_ALPHA;
use crate::config::layers::{Layers, Origin};
use crate::config::types::Logging;
use crate::telemetry::LogFormat;

const LEVEL: &str = "logging.level";
const VERBOSITY: &str = "logging.verbosity";

/// What kube-proxy's verbosity means here. There, 0 to 2 is for operators, 4 for debugging, and 6 and more tells single requests.
fn level_of(verbosity: i64) -> &'static str {
    match verbosity {
        ..4 => "info",
        4..6 => "debug",
        _ => "trace",
    }
}

pub(super) fn logging(layers: &mut Layers<'_>) -> Logging {
    let format = LogFormat::from_name(&layers.text("logging.format")).unwrap_or_default();
    let by_flag = matches!(layers.origin(VERBOSITY), Origin::Flag(_));
    let level = match layers.given(LEVEL) {
        Some(level) if !by_flag => level,
        _ => {
            let level = level_of(layers.int(VERBOSITY)).to_owned();
            layers.mean(LEVEL, level.as_str().into(), Origin::Follows(VERBOSITY));
            level
        }
    };
    if layers.duration("logging.flushFrequency").is_some_and(|d| d.is_zero()) {
        layers.complain("logging.flushFrequency", "must be longer than 0".into());
    }
    let modules = layers.value("logging.vmodule").as_array().is_some_and(|list| !list.is_empty());
    if modules && format != LogFormat::Text {
        layers.complain("logging.vmodule", "only in format text".into());
    }
    if !layers.gate_values().on(LOGGING_ALPHA) {
        for path in [
            "logging.options.text.splitStream",
            "logging.options.text.infoBufferSize",
            "logging.options.json.splitStream",
            "logging.options.json.infoBufferSize",
        ] {
            let given = match layers.value(path) {
                Value::String(size) => size.trim_start_matches('0').starts_with(|c: char| c.is_ascii_digit()),
                other => other == &Value::Bool(true),
            };
            if given {
                layers.complain(path, format!("needs featureGates.{LOGGING_ALPHA}: true"));
            }
        }
    }
    Logging { format, level }
}
