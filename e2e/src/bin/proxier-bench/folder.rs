//! Start and single edits on a folder of manifests.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use proxier_testkit::bench::bars::{Measure, Program, verdicts};
use proxier_testkit::bench::report::{mib, ms};
use proxier_testkit::bench::series::START;
use proxier_testkit::bench::{Agent, Feed, Samples, Size, Table, verify};
use proxier_testkit::scale;

use crate::manifests::{self, EDITED, write_list};
use crate::room::Room;

/// Edits of one file whose way to the kernel is timed.
const EDITS: u32 = 21;
/// How long anything may take until it counts as failed.
const LIMIT: Duration = Duration::from_secs(300);

struct Run {
    wall: Duration,
    cpu: Duration,
    peak_kib: u64,
    edit: Duration,
}

/// One line for each size.
pub(crate) fn table(program: &Path, sizes: &[Size], runs: usize) -> anyhow::Result<Table> {
    let mut table = Table::new(&[
        "services x endpoints",
        "runs",
        "wall ms",
        "CPU ms",
        "peak RSS MiB",
        "edited file to kernel ms",
        "bar",
    ]);
    for size in sizes {
        let all: Vec<Run> = (0..runs.max(1)).map(|_| one(program, *size)).collect::<anyhow::Result<_>>()?;
        let median = |pick: fn(&Run) -> Duration| all.iter().map(pick).collect::<Samples>().median();
        let mut peaks: Vec<u64> = all.iter().map(|run| run.peak_kib).collect();
        peaks.sort_unstable();
        let peak = mib(peaks.get(peaks.len() / 2).copied().unwrap_or(0));
        let (wall, cpu) = (median(|r| r.wall), median(|r| r.cpu));
        let value = |measure| match measure {
            Measure::WallMs => wall.as_secs_f64() * 1000.0,
            Measure::CpuMs => cpu.as_secs_f64() * 1000.0,
            Measure::PeakMib => peak,
        };
        table.row([
            size.to_string(),
            all.len().to_string(),
            ms(wall),
            ms(cpu),
            format!("{peak:.1}"),
            ms(median(|r| r.edit)),
            verdicts(Program::Folder, *size, START, value),
        ]);
    }
    Ok(table)
}

fn one(program: &Path, size: Size) -> anyhow::Result<Run> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    manifests::write(path, size)?;
    Room::new()?.run(|| inside(program, path, size))?
}

fn inside(program: &Path, path: &Path, size: Size) -> anyhow::Result<Run> {
    let feed = Feed::Manifests(path);
    let agent = Agent::start(program, feed)?;
    let process = agent.process()?;
    let sync = agent.programmed(LIMIT)?;
    let (wall, cpu, peak_kib) = (sync.at - agent.begun(), process.cpu()?, process.peak_kib()?);
    let mut edits = Samples::default();
    for edit in 1..=EDITS {
        let begun = Instant::now();
        write_list(path, EDITED, &[scale::slice_json(size.services - 1, size.endpoints, edit % 2 + 1)])?;
        let sync = agent.next(begun + LIMIT)?.context("an edit did not reach the kernel")?;
        edits.push(sync.at - begun);
    }
    verify(program, feed)?;
    Ok(Run { wall, cpu, peak_kib, edit: edits.median() })
}
