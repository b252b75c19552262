//! Steady change: one Service in a hundred each second.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::series::{LOST, Stretch};
use super::{Error, Fleet, Samples, Subject};

/// What steady change cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Churn {
    /// Changes made, each of another Service: in turn one endpoint replaced, and their number changed.
    pub changes: u64,
    /// How long it took, from the first change until the last one was in the kernel.
    pub wall: Duration,
    /// CPU time meanwhile.
    pub cpu: Duration,
    /// Syncs that wrote something.
    pub syncs: u64,
    /// Median of the time from when a change was due until it was in the kernel.
    pub p50: Duration,
    /// 99th percentile of it.
    pub p99: Duration,
    /// Peak of resident memory meanwhile, KiB.
    pub peak_kib: u64,
    /// Netlink messages.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Makes changes at an even pace. Each is of another Service and the subject takes them in order, so that the number of service ports that a
/// sync brings tells which changes those are.
pub(super) fn run(subject: &mut dyn Subject, fleet: &mut Fleet, length: Duration) -> Result<Churn, Error> {
    let rate = (fleet.size().services / 100).max(1);
    let gap = Duration::from_secs(1) / rate;
    let total = length.as_secs() * u64::from(rate);
    let stretch = Stretch::begin(subject.process())?;
    let begun = Instant::now();
    let mut tally = Tally::default();
    for round in 0..total {
        let due = begun + gap * u32::try_from(round).unwrap_or(u32::MAX);
        tally.wait(subject, due)?;
        let number = fleet.pick();
        let change = if round.is_multiple_of(2) { fleet.replace(number) } else { fleet.recount(number) };
        subject.send(&[change])?;
        tally.due.push(due);
    }
    let deadline = Instant::now() + LOST;
    while tally.latencies.len() < tally.due.len() {
        if !tally.take(subject, deadline)? {
            let (came, made) = (tally.latencies.len(), tally.due.len());
            return Err(Error::Wrong(format!("{came} of {made} changes reached the kernel within {LOST:?}")));
        }
    }
    let (wall, cpu, peak_kib) = stretch.end()?;
    Ok(Churn {
        changes: total,
        wall,
        cpu,
        syncs: tally.syncs,
        p50: tally.latencies.median(),
        p99: tally.latencies.percentile(99),
        peak_kib,
        messages: tally.messages,
        bytes: tally.bytes,
    })
}

#[derive(Default)]
struct Tally {
    due: Vec<Instant>,
    latencies: Samples,
    syncs: u64,
    messages: u64,
    bytes: u64,
}

impl Tally {
    /// Takes what is known to be in the kernel until a change is due.
    fn wait(&mut self, subject: &mut dyn Subject, due: Instant) -> Result<(), Error> {
        while Instant::now() < due {
            self.take(subject, due)?;
        }
        Ok(())
    }

    /// Whether there was a sync.
    fn take(&mut self, subject: &mut dyn Subject, until: Instant) -> Result<bool, Error> {
        let Some(sync) = subject.next(until)? else { return Ok(false) };
        let ports = usize::try_from(sync.ports).unwrap_or(usize::MAX);
        let done = self.due.iter().skip(self.latencies.len()).take(ports);
        let latencies: Samples = done.map(|due| sync.at.saturating_duration_since(*due)).collect();
        self.latencies.append(latencies);
        self.syncs += 1;
        self.messages += sync.messages;
        self.bytes += sync.bytes;
        Ok(true)
    }
}
