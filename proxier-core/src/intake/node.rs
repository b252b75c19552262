//! The Node that we run on (core spec 10).

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as api;

use super::Intake;
use super::problem::{MAX_SUBDOMAIN, Report, part};
use crate::ids::{IpFamily, NodeName};
use crate::ip::{parse_cidr, parse_ip};
use crate::model::{NodeFacts, PerFamily};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Takes in a Node. `host_addresses` is left empty: no API object knows them.
#[must_use]
pub fn node(object: &api::Node) -> Intake<NodeFacts> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let id = format!("Node {name}");
    if let Err(problem) = part(&id, "metadata.name", name, MAX_SUBDOMAIN) {
        return Intake::rejected(problem);
    }
    let mut report = Report::new(id);
    let zone = object.metadata.labels.as_ref().and_then(|l| l.get(ZONE_LABEL)).filter(|z| !z.is_empty());
    let (ips, first_family) = node_ips(object, &mut report);
    let accepted = NodeFacts {
        name: NodeName::new(name),
        zone: zone.map(|z| z.as_str().into()),
        ips,
        first_family,
        pod_cidrs: pod_cidrs(object, &mut report),
        host_addresses: Vec::new(),
    };
    Intake { accepted: Some(accepted), ignored: None, problems: report.problems }
}

/// Internal addresses come before external ones; the first of each family is the node's. A loopback address means
/// that it is not known (core spec 9.4, 10.2). The first address of all tells the node's first family.
fn node_ips(object: &api::Node, report: &mut Report) -> (PerFamily<Option<IpAddr>>, Option<IpFamily>) {
    let mut out: PerFamily<Option<IpAddr>> = PerFamily::default();
    let mut first = None;
    let addresses = object.status.as_ref().and_then(|s| s.addresses.as_ref());
    for wanted in ["InternalIP", "ExternalIP"] {
        let entries = addresses.into_iter().flatten().enumerate();
        for (i, entry) in entries.filter(|(_, e)| e.type_ == wanted) {
            match parse_ip(&entry.address) {
                Ok(ip) => {
                    first.get_or_insert(IpFamily::of(ip));
                    out.get_mut(IpFamily::of(ip)).get_or_insert(ip);
                }
                Err(e) => {
                    report.add(format!("status.addresses[{i}].address"), Some(&entry.address), e.to_string());
                }
            }
        }
    }
    for family in IpFamily::ALL {
        let ip = out.get_mut(family);
        *ip = ip.filter(|ip| !ip.is_loopback());
    }
    (out, first)
}

fn pod_cidrs(object: &api::Node, report: &mut Report) -> Vec<ipnet::IpNet> {
    let cidrs = object.spec.as_ref().and_then(|s| s.pod_cidrs.as_ref());
    let mut out = Vec::new();
    for (i, text) in cidrs.into_iter().flatten().enumerate() {
        match parse_cidr(text) {
            Ok(net) => out.push(net),
            Err(e) => report.add(format!("spec.podCIDRs[{i}]"), Some(text), e.to_string()),
        }
    }
    out
}
