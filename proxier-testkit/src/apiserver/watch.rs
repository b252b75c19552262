//! Watches: the state first where it is asked for, then changes as they come, with bookmarks between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::body::{Answer, Cut};
use super::list::{chunks, reach};
use super::object::{Object, key};
use super::request::{Query, Start, Target, watch_start};
use super::resource::Resource;
use super::selector::Selector;
use super::shared::{Shared, Signal};
use super::status::Refusal;
use super::store::Change;

/// Most changes written at once.
const BATCH: usize = 500;

/// How long before its end a watch gets bookmarks: those of the recorded server came so.
const LAST_BOOKMARKS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(1)];

/// The recorded server's first bookmark is the mark after the state, so that none follows it at once.
const QUIET_AFTER_MARK: Duration = Duration::from_secs(3);

/// One watch.
struct Watch {
    shared: Arc<Shared>,
    resource: &'static Resource,
    /// Keys begin with this.
    prefix: String,
    selector: Selector,
    bookmarks: bool,
    signal: watch::Receiver<Signal>,
    /// Up to which version everything was sent.
    cursor: Arc<AtomicU64>,
    /// The state to begin with, and whether a mark ends it.
    state: Option<(Vec<Arc<Object>>, bool)>,
    started: Instant,
    /// No bookmark before the end is sent until then.
    quiet: Instant,
    ends: Instant,
}

/// Begins a watch and returns its stream.
pub(super) async fn watch(shared: Arc<Shared>, target: &Target, query: &Query) -> Result<Answer, Refusal> {
    let resource = target.resource;
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), resource);
    let selector = selector.map_err(Refusal::bad_request)?;
    let start = watch_start(query, shared.settings.streaming_lists)?;
    if let Start::State(version) = start {
        reach(&shared, version).await?;
    }
    let prefix = key(&target.namespace, "");
    let signal = shared.signal.subscribe();
    let bookmarks = query.flag("allowWatchBookmarks");
    let (state, cursor) = {
        let mut store = shared.store();
        let (revision, floor) = (store.revision(), store.floor(resource.store));
        let (state, version) = match start {
            Start::After(version) if version < floor => {
                return Ok(ended_at_once(&Refusal::watch_expired(version, floor)));
            }
            Start::After(version) => (None, version),
            Start::Now => (None, revision),
            Start::State(_) => {
                let all =
                    store.page(resource.store, None, (&prefix, ""), usize::MAX, |o| selector.matches(o));
                (Some((all.items, bookmarks && shared.settings.streaming_lists)), revision)
            }
        };
        (state, store.cursor(version))
    };
    let seconds = query.text("timeoutSeconds").parse().unwrap_or(0);
    let lasts = if seconds == 0 { shared.settings.watch_timeout } else { Duration::from_secs(seconds) };
    let started = Instant::now();
    let marked = state.as_ref().is_some_and(|(_, mark)| *mark);
    let quiet = if marked { started + QUIET_AFTER_MARK } else { started };
    let ends = started + lasts;
    let watch =
        Watch { shared, resource, prefix, selector, bookmarks, signal, cursor, state, started, quiet, ends };
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(watch.run(sender));
    Ok(Answer::Fed(receiver))
}

/// A stream of a single ERROR event.
fn ended_at_once(refusal: &Refusal) -> Answer {
    let event: Bytes = error_event(refusal).into();
    Answer::Parts(Box::new(std::iter::once(event)))
}

/// The ERROR event that says why a watch ends.
pub(super) fn error_event(refusal: &Refusal) -> Vec<u8> {
    let mut event = br#"{"type":"ERROR","object":"#.to_vec();
    event.extend_from_slice(&refusal.body());
    event.extend_from_slice(b"}\n");
    event
}

/// Appends one event about an object.
fn write_event(out: &mut Vec<u8>, kind: &str, object: &Object, resource: &Resource) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object.write(out, resource);
    out.extend_from_slice(b"}\n");
}

