//! What a dump shows against what it should show.

use std::collections::{BTreeMap, BTreeSet};

use proxier_core::backend::{Drift, DriftItem};

use crate::objects::{Chain, Element, Key, Name, Observed, ObservedElement, ObservedRule, Set, Table, Value};
use crate::text;

/// Compares a dump with what is expected. Chains in `doomed` may be there or not.
#[must_use]
pub fn diff(table: &Table, expected: &Observed, observed: &Observed, doomed: &BTreeSet<Name>) -> Drift {
    let mut items = Vec::new();
    if !observed.exists {
        items.push(DriftItem::Missing(format!("table {} {}", text::family(table), table.name)));
        return Drift { items };
    }
    for (name, (want, rules)) in &expected.chains {
        match observed.chains.get(name) {
            None => items.push(DriftItem::Missing(format!("chain {name}"))),
            Some((seen, seen_rules)) => {
                chain_differs(want, seen, &mut items);
                rules_differ(table, name, rules, seen_rules, &mut items);
            }
        }
    }
    let unexpected = |name: &Name| !expected.chains.contains_key(name) && !doomed.contains(name);
    for name in observed.chains.keys().filter(|n| unexpected(n)) {
        items.push(DriftItem::Unexpected(format!("chain {name}")));
    }
    sets_differ(table, &expected.sets, &observed.sets, &mut items);
    items.sort_unstable();
    Drift { items }
}

fn chain_differs(want: &Chain, seen: &Chain, items: &mut Vec<DriftItem>) {
    if want != seen {
        items.push(DriftItem::Different(text::chain_text(want), text::chain_text(seen)));
    }
}

/// Rules have no names: those before the first difference are in place; beyond it the chain is compared as a whole.
fn rules_differ(
    table: &Table,
    chain: &Name,
    want: &[ObservedRule],
    seen: &[ObservedRule],
    items: &mut Vec<DriftItem>,
) {
    if want == seen {
        return;
    }
    let show = |rule: &ObservedRule| match rule {
        ObservedRule::Known(rule) => format!("rule {chain}: {}", text::rule_text(table, rule)),
        ObservedRule::Foreign(what) => format!("rule {chain}: {what}"),
    };
    let before = items.len();
    let missing = want.iter().filter(|r| !seen.contains(r));
    items.extend(missing.map(|r| DriftItem::Missing(show(r))));
    let unexpected = seen.iter().filter(|r| !want.contains(r));
    items.extend(unexpected.map(|r| DriftItem::Unexpected(show(r))));
    if items.len() == before {
        let all = |rules: &[ObservedRule]| rules.iter().map(&show).collect::<Vec<_>>().join("; ");
        items.push(DriftItem::Different(all(want), all(seen)));
    }
}

type Sets = BTreeMap<Name, (Set, Vec<ObservedElement>)>;

fn sets_differ(table: &Table, want: &Sets, seen: &Sets, items: &mut Vec<DriftItem>) {
    for (name, (set, elements)) in want {
        let Some((seen_set, seen_elements)) = seen.get(name) else {
            items.push(DriftItem::Missing(format!("set {name}")));
            continue;
        };
        if set != seen_set {
            let show = |s: &Set| text::set_text(table, s);
            items.push(DriftItem::Different(show(set), show(seen_set)));
        }
        let want: BTreeSet<&ObservedElement> = elements.iter().collect();
        let seen: BTreeSet<&ObservedElement> = seen_elements.iter().collect();
        let show = |e: &ObservedElement| match e {
            ObservedElement::Known(e) => format!("element {name}: {}", text::element_text(e)),
            ObservedElement::Foreign(what) => format!("element {name}: {what}"),
        };
        items.extend(want.difference(&seen).map(|e| DriftItem::Missing(show(e))));
        items.extend(seen.difference(&want).map(|e| DriftItem::Unexpected(show(e))));
    }
    for name in seen.keys().filter(|name| !want.contains_key(*name)) {
        items.push(DriftItem::Unexpected(format!("set {name}")));
    }
}

/// Puts endpoints in the order of their addresses and forgets sizes: neither means anything for a packet.
pub fn normalise(side: &mut Observed) {
    for (set, elements) in side.sets.values_mut() {
        set.size = None;
        let mut groups: BTreeMap<Key, (Vec<u32>, Vec<Value>)> = BTreeMap::new();
        elements.retain(|element| match element {
            ObservedElement::Known(Element { key, value, comment: None }) => match split_index(*key) {
                Some((frontend, index)) => {
                    let group = groups.entry(frontend).or_default();
                    group.0.push(index);
                    group.1.push(value.clone());
                    false
                }
                None => true,
            },
            _ => true,
        });
        for (frontend, (mut indices, mut values)) in groups {
            indices.sort_unstable();
            values.sort_unstable();
            elements.extend(indices.into_iter().zip(values).map(|(index, value)| {
                let key = match frontend {
                    Key::AddrPort(addr, protocol, port) => Key::AddrPortIndex(addr, protocol, port, index),
                    Key::ProtoPort(protocol, port) => Key::ProtoPortIndex(protocol, port, index),
                    other => other,
                };
                ObservedElement::Known(Element { key, value, comment: None })
            }));
        }
        elements.sort_unstable();
    }
}

fn split_index(key: Key) -> Option<(Key, u32)> {
    match key {
        Key::AddrPortIndex(addr, protocol, port, index) => Some((Key::AddrPort(addr, protocol, port), index)),
        Key::ProtoPortIndex(protocol, port, index) => Some((Key::ProtoPort(protocol, port), index)),
        _ => None,
    }
}

/// Chains without rules that nobody expects: emptied, and not deleted yet.
#[must_use]
pub fn empty_chains(observed: &Observed, expected: &Observed) -> BTreeSet<Name> {
    let unexpected = |name: &&Name| !expected.chains.contains_key(*name);
    observed
        .chains
        .iter()
        .filter(|(_, (c, rules))| c.base.is_none() && rules.is_empty())
        .map(|(n, _)| n)
        .filter(unexpected)
        .cloned()
        .collect()
}
