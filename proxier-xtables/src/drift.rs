//! Rules that were found against rules that should be there, in words.

use proxier_core::backend::DriftItem;

use crate::objects::{ChainId, Rule};

/// How a chain is named.
#[must_use]
pub fn chain_text(id: &ChainId) -> String {
    format!("chain {} {}", id.table.name(), id.name)
}

/// How a rule is named.
#[must_use]
pub fn rule_text(id: &ChainId, rule: &Rule) -> String {
    format!("rule {} -A {} {rule}", id.table.name(), id.name)
}

/// A rule that is not there.
#[must_use]
pub fn missing(id: &ChainId, rule: &Rule) -> DriftItem {
    DriftItem::Missing(rule_text(id, rule))
}

/// A chain that must hold exactly these rules. Rules have no names: what is in both is in place; if there is nothing else, the order differs.
#[must_use]
pub fn exact(id: &ChainId, want: &[Rule], seen: &[Rule]) -> Vec<DriftItem> {
    if want == seen {
        return Vec::new();
    }
    let mut items: Vec<DriftItem> =
        want.iter().filter(|r| !seen.contains(r)).map(|r| missing(id, r)).collect();
    let unexpected = seen.iter().filter(|r| !want.contains(r));
    items.extend(unexpected.map(|r| DriftItem::Unexpected(rule_text(id, r))));
    if items.is_empty() {
        let all = |rules: &[Rule]| rules.iter().map(|r| rule_text(id, r)).collect::<Vec<_>>().join("; ");
        items.push(DriftItem::Different(all(want), all(seen)));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Table;

    #[test]
    fn every_way_to_differ() {
        let id = ChainId { table: Table::Nat, name: "C".into() };
        let rules = |texts: &str| -> Vec<Rule> { texts.split_whitespace().map(|t| Rule(t.into())).collect() };
        let ask = |want: &str, seen: &str| -> Vec<String> {
            exact(&id, &rules(want), &rules(seen)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(ask("a b", "a b"), [""; 0]);
        assert_eq!(ask("a b", "a"), ["missing: rule nat -A C b"]);
        assert_eq!(ask("a", "a b"), ["unexpected: rule nat -A C b"]);
        assert_eq!(
            ask("a b", "b a"),
            ["different: want rule nat -A C a; rule nat -A C b, seen rule nat -A C b; rule nat -A C a"]
        );
        assert_eq!(ask("a", "a a").len(), 1);
    }
}
