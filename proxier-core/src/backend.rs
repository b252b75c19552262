//! The plug-in contract: what a backend is given, what it gives back, and what it promises.
//!
//! One value per IP family, single-threaded. `render` is pure: same input, same plan. Everything else touches the kernel and may fail; a
//! failure carries a [`RetryClass`] and, where the kernel named one, the service port that was refused. What a backend
//! believes the kernel to hold changes only through the belief that a successful `apply` returns.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::changes::ChangeSet;
use crate::ids::{IpFamily, Protocol, ServicePortName};
use crate::snapshot::{NodeContext, Snapshot};

/// How much of a plan the kernel takes or leaves as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomicity {
    /// The whole plan.
    Whole,
    /// Each table of it.
    PerTable,
    /// Each object; the order of operations is part of the plan.
    PerObject,
}

/// Something a probe looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// What it is, e.g. `nf_tables numgen expression`.
    pub what: String,
    /// Present?
    pub found: bool,
    /// The backend cannot work without it.
    pub required: bool,
    /// Version found, or how the kernel refused.
    pub detail: String,
}

/// What a backend can do on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Session affinity by client IP.
    pub session_affinity: bool,
    /// Source ranges of load balancers.
    pub source_ranges: bool,
    /// Node ports on loopback addresses.
    pub localhost_node_ports: bool,
    /// Refuses traffic to services without endpoints at once.
    pub reject: bool,
    /// Can write only what changed.
    pub partial_sync: bool,
    /// How much is taken or left as one.
    pub atomicity: Atomicity,
    /// `check` asks the kernel without changing it.
    pub check: bool,
    /// Everything the probe looked for.
    pub requirements: Vec<Requirement>,
}

impl Capabilities {
    /// What is missing and required; empty means usable.
    pub fn missing(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().filter(|r| r.required && !r.found)
    }

    /// Nothing required is missing.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.missing().next().is_none()
    }
}

/// A feature of a service port that the backend cannot provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The service port.
    pub port: ServicePortName,
    /// The feature, in an operator's words.
    pub feature: String,
}

/// Service ports that are left out of the plan, each with the reason the kernel gave.
pub type SetAside = BTreeMap<ServicePortName, String>;

/// What `render` is given.
#[derive(Debug)]
pub struct RenderInput<'a, B> {
    /// The truth.
    pub snapshot: &'a Snapshot,
    /// What differs from what the belief was rendered from: a hint that saves work.
    pub changes: &'a ChangeSet,
    /// What the kernel is believed to hold; `None` when nothing can be assumed.
    pub belief: Option<&'a B>,
    /// Service ports to leave out.
    pub set_aside: &'a SetAside,
}

// Derived, these would ask for `B: Copy`, though only a reference to it is held.
impl<B> Clone for RenderInput<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for RenderInput<'_, B> {}

/// One operation of a plan, printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// The operation in the syntax of the backend's tool.
    pub text: String,
    /// The service port it is for; `None` for what all share.
    pub port: Option<ServicePortName>,
}

/// A rendered plan: a printable value.
pub trait Plan: Send {
    /// The plan's operations, in order.
    fn entries(&self) -> Vec<PlanEntry>;
    /// The plan as text: the dry run, the golden file and the debug log.
    fn text(&self) -> String {
        self.entries().into_iter().fold(String::new(), |mut out, entry| {
            out.push_str(&entry.text);
            out.push('\n');
            out
        })
    }
    /// Number of operations; 0 means that there is nothing to do.
    fn operations(&self) -> usize;
    /// Replaces everything instead of writing differences.
    fn is_full(&self) -> bool;
    /// What could not be provided.
    fn unsupported(&self) -> &[Unsupported];
}

/// Rules of one table, for a backend whose rules are counted (core spec 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// The table.
    pub table: &'static str,
    /// Rules of ours that it holds now.
    pub total: usize,
    /// Rules that this `apply` wrote.
    pub written: usize,
}

/// What an `apply` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Operations carried out.
    pub operations: usize,
    /// Bytes handed to the kernel or the tool.
    pub bytes: usize,
    /// Messages or processes.
    pub messages: usize,
    /// Leftovers that can be removed only later: sync again after this long.
    pub follow_up: Option<Duration>,
    /// Attempts to remove leftovers that the kernel refused.
    pub cleanup_failures: usize,
    /// Rules by table, sorted; empty for a backend that does not count rules.
    pub rules: Vec<RuleCount>,
}

/// How far an `apply` of several steps is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Service ports that are complete in the kernel.
    pub ports: usize,
    /// Service ports when all is done.
    pub ports_all: usize,
    /// Steps that are done: transactions, or inputs of a tool.
    pub steps: usize,
    /// Steps altogether.
    pub steps_all: usize,
}

/// Whoever wants to know how far an `apply` is.
pub type ProgressSink<'a> = &'a mut dyn FnMut(Progress);

