//! A configuration as others see it: as a listing, as `/configz`, as a file, and beside another one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Config;
use super::duration::go_duration;
use super::kind::{API_VERSION, KIND, PEER_API_VERSION, PEER_KIND};
use super::layers::{Effective, Listed, Origin};
use super::meaning::of_mode;
use super::table::{self, Change};
use super::takes::is_empty;

/// A setting that two configurations do not agree on.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its name.
    pub path: String,
    /// Its value before; null for none.
    pub old: Value,
    /// Its value now; null for none.
    pub new: Value,
    /// When that takes effect.
    pub change: Change,
}

impl Config {
    /// Where the value of a setting came from; `None` for a name that is no setting.
    #[must_use]
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        self.listing.iter().find(|l| l.path == path).map(|l| &l.effective.origin)
    }

    /// The value of a setting as it was said, or its default; null for a name that is no setting.
    pub(super) fn value(&self, path: &str) -> &Value {
        self.rows.get(path).map_or(&Value::Null, |e| &e.value)
    }

    /// Every setting on a line of its own, with its origin: `mode: "nftables"  # from config.yaml`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for Listed { path, effective: Effective { value, origin }, .. } in &self.listing {
            let _ = writeln!(out, "{path}: {value}  # from {origin}");
        }
        out
    }

    /// Every setting whose value is not the same in `other`, the newer one, with when it takes effect.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Vec<Difference> {
        let values = |config: &Self| -> BTreeMap<String, (Value, Change)> {
            let one = |l: &Listed| (l.path.clone(), (l.effective.value.clone(), l.change));
            config.listing.iter().map(one).collect()
        };
        let (old, mut new) = (values(self), values(other));
        let mut out = Vec::new();
        for (path, (old, change)) in old {
            let new = new.remove(&path).map_or(Value::Null, |(value, _)| value);
            if old != new {
                out.push(Difference { path, old, new, change });
            }
        }
        let added = new.into_iter();
        out.extend(added.map(|(path, (new, change))| Difference { path, old: Value::Null, new, change }));
        out
    }

    /// The effective configuration as kube-proxy's `/configz` shows its own (core spec 4.6, 7.3): in the shape of a
    /// `KubeProxyConfiguration`, of the modes' periods only those in use, `primary` as it is.
    #[must_use]
    pub fn configz(&self) -> Value {
        let mut root = Map::new();
        let in_use = [of_mode(&self.mode).0, of_mode(&self.mode).1];
        for setting in table::settings().filter(|s| s.of_peer) {
            let said = self.value(setting.path);
            let value = match setting.path {
                "mode" => self.mode.as_str().into(),
                path if path == in_use[0] => go_duration(self.periods.sync).into(),
                path if path == in_use[1] => go_duration(self.periods.min_sync).into(),
                path if path.ends_with("yncPeriod") && path.contains('.') => "0s".into(),
                "hostnameOverride" | "healthzBindAddress" | "metricsBindAddress" => {
                    self.shown(setting.path).clone()
                }
                "nodePortAddresses" if self.mode == "nftables" => self.shown(setting.path).clone(),
                _ => said.clone(),
            };
            if !(setting.omitted && is_empty(setting.takes, &value)) {
                put(&mut root, setting.path, value);
            }
        }
        let set: Map<String, Value> = self.listing.iter().filter_map(set_gate).collect();
        if !set.is_empty() {
            root.insert("featureGates".into(), set.into());
        }
        root.insert("apiVersion".into(), PEER_API_VERSION.into());
        root.insert("kind".into(), PEER_KIND.into());
        json!({ "kubeproxy.config.k8s.io": root })
    }

    /// The effective configuration as a file of our own kind, the only one that can hold all of it. Read again it means the same.
    #[must_use]
    pub fn to_file(&self) -> String {
        let mut root = Map::new();
        for Listed { path, effective, .. } in &self.listing {
            let gate = path.starts_with("featureGates.");
            let derived = matches!(effective.origin, Origin::Follows(_)) && path != "nodePortAddresses";
            let followed = derived && table::setting(path).is_some_and(|s| !s.of_peer);
            if !effective.value.is_null() && !followed && (!gate || effective.origin.said()) {
                put(&mut root, path, effective.value.clone());
            }
        }
        root.remove("apiVersion");
        root.remove("kind");
        let mut out = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        write_mapping(&mut out, &root, 0);
        out
    }

    /// The value of a setting as listed.
    fn shown(&self, path: &str) -> &Value {
        self.listing.iter().find(|l| l.path == path).map_or(&Value::Null, |l| &l.effective.value)
    }
}

fn set_gate(line: &Listed) -> Option<(String, Value)> {
    let name = line.path.strip_prefix("featureGates.")?;
    line.effective.origin.said().then(|| (name.to_owned(), line.effective.value.clone()))
}

/// Puts a value where a path with dots says.
fn put(map: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            map.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            if let Value::Object(inner) = map.entry(head).or_insert_with(|| Value::Object(Map::new())) {
                put(inner, rest, value);
            }
        }
    }
}

/// YAML of mappings; everything else is JSON, which YAML reads as it is.
fn write_mapping(out: &mut String, map: &Map<String, Value>, depth: usize) {
    for (key, value) in map {
        let indent = depth * 2;
        match value {
            Value::Object(inner) => {
                let _ = writeln!(out, "{:indent$}{key}:", "");
                write_mapping(out, inner, depth + 1);
            }
            other => {
                let _ = writeln!(out, "{:indent$}{key}: {other}", "");
            }
        }
    }
}
