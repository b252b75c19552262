//! A rendered plan: the operations of one transaction, and what the kernel holds once they are in.

use std::sync::Arc;

use proxier_core::backend::{Plan as CorePlan, PlanEntry, Unsupported};
use proxier_core::ids::ServiceName;
use proxier_core::snapshot::ServicePort;

use crate::belief::Belief;
use crate::objects::{Name, Op, Table};
use crate::text;

/// A plan of this backend.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) table: Table,
    pub(crate) full: bool,
    /// One transaction, unless there are cuts.
    pub(crate) ops: Vec<Op>,
    /// For whom each operation is; as long as `ops`.
    pub(crate) owners: Vec<Option<Arc<ServicePort>>>,
    /// Chains to delete afterwards, in a transaction of its own that may fail: emptied by an earlier plan, not by this one.
    pub(crate) later: Vec<Name>,
    /// Where one transaction ends and the next begins, ascending; none for a single one.
    pub(crate) cuts: Vec<usize>,
    /// What takes back the first of two transactions when the second is refused.
    pub(crate) undo: Vec<Op>,
    /// Services that the node needs first.
    pub(crate) first: Arc<[ServiceName]>,
    /// What the kernel holds once `ops` are in.
    pub(crate) next: Belief,
}

impl Plan {
    /// The operations of the transaction, in order.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The operations by transaction.
    pub fn transactions(&self) -> impl Iterator<Item = &[Op]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain([self.ops.len()]);
        starts.zip(ends).filter_map(|(start, end)| self.ops.get(start..end))
    }

    /// The table they are for.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What the kernel holds once the plan is in.
    #[must_use]
    pub fn next(&self) -> &Belief {
        &self.next
    }

    /// The deletions that follow the transaction.
    #[must_use]
    pub fn later(&self) -> Vec<Op> {
        self.later.iter().map(|name| Op::DeleteChain(Arc::clone(name))).collect()
    }
}

impl CorePlan for Plan {
    fn entries(&self) -> Vec<PlanEntry> {
        let later = self.later();
        let owners = self.owners.iter().chain(std::iter::repeat(&None));
        self.ops
            .iter()
            .chain(&later)
            .zip(owners)
            .map(|(op, owner)| PlanEntry {
                text: text::op_text(&self.table, op),
                port: owner.as_ref().map(|p| p.name.clone()),
            })
            .collect()
    }

    fn operations(&self) -> usize {
        self.ops.len() + self.later.len()
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn unsupported(&self) -> &[Unsupported] {
        &[]
    }
}
