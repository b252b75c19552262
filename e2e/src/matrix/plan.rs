//! The matrix's cluster: two workers with two servers and a caller each, outside clients that reach service addresses through a
//! chosen worker, and the plan by which a service's number gives all its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proxier_core::ids::IpFamily;

use super::shape::VipAt;
use crate::topology::{Client, Dual, NODE_NETWORK, Pod, Topology, pod_addresses};

/// Pods that answer: two a worker.
pub const SERVERS: [&str; 4] = ["one", "two", "three", "four"];
/// The pod on `worker` that only calls.
pub const CALLER: &str = "caller";
/// The pod on `worker2` that only calls.
pub const CALLER2: &str = "caller2";
/// What meets packets that no node kept: the lab's stand-in for the rest of the world.
pub const BEYOND: &str = "beyond";

/// Pod ranges of the cluster, as `clusterCIDR` takes them.
pub const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";
/// Ranges of cluster IPs.
pub const SERVICE_CIDRS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/64"];
/// Ranges of the nodes' second addresses.
pub const SECOND_CIDRS: [&str; 2] = ["172.31.0.0/16", "fd00:31::/64"];
/// Ranges of load balancer VIPs, then of external IPs.
const EXTERNAL: [[&str; 2]; 2] = [["203.0.113.0/24", "fd00:203::/64"], ["198.51.100.0/24", "fd00:198::/64"]];

/// The port on which servers answer each connection and datagram once; the next two do the same.
pub const PORT: u16 = 8080;
/// The port on which servers answer for as long as a TCP connection lasts.
pub const LASTING: u16 = 9090;

/// The first of a service's node ports; ports used by clients are all above [`FIRST_CLIENT_PORT`].
const FIRST_NODE_PORT: u16 = 30_000;
/// Node ports per service.
const NODE_PORTS: u16 = 8;
/// The lowest port that clients call from.
pub const FIRST_CLIENT_PORT: u16 = 32_000;

/// An address of `family` by its last number in each of two prefixes.
fn dual(v4: [u8; 3], v6: [u16; 4], number: u8) -> Dual {
    Dual {
        v4: Ipv4Addr::new(v4[0], v4[1], v4[2], number),
        v6: Ipv6Addr::new(v6[0], v6[1], v6[2], v6[3], 0, 0, 0, number.into()),
    }
}

/// The address of one family.
#[must_use]
pub fn of(dual: Dual, family: IpFamily) -> IpAddr {
    match family {
        IpFamily::Ipv4 => dual.v4.into(),
        IpFamily::Ipv6 => dual.v6.into(),
    }
}

/// Cluster IP of the service of this number.
#[must_use]
pub fn cluster_ip(number: u8) -> Dual {
    dual([10, 96, 1], [0xfd00, 0x10, 0x96, 0], number)
}

/// Cluster IP of the service that marks a revision of the manifests.
#[must_use]
pub fn marker_ip(revision: u16) -> Dual {
    let [high, low] = revision.to_be_bytes();
    Dual {
        v4: Ipv4Addr::new(10, 96, 128 | (high & 0x3f), low),
        v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 1, revision),
    }
}

/// An address in the range of cluster IPs that no service ever has.
#[must_use]
pub fn unallocated() -> Dual {
    dual([10, 96, 2], [0xfd00, 0x10, 0x96, 0], 254)
}

/// Load balancer VIP of the service of this number.
#[must_use]
pub fn vip(number: u8) -> Dual {
    dual([203, 0, 113], [0xfd00, 0x203, 0, 0], number)
}

/// External IP of the service of this number.
#[must_use]
pub fn external_ip(number: u8) -> Dual {
    dual([198, 51, 100], [0xfd00, 0x198, 0, 0], number)
}

/// Node port of a service's port, counted from 0.
#[must_use]
pub fn node_port(number: u8, port: usize) -> u16 {
    FIRST_NODE_PORT + u16::from(number) * NODE_PORTS - NODE_PORTS
        + u16::try_from(port).unwrap_or(0) % NODE_PORTS
}

/// The second address of a node, whose last number is that of its first.
#[must_use]
pub fn second_address(first: Dual) -> Dual {
    dual([172, 31, 0], [0xfd00, 0x31, 0, 0], first.v4.octets()[3])
}

/// A client on the node network and the worker it reaches service addresses through.
const CLIENTS: [(&str, u8, usize); 3] = [("client", 5, 0), ("stranger", 6, 0), ("client2", 7, 1)];

