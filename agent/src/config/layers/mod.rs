//! Defaults, file and flags laid over one another; each value remembers where it came from.

mod file;
mod flags;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use self::flags::{FlagSpec, FlagValue, WRITE_CONFIG_TO, flag_specs};
use super::duration::parse_duration;
use super::error::{ConfigError, Finding, Severity};
use super::gates::{self, Gates};
use super::kind::Kind;
use super::table::{self, Change, Empty, Setting};
use super::takes::{self, AUTO, Complaint, expected};
use super::tree::join;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// This file.
    File(Arc<str>),
    /// This flag, with its dashes.
    Flag(Arc<str>),
    /// Nobody said anything, and it follows from this other setting.
    Follows(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name) => f.write_str(name),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Follows(path) => f.write_str(path),
        }
    }
}

impl Origin {
    /// Somebody said it.
    #[must_use]
    pub fn said(&self) -> bool {
        matches!(self, Self::File(_) | Self::Flag(_))
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
    /// The keys that it reads.
    pub keys: &'static [&'static str],
}

/// A line of the listing.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) effective: Effective,
    pub(super) change: Change,
}

/// All layers together.
#[derive(Clone, Debug)]
pub(super) struct Layers<'a> {
    backends: &'a [Section],
    pub(super) kind: Kind,
    /// The file, if there is one.
    pub(super) from: Option<Arc<str>>,
    settings: BTreeMap<&'static str, Effective>,
    /// Gates that were set.
    pub(super) gates: BTreeMap<String, Effective>,
    /// Keys in backends' sections that only the backend knows, by path.
    extras: BTreeMap<String, Effective>,
    /// What backends made of their sections, by path.
    listed: Vec<(String, Effective)>,
    /// What was worked out from other settings, by path.
    meant: BTreeMap<&'static str, Effective>,
    /// Addresses to listen on as flags said them, perhaps without a port.
    bare: BTreeMap<&'static str, String>,
    /// Faults that count in some modes only.
    pending: Vec<(&'static Setting, ConfigError)>,
    /// Faults that a backend found in its section.
    refused: Vec<(String, ConfigError)>,
    /// Everything that was refused so far.
    pub(super) errors: Vec<ConfigError>,
    /// What should be known.
    pub(super) warnings: Vec<Finding>,
}

impl<'a> Layers<'a> {
    /// The defaults of a kind of file.
    pub(super) fn new(backends: &'a [Section], kind: Kind) -> Self {
        let mut layers = Self {
            backends,
            kind,
            from: None,
            settings: BTreeMap::new(),
            gates: BTreeMap::new(),
            extras: BTreeMap::new(),
            listed: Vec::new(),
            meant: BTreeMap::new(),
            bare: BTreeMap::new(),
            pending: Vec::new(),
            refused: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        layers.defaults();
        layers
    }

    fn defaults(&mut self) {
        let names = self.names();
        let default =
            |s: &Setting| Effective { value: s.default_value(self.kind, &names), origin: Origin::Default };
        self.settings = table::settings().map(|s| (s.path, default(s))).collect();
    }

    /// The backends there are.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.backends.iter().map(|b| b.name).collect()
    }

    fn set(&mut self, origin: &Origin, setting: &'static Setting, value: &Value) {
        let in_peer_file = self.kind == Kind::Peer && matches!(origin, Origin::File(_));
        let complaints = takes::check(setting.takes, value, &self.names());
        let empty = takes::is_empty(setting.takes, value);
        let absent = match setting.empty {
            Empty::Meant => false,
            Empty::DefaultInPeerFile => empty && in_peer_file,
            Empty::Default => empty,
        };
        let typed_wrong = complaints.iter().any(|c| c.wrong_type);
        if absent && !typed_wrong {
            return;
        }
        if complaints.is_empty() {
            let value = takes::kept(setting.takes, value);
            self.settings.insert(setting.path, Effective { value, origin: origin.clone() });
        }
        for Complaint { place, message, wrong_type } in complaints {
            let error =
                ConfigError { origin: origin.clone(), path: format!("{}{place}", setting.path), message };
            if in_peer_file && !wrong_type {
                self.pending.push((setting, error));
            } else {
                self.errors.push(error);
            }
        }
    }

