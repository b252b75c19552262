//! One shared chain as it was found against what it must hold.

use std::collections::BTreeMap;

use proxier_core::ids::ServicePortName;
use proxier_xtables::objects::Rule;

use crate::desired::Group;

/// What a shared chain lacks, and what is in it that must not be.
#[derive(Debug, Default)]
pub(crate) struct Dispatch<'a> {
    /// Rules to delete that nobody asks for, in the order in which they were found; with those asked for too often.
    pub(crate) extra: Vec<&'a Rule>,
    /// Groups that are there, but torn apart or out of order: to be deleted as far as they are there, and added as a whole. Each
    /// with its rules that are there.
    pub(crate) torn: BTreeMap<&'a ServicePortName, Vec<(&'a Group, Vec<&'a Rule>)>>,
    /// Groups that are not there at all.
    pub(crate) missing: BTreeMap<&'a ServicePortName, Vec<&'a Group>>,
    /// The tail is missing or not last: its rules that are there are to be deleted, and all of them appended.
    pub(crate) tail: Option<Vec<&'a Rule>>,
}

impl<'a> Dispatch<'a> {
    /// Compares.
    pub(crate) fn new(groups: &'a [Group], tail: &'a [Rule], seen: &'a [Rule]) -> Self {
        let mut wanted: BTreeMap<&Rule, usize> = BTreeMap::new();
        for rule in groups.iter().flat_map(|g| &g.rules).chain(tail) {
            *wanted.entry(rule).or_default() += 1;
        }
        // From the end: of equal rules the last ones are kept, since deleting one deletes the first.
        let mut places: BTreeMap<&Rule, Vec<usize>> = BTreeMap::new();
        let mut kept = Vec::new();
        let mut extra = Vec::new();
        for (at, rule) in seen.iter().enumerate().rev() {
            match wanted.get_mut(rule) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    places.entry(rule).or_default().push(at);
                    kept.push(rule);
                }
                _ => extra.push(rule),
            }
        }
        kept.reverse();
        extra.reverse();
        let mut out = Self { extra, ..Self::default() };
        if !kept.ends_with(&tail.iter().collect::<Vec<_>>()) {
            out.tail = Some(tail.iter().filter(|r| places.contains_key(r)).collect());
        }
        for group in groups {
            let found: Vec<(usize, &Rule)> =
                group.rules.iter().filter_map(|r| Some((places.get_mut(r).and_then(Vec::pop)?, r))).collect();
            if found.is_empty() {
                out.missing.entry(&group.port).or_default().push(group);
            } else if found.len() < group.rules.len() || !found.is_sorted_by_key(|(at, _)| *at) {
                let there = found.into_iter().map(|(_, rule)| rule).collect();
                out.torn.entry(&group.port).or_default().push((group, there));
            }
        }
        out
    }

    /// Nothing is in it that must go.
    pub(crate) fn only_lacks(&self) -> bool {
        self.extra.is_empty() && self.torn.is_empty() && self.tail.as_ref().is_none_or(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use proxier_core::ids::{Protocol, ServiceName};

    use super::*;

    fn rules(texts: &str) -> Vec<Rule> {
        texts.split_whitespace().map(|t| Rule(t.into())).collect()
    }

    fn group(name: &str, texts: &str) -> Group {
        let service = ServiceName::new("n", name);
        Group {
            port: ServicePortName { service, port: "".into(), protocol: Protocol::Tcp },
            rules: rules(texts),
        }
    }

    /// Extra rules, torn groups, missing groups, and what of the tail is there.
    fn found(groups: &[Group], seen: &str) -> (String, String, String, Option<String>) {
        let (tail, seen) = (rules("last"), rules(seen));
        let found = Dispatch::new(groups, &tail, &seen);
        let join = |rules: &[&Rule]| rules.iter().map(|r| &*r.0).collect::<Vec<_>>().join(" ");
        let torn: Vec<String> = found
            .torn
            .values()
            .flatten()
            .map(|(g, there)| format!("{}({})", g.port.service.name, join(there)))
            .collect();
        let missing: Vec<&str> = found.missing.values().flatten().map(|g| &*g.port.service.name).collect();
        (join(&found.extra), torn.join(" "), missing.join(" "), found.tail.as_deref().map(join))
    }

    #[test]
    fn every_way_to_differ() {
        let groups = [group("a", "a1 a2"), group("b", "b"), group("c", "b")];
        let ask = |seen: &str| found(&groups, seen);
        let none = String::new;
        let nothing = (none(), none(), none(), None);
        assert_eq!(ask("a1 a2 b b last"), nothing);
        assert_eq!(ask("b a1 b a2 last"), nothing, "groups may stand in each other");
        assert_eq!(ask("a1 a2 b last"), (none(), none(), "c".into(), None));
        assert_eq!(ask("a2 a1 b b last"), (none(), "a(a1 a2)".into(), none(), None));
        assert_eq!(ask("a2 b b last"), (none(), "a(a2)".into(), none(), None));
        assert_eq!(ask("a1 a2 b b"), (none(), none(), none(), Some(none())));
        assert_eq!(ask("a1 last a2 b b"), (none(), none(), none(), Some("last".into())));
        assert_eq!(ask("a1 a2 b b last x"), ("x".into(), none(), none(), None));
        assert_eq!(ask("x last b a1 a2 b b last x"), ("x last b x".into(), none(), none(), None));
        assert_eq!(ask(""), (none(), none(), "a b c".into(), Some(none())));
    }
}
