//! The configuration: what was typed in file and flags, and what it means.
//!
//! Two steps. `layers` lays defaults, file and flags over one another by a table of settings, refuses what no row
//! knows, and keeps each value's origin; the result has the shape of `raw`. `meaning` turns that into a [`Config`], whose values are
//! valid together. Between the two, in [`Draft`], the backends read their sections. Faults are collected over all of it and reported
//! at once.
//!
//! The file's names are kube-proxy's where it has them (core spec 7.2). No backend is named here: the caller says which
//! there are, the first one is the default, and each may have a section of its own name whose values only it reads.

mod duration;
mod error;
mod layers;
mod meaning;
mod raw;
mod table;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::cluster::{DetectLocal, NodePortSelector};
use proxier_core::ids::{NodeName, ServiceName};
use proxier_core::model::PerFamily;
use serde_json::{Map, Value};

pub use self::duration::{DurationError, parse_duration};
pub use self::error::{ConfigError, ConfigErrors};
use self::layers::{Effective, Layers};
pub use self::layers::{FlagValue, Origin, Section};
pub use self::table::{API_VERSION, KIND, nearest};
use crate::telemetry::LogFormat;

/// The configuration as meant.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the backend.
    pub mode: String,
    /// This node's name, if it is not the host's.
    pub hostname_override: Option<NodeName>,
    /// Where objects come from; `None` when nothing was said.
    pub source: Option<SourceConfig>,
    /// How local traffic is recognised.
    pub detect_local: DetectLocal,
    /// Addresses that node ports answer on.
    pub node_port_addresses: NodePortSelector,
    /// Ranges that cluster IPs are allocated from.
    pub service_cidrs: Vec<IpNet>,
    /// What is known of this node without a Node object.
    pub node: NodeOverrides,
    /// Logging.
    pub logging: Logging,
    /// When to write and to look.
    pub periods: Periods,
    /// Services that are written before all others when a node starts, in this order.
    pub first_services: Vec<ServiceName>,
    /// Serve external IPs (gate `AllowServiceExternalIPs`, core spec 7.9).
    pub external_ips: bool,
    listing: Vec<(String, Effective)>,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceConfig {
    /// The Kubernetes API.
    Kubernetes(KubernetesConfig),
    /// A folder of manifests.
    Manifests(ManifestsConfig),
}

/// The Kubernetes source: at least one of both is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// The kubeconfig; relative to where the program was started.
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server, in place of the kubeconfig's.
    pub server: Option<String>,
}

/// The manifests source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestsConfig {
    /// The folder; relative to where the program was started.
    pub path: PathBuf,
    /// How often it is looked at beside the kernel's notices; `None` for never.
    pub poll: Option<Duration>,
}

/// Facts about this node. What is given here wins over the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOverrides {
    /// Its address of each family: the first one given.
    pub ips: PerFamily<Option<IpAddr>>,
    /// Its pod ranges.
    pub pod_cidrs: Vec<IpNet>,
    /// Its zone.
    pub zone: Option<Arc<str>>,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// How lines look.
    pub format: LogFormat,
    /// A filter for [`crate::telemetry::init`].
    pub level: String,
}

/// When to write and to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// How long after a failure it is tried again, at most (core spec 6.6).
    pub sync: Duration,
    /// The least time from the end of one sync to the next; 0 lets a single change out at once.
    pub min_sync: Duration,
    /// How often the kernel is compared with what should be in it; `None` for never.
    pub verify: Option<Duration>,
}

/// A configuration that was read, but whose backends' sections were not: hand each [`Draft::section`] to its backend, say what came of it,
/// then [`Draft::finish`].
#[derive(Clone, Debug)]
pub struct Draft<'a>(Layers<'a>);

impl<'a> Draft<'a> {
    /// Reads the file, if any, and lays the flags over it. `backends` are those there are; the first is the default.
    ///
    /// # Errors
    /// A file that cannot be read. What is wrong with it otherwise, [`Draft::finish`] tells.
    pub fn load(
        file: Option<&Path>,
        flags: &[FlagValue],
        backends: &'a [Section],
    ) -> Result<Self, ConfigErrors> {
        let Some(path) = file else { return Ok(Self::parse(None, flags, backends)) };
        let text = std::fs::read_to_string(path).map_err(|e| ConfigErrors::Read(path.to_owned(), e))?;
        Ok(Self::parse(Some((&path.display().to_string(), &text)), flags, backends))
    }

    /// As [`Draft::load`], from a file's name and text.
    #[must_use]
    pub fn parse(file: Option<(&str, &str)>, flags: &[FlagValue], backends: &'a [Section]) -> Self {
        let mut layers = Layers::new(backends);
        if let Some((name, text)) = file {
            layers.file(&name.into(), text);
        }
        for flag in flags {
            layers.flag(flag);
        }
        Self(layers)
    }

    /// A backend's own section, with known keys only; `None` when there is none.
    #[must_use]
    pub fn section(&self, backend: &str) -> Option<&Map<String, Value>> {
        self.0.sections.get(backend)?.value.as_object()
    }

    /// A backend says what is wrong with the value of a key in its section.
    pub fn refuse(&mut self, backend: &str, key: &str, message: String) {
        self.0.complain_section(backend, key, message);
    }

    /// A backend says what its settings are, for [`Config::describe`].
    pub fn list(&mut self, backend: &str, values: Vec<(&'static str, Value)>) {
        self.0.list_section(backend, values);
    }

    /// Checks the rest.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn finish(self) -> Result<Config, ConfigErrors> {
        meaning::config(self.0)
    }
}

impl Config {
    /// This node's name: what was configured, else the host's. `None` when both are blank.
    #[must_use]
    pub fn node_name(&self, host_name: &str) -> Option<NodeName> {
        let name = self.hostname_override.clone().unwrap_or_else(|| NodeName::new(host_name));
        (!name.as_str().is_empty()).then_some(name)
    }

    /// Where the value of a setting came from; `None` for a name that is no setting.
    #[must_use]
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        self.listing.iter().find(|(p, _)| p == path).map(|(_, e)| &e.origin)
    }

    /// Every setting on a line of its own, with its origin: `mode: "nftables"  # from config.yaml`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for (path, Effective { value, origin }) in &self.listing {
            let _ = writeln!(out, "{path}: {value}  # from {origin}");
        }
        out
    }
}
