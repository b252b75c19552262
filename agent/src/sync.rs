//! The sync loop: one thread owns the world and the backend instances, and does what the reconciler says. No locks.

mod observer;
mod orders;
mod tell;

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use proxier_core::backend::{Drift, Progress};
use proxier_core::cluster::TrafficOptions;
use proxier_core::driver::{Instance, SyncError, SyncKind, Verification};
use proxier_core::ids::{Generation, IpFamily};
use proxier_core::model::NodeFacts;
use proxier_core::reconcile::{Action, Outcome, Policy, Reconciler};
use proxier_core::snapshot::Snapshot;

pub use self::observer::{Failed, Observer, Synced};
pub use self::orders::Order;
use self::tell::{clear, tell_conflicts, tell_report};
use crate::config::NodeOverrides;
use crate::service_manager::Notifier;
use crate::source::{SourceError, SourceEvent};
use crate::world::World;

/// What wakes the loop.
pub enum Message {
    /// Objects changed.
    Events(Vec<SourceEvent>),
    /// A comparison of the kernel with the belief ended.
    Verified(IpFamily, Generation, Result<Drift, SyncError>),
    /// The addresses of this host changed: these are all of them, each with the name of its interface.
    Addresses(Vec<(String, IpAddr)>),
    /// Settings changed.
    Settings(Box<Settings>),
    /// Instances with other options, one for each family that is served: they take the place of those there are, and take over their rules.
    Instances(Vec<Box<dyn Instance>>),
    /// The source ended.
    SourceEnded(Result<(), SourceError>),
    /// An operator wants something done.
    Ordered(Order),
    /// Time to go.
    Stop,
}

/// What of the configuration may change while the loop runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What decides about traffic.
    pub traffic: TrafficOptions,
    /// What wins over the Node object.
    pub node: NodeOverrides,
    /// When to write and to look.
    pub policy: Policy,
}

/// Batches that are taken in before the next commit: enough to collapse a burst, few enough not to starve the kernel.
const MAX_BATCHES: usize = 256;

/// Differences of a drift that are logged.
const MAX_DRIFT_LINES: usize = 10;

/// One family's backend instance.
struct Lane {
    instance: Box<dyn Instance>,
    reconciler: Reconciler,
    snapshot: Option<Snapshot>,
    verifying: bool,
    programmed: bool,
}

/// How long it has been since an origin; never goes back.
type Clock = Box<dyn Fn() -> Duration>;

/// The loop.
pub struct SyncLoop {
    world: World,
    lanes: Vec<Lane>,
    clock: Clock,
    own: SyncSender<Message>,
    notifier: Notifier,
    /// The service manager knows that the rules are in force.
    ready: bool,
    /// Backends that ran here before, perhaps.
    replaced: Vec<Box<dyn Instance>>,
    observers: Observers,
    check: Option<Check>,
}

/// Looks at the node before anything is written.
type Check = Box<dyn FnOnce(&NodeFacts) -> Result<(), SourceError>>;

/// All who follow the loop.
#[derive(Default)]
struct Observers(Vec<Box<dyn Observer>>);

impl Observers {
    fn each(&mut self, mut tell: impl FnMut(&mut dyn Observer)) {
        for observer in &mut self.0 {
            tell(&mut **observer);
        }
    }
}

impl SyncLoop {
    /// A loop over these instances. `own` is the sending end of what [`SyncLoop::run`] receives from.
    #[must_use]
    pub fn new(
        world: World,
        instances: Vec<Box<dyn Instance>>,
        policy: Policy,
        own: SyncSender<Message>,
    ) -> Self {
        let origin = Instant::now();
        Self::with_clock(world, instances, policy, own, Box::new(move || origin.elapsed()))
    }

    fn with_clock(
        world: World,
        instances: Vec<Box<dyn Instance>>,
        policy: Policy,
        own: SyncSender<Message>,
        clock: Clock,
    ) -> Self {
        let lanes = instances.into_iter().map(|instance| Lane::new(instance, policy)).collect();
        let (notifier, observers) = (Notifier::default(), Observers::default());
        Self {
            world,
            lanes,
            clock,
            own,
            notifier,
            ready: false,
            replaced: Vec::new(),
            observers,
            check: None,
        }
        .telling(Notifier::default())
    }

