//! The configuration: what was typed in file and flags, and what it means.
//!
//! The file is a `KubeProxyConfiguration`, read as kube-proxy reads it, or our own kind, which has the same fields and more ([`Kind`]).
//!
//! Two steps. `layers` lays defaults, file and flags over one another by a table of settings, refuses what no row
//! knows, and keeps each value's origin. `meaning` turns that into a [`Config`], whose values are
//! valid together. Between the two, in [`Draft`], the backends read their sections. Faults are collected over all of it and reported
//! at once.
//!
//! The modes that are named here are those that a `KubeProxyConfiguration` has sections for. Which backends there are the caller says;
//! the first one is the default, and each may have more in its section, whose values only it reads.

mod duration;
mod error;
mod findings;
mod gates;
mod kind;
mod layers;
mod meaning;
mod output;
mod table;
mod takes;
#[cfg(test)]
mod tests;
mod text;
mod traffic;
mod tree;
mod types;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::cluster::{DetectLocal, NodePortSelector};
use proxier_core::ids::{NodeName, ServiceName};
use serde_json::{Map, Value};

pub use self::duration::{DurationError, go_duration, parse_duration};
pub use self::error::{ConfigError, ConfigErrors, Finding, Severity};
pub use self::findings::StartFacts;
pub use self::gates::Gates;
pub use self::kind::{API_VERSION, KIND, Kind, PEER_API_VERSION, PEER_KIND};
use self::layers::{Effective, Layers, Listed};
pub use self::layers::{FlagSpec, FlagValue, Origin, Section, WRITE_CONFIG_TO, flag_specs};
pub use self::output::Difference;
pub use self::table::{Change, nearest};
pub use self::takes::AUTO;
pub use self::types::{
    Admin, ClientConnection, Conntrack, KubernetesConfig, Logging, ManifestsConfig, NodeOverrides, Periods,
    SourceConfig,
};

/// The configuration as meant.
#[derive(Clone, Debug)]
pub struct Config {
    /// What kind of file it was.
    pub kind: Kind,
    /// Name of the backend in use.
    pub mode: String,
    /// The order in which backends were asked whether they can work here, if that is how the mode was chosen.
    pub auto: Option<Vec<String>>,
    /// This node's name, if it is not the host's.
    pub hostname_override: Option<NodeName>,
    /// Where objects come from; `None` when nothing was said.
    pub source: Option<SourceConfig>,
    /// How the API server is talked to.
    pub client: ClientConnection,
    /// The node's own address, which wins over the Node object's, and whose family comes first; unspecified for none (core spec 10.2).
    pub bind_address: IpAddr,
    /// The health server (core spec 4.2); `None` for none.
    pub healthz_bind_address: Option<SocketAddr>,
    /// The metrics server (core spec 4.6); `None` for none.
    pub metrics_bind_address: Option<SocketAddr>,
    /// End the program when one of the two cannot be opened (core spec 4.5).
    pub bind_address_hard_fail: bool,
    /// Profiles on the metrics server.
    pub enable_profiling: bool,
    /// Show the metrics that were hidden in this version, which is the one before kube-proxy's.
    pub show_hidden_metrics_for_version: Option<String>,
    /// The admin API.
    pub admin: Admin,
    /// The process's OOM score.
    pub oom_score_adj: i32,
    /// Settings of the kernel's connection tracking.
    pub conntrack: Conntrack,
    /// How local traffic is recognised.
    pub detect_local: DetectLocal,
    /// Addresses that node ports answer on.
    pub node_port_addresses: NodePortSelector,
    /// Ranges that cluster IPs are allocated from.
    pub service_cidrs: Vec<IpNet>,
    /// `ipvs.excludeCIDRs`, for what the start checks; the backend reads its own.
    pub exclude_cidrs: Vec<IpNet>,
    /// What is known of this node without a Node object.
    pub node: NodeOverrides,
    /// Logging.
    pub logging: Logging,
    /// When to write and to look.
    pub periods: Periods,
    /// How often kube-proxy has objects delivered again. It has no meaning here.
    pub config_sync_period: Duration,
    /// Services that are written before all others when a node starts, in this order.
    pub first_services: Vec<ServiceName>,
    /// Feature gates.
    pub feature_gates: Gates,
    /// Serve external IPs (gate `AllowServiceExternalIPs`, core spec 7.9).
    pub external_ips: bool,
    warnings: Vec<Finding>,
    rows: BTreeMap<&'static str, Effective>,
    listing: Vec<Listed>,
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
        let mut layers = match file {
            Some((name, text)) => Layers::of_file(backends, &name.into(), text),
            None => Layers::new(backends, Kind::Own),
        };
        layers.flags(flags);
        Self(layers)
    }

    /// The modes that may come to be in use, the first one first: one, or several in mode `auto`.
    #[must_use]
    pub fn candidates(&self) -> Vec<String> {
        self.0.candidates()
    }

    /// A backend's own section, with what it reads and somebody said.
    #[must_use]
    pub fn section(&self, backend: &str) -> Map<String, Value> {
        self.0.section(backend)
    }

    /// A backend says what is wrong with the value of a key in its section.
    pub fn refuse(&mut self, backend: &str, key: &str, message: String) {
        self.0.complain_section(backend, key, message);
    }

    /// A backend says what its settings are, for [`Config::describe`].
    pub fn list(&mut self, backend: &str, values: Vec<(&'static str, Value)>) {
        self.0.list_section(backend, values);
    }

    /// Checks the rest. Of several candidates the first counts.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn finish(self) -> Result<Config, ConfigErrors> {
        meaning::config(self.0, "")
    }

    /// Checks the rest for the mode that was chosen.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn finish_as(self, mode: &str) -> Result<Config, ConfigErrors> {
        meaning::config(self.0, mode)
    }
}

impl Config {
    /// This node's name: what was configured, else the host's. `None` when both are blank.
    #[must_use]
    pub fn node_name(&self, host_name: &str) -> Option<NodeName> {
        let name = self.hostname_override.clone().unwrap_or_else(|| NodeName::new(host_name));
        (!name.as_str().is_empty()).then_some(name)
    }
}
