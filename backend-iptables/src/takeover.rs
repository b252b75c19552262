//! From what must be there to the differences from what is there.
//!
//! After a restart, after somebody changed our chains, or where a kube-proxy ran until now, most of it is right: names and rules are the same.
//! It stays as it is, with the clients that session affinity remembers, since a list lives as long as some rule names it. What is ours by
//! its name and not wanted is removed; foreign chains and rules of built-in chains are not looked at.
//!
//! On a host that has nothing of ours, the differences are everything. Then, and whenever nothing is there that would have to go, the
//! jumps are in the first input and the services that a node needs first follow at once; an address of a service that is not written
//! yet behaves as if the agent had not come that far. Otherwise the jumps come last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxier_core::ids::{ServiceName, ServicePortName};
use proxier_xtables::objects::{ChainId, Input, Name, Rule, Table};
use proxier_xtables::saved::Saved;

use crate::batch::{Batch, Batches};
use crate::belief::Belief;
use crate::compare::Dispatch;
use crate::counts::Counts;
use crate::desired::{Desired, Want};
use crate::fragment::Programmed;
use crate::names::Kind;
use crate::plan::Plan;
use crate::render::in_order;
use crate::skeleton::{self, Shared};

/// A full plan as the differences from what was found.
#[must_use]
pub fn take_over(plan: Plan, saved: &Saved) -> Plan {
    let mut next = plan.next.clone();
    let desired = keep_comments(&mut next, saved);
    let inputs = differences(&next, &desired, saved, &plan.first);
    next.rules = Counts::of_ports(&desired);
    Plan { full: false, inputs: inputs.into(), next, ..plan }
}

/// A full plan for tables that hold something: nothing of ours in them is trusted, every chain is written anew. No packet is treated otherwise
/// meanwhile than before or after: what dispatches is exchanged as a whole.
#[must_use]
pub fn replace(plan: &Plan, saved: &Saved) -> Vec<Input> {
    let desired = plan.next.desired();
    if !desired.chains.keys().any(|id| !skeleton::is_built_in(&id.name) && saved.chains.contains_key(id)) {
        return plan.inputs().to_vec();
    }
    let mut batches = Batches::new(plan.next.env.facts.chains_per_input);
    fixed_chains(&desired, saved, true, batches.current());
    for programmed in in_order(&plan.next, &plan.first) {
        let mut unit = Batch::default();
        let port = Some(&programmed.port.name);
        for (id, rules) in programmed.fragment(&plan.next.env).own {
            unit.write(&id, &rules, port);
        }
        batches.add(unit, &[], port);
    }
    batches.close();
    for found in dispatches(&desired, saved) {
        exchange(&desired, &found, batches.current());
    }
    jumps(&desired, saved, batches.current());
    retire(&stale(&desired, saved), &held_by_others(&desired, saved), saved, &mut batches);
    batches.into_inputs()
}

/// Writes a shared chain anew as a whole. What is refused stays so until nat has changed, and what will be refused is so before.
fn exchange(desired: &Desired, found: &Found<'_>, batch: &mut Batch) {
    let shared = found.shared;
    let Some(Want::Dispatch { groups, tail }) = desired.chains.get(&shared.id()) else { return };
    if found.fresh {
        batch.create(shared);
    } else if shared.id().table == Table::Filter {
        for group in found.dispatch.missing.values().flatten() {
            batch.insert(shared, &group.rules, Some(&group.port));
        }
    }
    batch.rewrite(shared, groups, tail);
}

