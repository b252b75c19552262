//! From a full plan to the differences from what the kernel holds.
//!
//! After a restart, or when something else changed our table, most of it is right. It stays as it is, with the affinity of clients; endpoints
//! keep the places they have. What cannot be changed in place, such as the type of a map, makes the plan stand as it is: the table is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::belief::Belief;
use crate::cold;
use crate::container::{Container, Sizes};
use crate::fragment::{Programmed, assign};
use crate::objects::{Element, Key, Name, Observed, ObservedElement, ObservedRule, Op, Value};
use crate::options::Options;
use crate::plan::Plan;
use crate::render::Steps;
use proxier_core::backend::TakeOver;
use proxier_core::ids::EndpointAddr;
use proxier_core::snapshot::{Frontend, FrontendKey};

/// The differences, or the plan as it is. Where nothing is, a large plan is cut into bounded transactions.
#[must_use]
pub fn take_over(options: &Options, plan: Plan, observed: &Observed) -> TakeOver<Plan> {
    if !observed.exists {
        return cold::in_order(plan);
    }
    match differences(options, &plan, observed) {
        Some(differences) => TakeOver::Differences(differences),
        None => TakeOver::Replace(plan),
    }
}

fn differences(options: &Options, plan: &Plan, observed: &Observed) -> Option<Plan> {
    if !plan.full {
        return None;
    }
    let mut next = plan.next.clone();
    keep_places(&mut next, observed);
    next.sizes = Arc::new(sizes(&next, observed)?);
    let expected = next.expected(options);
    let mut steps = Steps::default();
    sets(&expected, observed, &mut steps)?;
    chains(&expected, observed, &mut steps, &mut next)?;
    let (ops, owners) = steps.in_order();
    let is_empty = |name: &&Name| observed.chains.get(*name).is_some_and(|(_, rules)| rules.is_empty());
    let later = next.doomed.iter().filter(is_empty).cloned().collect();
    let first = Arc::clone(&plan.first);
    Some(Plan {
        table: plan.table.clone(),
        full: false,
        ops,
        owners,
        later,
        cuts: Vec::new(),
        undo: Vec::new(),
        first,
        next,
    })
}

/// Endpoints by frontend, in the order of their indices.
type Places = BTreeMap<Key, BTreeMap<u32, EndpointAddr>>;

fn places(observed: &Observed, container: Container) -> Places {
    let mut out = Places::new();
    let elements = observed.sets.get(container.name()).map(|(_, elements)| elements.as_slice());
    for element in elements.unwrap_or_default() {
        let ObservedElement::Known(Element { key, value: Value::Endpoint(ip, port), .. }) = element else {
            continue;
        };
        let (frontend, index) = match *key {
            Key::AddrPortIndex(addr, protocol, port, index) => (Key::AddrPort(addr, protocol, port), index),
            Key::ProtoPortIndex(protocol, port, index) => (Key::ProtoPort(protocol, port), index),
            _ => continue,
        };
        out.entry(frontend).or_default().insert(index, EndpointAddr { ip: *ip, port: *port });
    }
    out
}

/// Gives each endpoint the place that it has in the kernel.
fn keep_places(next: &mut Belief, observed: &Observed) {
    let cluster =
        [Container::ClusterEndpoints, Container::NodePortClusterEndpoints].map(|c| places(observed, c));
    let local = [Container::LocalEndpoints, Container::NodePortLocalEndpoints].map(|c| places(observed, c));
    let find = |frontends: &[Frontend], maps: &[Places; 2]| -> Vec<EndpointAddr> {
        frontends
            .iter()
            .find_map(|f| match f.key {
                FrontendKey::Address { ip, protocol, port } => {
                    maps[0].get(&Key::AddrPort(ip, protocol, port))
                }
                FrontendKey::NodePort { protocol, port } => maps[1].get(&Key::ProtoPort(protocol, port)),
            })
            .map(|by_index| by_index.values().copied().collect())
            .unwrap_or_default()
    };
    let names: Vec<_> = next.ports.keys().cloned().collect();
    for name in names {
        let Some(programmed) = next.ports.get(&name) else { continue };
        let frontends = &programmed.port.frontends;
        let placed = Programmed {
            port: Arc::clone(&programmed.port),
            cluster: assign(&find(frontends, &cluster), programmed.cluster.iter().copied()),
            local: assign(&find(frontends, &local), programmed.local.iter().copied()),
        };
        if placed != **programmed {
            next.ports.insert(name, Arc::new(placed));
        }
    }
}

