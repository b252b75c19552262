//! Two rulesets side by side.
//!
//! Rules of a chain whose order means nothing may stand in any order: those that no packet can match together, and those that end
//! a packet in the same way. What is left of the order is a [level](levels) for each rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::ast::{Match, Maybe, Ports, Rule, Target};
use super::model::Ruleset;
use super::table::{Chain, Table, TableName};

/// Something in which two rulesets differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A chain that is expected is not there.
    MissingChain {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
    },
    /// A chain that is there is not expected.
    UnexpectedChain {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
    },
    /// Another policy.
    Policy {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
    },
    /// A rule that is expected is not there.
    MissingRule {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
        /// Rule.
        rule: String,
    },
    /// A rule that is there is not expected.
    UnexpectedRule {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
        /// Rule.
        rule: String,
    },
    /// A rule that both have stands before or behind others that it must not pass.
    Order {
        /// Table.
        table: TableName,
        /// Chain.
        chain: String,
        /// Rule.
        rule: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingChain { table, chain } => write!(f, "missing: {} :{chain}", table.as_str()),
            Self::UnexpectedChain { table, chain } => write!(f, "unexpected: {} :{chain}", table.as_str()),
            Self::Policy { table, chain } => write!(f, "other policy: {} :{chain}", table.as_str()),
            Self::MissingRule { table, chain, rule } => {
                write!(f, "missing: {} -A {chain} {rule}", table.as_str())
            }
            Self::UnexpectedRule { table, chain, rule } => {
                write!(f, "unexpected: {} -A {chain} {rule}", table.as_str())
            }
            Self::Order { table, chain, rule } => {
                write!(f, "out of order: {} -A {chain} {rule}", table.as_str())
            }
        }
    }
}

/// Can a packet match only one of them?
fn exclusive(a: &Rule, b: &Rule) -> bool {
    let disjoint = |a: &IpNet, b: &IpNet| !a.contains(b) && !b.contains(a);
    apart(&a.source, &b.source, disjoint)
        || apart(&a.destination, &b.destination, disjoint)
        || apart(&a.protocol, &b.protocol, |a, b| a != b)
        || apart(&port(a), &port(b), |a, b| a.last < b.first || b.last < a.first)
}

fn apart<T>(a: &Option<Maybe<T>>, b: &Option<Maybe<T>>, disjoint: impl Fn(&T, &T) -> bool) -> bool {
    match (a, b) {
        (Some(Maybe { negated: false, value: a }), Some(Maybe { negated: false, value: b })) => {
            disjoint(a, b)
        }
        _ => false,
    }
}

/// The destination ports that a rule is about.
fn port(rule: &Rule) -> Option<Maybe<Ports>> {
    rule.matches.iter().find_map(|m| match m {
        Match::Transport { destination, .. } => destination.clone(),
        _ => None,
    })
}

/// Do both end a packet in the same way, and do nothing else? Not for two that are the same: one of them is too many.
fn alike(a: &Rule, b: &Rule) -> bool {
    let ends = matches!(a.target, Target::Accept | Target::Drop | Target::Return | Target::Reject(_));
    let plain = |rule: &Rule| {
        !rule.matches.iter().any(|m| matches!(m, Match::Recent(_) | Match::Statistic(_) | Match::Counter(_)))
    };
    ends && a.target == b.target && a.text != b.text && plain(a) && plain(b)
}

/// For each rule of a chain, how many rules before it, one behind the other, it must not pass. Two orders of the same rules mean the same
/// if and only if each rule has the same level in both.
///
/// Looks at each pair of rules.
#[must_use]
pub fn levels(rules: &[Arc<Rule>]) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let before = rules.iter().zip(&levels).take(index);
        let bound = before.filter(|(other, _)| !exclusive(rule, other) && !alike(rule, other));
        let level = bound.map(|(_, level)| level + 1).max().unwrap_or(0);
        levels.push(level);
    }
    levels
}

/// Everything in which `seen` differs from `expected`, sorted: chains, policies, rules and their order as far as it matters. Tables that
/// only one of them has count as empty.
#[must_use]
pub fn differences(expected: &Ruleset, seen: &Ruleset) -> Vec<Difference> {
    let mut out = Vec::new();
    for table in TableName::ALL {
        let [want, have] = [expected, seen].map(|ruleset| -> BTreeMap<&str, &Chain> {
            ruleset.table(table).into_iter().flat_map(Table::chains).collect()
        });
        let names: BTreeSet<&str> = want.keys().chain(have.keys()).copied().collect();
        for name in names {
            let (want, have) = (want.get(name).copied(), have.get(name).copied());
            chain(Place { table, chain: name }, want, have, &mut out);
        }
    }
    out.sort_unstable();
    out
}

#[derive(Clone, Copy)]
struct Place<'p> {
    table: TableName,
    chain: &'p str,
}

fn chain(place: Place<'_>, want: Option<&Chain>, have: Option<&Chain>, out: &mut Vec<Difference>) {
    let Place { table, chain } = place;
    let policy = |chain: Option<&Chain>| chain.map_or(Some(true), |c| c.policy);
    let built_in = table.built_in().contains(&chain);
    let chain = || chain.to_owned();
    match (want, have) {
        (Some(_), None) if !built_in => out.push(Difference::MissingChain { table, chain: chain() }),
        (None, Some(_)) if !built_in => out.push(Difference::UnexpectedChain { table, chain: chain() }),
        _ if built_in && policy(want) != policy(have) => {
            out.push(Difference::Policy { table, chain: chain() });
        }
        _ => {}
    }
    let [want, have] = [want, have].map(|chain| chain.map_or(&[][..], |c| &c.rules));
    let (missing, want) = split(want, have);
    let (unexpected, have) = split(have, &want);
    let text = |rule: &Arc<Rule>| rule.text.to_string();
    let missing = missing.iter().map(|r| Difference::MissingRule { table, chain: chain(), rule: text(r) });
    out.extend(missing);
    let unexpected =
        unexpected.iter().map(|r| Difference::UnexpectedRule { table, chain: chain(), rule: text(r) });
    out.extend(unexpected);
    let moved = moved(&want, &have);
    out.extend(moved.iter().map(|r| Difference::Order { table, chain: chain(), rule: text(r) }));
}

/// The rules that the other side lacks, and those that it has; equal ones are counted.
fn split(rules: &[Arc<Rule>], other: &[Arc<Rule>]) -> (Vec<Arc<Rule>>, Vec<Arc<Rule>>) {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    other.iter().for_each(|rule| *left.entry(&rule.text).or_default() += 1);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for rule in rules {
        match left.get_mut(&*rule.text) {
            Some(count) if *count > 0 => {
                *count -= 1;
                with.push(rule.clone());
            }
            _ => without.push(rule.clone()),
        }
    }
    (without, with)
}

/// Of two orders of the same rules, the rules that have another level; the first ones first.
fn moved(want: &[Arc<Rule>], have: &[Arc<Rule>]) -> Vec<Arc<Rule>> {
    if want == have {
        return Vec::new();
    }
    let mut places: BTreeMap<(&str, usize), isize> = BTreeMap::new();
    for (rules, step) in [(have, 1), (want, -1)] {
        for (rule, level) in rules.iter().zip(levels(rules)) {
            *places.entry((&rule.text, level)).or_default() += step;
        }
    }
    let elsewhere = |(rule, level): &(&Arc<Rule>, usize)| places.get(&(&*rule.text, *level)) < Some(&0);
    want.iter().zip(levels(want)).filter(elsewhere).map(|(rule, _)| rule.clone()).collect()
}