/// Takes comments of endpoints as they are: whether a service port has them depends on how large the cluster was when it was written. Returns
/// what is desired then.
pub(crate) fn keep_comments(next: &mut Belief, saved: &Saved) -> Desired {
    let desired = next.desired();
    let mut kept = Vec::new();
    let written =
        |(_, chains): &(_, Vec<(&ChainId, _)>)| chains.iter().all(|(id, _)| saved.chains.contains_key(*id));
    for (port, _) in own_chains(&desired, saved).into_iter().filter(written) {
        let Some(programmed) = next.ports.get(port) else { continue };
        let other = Programmed { port: Arc::clone(&programmed.port), large: !programmed.large };
        let own = other.fragment(&next.env).own;
        if own.iter().all(|(id, rules)| saved.chains.get(id) == Some(rules)) {
            kept.push((port.clone(), Arc::new(other)));
        }
    }
    if kept.is_empty() {
        return desired;
    }
    next.ports.extend(kept);
    next.desired()
}

/// Chains that are ours by their names, and that nobody wants.
pub(crate) fn stale<'a>(desired: &Desired, saved: &'a Saved) -> BTreeSet<&'a ChainId> {
    let ours = |id: &&ChainId| id.table == Table::Nat && Kind::of(&id.name).is_some();
    saved.chains.keys().filter(ours).filter(|id| !desired.chains.contains_key(*id)).collect()
}

/// Chains that rules of others lead to: they cannot go.
pub(crate) fn held_by_others(desired: &Desired, saved: &Saved) -> BTreeSet<Name> {
    let ours = |id: &ChainId| {
        Kind::of(&id.name).is_some()
            || matches!(desired.chains.get(id), Some(Want::Exactly { .. } | Want::Dispatch { .. }))
    };
    let foreign = saved.chains.iter().filter(|(id, _)| id.table == Table::Nat && !ours(id));
    foreign.flat_map(|(_, rules)| rules).filter_map(target).map(Into::into).collect()
}

/// The chain or target that a rule leads to.
fn target(rule: &Rule) -> Option<&str> {
    let (_, rest) = rule.0.rsplit_once("-j ").or_else(|| rule.0.rsplit_once("-g "))?;
    rest.split(' ').next()
}

/// What takes the tables from what was found to what is wanted.
pub(crate) fn differences(
    next: &Belief,
    desired: &Desired,
    saved: &Saved,
    first: &[ServiceName],
) -> Vec<Input> {
    let stale = stale(desired, saved);
    let found = dispatches(desired, saved);
    let own = own_chains(desired, saved);
    let rewritten = |(id, want): (&ChainId, &Want)| match (want, saved.chains.get(id)) {
        (Want::Exactly { rules, .. }, Some(seen)) => seen != rules,
        _ => false,
    };
    let only_lacks = stale.is_empty()
        && found.iter().all(|f| f.dispatch.only_lacks())
        && !desired.chains.iter().any(rewritten);
    let mut batches = Batches::new(next.env.facts.chains_per_input);
    fixed_chains(desired, saved, false, batches.current());
    for found in found.iter().filter(|f| f.fresh) {
        batches.fresh(found.shared, found.tail.to_vec());
    }
    if only_lacks {
        jumps(desired, saved, batches.current());
    }
    for programmed in in_order(next, first) {
        port_differences(&programmed.port.name, &own, &found, &mut batches);
    }
    for found in &found {
        leftovers(found, batches.current());
    }
    if !only_lacks {
        jumps(desired, saved, batches.current());
    }
    retire(&stale, &held_by_others(desired, saved), saved, &mut batches);
    batches.into_inputs()
}

/// A shared chain as it was found.
struct Found<'a> {
    shared: Shared,
    /// It is not there.
    fresh: bool,
    dispatch: Dispatch<'a>,
    tail: &'a [Rule],
}

fn dispatches<'a>(desired: &'a Desired, saved: &'a Saved) -> Vec<Found<'a>> {
    let find = |shared: Shared| {
        let seen = saved.chains.get(&shared.id());
        match desired.chains.get(&shared.id())? {
            Want::Dispatch { groups, tail } => Some(Found {
                shared,
                fresh: seen.is_none(),
                dispatch: Dispatch::new(groups, tail, seen.map_or(&[], Vec::as_slice)),
                tail,
            }),
            _ => None,
        }
    };
    Shared::ALL.into_iter().filter_map(find).collect()
}

