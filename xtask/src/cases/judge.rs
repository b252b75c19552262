//! Whether numbers and claims fit together.

use std::collections::BTreeSet;

use super::claims::{Claim, Kind};
use super::numbers::{List, Source};

/// What does not fit together.
pub(super) fn faults(list: &List, claims: &[Claim]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for claim in claims {
        if list.find(&claim.number).is_none() {
            faults.push(format!(
                "{}: {} claims {}, which is no number of the list",
                claim.file, claim.test, claim.number
            ));
        }
        if !seen.insert((&claim.file, &claim.test, &claim.number)) {
            faults.push(format!("{}: {} claims {} twice", claim.file, claim.test, claim.number));
        }
    }
    for (name, number) in list.sources.iter().flat_map(Source::numbers) {
        let own: Vec<&Claim> = claims.iter().filter(|claim| claim.number == name).collect();
        match (&number.deferred, own.first()) {
            (Some(area), Some(claim)) => faults.push(format!(
                "{name} is marked as deferred to {area}, but {} in {} claims it: remove the mark, or say `rest` if only a part is shown",
                claim.test, claim.file
            )),
            (None, None) => {
                faults.push(format!("{name} has no test and is not deferred: {}", number.what));
            }
            (None, Some(_)) if number.packet && own.iter().all(|claim| claim.kind != Kind::Corpus) => {
                faults.push(format!("{name} can be shown by a packet, but no case of the corpus does: {}", number.what));
            }
            _ => {}
        }
    }
    faults
}
