//! When to sync: a state machine over a clock that the caller reads.
//!
//! It remembers what was asked for and what happened, and answers what to do now. All times are durations since an origin of the
//! caller's choice, on a clock that never goes back.

use std::time::Duration;

use crate::driver::SyncKind;

/// The periods (core spec 6.3, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Least time between the end of one sync and the start of the next.
    pub min_interval: Duration,
    /// Delay of the first retry after a failure; doubles with each further one.
    pub retry_initial: Duration,
    /// Longest delay of a retry.
    pub retry_max: Duration,
    /// Compare the kernel with the belief this long after the last sync or comparison; `None` never does.
    pub verify_interval: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            min_interval: Duration::ZERO,
            retry_initial: Duration::from_millis(500),
            retry_max: Duration::from_secs(30),
            verify_interval: Some(Duration::from_secs(60)),
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until this time, or until something is requested; `None` waits for a request only.
    Wait(Option<Duration>),
    /// Sync.
    Sync(SyncKind),
    /// Compare the kernel with the belief.
    Verify,
}

/// How a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the kernel.
    Done {
        /// Sync again after this long to remove leftovers.
        follow_up: Option<Duration>,
        /// Service ports were left out: try them again as after a failure.
        incomplete: bool,
    },
    /// Not in the kernel.
    Failed,
}

/// The state machine. It starts idle: nothing happens before [`Reconciler::ready`].
#[derive(Clone, Debug)]
pub struct Reconciler {
    policy: Policy,
    ready: bool,
    wanted: Option<SyncKind>,
    last_end: Option<Duration>,
    retry_at: Option<(Duration, SyncKind)>,
    failures: u32,
    verify_at: Option<Duration>,
    /// Somebody asked for a comparison.
    verify_asked: bool,
}

impl Reconciler {
    /// Nothing is wanted yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ready: false,
            wanted: None,
            last_end: None,
            retry_at: None,
            failures: 0,
            verify_at: None,
            verify_asked: false,
        }
    }

    /// The first complete lists are in: the first sync, in full, may happen (core spec 6.2).
    pub fn ready(&mut self) {
        if !self.ready {
            self.ready = true;
            self.wanted = Some(SyncKind::Full);
        }
    }

    /// Is the first sync allowed?
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Something changed. Requests collapse until the next sync starts; a full one is not forgotten for a partial one.
    pub fn request(&mut self, kind: SyncKind) {
        self.wanted = match (self.wanted, kind) {
            (Some(SyncKind::Full), _) | (_, SyncKind::Full) => Some(SyncKind::Full),
            _ => Some(SyncKind::Partial),
        };
    }

    /// Something is wanted or a retry is scheduled.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.wanted.is_some() || self.retry_at.is_some()
    }

    /// Failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What to do at this time.
    #[must_use]
    pub fn next(&self, now: Duration) -> Action {
        if !self.ready {
            return Action::Wait(None);
        }
        let cooled = self.last_end.map_or(Duration::ZERO, |end| end + self.policy.min_interval);
        let request = self.wanted.map(|kind| (cooled, kind));
        let retry = self.retry_at.map(|(at, kind)| (at.max(cooled), kind));
        let due = |entry: &(Duration, SyncKind)| entry.0 <= now;
        let kinds = [request.filter(due), retry.filter(due)];
        if kinds.iter().flatten().next().is_some() {
            let full = kinds.iter().flatten().any(|(_, k)| *k == SyncKind::Full);
            return Action::Sync(if full { SyncKind::Full } else { SyncKind::Partial });
        }
        if (self.verify_asked || self.verify_at.is_some_and(|at| at <= now)) && request.is_none() {
            return Action::Verify;
        }
        let times = [request.map(|r| r.0), retry.map(|r| r.0), self.verify_at];
        Action::Wait(times.into_iter().flatten().filter(|t| *t > now).min())
    }

    /// A sync starts: what was requested so far is in it.
    pub fn started(&mut self) {
        self.wanted = None;
        self.retry_at = None;
    }

    /// A sync ended.
    pub fn finished(&mut self, now: Duration, outcome: Outcome) {
        self.last_end = Some(now);
        self.verify_at = self.policy.verify_interval.map(|i| now + i);
        match outcome {
            Outcome::Done { follow_up, incomplete } => {
                if incomplete {
                    self.retry_at = Some((now + self.back_off(), SyncKind::Full));
                    self.failures = self.failures.saturating_add(1);
                } else {
                    self.failures = 0;
                    self.retry_at = follow_up.map(|after| (now + after, SyncKind::Partial));
                }
            }
            Outcome::Failed => {
                self.retry_at = Some((now + self.back_off(), SyncKind::Full));
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    /// Somebody wants to know whether the kernel is as it should be: it is compared as soon as nothing is to be written.
    pub fn verify_soon(&mut self) {
        self.verify_asked = true;
    }

    /// A comparison ended: drift asks for a full sync. One that could not be made is neither; the caller says `in_order` and it is tried again
    /// after the interval.
    pub fn verified(&mut self, now: Duration, in_order: bool) {
        self.verify_asked = false;
        self.verify_at = self.policy.verify_interval.map(|i| now + i);
        if !in_order {
            self.request(SyncKind::Full);
        }
    }

    /// Takes over other periods. What was asked for, and what was scheduled by the old ones, stays, except for the next comparison, which is one new
    /// interval away if the interval is another one.
    pub fn set_policy(&mut self, now: Duration, policy: Policy) {
        if policy.verify_interval != self.policy.verify_interval && self.last_end.is_some() {
            self.verify_at = policy.verify_interval.map(|i| now + i);
        }
        self.policy = policy;
    }

    fn back_off(&self) -> Duration {
        let factor = 2u32.saturating_pow(self.failures.min(16));
        self.policy.retry_initial.saturating_mul(factor).min(self.policy.retry_max)
    }
}

#[cfg(test)]
mod tests;
