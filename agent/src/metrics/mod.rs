//! Metrics: kube-proxy's, so that its dashboards and alerts go on (core spec 8), and ours.
//!
//! The sync loop's thread and others change plain values ([`values`]); a scrape reads them and writes a [`Page`]. Nothing is counted by
//! Service, endpoint or client: how many series there are depends on the mode and the families alone.
//!
//! `docs/metrics.md` lists every metric.

pub mod client;
pub mod figures;
mod kubeproxy;
mod lane;
mod no_local;
mod own;
pub mod page;
pub mod process;
#[cfg(test)]
mod tests;
pub mod values;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proxier_core::changes::ChangeSet;
use proxier_core::driver::{SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, Timestamp};
use proxier_core::model::PerFamily;

pub use self::client::ClientMetrics;
pub use self::figures::Figures;
pub use self::kubeproxy::Pending;
use self::kubeproxy::Probes;
use self::lane::Lane;
pub use self::no_local::{NoLocal, NoLocalCount};
pub use self::own::{Gates, VERSION, platform};
pub use self::page::{Family, Page};
use self::values::{Counter, Gauge};

/// Says how many seconds have passed since the epoch.
pub type WallClock = fn() -> f64;

/// The host's clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "whoever watches from elsewhere wants to know when something was"
)]
pub fn wall_clock() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |d| d.as_secs_f64())
}

/// Something else that is read at each scrape.
type Source = Box<dyn Fn(&mut Page) + Send + Sync>;

/// Answers of a probe so far, by status code.
pub type ProbeCounts = Vec<(u16, u64)>;

/// All values. Shared; every method may be called on any thread, and none blocks for longer than a scrape copies a histogram.
pub struct Metrics {
    mode: String,
    figures: Figures,
    clock: WallClock,
    started: f64,
    lanes: PerFamily<Option<Lane>>,
    service_changes: Counter,
    endpoint_changes: Counter,
    last_event: Gauge,
    gates: Mutex<Gates>,
    client: Arc<ClientMetrics>,
    probes: Mutex<Option<Probes>>,
    sources: Mutex<Vec<Source>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Metrics {
    /// For a mode that counts these figures, and these families. A sync counts as queued from now on (core spec 8).
    #[must_use]
    pub fn new(mode: &str, figures: Figures, families: &[IpFamily], clock: WallClock) -> Self {
        let started = clock();
        let lane = |family| families.contains(&family).then(|| Lane::new(&figures, started));
        Self {
            mode: mode.to_owned(),
            figures,
            started,
            lanes: PerFamily { ipv4: lane(IpFamily::Ipv4), ipv6: lane(IpFamily::Ipv6) },
            clock,
            service_changes: Counter::default(),
            endpoint_changes: Counter::default(),
            last_event: Gauge::default(),
            gates: Mutex::default(),
            client: Arc::default(),
            probes: Mutex::default(),
            sources: Mutex::default(),
        }
    }

    /// These feature gates are told from now on.
    pub fn set_gates(&self, gates: Gates) {
        *self.gates.lock().unwrap_or_else(PoisonError::into_inner) = gates;
    }

    /// Where requests to the API server are counted.
    #[must_use]
    pub fn client(&self) -> &Arc<ClientMetrics> {
        &self.client
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> &str {
        &self.mode
    }

    /// Seconds since the epoch, now.
    #[must_use]
    pub fn now(&self) -> f64 {
        (self.clock)()
    }

    /// When the process began to count, in seconds since the epoch.
    #[must_use]
    pub fn started(&self) -> f64 {
        self.started
    }

    /// Whoever answers `/healthz` and `/livez` says at each scrape how often it answered what.
    pub fn probes(&self, read: impl Fn() -> (ProbeCounts, ProbeCounts) + Send + Sync + 'static) {
        *self.probes.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(read));
    }

    /// Something else adds its samples at each scrape.
    pub fn register(&self, source: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(source));
    }

    /// So many events of Services and EndpointSlices came (core spec 2.5 and 2.7: effective or not). Each counts once, whatever the number of
    /// families.
    pub fn events(&self, services: u64, slices: u64) {
        self.service_changes.add(services);
        self.endpoint_changes.add(slices);
        self.last_event.set(self.now());
    }

    /// A sync is requested.
    pub fn queued(&self, family: IpFamily) {
        if let Some(lane) = self.lane(family) {
            lane.last_queued.set(self.now());
        }
    }

    /// A sync went in.
    pub fn synced(&self, family: IpFamily, asked: SyncKind, report: &SyncReport, took: Duration) {
        let Some(lane) = self.lane(family) else { return };
        lane.sync_ended(report.kind, took);
        lane.last_timestamp.set(self.now());
        lane.wrote(report);
        lane.refused(asked, report.setbacks.len() as u64);
        lane.cleanup_failures.add(report.cleanup_failures as u64);
    }

    /// A sync failed.
    pub fn failed(&self, family: IpFamily, asked: SyncKind, took: Duration) {
        let Some(lane) = self.lane(family) else { return };
        lane.sync_ended(asked, took);
        lane.failed_syncs.add(1);
        lane.refused(asked, 1);
    }

    /// These changes are in force; `lag` is how long ago the first of the events came that led to them, if any did.
    pub fn in_force(&self, family: IpFamily, changes: &ChangeSet, lag: Option<Duration>) {
        let Some(lane) = self.lane(family) else { return };
        lane.follow(changes, self.figures.by_service);
        if let Some(lag) = lag {
            lane.lag.observe_duration(lag);
        }
    }

    /// Endpoint changes that were triggered at these times are in force. Those from before the process began do not count (core spec 2.6).
    pub fn programmed(&self, family: IpFamily, triggers: &[Timestamp]) {
        let Some(lane) = self.lane(family) else { return };
        let now = self.now();
        for trigger in triggers {
            let at = trigger.0 as f64 / 1e9;
            if at > self.started {
                lane.programming.observe((now - at).max(0.0));
            }
        }
    }

    /// The kernel was compared with what was programmed.
    pub fn verified(&self, family: IpFamily, differences: usize) {
        if let Some(lane) = self.lane(family) {
            lane.verified(differences, self.now());
        }
    }

    /// Service ports that are left out because the kernel refuses them.
    pub fn set_aside(&self, family: IpFamily, ports: usize) {
        if let Some(lane) = self.lane(family) {
            lane.set_aside.set(ports as f64);
        }
    }

    /// A pass of the conntrack reconciler (core spec 5) took so long, and deleted so many entries.
    pub fn conntrack_pass(&self, family: IpFamily, took: Duration, deleted: u64) {
        if let Some(lane) = self.lane(family) {
            lane.conntrack.observe_duration(took);
            lane.conntrack_deleted.add(deleted);
        }
    }

    /// How much is held that depends on the cluster.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.lanes().map(|(_, lane)| lane.held()).sum()
    }

    fn lane(&self, family: IpFamily) -> Option<&Lane> {
        self.lanes.get(family).as_ref()
    }

    fn lanes(&self) -> impl Iterator<Item = (IpFamily, &Lane)> {
        IpFamily::ALL.into_iter().filter_map(|f| Some((f, self.lane(f)?)))
    }

    /// Everything, as of now; `pending` is what is desired and not in force.
    #[must_use]
    pub fn page(&self, pending: &Pending) -> Page {
        let mut page = Page::new();
        self.collect_kubeproxy(pending, &mut page);
        self.collect_own(&mut page);
        self.client.collect(&mut page);
        process::Facts::read().collect(&mut page);
        for source in &*self.sources.lock().unwrap_or_else(PoisonError::into_inner) {
            source(&mut page);
        }
        page
    }
}
