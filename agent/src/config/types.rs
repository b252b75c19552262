//! The parts of a configuration as meant.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;

use crate::telemetry::LogFormat;

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

/// How the API server is talked to (core spec 7.2, `clientConnection`). The kubeconfig is in [`KubernetesConfig`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Header `Accept` in place of the usual one; empty for that. It has no meaning here.
    pub accept_content_types: String,
    /// Content type of requests. It has no meaning here.
    pub content_type: String,
    /// Requests a second; below 0 for any number.
    pub qps: f64,
    /// Requests at once.
    pub burst: u32,
}

/// The admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Its unix socket; `None` for none.
    pub socket: Option<PathBuf>,
}

/// Settings of the kernel's connection tracking (core spec 7.8). `None` leaves the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Connections for each CPU core.
    pub max_per_core: Option<u32>,
    /// Connections at least.
    pub min: u32,
    /// How long idle TCP connections are tracked.
    pub tcp_established_timeout: Option<Duration>,
    /// The same in state CLOSE_WAIT.
    pub tcp_close_wait_timeout: Option<Duration>,
    /// Track TCP packets outside of the window as well.
    pub tcp_be_liberal: bool,
    /// How long UDP flows without an answer are tracked.
    pub udp_timeout: Option<Duration>,
    /// The same with answers.
    pub udp_stream_timeout: Option<Duration>,
}

/// Facts about this node. What is given here wins over the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOverrides {
    /// Its address of each family: the first one given.
    pub ips: PerFamily<Option<IpAddr>>,
    /// The family of the first address given.
    pub first_family: Option<IpFamily>,
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
    /// A filter for [`crate::telemetry::init`]: `logging.level`, else what `logging.verbosity` means.
    pub level: String,
}

/// When to write and to look: the values of the mode in use (core spec 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// How long after a failure it is tried again, at most; twice this makes the health server say "late" (core spec 6.6).
    pub sync: Duration,
    /// The least time from the end of one sync to the next; 0 lets a single change out at once.
    pub min_sync: Duration,
    /// How often the kernel is compared with what should be in it; `None` for never.
    pub verify: Option<Duration>,
}
