//! A rendered plan: operations in steps, and what the kernel holds once they are in.

use std::sync::{Arc, OnceLock};

use proxier_core::backend::{Plan as CorePlan, PlanEntry, Unsupported};
use proxier_core::ids::{IpFamily, ServiceName};

use crate::belief::Belief;
use crate::observed::Observed;
use crate::ops;
use crate::order::Step;
use crate::takeover;

/// A plan of this backend.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) family: IpFamily,
    /// Assumes nothing about the kernel: what it does is decided once the kernel has been read.
    pub(crate) full: bool,
    /// Made when they are asked for if the plan is full: mostly its differences from what is there are made instead.
    pub(crate) steps: OnceLock<Vec<Step>>,
    /// Services that the node needs first.
    pub(crate) first: Arc<[ServiceName]>,
    pub(crate) unsupported: Vec<Unsupported>,
    pub(crate) next: Belief,
}

impl Plan {
    /// The family that it is for.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// The steps, in order. Those of a full plan are for a kernel without anything of ours; for others, see
    /// [`take_over`](crate::takeover::take_over).
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        let nothing = Observed::default();
        let steps = || takeover::differences(&self.next, &self.next.desired(), &nothing, &self.first).steps;
        self.steps.get_or_init(steps)
    }

    /// What the kernel holds once the steps are in.
    #[must_use]
    pub fn next(&self) -> &Belief {
        &self.next
    }

    /// The steps of a plan that is not needed any more otherwise, and what the kernel holds then. Real servers that
    /// are retired are among its [`drains`](Belief::drains), whether they have connections or not.
    #[must_use]
    pub fn into_steps(self) -> (Vec<Step>, Belief) {
        let _ = self.steps();
        (self.steps.into_inner().unwrap_or_default(), self.next)
    }
}

impl CorePlan for Plan {
    /// See [`ops::entries`].
    fn entries(&self) -> Vec<PlanEntry> {
        ops::entries(self.family, self.steps().iter().flat_map(|s| &s.actions))
    }

    fn operations(&self) -> usize {
        self.steps().iter().map(|s| s.actions.len()).sum()
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }
}
