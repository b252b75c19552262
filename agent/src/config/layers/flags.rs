//! The flags' layer: what was typed becomes values, and which of them count beside a file (core spec 7.4).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Effective, Layers, Origin};
use crate::config::kind::{Kind, PEER_KIND};
use crate::config::table::{self, Flag, Whose};
use crate::config::takes::{Takes, expected};
use crate::config::text;

/// A flag that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// Its name without dashes.
    pub name: &'static str,
    /// Its values as typed, in their order.
    pub values: Vec<String>,
}

impl FlagValue {
    /// A flag with one value.
    #[must_use]
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, values: vec![value.into()] }
    }
}

/// A flag that can be given.
#[derive(Clone, Copy, Debug)]
pub struct FlagSpec {
    /// Its name without dashes.
    pub name: &'static str,
    /// What stands for its value in the help; empty for a flag that is true when it has none.
    pub value: &'static str,
    /// A line of help.
    pub help: &'static str,
    /// It is one of kube-proxy's, not ours.
    pub of_peer: bool,
    /// Commands that need to know no cluster take it as well.
    pub everywhere: bool,
}

/// The gates' flag.
const GATES: &str = "feature-gates";
/// Writes the configuration and ends; it decides whether a port's flag counts.
pub const WRITE_CONFIG_TO: &str = "write-config-to";
/// Old flags for a port alone: name, setting.
const PORTS: [(&str, &str); 2] =
    [("healthz-port", "healthzBindAddress"), ("metrics-port", "metricsBindAddress")];
/// Flags that other Kubernetes programs have a use for.
const GENERIC: [&str; 2] = ["boot-id-file", "machine-id-file"];

/// Every flag that says something about the configuration.
#[must_use]
pub fn flag_specs() -> Vec<FlagSpec> {
    let spec = |flag: &Flag| FlagSpec {
        name: flag.name,
        value: flag.value,
        help: flag.help,
        of_peer: flag.whose != Whose::Own,
        everywhere: flag.everywhere,
    };
    let more = |name, value, help| FlagSpec { name, value, help, of_peer: true, everywhere: false };
    let mut specs: Vec<FlagSpec> = table::flags().into_iter().map(|(flag, _)| spec(flag)).collect();
    specs.extend([
        more(GATES, "NAME=BOOL,...", "Features to switch on or off"),
        more("healthz-port", "PORT", "Port of the health server if its address has none; 0 for no server"),
        more("metrics-port", "PORT", "Port of the metrics server if its address has none; 0 for no server"),
        more("boot-id-file", "FILES", "Without meaning"),
        more("machine-id-file", "FILES", "Without meaning"),
    ]);
    specs
}

