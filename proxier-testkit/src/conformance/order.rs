//! The order in which objects arrive means nothing.

use proxier_core::backend::{Backend, Plan, RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::Snapshot;

use super::{Failure, Subject, Tally};
use crate::build::{Dice, Scenario};

fn text<S: Subject>(subject: &S, snapshot: &Snapshot) -> String {
    let changes = ChangeSet::between(None, snapshot);
    let set_aside = SetAside::new();
    let input = RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside };
    subject.backend(snapshot.family()).render(input).text()
}

/// For the random cluster of each seed: full plans are the same bytes, whatever order its objects came in, and however often one asks.
///
/// # Errors
/// The first line that differs.
pub fn order_does_not_matter<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for seed in seeds {
        let scenario = Scenario::from_seed(seed);
        let (first, second) = (scenario.cluster().commit(), scenario.shuffled(&mut Dice::new(seed)).commit());
        tally.clusters += 1;
        for family in IpFamily::ALL {
            let want = text(subject, first.snapshot(family));
            for snapshot in [first.snapshot(family), second.snapshot(family)] {
                let found = text(subject, snapshot);
                tally.syncs += 1;
                if found == want {
                    continue;
                }
                let differing = want.lines().zip(found.lines()).find(|(a, b)| a != b);
                let what = format!("plans differ: {differing:?}, {} and {} bytes", want.len(), found.len());
                return Err(Failure::new(subject, format!("{family}, seed {seed}"), what));
            }
        }
    }
    Ok(tally)
}
