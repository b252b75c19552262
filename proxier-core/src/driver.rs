//! One backend instance with what it is believed to have programmed.
//!
//! [`Driver`] wraps a typed [`Backend`] and keeps its belief; [`Instance`] is the object-safe view of it that a
//! registry of backends hands out. The driver is where failures are turned into the next attempt: a refused partial plan is
//! rendered in full at once, a service port that is refused in a full plan is set aside and the rest goes in, and a failed apply loses no
//! change because the next change set again starts from the snapshot that was last adopted.

use std::fmt;
use std::time::Duration;

use crate::backend::{
    Backend, BackendError, Capabilities, CleanupReport, Drift, Plan, PlanEntry, Progress, Refused,
    RenderInput, RetryClass, RuleCount, SetAside, TakeOver, Unsupported,
};
use crate::changes::ChangeSet;
use crate::ids::{Generation, IpFamily};
use crate::snapshot::{NodeContext, Snapshot};
use crate::stale::StaleFlows;

/// How much a sync may take for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncKind {
    /// Write what changed since the adopted snapshot.
    Partial,
    /// Assume nothing about the kernel; give service ports that were set aside another try.
    Full,
}

impl fmt::Display for SyncKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Partial => "partial",
            Self::Full => "full",
        })
    }
}

/// What a successful sync did.
#[derive(Clone, Debug)]
pub struct SyncReport {
    /// What the plan that went in was.
    pub kind: SyncKind,
    /// The generation that is in the kernel now.
    pub generation: Generation,
    /// Service ports that differed from the adopted snapshot.
    pub changed_ports: usize,
    /// Operations written; 0 if there was nothing to do.
    pub operations: usize,
    /// Bytes written.
    pub bytes: usize,
    /// Messages or processes.
    pub messages: usize,
    /// Plans tried, the one that went in included.
    pub attempts: usize,
    /// Errors of the plans that did not go in.
    pub setbacks: Vec<String>,
    /// Service ports that were set aside in this sync.
    pub refused: Vec<Refused>,
    /// Features that could not be provided.
    pub unsupported: Vec<Unsupported>,
    /// UDP flows that may have become stale; to be looked for now that the rules are in the kernel.
    pub stale_flows: StaleFlows,
    /// Sync again after this long to remove leftovers.
    pub follow_up: Option<Duration>,
    /// Attempts to remove leftovers that the kernel refused.
    pub cleanup_failures: usize,
    /// Rules by table, sorted; empty for a backend that does not count rules.
    pub rules: Vec<RuleCount>,
}

/// A backend's error, with the instance it came from.
#[derive(Debug, thiserror::Error)]
#[error("{backend} {family} generation {generation}: {source}")]
pub struct SyncError {
    /// Backend.
    pub backend: &'static str,
    /// Family.
    pub family: IpFamily,
    /// Generation that was to be programmed, or is.
    pub generation: Generation,
    /// What the caller can do.
    pub class: RetryClass,
    /// The backend's own error.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A rendered plan as text: the dry run.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The plan's operations, in order.
    pub entries: Vec<PlanEntry>,
    /// What could not be provided.
    pub unsupported: Vec<Unsupported>,
}

/// A comparison of the kernel with the belief, to be run on any thread of the same network namespace.
pub struct Verification {
    /// The generation that is believed to be in the kernel. A result is worth nothing once another one was adopted.
    pub generation: Generation,
    job: Box<dyn FnOnce() -> Result<Drift, SyncError> + Send>,
}

impl Verification {
    /// Reads the kernel and compares.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    pub fn run(self) -> Result<Drift, SyncError> {
        (self.job)()
    }
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verification({})", self.generation)
    }
}

type Print = dyn Fn(&Snapshot, &SetAside) -> Rendered + Send;

/// Prints what a backend would write for a snapshot, on any thread: with the settings, and what a probe had found, when it was made.
pub struct Printer {
    backend: &'static str,
    family: IpFamily,
    print: Box<Print>,
}

impl Printer {
    /// The backend's name.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// Renders a snapshot in full, for an empty kernel, without the service ports that are set aside. Costs what the snapshot is large.
    #[must_use]
    pub fn print(&self, snapshot: &Snapshot, set_aside: &SetAside) -> Rendered {
        (self.print)(snapshot, set_aside)
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Printer({} {})", self.backend, self.family)
    }
}

/// Everything that a backend writes for a snapshot into an empty kernel.
fn rendered<B: Backend>(backend: &B, snapshot: &Snapshot, set_aside: &SetAside) -> Rendered {
    let changes = ChangeSet::between(None, snapshot);
    let plan = backend.render(RenderInput { snapshot, changes: &changes, belief: None, set_aside });
    Rendered { entries: plan.entries(), unsupported: plan.unsupported().to_vec() }
}

