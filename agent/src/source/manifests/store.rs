//! What was delivered, from which file, and what has to be said when a file changes.
//!
//! Of an object only its key, the hash of its text and the files that hold it are kept. A file *claims* an object once it has held a good
//! version of it; of several claims the first in name order counts. A claim ends only when its file is read in full without the
//! object, or is gone: as long as any part of a file cannot be attributed to an object, the file gives nothing up.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::document::{Document, Format, each_document};
use super::object::{self, Fault, Found};
use super::scan::Stamp;
use crate::source::{Object, ObjectKey, ObjectKind, SourceEvent, SourceProblem};

/// What is known of a file.
#[derive(Debug, Default)]
struct FileState {
    stamp: Option<Stamp>,
    /// Objects it claims.
    claims: Vec<ObjectKey>,
    /// What was wrong when it was last read.
    faults: Vec<SourceProblem>,
}

/// What is known of an object.
#[derive(Debug, Default)]
struct Entry {
    /// Hash of the text that was delivered; `None` before.
    sent: Option<u64>,
    /// For a slice, the Service that it was delivered with.
    service: Option<Arc<str>>,
    /// Files that claim it, in name order.
    files: Vec<Arc<Path>>,
}

/// Counts of one reading, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Files that were read.
    pub(super) files: usize,
    /// Objects of kinds that are not delivered.
    pub(super) ignored: usize,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub(super) struct Store {
    files: BTreeMap<Arc<Path>, FileState>,
    objects: HashMap<ObjectKey, Entry>,
    /// Problems as last said, by file or folder.
    said: BTreeMap<Arc<Path>, Vec<SourceProblem>>,
    /// Files whose problems may have changed.
    touched: BTreeSet<Arc<Path>>,
    /// Objects whose delivered version lost its claim.
    orphans: Vec<ObjectKey>,
    /// Counts since they were last taken.
    pub(super) counts: Counts,
}

impl Store {
    /// Is the file known to be in this state?
    pub(super) fn is_current(&self, path: &Path, stamp: Stamp) -> bool {
        self.files.get(path).is_some_and(|f| f.stamp == Some(stamp))
    }

