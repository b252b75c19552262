//! The content of a set or map: exact keys in a tree, intervals in a list.

use std::sync::Arc;

use imbl::OrdMap;

use super::ast::Verdict;
use super::value::{Datum, Key, Pattern, join};

/// What a key is mapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: a set.
    Nothing,
    /// A verdict.
    Verdict(Verdict),
    /// A concatenation of values.
    Data(Key),
}

/// What an element carries beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The value.
    pub value: Value,
    /// The comment. Not compared when an element is added again.
    pub comment: Option<Arc<str>>,
}

/// The elements of a set or map. Lookup of exact keys takes logarithmic time, of intervals linear time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements {
    exact: OrdMap<Key, Element>,
    ranged: Vec<(Vec<Pattern>, Element)>,
}

/// The element with this key conflicts with one that is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("element {0} conflicts with one that is there")]
pub struct ElementConflict(pub String);

fn exact_key(patterns: &[Pattern]) -> Option<Key> {
    let exact = |pattern: &Pattern| match pattern {
        Pattern::Exact(value) => Some(value.clone()),
        _ => None,
    };
    patterns.iter().map(exact).collect()
}

fn all_match(patterns: &[Pattern], key: &[Datum]) -> bool {
    patterns.len() == key.len() && patterns.iter().zip(key).all(|(pattern, value)| pattern.matches(value))
}

fn overlap(a: &[Pattern], b: &[Pattern]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.overlaps(b))
}

impl Elements {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.len() + self.ranged.len()
    }

    /// None at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element that a key falls into.
    #[must_use]
    pub fn lookup(&self, key: &[Datum]) -> Option<&Element> {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(key) };
        exact.or_else(|| self.ranged.iter().find(|(patterns, _)| all_match(patterns, key)).map(|(_, e)| e))
    }

    /// Elements with an exact key, sorted.
    pub fn exact(&self) -> impl Iterator<Item = (&Key, &Element)> {
        self.exact.iter()
    }

    /// Elements that are intervals, in the order they came.
    #[must_use]
    pub fn ranged(&self) -> &[(Vec<Pattern>, Element)] {
        &self.ranged
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.exact.values().chain(self.ranged.iter().map(|(_, e)| e)).map(|e| &e.value)
    }

    /// Adds one; adding the same again changes nothing and answers `false`. `merge`: intervals may overlap.
    ///
    /// # Errors
    /// The key is there with another value, or overlaps an interval.
    pub fn insert(
        &mut self,
        patterns: Vec<Pattern>,
        element: Element,
        merge: bool,
    ) -> Result<bool, ElementConflict> {
        if let Some((_, old)) = self.ranged.iter().find(|(own, _)| *own == patterns) {
            return if old.value == element.value {
                Ok(false)
            } else {
                Err(ElementConflict(join(&patterns)))
            };
        }
        if !merge && self.ranged.iter().any(|(own, _)| overlap(own, &patterns)) {
            return Err(ElementConflict(join(&patterns)));
        }
        let Some(key) = exact_key(&patterns) else {
            let in_the_way = |key: &Key| all_match(&patterns, key);
            if !merge && self.exact.keys().any(in_the_way) {
                return Err(ElementConflict(join(&patterns)));
            }
            self.ranged.push((patterns, element));
            return Ok(true);
        };
        match self.exact.get(&key) {
            Some(old) if old.value == element.value => Ok(false),
            Some(_) => Err(ElementConflict(join(&patterns))),
            None => {
                self.exact.insert(key, element);
                Ok(true)
            }
        }
    }

    /// Takes one out, by its key or interval.
    pub fn remove(&mut self, patterns: &[Pattern]) -> Option<Element> {
        if let Some(key) = exact_key(patterns) {
            return self.exact.remove(&key);
        }
        let position = self.ranged.iter().position(|(own, _)| own == patterns)?;
        Some(self.ranged.remove(position).1)
    }
}
