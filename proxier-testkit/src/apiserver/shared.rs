//! What every request and the test's handle share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::access::Access;
use super::faults::Faults;
use super::resource::Verb;
use super::store::Store;

/// What running watches are told besides the state's version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) revision: u64,
    /// Counts the times all watches were to send a bookmark.
    pub(super) bookmarks: u64,
    /// Counts the times all watches were to end.
    pub(super) ends: u64,
    /// Counts the times all watches were to end as expired.
    pub(super) expiries: u64,
}

/// How the server behaves.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// How long a request for a version from the future waits for it.
    pub(super) future_wait: Duration,
    /// How long a watch lasts that does not say.
    pub(super) watch_timeout: Duration,
    /// How often a watch gets a bookmark.
    pub(super) bookmark_every: Duration,
    pub(super) streaming_lists: bool,
    pub(super) protocols: Protocols,
}

/// Which HTTP the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// What the client prefers.
    #[default]
    Both,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// A request that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it wanted to do; `None` for paths that are no resource.
    pub verb: Option<Verb>,
    /// Plural name of the resource; the path for paths that are none.
    pub resource: String,
    /// Path and query, as sent.
    pub uri: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Whether it came over HTTP/2.
    pub http2: bool,
}

/// Most requests that are remembered one by one.
const REMEMBERED: usize = 10_000;

/// Requests so far.
#[derive(Debug, Default)]
pub(super) struct Record {
    counts: BTreeMap<(Verb, String), u64>,
    last: VecDeque<Seen>,
}

impl Record {
    pub(super) fn add(&mut self, seen: Seen) {
        if let Some(verb) = seen.verb {
            *self.counts.entry((verb, seen.resource.clone())).or_default() += 1;
        }
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(seen);
    }

    pub(super) fn count(&self, verb: Verb, resource: &str) -> u64 {
        self.counts.get(&(verb, resource.to_owned())).copied().unwrap_or(0)
    }

    pub(super) fn last(&self) -> Vec<Seen> {
        self.last.iter().cloned().collect()
    }
}

/// State, rules, faults and records of one server.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) signal: watch::Sender<Signal>,
    store: Mutex<Store>,
    access: Mutex<Access>,
    faults: Mutex<Faults>,
    record: Mutex<Record>,
    /// Running watches by resource.
    watches: Mutex<BTreeMap<&'static str, usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(settings: Settings, store: Store, access: Access) -> Self {
        let revision = store.revision();
        Self {
            settings,
            signal: watch::Sender::new(Signal { revision, ..Signal::default() }),
            store: Mutex::new(store),
            access: Mutex::new(access),
            faults: Mutex::default(),
            record: Mutex::default(),
            watches: Mutex::default(),
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    pub(super) fn access(&self) -> MutexGuard<'_, Access> {
        lock(&self.access)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    pub(super) fn watches(&self) -> MutexGuard<'_, BTreeMap<&'static str, usize>> {
        lock(&self.watches)
    }

    /// Changes the state and tells the watches.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let (result, revision) = {
            let mut store = self.store();
            let result = change(&mut store);
            (result, store.revision())
        };
        self.signal.send_modify(|signal| signal.revision = signal.revision.max(revision));
        result
    }
}
