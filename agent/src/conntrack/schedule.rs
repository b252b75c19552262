//! When a pass runs, and over what: pure, time is an argument.

use std::time::Duration;

use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;
use proxier_core::snapshot::Snapshot;
use proxier_core::stale::StaleFlows;

/// After a pass, this many times as long as it took nothing is done: at most a fifth of one processor, however fast changes come.
const REST: u32 = 4;
/// But never longer than this.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// A pass that failed is repeated after this long, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// At most after this long.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// How a pass went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing is left.
    Complete,
    /// What was looked for is to be looked for again.
    Incomplete,
    /// The same, but it makes no sense before something else happens.
    Refused,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// This.
    Run(Box<Job>),
    /// Nothing until then, or until something is added.
    Wait(Option<Duration>),
}

/// What one pass is about.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) family: IpFamily,
    pub(super) stale: StaleFlows,
    /// What is in force.
    pub(super) snapshot: Snapshot,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: StaleFlows,
    snapshot: Option<Snapshot>,
    /// What waits failed before and is not due until then; `None` holds it back until a sync brings more.
    held: Option<Option<Duration>>,
    failures: u32,
}

/// What waits in each family. At most one pass runs; while it does, whatever comes becomes one more.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: PerFamily<Lane>,
    rest_until: Duration,
    last: Option<IpFamily>,
}

impl Schedule {
    /// A sync went in.
    pub(super) fn add(&mut self, stale: &StaleFlows, snapshot: &Snapshot) {
        let lane = self.lanes.get_mut(snapshot.family());
        lane.snapshot = Some(snapshot.clone());
        if !stale.is_empty() {
            lane.waiting.join(stale.clone());
            lane.held = None;
        }
    }

    /// What to do now.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        let order = match self.last {
            Some(IpFamily::Ipv4) => [IpFamily::Ipv6, IpFamily::Ipv4],
            _ => [IpFamily::Ipv4, IpFamily::Ipv6],
        };
        let due = order.into_iter().filter_map(|family| Some((self.lanes.get(family).due()?, family)));
        let due = due.min_by_key(|(due, _)| *due);
        let Some((due, family)) = due.filter(|(due, _)| *due < Duration::MAX) else {
            return Next::Wait(None);
        };
        let due = due.max(self.rest_until);
        if due > now {
            return Next::Wait(Some(due));
        }
        let lane = self.lanes.get_mut(family);
        let Some(snapshot) = lane.snapshot.clone() else { return Next::Wait(None) };
        lane.held = None;
        self.last = Some(family);
        Next::Run(Box::new(Job { family, stale: std::mem::take(&mut lane.waiting), snapshot }))
    }

    /// A pass ended.
    pub(super) fn ended(&mut self, job: Job, now: Duration, took: Duration, ending: Ending) {
        self.rest_until = now + took.saturating_mul(REST).min(LONGEST_REST);
        let lane = self.lanes.get_mut(job.family);
        if ending == Ending::Complete {
            lane.failures = 0;
            return;
        }
        let fresh = !lane.waiting.is_empty();
        lane.waiting.join(job.stale);
        let delay = FIRST_RETRY.saturating_mul(1 << lane.failures.min(16)).min(LONGEST_RETRY);
        lane.failures = lane.failures.saturating_add(1);
        lane.held = match ending {
            // What came meanwhile is due, and takes the rest along.
            _ if fresh => None,
            Ending::Refused => Some(None),
            _ => Some(Some(now + delay)),
        };
    }
}

