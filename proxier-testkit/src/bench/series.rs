//! The changes that every subject is put through, and what they cost.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::fleet::Rollout;
use super::{Arguments, Change, Churn, Error, Fleet, Process, Samples, Size, Subject, Synced, churn};
use crate::scale::Part;

/// Row: from nothing to everything in the kernel.
pub const START: &str = "start";
/// Row: the first endpoint of a Service gives way to another one.
pub const REPLACED: &str = "one endpoint replaced";
/// Row: one endpoint more.
pub const MORE: &str = "one endpoint more";
/// Row: one endpoint less.
pub const LESS: &str = "one endpoint less";
/// Row: a Service whose slice is there already.
pub const SERVICE_ADDED: &str = "service added";
/// Row: a Service whose slice stays.
pub const SERVICE_REMOVED: &str = "service removed";
/// Row: a Service of 1,000 endpoints is rolled over.
pub const ROLLOUT: &str = "1,000 endpoints rolled over";

/// How long a change may take until it counts as lost.
pub(super) const LOST: Duration = Duration::from_secs(60);
/// Services that are not among those of the cluster have numbers from this many on.
const BEYOND: u32 = 10_000;

/// What something cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What it was.
    pub what: String,
    /// How often it was done.
    pub runs: usize,
    /// Median of the time until it was in the kernel; of a rollout the time of all steps together.
    pub wall: Duration,
    /// 99th percentile of that; of a rollout that of one step.
    pub p99: Duration,
    /// Median of CPU time; of a rollout that of all steps together.
    pub cpu: Duration,
    /// Peak of resident memory meanwhile, KiB.
    pub peak_kib: u64,
    /// Netlink messages: of each time, on average; of a rollout all together.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Everything measured at one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The cluster.
    pub size: Size,
    /// The start.
    pub start: Row,
    /// Resident memory after it, KiB.
    pub rest_kib: u64,
    /// Single changes.
    pub changes: Vec<Row>,
    /// Steady change; `None` if it was not asked for.
    pub churn: Option<Churn>,
    /// The rollout.
    pub rollout: Row,
}

/// Measures CPU time and memory of a stretch of work.
pub struct Stretch {
    process: Process,
    begun: Instant,
    cpu: Duration,
}

impl Stretch {
    /// Begins now; the peak of memory begins anew.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn begin(process: Process) -> Result<Self, Error> {
        process.forget_peak()?;
        Ok(Self { process, cpu: process.cpu()?, begun: Instant::now() })
    }

    /// Wall time, CPU time and peak of memory in KiB so far.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn end(&self) -> Result<(Duration, Duration, u64), Error> {
        let wall = self.begun.elapsed();
        Ok((wall, self.process.cpu()?.saturating_sub(self.cpu), self.process.peak_kib()?))
    }
}

/// Puts a subject, which holds the fleet already, through everything.
///
/// `runs` is how often each single change is made; `settle` is how long after a change the subject is left alone, so that what it does
/// behind it counts for it and not for the next one.
///
/// # Errors
/// When a change does not reach the kernel within a minute, or the subject fails.
pub fn run(
    subject: &mut dyn Subject,
    fleet: &mut Fleet,
    (start, rest_kib): (Row, u64),
    arguments: &Arguments,
    (runs, settle): (usize, Duration),
) -> Result<Outcome, Error> {
    let size = fleet.size();
    let mut runner = Runner { subject, runs, settle };
    let mut changes = vec![runner.repeat(REPLACED, |_| {
        let number = fleet.pick();
        Steps::one(fleet.replace(number))
    })?];
    let numbers: Vec<u32> = (0..runs.min(size.services as usize)).map(|_| fleet.pick()).collect();
    for what in [MORE, LESS] {
        runner.runs = numbers.len();
        changes.push(runner.repeat(what, |round| Steps::one(fleet.recount(numbers[round])))?);
    }
    runner.runs = runs;
    let beyond = |round: usize| size.services + BEYOND + u32::try_from(round).unwrap_or(0);
    let slice = |number| Part::whole(number, size.endpoints, 0);
    changes.push(runner.repeat(SERVICE_ADDED, |round| Steps {
        before: vec![Change::Slice(slice(beyond(round)))],
        change: Change::Service(beyond(round)),
        after: Vec::new(),
    })?);
    changes.push(runner.repeat(SERVICE_REMOVED, |round| Steps {
        before: Vec::new(),
        change: Change::ServiceGone(beyond(round)),
        after: vec![Change::SliceGone(slice(beyond(round)))],
    })?);
    let rollout = runner.rollout(size.services + BEYOND / 2)?;
    let churn = match arguments.churn_seconds {
        0 => None,
        seconds => Some(churn::run(runner.subject, fleet, Duration::from_secs(seconds.into()))?),
    };
    Ok(Outcome { size, start, rest_kib, changes, churn, rollout })
}

