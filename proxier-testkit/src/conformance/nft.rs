//! nftables as a kernel model.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_core::oracle::Packet;

use super::Model;
use crate::nft::{self, Datum, Field, LookupIn, Rule, Ruleset, Set, Side, Statement, Table, Value};
use crate::walk::{Walk, WalkHost};

impl Model for Ruleset {
    fn apply(&mut self, script: &str) -> Result<(), String> {
        Self::apply(self, script).map_err(|e| e.to_string())
    }

    fn walk(&self, packet: &Packet, host: &WalkHost) -> Result<Walk, String> {
        nft::walk(self, packet, host).map_err(|e| e.to_string())
    }

    fn remember(&mut self, record: &str, client: IpAddr) -> Result<(), String> {
        self.add_element(record, client).map_err(|e| e.to_string())
    }

    fn objects(&self) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        for family in IpFamily::ALL {
            for (name, table) in self.tables(family) {
                let place = format!("{family} {name}");
                out.insert(place.clone());
                chains(&place, table, &mut out);
                table.sets().for_each(|(name, set)| elements(&format!("{place} {name}"), set, &mut out));
            }
        }
        out
    }
}

/// Rules with their place in the chain. Regular chains without rules do not count: they wait to be deleted.
fn chains(place: &str, table: &Table, out: &mut BTreeSet<String>) {
    for (name, chain) in table.chains() {
        if let Some(base) = &chain.base {
            out.insert(format!("{place} base chain {name}: {base:?}"));
        }
        let mut rules: Vec<(bool, String)> = chain.rules.iter().map(|r| (is_affinity(r), words(r))).collect();
        // The rules for recorded clients stand in the order of the endpoints, and at most one of them applies.
        for run in rules.chunk_by_mut(|a, b| a.0 && b.0) {
            run.sort();
        }
        let lines =
            (0..).zip(&rules).map(|(i, (_, rule)): (u32, _)| format!("{place} rule {name} {i}: {rule}"));
        out.extend(lines);
    }
}

/// Source in a named set of single addresses, and nothing else but where it goes then.
fn is_affinity(rule: &Rule) -> bool {
    match rule.statements.as_slice() {
        [
            Statement::Match { key, negated: false, elements: LookupIn::Named(_) },
            Statement::Verdict(verdict),
        ] => *key == [Field::Address(Side::Source)] && verdict.target().is_some(),
        _ => false,
    }
}

/// A rule; of a random choice only what there is to choose from.
fn words(rule: &Rule) -> String {
    let random = |key: &[Field]| key.iter().any(|f| matches!(f, Field::Random { .. }));
    let mut choice = None;
    let mut rest: Vec<String> = Vec::new();
    for statement in &rule.statements {
        let anonymous = match statement {
            Statement::VerdictMap { key, map: LookupIn::Anonymous(elements) } if random(key) => {
                Some(elements)
            }
            Statement::Dnat(nft::Dnat {
                target: nft::DnatTarget::Map { key, map: LookupIn::Anonymous(elements) },
                ..
            }) if random(key) => Some(elements),
            _ => None,
        };
        match anonymous {
            Some(elements) => {
                let mut values: Vec<String> = elements.values().map(|v| format!("{v:?}")).collect();
                values.sort_unstable();
                choice = Some(values.join(" or "));
            }
            None => rest.push(format!("{statement:?}")),
        }
    }
    match choice {
        Some(choice) => format!("{}; one of {choice}; {:?}", rest.join("; "), rule.comment),
        None => rule.text.to_string(),
    }
}

/// Elements. A key that ends in an index stands for the index alone: which of its values has which is chance.
fn elements(place: &str, set: &Set, out: &mut BTreeSet<String>) {
    let spec = &set.spec;
    out.insert(format!(
        "{place}: {:?} {:?} {:?} {:?} {:?}",
        spec.key, spec.data, spec.flags, spec.timeout_ms, spec.data_protocol
    ));
    let mut indexed: BTreeMap<&[Datum], (Vec<u32>, Vec<&Value>)> = BTreeMap::new();
    for (key, element) in set.elements.exact() {
        match key.split_last() {
            Some((Datum::Integer(index), frontend)) => {
                let entry = indexed.entry(frontend).or_default();
                entry.0.push(*index);
                entry.1.push(&element.value);
            }
            _ => {
                out.insert(format!("{place} {key:?}: {:?} {:?}", element.value, element.comment));
            }
        }
    }
    for (patterns, element) in set.elements.ranged() {
        out.insert(format!("{place} {patterns:?}: {:?} {:?}", element.value, element.comment));
    }
    for (frontend, (indices, values)) in indexed {
        let mut values: Vec<String> = values.into_iter().map(|v| format!("{v:?}")).collect();
        values.sort_unstable();
        out.insert(format!("{place} {frontend:?} {indices:?}: {}", values.join(" or ")));
    }
}