/// The bookmark of a version; with the mark, the one that ends the state.
fn bookmark(resource: &Resource, version: u64, mark: bool) -> Vec<u8> {
    let mark = if mark { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let (types, empty) = (resource.type_fields(), resource.empty);
    format!(
        r#"{{"type":"BOOKMARK","object":{{{types}"metadata":{{"resourceVersion":"{version}"{mark}}},{empty}}}}}{}"#,
        '\n'
    )
    .into_bytes()
}

/// Why a watch is over: the client is gone, or the stream ends.
struct Over;

impl Watch {
    async fn run(mut self, sender: mpsc::Sender<Result<Bytes, Cut>>) {
        *self.shared.watches().entry(self.resource.plural).or_default() += 1;
        // However it ends, it is over.
        let _over: Result<(), Over> = self.feed(&sender).await;
        if let Some(count) = self.shared.watches().get_mut(self.resource.plural) {
            *count -= 1;
        }
    }

    async fn feed(&mut self, sender: &mpsc::Sender<Result<Bytes, Cut>>) -> Result<(), Over> {
        let begun = *self.signal.borrow();
        self.send_state(sender).await?;
        let mut bookmarks = begun.bookmarks;
        loop {
            // Noted before the changes are sent: what comes while they are is a signal of its own.
            let now = *self.signal.borrow_and_update();
            self.send_changes(sender).await?;
            if now.expiries != begun.expiries {
                let version = self.cursor.load(Ordering::Relaxed);
                let event = error_event(&Refusal::watch_expired(version, now.revision));
                return send(sender, event).await;
            }
            if now.ends != begun.ends {
                return Err(Over);
            }
            if now.bookmarks != bookmarks {
                bookmarks = now.bookmarks;
                self.send_bookmark(sender).await?;
            }
            let bookmark_due = self.next_bookmark();
            tokio::select! {
                changed = self.signal.changed() => changed.map_err(|_| Over)?,
                () = sleep_until(bookmark_due) => self.send_bookmark(sender).await?,
                () = sleep_until(self.ends) => return Err(Over),
                () = sender.closed() => return Err(Over),
            }
        }
    }

    async fn send_state(&mut self, sender: &mpsc::Sender<Result<Bytes, Cut>>) -> Result<(), Over> {
        let Some((objects, mark)) = self.state.take() else { return Ok(()) };
        let resource = self.resource;
        let version = self.cursor.load(Ordering::Relaxed);
        let tail = if mark { bookmark(resource, version, true) } else { Vec::new() };
        let write = move |out: &mut Vec<u8>, object: &Object, _| write_event(out, "ADDED", object, resource);
        for part in chunks(Vec::new(), objects.into_iter(), tail, write).filter(|part| !part.is_empty()) {
            sender.send(Ok(part)).await.map_err(|_| Over)?;
        }
        Ok(())
    }

    async fn send_changes(&mut self, sender: &mpsc::Sender<Result<Bytes, Cut>>) -> Result<(), Over> {
        loop {
            let from = self.cursor.load(Ordering::Relaxed);
            let (changes, upto) = self.shared.store().changes(self.resource.store, from, BATCH);
            let full = changes.len() == BATCH;
            let mut out = Vec::new();
            for change in &changes {
                self.write_change(&mut out, change);
            }
            if !out.is_empty() {
                send(sender, out).await?;
            }
            self.cursor.store(upto, Ordering::Relaxed);
            if !full {
                return Ok(());
            }
        }
    }

    /// Appends what this watch sees of a change: an object that leaves what it selects is deleted for it, and looks as it
    /// did before.
    fn write_change(&self, out: &mut Vec<u8>, change: &Change) {
        let seen =
            |object: &&Arc<Object>| object.key.starts_with(&self.prefix) && self.selector.matches(object);
        let (before, after) = (change.before.as_ref().filter(seen), change.after.as_ref().filter(seen));
        match (before, after) {
            (None, Some(after)) => write_event(out, "ADDED", after, self.resource),
            (Some(_), Some(after)) => write_event(out, "MODIFIED", after, self.resource),
            (Some(_), None) => {
                if let Some(ended) = change.ended() {
                    write_event(out, "DELETED", ended, self.resource);
                }
            }
            (None, None) => {}
        }
    }

    async fn send_bookmark(&self, sender: &mpsc::Sender<Result<Bytes, Cut>>) -> Result<(), Over> {
        if !self.bookmarks {
            return Ok(());
        }
        send(sender, bookmark(self.resource, self.cursor.load(Ordering::Relaxed), false)).await
    }

    /// When the next bookmark is due.
    fn next_bookmark(&self) -> Instant {
        let now = Instant::now();
        let every = self.shared.settings.bookmark_every.max(Duration::from_millis(1));
        let passed = now.duration_since(self.started).as_nanos() / every.as_nanos() + 1;
        let regular = self.started + every * u32::try_from(passed).unwrap_or(u32::MAX);
        let last = LAST_BOOKMARKS.iter().filter_map(|before| self.ends.checked_sub(*before));
        last.filter(|due| *due > now && *due > self.quiet).fold(regular, Instant::min)
    }
}

async fn send(sender: &mpsc::Sender<Result<Bytes, Cut>>, bytes: Vec<u8>) -> Result<(), Over> {
    sender.send(Ok(bytes.into())).await.map_err(|_| Over)
}