/// Is told how far a sync is.
pub type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// A backend instance whose types are erased.
pub trait Instance: Send {
    /// The backend's name.
    fn name(&self) -> &'static str;
    /// The family it serves.
    fn family(&self) -> IpFamily;
    /// See [`Backend::probe`].
    ///
    /// # Errors
    /// When looking itself is impossible.
    fn probe(&mut self) -> Result<Capabilities, SyncError>;
    /// Renders a snapshot in full, for an empty kernel.
    fn render(&self, snapshot: &Snapshot) -> Rendered;
    /// Renders as [`Instance::render`], for another thread.
    fn printer(&self) -> Printer;
    /// Brings the kernel to a snapshot.
    ///
    /// # Errors
    /// What the kernel refused; the adopted snapshot then still is the one before.
    fn sync(&mut self, snapshot: &Snapshot, kind: SyncKind) -> Result<SyncReport, SyncError>;
    /// From now on, tells how far a sync of several steps is, on the thread that runs it.
    fn on_progress(&mut self, told: OnProgress);
    /// A comparison of the kernel with what was programmed; `None` before the first sync.
    fn verification(&self) -> Option<Verification>;
    /// See [`Backend::compare`].
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, SyncError>;
    /// See [`Backend::prepare`].
    ///
    /// # Errors
    /// A setting of this host that is neither right nor can be made so.
    fn prepare(&mut self, context: &NodeContext) -> Result<(), SyncError>;
    /// See [`Backend::cleanup`]; nothing is believed afterwards.
    ///
    /// # Errors
    /// What could not be removed.
    fn cleanup(&mut self) -> Result<CleanupReport, SyncError>;
    /// The snapshot that is in the kernel.
    fn adopted(&self) -> Option<&Snapshot>;
    /// Service ports that are left out, with the kernel's reason.
    fn set_aside(&self) -> &SetAside;
}

/// Plans that one sync tries at most; each after the first sets at least one more service port aside.
const MAX_ATTEMPTS: usize = 16;

/// How far a sync goes; each failure goes further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Differences from the belief.
    Partial,
    /// Differences from what the kernel is seen to hold.
    TakeOver,
    /// Everything, in the place of whatever is there.
    Replace,
}

struct Adopted<B> {
    belief: B,
    snapshot: Snapshot,
}

/// A typed backend and its belief.
pub struct Driver<B: Backend> {
    backend: B,
    adopted: Option<Adopted<B::Belief>>,
    set_aside: SetAside,
    /// The belief may be wrong: the next sync must be full.
    tainted: bool,
    failed: Option<Failed>,
    progress: OnProgress,
}

/// What was tried since the last success and perhaps went in to some part: flows may have begun by it.
struct Failed {
    snapshot: Snapshot,
    stale: StaleFlows,
}

