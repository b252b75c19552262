//! The experiments as data: which cluster, which manifests, which traffic, and what must be seen.
//!
//! A is a measurement of source addresses on a real cluster, B one Service measured on several data planes; both on
//! Kubernetes 1.35. C is ours: A again on IPv6, with a dual-stack Service. Every experiment runs once per [`Variant`].

mod dataplane;
mod source;

use std::net::{IpAddr, SocketAddr};

use crate::saved::Tables;
use crate::topology::Pod;

/// One way to run the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name in the table.
    pub name: &'static str,
    /// The agent's `--backend`.
    pub backend: &'static str,
    /// Text of the agent's configuration file.
    pub config: Option<&'static str>,
    /// The kernel objects to look for.
    pub layout: Layout,
}

/// How a backend lays out services in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// nftables: services and endpoints are elements of a few maps.
    Maps,
    /// nftables: a chain per service and per endpoint, under the reference's names.
    Chains,
    /// iptables: the reference's chains and rules.
    Rules(Tables),
    /// IPVS: virtual servers, with sets and rules beside them.
    VirtualServers,
}

impl Layout {
    /// Can this kernel do it?
    ///
    /// # Errors
    /// Why not, in words.
    pub fn is_possible(self) -> Result<(), &'static str> {
        if self != Self::VirtualServers || crate::virtual_servers::has_ipvs() {
            return Ok(());
        }
        Err("this kernel has no IPVS; `cargo xtask vm` has one that does")
    }
}

/// Configuration of the second layout.
const CHAINS: &str = "apiVersion: proxier.io/v1alpha1
kind: ProxierConfiguration
nftables:
  layout: chains
";

/// Configurations of iptables; without one the agent takes the variant that others on the host use.
const IPTABLES_NFT: &str = "apiVersion: proxier.io/v1alpha1
kind: ProxierConfiguration
iptables:
  variant: nft
";
const IPTABLES_LEGACY: &str = "apiVersion: proxier.io/v1alpha1
kind: ProxierConfiguration
iptables:
  variant: legacy
";

const IPVS: &str = "apiVersion: proxier.io/v1alpha1
kind: ProxierConfiguration
ipvs:
  variant: nft
";

/// Every way the experiments are run.
pub const VARIANTS: [Variant; 5] = [
    Variant { name: "maps", backend: "nftables", config: None, layout: Layout::Maps },
    Variant { name: "chains", backend: "nftables", config: Some(CHAINS), layout: Layout::Chains },
    iptables("iptables-nft", IPTABLES_NFT, Tables::Nft),
    iptables("iptables-legacy", IPTABLES_LEGACY, Tables::Legacy),
    Variant { name: "ipvs", backend: "ipvs", config: Some(IPVS), layout: Layout::VirtualServers },
];

const fn iptables(name: &'static str, config: &'static str, tables: Tables) -> Variant {
    Variant { name, backend: "iptables", config: Some(config), layout: Layout::Rules(tables) }
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Letter.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Which layouts it is run with; those of one letter complete each other.
    pub of: fn(Layout) -> bool,
    /// Pods on the two workers.
    pub pods: Vec<Pod>,
    /// The agent's `--cluster-cidr`.
    pub cluster_cidr: &'static str,
    /// Pods that answer, on TCP port 8080 of all their addresses.
    pub servers: &'static [&'static str],
    /// Manifests at the start: file name and text.
    pub manifests: &'static [(&'static str, &'static str)],
    /// Family and `address . protocol . port` (the key in nftables' map `service-ips`) of the frontends that must be in every node's
    /// kernel before traffic starts.
    pub frontends: &'static [(&'static str, &'static str)],
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// What the kernel must list afterwards.
    pub kernel: fn(Layout) -> Vec<Kernel>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Change one passage of a manifest while the agents run, and wait until every node's kernel changed.
    Patch {
        /// File name.
        file: &'static str,
        /// Passage, there exactly once.
        passage: &'static str,
        /// What replaces it.
        replacement: &'static str,
    },
    /// Traffic.
    Traffic(Traffic),
}

