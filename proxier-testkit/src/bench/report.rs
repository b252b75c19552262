//! The tables of the suite.

use std::time::Duration;

use super::bars::{Measure, Program, RATIO, RATIO_SIZES, verdict, verdicts};
use super::{Outcome, Row, Size, Table};

/// Milliseconds, three significant digits or so.
#[must_use]
pub fn ms(duration: Duration) -> String {
    let value = duration.as_secs_f64() * 1000.0;
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// KiB as MiB.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn measure(row: &Row, measure: Measure) -> f64 {
    match measure {
        Measure::WallMs => row.wall.as_secs_f64() * 1000.0,
        Measure::CpuMs => row.cpu.as_secs_f64() * 1000.0,
        Measure::PeakMib => mib(row.peak_kib),
    }
}

/// All tables of a program, as Markdown, with headings of the third level.
#[must_use]
pub fn tables(program: Program, outcomes: &[Outcome]) -> String {
    let mut out = format!("### Start\n\n{}\n", starts(program, outcomes));
    for outcome in outcomes {
        out += &format!("\n### One change, {}\n\n{}\n", outcome.size, changes(program, outcome));
    }
    out += &format!("\n### One Service in a hundred changes each second\n\n{}\n", churns(outcomes));
    out += &format!("\n### A Service of 1,000 endpoints is rolled over\n\n{}\n", rollouts(outcomes));
    if let Some(table) = ratios(outcomes) {
        out += &format!("\n### Cost of a change, {} against {}\n\n{table}\n", RATIO_SIZES[1], RATIO_SIZES[0]);
    }
    out
}

fn starts(program: Program, outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&[
        "services x endpoints",
        "wall ms",
        "CPU ms",
        "peak RSS MiB",
        "RSS at rest MiB",
        "messages",
        "bytes",
        "bar",
    ]);
    for Outcome { size, start, rest_kib, .. } in outcomes {
        table.row([
            size.to_string(),
            ms(start.wall),
            ms(start.cpu),
            format!("{:.1}", mib(start.peak_kib)),
            format!("{:.1}", mib(*rest_kib)),
            start.messages.to_string(),
            start.bytes.to_string(),
            verdicts(program, *size, &start.what, |m| measure(start, m)),
        ]);
    }
    table
}

fn changes(program: Program, outcome: &Outcome) -> Table {
    let mut table = Table::new(&[
        "what",
        "runs",
        "wall ms",
        "p99 ms",
        "CPU ms",
        "peak RSS MiB",
        "messages",
        "bytes",
        "bar",
    ]);
    for row in &outcome.changes {
        table.row([
            row.what.clone(),
            row.runs.to_string(),
            ms(row.wall),
            ms(row.p99),
            ms(row.cpu),
            format!("{:.1}", mib(row.peak_kib)),
            row.messages.to_string(),
            row.bytes.to_string(),
            verdicts(program, outcome.size, &row.what, |m| measure(row, m)),
        ]);
    }
    table
}

fn churns(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&[
        "services x endpoints",
        "changes",
        "seconds",
        "syncs",
        "share of a processor",
        "p50 ms",
        "p99 ms",
        "peak RSS MiB",
        "messages",
        "bytes",
    ]);
    for (size, churn) in outcomes.iter().filter_map(|o| Some((o.size, o.churn.as_ref()?))) {
        let share = churn.cpu.as_secs_f64() / churn.wall.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0;
        table.row([
            size.to_string(),
            churn.changes.to_string(),
            format!("{:.1}", churn.wall.as_secs_f64()),
            churn.syncs.to_string(),
            format!("{share:.1} %"),
            ms(churn.p50),
            ms(churn.p99),
            format!("{:.1}", mib(churn.peak_kib)),
            churn.messages.to_string(),
            churn.bytes.to_string(),
        ]);
    }
    table
}

fn rollouts(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&[
        "services x endpoints",
        "steps",
        "wall ms",
        "step p99 ms",
        "CPU ms",
        "peak RSS MiB",
        "messages",
        "bytes",
    ]);
    for Outcome { size, rollout, .. } in outcomes {
        table.row([
            size.to_string(),
            rollout.runs.to_string(),
            ms(rollout.wall),
            ms(rollout.p99),
            ms(rollout.cpu),
            format!("{:.1}", mib(rollout.peak_kib)),
            rollout.messages.to_string(),
            rollout.bytes.to_string(),
        ]);
    }
    table
}

/// Nothing unless both sizes were measured.
fn ratios(outcomes: &[Outcome]) -> Option<Table> {
    let of = |size: Size| outcomes.iter().find(|o| o.size == size);
    let (small, large) = (of(RATIO_SIZES[0])?, of(RATIO_SIZES[1])?);
    let bar = format!("bar: {RATIO}");
    let mut table = Table::new(&["what", "wall", "CPU", &bar]);
    for (before, after) in small.changes.iter().zip(&large.changes) {
        let ratio = |m| measure(after, m) / measure(before, m).max(f64::MIN_POSITIVE);
        let (wall, cpu) = (ratio(Measure::WallMs), ratio(Measure::CpuMs));
        table.row([
            before.what.clone(),
            format!("{wall:.1}"),
            format!("{cpu:.1}"),
            verdict(wall.max(cpu), RATIO).to_owned(),
        ]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::series::{MORE, REPLACED, ROLLOUT, START};

    fn row(what: &str, millis: u64) -> Row {
        let time = Duration::from_millis(millis);
        Row {
            what: what.to_owned(),
            runs: 3,
            wall: time,
            p99: time,
            cpu: time,
            peak_kib: 100 << 10,
            messages: 4,
            bytes: 424,
        }
    }

    fn outcome(services: u32, millis: u64) -> Outcome {
        Outcome {
            size: Size::new(services, 5),
            start: row(START, 1_000 * millis),
            rest_kib: 2048,
            changes: vec![row(REPLACED, millis), row(MORE, 1)],
            churn: None,
            rollout: row(ROLLOUT, 12),
        }
    }

    #[test]
    fn bars_and_ratios_are_judged() {
        let text = tables(Program::Api, &[outcome(1_000, 1), outcome(10_000, 2), outcome(50_000, 11)]);
        let has = |line: &str| assert!(text.contains(line), "{line}\n{text}");
        has(
            "| 10000x5 | 2000.0 | 2000.0 | 100.0 | 2.0 | 4 | 424 | wall ≤ 2000 ms: met; CPU ≤ 3000 ms: met; peak ≤ 80 MiB: missed |",
        );
        has("| one endpoint replaced | 3 | 11.0 | 11.0 | 11.0 | 100.0 | 4 | 424 | wall ≤ 10 ms: missed |");
        has("| one endpoint replaced | 11.0 | 11.0 | missed |");
        has("| one endpoint more | 1.0 | 1.0 | met |");
    }

    #[test]
    fn without_both_sizes_there_is_no_ratio() {
        assert!(!tables(Program::Sync, &[outcome(1_000, 1)]).contains("against"));
    }
}
