//! What node, configuration and probe contribute to every service port and rule.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::{NodeContext, NodePortAddresses};
use proxier_xtables::pods::Pods;

use crate::options::{Facts, Options};

/// With equal environments, equal service ports need equal objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Family.
    pub family: IpFamily,
    /// How local pods are told; `None` if nothing is configured for the family.
    pub pods: Option<Pods>,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// The addresses that node ports answer on, sorted: never loopback, nor link-local in IPv6 (ipvs spec 2.4; public report 58).
    pub node_addresses: Arc<[IpAddr]>,
    /// Addresses of this family on interfaces other than `kube-ipvs0`, sorted. VIPs and external IPs among them are not bound (ipvs spec
    /// 3).
    pub host_addresses: Arc<[IpAddr]>,
    /// The node's own address.
    pub node_ip: Option<IpAddr>,
    /// The mark that asks for masquerading.
    pub mark: u32,
    /// The scheduler of all virtual servers.
    pub scheduler: Arc<str>,
    /// Virtual servers at these addresses are never deleted.
    pub excluded: Arc<[IpNet]>,
    /// What the probe found.
    pub facts: Facts,
}

impl Environment {
    /// From a snapshot's context, the settings and what the probe found.
    #[must_use]
    pub fn new(context: &NodeContext, family: IpFamily, options: &Options, facts: &Facts) -> Self {
        let host_addresses: Arc<[IpAddr]> = sorted(&context.node.host_addresses, family).into();
        let node_addresses = match &context.node_port_addresses {
            NodePortAddresses::MatchAll => sorted(&host_addresses, family),
            NodePortAddresses::Only(list) => sorted(list, family),
        };
        Self {
            family,
            pods: context.detector.as_ref().map(Pods::new),
            masquerade_all: context.masquerade_all,
            node_addresses: node_addresses.into_iter().filter(|ip| answers_node_ports(*ip)).collect(),
            host_addresses,
            // A loopback address stands for an unknown one (ipvs spec 11, number 18).
            node_ip: context.node.ips.get(family).filter(|ip: &IpAddr| !ip.is_loopback()),
            mark: options.masquerade_mark(),
            scheduler: Arc::clone(&options.scheduler),
            excluded: options
                .exclude_cidrs
                .iter()
                .filter(|c| IpFamily::of(c.addr()) == family)
                .copied()
                .collect(),
            facts: facts.clone(),
        }
    }

    /// Is this an address of an interface other than `kube-ipvs0`?
    #[must_use]
    pub fn is_host(&self, ip: IpAddr) -> bool {
        self.host_addresses.binary_search(&ip).is_ok()
    }

    /// Do node ports answer on this address?
    #[must_use]
    pub fn is_node_address(&self, ip: IpAddr) -> bool {
        self.node_addresses.binary_search(&ip).is_ok()
    }
}

fn sorted(addresses: &[IpAddr], family: IpFamily) -> Vec<IpAddr> {
    let mut out: Vec<IpAddr> = addresses.iter().filter(|ip| IpFamily::of(**ip) == family).copied().collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Ipvs spec 2.4 and 11, number 23.
fn answers_node_ports(ip: IpAddr) -> bool {
    !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use proxier_core::cluster::{NodePortSelector, TrafficOptions, resolve};
    use proxier_core::model::NodeFacts;

    use super::*;

    fn environment(selector: NodePortSelector, family: IpFamily) -> Environment {
        let addresses = ["127.0.0.1", "::1", "169.254.1.1", "172.30.0.3", "fe80::1", "fd00::3", "10.244.1.1"];
        let host_addresses = addresses.map(|ip| ip.parse().unwrap()).to_vec();
        let node = NodeFacts { host_addresses, ..NodeFacts::default() };
        let traffic = TrafficOptions { node_port_addresses: selector, ..TrafficOptions::default() };
        Environment::new(&resolve(&traffic, &node, family), family, &Options::default(), &Facts::default())
    }

    fn node_addresses(selector: NodePortSelector, family: IpFamily) -> Vec<String> {
        environment(selector, family).node_addresses.iter().map(ToString::to_string).collect()
    }

    /// Cases: ipvs-11.22, ipvs-11.23, report-C5-58
    #[test]
    fn which_addresses_node_ports_answer_on() {
        let all = || NodePortSelector::Cidrs(Vec::new());
        let only = |text: &str| NodePortSelector::Cidrs(vec![text.parse().unwrap()]);
        let (v4, v6) = (IpFamily::Ipv4, IpFamily::Ipv6);
        assert_eq!(node_addresses(all(), v4), ["10.244.1.1", "169.254.1.1", "172.30.0.3"]);
        assert_eq!(node_addresses(all(), v6), ["fd00::3"]);
        assert_eq!(node_addresses(only("172.30.0.0/24"), v4), ["172.30.0.3"]);
        assert_eq!(node_addresses(only("172.30.0.0/24"), v6), ["fd00::3"], "the other family matches all");
        assert_eq!(node_addresses(only("127.0.0.0/8"), v4), [""; 0]);
        let env = environment(all(), v4);
        assert!(env.is_host("127.0.0.1".parse().unwrap()) && !env.is_host("fd00::3".parse().unwrap()));
    }
}
