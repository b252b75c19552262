//! The state of each family as the loop last said it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proxier_core::backend::SetAside;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::Snapshot;

use super::history::{SYNCS, SyncRecord};
use crate::metrics::page::{Family, Page};
use crate::metrics::{Pending, WallClock};

const GENERATION: Family = Family::gauge(
    "proxier_generation",
    "Number of the state that is desired, and of the one that is in force; 0 for none. Equal when all is well.",
);
const SERVICE_PORTS: Family = Family::gauge("proxier_service_ports", "Service ports that are in force.");
const PENDING: Family = Family::gauge(
    "proxier_pending_seconds",
    "How long something has been desired that is not in force; 0 when nothing is.",
);

/// When a sync failed, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Seconds since the epoch.
    pub at: f64,
    /// What the backend said.
    pub error: String,
    /// What can be done about it.
    pub class: String,
}

/// One family.
#[derive(Clone, Debug)]
pub struct LaneState {
    /// The family.
    pub family: IpFamily,
    /// The backend.
    pub backend: &'static str,
    /// What should be in force.
    pub desired: Option<Snapshot>,
    /// What is.
    pub in_force: Option<Snapshot>,
    /// Since when they differ, in seconds since the epoch.
    pub pending_since: Option<f64>,
    /// The last sync that went in.
    pub last_sync: Option<Arc<SyncRecord>>,
    /// The last failure, also when it is over.
    pub last_failure: Option<Failure>,
    /// Syncs that failed since one went in.
    pub failures: u64,
    /// Service ports that are left out, each with the kernel's reason.
    pub set_aside: Arc<SetAside>,
    /// When the kernel was last compared, and how many differences were found.
    pub verification: Option<(f64, usize)>,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<LaneState>,
    history: VecDeque<Arc<SyncRecord>>,
    last_event: Option<f64>,
    listed: bool,
}

/// What the loop says and others read. A lock is held for no longer than it takes to copy some references.
#[derive(Debug)]
pub struct Board {
    clock: WallClock,
    state: Mutex<State>,
}

impl Board {
    /// For these families of a backend; nothing is known yet.
    #[must_use]
    pub fn new(backend: &'static str, families: &[IpFamily], clock: WallClock) -> Self {
        let lane = |family: &IpFamily| LaneState {
            family: *family,
            backend,
            desired: None,
            in_force: None,
            pending_since: None,
            last_sync: None,
            last_failure: None,
            failures: 0,
            set_aside: Arc::default(),
            verification: None,
        };
        let lanes = families.iter().map(lane).collect();
        Self { clock, state: Mutex::new(State { lanes, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, family: IpFamily, change: impl FnOnce(&mut LaneState, f64)) {
        let now = (self.clock)();
        if let Some(lane) = self.state().lanes.iter_mut().find(|l| l.family == family) {
            change(lane, now);
        }
    }

    /// Every family as it is.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneState> {
        self.state().lanes.clone()
    }

    /// The last syncs, the newest first.
    #[must_use]
    pub fn history(&self) -> Vec<Arc<SyncRecord>> {
        self.state().history.iter().rev().cloned().collect()
    }

    /// When an event last came, and whether the first complete list did.
    #[must_use]
    pub fn source(&self) -> (Option<f64>, bool) {
        let state = self.state();
        (state.last_event, state.listed)
    }

    /// What is desired and not in force. Costs the difference, outside of any lock.
    #[must_use]
    pub fn pending(&self) -> Pending {
        let mut out = Pending::default();
        for lane in self.lanes() {
            if let Some(desired) = &lane.desired {
                out.add(lane.in_force.as_ref(), desired);
            }
        }
        out
    }

    /// Events came; the first complete list perhaps with them.
    pub(super) fn heard(&self, listed: bool) {
        let now = (self.clock)();
        let mut state = self.state();
        state.last_event = Some(now);
        state.listed |= listed;
    }

    /// Another state is desired.
    pub(super) fn desired(&self, family: IpFamily, snapshot: &Snapshot) {
        self.change(family, |lane, now| {
            lane.desired = Some(snapshot.clone());
            lane.pending_since.get_or_insert(now);
        });
    }

    /// A sync went in.
    pub(super) fn synced(&self, snapshot: &Snapshot, set_aside: &SetAside, record: SyncRecord) {
        let record = Arc::new(record);
        // Replaced values are dropped once the lock is free: the last reference to a large snapshot may be among them.
        let mut dropped = Vec::new();
        self.change(snapshot.family(), |lane, _| {
            dropped.extend(lane.in_force.replace(snapshot.clone()));
            // An empty snapshot is the first one that is desired, and no change.
            if lane.desired.is_none() {
                lane.desired = Some(snapshot.clone());
            }
            let done = lane.desired.as_ref().is_some_and(|d| d.generation() == snapshot.generation());
            lane.pending_since = lane.pending_since.filter(|_| !done);
            lane.failures = 0;
            if *lane.set_aside != *set_aside {
                lane.set_aside = Arc::new(set_aside.clone());
            }
            lane.last_sync = Some(Arc::clone(&record));
        });
        self.remember(record);
    }

    /// A sync failed.
    pub(super) fn failed(&self, family: IpFamily, class: String, record: SyncRecord) {
        let record = Arc::new(record);
        self.change(family, |lane, now| {
            lane.failures += 1;
            lane.pending_since.get_or_insert(now);
            let error = record.error.clone().unwrap_or_default();
            lane.last_failure = Some(Failure { at: now, error, class });
        });
        self.remember(record);
    }

    fn remember(&self, record: Arc<SyncRecord>) {
        let mut state = self.state();
        if state.history.len() >= SYNCS {
            state.history.pop_front();
        }
        state.history.push_back(record);
    }

    /// The kernel was compared.
    pub(super) fn verified(&self, family: IpFamily, differences: usize) {
        self.change(family, |lane, now| lane.verification = Some((now, differences)));
    }

    /// Adds what it knows to a scrape.
    pub fn collect(&self, page: &mut Page) {
        let now = (self.clock)();
        for lane in self.lanes() {
            let family = lane.family.to_string();
            let number = |s: &Option<Snapshot>| s.as_ref().map_or(0.0, |s| s.generation().0 as f64);
            let states = [("desired", number(&lane.desired)), ("in_force", number(&lane.in_force))];
            for (state, value) in states {
                page.sample(GENERATION, &[("ip_family", &family), ("state", state)], value);
            }
            let labels = &[("ip_family", &*family)];
            let ports = lane.in_force.as_ref().map_or(0, Snapshot::len);
            page.sample(SERVICE_PORTS, labels, ports as f64);
            page.sample(PENDING, labels, lane.pending_since.map_or(0.0, |at| (now - at).max(0.0)));
        }
    }
}
