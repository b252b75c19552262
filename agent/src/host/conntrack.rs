//! Settings of the kernel's connection tracking (core spec 7.8).
//!
//! [`wanted`] is pure: settings and cores in, values out. [`apply`] reads each value and writes it only where it differs, and says
//! of each what became of it. A container whose `/proc/sys` or `/sys` is read-only is common, and no reason not to start: it is told,
//! with the value that whoever may set it should set.

use std::fmt;
use std::io;
use std::path::PathBuf;

use proxier_sys::sysctl::{Sysctl, SysctlError};

use crate::config::Conntrack;

/// As many connections as are ever asked for, however many cores there are (core spec 7.8).
const MOST_CONNECTIONS: u64 = 1_048_576;
/// Connections for each bucket of the kernel's hash table.
const PER_BUCKET: u64 = 4;

const MAX: Setting = Setting::Sysctl("net/netfilter/nf_conntrack_max");

/// A setting of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A file under `/proc/sys`.
    Sysctl(&'static str),
    /// Buckets of the hash table: a parameter of the module, for the whole host.
    HashSize,
}

impl Setting {
    /// Its file below `/sys`, or below `/proc/sys`.
    fn key(self) -> &'static str {
        match self {
            Self::Sysctl(key) => key,
            Self::HashSize => "module/nf_conntrack/parameters/hashsize",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = match self {
            Self::Sysctl(_) => "/proc/sys",
            Self::HashSize => "/sys",
        };
        write!(f, "{root}/{}", self.key())
    }
}

/// What a setting should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The setting.
    pub setting: Setting,
    /// Its value: connections, buckets, whole seconds, or 1 for on.
    pub value: u64,
    /// A larger value is as good.
    pub at_least: bool,
}

/// What a setting is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What it was; nothing was written.
    AsItWas,
    /// The value wanted, and this before.
    Written {
        /// Before.
        before: u64,
    },
}

