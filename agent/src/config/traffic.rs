//! What the core needs of the configuration.

use proxier_core::cluster::TrafficOptions;
use proxier_core::ids::IpFamily;
use proxier_core::model::NodeFacts;

use super::{Config, NodeOverrides};

impl Config {
    /// The part of the configuration that decides about traffic. Node hints are obeyed: their gate is locked on (core spec 7.9).
    /// Whether everything is masqueraded is said in the backend's own section (core spec 7.3).
    #[must_use]
    pub fn traffic_options(&self) -> TrafficOptions {
        TrafficOptions {
            detect_local: self.detect_local.clone(),
            masquerade_all: false,
            node_port_addresses: self.node_port_addresses.clone(),
            localhost_node_ports: false,
            service_cidrs: self.service_cidrs.clone(),
            external_ips: self.external_ips,
            node_hints: true,
            first_services: self.first_services.clone().into(),
        }
    }

    /// What wins over the Node object: `bindAddress`, unless it is unspecified, and then what `node` says (core spec 10.2).
    #[must_use]
    pub fn node_overrides(&self) -> NodeOverrides {
        let mut node = self.node.clone();
        if !self.bind_address.is_unspecified() {
            let family = IpFamily::of(self.bind_address);
            node.ips.get_mut(family).get_or_insert(self.bind_address);
            node.first_family.get_or_insert(family);
        }
        node
    }
}

impl NodeOverrides {
    /// Puts what was configured in place of what the Node object said.
    pub fn apply(&self, facts: &mut NodeFacts) {
        for family in IpFamily::ALL {
            if let Some(ip) = self.ips.get(family) {
                *facts.ips.get_mut(family) = Some(*ip);
            }
        }
        if self.first_family.is_some() {
            facts.first_family = self.first_family;
        }
        if !self.pod_cidrs.is_empty() {
            facts.pod_cidrs.clone_from(&self.pod_cidrs);
        }
        if let Some(zone) = &self.zone {
            facts.zone = Some(zone.clone());
        }
    }
}
