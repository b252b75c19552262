//! The file's layer.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Effective, Layers, Origin, Section};
use crate::config::kind::{KIND, Kind};
use crate::config::table::{self, nearest};
use crate::config::takes::expected;
use crate::config::tree::{self, Tree, join};

/// The mapping of gates.
const GATES: &str = "featureGates";

impl<'a> Layers<'a> {
    /// The defaults of the file's kind, with the file over them.
    pub(in crate::config) fn of_file(backends: &'a [Section], name: &Arc<str>, text: &str) -> Self {
        let origin = Origin::File(Arc::clone(name));
        let mut layers = Self::new(backends, Kind::Own);
        layers.from = Some(Arc::clone(name));
        let tree = match tree::read(text) {
            Ok(tree) => tree,
            Err(message) => {
                layers.refuse(&origin, "", message);
                return layers;
            }
        };
        let empty = Value::Object(Map::new());
        let root = if tree.root.is_null() { &empty } else { &tree.root };
        let Value::Object(map) = root else {
            layers.refuse(&origin, "", expected("a mapping", root));
            return layers;
        };
        let (kind, faults) = Kind::of(root);
        if let Some(kind) = kind {
            layers.kind = kind;
            layers.defaults();
            layers.duplicates(&origin, &tree);
            layers.mapping(&origin, "", map);
        }
        for (path, message) in faults {
            layers.refuse(&origin, path, message);
        }
        layers
    }

    /// kube-proxy takes the last of several values and warns (core spec 7.1).
    fn duplicates(&mut self, origin: &Origin, tree: &Tree) {
        for path in &tree.duplicates {
            match self.kind {
                Kind::Own => self.refuse(origin, path, "given more than once".into()),
                Kind::Peer => self.warn(origin, path, "given more than once; the last one counts".into()),
            }
        }
    }

    fn mapping(&mut self, origin: &Origin, parent: &str, map: &Map<String, Value>) {
        let head = |key: &str| parent.is_empty() && ["apiVersion", "kind"].contains(&key);
        for (key, value) in map.iter().filter(|(key, _)| !head(key)) {
            let path = join(parent, key);
            let mine = |of_peer: bool| of_peer || self.kind == Kind::Own;
            let setting = table::setting(&path).filter(|s| mine(s.of_peer));
            let section = path == GATES
                || table::settings().any(|s| mine(s.of_peer) && below(s.path, &path).is_some())
                || mine(false) && parent.is_empty() && self.backends.iter().any(|b| b.name == key);
            match (setting, value) {
                (_, Value::Null) if section || setting.is_some() => {}
                (Some(setting), _) => self.set(origin, setting, value),
                (None, Value::Object(map)) if path == GATES => {
                    for (name, on) in map.iter().filter(|(_, on)| !on.is_null()) {
                        self.set_gate(origin, name, on);
                    }
                }
                (None, Value::Object(map)) if section => self.mapping(origin, &path, map),
                (None, other) if section => self.refuse(origin, &path, expected("a mapping", other)),
                (None, _) if mine(false) && self.known_to_backend(parent, key) => {
                    if !value.is_null() {
                        self.extras.insert(path, Effective { value: value.clone(), origin: origin.clone() });
                    }
                }
                (None, _) => self.unknown(origin, parent, key),
            }
        }
    }

    fn known_to_backend(&self, section: &str, key: &str) -> bool {
        self.backends.iter().any(|b| b.name == section && b.keys.contains(&key))
    }

    fn unknown(&mut self, origin: &Origin, parent: &str, key: &str) {
        let path = join(parent, key);
        let hint = self.suggest(parent, key).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        if self.kind == Kind::Own {
            return self.refuse(origin, &path, format!("unknown key{hint}"));
        }
        let row = |s: &table::Setting| s.path == path || below(s.path, &path).is_some();
        let ours = table::settings().any(row) || self.known_to_backend(parent, key);
        let hint = if ours { format!("; it is one of {KIND}") } else { hint };
        self.warn(origin, &path, format!("unknown field, ignored{hint}"));
    }

    /// A sibling that is nearly called so, else a setting elsewhere that ends so.
    fn suggest(&self, parent: &str, key: &str) -> Option<String> {
        let own = self.kind == Kind::Own;
        let extras = self.backends.iter().filter(|_| own);
        let extras = extras.flat_map(|b| b.keys.iter().map(|k| join(b.name, k)));
        let rows = table::settings().filter(|s| own || s.of_peer).map(|s| s.path.to_owned());
        let all: Vec<String> = rows.chain(extras).chain([GATES.to_owned()]).collect();
        let siblings = all
            .iter()
            .filter_map(|path| below(path, parent))
            .map(|rest| rest.split('.').next().unwrap_or(rest));
        if let Some(sibling) = nearest(key, siblings) {
            return Some(sibling.to_owned());
        }
        let leaf = |path: &'_ String| path.rsplit('.').next().unwrap_or(path).to_owned();
        let leaves: Vec<String> = all.iter().map(leaf).collect();
        let name = nearest(key, leaves.iter().map(String::as_str))?;
        all.iter().find(|path| leaf(path) == name).cloned()
    }
}

/// What comes after `parent.` in `path`; all of it at the top.
fn below<'p>(path: &'p str, parent: &str) -> Option<&'p str> {
    if parent.is_empty() { Some(path) } else { path.strip_prefix(parent)?.strip_prefix('.') }
}