/// A change that is timed, and what prepares and follows it without an effect on the kernel.
struct Steps {
    before: Vec<Change>,
    change: Change,
    after: Vec<Change>,
}

impl Steps {
    fn one(change: Change) -> Self {
        Self { before: Vec::new(), change, after: Vec::new() }
    }
}

struct Runner<'a> {
    subject: &'a mut dyn Subject,
    runs: usize,
    settle: Duration,
}

/// Sum over syncs.
#[derive(Clone, Copy, Default)]
struct Written {
    messages: u64,
    bytes: u64,
}

impl Written {
    fn add(&mut self, sync: Synced) {
        self.messages += sync.messages;
        self.bytes += sync.bytes;
    }
}

impl Runner<'_> {
    fn repeat(&mut self, what: &str, mut steps: impl FnMut(usize) -> Steps) -> Result<Row, Error> {
        let (mut walls, mut cpus, mut written) = (Samples::default(), Samples::default(), Written::default());
        let process = self.subject.process();
        process.forget_peak()?;
        for round in 0..self.runs {
            let Steps { before, change, after } = steps(round);
            self.quietly(&before)?;
            let cpu = process.cpu()?;
            walls.push(self.timed(what, change, &mut written)?);
            self.rest(&mut written)?;
            cpus.push(process.cpu()?.saturating_sub(cpu));
            self.quietly(&after)?;
        }
        let runs = u64::try_from(self.runs).unwrap_or(u64::MAX).max(1);
        Ok(Row {
            what: what.to_owned(),
            runs: self.runs,
            wall: walls.median(),
            p99: walls.percentile(99),
            cpu: cpus.median(),
            peak_kib: process.peak_kib()?,
            messages: written.messages / runs,
            bytes: written.bytes / runs,
        })
    }

    fn rollout(&mut self, service: u32) -> Result<Row, Error> {
        let rollout = Rollout::new(service, 20, 50, 10);
        self.quietly(&rollout.before())?;
        self.timed(ROLLOUT, Change::Service(service), &mut Written::default())?;
        self.rest(&mut Written::default())?;
        let (mut walls, mut written) = (Samples::default(), Written::default());
        let stretch = Stretch::begin(self.subject.process())?;
        for change in rollout.steps() {
            walls.push(self.timed(ROLLOUT, change, &mut written)?);
        }
        self.rest(&mut written)?;
        let (_, cpu, peak_kib) = stretch.end()?;
        self.timed(ROLLOUT, Change::ServiceGone(service), &mut Written::default())?;
        self.quietly(&rollout.away())?;
        Ok(Row {
            what: ROLLOUT.to_owned(),
            runs: walls.len(),
            wall: walls.sum(),
            p99: walls.percentile(99),
            cpu,
            peak_kib,
            messages: written.messages,
            bytes: written.bytes,
        })
    }

    /// From the change until it is in the kernel.
    fn timed(&mut self, what: &str, change: Change, written: &mut Written) -> Result<Duration, Error> {
        let begun = Instant::now();
        self.subject.send(&[change])?;
        let Some(sync) = self.subject.next(begun + LOST)? else {
            return Err(Error::Wrong(format!("{what}: it did not reach the kernel within {LOST:?}")));
        };
        written.add(sync);
        Ok(sync.at.saturating_duration_since(begun))
    }

    /// Changes without an effect on the kernel.
    fn quietly(&mut self, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        self.subject.send(changes)?;
        self.rest(&mut Written::default())
    }

    fn rest(&mut self, written: &mut Written) -> Result<(), Error> {
        let until = Instant::now() + self.settle;
        while let Some(sync) = self.subject.next(until)? {
            written.add(sync);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