/// New TCP connections and what must be seen of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Namespace the connections start in.
    pub from: &'static str,
    /// Where to.
    pub to: SocketAddr,
    /// The policy in force, for the table.
    pub policy: &'static str,
    /// What must be seen.
    pub expect: Expect,
}

/// What must be seen of new connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The endpoint answers and sees this source address.
    Source(IpAddr),
    /// Nothing comes back.
    Silence,
    /// These servers answer in turn, every connection.
    Turns {
        /// Names of the two servers.
        servers: [&'static str; 2],
        /// Number of connections.
        connections: usize,
        /// The source address all of them must see, where it does not depend on the endpoint.
        source: Option<IpAddr>,
    },
    /// All of these servers answer, no other, every connection.
    Spread {
        /// Names of the servers.
        servers: &'static [&'static str],
        /// Number of connections.
        connections: usize,
        /// The source address all of them must see, where it does not depend on the endpoint.
        source: Option<IpAddr>,
    },
}

/// What a node's kernel must list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The node.
    pub node: &'static str,
    /// `ip` or `ip6`.
    pub family: &'static str,
    /// Where to look.
    pub object: Object,
    /// A map: exactly these values, in any order. A chain of nftables: these passages among its rules. A chain of iptables: exactly
    /// these rules, in this order. The dispatch of iptables: these rules among others. A set, or the interface: exactly these words.
    pub expect: &'static [&'static str],
}

/// A kernel object of the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The elements of a map whose key is, or begins with, the given parts.
    Elements {
        /// The map.
        map: &'static str,
        /// The parts.
        key: &'static str,
    },
    /// A chain of nftables.
    Chain(&'static str),
    /// A chain of iptables that is one object's own; table and name.
    Own(&'static str, &'static str),
    /// A chain of iptables that all services share; table and name.
    Shared(&'static str, &'static str),
    /// A chain of iptables that must not be there; table and name.
    Absent(&'static str, &'static str),
    /// A virtual server, as `/proc/net/ip_vs` prints it; what is expected are the lines below it.
    VirtualServer(&'static str),
    /// The state and the addresses of `kube-ipvs0`.
    Device,
    /// The entries of an ipset.
    Set(&'static str),
}

/// All experiments.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    vec![source::ipv4(), dataplane::echo_server(), dataplane::virtual_servers(), source::dual_stack()]
}

const NODES: (&str, &str) = ("nodes.yaml", include_str!("../manifests/nodes.yaml"));

const fn pod(name: &'static str, node: &'static str, cidr: u8, number: u8) -> Pod {
    Pod { name, node, addresses: crate::topology::pod_addresses(cidr, number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn every_name_in_an_experiment_exists() {
        for experiment in experiments() {
            let topology = Topology::two_workers(experiment.pods.clone());
            let names: Vec<_> = topology.namespaces().collect();
            assert!(experiment.servers.iter().all(|s| names.contains(s)), "{}", experiment.id);
            assert!(experiment.pods.iter().all(|p| topology.node(p.node).is_some()), "{}", experiment.id);
            for step in &experiment.steps {
                match step {
                    Step::Traffic(t) => assert!(names.contains(&t.from), "{}: {}", experiment.id, t.from),
                    Step::Patch { file, passage, .. } => {
                        let text = experiment.manifests.iter().find(|(name, _)| name == file).unwrap().1;
                        assert_eq!(text.matches(passage).count(), 1, "{}: {file}", experiment.id);
                    }
                }
            }
        }
    }

    #[test]
    fn namespace_names_are_unique() {
        for experiment in experiments() {
            let topology = Topology::two_workers(experiment.pods);
            let mut names: Vec<_> = topology.namespaces().collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{names:?}");
        }
    }
}
