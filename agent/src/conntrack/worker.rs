//! The thread, and the observer that gives it work.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use proxier_core::ids::IpFamily;
use proxier_core::snapshot::Snapshot;
use proxier_core::stale::{Scope, Search, StaleFlows};
use proxier_sys::netlink::NetlinkError;

use super::Pass;
use super::schedule::{Ending, Job, Next, Schedule};
use super::sweep::{SweepError, Tables, Tally, sweep};
use crate::sync::{Observer, Synced};

/// Opens the table for one pass.
type Open = Box<dyn FnMut() -> Result<Tables, NetlinkError> + Send>;
/// Is told of each pass, on the thread that ran it.
type OnPass = Box<dyn FnMut(&Pass) + Send>;

/// Follows the sync loop and deletes what its syncs leave behind, on a thread of its own.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
    origin: Instant,
}

#[derive(Debug, Default)]
struct State {
    schedule: Schedule,
    stop: bool,
}

impl Cleaner {
    /// Starts the thread in the calling thread's network namespace. `on_pass` is told of each pass.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(on_pass: impl FnMut(&Pass) + Send + 'static) -> io::Result<Self> {
        Self::start_on(Tables::of_the_kernel, on_pass)
    }

    /// The same on another table.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start_on(
        open: impl FnMut() -> Result<Tables, NetlinkError> + Send + 'static,
        on_pass: impl FnMut(&Pass) + Send + 'static,
    ) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::default(), more: Condvar::new(), origin: Instant::now() });
        let worker = Worker {
            shared: Arc::clone(&shared),
            open: Box::new(open),
            on_pass: Box::new(on_pass),
            filters: true,
            told: BTreeSet::new(),
        };
        thread::Builder::new().name("conntrack".to_owned()).spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// Has this looked for; `snapshot` is in force. Returns at once.
    pub fn look(&self, stale: &StaleFlows, snapshot: &Snapshot) {
        self.with_state(|state| state.schedule.add(stale, snapshot));
    }

    fn with_state(&self, change: impl FnOnce(&mut State)) {
        // Nothing in here can leave it half changed.
        change(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.more.notify_one();
    }
}

impl Observer for Cleaner {
    fn synced(&mut self, synced: &Synced<'_>) {
        self.look(&synced.report.stale_flows, synced.snapshot);
    }

    fn stopping(&mut self) {
        self.with_state(|state| state.stop = true);
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.with_state(|state| state.stop = true);
    }
}

struct Worker {
    shared: Arc<Shared>,
    open: Open,
    on_pass: OnPass,
    /// The kernel leaves out flows, as far as is known.
    filters: bool,
    /// Causes of failure that were logged since the last success.
    told: BTreeSet<(IpFamily, String)>,
}

impl Worker {
    fn run(mut self) {
        while let Some(job) = self.wait() {
            let (took, ending) = self.pass(&job);
            let now = self.shared.origin.elapsed();
            let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.schedule.ended(job, now, took, ending);
        }
    }

    /// The next job; `None` when it is time to go.
    fn wait(&self) -> Option<Job> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return None;
            }
            let now = self.shared.origin.elapsed();
            state = match state.schedule.next(now) {
                Next::Run(job) => return Some(*job),
                Next::Wait(None) => self.shared.more.wait(state).unwrap_or_else(PoisonError::into_inner),
                Next::Wait(Some(until)) => {
                    let wait = until.saturating_sub(now);
                    self.shared.more.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn pass(&mut self, job: &Job) -> (Duration, Ending) {
        let begun = Instant::now();
        let family = job.family;
        let search = Search::new(&job.stale, &job.snapshot);
        let (tally, result) = match (self.open)() {
            Ok(mut tables) => sweep(&mut tables, family, &search, &mut self.filters),
            Err(error) => (Tally::default(), Err(SweepError::List(error))),
        };
        let pass = Pass {
            family,
            scope: job.stale.scope,
            took: begun.elapsed(),
            walks: tally.walks,
            examined: tally.examined,
            deleted: tally.deleted,
            refused: tally.refused,
            partial: tally.partial,
            sent: tally.sent,
        };
        let ending = match result {
            Ok(()) if pass.partial => {
                self.tell_once(
                    &pass,
                    "the kernel interrupted the listing of flows every time; will look again",
                );
                Ending::Incomplete
            }
            Ok(()) => {
                self.told.retain(|(about, _)| *about != family);
                Ending::Complete
            }
            Err(error) => {
                self.tell_once(&pass, &error.to_string());
                match error {
                    SweepError::Permission(_) | SweepError::Unsupported(_) => Ending::Refused,
                    _ => Ending::Incomplete,
                }
            }
        };
        if pass.walks > 0 {
            tell(&pass);
            (self.on_pass)(&pass);
        }
        (pass.took, ending)
    }

    /// A cause that lasts is not worth more than one line.
    fn tell_once(&mut self, pass: &Pass, cause: &str) {
        let Pass { family, deleted, .. } = pass;
        if self.told.insert((*family, cause.to_owned())) {
            tracing::warn!(%family, error = %cause, deleted, "stale UDP flows may stay");
        } else {
            tracing::debug!(%family, error = %cause, deleted, "stale UDP flows may still stay");
        }
    }
}

fn tell(pass: &Pass) {
    let Pass { family, walks, examined, deleted, refused, .. } = *pass;
    let scope = match pass.scope {
        Scope::Changes => "changes",
        Scope::Frontends => "all frontends",
        Scope::Everything => "everything",
    };
    let took = pass.took.as_secs_f64() * 1000.0;
    let messages = pass.sent.messages;
    if deleted > 0 || refused > 0 {
        tracing::info!(%family, scope, walks, examined, deleted, refused, messages, duration.ms = took, "deleted stale UDP flows");
    } else {
        tracing::debug!(%family, scope, walks, examined, deleted, messages, duration.ms = took, "no stale UDP flows");
    }
}
