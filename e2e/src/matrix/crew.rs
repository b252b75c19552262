//! Who does the rows: threads in the callers' namespaces. Rows that wait for nothing or for a refusal cost nothing meanwhile, so that
//! many of them go at once; rows that are answered keep the processors busy, so that few do.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use proxier_sys::netns::Netns;

/// Rows at once that wait, in all namespaces together.
const WAITING: usize = 192;
/// Rows at once that are answered, on a real machine.
pub(super) const ANSWERED: usize = 64;

/// Rows of one namespace, by their places, with the number of threads for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Crew {
    rows: Vec<usize>,
    hands: usize,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Its place among all.
    pub(super) place: usize,
    /// Where its caller is.
    pub(super) namespace: &'static str,
    /// It waits for nothing to come back, or for a refusal.
    pub(super) waits: bool,
}

/// Does all tasks, each in its namespace, `answered` at once of those that do not wait. Gives what came of them, in the tasks' order.
///
/// # Errors
/// A namespace that cannot be entered, and the first error of a task.
pub(super) fn all<T: Send>(
    tasks: &[Task],
    answered: usize,
    one: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let done: Mutex<BTreeMap<usize, T>> = Mutex::default();
    let crews = crews(tasks, answered);
    let one = |row: usize| {
        let result = one(row)?;
        done.lock().unwrap_or_else(PoisonError::into_inner).insert(row, result);
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = crews
            .iter()
            .map(|((namespace, _), crew)| {
                scope.spawn(|| Netns::named(namespace)?.run(|| work(crew, &one))?)
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|payload| resume_unwind(payload)))
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(tasks.iter().filter_map(|task| done.remove(&task.place)).collect())
}

/// Threads that a thread starts are in its namespace.
fn work(crew: &Crew, one: &(impl Fn(usize) -> anyhow::Result<()> + Sync)) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let hand = || {
        while let Some(row) = crew.rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            one(*row)?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..crew.hands).map(|_| scope.spawn(hand)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|payload| resume_unwind(payload)))
    })
}

/// One for each namespace and kind of row.
fn crews(tasks: &[Task], answered: usize) -> BTreeMap<(&'static str, bool), Crew> {
    let mut crews: BTreeMap<(&'static str, bool), Crew> = BTreeMap::new();
    for task in tasks {
        crews.entry((task.namespace, task.waits)).or_default().rows.push(task.place);
    }
    let kinds = |wanted| tasks.iter().filter(|t| t.waits == wanted).count().max(1);
    let (waiting, busy) = (kinds(true), kinds(false));
    for ((_, waits), crew) in &mut crews {
        let (hands, all) = if *waits { (WAITING, waiting) } else { (answered, busy) };
        crew.hands = (hands * crew.rows.len() / all).clamp(1, crew.rows.len());
    }
    crews
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(of: &[(&'static str, bool, usize)]) -> Vec<Task> {
        let all = of.iter().flat_map(|(namespace, waits, count)| {
            std::iter::repeat_n(Task { place: 0, namespace, waits: *waits }, *count)
        });
        all.enumerate().map(|(place, task)| Task { place, ..task }).collect()
    }

    #[test]
    fn hands_are_where_the_rows_are() {
        let tasks = tasks(&[("a", false, 30), ("b", false, 10), ("b", true, 500), ("c", true, 2)]);
        let crews = crews(&tasks, 8);
        let hands: Vec<_> = crews.iter().map(|((name, waits), crew)| (*name, *waits, crew.hands)).collect();
        assert_eq!(hands, [("a", false, 6), ("b", false, 2), ("b", true, 191), ("c", true, 1)]);
        assert_eq!(crews[&("c", true)].rows, [540, 541]);
        assert_eq!(crews.values().map(|crew| crew.rows.len()).sum::<usize>(), tasks.len());
    }

    #[test]
    fn every_row_is_done_once() {
        let crew = Crew { rows: (0..100).collect(), hands: 7 };
        let done = Mutex::new(Vec::new());
        work(&crew, &|row| {
            done.lock().unwrap().push(row);
            Ok(())
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, crew.rows);
        let error = work(&crew, &|row| if row == 50 { anyhow::bail!("no {row}") } else { Ok(()) });
        assert_eq!(error.unwrap_err().to_string(), "no 50");
    }
}
