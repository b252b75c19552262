//! The state: objects by collection, one counter of versions, and what changed since the last compaction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use serde_json::{Map, Value};

use super::clock::Clock;
use super::error::Error;
use super::object::{Object, key};
use super::resource::{Resource, STORES};

/// One change: what was, what is.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Option<Arc<Object>>,
    ended: OnceLock<Option<Object>>,
}

impl Change {
    /// What was, under the version of this change: what a watcher gets to whom the object is gone.
    pub(super) fn ended(&self) -> Option<&Object> {
        let ended =
            self.ended.get_or_init(|| self.before.as_ref().map(|before| before.at_version(self.version)));
        ended.as_ref()
    }
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<String, Arc<Object>>,
    log: VecDeque<Arc<Change>>,
    /// Watches and lists may start at this version at the earliest.
    floor: u64,
}

/// Part of a collection, in the order of keys.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) items: Vec<Arc<Object>>,
    /// Key of the last item, if more keys follow.
    pub(super) last: Option<String>,
    /// How many keys follow.
    pub(super) remaining: usize,
}

/// All objects and their recent past.
#[derive(Debug)]
pub(super) struct Store {
    revision: u64,
    collections: [Collection; STORES],
    /// Continue tokens made before this version are refused.
    tokens_from: u64,
    /// Changes kept for each collection.
    history: usize,
    /// How far each live watch has got: changes that one of them still needs are kept.
    cursors: Vec<Weak<AtomicU64>>,
    pub(super) clock: Clock,
}

impl Store {
    pub(super) fn new(history: usize, clock: Clock) -> Self {
        let (collections, cursors) = (Default::default(), Vec::new());
        Self { revision: 1, collections, tokens_from: 0, history, cursors, clock }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn floor(&self, store: usize) -> u64 {
        self.collections[store].floor
    }

    pub(super) fn token_is_old(&self, store: usize, version: u64) -> bool {
        version < self.tokens_from.max(self.floor(store))
    }

    pub(super) fn get(&self, store: usize, key: &str) -> Option<&Arc<Object>> {
        self.collections[store].objects.get(key)
    }

    pub(super) fn objects(&self, store: usize) -> impl Iterator<Item = &Arc<Object>> {
        self.collections[store].objects.values()
    }

    /// The version the next change gets.
    pub(super) fn next_version(&self, wanted: Option<u64>) -> Result<u64, Error> {
        match wanted {
            Some(asked) if asked <= self.revision => Err(Error::NotForward { asked, current: self.revision }),
            Some(asked) => Ok(asked),
            None => Ok(self.revision + 1),
        }
    }

    /// Creates or replaces an object, as it is given but for its version, uid and creation time where it has none.
    pub(super) fn put(&mut self, value: Value, wanted: Option<u64>) -> Result<u64, Error> {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let resource = Resource::of(&api_version, &kind)
            .ok_or(Error::UnknownKind { api_version, kind: kind.clone() })?;
        let Value::Object(mut fields) = value else {
            return Err(Error::BadObject { kind: resource.kind, name: kind, problem: "not an object" });
        };
        fields.remove("apiVersion");
        fields.remove("kind");
        resource.to_stored(&mut fields);
        self.put_stored(resource, fields, wanted).map(|(version, _)| version)
    }

    /// [`Self::put`] for an object in the stored form; the resource names the collection.
    pub(super) fn put_stored(
        &mut self,
        resource: &'static Resource,
        mut fields: Map<String, Value>,
        wanted: Option<u64>,
    ) -> Result<(u64, Arc<Object>), Error> {
        let version = self.next_version(wanted)?;
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let problem = match (name.is_empty(), namespace.is_empty(), resource.namespaced) {
            (true, _, _) => Some("no name"),
            (_, true, true) => Some("no namespace"),
            (_, false, false) => Some("must not have a namespace"),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Error::BadObject { kind: resource.kind, name, problem });
        }
        let before = self.get(resource.store, &key(&namespace, &name)).cloned();
        let old = before.as_ref().map(|before| before.fields());
        let metadata = &mut fields["metadata"];
        metadata["resourceVersion"] = version.to_string().into();
        for field in ["uid", "creationTimestamp"] {
            if metadata[field].is_null() {
                metadata[field] = match &old {
                    Some(old) => old["metadata"][field].clone(),
                    None if field == "uid" => self.clock.uid().into(),
                    None => self.clock.seconds_text().into(),
                };
            }
        }
        let object = Arc::new(Object::new(resource.store, &Value::Object(fields)));
        self.record(resource.store, version, before, Some(object.clone()));
        Ok((version, object))
    }

    /// Removes an object.
    pub(super) fn delete(
        &mut self,
        resource: &Resource,
        key: &str,
        wanted: Option<u64>,
    ) -> Result<(u64, Arc<Object>), Error> {
        let version = self.next_version(wanted)?;
        let not_found = || Error::NotFound { resource: resource.plural.to_owned(), key: key.to_owned() };
        let before = self.get(resource.store, key).cloned().ok_or_else(not_found)?;
        self.record(resource.store, version, Some(before.clone()), None);
        Ok((version, before))
    }