    fn set_gate(&mut self, origin: &Origin, name: &str, value: &Value) {
        let path = join("featureGates", name);
        let Some(on) = value.as_bool() else {
            return self.refuse(origin, &path, expected("true or false", value));
        };
        let in_own_file = self.kind == Kind::Own && matches!(origin, Origin::File(_));
        match (gates::find(name), gates::meant(name)) {
            (Some(gate), _) if gate.locked && on != gate.default => {
                return self.refuse(origin, &path, format!("it is locked to {}", gate.default));
            }
            (Some(gate), _) => {
                if let (Some(why), true) = (gate.idle, on != gate.default) {
                    self.warn(origin, &path, format!("it has no meaning here: {why}"));
                }
            }
            (None, Some(meant)) => {
                return self.refuse(origin, &path, format!("unknown gate; did you mean {meant}?"));
            }
            (None, None) if in_own_file => return self.refuse(origin, &path, "unknown gate".into()),
            (None, None) => {
                self.warn(origin, &path, "it has no meaning here: no part of a proxy asks for it".into());
            }
        }
        self.gates.insert(name.to_owned(), Effective { value: on.into(), origin: origin.clone() });
    }

    pub(super) fn refuse(&mut self, origin: &Origin, path: &str, message: String) {
        self.errors.push(ConfigError { origin: origin.clone(), path: path.to_owned(), message });
    }

    pub(super) fn warn(&mut self, origin: &Origin, path: &str, message: String) {
        let (origin, path) = (origin.clone(), path.to_owned());
        self.warnings.push(Finding { severity: Severity::Warning, origin, path, message });
    }

    /// Complains about an effective value, unless it was complained about before.
    pub(super) fn complain(&mut self, path: &'static str, message: String) {
        let said = |e: &ConfigError| e.path.split('[').next() == Some(path);
        if !self.errors.iter().chain(self.pending.iter().map(|(_, e)| e)).any(said) {
            self.refuse(&self.origin(path), path, message);
        }
    }

    /// Warns about an effective value.
    pub(super) fn doubt(&mut self, path: &'static str, message: String) {
        self.warn(&self.origin(path), path, message);
    }

    /// Complains about a value in a backend's section.
    pub(super) fn complain_section(&mut self, backend: &str, key: &str, message: String) {
        let path = join(backend, key);
        let origin = self.section_value(backend, key).map_or(Origin::Default, |e| e.origin.clone());
        self.refused.push((backend.to_owned(), ConfigError { origin, path, message }));
    }

    /// Faults that count in this mode become errors, those of other modes in a `KubeProxyConfiguration` warnings.
    pub(super) fn settle(&mut self, modes: &[&str]) {
        let peer = self.kind == Kind::Peer;
        let mut judge = |counts: bool, error: ConfigError| {
            if counts {
                self.errors.push(error);
            } else {
                let message = format!("{}; not used in mode {}", error.message, modes.join(" or "));
                let (origin, path) = (error.origin, error.path);
                self.warnings.push(Finding { severity: Severity::Warning, origin, path, message });
            }
        };
        for (setting, error) in std::mem::take(&mut self.pending) {
            judge(modes.iter().any(|mode| setting.modes.hold(mode)), error);
        }
        for (backend, error) in std::mem::take(&mut self.refused) {
            judge(!peer || modes.contains(&backend.as_str()), error);
        }
    }

    /// A value in a backend's section. What modes other than nftables share stands in section `iptables` (core spec 7.2, 7.3) unless the
    /// backend's own section says otherwise.
    fn section_value(&self, backend: &str, key: &str) -> Option<&Effective> {
        let shared = ["masqueradeBit", "masqueradeAll"].contains(&key).then(|| join("iptables", key));
        let path = join(backend, key);
        let of_table = |path: &str| self.settings.get(path).filter(|e| e.origin.said());
        let own = self.extras.get(&path).or_else(|| of_table(&path));
        if self.settings.contains_key(path.as_str()) { own } else { own.or_else(|| of_table(&shared?)) }
    }

    /// What is said in a backend's section, of the keys that it reads.
    pub(super) fn section(&self, backend: &str) -> Map<String, Value> {
        let keys = self.backends.iter().find(|b| b.name == backend).map_or(&[][..], |b| b.keys);
        keys.iter()
            .filter_map(|k| Some(((*k).to_owned(), self.section_value(backend, k)?.value.clone())))
            .collect()
    }

