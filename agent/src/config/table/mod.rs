//! Every setting: its name, what it takes, its default, the flags that set it, and whether it can change while the program runs. One row
//! feeds the check of the file, the flags, the printed form, `/configz` and the comparison of two configurations.
//!
//! Rows that [`Setting::peer`] marks are fields of a `KubeProxyConfiguration`, with its names and defaults (core spec 7.2); the others are ours.

mod general;
mod logging;
mod modes;

use serde_json::Value;

use super::kind::Kind;
use super::takes::Takes;

/// The value when nothing is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Default {
    /// A text.
    Text(&'static str),
    /// A text in a `KubeProxyConfiguration`, and one elsewhere.
    ByKind(&'static str, &'static str),
    /// True or false.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A list of texts.
    List(&'static [&'static str]),
    /// None; what follows is worked out from other settings.
    Unset,
    /// The mode `iptables` in a `KubeProxyConfiguration`, else the first backend there is.
    Mode,
    /// These modes, as far as they are built in.
    Modes(&'static [&'static str]),
}

/// What an empty value means: `""`, `0`, `0s`, `[]` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Empty {
    /// Itself.
    Meant,
    /// The default when a `KubeProxyConfiguration` says so (core spec 7.1); itself elsewhere.
    DefaultInPeerFile,
    /// The default, whoever says so.
    Default,
}

/// In which modes a field counts. Elsewhere a `KubeProxyConfiguration` may hold anything in it (core spec 7.2, "mode ipvs only").
#[derive(Clone, Copy, Debug)]
pub(super) enum Modes {
    All,
    Only(&'static str),
    /// "Other" of core spec 7.3.
    NeitherIpvsNorNftables,
}

impl Modes {
    pub(super) fn hold(self, mode: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => mode == one,
            Self::NeitherIpvsNorNftables => mode != "ipvs" && mode != "nftables",
        }
    }
}

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// While the program runs.
    Live,
    /// With new backend instances: they take over the rules that are there and write only what differs.
    Instances,
    /// With the next start only, for this reason.
    Restart(&'static str),
}

/// Whose a flag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// kube-proxy's: ignored beside a `KubeProxyConfiguration` (core spec 7.4).
    Peer,
    /// kube-proxy's, one of the few that count beside a file.
    PeerAlways,
    /// Ours: wins over any file.
    Own,
}

/// A flag that sets a setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// Name without dashes.
    pub(super) name: &'static str,
    /// What stands for its value in the help; empty for true and false.
    pub(super) value: &'static str,
    /// A line of help.
    pub(super) help: &'static str,
    /// Whose it is.
    pub(super) whose: Whose,
    /// An empty value is as if the flag was not given.
    pub(super) empty_is_absent: bool,
    /// `cleanup` and `probe` take it as well.
    pub(super) everywhere: bool,
}

const fn flag(whose: Whose, name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value, help, whose, empty_is_absent: false, everywhere: false }
}

const fn peer(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    flag(Whose::Peer, name, value, help)
}

const fn always(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    flag(Whose::PeerAlways, name, value, help)
}

const fn own(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    flag(Whose::Own, name, value, help)
}

impl Flag {
    const fn everywhere(self) -> Self {
        Self { everywhere: true, ..self }
    }

    const fn empty_is_absent(self) -> Self {
        Self { empty_is_absent: true, ..self }
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Name, with dots.
    pub(super) path: &'static str,
    /// What it takes.
    pub(super) takes: Takes,
    /// Default.
    pub(super) default: Default,
    /// The flags that set it.
    pub(super) flags: &'static [Flag],
    /// A field of a `KubeProxyConfiguration`.
    pub(super) of_peer: bool,
    /// What an empty value means.
    pub(super) empty: Empty,
    /// Modes in which it counts.
    pub(super) modes: Modes,
    /// When a changed value takes effect.
    pub(super) change: Change,
    /// Why it has no meaning here, if it has none.
    pub(super) idle: Option<&'static str>,
    /// `/configz` leaves it out while it is empty.
    pub(super) omitted: bool,
}

const fn row(path: &'static str, takes: Takes, default: Default, change: Change) -> Setting {
    Setting {
        path,
        takes,
        default,
        flags: &[],
        of_peer: false,
        empty: Empty::Meant,
        modes: Modes::All,
        change,
        idle: None,
        omitted: false,
    }
}

impl Setting {
    /// A field of a `KubeProxyConfiguration`.
    const fn peer(self) -> Self {
        Self { of_peer: true, ..self }
    }

    const fn flags(self, flags: &'static [Flag]) -> Self {
        Self { flags, ..self }
    }

    const fn empty(self, empty: Empty) -> Self {
        Self { empty, ..self }
    }

    const fn modes(self, modes: Modes) -> Self {
        Self { modes, ..self }
    }

    const fn idle(self, why: &'static str) -> Self {
        Self { idle: Some(why), ..self }
    }

    const fn omitted(self) -> Self {
        Self { omitted: true, ..self }
    }

    /// The default as a value.
    pub(super) fn default_value(&self, kind: Kind, backends: &[&str]) -> Value {
        match self.default {
            Default::Text(text) => text.into(),
            Default::ByKind(text, _) if kind == Kind::Peer => text.into(),
            Default::ByKind(_, text) => text.into(),
            Default::Bool(b) => b.into(),
            Default::Int(n) => n.into(),
            Default::List(list) => list.to_vec().into(),
            Default::Unset => Value::Null,
            Default::Mode if kind == Kind::Peer => "iptables".into(),
            Default::Mode => backends.first().copied().unwrap_or_default().into(),
            Default::Modes(list) => {
                list.iter().filter(|m| backends.contains(m)).copied().collect::<Vec<_>>().into()
            }
        }
    }

    /// The section of the file that it stands in, if that is one of a mode.
    pub(super) fn section(&self) -> Option<&'static str> {
        let (section, key) = self.path.split_once('.')?;
        (!key.contains('.')).then_some(section)
    }
}

/// All settings but the gates and what only backends know, in the order in which they are printed.
pub(super) fn settings() -> impl Iterator<Item = &'static Setting> {
    [general::SETTINGS, general::NODE, logging::SETTINGS, modes::SETTINGS, modes::IDLE].into_iter().flatten()
}

/// The setting of that name.
pub(super) fn setting(path: &str) -> Option<&'static Setting> {
    settings().find(|s| s.path == path)
}

/// Every flag of a setting, once, in the order of the settings.
pub(super) fn flags() -> Vec<(&'static Flag, Takes)> {
    let mut out: Vec<(&Flag, Takes)> = Vec::new();
    for setting in settings() {
        for flag in setting.flags {
            if !out.iter().any(|(known, _)| known.name == flag.name) {
                out.push((flag, setting.takes));
            }
        }
    }
    out
}

/// The known name that is nearest to a mistyped one, if any is near: at most a third of it differs, or only case.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
