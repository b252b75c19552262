//! Who follows what the loop does: health, metrics, what cleans up after a sync.

use std::time::Duration;

use proxier_core::backend::SetAside;
use proxier_core::cluster::Commit;
use proxier_core::driver::{Instance, SyncError, SyncKind, SyncReport};
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::Snapshot;

use super::Settings;
use crate::source::SourceEvent;

/// A sync that went in.
#[derive(Clone, Copy, Debug)]
pub struct Synced<'a> {
    /// The backend.
    pub backend: &'static str,
    /// The family.
    pub family: IpFamily,
    /// What was asked for; [`SyncReport::kind`] is what it became.
    pub kind: SyncKind,
    /// What it did.
    pub report: &'a SyncReport,
    /// What was in force before; `None` for the first sync.
    pub before: Option<&'a Snapshot>,
    /// What is in force now.
    pub snapshot: &'a Snapshot,
    /// Service ports that are left out because the kernel refuses them.
    pub set_aside: usize,
    /// The same, each with the kernel's reason.
    pub left_out: &'a SetAside,
    /// How long it took.
    pub took: Duration,
}

/// A sync that did not go in: what was in force before still is.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// The backend.
    pub backend: &'static str,
    /// The family.
    pub family: IpFamily,
    /// What was asked for.
    pub kind: SyncKind,
    /// Why.
    pub error: &'a SyncError,
    /// How long it took.
    pub took: Duration,
}

/// Follows the loop. All methods are called on the loop's thread, in the order in which things happen: none may block. What takes time
/// belongs on a thread of the observer's own, with what it needs copied (a snapshot is a reference count).
pub trait Observer: Send {
    /// These events are about to be taken in.
    fn events(&mut self, _events: &[SourceEvent]) {}

    /// These settings are in force from now on.
    fn settings(&mut self, _settings: &Settings) {}

    /// What came in was decided upon and published. The first one is the first complete list.
    fn committed(&mut self, _commit: &Commit) {}

    /// This family needs a sync from now on: something changed, or the kernel was found to differ (core spec 6.1).
    fn queued(&mut self, _family: IpFamily) {}

    /// All events that were told of so far are decided upon: whom they concern has been [`Observer::queued`].
    fn decided(&mut self) {}

    /// The first sync of this instance went in, as is told next: at the start, or after new settings. It serves its family from now on.
    fn took_over(&mut self, _instance: &dyn Instance) {}

    /// A sync went in (core spec 6.5, step 6).
    fn synced(&mut self, _synced: &Synced<'_>) {}

    /// A sync failed. It will be tried again.
    fn failed(&mut self, _failed: &Failed<'_>) {}

    /// The kernel was compared with what was programmed, and this many differences were found.
    fn verified(&mut self, _backend: &'static str, _family: IpFamily, _differences: usize) {}

    /// The loop ends; the rules stay in force.
    fn stopping(&mut self) {}
}
