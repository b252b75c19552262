//! Node and options of a case.

use ipnet::IpNet;
use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::model::NodeFacts;

use super::address;
use super::raw::{RawDetector, RawNode, RawOptions};

/// A field, and what is wrong with it.
type Fault = (String, String);

fn nets(field: &str, texts: &[String]) -> Result<Vec<IpNet>, Fault> {
    let net = |(i, text): (usize, &String)| {
        text.parse::<IpNet>().map_err(|_| (format!("{field}[{i}]"), format!("{text:?} is no range")))
    };
    texts.iter().enumerate().map(net).collect()
}

/// What the case itself says about the node; a Node object can add to it.
pub(super) fn node(raw: &RawNode) -> Result<NodeFacts, Fault> {
    let mut node = NodeFacts {
        name: NodeName::new(raw.name.as_deref().unwrap_or("worker")),
        zone: raw.zone.as_deref().filter(|z| !z.is_empty()).map(Into::into),
        pod_cidrs: nets("node.podCIDRs", &raw.pod_cidrs)?,
        ..NodeFacts::default()
    };
    for (i, text) in raw.ips.iter().enumerate() {
        let ip = address(text).map_err(|e| (format!("node.ips[{i}]"), e))?;
        *node.ips.get_mut(IpFamily::of(ip)) = Some(ip);
    }
    for (i, text) in raw.addresses.iter().enumerate() {
        node.host_addresses.push(address(text).map_err(|e| (format!("node.addresses[{i}]"), e))?);
    }
    Ok(node)
}

pub(super) fn options(raw: &RawOptions) -> Result<TrafficOptions, Fault> {
    let default = TrafficOptions::default();
    Ok(TrafficOptions {
        detect_local: detector(&raw.detect_local)?,
        masquerade_all: raw.masquerade_all,
        node_port_addresses: match raw.node_port_addresses.as_slice() {
            [one] if one == "primary" => NodePortSelector::Primary,
            texts => NodePortSelector::Cidrs(nets("options.nodePortAddresses", texts)?),
        },
        localhost_node_ports: raw.localhost_node_ports,
        service_cidrs: nets("options.serviceCIDRs", &raw.service_cidrs)?,
        external_ips: raw.external_ips.unwrap_or(default.external_ips),
        node_hints: raw.node_hints.unwrap_or(default.node_hints),
        first_services: default.first_services,
    })
}

fn detector(raw: &RawDetector) -> Result<DetectLocal, Fault> {
    let field = "options.detectLocal";
    match (&raw.cluster_cidr, raw.node_cidr, &raw.interface, &raw.interface_prefix) {
        (None, false, None, None) => Ok(DetectLocal::ClusterCidr(Vec::new())),
        (Some(texts), false, None, None) => {
            Ok(DetectLocal::ClusterCidr(nets(&format!("{field}.clusterCIDR"), texts)?))
        }
        (None, true, None, None) => Ok(DetectLocal::NodeCidr),
        (None, false, Some(name), None) => Ok(DetectLocal::BridgeInterface(name.as_str().into())),
        (None, false, None, Some(prefix)) => Ok(DetectLocal::InterfaceNamePrefix(prefix.as_str().into())),
        _ => Err((field.into(), "more than one way to detect local traffic".into())),
    }
}
