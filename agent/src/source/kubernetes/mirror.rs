//! What of one resource was delivered: of each object its version, and for a slice its Service. The objects themselves are handed on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::object::{self, Head};
use crate::source::{Object, ObjectKey, ObjectKind, SourceEvent, SourceProblem};

type Name = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Entry {
    version: Box<str>,
    /// Number of the list that it was last seen in.
    round: u32,
    /// A version of it was delivered.
    delivered: bool,
    /// Its newest version cannot be read.
    unreadable: bool,
    /// For a slice, the Service that it was delivered with.
    service: Option<Arc<str>>,
}

/// The objects of one resource.
#[derive(Debug)]
pub(super) struct Mirror {
    kind: ObjectKind,
    objects: HashMap<Name, Entry>,
    /// Each namespace once.
    namespaces: HashSet<Arc<str>>,
    round: u32,
}

impl Mirror {
    pub(super) fn new(kind: ObjectKind) -> Self {
        Self { kind, objects: HashMap::new(), namespaces: HashSet::new(), round: 0 }
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// A list begins. One that was under way is forgotten; what it said of single objects counts.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// The list is complete: what it did not hold is gone.
    pub(super) fn complete(&mut self, out: &mut Vec<SourceEvent>) {
        let gone: Vec<Name> = self
            .objects
            .iter()
            .filter(|(_, e)| e.round != self.round)
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.forget(name, out);
        }
        self.namespaces.retain(|n| Arc::strong_count(n) > 1);
    }

    /// An object is there. What is known already is not delivered again. Returns the object's version.
    ///
    /// # Errors
    /// When it cannot even be told what it is.
    pub(super) fn put(&mut self, json: &[u8], out: &mut Vec<SourceEvent>) -> Result<String, String> {
        let head = object::head(self.kind, json)?;
        let name = self.name(&head);
        let version = head.version.into_owned();
        let round = self.round;
        if let Some(entry) = self.objects.get_mut(&name)
            && *entry.version == *version
        {
            entry.round = round;
            return Ok(version);
        }
        let read = object::object(self.kind, json);
        let fresh =
            || Entry { version: Box::default(), round, delivered: false, unreadable: false, service: None };
        let entry = self.objects.entry(name.clone()).or_insert_with(fresh);
        entry.round = round;
        entry.version = version.as_str().into();
        let key = key(self.kind, name);
        match read {
            Ok(object) => deliver(entry, key, object, out),
            Err(problem) => {
                entry.unreadable = true;
                out.push(problems(&key, vec![problem]));
            }
        }
        Ok(version)
    }

    /// An object is gone. Returns the version of its end.
    ///
    /// # Errors
    /// When it cannot be told what it is.
    pub(super) fn remove(&mut self, json: &[u8], out: &mut Vec<SourceEvent>) -> Result<String, String> {
        let head = object::head(self.kind, json)?;
        let name = self.name(&head);
        self.forget(name, out);
        Ok(head.version.into_owned())
    }

    fn forget(&mut self, name: Name, out: &mut Vec<SourceEvent>) {
        let Some(entry) = self.objects.remove(&name) else { return };
        let key = key(self.kind, name);
        if entry.unreadable {
            out.push(problems(&key, Vec::new()));
        }
        if entry.delivered {
            out.push(SourceEvent::Delete { key, service: entry.service });
        }
    }

    fn name(&mut self, head: &Head<'_>) -> Name {
        let namespace = match self.namespaces.get(&*head.namespace) {
            Some(namespace) => Arc::clone(namespace),
            None => {
                let namespace: Arc<str> = (&*head.namespace).into();
                self.namespaces.insert(Arc::clone(&namespace));
                namespace
            }
        };
        (namespace, (&*head.name).into())
    }
}

fn key(kind: ObjectKind, (namespace, name): Name) -> ObjectKey {
    ObjectKey { kind, namespace, name }
}

fn deliver(entry: &mut Entry, key: ObjectKey, object: Object, out: &mut Vec<SourceEvent>) {
    if entry.unreadable {
        entry.unreadable = false;
        out.push(problems(&key, Vec::new()));
    }
    let service = object.owning_service();
    if entry.service.as_deref() != service {
        let service = service.map(Arc::from);
        let before = std::mem::replace(&mut entry.service, service);
        if entry.delivered {
            out.push(SourceEvent::Delete { key, service: before });
        }
    }
    entry.delivered = true;
    out.push(SourceEvent::Upsert(object));
}

/// What is wrong with an object, in place of what was said before.
fn problems(key: &ObjectKey, problems: Vec<SourceProblem>) -> SourceEvent {
    SourceEvent::Problems { origin: format!("API server, {key}").into(), problems }
}

#[cfg(test)]
mod tests;
