//! The bars that this project sets itself. A benchmark prints whether they are met; it does not fail when they are not.

use super::Size;
use super::series::{LESS, MORE, REPLACED, SERVICE_ADDED, SERVICE_REMOVED, START};

/// A program of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The core and a backend in one thread.
    Sync,
    /// The whole agent on an API server.
    Api,
    /// The whole agent on a folder of manifests.
    Folder,
}

/// What is held against a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median of wall time, milliseconds.
    WallMs,
    /// Median of CPU time, milliseconds.
    CpuMs,
    /// Peak of resident memory, MiB.
    PeakMib,
}

impl Measure {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::WallMs => ("wall", "ms"),
            Self::CpuMs => ("CPU", "ms"),
            Self::PeakMib => ("peak", "MiB"),
        }
    }
}

/// One bar: at most so much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    program: Program,
    size: Size,
    what: &'static str,
    /// What is held against it.
    pub measure: Measure,
    /// The most that meets it.
    pub limit: f64,
}

const fn bar(program: Program, size: Size, what: &'static str, measure: Measure, limit: f64) -> Bar {
    Bar { program, size, what, measure, limit }
}

const TEN: Size = Size::new(10_000, 5);
const FIFTY: Size = Size::new(50_000, 5);

const BARS: [Bar; 22] = [
    bar(Program::Sync, TEN, START, Measure::CpuMs, 500.0),
    bar(Program::Sync, TEN, REPLACED, Measure::WallMs, 2.0),
    bar(Program::Sync, TEN, REPLACED, Measure::CpuMs, 1.0),
    bar(Program::Sync, TEN, MORE, Measure::WallMs, 5.0),
    bar(Program::Sync, TEN, LESS, Measure::WallMs, 5.0),
    bar(Program::Sync, FIFTY, START, Measure::CpuMs, 3_000.0),
    bar(Program::Sync, FIFTY, REPLACED, Measure::WallMs, 10.0),
    bar(Program::Sync, FIFTY, MORE, Measure::WallMs, 10.0),
    bar(Program::Sync, FIFTY, LESS, Measure::WallMs, 10.0),
    bar(Program::Sync, FIFTY, SERVICE_ADDED, Measure::WallMs, 10.0),
    bar(Program::Sync, FIFTY, SERVICE_REMOVED, Measure::WallMs, 10.0),
    bar(Program::Api, TEN, START, Measure::WallMs, 2_000.0),
    bar(Program::Api, TEN, START, Measure::CpuMs, 3_000.0),
    bar(Program::Api, TEN, START, Measure::PeakMib, 80.0),
    bar(Program::Api, FIFTY, START, Measure::PeakMib, 300.0),
    bar(Program::Api, FIFTY, REPLACED, Measure::WallMs, 10.0),
    bar(Program::Api, FIFTY, MORE, Measure::WallMs, 10.0),
    bar(Program::Api, FIFTY, LESS, Measure::WallMs, 10.0),
    bar(Program::Api, FIFTY, SERVICE_ADDED, Measure::WallMs, 10.0),
    bar(Program::Api, FIFTY, SERVICE_REMOVED, Measure::WallMs, 10.0),
    bar(Program::Folder, TEN, START, Measure::CpuMs, 3_000.0),
    bar(Program::Folder, TEN, START, Measure::PeakMib, 120.0),
];

/// The cost of a change at the larger of two sizes is at most so many times that at the smaller one.
pub const RATIO: f64 = 6.0;
/// The sizes that [`RATIO`] is about.
pub const RATIO_SIZES: [Size; 2] = [Size::new(1_000, 5), FIFTY];
/// After a storm of updates the last one is in the kernel within so many milliseconds.
pub const STORM_BEHIND_MS: f64 = 100.0;
/// Memory is flat if the peak of the second half of a storm is at most so many times that of the first.
pub const STORM_MEMORY: f64 = 1.1;
/// A pass over a million tracked flows of which a thousand are stale, where the kernel filters: at most so many milliseconds of CPU time.
pub const FLOWS_CPU_MS: f64 = 100.0;
/// Opening a connection through 50,000 Services takes at most so many times as long as through 10.
pub const CONNECT_RATIO: f64 = 1.1;

/// The bars for something.
pub fn bars(program: Program, size: Size, what: &str) -> impl Iterator<Item = Bar> {
    BARS.into_iter().filter(move |b| b.program == program && b.size == size && b.what == what)
}

/// Whether a value is at most the limit, in a word.
#[must_use]
pub fn verdict(value: f64, limit: f64) -> &'static str {
    if value <= limit { "met" } else { "missed" }
}

/// All bars for something with their verdicts, in words; a dash if there is none.
pub fn verdicts(program: Program, size: Size, what: &str, value: impl Fn(Measure) -> f64) -> String {
    let one = |b: Bar| {
        let (name, unit) = b.measure.words();
        format!("{name} ≤ {} {unit}: {}", b.limit, verdict(value(b.measure), b.limit))
    };
    let all: Vec<String> = bars(program, size, what).map(one).collect();
    if all.is_empty() { "-".to_owned() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_name_every_bar() {
        let value = |measure| if measure == Measure::WallMs { 2_000.0 } else { 3_000.1 };
        let text = verdicts(Program::Api, TEN, START, value);
        assert_eq!(text, "wall ≤ 2000 ms: met; CPU ≤ 3000 ms: missed; peak ≤ 80 MiB: missed");
        assert_eq!(verdicts(Program::Api, Size::new(7, 7), START, value), "-");
    }
}
