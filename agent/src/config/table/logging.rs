//! Logging.

use super::Change::{Live, Restart};
use super::{Default, Empty, Setting, always, own, row};
use crate::config::takes::Takes;
use crate::telemetry::LogFormat;

const UNBUFFERED: &str = "lines are written at once and to standard error";
const NO_FILES: &str = "it names source files of kube-proxy; logging.level takes parts of this program";

pub(super) const SETTINGS: &[Setting] =
    &[
        row(
            "logging.format",
            Takes::OneOf(&LogFormat::NAMES),
            Default::Text("text"),
            Restart("lines have one form while the program runs"),
        )
        .peer()
        .empty(Empty::Default)
        .flags(&[
            always("logging-format", "FORMAT", "How log lines look: text or json").everywhere(),
            own("log-format", "FORMAT", "How log lines look: text or json").everywhere(),
        ]),
        row("logging.flushFrequency", Takes::Pause, Default::Text("5s"), Live)
            .peer()
            .empty(Empty::DefaultInPeerFile)
            .idle(UNBUFFERED)
            .flags(&[always("log-flush-frequency", "DURATION", "Without meaning").everywhere()]),
        row("logging.verbosity", Takes::Int(0, i32::MAX as i64), Default::Int(0), Live).peer().flags(&[
            always("v", "N", "Log more: 4 and 5, or -v alone, for debug; 6 and more, or -vv, for trace")
                .everywhere(),
        ]),
        row("logging.vmodule", Takes::Modules, Default::List(&[]), Live)
            .peer()
            .omitted()
            .idle(NO_FILES)
            .flags(&[always("vmodule", "PATTERN=N,...", "Without meaning").everywhere()]),
        row("logging.options.text.splitStream", Takes::Bool, Default::Bool(false), Live)
            .peer()
            .omitted()
            .idle(UNBUFFERED)
            .flags(&[always("log-text-split-stream", "", "Without meaning").everywhere()]),
        row("logging.options.text.infoBufferSize", Takes::Quantity, Default::Text("0"), Live)
            .peer()
            .empty(Empty::Default)
            .idle(UNBUFFERED)
            .flags(&[always("log-text-info-buffer-size", "SIZE", "Without meaning").everywhere()]),
        row("logging.options.json.splitStream", Takes::Bool, Default::Bool(false), Live)
            .peer()
            .omitted()
            .idle(UNBUFFERED)
            .flags(&[always("log-json-split-stream", "", "Without meaning").everywhere()]),
        row("logging.options.json.infoBufferSize", Takes::Quantity, Default::Text("0"), Live)
            .peer()
            .empty(Empty::Default)
            .idle(UNBUFFERED)
            .flags(&[always("log-json-info-buffer-size", "SIZE", "Without meaning").everywhere()]),
        row("logging.level", Takes::LogFilter, Default::Unset, Live).empty(Empty::Default),
    ];