impl Lane {
    fn due(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        match self.held {
            None => Some(Duration::ZERO),
            Some(until) => Some(until.unwrap_or(Duration::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proxier_core::cluster::{Cluster, TrafficOptions};
    use proxier_core::ids::{EndpointAddr, NodeName, Port, Protocol};
    use proxier_core::snapshot::FrontendKey;
    use proxier_core::stale::Scope;

    use super::*;

    fn snapshot(family: IpFamily) -> Snapshot {
        Cluster::new(NodeName::new("n"), TrafficOptions::default()).commit().snapshot(family).clone()
    }

    /// The flows of one endpoint.
    fn lost(number: u8) -> StaleFlows {
        let port = Port::new(53).unwrap();
        let key = FrontendKey::Address { ip: [10, 96, 0, 10].into(), protocol: Protocol::Udp, port };
        let endpoint = EndpointAddr { ip: [10, 244, 0, number].into(), port };
        let former = BTreeMap::from([(key, BTreeSet::from([endpoint]))]);
        StaleFlows { former, ..StaleFlows::default() }
    }

    fn endpoints(stale: &StaleFlows) -> usize {
        stale.former.values().map(BTreeSet::len).sum()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn run(schedule: &mut Schedule, now: Duration) -> Job {
        match schedule.next(now) {
            Next::Run(job) => *job,
            Next::Wait(until) => panic!("waits until {until:?}"),
        }
    }

    fn waits(schedule: &mut Schedule, now: Duration) -> Option<Duration> {
        match schedule.next(now) {
            Next::Run(job) => panic!("runs {job:?}"),
            Next::Wait(until) => until,
        }
    }

    fn with(stale: &StaleFlows) -> Schedule {
        let mut schedule = Schedule::default();
        schedule.add(stale, &snapshot(IpFamily::Ipv4));
        schedule
    }

    #[test]
    fn a_sync_that_leaves_nothing_behind_starts_nothing() {
        assert_eq!(waits(&mut Schedule::default(), seconds(1)), None);
        assert_eq!(waits(&mut with(&StaleFlows::default()), seconds(1)), None);
    }

    #[test]
    fn the_first_change_is_due_at_once_and_those_during_a_pass_are_one_pass_more() {
        let mut schedule = with(&lost(1));
        let job = run(&mut schedule, seconds(1));
        assert_eq!(waits(&mut schedule, seconds(1)), None, "it was taken");
        for number in 2..=9 {
            schedule.add(&lost(number), &snapshot(IpFamily::Ipv4));
        }
        schedule.ended(job, seconds(2), Duration::ZERO, Ending::Complete);
        let job = run(&mut schedule, seconds(2));
        assert_eq!(endpoints(&job.stale), 8);
        schedule.ended(job, seconds(3), Duration::ZERO, Ending::Complete);
        assert_eq!(waits(&mut schedule, seconds(3)), None);
    }

    #[test]
    fn long_passes_keep_their_distance() {
        let mut schedule = with(&lost(1));
        let job = run(&mut schedule, seconds(0));
        schedule.ended(job, seconds(2), seconds(2), Ending::Complete);
        schedule.add(&lost(2), &snapshot(IpFamily::Ipv4));
        assert_eq!(waits(&mut schedule, seconds(3)), Some(seconds(10)));
        let job = run(&mut schedule, seconds(10));
        schedule.ended(job, seconds(70), seconds(60), Ending::Complete);
        schedule.add(&lost(3), &snapshot(IpFamily::Ipv6));
        assert_eq!(waits(&mut schedule, seconds(71)), Some(seconds(80)), "and for the other family, too");
    }

    #[test]
    fn what_failed_comes_back_later_and_later() {
        let mut schedule = with(&lost(1));
        let mut now = Duration::ZERO;
        for delay in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let job = run(&mut schedule, now);
            schedule.ended(job, now, Duration::ZERO, Ending::Incomplete);
            assert_eq!(waits(&mut schedule, now), Some(now + seconds(delay)));
            now += seconds(delay);
        }
        let job = run(&mut schedule, now);
        assert_eq!(job.stale, lost(1));
        schedule.ended(job, now, Duration::ZERO, Ending::Complete);
        assert_eq!(waits(&mut schedule, now), None);
        schedule.add(&lost(2), &snapshot(IpFamily::Ipv4));
        let job = run(&mut schedule, now);
        schedule.ended(job, now, Duration::ZERO, Ending::Incomplete);
        assert_eq!(waits(&mut schedule, now), Some(now + seconds(1)), "a success forgets the failures");
    }

    #[test]
    fn the_next_change_takes_along_what_failed() {
        for ending in [Ending::Incomplete, Ending::Refused] {
            let mut schedule = with(&lost(1));
            let job = run(&mut schedule, seconds(1));
            schedule.ended(job, seconds(1), Duration::ZERO, ending);
            schedule.add(&lost(2), &snapshot(IpFamily::Ipv4));
            let job = run(&mut schedule, seconds(1));
            assert_eq!(endpoints(&job.stale), 2);

            // Also when it came during the pass.
            schedule.add(&lost(3), &snapshot(IpFamily::Ipv4));
            schedule.ended(job, seconds(1), Duration::ZERO, ending);
            assert_eq!(endpoints(&run(&mut schedule, seconds(1)).stale), 3);
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_tried_again_by_itself() {
        let mut schedule = with(&lost(1));
        let job = run(&mut schedule, seconds(1));
        schedule.ended(job, seconds(1), Duration::ZERO, Ending::Refused);
        assert_eq!(waits(&mut schedule, seconds(1_000_000)), None);
        schedule.add(&StaleFlows::default(), &snapshot(IpFamily::Ipv4));
        assert_eq!(waits(&mut schedule, seconds(1_000_000)), None, "a sync of something else is no reason");
    }

    #[test]
    fn families_take_turns_and_do_not_wait_for_each_others_failures() {
        let mut schedule = with(&lost(1));
        schedule.add(
            &StaleFlows { scope: Scope::Everything, ..StaleFlows::default() },
            &snapshot(IpFamily::Ipv6),
        );
        let first = run(&mut schedule, seconds(1));
        assert_eq!(first.family, IpFamily::Ipv4);
        schedule.ended(first, seconds(1), Duration::ZERO, Ending::Incomplete);
        schedule.add(&lost(2), &snapshot(IpFamily::Ipv4));
        let second = run(&mut schedule, seconds(1));
        assert_eq!((second.family, second.stale.scope), (IpFamily::Ipv6, Scope::Everything));
        schedule.ended(second, seconds(1), Duration::ZERO, Ending::Refused);
        assert_eq!(run(&mut schedule, seconds(1)).family, IpFamily::Ipv4);
    }

    #[test]
    fn a_pass_judges_by_the_newest_snapshot() {
        let mut schedule = with(&lost(1));
        let mut cluster = Cluster::new(NodeName::new("n"), TrafficOptions::default());
        cluster.set_options(TrafficOptions { masquerade_all: true, ..TrafficOptions::default() });
        let newest = cluster.commit().snapshot(IpFamily::Ipv4).clone();
        schedule.add(&StaleFlows::default(), &newest);
        assert!(run(&mut schedule, seconds(1)).snapshot.context().masquerade_all);
    }
}
