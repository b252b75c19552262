//! Claims: which test says that it shows which numbers.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// Where a claim was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A case of the corpus: put to the oracle and walked through the rules of every backend.
    Corpus,
    /// A test that needs nothing.
    Test,
    /// A test in the running kernel.
    Kernel,
    /// Rows or a sequence of the matrix, with traffic through the running kernel.
    Matrix,
}

/// A test that claims a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    /// The number, as it was written.
    pub(super) number: String,
    /// What kind of test.
    pub(super) kind: Kind,
    /// The file, from the repository's root.
    pub(super) file: String,
    /// The test's name.
    pub(super) test: String,
}

/// What a search found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The claims.
    pub(super) claims: Vec<Claim>,
    /// Claims that cannot be.
    pub(super) faults: Vec<String>,
}

impl Found {
    /// Adds what another search found.
    pub(super) fn extend(&mut self, other: Self) {
        self.claims.extend(other.claims);
        self.faults.extend(other.faults);
    }
}

/// What is read of a case.
#[derive(Debug, Deserialize)]
struct Case {
    refs: Vec<String>,
}

/// The claims of the corpus.
pub(super) fn of_corpus(root: &Path, folder: &str) -> anyhow::Result<Found> {
    let mut found = Found::default();
    for entry in std::fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let Some(stem) = name.strip_suffix(".yaml") else { continue };
        let text = std::fs::read_to_string(&path).with_context(|| name.clone())?;
        let case: Case = serde_saphyr::from_str(&text).with_context(|| name.clone())?;
        if case.refs.is_empty() {
            found.faults.push(format!("{folder}/{name} claims no number in its refs"));
        }
        found.claims.extend(case.refs.into_iter().map(|number| Claim {
            number,
            kind: Kind::Corpus,
            file: format!("{folder}/{name}"),
            test: stem.to_owned(),
        }));
    }
    Ok(found)
}