/// Why a setting is not what was wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The file system is mounted read-only.
    #[error("it is on a read-only mount, as in a container that is not privileged")]
    ReadOnly(#[source] SysctlError),
    /// The process may not write it.
    #[error("this process may not write it; some can be written in the host's own network namespace only")]
    Denied(#[source] SysctlError),
    /// There is no such setting.
    #[error("it does not exist: the module nf_conntrack is not loaded")]
    NoModule(#[source] SysctlError),
    /// What it depends on could not be set.
    #[error("{0} could not be set")]
    After(Setting),
    /// The kernel does not take the value, or something else is wrong.
    #[error("{0}")]
    Other(#[from] SysctlError),
}

impl SettingError {
    fn of(error: SysctlError) -> Self {
        match error {
            SysctlError::ReadOnly { .. } => Self::ReadOnly(error),
            SysctlError::Denied { .. } => Self::Denied(error),
            SysctlError::Missing { .. } => Self::NoModule(error),
            other => Self::Other(other),
        }
    }

    /// The surroundings do not allow it: no fault of the value, and no reason not to start.
    #[must_use]
    pub fn is_tolerable(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

/// What became of one setting.
#[derive(Debug)]
pub struct Outcome {
    /// What was wanted.
    pub wanted: Wanted,
    /// What it is.
    pub result: Result<Done, SettingError>,
}

impl Outcome {
    /// Logs what is worth it: what was changed, and what should have been.
    pub fn log(&self) {
        let Wanted { setting, value, .. } = self.wanted;
        match &self.result {
            Ok(Done::AsItWas) => tracing::debug!(%setting, value, "setting of the kernel is as wanted"),
            Ok(Done::Written { before }) => {
                tracing::info!(%setting, value, before, "set a setting of the kernel");
            }
            Err(error) if error.is_tolerable() => {
                tracing::warn!(%setting, wanted = value, reason = %error, "setting of the kernel stays as it is");
            }
            Err(error) => {
                tracing::error!(%setting, wanted = value, error = %error, "setting of the kernel cannot be set");
            }
        }
    }
}

/// What these settings ask for on a host with so many cores, in the order in which it is to be set.
#[must_use]
pub fn wanted(settings: &Conntrack, cores: u32) -> Vec<Wanted> {
    let mut out = Vec::new();
    let exactly = |key, value| Wanted { setting: Setting::Sysctl(key), value, at_least: false };
    if let Some(max) = connections(settings, cores) {
        out.push(Wanted { setting: MAX, value: max, at_least: false });
        out.push(Wanted { setting: Setting::HashSize, value: max / PER_BUCKET, at_least: true });
    }
    let timeouts = [
        ("net/netfilter/nf_conntrack_tcp_timeout_established", settings.tcp_established_timeout),
        ("net/netfilter/nf_conntrack_tcp_timeout_close_wait", settings.tcp_close_wait_timeout),
        ("net/netfilter/nf_conntrack_udp_timeout", settings.udp_timeout),
        ("net/netfilter/nf_conntrack_udp_timeout_stream", settings.udp_stream_timeout),
    ];
    let given = timeouts.into_iter().filter_map(|(key, timeout)| Some((key, timeout?)));
    out.extend(given.filter(|(_, t)| !t.is_zero()).map(|(key, timeout)| exactly(key, timeout.as_secs())));
    if settings.tcp_be_liberal {
        out.push(exactly("net/netfilter/nf_conntrack_tcp_be_liberal", 1));
    }
    out
}

/// How many connections may be tracked; `None` leaves the kernel's limit.
fn connections(settings: &Conntrack, cores: u32) -> Option<u64> {
    let per_core = settings.max_per_core.filter(|n| *n > 0)?;
    let scaled = u64::from(per_core) * u64::from(cores);
    let max = if scaled > MOST_CONNECTIONS { MOST_CONNECTIONS } else { scaled.max(settings.min.into()) };
    (max > 0).then_some(max)
}

/// Where the settings of a host are.
#[derive(Clone, Debug)]
pub struct Host {
    proc_sys: Sysctl,
    sys: Sysctl,
    load: fn(),
}

impl Default for Host {
    fn default() -> Self {
        Self {
            proc_sys: Sysctl::new(),
            sys: Sysctl::under("/sys"),
            load: proxier_sys::conntrack::load_modules,
        }
    }
}

impl Host {
    /// This host, in the calling thread's network namespace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose `/proc/sys` and `/sys` are these folders.
    #[must_use]
    pub fn under(proc_sys: impl Into<PathBuf>, sys: impl Into<PathBuf>) -> Self {
        Self { proc_sys: Sysctl::under(proc_sys), sys: Sysctl::under(sys), load: || {} }
    }

    /// Processors that are online. Not those that this process may use: what is tracked is the host's traffic.
    #[must_use]
    pub fn cores(&self) -> u32 {
        let online = self.sys.read("devices/system/cpu/online").ok().and_then(|list| count(&list));
        online.unwrap_or_else(|| {
            let usable: Result<u32, io::Error> =
                std::thread::available_parallelism().map(|n| u32::try_from(n.get()).unwrap_or(u32::MAX));
            usable.unwrap_or(1)
        })
    }

    fn set(&self, wanted: &Wanted) -> Result<Done, SettingError> {
        let at = match wanted.setting {
            Setting::Sysctl(_) => &self.proc_sys,
            Setting::HashSize => &self.sys,
        };
        let key = wanted.setting.key();
        let before: u64 = match at.read_number(key) {
            Err(error) if error.is_missing() => {
                (self.load)();
                at.read_number(key)
            }
            other => other,
        }
        .map_err(SettingError::of)?;
        if before == wanted.value || (wanted.at_least && before > wanted.value) {
            return Ok(Done::AsItWas);
        }
        at.ensure(key, &wanted.value.to_string()).map_err(SettingError::of)?;
        Ok(Done::Written { before })
    }
}

/// Sets what differs, in this order. One failure does not keep the others from being set, but for the size of the hash table, which is
/// for as many connections as could not be allowed.
#[must_use]
pub fn apply(host: &Host, wanted: &[Wanted]) -> Vec<Outcome> {
    let mut out: Vec<Outcome> = Vec::with_capacity(wanted.len());
    for wanted in wanted.iter().copied() {
        let failed = |setting| out.iter().any(|o| o.wanted.setting == setting && o.result.is_err());
        let result = if wanted.setting == Setting::HashSize && failed(MAX) {
            Err(SettingError::After(MAX))
        } else {
            host.set(&wanted)
        };
        out.push(Outcome { wanted, result });
    }
    out
}

/// How many numbers a list such as `0-3,6` names.
fn count(list: &str) -> Option<u32> {
    let range = |text: &str| -> Option<u32> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(range).try_fold(0u32, |sum, n| sum.checked_add(n?))
}

#[cfg(test)]
mod tests;
