//! When to look: the kernel's notices, gathered until they pause, and a slow beat besides.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::source::StopSignal;

/// Look once nothing has happened for so long...
const QUIET: Duration = Duration::from_millis(30);
/// ...but at the latest so long after the first notice.
const LIMIT: Duration = Duration::from_millis(200);
/// Beat when the kernel gives no notices.
const BLIND_POLL: Duration = Duration::from_secs(2);

enum Wake {
    Changed(Vec<PathBuf>),
    Stop,
}

/// Why the folder is to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// These paths were named; there may be more.
    At(BTreeSet<PathBuf>),
    /// No longer: stop.
    Stop,
}

/// Watches a folder, also when it is replaced.
pub(super) struct Watch {
    root: PathBuf,
    poll: Option<Duration>,
    sender: Sender<Wake>,
    receiver: Receiver<Wake>,
    /// The watcher and which folder it watches.
    watcher: Option<(RecommendedWatcher, Place)>,
    warned: bool,
}

/// A folder's path without links, and its device and inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place(PathBuf, (u64, u64));

fn place(root: &Path) -> std::io::Result<Place> {
    let real = fs::canonicalize(root)?;
    let meta = fs::metadata(&real)?;
    Ok(Place(real, (meta.dev(), meta.ino())))
}

impl Watch {
    /// Starts to watch. That it cannot is no error: then it polls.
    pub(super) fn new(root: &Path, poll: Option<Duration>, stop: &StopSignal) -> Self {
        let (sender, receiver) = channel();
        let waker = sender.clone();
        stop.on_raise(move || {
            let _ = waker.send(Wake::Stop);
        });
        let mut watch = Self { root: root.to_owned(), poll, sender, receiver, watcher: None, warned: false };
        watch.refresh();
        watch
    }

    /// Makes sure that the folder that is there now is the one that is watched. Call before each look: what happens later is then noticed.
    pub(super) fn refresh(&mut self) {
        let now = place(&self.root).ok();
        if now.is_some() && self.watcher.as_ref().map(|(_, place)| place) == now.as_ref() {
            return;
        }
        self.watcher = None;
        let Some(now) = now else { return };
        match self.start(&now) {
            Ok(watcher) => self.watcher = Some((watcher, now)),
            Err(error) if !self.warned => {
                self.warned = true;
                let folder = self.root.display();
                tracing::warn!(%folder, %error, "no notices from the kernel; looking at the folder every 2 s");
            }
            Err(_) => {}
        }
    }

    fn start(&self, place: &Place) -> notify::Result<RecommendedWatcher> {
        let (sender, root, real) = (self.sender.clone(), self.root.clone(), place.0.clone());
        let handler = move |event: notify::Result<Event>| {
            if let Some(paths) = relevant(event, &root, &real) {
                let _ = sender.send(Wake::Changed(paths));
            }
        };
        let mut watcher = RecommendedWatcher::new(handler, Config::default())?;
        watcher.watch(&place.0, RecursiveMode::Recursive)?;
        // where the folder, or the link that leads to it, can be replaced
        if let Some(parent) = self.root.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            if let Err(error) = watcher.watch(parent, RecursiveMode::NonRecursive) {
                tracing::debug!(folder = %parent.display(), %error, "not watched; a replaced folder is noticed later");
            }
        }
        Ok(watcher)
    }

    /// Waits until there is a reason to look.
    pub(super) fn wait(&self) -> Look {
        let poll = if self.watcher.is_some() {
            self.poll
        } else {
            Some(self.poll.map_or(BLIND_POLL, |p| p.min(BLIND_POLL)))
        };
        let first = match poll {
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(poll) => self.receiver.recv_timeout(poll),
        };
        let mut paths = BTreeSet::new();
        match first {
            Ok(Wake::Changed(named)) => paths.extend(named),
            Err(RecvTimeoutError::Timeout) => return Look::At(paths),
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Look::Stop,
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(QUIET);
            match self.receiver.recv_timeout(left) {
                Ok(Wake::Changed(named)) if !left.is_zero() => paths.extend(named),
                Ok(Wake::Changed(named)) => {
                    paths.extend(named);
                    return Look::At(paths);
                }
                Err(RecvTimeoutError::Timeout) => return Look::At(paths),
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Look::Stop,
            }
        }
    }
}

/// The paths that an event names, if it concerns the folder. Reading is no change; our own would wake us for ever.
fn relevant(event: notify::Result<Event>, root: &Path, real: &Path) -> Option<Vec<PathBuf>> {
    let Ok(event) = event else { return Some(Vec::new()) };
    if event.need_rescan() {
        return Some(Vec::new());
    }
    let reading =
        matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
    let named = event.paths.iter().any(|p| p.starts_with(real) || p.file_name() == root.file_name());
    (named && !reading).then_some(event.paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of nothing, so that only the test wakes it.
    fn blind(stop: &StopSignal) -> Watch {
        Watch::new(Path::new("/nonexistent/folder"), None, stop)
    }

    #[test]
    fn a_burst_is_one_look() {
        let watch = blind(&StopSignal::new());
        let paths: BTreeSet<PathBuf> = (0..5).map(|i| PathBuf::from(format!("{i}"))).collect();
        for path in &paths {
            watch.sender.send(Wake::Changed(vec![path.clone()])).expect("sent");
        }
        assert_eq!(watch.wait(), Look::At(paths));
    }

    #[test]
    fn without_notices_it_looks_anyway() {
        assert_eq!(blind(&StopSignal::new()).wait(), Look::At(BTreeSet::new()));
    }

    #[test]
    fn stop_wakes() {
        let stop = StopSignal::new();
        let watch = blind(&stop);
        watch.sender.send(Wake::Changed(Vec::new())).expect("sent");
        stop.raise();
        assert_eq!(watch.wait(), Look::Stop);
        assert_eq!(blind(&stop).wait(), Look::Stop, "raised before");
    }

    #[test]
    fn reading_is_no_reason_to_look() {
        let (root, real) = (Path::new("/link/m"), Path::new("/real/m"));
        let at =
            |kind, path: &str| relevant(Ok(Event::new(kind).add_path(path.into())), root, real).is_some();
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(!at(opened, "/real/m/a.yaml"));
        assert!(at(written, "/real/m/a.yaml"));
        assert!(at(EventKind::Any, "/link/m"), "the link itself");
        assert!(!at(EventKind::Any, "/link/other"), "a neighbour");
        assert_eq!(relevant(Err(notify::Error::generic("lost")), root, real), Some(Vec::new()));
    }
}
