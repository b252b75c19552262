//! What was found against what should be there.

use std::collections::BTreeSet;

use proxier_core::backend::{Drift, DriftItem};
use proxier_xtables::drift::{chain_text, exact, missing, rule_text};
use proxier_xtables::objects::{ChainId, Rule};
use proxier_xtables::saved::Saved;

use crate::belief::Belief;
use crate::compare::Dispatch;
use crate::desired::{Desired, Want};
use crate::{skeleton, takeover};

/// How the tables differ from a belief.
#[must_use]
pub fn drift(belief: &Belief, saved: &Saved) -> Drift {
    between(&belief.desired(), saved)
}

fn between(desired: &Desired, saved: &Saved) -> Drift {
    let mut items = Vec::new();
    for (id, want) in &desired.chains {
        match (want, saved.chains.get(id)) {
            (Want::AtLeast(rules), seen) => {
                // Of a chain that others fill as well, nothing is unexpected.
                let there: BTreeSet<&Rule> = seen.into_iter().flatten().collect();
                if seen.is_none() && !skeleton::is_built_in(&id.name) {
                    items.push(DriftItem::Missing(chain_text(id)));
                }
                items.extend(rules.iter().filter(|r| !there.contains(r)).map(|r| missing(id, r)));
            }
            (_, None) => items.push(DriftItem::Missing(chain_text(id))),
            (Want::Exactly { rules, .. }, Some(seen)) => items.extend(exact(id, rules, seen)),
            (Want::Dispatch { groups, tail }, Some(seen)) => {
                dispatch(id, &Dispatch::new(groups, tail, seen), tail, &mut items);
            }
        }
    }
    let held = takeover::held_by_others(desired, saved);
    for id in takeover::stale(desired, saved) {
        let emptied = saved.chains.get(id).is_some_and(Vec::is_empty);
        if !(emptied && held.contains(&id.name)) {
            items.push(DriftItem::Unexpected(chain_text(id)));
        }
    }
    items.sort_unstable();
    Drift { items }
}

/// The same for a process that did not write it: what carries no meaning, such as comments of endpoints, does not count.
#[must_use]
pub fn drift_in_meaning(mut belief: Belief, saved: &Saved) -> Drift {
    between(&takeover::keep_comments(&mut belief, saved), saved)
}

fn dispatch(id: &ChainId, found: &Dispatch<'_>, tail: &[Rule], items: &mut Vec<DriftItem>) {
    items.extend(found.extra.iter().map(|r| DriftItem::Unexpected(rule_text(id, r))));
    items.extend(found.missing.values().flatten().flat_map(|g| &g.rules).map(|r| missing(id, r)));
    for (group, there) in found.torn.values().flatten() {
        let lacking = group.rules.iter().filter(|r| !there.contains(r)).map(|r| missing(id, r));
        let before = items.len();
        items.extend(lacking);
        if items.len() == before {
            let place = |what| format!("{} of {}: {what}", chain_text(id), group.port);
            items.push(DriftItem::Different(place("rules in their order"), place("in another")));
        }
    }
    if let Some(there) = &found.tail {
        let before = items.len();
        items.extend(tail.iter().filter(|r| !there.contains(r)).map(|r| missing(id, r)));
        if items.len() == before {
            let place = |what| format!("{}: {what}", chain_text(id));
            items.push(DriftItem::Different(place("node ports last"), place("rules behind them")));
        }
    }
}
