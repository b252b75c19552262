//! What the oracle knows: the same objects as the agents read, through the core's intake, one cluster for each node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, bail};
use proxier_core::cluster::{Cluster, Commit, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::intake;
use proxier_core::snapshot::Snapshot;
use proxier_sys::addresses::host_addresses;
use proxier_sys::netns::Netns;
use serde_json::{Value, json};

use crate::process;
use crate::topology::{Node, Topology};
use crate::virtual_servers::DEVICE;

/// What is known of one node.
#[derive(Debug)]
pub struct NodeView {
    /// Its name.
    pub name: &'static str,
    /// All its addresses, also those by a local route alone.
    pub addresses: Vec<IpAddr>,
    commit: Commit,
}

impl NodeView {
    /// What the agent of this node should have programmed.
    #[must_use]
    pub fn snapshot(&self, family: IpFamily) -> &Snapshot {
        self.commit.snapshot(family)
    }

    /// Is it delivered to this host?
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.contains(&address)
    }
}

/// The Node object. The zone of the first node is `a`, that of the second `b`.
#[must_use]
pub fn node_json(node: &Node, zone: char) -> Value {
    let addresses: Vec<Value> =
        node.addresses.both().iter().map(|a| json!({ "type": "InternalIP", "address": a })).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node.name, "labels": { "topology.kubernetes.io/zone": zone.to_string() } },
        "spec": { "podCIDRs": node.pod_cidrs },
        "status": { "addresses": addresses },
    })
}

/// All Node objects.
#[must_use]
pub fn nodes_json(topology: &Topology) -> Vec<Value> {
    topology.nodes.iter().zip('a'..).map(|(node, zone)| node_json(node, zone)).collect()
}

/// Everything that is delivered to the host whose namespace this thread is in: its interfaces' addresses, and those that it has by a
/// route of type local alone. The kernel makes no difference between the two, so the oracle must know both. What `kube-ipvs0` has are services' addresses, of the
/// setting before this one.
fn local_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let own = host_addresses()?.into_iter().filter(|(interface, _)| interface != DEVICE);
    let mut addresses: BTreeSet<IpAddr> = own.map(|(_, ip)| ip).collect();
    for family in ["-4", "-6"] {
        let listing = process::run("ip", [family, "route", "show", "table", "local", "type", "local"], "")?;
        addresses.extend(local_routes(&listing));
    }
    Ok(addresses.into_iter().collect())
}

/// The addresses in lines such as `local 10.0.0.1 dev eth0 ...`; the range of loopback addresses is none.
fn local_routes(listing: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let of_services = format!("dev {DEVICE} ");
    let own = listing.lines().filter(move |line| !format!("{line} ").contains(&of_services));
    own.filter_map(|line| line.strip_prefix("local ")?.split_whitespace().next()?.parse().ok())
}

/// Takes in the objects for every node of a running topology.
///
/// # Errors
/// An object that is none of ours or has a problem, a namespace that cannot be entered.
pub fn views(
    topology: &Topology,
    objects: &[Value],
    options: &TrafficOptions,
) -> anyhow::Result<Vec<NodeView>> {
    topology
        .nodes
        .iter()
        .map(|node| {
            let addresses = Netns::named(node.name)?.run(local_addresses)??;
            let commit = commit(node.name, &addresses, objects, options)?;
            Ok(NodeView { name: node.name, addresses, commit })
        })
        .collect()
}

/// What the core publishes for one node.
///
/// # Errors
/// An object that is none of ours or has a problem.
pub fn commit(
    node: &str,
    addresses: &[IpAddr],
    objects: &[Value],
    options: &TrafficOptions,
) -> anyhow::Result<Commit> {
    let name = NodeName::new(node);
    let mut cluster = Cluster::new(name.clone(), options.clone());
    for object in objects {
        let problems = match object["kind"].as_str() {
            Some("Service") => {
                let taken = intake::service(&read(object)?);
                taken.accepted.map(|s| cluster.upsert_service(s));
                taken.problems
            }
            Some("EndpointSlice") => {
                let taken = intake::endpoint_slice(&read(object)?);
                taken.accepted.map(|s| cluster.upsert_slice(s));
                taken.problems
            }
            Some("Node") => {
                let taken = intake::node(&read(object)?);
                if let Some(mut facts) = taken.accepted.filter(|f| f.name == name) {
                    facts.host_addresses = addresses.to_vec();
                    cluster.set_node(facts);
                }
                taken.problems
            }
            kind => bail!("a manifest of kind {kind:?}"),
        };
        if let Some(problem) = problems.first() {
            bail!("a manifest has a problem: {problem}");
        }
    }
    Ok(cluster.commit())
}

fn read<T: for<'a> k8s_openapi::serde::Deserialize<'a>>(object: &Value) -> anyhow::Result<T> {
    serde_json::from_value(object.clone()).with_context(|| format!("reading {object}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_by_routes_alone_are_found() {
        let listing = "local 127.0.0.0/8 dev lo proto kernel scope host src 127.0.0.1\n\
                       local 203.0.113.7 dev lo scope host\n\
                       local 203.0.113.8 dev kube-ipvs0 proto kernel scope host src 203.0.113.8\n\
                       local fd00:30::3 dev eth0 proto kernel metric 0 pref medium\n";
        let found: Vec<String> = local_routes(listing).map(|ip| ip.to_string()).collect();
        assert_eq!(found, ["203.0.113.7", "fd00:30::3"]);
    }
}