    /// Takes over what a backend's section means, for the listing.
    pub(super) fn list_section(&mut self, backend: &str, values: Vec<(&'static str, Value)>) {
        for (key, value) in values {
            let origin = self.section_value(backend, key).map_or(Origin::Default, |s| s.origin.clone());
            self.listed.push((join(backend, key), Effective { value, origin }));
        }
    }

    /// Takes over what a setting means that nobody gave, for the listing.
    pub(super) fn mean(&mut self, path: &'static str, value: Value, origin: Origin) {
        self.meant.insert(path, Effective { value, origin });
    }

    /// Modes that may come to be in use: the one that was named, or all in the order of `auto`.
    pub(super) fn candidates(&self) -> Vec<String> {
        let mode = self.text("mode");
        if mode == AUTO { self.texts("auto.order") } else { vec![mode] }
    }

    fn effective(&self, path: &str) -> Option<&Effective> {
        let found = self.settings.get(path);
        debug_assert!(found.is_some(), "no setting {path}");
        found
    }

    pub(super) fn value(&self, path: &str) -> &Value {
        self.effective(path).map_or(&Value::Null, |e| &e.value)
    }

    pub(super) fn origin(&self, path: &str) -> Origin {
        self.effective(path).map_or(Origin::Default, |e| e.origin.clone())
    }

    pub(super) fn text(&self, path: &str) -> String {
        self.value(path).as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn given(&self, path: &str) -> Option<String> {
        Some(self.text(path)).filter(|t| !t.is_empty())
    }

    pub(super) fn texts(&self, path: &str) -> Vec<String> {
        let list = self.value(path).as_array().into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    }

    pub(super) fn switch(&self, path: &str) -> bool {
        self.value(path).as_bool().unwrap_or_default()
    }

    pub(super) fn int(&self, path: &str) -> i64 {
        self.value(path).as_i64().unwrap_or_default()
    }

    pub(super) fn duration(&self, path: &str) -> Option<Duration> {
        parse_duration(self.value(path).as_str()?).ok()
    }

    /// Every row's value as it was said, or its default.
    pub(super) fn rows(&mut self) -> BTreeMap<&'static str, Effective> {
        self.settings.clone()
    }

    /// Which features are on.
    pub(super) fn gate_values(&self) -> Gates {
        let on = |e: &Effective| e.value.as_bool().unwrap_or_default();
        Gates::new(&self.gates.iter().map(|(name, e)| (name.clone(), on(e))).collect())
    }

    /// Every effective value with its origin, in the table's order; what only a backend knows is beside its section.
    pub(super) fn listing(&self) -> Vec<Listed> {
        let (version, kind) = self.kind.names();
        let head = |path: &str, value: &str| {
            let origin = self.from.clone().map_or(Origin::Default, Origin::File);
            let effective = Effective { value: value.into(), origin };
            Listed {
                path: path.to_owned(),
                effective,
                change: Change::Restart("another kind is another file"),
            }
        };
        let mut out = vec![head("apiVersion", version), head("kind", kind)];
        let mut listed = self.listed.clone();
        let mut before = None;
        for setting in table::settings() {
            if setting.section() != before {
                take_section(&mut out, &mut listed, before);
                before = setting.section();
            }
            let by_backend = listed.iter().position(|(path, _)| path == setting.path);
            let by_backend = by_backend.map(|at| listed.remove(at).1);
            let effective = self.meant.get(setting.path).cloned().or(by_backend);
            let effective = effective.or_else(|| self.settings.get(setting.path).cloned());
            out.extend(effective.map(|effective| Listed {
                path: setting.path.to_owned(),
                effective,
                change: setting.change,
            }));
        }
        for (name, on) in self.gate_values().iter() {
            let effective = self.gates.get(name).cloned();
            let default = || Effective { value: on.into(), origin: Origin::Default };
            let effective = effective.unwrap_or_else(default);
            out.push(Listed { path: join("featureGates", name), effective, change: Change::Live });
        }
        let rest =
            listed.into_iter().map(|(path, effective)| Listed { path, effective, change: Change::Instances });
        out.extend(rest);
        out
    }

    /// Warns about every setting that was given and has no meaning here.
    pub(super) fn tell_idle(&mut self) {
        let names = self.names();
        for setting in table::settings() {
            let (Some(why), Some(effective)) = (setting.idle, self.settings.get(setting.path)) else {
                continue;
            };
            if effective.origin.said() && effective.value != setting.default_value(self.kind, &names) {
                self.warn(&effective.origin.clone(), setting.path, format!("it has no meaning here: {why}"));
            }
        }
    }
}

/// Moves a backend's lines to the end.
fn take_section(out: &mut Vec<Listed>, listed: &mut Vec<(String, Effective)>, section: Option<&str>) {
    let Some(section) = section else { return };
    let mut rest = Vec::new();
    for (path, effective) in listed.drain(..) {
        if path.split('.').next() == Some(section) {
            out.push(Listed { path, effective, change: Change::Instances });
        } else {
            rest.push((path, effective));
        }
    }
    *listed = rest;
}