impl<B: Backend> Driver<B> {
    /// A driver that believes nothing yet.
    pub fn new(backend: B) -> Self {
        let progress = Box::new(|_| {});
        Self { backend, adopted: None, set_aside: SetAside::new(), tainted: true, failed: None, progress }
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// What the kernel is believed to hold.
    pub fn belief(&self) -> Option<&B::Belief> {
        self.adopted.as_ref().map(|a| &a.belief)
    }

    fn error(&self, generation: Generation, source: B::Error) -> SyncError {
        SyncError {
            backend: self.backend.name(),
            family: self.backend.family(),
            generation,
            class: source.retry_class(),
            source: Box::new(source),
        }
    }

    fn generation(&self) -> Generation {
        self.adopted.as_ref().map_or_else(Generation::default, |a| a.snapshot.generation())
    }

    /// What leads to this snapshot leaves behind, from what is adopted and from all that was tried since.
    fn stale_flows(&self, snapshot: &Snapshot, changes: &ChangeSet) -> StaleFlows {
        let adopted = self.adopted.as_ref().map(|a| &a.snapshot);
        let mut stale = StaleFlows::plan(adopted, snapshot, changes);
        if let Some(failed) = &self.failed {
            stale.join(failed.stale.clone());
            let step = ChangeSet::between(Some(&failed.snapshot), snapshot);
            stale.join(StaleFlows::plan(Some(&failed.snapshot), snapshot, &step));
        }
        stale
    }

    /// One plan for the snapshot: from the belief, from what the kernel is seen to hold, or from nothing. Where there is nothing to
    /// take over, that becomes a replacement.
    fn plan(
        &mut self,
        snapshot: &Snapshot,
        changes: &ChangeSet,
        depth: &mut Depth,
    ) -> Result<B::Plan, B::Error> {
        let belief = if *depth == Depth::Partial { self.belief() } else { None };
        let input = RenderInput { snapshot, changes, belief, set_aside: &self.set_aside };
        let plan = self.backend.render(input);
        if *depth != Depth::TakeOver {
            return Ok(plan);
        }
        Ok(match self.backend.take_over(plan)? {
            TakeOver::Differences(plan) => plan,
            TakeOver::Replace(plan) => {
                *depth = Depth::Replace;
                plan
            }
        })
    }

    /// Decides whether another attempt makes sense after an error, and how far it goes. Only what is refused when everything is
    /// written anew is the service port's own fault.
    fn deepen(&mut self, depth: &mut Depth, error: &B::Error, refused: &mut Vec<Refused>) -> bool {
        let named = !error.refused().is_empty();
        if *depth == Depth::Replace {
            let before = self.set_aside.len();
            let ports = error.refused().iter().cloned();
            self.set_aside.extend(ports.map(|r| (r.port, r.reason)));
            refused.extend_from_slice(error.refused());
            // Without them, what is there may well be taken over.
            *depth = Depth::TakeOver;
            return self.set_aside.len() > before;
        }
        self.set_aside.clear();
        *depth = if *depth == Depth::Partial { Depth::TakeOver } else { Depth::Replace };
        named || matches!(error.retry_class(), RetryClass::NeedsFullSync | RetryClass::Bug)
    }
}

impl<B: Backend + 'static> Instance for Driver<B> {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn family(&self) -> IpFamily {
        self.backend.family()
    }

    fn probe(&mut self) -> Result<Capabilities, SyncError> {
        self.backend.probe().map_err(|e| self.error(self.generation(), e))
    }

    fn render(&self, snapshot: &Snapshot) -> Rendered {
        rendered(&self.backend, snapshot, &SetAside::new())
    }

    fn printer(&self) -> Printer {
        let backend = self.backend.observer();
        let (name, family) = (self.backend.name(), self.backend.family());
        let print = move |snapshot: &Snapshot, set_aside: &SetAside| rendered(&backend, snapshot, set_aside);
        Printer { backend: name, family, print: Box::new(print) }
    }

    fn sync(&mut self, snapshot: &Snapshot, kind: SyncKind) -> Result<SyncReport, SyncError> {
        let full = kind == SyncKind::Full || self.adopted.is_none() || self.tainted;
        let mut depth = if full { Depth::TakeOver } else { Depth::Partial };
        let old = self.adopted.as_ref().map(|a| &a.snapshot);
        let changes = ChangeSet::between(old, snapshot);
        let stale_flows = self.stale_flows(snapshot, &changes);
        if full {
            self.set_aside.clear();
        } else {
            for change in &changes.ports {
                self.set_aside.remove(&change.name);
            }
        }
        let mut refused: Vec<Refused> = Vec::new();
        let mut setbacks = Vec::new();
        loop {
            let attempts = setbacks.len() + 1;
            let attempt = self.plan(snapshot, &changes, &mut depth).and_then(|plan| {
                let unsupported = plan.unsupported().to_vec();
                let whole = plan.is_full();
                let told = &mut *self.progress;
                self.backend.apply(plan, told).map(|(belief, report)| (belief, report, unsupported, whole))
            });
            let error = match attempt {
                Ok((belief, report, unsupported, whole)) => {
                    self.adopted = Some(Adopted { belief, snapshot: snapshot.clone() });
                    (self.tainted, self.failed) = (false, None);
                    let partial = depth == Depth::Partial && !whole;
                    // What was missing may have been missing for a while.
                    let repaired = !partial && report.operations > 0;
                    let stale_flows = if repaired { stale_flows.after_repair() } else { stale_flows };
                    return Ok(SyncReport {
                        kind: if partial { SyncKind::Partial } else { SyncKind::Full },
                        generation: snapshot.generation(),
                        changed_ports: changes.ports.len(),
                        operations: report.operations,
                        bytes: report.bytes,
                        messages: report.messages,
                        attempts,
                        setbacks,
                        refused,
                        unsupported,
                        stale_flows,
                        follow_up: report.follow_up,
                        cleanup_failures: report.cleanup_failures,
                        rules: report.rules,
                    });
                }
                Err(error) => error,
            };
            self.tainted = true;
            if attempts >= MAX_ATTEMPTS || !self.deepen(&mut depth, &error, &mut refused) {
                self.failed = Some(Failed { snapshot: snapshot.clone(), stale: stale_flows });
                return Err(self.error(snapshot.generation(), error));
            }
            setbacks.push(error.to_string());
        }
    }

    fn on_progress(&mut self, told: OnProgress) {
        self.progress = told;
    }

    fn verification(&self) -> Option<Verification> {
        let adopted = self.adopted.as_ref()?;
        let generation = adopted.snapshot.generation();
        let belief = adopted.belief.clone();
        let mut backend = self.backend.observer();
        let job = move || {
            backend.verify(&belief).map_err(|source| SyncError {
                backend: backend.name(),
                family: backend.family(),
                generation,
                class: source.retry_class(),
                source: Box::new(source),
            })
        };
        Some(Verification { generation, job: Box::new(job) })
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, SyncError> {
        self.backend.compare(snapshot).map_err(|e| self.error(snapshot.generation(), e))
    }

    fn prepare(&mut self, context: &NodeContext) -> Result<(), SyncError> {
        self.backend.prepare(context).map_err(|e| self.error(Generation::default(), e))
    }

    fn cleanup(&mut self) -> Result<CleanupReport, SyncError> {
        self.adopted = None;
        self.tainted = true;
        self.backend.cleanup().map_err(|e| self.error(Generation::default(), e))
    }

    fn adopted(&self) -> Option<&Snapshot> {
        self.adopted.as_ref().map(|a| &a.snapshot)
    }

    fn set_aside(&self) -> &SetAside {
        &self.set_aside
    }
}

#[cfg(test)]
mod tests;