    /// The same, and a service manager is told how far the loop is.
    #[must_use]
    pub fn telling(mut self, notifier: Notifier) -> Self {
        for lane in &mut self.lanes {
            lane.tell_progress(notifier.another());
        }
        self.notifier = notifier;
        self
    }

    /// The same, and once every family's rules are in force, what these backends left behind is removed: the new first and complete, then
    /// the old. It happens on a thread of its own, once.
    #[must_use]
    pub fn clearing(mut self, replaced: Vec<Box<dyn Instance>>) -> Self {
        self.replaced = replaced;
        self
    }

    /// The same, and this one follows it. Observers are told in the order in which they were added.
    #[must_use]
    pub fn observed_by(mut self, observer: Box<dyn Observer>) -> Self {
        self.observers.0.push(observer);
        self
    }

    /// The same, and with the first complete list the node's facts are looked at; with an error the loop ends and nothing was written.
    #[must_use]
    pub fn checking(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Runs until told to stop. The kernel keeps what was programmed.
    ///
    /// # Errors
    /// When the source cannot go on.
    pub fn run(mut self, messages: &Receiver<Message>) -> Result<(), SourceError> {
        loop {
            let first = match self.timeout() {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(timeout) => messages.recv_timeout(timeout),
            };
            let first = match first {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.observers.each(|o| o.stopping());
                    return Ok(());
                }
            };
            if let ControlFlow::Break(result) = self.step(first, messages) {
                self.observers.each(|o| o.stopping());
                return result;
            }
        }
    }

    /// Takes in this message and those that wait behind it, then does what is due.
    fn step(
        &mut self,
        first: Option<Message>,
        waiting: &Receiver<Message>,
    ) -> ControlFlow<Result<(), SourceError>> {
        let mut next = first;
        let mut taken = 0;
        while let Some(message) = next {
            match message {
                Message::Stop => {
                    self.notifier.stopping();
                    return ControlFlow::Break(Ok(()));
                }
                Message::SourceEnded(result) => return ControlFlow::Break(result),
                Message::Events(events) => {
                    self.observers.each(|o| o.events(&events));
                    self.world.apply(events);
                }
                Message::Addresses(addresses) => self.world.set_host_addresses(addresses),
                Message::Settings(settings) => self.change(*settings),
                Message::Instances(instances) => self.replace(instances),
                Message::Verified(family, generation, result) => self.verified(family, generation, result),
                Message::Ordered(order) => self.order(order),
            }
            taken += 1;
            next = if taken < MAX_BATCHES { waiting.try_recv().ok() } else { None };
        }
        if let Err(error) = self.publish() {
            return ControlFlow::Break(Err(error));
        }
        self.observers.each(|o| o.decided());
        for at in 0..self.lanes.len() {
            self.act(at);
        }
        self.tell_ready();
        ControlFlow::Continue(())
    }

    /// What is the same in the new settings changes nothing: no rule is written for it.
    fn change(&mut self, settings: Settings) {
        self.observers.each(|o| o.settings(&settings));
        let Settings { traffic, node, policy } = settings;
        let now = (self.clock)();
        self.world.configure(traffic, node);
        for lane in &mut self.lanes {
            lane.reconciler.set_policy(now, policy);
        }
        // A service manager that asked for it waits for this (`systemd.service(5)`, `Type=notify-reload`); before the first sync `tell_ready` says it.
        if self.ready {
            self.notifier.ready("the configuration was read again");
        }
    }

    /// The new instances know nothing of the kernel: their first sync is a full one, which takes over what is there.
    fn replace(&mut self, instances: Vec<Box<dyn Instance>>) {
        for instance in instances {
            let family = instance.family();
            let Some(lane) = self.lanes.iter_mut().find(|l| l.instance.family() == family) else { continue };
            lane.instance = instance;
            lane.tell_progress(self.notifier.another());
            lane.reconciler.request(SyncKind::Full);
            if lane.snapshot.is_some() {
                self.observers.each(|o| o.queued(family));
            }
        }
    }

