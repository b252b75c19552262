//! Defaults, file and flags laid over one another; each value remembers where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::table::{self, SETTINGS, Setting, expected, nearest};
use super::tree::{self, join};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// This file.
    File(Arc<str>),
    /// This flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name) => f.write_str(name),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A setting given as a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagValue {
    /// The setting's name.
    pub path: &'static str,
    /// The flag, e.g. `--node`.
    pub flag: &'static str,
    /// Its value.
    pub value: Value,
}

impl FlagValue {
    /// A text, if the flag was given.
    #[must_use]
    pub fn text(path: &'static str, flag: &'static str, value: Option<&str>) -> Option<Self> {
        value.map(|v| Self { path, flag, value: v.into() })
    }
}

/// A value and its origin.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// A backend's section of the file, called like the backend.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The backend.
    pub name: &'static str,
    /// The keys that may stand in it.
    pub keys: &'static [&'static str],
}

/// All layers together.
#[derive(Clone, Debug)]
pub(super) struct Layers<'a> {
    backends: &'a [Section],
    settings: BTreeMap<&'static str, Effective>,
    /// Backends' own sections: known keys with unread values.
    pub(super) sections: BTreeMap<&'static str, Effective>,
    /// What backends made of their sections, by path.
    listed: Vec<(String, Effective)>,
    /// Everything that was refused so far.
    pub(super) errors: Vec<ConfigError>,
}