/// What became of a full plan when the backend had looked at the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeOver<P> {
    /// What has to be written to get from what is there to what the plan asks for.
    Differences(P),
    /// The plan as it was: nothing can be taken over.
    Replace(P),
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryClass {
    /// Try the same again after a while.
    Transient,
    /// The belief is wrong: render in full and try again.
    NeedsFullSync,
    /// This machine cannot do it.
    Unsupported,
    /// The configuration asks for something impossible.
    Misconfigured,
    /// A bug in the backend.
    Bug,
}

impl fmt::Display for RetryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::NeedsFullSync => "needs-full-sync",
            Self::Unsupported => "unsupported",
            Self::Misconfigured => "misconfigured",
            Self::Bug => "bug",
        })
    }
}

/// A service port that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The service port.
    pub port: ServicePortName,
    /// The operation and the kernel's answer.
    pub reason: String,
}

/// What every backend error can say about itself.
pub trait BackendError: std::error::Error + Send + Sync + 'static {
    /// What a caller can do about it.
    fn retry_class(&self) -> RetryClass;
    /// The service ports whose operations were refused; setting them aside lets the rest go in.
    fn refused(&self) -> &[Refused];
}

/// One thing that the kernel holds otherwise than believed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftItem {
    /// Should be there and is not.
    Missing(String),
    /// Is there, carries our mark, and should not be.
    Unexpected(String),
    /// Is there in another shape: expected, then seen.
    Different(String, String),
}

impl fmt::Display for DriftItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "missing: {what}"),
            Self::Unexpected(what) => write!(f, "unexpected: {what}"),
            Self::Different(want, seen) => write!(f, "different: want {want}, seen {seen}"),
        }
    }
}

/// How the kernel differs from the belief.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Every difference, sorted.
    pub items: Vec<DriftItem>,
}

impl Drift {
    /// No difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// What a cleanup did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanupReport {
    /// What was removed.
    pub removed: Vec<String>,
    /// What stayed, and why.
    pub stayed: Vec<String>,
}

/// A data plane that can be programmed.
pub trait Backend: Send {
    /// A rendered plan.
    type Plan: Plan;
    /// What the kernel is believed to hold. Cheap to clone, so that it can be handed to another thread for `verify`.
    type Belief: Clone + Send + Sync + 'static;
    /// Errors.
    type Error: BackendError;

    /// The backend's name in configuration and logs.
    fn name(&self) -> &'static str;

    /// The family that this instance serves.
    fn family(&self) -> IpFamily;

    /// Looks at kernel and tools. Changes nothing; a missing feature is an answer, not an error.
    ///
    /// # Errors
    /// Only when looking itself is impossible, e.g. without the right to ask.
    fn probe(&mut self) -> Result<Capabilities, Self::Error>;

    /// Renders a plan that takes the kernel from the belief to the snapshot. Pure: same input, same bytes; no I/O, no clock, no
    /// randomness. Without a belief, or when the change set does not start where the belief ends, renders in full.
    fn render(&self, input: RenderInput<'_, Self::Belief>) -> Self::Plan;

    /// Looks at what the kernel holds of ours and turns a full plan into the differences from it: what is right already stays, with all that
    /// hangs on it, such as the affinity of clients. [`TakeOver::Replace`] when there is nothing to take over, or when it cannot be changed in place;
    /// then the plan is to be applied as it is. The default takes nothing over.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn take_over(&mut self, plan: Self::Plan) -> Result<TakeOver<Self::Plan>, Self::Error> {
        Ok(TakeOver::Replace(plan))
    }

    /// Asks the kernel whether it would take the plan, without changing it.
    ///
    /// # Errors
    /// Where the plan was refused; [`RetryClass::Unsupported`] when [`Capabilities::check`] is false.
    fn check(&mut self, plan: &Self::Plan) -> Result<(), Self::Error>;

    /// Carries the plan out, all or nothing as far as [`Capabilities::atomicity`] goes, and returns what the kernel holds now. A plan of several
    /// steps tells after each how far it is.
    ///
    /// # Errors
    /// What the kernel refused; the caller's belief then still stands, as far as the atomicity goes.
    fn apply(
        &mut self,
        plan: Self::Plan,
        progress: ProgressSink<'_>,
    ) -> Result<(Self::Belief, ApplyReport), Self::Error>;

    /// Compares the kernel with the belief. Looks only at what is ours and repairs nothing.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn verify(&mut self, belief: &Self::Belief) -> Result<Drift, Self::Error>;

    /// Compares the kernel with what a snapshot asks for, without a belief, as in a fresh process: what carries no meaning, such as the order of
    /// endpoints, does not count.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Self::Error>;

    /// Another instance with the same settings that shares nothing with this one, to `verify` on another thread.
    #[must_use]
    fn observer(&self) -> Self
    where
        Self: Sized;

    /// Makes the settings of this host that traffic needs with this backend and that want a privilege (core spec 7.8), and writes no rule: a process
    /// that may less can do the rest later. `apply` makes them too. A backend without such settings leaves this as it is.
    ///
    /// # Errors
    /// A setting that is neither right nor can be made so.
    fn prepare(&mut self, _context: &NodeContext) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Removes everything that is ours, in a fresh process after a crash, twice in a row.
    ///
    /// # Errors
    /// What could not be removed.
    fn cleanup(&mut self) -> Result<CleanupReport, Self::Error>;
}
