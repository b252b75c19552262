//! What a case file says, as typed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawCase {
    pub(super) title: String,
    pub(super) refs: Vec<String>,
    #[serde(default)]
    pub(super) node: RawNode,
    #[serde(default)]
    pub(super) options: RawOptions,
    #[serde(default)]
    pub(super) before: RawBefore,
    #[serde(default)]
    pub(super) manifests: Vec<String>,
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    #[serde(default)]
    pub(super) problems: Vec<String>,
    pub(super) packets: Vec<RawPacket>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawNode {
    pub(super) name: Option<String>,
    pub(super) zone: Option<String>,
    #[serde(default)]
    pub(super) ips: Vec<String>,
    #[serde(default, rename = "podCIDRs")]
    pub(super) pod_cidrs: Vec<String>,
    #[serde(default)]
    pub(super) addresses: Vec<String>,
}

/// What was there first.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBefore {
    pub(super) zone: Option<String>,
    #[serde(default)]
    pub(super) objects: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawOptions {
    #[serde(default)]
    pub(super) detect_local: RawDetector,
    #[serde(default)]
    pub(super) masquerade_all: bool,
    #[serde(default)]
    pub(super) node_port_addresses: Vec<String>,
    #[serde(default)]
    pub(super) localhost_node_ports: bool,
    #[serde(default, rename = "serviceCIDRs")]
    pub(super) service_cidrs: Vec<String>,
    #[serde(default, rename = "externalIPs")]
    pub(super) external_ips: Option<bool>,
    pub(super) node_hints: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawDetector {
    #[serde(rename = "clusterCIDR")]
    pub(super) cluster_cidr: Option<Vec<String>>,
    #[serde(default, rename = "nodeCIDR")]
    pub(super) node_cidr: bool,
    pub(super) interface: Option<String>,
    pub(super) interface_prefix: Option<String>,
}

/// One text or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(super) fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPacket {
    pub(super) from: OneOrMany,
    #[serde(rename = "in")]
    pub(super) entry: String,
    pub(super) to: OneOrMany,
    pub(super) expect: RawExpect,
    pub(super) reason: Option<String>,
    pub(super) recorded: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum RawExpect {
    Word(String),
    Endpoints(BTreeMap<String, Vec<String>>),
}