    /// How long nothing needs to be done; `None` until a message comes.
    fn timeout(&self) -> Option<Duration> {
        let now = (self.clock)();
        let wait = |lane: &Lane| match lane.reconciler.next(now) {
            Action::Wait(until) => until.map(|t| t.saturating_sub(now)),
            Action::Verify if lane.verifying => None,
            Action::Sync(_) | Action::Verify => Some(Duration::ZERO),
        };
        self.lanes.iter().filter_map(wait).min()
    }

    /// Commits what came in and asks the lanes that it concerns for a sync. Nothing happens before the first complete list.
    fn publish(&mut self) -> Result<(), SourceError> {
        if !self.world.synced() {
            return Ok(());
        }
        let first = self.lanes.iter().any(|l| l.snapshot.is_none());
        if first {
            self.refresh_addresses();
            if let Some(check) = self.check.take() {
                check(self.world.node())?;
            }
        }
        if !first && !self.world.has_pending() {
            return Ok(());
        }
        let commit = self.world.commit();
        self.observers.each(|o| o.committed(&commit));
        for lane in &mut self.lanes {
            let family = lane.instance.family();
            let snapshot = commit.snapshot(family);
            if first || *commit.changed.get(family) {
                self.observers.each(|o| o.queued(family));
            }
            if *commit.changed.get(family) {
                lane.reconciler.request(SyncKind::Partial);
                tell_conflicts(lane.snapshot.as_ref(), snapshot);
            }
            lane.snapshot = Some(snapshot.clone());
            lane.reconciler.ready();
        }
        if first {
            let (services, slices) = self.world.objects();
            tracing::info!(
                node = %self.world.node_name(),
                node.seen = self.world.node_seen(),
                services,
                slices,
                "first complete list"
            );
        }
        Ok(())
    }

    fn act(&mut self, at: usize) {
        let now = (self.clock)();
        let Some(lane) = self.lanes.get_mut(at) else { return };
        match lane.reconciler.next(now) {
            Action::Wait(_) => {}
            Action::Sync(kind) => lane.sync(kind, &self.clock, &mut self.observers),
            Action::Verify if lane.verifying => {}
            Action::Verify => {
                lane.verify(&self.own, now);
                self.refresh_addresses();
            }
        }
    }

    /// Once every family's first snapshot is in the kernel.
    fn tell_ready(&mut self) {
        if self.ready || self.lanes.is_empty() || !self.lanes.iter().all(|l| l.programmed) {
            return;
        }
        self.ready = true;
        let families: Vec<String> = self
            .lanes
            .iter()
            .map(|l| {
                let ports = l.instance.adopted().map_or(0, Snapshot::len);
                format!("{ports} {} service ports", l.instance.family())
            })
            .collect();
        let backend = self.lanes.first().map_or("", |l| l.instance.name());
        self.notifier.ready(&format!("{backend}: {} in force", families.join(", ")));
        let replaced = std::mem::take(&mut self.replaced);
        if replaced.is_empty() {
            return;
        }
        let job = move || replaced.into_iter().for_each(clear);
        if let Err(error) = thread::Builder::new().name("leftovers".to_owned()).spawn(job) {
            tracing::warn!(error = %error, "cannot look for what other backends left");
        }
    }

    fn verified(&mut self, family: IpFamily, generation: Generation, result: Result<Drift, SyncError>) {
        let now = (self.clock)();
        let Some(lane) = self.lanes.iter_mut().find(|l| l.instance.family() == family) else { return };
        lane.verifying = false;
        let current = lane.instance.adopted().is_some_and(|s| s.generation() == generation);
        let backend = lane.instance.name();
        match result {
            Ok(drift) if drift.is_empty() => {
                tracing::debug!(backend, %family, generation = generation.0, "kernel is as programmed");
                self.observers.each(|o| o.verified(backend, family, 0));
                lane.reconciler.verified(now, true);
            }
            // Another generation went in meanwhile: what was read belongs to neither.
            _ if !current => lane.reconciler.verified(now, true),
            Ok(drift) => {
                tracing::warn!(backend, %family, drift.items = drift.items.len(), "kernel differs from what was programmed");
                for item in drift.items.iter().take(MAX_DRIFT_LINES) {
                    tracing::warn!(backend, %family, item = %item, "drift");
                }
                self.observers.each(|o| o.verified(backend, family, drift.items.len()));
                self.observers.each(|o| o.queued(family));
                lane.reconciler.verified(now, false);
            }
            Err(error) => {
                tracing::warn!(backend, %family, error = %error, "kernel could not be compared");
                lane.reconciler.verified(now, true);
            }
        }
    }