    /// Files that are known.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.files.keys()
    }

    /// Number of objects that are delivered.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Number of problems as last said.
    pub(super) fn problems(&self) -> usize {
        self.said.values().map(Vec::len).sum()
    }

    /// A file is gone.
    pub(super) fn remove(&mut self, path: &Arc<Path>) {
        if let Some(file) = self.files.remove(path) {
            self.touched.insert(Arc::clone(path));
            for key in file.claims {
                self.release(path, key);
            }
        }
    }

    /// A file cannot be read: its objects stay.
    pub(super) fn unreadable(&mut self, path: &Arc<Path>, stamp: Option<Stamp>, message: String) {
        let file = self.files.entry(Arc::clone(path)).or_default();
        file.stamp = stamp;
        file.faults = vec![SourceProblem::whole(message)];
        self.touched.insert(Arc::clone(path));
    }

    /// A file was read.
    pub(super) fn read(
        &mut self,
        path: &Arc<Path>,
        stamp: Stamp,
        text: &str,
        format: Format,
        out: &mut Batch<'_>,
    ) {
        self.counts.files += 1;
        let before = self.files.remove(path).unwrap_or_default();
        let mut reading = Reading {
            path,
            before: before.claims.iter().cloned().collect(),
            now: HashSet::with_capacity(before.claims.len()),
            faults: Vec::new(),
            complete: true,
        };
        each_document(text, format, |document| self.document(&mut reading, document, out));
        let Reading { mut now, faults, complete, .. } = reading;
        for key in before.claims {
            if now.contains(&key) {
                continue;
            }
            if complete {
                self.release(path, key);
            } else {
                now.insert(key);
            }
        }
        let file = FileState { stamp: Some(stamp), claims: now.into_iter().collect(), faults };
        self.files.insert(Arc::clone(path), file);
        self.touched.insert(Arc::clone(path));
    }

    fn document(&mut self, reading: &mut Reading<'_>, document: Document<'_>, out: &mut Batch<'_>) {
        let place = (document.number, None);
        let json = match document.content {
            Ok(json) if json == "null" => return,
            Ok(json) => json,
            Err(message) => return reading.fault(place, None, Fault { field: None, message }),
        };
        match object::classify(&json, None) {
            Ok(Found::Object(key)) => self.object(reading, place, key, &json, out),
            Ok(Found::Other) => self.counts.ignored += 1,
            Err((key, fault)) => reading.fault(place, key, fault),
            Ok(Found::List(items, kind)) => {
                for (item, raw) in (1..).zip(items) {
                    self.item(reading, (document.number, Some(item)), raw.get(), kind, out);
                }
            }
        }
    }

    fn item(
        &mut self,
        reading: &mut Reading<'_>,
        place: Place,
        json: &str,
        kind: Option<ObjectKind>,
        out: &mut Batch<'_>,
    ) {
        match object::classify(json, kind) {
            Ok(Found::Object(key)) => self.object(reading, place, key, json, out),
            Ok(Found::Other) => self.counts.ignored += 1,
            Ok(Found::List(..)) => {
                reading.fault(place, None, Fault { field: None, message: "a list in a list".into() });
            }
            Err((key, fault)) => reading.fault(place, key, fault),
        }
    }

    fn object(
        &mut self,
        reading: &mut Reading<'_>,
        place: Place,
        key: ObjectKey,
        json: &str,
        out: &mut Batch<'_>,
    ) {
        if reading.now.contains(&key) {
            let message = "given before in this file; only the first one counts".into();
            return reading.faults.push(problem(place, Some(key), Fault { field: None, message }));
        }
        let path = reading.path;
        let hash = object::hash(json);
        let entry = self.objects.get(&key);
        let known = entry.is_some_and(|e| e.sent == Some(hash) && e.files.first() == Some(path));
        if known {
            reading.now.insert(key);
            return;
        }
        let object = match object::object(&key, json) {
            Ok(object) => object,
            Err(fault) => return reading.fault(place, Some(key), fault),
        };
        reading.now.insert(key.clone());
        let entry = self.objects.entry(key.clone()).or_default();
        if let Err(at) = entry.files.binary_search(path) {
            self.touched.extend(entry.files.iter().cloned());
            entry.files.reserve_exact(1);
            entry.files.insert(at, Arc::clone(path));
        }
        if entry.files.first() == Some(path) && entry.sent != Some(hash) {
            deliver(entry, key, object, hash, out);
        }
    }

    /// A file no longer claims an object.
    fn release(&mut self, path: &Arc<Path>, key: ObjectKey) {
        let Some(entry) = self.objects.get_mut(&key) else { return };
        let owner = entry.files.first() == Some(path);
        entry.files.retain(|f| f != path);
        self.touched.extend(entry.files.iter().cloned());
        if owner {
            self.orphans.push(key);
        }
    }

    /// Deletes the objects that nobody claims any more, and returns the files that have to be read again because an object of theirs,
    /// hidden until now, counts from now on.
    pub(super) fn settle(&mut self, out: &mut Batch<'_>) -> BTreeSet<Arc<Path>> {
        let mut again = BTreeSet::new();
        for key in std::mem::take(&mut self.orphans) {
            match self.objects.get(&key).map(|e| e.files.first()) {
                None => {}
                Some(Some(next)) => {
                    again.insert(Arc::clone(next));
                }
                Some(None) => {
                    let service = self.objects.remove(&key).and_then(|e| e.service);
                    out.push(SourceEvent::Delete { key, service });
                }
            }
        }
        again
    }

    /// Says which problems there are, where they changed. `unreadable` is what could not even be looked at.
    pub(super) fn report(&mut self, unreadable: &BTreeMap<Arc<Path>, String>, out: &mut Batch<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(unreadable.keys().cloned());
        touched.extend(self.said.keys().cloned());
        for path in touched {
            let problems = self.current_problems(&path, unreadable);
            let before = self.said.get(&path).map_or(&[][..], |p| p);
            if before == problems {
                continue;
            }
            let origin = path.to_string_lossy().into();
            out.push(SourceEvent::Problems { origin, problems: problems.clone() });
            if problems.is_empty() {
                self.said.remove(&path)
            } else {
                self.said.insert(path, problems)
            };
        }
    }

    fn current_problems(
        &self,
        path: &Arc<Path>,
        unreadable: &BTreeMap<Arc<Path>, String>,
    ) -> Vec<SourceProblem> {
        if let Some(message) = unreadable.get(path) {
            return vec![SourceProblem::whole(message.clone())];
        }
        let Some(file) = self.files.get(path) else { return Vec::new() };
        let owner = |key| self.objects.get(key).and_then(|e| e.files.first()).filter(|f| *f != path);
        let mut hidden: Vec<_> = file.claims.iter().filter_map(|key| Some((key, owner(key)?))).collect();
        hidden.sort_unstable();
        let hidden = hidden.into_iter().map(|(key, first)| SourceProblem {
            object: Some(key.clone()),
            ..SourceProblem::whole(format!("not used: {} has it too and comes first", first.display()))
        });
        file.faults.iter().cloned().chain(hidden).collect()
    }
}

/// Hands an object on, and remembers what was handed on.
fn deliver(entry: &mut Entry, key: ObjectKey, object: Object, hash: u64, out: &mut Batch<'_>) {
    let service: Option<Arc<str>> = object.owning_service().map(Into::into);
    if entry.sent.is_some() && service != entry.service {
        out.push(SourceEvent::Delete { key, service: entry.service.take() });
    }
    entry.service = service;
    entry.sent = Some(hash);
    out.push(SourceEvent::Upsert(object));
}

/// Document and, in a list, item.
type Place = (usize, Option<usize>);

/// One reading of a file.
struct Reading<'a> {
    path: &'a Arc<Path>,
    /// What it claimed before.
    before: HashSet<ObjectKey>,
    /// What it claims now.
    now: HashSet<ObjectKey>,
    faults: Vec<SourceProblem>,
    /// Everything in it could be attributed to an object.
    complete: bool,
}

impl Reading<'_> {
    /// Something cannot be used: what it was before stays.
    fn fault(&mut self, place: Place, key: Option<ObjectKey>, fault: Fault) {
        match &key {
            None => self.complete = false,
            Some(key) if self.before.contains(key) => {
                self.now.insert(key.clone());
            }
            Some(_) => {}
        }
        self.faults.push(problem(place, key, fault));
    }
}

fn problem((document, item): Place, object: Option<ObjectKey>, fault: Fault) -> SourceProblem {
    SourceProblem { document: Some(document), item, object, field: fault.field, message: fault.message }
}