impl Layers<'_> {
    /// Lays flags over what is there. Ours come after kube-proxy's: of two that say the same, they win.
    pub(in crate::config) fn flags(&mut self, given: &[FlagValue]) {
        let own = |f: &&FlagValue| {
            table::flags().iter().any(|(flag, _)| flag.name == f.name && flag.whose == Whose::Own)
        };
        let (own, peer): (Vec<&FlagValue>, Vec<&FlagValue>) = given.iter().partition(own);
        for flag in peer.into_iter().chain(own) {
            let origin = Origin::Flag(Arc::from(dashed(flag.name)));
            if flag.name == GATES {
                self.gates_flag(&origin, flag);
            } else if GENERIC.contains(&flag.name) {
                self.warn(
                    &origin,
                    "",
                    "it has no meaning here: nothing is told by which machine it is".into(),
                );
            } else {
                self.setting_flag(&origin, flag);
            }
        }
        let writes = given.iter().any(|f| f.name == WRITE_CONFIG_TO);
        for (name, path) in PORTS {
            if let Some(flag) = given.iter().find(|f| f.name == name) {
                self.port_flag(flag, path, writes);
            }
        }
    }

    fn setting_flag(&mut self, origin: &Origin, given: &FlagValue) {
        for setting in table::settings() {
            let Some(flag) = setting.flags.iter().find(|f| f.name == given.name) else { continue };
            if flag.empty_is_absent && given.values.last().is_some_and(String::is_empty) {
                continue;
            }
            if flag.whose == Whose::Peer && self.ignored(origin, setting.path) {
                return;
            }
            if matches!(setting.takes, Takes::Listen(_)) {
                self.bare.extend(given.values.last().map(|v| (setting.path, v.clone())));
            }
            let faults = self.errors.len();
            match typed(setting.takes, &given.values) {
                Ok(mut value) => {
                    if setting.takes == Takes::Modules {
                        value = concatenated(&value, self.value(setting.path));
                    }
                    self.set(origin, setting, &value);
                }
                Err(message) => self.refuse(origin, setting.path, message),
            }
            if self.errors.len() > faults {
                // the same for every setting that the flag sets
                return;
            }
        }
    }

    /// Beside a `KubeProxyConfiguration` most of kube-proxy's flags do not count.
    fn ignored(&mut self, origin: &Origin, path: &str) -> bool {
        let ignored = self.from.is_some() && self.kind == Kind::Peer;
        if ignored {
            self.warn(origin, path, format!("ignored: beside a {PEER_KIND} only the file says it"));
        }
        ignored
    }

    fn gates_flag(&mut self, origin: &Origin, given: &FlagValue) {
        if self.ignored(origin, "featureGates") {
            return;
        }
        for part in given.values.iter().flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once('=').map(|(name, on)| (name, boolean(on))) {
                Some((name, Some(on))) => self.set_gate(origin, name, &on.into()),
                _ => self.refuse(origin, "featureGates", format!("{part:?} is no NAME=true or NAME=false")),
            }
        }
    }

    /// `--healthz-port` and `--metrics-port` (core spec 7.4): 0 for no server; any other port for an address that was given without one.
    fn port_flag(&mut self, given: &FlagValue, path: &'static str, writes: bool) {
        let origin = Origin::Flag(Arc::from(dashed(given.name)));
        let text = given.values.last().map(String::as_str).unwrap_or_default();
        let Ok(port) = text.parse::<u16>() else {
            return self.refuse(&origin, path, format!("{text:?} is not a number from 0 to 65535"));
        };
        if self.from.is_some() || writes {
            return self.warn(&origin, path, "ignored beside --config and --write-config-to".into());
        }
        if port == 0 {
            let off = Effective { value: "".into(), origin };
            self.settings.insert(path, off);
            return;
        }
        let alone = self.bare.get(path).and_then(|t| text::ip(t).ok());
        match alone {
            Some(ip) => {
                let at = std::net::SocketAddr::new(ip, port).to_string();
                self.settings.insert(path, Effective { value: at.into(), origin });
            }
            None => self.warn(&origin, path, "ignored: the address has a port already".into()),
        }
    }
}

/// The flag as it is typed.
fn dashed(name: &str) -> String {
    if name.len() == 1 { format!("-{name}") } else { format!("--{name}") }
}

/// Entries of flags, then those of the file (core spec 7.4).
fn concatenated(first: &Value, then: &Value) -> Value {
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    [list(first), list(then)].concat().into()
}

/// What was typed as a value of the setting's kind. Lists add up; of anything else the last one counts.
fn typed(takes: Takes, values: &[String]) -> Result<Value, String> {
    let last = values.last().map(String::as_str).unwrap_or_default();
    let parts = || values.iter().flat_map(|v| v.split(',')).filter(|part| !part.is_empty());
    let number = |what: &str| format!("{last:?} is not {what}");
    Ok(match takes {
        Takes::Bool => boolean(last).ok_or_else(|| expected("true or false", &last.into()))?.into(),
        Takes::Int(..) => last.parse::<i64>().map_err(|_| number("a whole number"))?.into(),
        Takes::Number => match (last.parse::<i64>(), last.parse::<f64>()) {
            (Ok(whole), _) => whole.into(),
            (_, Ok(number)) if number.is_finite() => number.into(),
            _ => return Err(number("a number")),
        },
        Takes::Cidrs | Takes::Ips | Takes::Services | Takes::NodePortAddresses | Takes::Modes => {
            parts().collect::<Vec<_>>().into()
        }
        Takes::Modules => {
            let one = |part: &str| {
                let (pattern, level) =
                    part.split_once('=').ok_or_else(|| format!("{part:?} is no PATTERN=N"))?;
                let level = level.parse::<i64>().map_err(|_| format!("{part:?} is no PATTERN=N"))?;
                Ok(json!({ "filePattern": pattern, "verbosity": level }))
            };
            parts().map(one).collect::<Result<Vec<_>, String>>()?.into()
        }
        _ => last.into(),
    })
}

/// What Go takes for a boolean.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
