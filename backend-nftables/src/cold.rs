//! Cold start: an empty kernel is filled in order, the services that a node needs first at once, the rest in bounded transactions.
//!
//! Where nothing is in force there is nothing to keep whole, and one transaction over everything would hold the kernel's lock for as
//! long as it takes. Each transaction leaves whole services behind it; an address of a service that is not written yet behaves as if the
//! agent had not come that far.

use std::collections::BTreeMap;

use proxier_core::ids::{ServiceName, ServicePortName};

use crate::objects::Op;
use crate::plan::Plan;
use crate::render::Owner;

/// Operations of a transaction, about: some ten milliseconds of the kernel's time.
const TRANSACTION: usize = 2_000;

/// The same plan in several transactions; `None` if it is small, or not a full one.
#[must_use]
pub fn in_order(plan: &Plan) -> Option<Plan> {
    if !plan.full || plan.ops.len() <= TRANSACTION {
        return None;
    }
    let mut ranked: Vec<(Rank<'_>, (&Op, &Owner))> = plan
        .ops
        .iter()
        .zip(&plan.owners)
        .map(|(op, owner)| (rank(&plan.first, owner), (op, owner)))
        .collect();
    // Stable: within a service port, and among what is shared, the order of the plan stays.
    ranked.sort_by(|a, b| a.0.cmp(&b.0));
    let cuts = cuts(&ranked.iter().map(|r| r.0).collect::<Vec<_>>(), plan.first.len());
    let (ops, owners) = ranked.into_iter().map(|(_, (op, owner))| (op.clone(), owner.clone())).unzip();
    Some(Plan { ops, owners, cuts, full: false, ..plan.clone() })
}

/// When an operation is due, and for which service port it is.
type Rank<'a> = (usize, Option<&'a ServicePortName>);

/// What is shared comes first, then the services that are needed first in their order, then the others.
fn rank<'a>(first: &[ServiceName], owner: &'a Owner) -> Rank<'a> {
    let Some(port) = owner else { return (0, None) };
    let place = first.iter().position(|s| *s == port.name.service).unwrap_or(first.len());
    (place + 1, Some(&port.name))
}

/// Ends of transactions: after the services that are needed first, then after every whole service that fills one.
fn cuts(ranks: &[Rank<'_>], first: usize) -> Vec<usize> {
    let urgent = ranks.partition_point(|(place, _)| *place <= first);
    let mut out = vec![urgent];
    let mut begun = urgent;
    for at in urgent + 1..ranks.len() {
        let whole = ranks.get(at).map(|r| r.1) != ranks.get(at - 1).map(|r| r.1);
        if whole && at - begun >= TRANSACTION {
            out.push(at);
            begun = at;
        }
    }
    out.retain(|cut| *cut > 0 && *cut < ranks.len());
    out
}

/// How many service ports are complete after each transaction, for those who wait.
#[must_use]
pub fn progress(plan: &Plan) -> Vec<usize> {
    let mut last: BTreeMap<&ServicePortName, usize> = BTreeMap::new();
    for (at, owner) in plan.owners.iter().enumerate() {
        if let Some(port) = owner {
            last.insert(&port.name, at);
        }
    }
    let ends = plan.cuts.iter().copied().chain([plan.ops.len()]);
    ends.map(|end| last.values().filter(|at| **at < end).count()).collect()
}
