//! Objects from a folder of manifests: YAML and JSON files, as `kubectl get -o yaml` and `-o json` print them, lists and several
//! documents a file included.
//!
//! Files are read one at a time and objects are handed on as they are found, so memory is that of the largest file. What is broken keeps its
//! last good state and is reported: an item alone, a document or file as a whole. Write files by renaming: a file that is read
//! while it is being written may be seen in part.

mod batch;
mod document;
mod json;
mod object;
mod scan;
mod store;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::batch::Batch;
use self::scan::{Listing, Stamp};
use self::store::Store;
use self::watch::{Look, Watch};
use super::{EventSink, Source, SourceError, SourceEvent, SourceProblem, StopSignal};

/// Bytes of the largest file that is read; it is held in memory as a whole.
const MAX_FILE: u64 = 256 << 20;

/// The manifests source.
#[derive(Clone, Debug)]
pub struct Manifests {
    root: PathBuf,
    poll: Option<Duration>,
    once: bool,
}

impl Manifests {
    /// Reads this folder and watches it.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), poll: None, once: false }
    }

    /// Looks at the folder so often besides. Needed where the kernel gives no notice: network file systems, and links further
    /// up in the path.
    #[must_use]
    pub fn poll(self, poll: Option<Duration>) -> Self {
        Self { poll, ..self }
    }

    /// Ends after [`SourceEvent::Synced`].
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }
}

impl Source for Manifests {
    fn name(&self) -> &'static str {
        "manifests"
    }

    fn run(self: Box<Self>, sink: EventSink, stop: StopSignal) -> Result<(), SourceError> {
        let mut watch = (!self.once).then(|| Watch::new(&self.root, self.poll, &stop));
        let mut reader = Reader::new(self.root);
        reader.first(&sink, &stop)?;
        while let Some(watch) = &mut watch {
            let named = match watch.wait() {
                Look::Stop => break,
                Look::At(named) => named,
            };
            watch.refresh();
            reader.look(&named, &sink, &stop)?;
        }
        Ok(())
    }
}

/// The folder and what is known of it.
#[derive(Debug)]
struct Reader {
    root: PathBuf,
    store: Store,
    /// One file's bytes; kept to spare the allocator, not the reader.
    buffer: Vec<u8>,
    /// The folder could not be read when it was last looked at.
    lost: bool,
}

impl Reader {
    fn new(root: PathBuf) -> Self {
        Self { root, store: Store::default(), buffer: Vec::new(), lost: false }
    }

    /// The first look. The folder must be there.
    fn first(&mut self, sink: &EventSink, stop: &StopSignal) -> Result<(), SourceError> {
        let listing = scan::list(&self.root).map_err(|e| SourceError::Folder(self.root.clone(), e))?;
        let mut out = Batch::new(sink);
        self.take(&listing, &BTreeSet::new(), &mut out, stop);
        if !stop.is_raised() {
            out.push(SourceEvent::Synced);
        }
        let (objects, problems) = (self.store.len(), self.store.problems());
        let counts = std::mem::take(&mut self.store.counts);
        tracing::debug!(objects, problems, files = counts.files, ignored = counts.ignored, "folder read");
        Ok(out.flush()?)
    }

    /// A later look, closer at the files that are `named`. A folder that cannot be read is a problem, and everything stays.
    fn look(
        &mut self,
        named: &BTreeSet<PathBuf>,
        sink: &EventSink,
        stop: &StopSignal,
    ) -> Result<(), SourceError> {
        let mut out = Batch::new(sink);
        match scan::list(&self.root) {
            Ok(listing) => {
                if std::mem::take(&mut self.lost) {
                    out.push(self.folder_problem(None));
                }
                self.take(&listing, named, &mut out, stop);
            }
            Err(e) if !self.lost => {
                self.lost = true;
                out.push(self.folder_problem(Some(&e)));
            }
            Err(_) => {}
        }
        let counts = std::mem::take(&mut self.store.counts);
        if counts.files > 0 {
            tracing::debug!(
                objects = self.store.len(),
                files = counts.files,
                ignored = counts.ignored,
                "folder changed"
            );
        }
        Ok(out.flush()?)
    }

    fn folder_problem(&self, error: Option<&io::Error>) -> SourceEvent {
        let problems = error.map(|e| SourceProblem::whole(format!("cannot read folder: {e}")));
        let origin = self.root.to_string_lossy().into();
        SourceEvent::Problems { origin, problems: problems.into_iter().collect() }
    }

    /// Reads what is new or different and forgets what is gone.
    fn take(&mut self, listing: &Listing, named: &BTreeSet<PathBuf>, out: &mut Batch<'_>, stop: &StopSignal) {
        let hidden = |path: &Path| listing.unreadable.keys().any(|u| path.starts_with(u));
        let gone: Vec<_> = self
            .store
            .files()
            .filter(|path| !listing.files.contains_key(*path) && !hidden(path))
            .cloned()
            .collect();
        for path in &gone {
            self.store.remove(path);
        }
        // notices name files by their real path, which need not be ours; the name alone is enough to look again
        let names: HashSet<_> = named.iter().filter_map(|n| n.file_name()).collect();
        let is_named = |path: &Path| path.file_name().is_some_and(|name| names.contains(name));
        for (path, stamp) in &listing.files {
            if stop.is_raised() {
                return;
            }
            if is_named(path) || !self.store.is_current(path, *stamp) {
                self.file(path, out);
            }
        }
        // a second reading changes no claim unless the file changed in between; then the next look sees to it
        for path in self.store.settle(out) {
            self.file(&path, out);
        }
        self.store.report(&listing.unreadable, out);
        self.buffer = Vec::new();
    }

    fn file(&mut self, path: &Arc<Path>, out: &mut Batch<'_>) {
        let Some(format) = scan::format(path) else { return };
        match load(&self.root.join(path), &mut self.buffer) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {} // the next look finds it gone
            Err(e) => self.store.unreadable(path, None, e.to_string()),
            Ok(stamp) => match std::str::from_utf8(&self.buffer) {
                Err(e) => self.store.unreadable(path, Some(stamp), format!("not UTF-8: {e}")),
                Ok(text) => self.store.read(path, stamp, text, format, out),
            },
        }
    }
}

/// Reads a file. The stamp is from before: a change in between makes it look old, and the file is read again.
fn load(path: &Path, buffer: &mut Vec<u8>) -> io::Result<Stamp> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.len() > MAX_FILE {
        let message = format!("larger than {} MiB", MAX_FILE >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    buffer.clear();
    buffer.reserve(usize::try_from(meta.len()).unwrap_or_default());
    file.read_to_end(buffer)?;
    Ok(Stamp::of(&meta))
}