    fn record(
        &mut self,
        store: usize,
        version: u64,
        before: Option<Arc<Object>>,
        after: Option<Arc<Object>>,
    ) {
        self.revision = version;
        let collection = &mut self.collections[store];
        match (&before, &after) {
            (_, Some(object)) => _ = collection.objects.insert(object.key.clone(), object.clone()),
            (Some(object), None) => _ = collection.objects.remove(&object.key),
            (None, None) => {}
        }
        collection.log.push_back(Arc::new(Change { version, before, after, ended: OnceLock::new() }));
        if let Some(excess) = collection.log.len().checked_sub(self.history).filter(|excess| *excess > 0) {
            collection.floor = collection.floor.max(collection.log[excess - 1].version);
            self.drop_unneeded(store);
        }
    }

    /// Counts versions on, as writes to resources that this server does not have would.
    pub(super) fn advance(&mut self, version: u64) -> Result<(), Error> {
        self.revision = self.next_version(Some(version))?;
        Ok(())
    }

    /// Forgets what was before `version`.
    pub(super) fn compact(&mut self, version: u64) {
        for store in 0..STORES {
            let collection = &mut self.collections[store];
            collection.floor = collection.floor.max(version.min(self.revision));
            self.drop_unneeded(store);
        }
    }

    /// Refuses the continue tokens made so far.
    pub(super) fn expire_tokens(&mut self) {
        self.revision += 1;
        self.tokens_from = self.revision;
    }

    fn drop_unneeded(&mut self, store: usize) {
        self.cursors.retain(|cursor| cursor.strong_count() > 0);
        let needed =
            self.cursors.iter().filter_map(Weak::upgrade).map(|cursor| cursor.load(Ordering::Relaxed)).min();
        let collection = &mut self.collections[store];
        let upto = needed.map_or(collection.floor, |needed| needed.min(collection.floor));
        let old = collection.log.partition_point(|change| change.version <= upto);
        collection.log.drain(..old);
    }

    /// Lets a watch keep what is after `version`, until it drops the cursor.
    pub(super) fn cursor(&mut self, version: u64) -> Arc<AtomicU64> {
        let cursor = Arc::new(AtomicU64::new(version));
        self.cursors.push(Arc::downgrade(&cursor));
        cursor
    }

    /// At most `most` changes after `version`, and the version up to which these are all.
    pub(super) fn changes(&self, store: usize, version: u64, most: usize) -> (Vec<Arc<Change>>, u64) {
        let log = &self.collections[store].log;
        let start = log.partition_point(|change| change.version <= version);
        let changes: Vec<_> = log.range(start..).take(most).cloned().collect();
        let upto = match changes.last() {
            Some(last) if changes.len() == most => last.version,
            _ => self.revision.max(version),
        };
        (changes, upto)
    }

    /// The objects under `prefix` at `version` (now, if none), from the key `start` on, until `limit` of them match.
    pub(super) fn page(
        &self,
        store: usize,
        version: Option<u64>,
        (prefix, start): (&str, &str),
        limit: usize,
        matches: impl Fn(&Object) -> bool,
    ) -> Page {
        let objects = &self.collections[store].objects;
        let from = if start.is_empty() { prefix } else { start };
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut now =
            objects.range::<str, _>(range).take_while(|(key, _)| key.starts_with(prefix)).peekable();
        let past = version.map(|version| self.past(store, version)).unwrap_or_default();
        let mut past = past.range::<str, _>(range).take_while(|(key, _)| key.starts_with(prefix)).peekable();
        let mut page = Page { items: Vec::new(), last: None, remaining: 0 };
        loop {
            // The lower key of the two; the past hides the present.
            let object = match (now.peek(), past.peek()) {
                (Some((n, _)), Some((p, _))) if n.as_str() < **p => now.next().map(|(_, object)| object),
                (Some((n, _)), Some((p, _))) if n.as_str() > **p => {
                    past.next().and_then(|(_, object)| object.as_ref())
                }
                (_, Some(_)) => past.next().and_then(|(key, object)| {
                    now.next_if(|(k, _)| *k == key);
                    object.as_ref()
                }),
                (Some(_), None) => now.next().map(|(_, object)| object),
                (None, None) => break,
            };
            let Some(object) = object else { continue };
            if page.items.len() == limit {
                page.remaining += 1;
            } else if matches(object) {
                page.items.push(object.clone());
            }
        }
        if page.remaining > 0 {
            page.last = page.items.last().map(|object| object.key.clone());
        }
        page
    }

    /// What each object that changed after `version` was at `version`.
    fn past(&self, store: usize, version: u64) -> BTreeMap<&str, &Option<Arc<Object>>> {
        let log = &self.collections[store].log;
        let start = log.partition_point(|change| change.version <= version);
        let mut past = BTreeMap::new();
        for change in log.range(start..) {
            if let Some(object) = change.after.as_ref().or(change.before.as_ref()) {
                past.entry(object.key.as_str()).or_insert(&change.before);
            }
        }
        past
    }
}
