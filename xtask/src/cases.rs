//! `cargo xtask cases`: which test shows which numbered case.
//!
//! The numbers are those of the specifications' lists of edge cases and of the public reports, as `numbers.yaml` of the corpus states
//! them. A test claims numbers: a case of the corpus by its `refs`, a test in Rust by a line of its documentation that begins with
//! `Cases:`. Out of both comes the table `docs/cases.md`; what does not fit together is an error.

mod claims;
mod judge;
mod numbers;
mod rust;
mod sources;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Context, bail};

use crate::tally::Tally;
use crate::{metadata, process};

/// The committed list of numbers, from the repository's root.
const NUMBERS: &str = "proxier-testkit/corpus/numbers.yaml";
/// The cases of the corpus.
const CORPUS: &str = "proxier-testkit/corpus/cases";
/// The generated table.
const TABLE: &str = "docs/cases.md";

/// What the repository says about its cases.
struct Outcome {
    /// The table, as it should be.
    table: String,
    /// What does not fit together.
    faults: Vec<String>,
    /// How many numbers there are.
    numbers: usize,
}

/// Reads everything and judges it.
fn survey(root: &Path) -> anyhow::Result<Outcome> {
    let list = numbers::load(&root.join(NUMBERS))?;
    let sources = sources::Sources::of(&metadata::load()?, root)?;
    let mut found = claims::of_corpus(root, CORPUS)?;
    found.extend(rust::claims(root, &sources)?);
    let mut faults = list.faults();
    faults.extend(found.faults);
    faults.extend(judge::faults(&list, &found.claims));
    Ok(Outcome { table: table::render(&list, &found.claims), faults, numbers: list.len() })
}

/// Writes the table.
///
/// # Errors
/// What does not fit together, all of it; the table is written all the same.
pub(crate) fn write() -> anyhow::Result<()> {
    let root = process::root();
    let outcome = survey(&root)?;
    std::fs::write(root.join(TABLE), &outcome.table).context(TABLE)?;
    report(&outcome.faults)?;
    println!("{TABLE}: {} numbers", outcome.numbers);
    Ok(())
}

/// Checks that every number has its test or its reason, and that the table is the one that would be written.
///
/// # Errors
/// What does not fit together, all of it.
pub(crate) fn check() -> anyhow::Result<Tally> {
    let root = process::root();
    let mut outcome = survey(&root)?;
    let committed = std::fs::read_to_string(root.join(TABLE)).unwrap_or_default();
    if committed != outcome.table {
        outcome.faults.push(format!("{TABLE} is out of date: run `cargo xtask cases` and commit it"));
    }
    report(&outcome.faults)?;
    println!("{} numbers, each with its test or its reason", outcome.numbers);
    Ok(Tally::ONE)
}

fn report(faults: &[String]) -> anyhow::Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    for fault in faults {
        println!("{fault}");
    }
    bail!("numbered cases: {} faults", faults.len());
}
