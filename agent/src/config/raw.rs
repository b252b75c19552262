//! The settings as typed.

use serde::Deserialize;

use super::duration::Written;

/// The file's shape, every value filled in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawConfig {
    pub(super) mode: String,
    pub(super) hostname_override: String,
    pub(super) source: RawSource,
    #[serde(rename = "clusterCIDR")]
    pub(super) cluster_cidr: String,
    pub(super) detect_local_mode: String,
    pub(super) detect_local: RawDetectLocal,
    pub(super) node_port_addresses: Vec<String>,
    #[serde(rename = "serviceCIDRs")]
    pub(super) service_cidrs: Vec<String>,
    pub(super) first_services: Vec<String>,
    pub(super) node: RawNode,
    pub(super) logging: RawLogging,
    pub(super) sync_period: Written,
    pub(super) min_sync_period: Written,
    pub(super) verify_period: Written,
    pub(super) feature_gates: RawGates,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawSource {
    pub(super) kubernetes: RawKubernetes,
    pub(super) manifests: RawManifests,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawKubernetes {
    pub(super) kubeconfig: String,
    pub(super) server: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawManifests {
    pub(super) path: String,
    pub(super) poll: Written,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawDetectLocal {
    pub(super) bridge_interface: String,
    pub(super) interface_name_prefix: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawNode {
    pub(super) ips: Vec<String>,
    #[serde(rename = "podCIDRs")]
    pub(super) pod_cidrs: Vec<String>,
    pub(super) zone: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawLogging {
    pub(super) format: String,
    pub(super) level: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RawGates {
    #[serde(rename = "AllowServiceExternalIPs")]
    pub(super) allow_service_external_ips: bool,
}