/// The cluster. `vips` are numbers of services whose VIP `worker` has, and how.
#[must_use]
pub fn topology(vips: &[(u8, VipAt)]) -> Topology {
    let pod = |name, node, cidr, number| Pod { name, node, addresses: pod_addresses(cidr, number) };
    let mut topology = Topology::two_workers(vec![
        pod("one", "worker", 1, 11),
        pod("two", "worker", 1, 12),
        pod(CALLER, "worker", 1, 20),
        pod("three", "worker2", 2, 11),
        pod("four", "worker2", 2, 12),
        pod(CALLER2, "worker2", 2, 20),
    ]);
    let on_network = |number| dual([172, 30, 0], [0xfd00, 0x30, 0, 0], number);
    topology.clients = CLIENTS.map(|(name, number, _)| Client { name, addresses: on_network(number) }).into();
    let mut extras: Vec<(&'static str, String)> = Vec::new();
    let nodes = topology.nodes.clone();
    for node in &nodes {
        let second = second_address(node.addresses);
        extras.push((node.name, format!("addr add {}/32 dev eth0", second.v4)));
        // Deprecated: a good destination, never chosen as a source.
        extras.push((node.name, format!("addr add {}/128 dev eth0 nodad preferred_lft 0", second.v6)));
        for other in nodes.iter().filter(|o| o.name != node.name) {
            extras.extend(
                routes(second_address(other.addresses).both(), other.addresses).map(|r| (node.name, r)),
            );
        }
        // Beyond answers pods too.
        let cidrs = node.pod_cidrs.iter().zip(node.addresses.both());
        extras.extend(cidrs.map(|(cidr, via)| (NODE_NETWORK, format!("route add {cidr} via {via}"))));
    }
    for (number, how) in vips {
        let Dual { v4, v6 } = vip(*number);
        let lines = match how {
            VipAt::No => Vec::new(),
            VipAt::Address => {
                vec![
                    format!("addr add {v4}/32 dev lo"),
                    format!("addr add {v6}/128 dev lo nodad preferred_lft 0"),
                ]
            }
            VipAt::LocalRoute => {
                vec![format!("route add local {v4} dev lo"), format!("route add local {v6} dev lo")]
            }
        };
        extras.extend(lines.into_iter().map(|line| ("worker", line)));
    }
    for (client, number, via) in CLIENTS {
        let addresses = on_network(number);
        for node in &nodes {
            extras.extend(routes(second_address(node.addresses).both(), node.addresses).map(|r| (client, r)));
        }
        let Some(via) = nodes.get(via) else { continue };
        // What comes from beyond goes the way that the request came, past the connection tracking that knows it.
        extras.extend(routes(addresses.both(), via.addresses).map(|r| (NODE_NETWORK, r)));
        for ranges in [SERVICE_CIDRS, EXTERNAL[0], EXTERNAL[1]] {
            extras.extend(routes(ranges, via.addresses).map(|r| (client, r)));
        }
    }
    topology.extras = extras;
    topology
}

fn routes<T: std::fmt::Display>(to: [T; 2], via: Dual) -> impl Iterator<Item = String> {
    to.into_iter().zip(via.both()).map(|(to, via)| format!("route add {to} via {via}"))
}

/// The node that a client of this name reaches service addresses through.
#[must_use]
pub fn entry_node(client: &str) -> Option<&'static str> {
    let (_, _, via) = CLIENTS.iter().find(|(name, ..)| *name == client)?;
    Some(["worker", "worker2"][*via])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_give_addresses_and_ports_that_do_not_overlap() {
        assert_eq!(cluster_ip(7).v4.to_string(), "10.96.1.7");
        assert_eq!(vip(7).v6.to_string(), "fd00:203::7");
        assert_eq!((node_port(1, 0), node_port(1, 7), node_port(2, 0)), (30_000, 30_007, 30_008));
        assert!(node_port(250, 7) < FIRST_CLIENT_PORT);
        assert_ne!(marker_ip(1), marker_ip(257));
    }

    #[test]
    fn every_range_holds_what_the_plan_takes_from_it() {
        let nets = |texts: [&str; 2]| texts.map(|t| t.parse::<ipnet::IpNet>().unwrap());
        let inside = |dual: Dual, texts| {
            let [v4, v6] = nets(texts);
            v4.contains(&IpAddr::from(dual.v4)) && v6.contains(&IpAddr::from(dual.v6))
        };
        for address in [cluster_ip(250), marker_ip(1), marker_ip(0x3fff), unallocated()] {
            assert!(inside(address, SERVICE_CIDRS), "{address:?}");
        }
        assert!(inside(vip(250), EXTERNAL[0]) && inside(external_ip(250), EXTERNAL[1]));
        assert!(inside(second_address(topology(&[]).nodes[0].addresses), SECOND_CIDRS));
    }
}
