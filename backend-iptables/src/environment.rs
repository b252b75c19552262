//! What node, configuration and probe contribute to the rules.

use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_core::snapshot::{NodeContext, NodePortAddresses};
use proxier_xtables::pods::Pods;

use crate::options::{CtInvalid, Facts, Options};

/// What node, configuration and probe contribute to the rules. With equal environments, equal service ports have equal rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Family.
    pub family: IpFamily,
    /// How local pods are told; `None` if nothing is configured for the family.
    pub pods: Option<Pods>,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Where node ports answer.
    pub node_port_addresses: NodePortAddresses,
    /// Node ports answer on IPv4 loopback.
    pub loopback: bool,
    /// The node's own address.
    pub node_ip: Option<IpAddr>,
    /// The mark that asks for masquerading.
    pub mark: u32,
    /// Forwarded packets in invalid state are dropped.
    pub drop_invalid: bool,
    /// What the probe found.
    pub facts: Facts,
}

impl Environment {
    /// From a snapshot's context, the settings and what the probe found.
    #[must_use]
    pub fn new(context: &NodeContext, family: IpFamily, options: &Options, facts: &Facts) -> Self {
        Self {
            family,
            pods: context.detector.as_ref().map(Pods::new),
            masquerade_all: context.masquerade_all,
            node_port_addresses: context.node_port_addresses.clone(),
            loopback: context.node_ports_on_loopback,
            // A loopback address stands for an unknown one (iptables spec 12, number 15).
            node_ip: context.node.ips.get(family).filter(|ip: &IpAddr| !ip.is_loopback()),
            mark: options.masquerade_mark(),
            drop_invalid: match options.ct_invalid {
                CtInvalid::Auto => !facts.tcp_be_liberal,
                CtInvalid::Drop => true,
                CtInvalid::Ignore => false,
            },
            facts: facts.clone(),
        }
    }
}
