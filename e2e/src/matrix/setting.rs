//! Ways to configure the agents: as the text they read, and as the options that the oracle decides with.

use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use serde_json::{Value, json};

use super::plan;

/// How local traffic is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// By the cluster's pod range.
    ClusterCidr,
    /// Not at all: the pod range is not given.
    None,
    /// By the node's own pod range.
    NodeCidr,
    /// By the pods' bridge.
    Bridge,
    /// By the beginning of an interface's name.
    Prefix,
}

/// Which addresses node ports answer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePorts {
    /// The node's own.
    Primary,
    /// All.
    All,
    /// The nodes' second addresses only.
    Second,
}

/// A way to configure the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name.
    pub name: &'static str,
    /// Local traffic detection.
    pub detector: Detector,
    /// Masquerade everything to cluster IPs.
    pub masquerade_all: bool,
    /// Node port addresses.
    pub node_ports: NodePorts,
    /// The ranges of cluster IPs are known.
    pub service_cidrs: bool,
}

const DEFAULT: Setting = Setting {
    name: "default",
    detector: Detector::ClusterCidr,
    masquerade_all: false,
    node_ports: NodePorts::Primary,
    service_cidrs: true,
};

/// All of them. The first runs every group and the live scenarios, the others the groups whose meaning they change.
pub const SETTINGS: [Setting; 6] = [
    DEFAULT,
    Setting { name: "no-detector", detector: Detector::None, service_cidrs: false, ..DEFAULT },
    Setting { name: "node-cidr", detector: Detector::NodeCidr, node_ports: NodePorts::All, ..DEFAULT },
    Setting { name: "bridge", detector: Detector::Bridge, node_ports: NodePorts::Second, ..DEFAULT },
    Setting { name: "prefix", detector: Detector::Prefix, ..DEFAULT },
    Setting { name: "masquerade-all", masquerade_all: true, ..DEFAULT },
];

impl Setting {
    /// The agent's `--cluster-cidr`.
    #[must_use]
    pub fn cluster_cidr(&self) -> &'static str {
        if self.detector == Detector::None { "" } else { plan::CLUSTER_CIDR }
    }

    /// The agent's configuration file, with a backend's section.
    #[must_use]
    pub fn config(&self, section: &Value) -> String {
        let mut out = json!({
            "apiVersion": "proxier.io/v1alpha1",
            "kind": "ProxierConfiguration",
            "detectLocalMode": match self.detector {
                Detector::ClusterCidr | Detector::None => "ClusterCIDR",
                Detector::NodeCidr => "NodeCIDR",
                Detector::Bridge => "BridgeInterface",
                Detector::Prefix => "InterfaceNamePrefix",
            },
            "detectLocal": { "bridgeInterface": "cni0", "interfaceNamePrefix": "cni" },
            "nodePortAddresses": match self.node_ports {
                NodePorts::Primary => vec!["primary"],
                NodePorts::All => vec!["0.0.0.0/0", "::/0"],
                NodePorts::Second => plan::SECOND_CIDRS.to_vec(),
            },
        });
        if self.service_cidrs {
            out["serviceCIDRs"] = plan::SERVICE_CIDRS.to_vec().into();
        }
        if let (Some(out), Some(sections)) = (out.as_object_mut(), section.as_object()) {
            for (backend, options) in sections {
                // kube-proxy keeps this one per mode, and so does the agent.
                let mut options = options.clone();
                options["masqueradeAll"] = self.masquerade_all.into();
                out.insert(backend.clone(), options);
            }
        }
        format!("{out:#}\n")
    }

    /// The same for the oracle; whether node ports are wanted on loopback is the backend's.
    ///
    /// # Errors
    /// Never for the ranges of the plan.
    pub fn options(&self, localhost_node_ports: bool) -> Result<TrafficOptions, ipnet::AddrParseError> {
        let cidrs = |texts: &[&str]| texts.iter().map(|t| t.parse()).collect::<Result<Vec<_>, _>>();
        let pods: Vec<&str> = plan::CLUSTER_CIDR.split(',').collect();
        Ok(TrafficOptions {
            detect_local: match self.detector {
                Detector::ClusterCidr => DetectLocal::ClusterCidr(cidrs(&pods)?),
                Detector::None => DetectLocal::ClusterCidr(Vec::new()),
                Detector::NodeCidr => DetectLocal::NodeCidr,
                Detector::Bridge => DetectLocal::BridgeInterface("cni0".into()),
                Detector::Prefix => DetectLocal::InterfaceNamePrefix("cni".into()),
            },
            masquerade_all: self.masquerade_all,
            node_port_addresses: match self.node_ports {
                NodePorts::Primary => NodePortSelector::Primary,
                NodePorts::All => NodePortSelector::Cidrs(cidrs(&["0.0.0.0/0", "::/0"])?),
                NodePorts::Second => NodePortSelector::Cidrs(cidrs(&plan::SECOND_CIDRS)?),
            },
            service_cidrs: if self.service_cidrs { cidrs(&plan::SERVICE_CIDRS)? } else { Vec::new() },
            localhost_node_ports,
            ..TrafficOptions::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_different_for_the_oracle() {
        for (i, a) in SETTINGS.iter().enumerate() {
            assert!(
                SETTINGS[i + 1..].iter().all(|b| a.options(true).unwrap() != b.options(true).unwrap()),
                "{}",
                a.name
            );
        }
    }

    #[test]
    fn a_backends_section_joins_the_configuration() {
        let text = SETTINGS[0].config(&json!({ "nftables": { "layout": "chains" } }));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["nftables"]["layout"], "chains");
        assert_eq!(value["kind"], "ProxierConfiguration");
    }
}
