//! Cold start: an empty kernel is filled in order, the services that a node needs first at once, the rest in bounded transactions.
//!
//! Where nothing is in force there is nothing to keep whole, and one transaction over everything would hold the kernel's lock for as
//! long as it takes. Each transaction leaves whole services behind it; an address of a service that is not written yet behaves as if the
//! agent had not come that far.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxier_core::backend::TakeOver;
use proxier_core::ids::{ServiceName, ServicePortName};

use crate::plan::Plan;
use crate::render::Owner;

/// Operations of a transaction, about: some ten milliseconds of the kernel's time.
const TRANSACTION: usize = 2_000;

/// The same plan in several transactions; as it is when it is small, or not a full one. Nothing of it is copied: a node that is starting has no
/// memory to spare for a second copy of everything.
#[must_use]
pub fn in_order(mut plan: Plan) -> TakeOver<Plan> {
    if !plan.full || plan.ops.len() <= TRANSACTION {
        return TakeOver::Replace(plan);
    }
    let first = Arc::clone(&plan.first);
    let ranks: Vec<Rank<'_>> = plan.owners.iter().map(|owner| rank(&first, owner)).collect();
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    // Stable: within a service port, and among what is shared, the order of the plan stays.
    order.sort_by_key(|at| ranks.get(*at));
    drop(ranks);
    arrange(order, &mut plan.ops, &mut plan.owners);
    let ranks: Vec<Rank<'_>> = plan.owners.iter().map(|owner| rank(&first, owner)).collect();
    plan.cuts = cuts(&ranks, first.len());
    plan.full = false;
    TakeOver::Differences(plan)
}

/// Brings two lists into an order, in place: `order` says for each place which item belongs there.
fn arrange<A, B>(mut order: Vec<usize>, a: &mut [A], b: &mut [B]) {
    for start in 0..order.len() {
        let mut here = start;
        // Follows a cycle of places; those that are done name themselves.
        while let Some(from) = order.get_mut(here).map(|place| std::mem::replace(place, here))
            && from != start
            && from != here
        {
            a.swap(here, from);
            b.swap(here, from);
            here = from;
        }
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_lists_come_into_the_order(order in (0..40_usize).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle())) {
            let (mut a, mut b) = ((0..order.len()).collect::<Vec<_>>(), order.iter().map(usize::to_string).collect::<Vec<_>>());
            b.sort_by_key(|text| text.parse::<usize>().unwrap());
            arrange(order.clone(), &mut a, &mut b);
            prop_assert_eq!(&a, &order);
            prop_assert_eq!(b, order.iter().map(usize::to_string).collect::<Vec<_>>());
        }
    }
}
