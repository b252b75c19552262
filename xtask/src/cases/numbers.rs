//! The committed list of numbers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// The list as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// Parts of the project that are built later, by name, each with what it brings.
    pub(super) areas: BTreeMap<String, String>,
    /// Where numbers come from.
    pub(super) sources: Vec<Source>,
}

/// One numbered list of a specification or of the public reports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// What stands before a number where it is claimed, for example `core-11.`.
    pub(super) prefix: String,
    /// Heading of its table.
    pub(super) title: String,
    /// How many numbers there are, so that one that is lost is noticed.
    pub(super) total: usize,
    /// Its numbers have gaps, or are none.
    #[serde(default)]
    pub(super) gaps: bool,
    numbers: BTreeMap<Key, Number>,
}

/// A number as it is written after the prefix. Numbers are in the order of their value.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub(super) struct Key(String);

impl Key {
    fn value(&self) -> Option<u32> {
        self.0.parse().ok()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = |key: &Self| (key.value().unwrap_or(u32::MAX), key.0.clone());
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What is said about a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Number {
    /// What it is about.
    pub(super) what: String,
    /// How we differ from the list's words on purpose.
    #[serde(default)]
    pub(super) ours: Option<String>,
    /// A packet shows it, so that some case of the corpus must, and with it every backend.
    #[serde(default)]
    pub(super) packet: bool,
    /// The area that will show it; until then it must not be claimed.
    #[serde(default)]
    pub(super) deferred: Option<String>,
    /// The area that will show what the tests that claim it do not.
    #[serde(default)]
    pub(super) rest: Option<String>,
    /// Why it is deferred, or which part, beyond what the area says.
    #[serde(default)]
    pub(super) because: Option<String>,
}

/// Reads the list.
pub(super) fn load(path: &Path) -> anyhow::Result<List> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

/// The list from its text.
pub(super) fn parse(text: &str) -> anyhow::Result<List> {
    Ok(serde_saphyr::from_str(text)?)
}

impl Source {
    /// The numbers in order, each as it is claimed.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (String, &Number)> {
        self.numbers.iter().map(|(key, number)| (format!("{}{}", self.prefix, key.0), number))
    }

    fn faults(&self, areas: &BTreeMap<String, String>) -> Vec<String> {
        let mut faults = Vec::new();
        let (total, held) = (self.total, self.numbers.len());
        if total != held {
            faults.push(format!("{}: {held} numbers are listed, but there are {total}", self.prefix));
        }
        let expected =
            |value: usize| self.numbers.keys().any(|k| k.value().is_some_and(|k| k as usize == value));
        let missing = (1..=total).filter(|value| !self.gaps && !expected(*value));
        faults.extend(missing.map(|value| format!("{}{value} is not listed", self.prefix)));
        for (name, number) in self.numbers() {
            if number.what.trim().is_empty() {
                faults.push(format!("{name} does not say what it is about"));
            }
            if number.deferred.is_some() && number.rest.is_some() {
                faults.push(format!("{name} is deferred as a whole and in part"));
            }
            for area in [&number.deferred, &number.rest].into_iter().flatten() {
                if !areas.contains_key(area) {
                    faults.push(format!("{name} is deferred to {area}, which is no area of the list"));
                }
            }
        }
        faults
    }
}

impl List {
    /// How many numbers there are.
    pub(super) fn len(&self) -> usize {
        self.sources.iter().map(|source| source.numbers.len()).sum()
    }

    /// The number of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Number> {
        let of = |source: &'_ Source| {
            let key = name.strip_prefix(source.prefix.as_str())?;
            Some(Key(key.to_owned()))
        };
        self.sources.iter().find_map(|source| source.numbers.get(&of(source)?))
    }

    /// What is wrong with the list itself.
    pub(super) fn faults(&self) -> Vec<String> {
        self.sources.iter().flat_map(|source| source.faults(&self.areas)).collect()
    }
}
