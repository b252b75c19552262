//! What is wrong with objects and files, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Told {
    /// By what they are about.
    by: BTreeMap<String, Vec<String>>,
    count: usize,
}

/// The problems that there are now. Clones are the same list; the lock is held for a look-up, or to copy what is asked for.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<Told>>);

impl Problems {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.told().by.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.told().count
    }

    /// The first of them, at most so many.
    #[must_use]
    pub fn first(&self, most: usize) -> Vec<String> {
        self.told().by.values().flatten().take(most).cloned().collect()
    }

    /// Puts problems in the place of those about the same, which are returned.
    pub(super) fn replace(&self, about: &str, problems: Vec<String>) -> Vec<String> {
        let mut told = self.told();
        let added = problems.len();
        let before = if problems.is_empty() {
            told.by.remove(about)
        } else {
            told.by.insert(about.to_owned(), problems)
        }
        .unwrap_or_default();
        told.count = told.count + added - before.len();
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_follows() {
        let problems = Problems::default();
        let texts = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(problems.replace("a", texts(3)), texts(0));
        assert_eq!(problems.replace("b", texts(1)), texts(0));
        assert_eq!((problems.count(), problems.first(2)), (4, texts(2)));
        assert_eq!(problems.replace("a", texts(1)), texts(3));
        assert_eq!(problems.replace("b", Vec::new()), texts(1));
        assert_eq!((problems.count(), problems.is_empty()), (1, false));
        assert_eq!(problems.replace("a", Vec::new()), texts(1));
        assert_eq!((problems.count(), problems.is_empty()), (0, true));
    }
}