/// Chains of service ports that must be written, those first that others name.
type Own<'a> = BTreeMap<&'a ServicePortName, Vec<(&'a ChainId, &'a [Rule])>>;

fn own_chains<'a>(desired: &'a Desired, saved: &Saved) -> Own<'a> {
    let mut out = Own::new();
    for (id, want) in &desired.chains {
        if let Want::Exactly { rules, port: Some(port) } = want
            && saved.chains.get(id) != Some(rules)
        {
            out.entry(port).or_default().push((id, rules));
        }
    }
    for chains in out.values_mut() {
        chains.sort_by_key(|(id, _)| Kind::of(&id.name));
    }
    out
}

fn port_differences(port: &ServicePortName, own: &Own<'_>, found: &[Found<'_>], batches: &mut Batches) {
    let mut unit = Batch::default();
    for (id, rules) in own.get(port).into_iter().flatten() {
        unit.write(id, rules, Some(port));
    }
    let mut groups: Vec<(Shared, &[Rule])> = Vec::new();
    for Found { shared, dispatch, .. } in found {
        for (group, there) in dispatch.torn.get(port).into_iter().flatten() {
            there.iter().for_each(|rule| unit.delete(*shared, rule, Some(port)));
            groups.push((*shared, &group.rules));
        }
        groups.extend(dispatch.missing.get(port).into_iter().flatten().map(|g| (*shared, &*g.rules)));
    }
    batches.add(unit, &groups, Some(port));
}

/// Rules that must not be there, and the tail where it is not last.
fn leftovers(found: &Found<'_>, batch: &mut Batch) {
    let shared = found.shared;
    found.dispatch.extra.iter().for_each(|rule| batch.delete(shared, rule, None));
    if let Some(there) = found.dispatch.tail.as_ref().filter(|_| !found.fresh) {
        there.iter().for_each(|rule| batch.delete(shared, rule, None));
        batch.append(shared, found.tail, None);
    }
}

/// Chains that belong to no service port and are written as a whole, and the one that is not ours alone.
fn fixed_chains(desired: &Desired, saved: &Saved, anew: bool, batch: &mut Batch) {
    for (id, want) in &desired.chains {
        let seen = saved.chains.get(id);
        match want {
            Want::Exactly { rules, port: None } if anew || seen != Some(rules) => {
                batch.write(id, rules, None);
            }
            Want::AtLeast(rules) if !skeleton::is_built_in(&id.name) => {
                batch.ensure(id, seen.is_none(), &lacking(rules, seen));
            }
            _ => {}
        }
    }
}

fn lacking<'a>(rules: &'a [Rule], seen: Option<&Vec<Rule>>) -> Vec<&'a Rule> {
    rules.iter().filter(|rule| seen.is_none_or(|seen| !seen.contains(rule))).collect()
}

/// Each jump that is missing goes to the top of its chain, in the order of iptables spec 3.2.
fn jumps(desired: &Desired, saved: &Saved, batch: &mut Batch) {
    for (id, want) in desired.chains.iter().filter(|(id, _)| skeleton::is_built_in(&id.name)) {
        for rule in lacking(&want.rules().into_iter().cloned().collect::<Vec<_>>(), saved.chains.get(id)) {
            batch.jump(id, rule);
        }
    }
}

/// Empties and drops chains, those first that name others. One that a rule of somebody else leads to is only emptied.
fn retire(stale: &BTreeSet<&ChainId>, held: &BTreeSet<Name>, saved: &Saved, batches: &mut Batches) {
    let mut stale: Vec<&ChainId> = stale.iter().copied().collect();
    stale.sort_by_key(|id| Reverse(Kind::of(&id.name)));
    for id in stale {
        let mut unit = Batch::default();
        let drop = !held.contains(&id.name);
        if drop || saved.chains.get(id).is_some_and(|rules| !rules.is_empty()) {
            unit.retire(id, drop, None);
        }
        batches.add(unit, &[], None);
    }
}
