//! Defaults, file and flags laid over one another; each value remembers where it came from.

mod file;
mod flags;
mod listing;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use self::flags::{FlagSpec, FlagValue, WRITE_CONFIG_TO, flag_specs};
use super::duration::{go_duration, parse_duration};
use super::error::{ConfigError, Finding, Severity};
use super::gates;
use super::kind::Kind;
use super::table::{self, Change, Empty, Setting};
use super::takes::{self, AUTO, Complaint, Takes, expected};
use super::text;
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
            let value = self.whole_seconds(origin, setting, takes::kept(setting.takes, value));
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

    /// kube-proxy cuts what the kernel takes in seconds; in our own file it is a fault, which the backend finds.
    fn whole_seconds(&mut self, origin: &Origin, setting: &Setting, value: Value) -> Value {
        let in_own_file = self.kind == Kind::Own && matches!(origin, Origin::File(_));
        let read = value.as_str().and_then(|text| parse_duration(text).ok());
        match read {
            Some(d) if setting.takes == Takes::Seconds && d.subsec_nanos() > 0 && !in_own_file => {
                let whole = go_duration(Duration::from_secs(d.as_secs()));
                self.warn(origin, setting.path, format!("cut to whole seconds, {whole}"));
                whole.into()
            }
            _ => value,
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
        let canonical = |range: &Value| text::cidr(range.as_str()?).ok().map(|net| net.to_string().into());
        let takes = |key: &str| table::setting(&join(backend, key)).map(|s| s.takes);
        let value = |key: &str| match &self.section_value(backend, key)?.value {
            Value::Array(ranges) if takes(key) == Some(Takes::Cidrs) => {
                Some(ranges.iter().filter_map(canonical).collect::<Vec<Value>>().into())
            }
            other => Some(other.clone()),
        };
        keys.iter().filter_map(|k| Some(((*k).to_owned(), value(k)?))).collect()
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