impl<'a> Layers<'a> {
    /// The defaults.
    pub(super) fn new(backends: &'a [Section]) -> Self {
        let names = names(backends);
        let default = |s: &Setting| Effective { value: s.default_value(&names), origin: Origin::Default };
        Self {
            backends,
            settings: SETTINGS.iter().map(|s| (s.path, default(s))).collect(),
            sections: BTreeMap::new(),
            listed: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Lays a file over what is there.
    pub(super) fn file(&mut self, name: &Arc<str>, text: &str) {
        let origin = Origin::File(Arc::clone(name));
        let tree = match tree::read(text) {
            Ok(tree) => tree,
            Err(message) => return self.refuse(&origin, "", message),
        };
        for path in &tree.duplicates {
            self.refuse(&origin, path, "given more than once".into());
        }
        match &tree.root {
            Value::Object(map) => self.mapping(&origin, "", map),
            Value::Null => self.mapping(&origin, "", &Map::new()),
            other => return self.refuse(&origin, "", expected("a mapping", other)),
        }
        for (path, want) in [("apiVersion", table::API_VERSION), ("kind", table::KIND)] {
            if tree.root.get(path).is_none_or(Value::is_null) {
                self.refuse(&origin, path, format!("missing; say {path}: {want}"));
            }
        }
    }

    /// Lays a flag over what is there.
    pub(super) fn flag(&mut self, flag: &FlagValue) {
        let origin = Origin::Flag(flag.flag);
        match SETTINGS.iter().find(|s| s.path == flag.path) {
            Some(setting) => self.set(&origin, setting, &flag.value),
            None => self.refuse(&origin, flag.path, "no such setting".into()),
        }
    }

    fn mapping(&mut self, origin: &Origin, parent: &str, map: &Map<String, Value>) {
        for (key, value) in map {
            let path = join(parent, key);
            let setting = SETTINGS.iter().find(|s| s.path == path);
            let section = SETTINGS.iter().any(|s| below(s.path, &path).is_some());
            let backend = self.backends.iter().find(|b| parent.is_empty() && b.name == key);
            match (setting, value) {
                (Some(_), Value::Null) => {}
                (Some(setting), _) => self.set(origin, setting, value),
                (None, Value::Null) if section || backend.is_some() => {}
                (None, Value::Object(map)) if section => self.mapping(origin, &path, map),
                (None, Value::Object(map)) if backend.is_some() => {
                    if let Some(backend) = backend {
                        self.section(origin, backend, map);
                    }
                }
                (None, other) if section || backend.is_some() => {
                    self.refuse(origin, &path, expected("a mapping", other));
                }
                (None, _) => self.unknown(origin, parent, key),
            }
        }
    }

    /// A backend's section; nothing said for a key is as if it were not there.
    fn section(&mut self, origin: &Origin, backend: &Section, map: &Map<String, Value>) {
        let mut kept = Map::new();
        for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            if backend.keys.contains(&key.as_str()) {
                kept.insert(key.clone(), value.clone());
            } else {
                self.unknown(origin, backend.name, key);
            }
        }
        self.sections.insert(backend.name, Effective { value: kept.into(), origin: origin.clone() });
    }

    fn unknown(&mut self, origin: &Origin, parent: &str, key: &str) {
        let hint = self.suggest(parent, key).map(|n| format!("; did you mean {n}?"));
        self.refuse(origin, &join(parent, key), format!("unknown key{}", hint.unwrap_or_default()));
    }

    fn set(&mut self, origin: &Origin, setting: &Setting, value: &Value) {
        let complaints = table::check(setting.takes, value, &names(self.backends));
        if complaints.is_empty() {
            self.settings.insert(setting.path, Effective { value: value.clone(), origin: origin.clone() });
        }
        for (place, message) in complaints {
            self.refuse(origin, &format!("{}{place}", setting.path), message);
        }
    }

    /// A sibling that is nearly called so, else a setting elsewhere that ends so.
    fn suggest(&self, parent: &str, key: &str) -> Option<String> {
        let in_sections = self.backends.iter().flat_map(|b| b.keys.iter().map(|k| join(b.name, k)));
        let all: Vec<String> = SETTINGS.iter().map(|s| s.path.to_owned()).chain(in_sections).collect();
        let siblings = all
            .iter()
            .filter_map(|path| below(path, parent))
            .map(|rest| rest.split('.').next().unwrap_or(rest));
        let backends = self.backends.iter().map(|b| b.name).filter(|_| parent.is_empty());
        if let Some(sibling) = nearest(key, siblings.chain(backends)) {
            return Some(sibling.to_owned());
        }
        let leaf = |path: &'_ String| path.rsplit('.').next().unwrap_or(path).to_owned();
        let leaves: Vec<String> = all.iter().map(leaf).collect();
        let name = nearest(key, leaves.iter().map(String::as_str))?;
        all.iter().find(|path| leaf(path) == name).cloned()
    }

    fn refuse(&mut self, origin: &Origin, path: &str, message: String) {
        self.errors.push(ConfigError { origin: origin.clone(), path: path.to_owned(), message });
    }

    /// Complains about an effective value, unless it was complained about before.
    pub(super) fn complain(&mut self, path: &'static str, message: String) {
        let said = |e: &ConfigError| e.path.split('[').next() == Some(path);
        if !self.errors.iter().any(said) {
            let origin = self.settings.get(path).map_or(Origin::Default, |s| s.origin.clone());
            self.refuse(&origin, path, message);
        }
    }

    /// Complains about a value in a backend's section.
    pub(super) fn complain_section(&mut self, backend: &str, key: &str, message: String) {
        let origin = self.sections.get(backend).map_or(Origin::Default, |s| s.origin.clone());
        self.refuse(&origin, &join(backend, key), message);
    }

    /// Takes over what a backend's section means, for the listing.
    pub(super) fn list_section(&mut self, backend: &str, values: Vec<(&'static str, Value)>) {
        for (key, value) in values {
            let said = self.sections.get(backend).filter(|s| s.value.get(key).is_some());
            let origin = said.map_or(Origin::Default, |s| s.origin.clone());
            self.listed.push((join(backend, key), Effective { value, origin }));
        }
    }

    /// The effective values as one tree, in the file's shape, without the backends' sections.
    pub(super) fn tree(&self) -> Value {
        let mut root = Map::new();
        for (path, effective) in &self.settings {
            put(&mut root, path, &effective.value);
        }
        Value::Object(root)
    }

    /// Every effective value with its origin, in the table's order, then what backends listed.
    pub(super) fn listing(&self) -> Vec<(String, Effective)> {
        let settings =
            SETTINGS.iter().filter_map(|s| Some((s.path.to_owned(), self.settings.get(s.path)?.clone())));
        settings.chain(self.listed.iter().cloned()).collect()
    }
}

fn names(backends: &[Section]) -> Vec<&'static str> {
    backends.iter().map(|b| b.name).collect()
}

/// What comes after `parent.` in `path`; all of it at the top.
fn below<'p>(path: &'p str, parent: &str) -> Option<&'p str> {
    if parent.is_empty() { Some(path) } else { path.strip_prefix(parent)?.strip_prefix('.') }
}

/// Puts a value where a path with dots says.
fn put(map: &mut Map<String, Value>, path: &str, value: &Value) {
    match path.split_once('.') {
        None => {
            map.insert(path.to_owned(), value.clone());
        }
        Some((head, rest)) => {
            if let Value::Object(inner) = map.entry(head).or_insert_with(|| Value::Object(Map::new())) {
                put(inner, rest, value);
            }
        }
    }
}