/// The sizes that the sets have; `None` if one is too small, or has none.
fn sizes(next: &Belief, observed: &Observed) -> Option<Sizes> {
    let mut out = BTreeMap::new();
    for container in Container::ALL {
        match observed.sets.get(container.name()) {
            Some((set, _)) => {
                out.insert(container, set.size?);
            }
            None => {
                out.insert(container, next.sizes.get(container));
            }
        }
    }
    let sizes = Sizes::exactly(out);
    sizes.hold(&next.counts).then_some(sizes)
}

fn sets(expected: &Observed, observed: &Observed, steps: &mut Steps) -> Option<()> {
    for (name, (want, elements)) in &expected.sets {
        let seen = match observed.sets.get(name) {
            Some((set, seen)) if want == set => seen.as_slice(),
            Some(_) => return None,
            None => {
                steps.sets.push((Op::AddSet(want.clone()), None));
                &[]
            }
        };
        // Packets fill these; what is in them is theirs.
        if want.timeout.is_none() {
            elements_differ(name, elements, seen, steps)?;
        }
    }
    for name in observed.sets.keys().filter(|name| !expected.sets.contains_key(*name)) {
        steps.dropped_sets.push((Op::DeleteSet(Arc::clone(name)), None));
    }
    Some(())
}

fn elements_differ(
    name: &Name,
    want: &[ObservedElement],
    seen: &[ObservedElement],
    steps: &mut Steps,
) -> Option<()> {
    let want = by_key(want)?;
    let seen = by_key(seen)?;
    let removals: Vec<Key> =
        seen.iter().filter(|(key, e)| want.get(*key) != Some(*e)).map(|(key, _)| *key).collect();
    let additions: Vec<Element> =
        want.iter().filter(|(key, e)| seen.get(*key) != Some(*e)).map(|(_, e)| (*e).clone()).collect();
    if !removals.is_empty() {
        steps.removals.push((Op::DeleteElements(Arc::clone(name), removals), None));
    }
    if !additions.is_empty() {
        steps.additions.push((Op::AddElements(Arc::clone(name), additions), None));
    }
    Some(())
}

/// `None` if something is among them that this backend never writes, and so cannot name to delete it.
fn by_key(elements: &[ObservedElement]) -> Option<BTreeMap<Key, &Element>> {
    let mut out = BTreeMap::new();
    for element in elements {
        let ObservedElement::Known(element) = element else { return None };
        out.insert(element.key, element);
    }
    Some(out)
}

fn chains(expected: &Observed, observed: &Observed, steps: &mut Steps, next: &mut Belief) -> Option<()> {
    for (name, (want, rules)) in &expected.chains {
        match observed.chains.get(name) {
            Some((seen, _)) if seen != want => return None,
            Some((_, seen)) if seen == rules => continue,
            Some(_) => steps.flushes.push((Op::FlushChain(Arc::clone(name)), None)),
            None => steps.chains.push((Op::AddChain(want.clone()), None)),
        }
        for rule in rules {
            let ObservedRule::Known(rule) = rule else { return None };
            steps.rules.push((Op::AddRule(Arc::clone(name), rule.clone()), None));
        }
    }
    let extra: BTreeSet<Name> =
        observed.chains.keys().filter(|name| !expected.chains.contains_key(*name)).cloned().collect();
    for name in &extra {
        let (_, rules) = observed.chains.get(name)?;
        if !rules.is_empty() {
            steps.flushes.push((Op::FlushChain(Arc::clone(name)), None));
        }
    }
    next.doomed = extra;
    Some(())
}
