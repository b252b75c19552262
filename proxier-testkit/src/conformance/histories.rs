//! Histories: whatever happened before, the state is that of the newest snapshot.

use std::collections::BTreeSet;

use proxier_core::driver::{Driver, Instance, SyncKind};
use proxier_core::ids::IpFamily;
use proxier_core::oracle::{Outcome, decide};
use proxier_core::snapshot::Snapshot;

use super::kernel::{Kernel, TextKernel};
use super::walks::Walker;
use super::{Failure, Model, Subject, Tally, fresh};
use crate::build::{Dice, History, packets};

/// Is the kernel what a fresh full plan would make it, and do packets go where they must?
pub(super) fn is_right<S: Subject>(
    subject: &S,
    kernel: &Kernel<S>,
    snapshot: &Snapshot,
    seed: u64,
    count: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let model = kernel.model();
    let want = fresh(subject, snapshot).map_err(|e| e.to_string())?.objects();
    same_objects(&want, &model.objects())?;
    let questions = packets(&mut Dice::new(seed), snapshot, count);
    Walker::new(subject, model, snapshot).all(&questions, tally)
}

pub(super) fn same_objects(want: &BTreeSet<String>, found: &BTreeSet<String>) -> Result<(), String> {
    if want == found {
        return Ok(());
    }
    let list = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).take(10).cloned().collect::<Vec<_>>().join("\n  ")
    };
    Err(format!("missing:\n  {}\nunexpected:\n  {}", list(want, found), list(found, want)))
}

/// Leaves out steps, the longest runs first, while it still fails.
pub(super) fn minimise(
    mut history: History,
    fails: impl Fn(&History) -> Option<String>,
) -> (History, String) {
    let mut what = fails(&history).unwrap_or_default();
    let mut run = history.steps.len();
    while run > 0 {
        let mut at = 0;
        while at < history.steps.len() {
            let mut smaller = history.clone();
            smaller.steps.drain(at..(at + run).min(history.steps.len()));
            match fails(&smaller) {
                Some(why) => (history, what) = (smaller, why),
                None => at += run,
            }
        }
        run /= 2;
    }
    (history, what)
}

/// Runs a property over the histories of these seeds, in both families, and makes a failing history small.
pub(super) fn for_each_history<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    property: impl Fn(&History, IpFamily, u64, &mut Tally) -> Result<(), String>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for seed in seeds {
        let history = History::from_seed(seed);
        tally.clusters += 1;
        for family in IpFamily::ALL {
            if property(&history, family, seed, &mut tally).is_err() {
                let fails = |h: &History| property(h, family, seed, &mut Tally::default()).err();
                let (history, what) = minimise(history, fails);
                let steps: Vec<String> = history.steps.iter().map(|s| format!("{s:?}")).collect();
                let place = format!("{family}, seed {seed}");
                let around = format!("{:?}\n{:?}", history.node, history.options);
                return Err(Failure::new(subject, place, format!("{what}\n{around}\n{}", steps.join("\n"))));
            }
        }
    }
    Ok(tally)
}

/// After each commit of a random history, the state reached by partial plans holds the same as a fresh full plan's and treats `count`
/// random packets as it must; syncing the same snapshot once more writes nothing.
///
/// In every other history emptied chains stay, as on kernels that call them busy.
///
/// # Errors
/// The smallest history found for which that is not so.
pub fn partial_equals_full<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    count: usize,
) -> Result<Tally, Failure> {
    for_each_history(subject, seeds, |history, family, seed, tally| {
        follow(subject, history, family, seed, count, tally)
    })
}

/// The same as [`partial_equals_full`] for one history, which is not made smaller; for those of
/// [`strategy::histories`](crate::build::strategy::histories) and ones made by hand.
///
/// # Errors
/// The first commit after which that is not so.
pub fn partial_history<S: Subject>(
    subject: &S,
    history: &History,
    family: IpFamily,
    count: usize,
) -> Result<Tally, Failure> {
    let mut tally = Tally { clusters: 1, ..Tally::default() };
    follow(subject, history, family, 0, count, &mut tally)
        .map_err(|what| Failure::new(subject, family, what))?;
    Ok(tally)
}

fn follow<S: Subject>(
    subject: &S,
    history: &History,
    family: IpFamily,
    seed: u64,
    count: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let kernel = Kernel::default();
    kernel.keep_emptied(seed % 2 == 1);
    let mut driver = Driver::new(TextKernel::new(subject, family, kernel.clone()));
    history.play(|number, commit| {
        let place = |e: String| format!("commit {number}: {e}");
        let snapshot = commit.snapshot(family);
        let report = driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
        tally.syncs += 1;
        if report.attempts != 1 {
            return Err(place(format!("took {} attempts: {:?}", report.attempts, report.setbacks)));
        }
        is_right(subject, &kernel, snapshot, seed, count, tally).map_err(place)?;
        let again = driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
        if again.operations != 0 {
            return Err(place(format!("syncing again took {} operations", again.operations)));
        }
        Ok(())
    })
}

/// A process that ends after some commit of a random history and a new one that knows nothing of it: its first sync, of the same
/// snapshot or of a later one, ends in the right state; and where the subject says so, clients with session affinity stay where they were.
///
/// # Errors
/// The smallest history found for which that is not so.
pub fn restarts_end_right<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    count: usize,
) -> Result<Tally, Failure> {
    for_each_history(subject, seeds, |history, family, seed, tally| {
        let kernel = Kernel::default();
        let mut dice = Dice::new(seed);
        let new = || Driver::new(TextKernel::new(subject, family, kernel.clone()));
        let mut driver = new();
        history.play(|number, commit| {
            let snapshot = commit.snapshot(family);
            let place = |e: String| format!("commit {number}: {e}");
            if dice.one_in(3) {
                driver = new();
                let report = driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
                if report.kind != SyncKind::Full {
                    return Err(place("the first sync was partial".into()));
                }
                is_right(subject, &kernel, snapshot, seed, count, tally).map_err(place)?;
            } else if dice.one_in(2) {
                driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
            } else {
                // This one crashes before it gets to the kernel.
                return Ok(());
            }
            tally.syncs += 1;
            if subject.keeps_clients() {
                clients_stay(subject, &kernel, snapshot, seed, tally).map_err(place)?;
            }
            Ok(())
        })
    })
}

/// Records a client on a copy of the kernel, starts a new process on it, and asks where the client goes.
fn clients_stay<S: Subject>(
    subject: &S,
    kernel: &Kernel<S>,
    snapshot: &Snapshot,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    for packet in packets(&mut Dice::new(seed), snapshot, 20) {
        let decision = decide(snapshot, &packet);
        let (Outcome::Endpoints(choices), Some((_, name)), Some(_)) =
            (&decision.outcome, &decision.frontend, decision.affinity)
        else {
            continue;
        };
        let Some(endpoint) = choices.last().map(|c| c.endpoint) else { continue };
        let copy = kernel.copy();
        copy.remember(&subject.affinity_record(name, endpoint), packet.source)?;
        let mut driver = Driver::new(TextKernel::new(subject, snapshot.family(), copy.clone()));
        driver.sync(snapshot, SyncKind::Full).map_err(|e| e.to_string())?;
        let walker = Walker::new(subject, copy.model(), snapshot);
        return walker.one(&packet, &decision, Some(endpoint), tally);
    }
    Ok(())
}