    /// The host's addresses decide about node ports and local traffic.
    fn refresh_addresses(&mut self) {
        match proxier_sys::addresses::host_addresses() {
            Ok(addresses) => self.world.set_host_addresses(addresses),
            Err(error) => tracing::warn!(error = %error, "cannot list this host's addresses"),
        }
    }
}

impl Lane {
    fn new(instance: Box<dyn Instance>, policy: Policy) -> Self {
        let reconciler = Reconciler::new(policy);
        Self { instance, reconciler, snapshot: None, verifying: false, programmed: false }
    }

    /// A sync of several steps says after each how far it is.
    fn tell_progress(&mut self, notifier: Notifier) {
        let (backend, family) = (self.instance.name(), self.instance.family());
        self.instance.on_progress(Box::new(move |p: Progress| {
            let Progress { ports, ports_all, steps, steps_all } = p;
            tracing::info!(backend, %family, ports, ports.all = ports_all, steps, steps.all = steps_all, "writing");
            notifier.status(&format!("{backend} {family}: {ports} of {ports_all} service ports written"));
        }));
    }

    fn sync(&mut self, kind: SyncKind, clock: &Clock, observers: &mut Observers) {
        let Some(snapshot) = &self.snapshot else { return };
        self.reconciler.started();
        let (backend, family) = (self.instance.name(), self.instance.family());
        let before = self.instance.adopted().cloned();
        let begun = clock();
        let result = self.instance.sync(snapshot, kind);
        let took = clock().saturating_sub(begun);
        let outcome = match &result {
            Ok(report) => {
                tell_report(&*self.instance, report, took, !self.programmed);
                self.programmed = true;
                let left_out = self.instance.set_aside();
                let set_aside = left_out.len();
                let before = before.as_ref();
                if before.is_none() {
                    observers.each(|o| o.took_over(&*self.instance));
                }
                let synced =
                    Synced { backend, family, kind, report, before, snapshot, set_aside, left_out, took };
                observers.each(|o| o.synced(&synced));
                Outcome::Done { follow_up: report.follow_up, incomplete: set_aside > 0 }
            }
            Err(error) => {
                tracing::error!(
                    backend = error.backend,
                    family = %error.family,
                    generation = error.generation.0,
                    retry.class = %error.class,
                    error = %error.source,
                    "sync failed; what was in force stays"
                );
                observers.each(|o| o.failed(&Failed { backend, family, kind, error, took }));
                Outcome::Failed
            }
        };
        self.reconciler.finished(clock(), outcome);
    }

    /// Compares on a thread of its own: a change does not wait for it. When that cannot be, the next comparison is one interval away.
    fn verify(&mut self, own: &SyncSender<Message>, now: Duration) {
        let Some(verification) = self.instance.verification() else {
            self.reconciler.verified(now, true);
            return;
        };
        let family = self.instance.family();
        let generation = verification.generation;
        let own = own.clone();
        let job = move |verification: Verification| {
            let result = verification.run();
            // Nobody listens any more once the loop has ended.
            let _ = own.send(Message::Verified(family, generation, result));
        };
        let spawned =
            thread::Builder::new().name(format!("verify-{family}")).spawn(move || job(verification));
        match spawned {
            Ok(_) => self.verifying = true,
            Err(error) => {
                tracing::warn!(error = %error, "cannot start a thread to compare the kernel");
                self.reconciler.verified(now, true);
            }
        }
    }
}

#[cfg(test)]
mod tests;
